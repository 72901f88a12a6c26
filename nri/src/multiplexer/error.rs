//! What ends a shared stream beside its own failures.

use std::io;

/// Why a multiplexer has given up its stream. Both connections end with
/// [`ConnectionError::Io`](ttrpc_keepalive::ConnectionError::Io), whose error carries this one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MultiplexerError {
    /// Nobody reads one of the connections, and the peer goes on sending on it.
    #[error("connection {connection} is not read: {waiting} bytes wait, the limit is {limit}")]
    Unread {
        /// Its id.
        connection: u32,
        /// The bytes that have come for it.
        waiting: usize,
        /// How many may wait.
        limit: usize,
    },
    /// The peer announces more than any NRI peer sends at once. It does not speak NRI's multiplexing.
    #[error("a piece of {length} bytes on connection {connection}, the limit is {limit}")]
    TooLong {
        /// The id of its connection.
        connection: u32,
        /// The length that is announced.
        length: u32,
        /// The longest one that is allowed.
        limit: u32,
    },
}

impl From<MultiplexerError> for io::Error {
    fn from(error: MultiplexerError) -> Self {
        let kind = match error {
            MultiplexerError::Unread { .. } => io::ErrorKind::Other,
            MultiplexerError::TooLong { .. } => io::ErrorKind::InvalidData,
        };
        Self::new(kind, error)
    }
}
