//! Errors, in the shape that users of `ttrpc` match on.

use crate::proto::{Code, Response, Status};

/// Why something failed. The variants are those of the crate `ttrpc`, and none is added: users match on
/// all of them.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// The connection ended while a call was on its way, and why. `early eof` if the peer closed it.
    #[error("socket err: {0}")]
    Socket(String),
    /// The peer answered with a status.
    #[error("rpc status: {0:?}")]
    RpcStatus(Status),
    /// The operating system refused.
    #[error("Nix error: {0}")]
    Nix(#[from] nix::Error),
    /// The connection had ended before, or this half of a stream.
    #[error("ttrpc err: local stream closed")]
    LocalClosed,
    /// The stream had ended before.
    #[error("ttrpc err: remote stream closed")]
    RemoteClosed,
    /// The peer has ended the stream.
    #[error("eof")]
    Eof,
    /// Anything else. A call that ran out of time here says what is known of the peer.
    #[error("ttrpc err: {0}")]
    Others(String),
}

/// The result of most functions.
pub type Result<T> = std::result::Result<T, Error>;

impl From<Error> for Response {
    fn from(error: Error) -> Self {
        let status = match error {
            Error::RpcStatus(status) => status,
            other => get_status(Code::UNKNOWN, other),
        };
        let mut response = Self::new();
        response.set_status(status);
        response
    }
}

/// A status of this code, with this text.
pub fn get_status(code: Code, message: impl ToString) -> Status {
    let mut status = Status::new();
    status.set_code(code);
    status.set_message(message.to_string());
    status
}

/// The same as an error.
pub fn get_rpc_status(code: Code, message: impl ToString) -> Error {
    Error::RpcStatus(get_status(code, message))
}

/// A failed read as an error: of no bytes the end of the stream, else INVALID_ARGUMENT.
pub fn sock_error_msg(size: usize, message: String) -> Error {
    if size == 0 {
        return Error::Socket("socket disconnected".to_owned());
    }
    get_rpc_status(Code::INVALID_ARGUMENT, message)
}

/// Puts words in front of an error.
#[cfg(feature = "async")]
pub(crate) fn others(words: &'static str) -> impl Fn(std::io::Error) -> Error {
    move |error| Error::Others(format!("{words}{error}"))
}

/// What the operating system says, by its number.
pub(crate) fn refused(error: std::io::Error) -> Error {
    match error.raw_os_error() {
        Some(number) => Error::Nix(nix::Error::from_i32(number)),
        None => Error::Others(error.to_string()),
    }
}
