//! Two ttrpc connections on one byte stream, as NRI has them.
//!
//! A plugin and its runtime have one socket. On it the runtime calls the plugin, and the plugin calls
//! the runtime: two connections in opposite directions, whose bytes go in pieces with a header of 8
//! bytes, the connection's id and the length. [`Multiplexer::split`] gives both. Each is a
//! [`Transport`] for a [`Client`] or a [`Server`], and both roles use them alike:
//!
//! | | [`plugin_service`](Connections::plugin_service), id 1 | [`runtime_service`](Connections::runtime_service), id 2 |
//! |---|---|---|
//! | a plugin | serves | has the client |
//! | a runtime | has the client | serves |
//!
//! ```
//! # use std::sync::Arc;
//! # use protobuf::well_known_types::wrappers::StringValue;
//! # use ttrpc_keepalive::{Client, Context, Server, Service, Status};
//! use ttrpc_keepalive_nri::multiplexer::{Connections, Multiplexer};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let say = |_: Arc<()>, _: Context, request: StringValue| async { Ok::<_, Status>(request) };
//! # let service = Service::new("demo.Echo", Arc::new(())).unary("Say", say);
//! # let server = Server::builder().service(service).build()?;
//! # let (stream, there) = tokio::net::UnixStream::pair()?;
//! // The plugin's end. `stream` is a connected `tokio::net::UnixStream`.
//! let Connections { plugin_service, runtime_service, .. } = Multiplexer::new().split(stream);
//! tokio::spawn(async move { server.serve_connection(plugin_service).await });
//! let runtime = Client::builder().attach(runtime_service)?;
//!
//! // The runtime's end.
//! let Connections { plugin_service, .. } = Multiplexer::new().split(there);
//! let plugin = Client::builder().attach(plugin_service)?;
//! let answer: StringValue = plugin.call("demo.Echo", "Say", &StringValue::new()).await?;
//! # drop((runtime, answer));
//! # Ok(()) }
//! ```
//!
//! A socket of the standard library, or descriptor 3 of a plugin that was started by its runtime, goes
//! in by [`Socket::from_fd`]; any other byte stream by [`ByteStream`].
//!
//! # What the connections share
//!
//! One process is at the other end, so what is known of it is known on both:
//!
//! - **Signs of life.** Bytes for one connection are signs of life for the other, and so are bytes that
//!   are taken after they were refused (RFC KA-21). A PONG that waits behind a large message of the
//!   other connection makes nobody look dead. What the process reads is asked of the whole stream, so a
//!   peer that knows no PING is judged on both as it is on a socket of its own.
//! - **The end.** If one convicts the peer, both end with this reason and its evidence. The same holds for
//!   whatever else ends one of them but this side's will, since its peer would wait for answers
//!   that nobody gives. A write error ends writing: what has been received is still delivered, on both.
//!
//! # What closing one of them does
//!
//! A connection that *this side* closes, by dropping its client or by ending its server, leaves the other alone, in
//! whatever order; with the second the stream closes. NRI has no word for the end of one connection, so **the peer
//! is not told**, and until the second closes:
//!
//! - what the peer sends on the first is dropped: its calls there run out of their time, and its PINGs there have
//!   no answer. A peer that watches that connection goes on for as long as the other one carries bytes, and finds
//!   this side dead when that is silent too;
//! - calls of this side that were under way on the first end with
//!   [`ConnectionError::LocalClose`](ttrpc_keepalive::ConnectionError::LocalClose), and the peer's handlers for them
//!   run on;
//! - the other connection calls, serves, and is watched as before.
//!
//! So whoever is done with a peer closes both, the server first if its answers are to arrive, and a side that has
//! only one use for the stream keeps the other connection for as long: a client on it is enough, or a server without
//! services, which answers calls with UNIMPLEMENTED and PINGs with PONGs. A [`Connection`] that was given to nobody
//! answers nothing, but its bytes are kept for whoever it is given to.
//!
//! Everything else is each connection's own: whether the peer knows PING, late answers, what is written.
//! It is enough if one of the two asks: the client of the side that wants to know. A runtime watches its
//! plugin with [`Keepalive::every`] on the client of the plugin service, and a plugin, if at all, its
//! runtime with that on the client of the runtime service.
//!
//! # How they take turns
//!
//! The peer may be Go's multiplexer, which loses what does not fit where its reader stands, and a stream
//! of which more than 256 pieces wait. So:
//!
//! - a frame of up to 4096 bytes, header included, is one piece, alone or with others that fit as a whole;
//! - a longer one is 4096 bytes, and then pieces of 128 KiB, in which nothing else stands;
//! - a burst is 100 pieces at most: then the peer has a millisecond, or has answered.
//!
//! After each piece, or as many short ones as have 64 KiB, it is the other connection's turn. So a
//! PONG waits for one piece of 128 KiB at most, beside what the kernel holds, and a peer that reads
//! slowly all the time is slow for both and *not reading* for none.
//!
//! On the way in a piece may have up to 4 MiB and 10 bytes, and pieces for other ids are dropped. Nothing
//! says to the peer how much may come for one connection, so if nobody reads it the rest waits here, up to
//! [`unread_limit`](Multiplexer::unread_limit); with more than that the stream is closed, with an error that
//! names it ([`MultiplexerError`]). The other connection waits for 100 ms, once, for one whose driver is
//! behind; it is not stopped by it.
//!
//! # Who moves the bytes
//!
//! There is no task and no queue between a connection and the stream: whichever of the two drivers is
//! polled reads for both, writes what is left of both, and calls the other if something has come for
//! it. So each driver reads while it writes, whatever the other one does; back-pressure is that of the
//! stream; and dropping both ends everything. The drivers may run on different threads or runtimes, and
//! one that is blocked stops the other for no longer than 10 ms: of two on one stream only the one
//! that is busy is called for what comes, and the idle one looks after it for as long as there is
//! traffic.
//!
//! A handle that writes from its own task does so here too, unless a piece is on its way.
//!
//! Bytes are copied once on their way out, into the piece, and not at all on their way in if their own
//! connection reads them from the stream.
//!
//! # Memory
//!
//! For each stream one turn of each connection that is not written yet, 128 KiB each, and what waits
//! for a connection that is not read. A quiet stream holds a few hundred bytes.
//!
//! [`ByteStream`]: ttrpc_keepalive::ByteStream
//! [`Client`]: ttrpc_keepalive::Client
//! [`Keepalive::every`]: ttrpc_keepalive::Keepalive::every
//! [`Server`]: ttrpc_keepalive::Server
//! [`Socket::from_fd`]: ttrpc_keepalive::Socket::from_fd
//! [`Transport`]: ttrpc_keepalive::transport::Transport

use ttrpc_keepalive::IntoTransport;

mod connection;
mod error;
mod incoming;
mod outgoing;
mod trunk;
mod wakers;

pub use connection::Connection;
pub use error::MultiplexerError;

use self::trunk::Trunk;

/// The id of the connection on which the runtime calls the plugin.
pub const PLUGIN_SERVICE: u32 = 1;

/// The id of the connection on which the plugin calls the runtime.
pub const RUNTIME_SERVICE: u32 = 2;

/// The ids by the places that the connections have in here.
const ID: [u32; trunk::SIDES] = [PLUGIN_SERVICE, RUNTIME_SERVICE];

/// Splits a byte stream into the two connections of NRI: see the [module](self).
#[derive(Clone, Debug)]
pub struct Multiplexer {
    unread_limit: usize,
}

/// The two connections that share a stream.
#[derive(Debug)]
#[non_exhaustive]
pub struct Connections {
    /// The runtime calls the plugin on it: the plugin serves, the runtime has the client.
    pub plugin_service: Connection,
    /// The plugin calls the runtime on it: the runtime serves, the plugin has the client.
    pub runtime_service: Connection,
}

impl Multiplexer {
    /// With the limits that are documented at the setters.
    #[must_use]
    pub fn new() -> Self {
        Self {
            unread_limit: 16 << 20,
        }
    }

    /// How many bytes may wait for a connection whose driver does not read them, before the stream is
    /// closed. Default: 16 MiB, four messages of the largest size.
    ///
    /// A driver reads whenever it runs; only that of a server which is owed too much room for its
    /// answers does not. So this matters for a connection that was given to no client or server,
    /// or whose thread is blocked.
    #[must_use]
    pub fn unread_limit(mut self, bytes: usize) -> Self {
        self.unread_limit = bytes;
        self
    }

    /// Splits the stream: a tokio socket, a [`Socket`](ttrpc_keepalive::Socket), any stream in a
    /// [`ByteStream`](ttrpc_keepalive::ByteStream), or another
    /// [`Transport`](ttrpc_keepalive::transport::Transport).
    ///
    /// What comes for a connection that is dropped is dropped, and for one that is not used yet it waits.
    pub fn split(&self, stream: impl IntoTransport) -> Connections {
        let transport = Box::new(stream.into_transport());
        let trunk = Trunk::new(transport, self.unread_limit);
        Connections {
            plugin_service: Connection::new(&trunk, 0),
            runtime_service: Connection::new(&trunk, 1),
        }
    }
}

impl Default for Multiplexer {
    fn default() -> Self {
        Self::new()
    }
}
