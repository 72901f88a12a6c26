//! Gives any ttrpc client or server a keepalive, by wrapping its byte stream.
//!
//! [`ttrpc_keepalive`] has a client and a server that tell a **slow** peer from a **dead** one.
//! This crate is for those who stay with the ttrpc they have: [`Layered`] goes between it and its
//! socket, and speaks PING and PONG there. What is wrapped neither sends nor sees a frame that it
//! does not know, and needs no change beyond the line that makes its stream.
//!
//! ```
//! # use protobuf::Message;
//! # use protobuf::well_known_types::wrappers::StringValue;
//! # use ttrpc_keepalive::{Context, Server, Service, Status};
//! use std::time::Duration;
//! use ttrpc::r#async::{Client, transport::Socket};
//! use ttrpc_keepalive_layer::{Keepalive, Layered, Peer};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let say = |(), _: Context, request: StringValue| async move {
//! #     tokio::time::sleep(Duration::from_secs(5)).await;
//! #     Ok::<_, Status>(request)
//! # };
//! # let echo = Service::new("demo.Echo", ()).unary("Say", say);
//! # let server = Server::builder().service(echo).build()?;
//! # let (stream, there) = tokio::io::duplex(4096);
//! # tokio::spawn(async move { server.serve_connection(there).await });
//! // `stream` is a connected `tokio::net::UnixStream`, for example. This is the changed line:
//! let stream = Layered::client(stream, &Keepalive::every(Duration::from_secs(10)))?;
//! let liveness = stream.liveness();
//! let client = Client::new(Socket::new(stream)); // ttrpc-rust, as it is
//!
//! # let mut request = ttrpc::Request::new();
//! # request.service = "demo.Echo".into();
//! # request.method = "Say".into();
//! request.timeout_nano = 2_000_000_000; // the handler needs 5 s
//! if let Err(error) = client.request(request).await {
//!     match liveness.snapshot().peer() {
//!         Peer::Alive => println!("{error}, but the peer lives: its answer is late"),
//!         Peer::Doubtful => println!("{error}, and the peer does not respond"),
//!         Peer::Gone => println!("{error}, and the peer is dead or gone"),
//!     }
//! }
//! # assert_eq!(liveness.snapshot().peer(), Peer::Alive);
//! # Ok(()) }
//! ```
//!
//! [`Layered::server`] does the same for a connection that was accepted; it asks only clients that
//! have asked it. Both ends need PING for a verdict: either has it of its own, or has a layer, or
//! is a peer in another language that follows the RFC. A peer that has not is served as before and
//! never judged by its silence; over a unix socket Linux tells whether its process reads
//! ([`Layered::with_receipts`]), so that a slow peer of today is told from one that is stopped.
//!
//! # What it does
//!
//! - It answers PINGs at the next frame boundary, ahead of what waits, and never inside a frame.
//! - It asks by the rules of [`ttrpc_keepalive::keepalive`], with the same settings, and publishes
//!   the same [`Liveness`].
//! - PING and PONG pass in neither direction, and neither does what an old server answers to a
//!   PING. Everything else passes as it is, in the order and in the pieces in which it comes,
//!   frames that it does not understand too.
//! - It sees calls pass: their ids, and the timeout that a REQUEST gives its server. A call without
//!   an answer asks shortly before its deadline, so that [`Snapshot::peer`] knows when the
//!   application's own timer fires. For this the peer is judged a little early, by a quarter of
//!   the time in which it is asked: at most 62.5 ms with the defaults.
//! - When the peer is convicted, reads and writes fail with [`TimedOut`](std::io::ErrorKind). The
//!   error carries the [`ConnectionError`]; [`dead_reason`] takes the reason out of it. What
//!   violates the framing of ttrpc ends the stream with `InvalidData`, and a wrapped side that
//!   writes it gets `InvalidInput`.
//!
//! # Who drives it
//!
//! There is no task behind it: the keepalive lives in `poll_read`. Every ttrpc implementation keeps
//! a read pending on its connection for as long as that lives, and a timer in it wakes that task.
//! So there is no second queue in which bytes could wait that the application holds for written,
//! back-pressure works as without a layer, and dropping the stream ends everything. It also makes
//! the answer to a PING more honest: it says that the task runs which reads for the application.
//!
//! An application that does not read for a while pays for it on both ends. It answers no PING, and
//! a peer that watches it will take it for what it looks like. And it judges nobody: only time in
//! which it was reading and found nothing counts against a peer. A connection that is only ever
//! written to has no keepalive.
//!
//! The stream has no descriptor that could be asked past the runtime's cache. Before silence counts
//! the scheduler gets one turn, and the stream is read once more.
//!
//! # Cancel safety
//!
//! Futures that read lose nothing when they are dropped, as with the stream itself. One that
//! writes a frame and is dropped in the middle has torn that frame, as without a layer; PONGs wait
//! for its rest from then on.
//!
//! # Memory
//!
//! For each connection 16 KiB of bytes that were read, one PING and one PONG, and what is noted of
//! calls: of 65,536 in flight and 1,024 late ones at most. Calls beyond pass and are not followed.
//! Payloads are never collected.
//!
//! # Panics
//!
//! Reading panics outside of a tokio runtime with its timer enabled, once there is something to
//! wait for.

#![forbid(unsafe_code)]

mod calls;
mod incoming;
mod layered;
mod outgoing;
mod timeout;
mod wakers;

pub use layered::{Layered, dead_reason};
pub use ttrpc_keepalive::keepalive::ConfigError;
pub use ttrpc_keepalive::{
    ConnectionError, DeadReason, Evidence, Keepalive, Liveness, OnSilence, Peer, PeerSupport,
    Snapshot, State, Support,
};
