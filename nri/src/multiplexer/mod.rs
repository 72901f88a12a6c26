//! Two ttrpc connections on one byte stream, as NRI has them.

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

/// Splits a byte stream into the two connections of NRI.
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
    /// With the limits as they are documented at the setters.
    #[must_use]
    pub fn new() -> Self {
        Self {
            unread_limit: 16 << 20,
        }
    }

    /// How many bytes may wait for a connection that nobody reads, before the stream is closed.
    /// Default: 16 MiB.
    #[must_use]
    pub fn unread_limit(mut self, bytes: usize) -> Self {
        self.unread_limit = bytes;
        self
    }

    /// Splits the stream: a tokio socket, a [`Socket`](ttrpc_keepalive::Socket), or any stream in a
    /// [`ByteStream`](ttrpc_keepalive::ByteStream).
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
