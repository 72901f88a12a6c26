//! The statuses with which a server refuses a call by itself.

use std::error::Error;
use std::fmt::Display;

use crate::connection::Overflow;
use crate::error::ConnectionError;
use crate::status::{Code, Status};
use crate::wire::{Header, MAX_PAYLOAD, Oversized};

pub(super) fn expired() -> Status {
    let message = "the request had expired before its handler could begin";
    Status::new(Code::DEADLINE_EXCEEDED, message)
}

/// For a half of a call that has been answered.
pub(super) fn answered() -> Status {
    Status::new(Code::CANCELLED, "the call has been answered")
}

/// For a handler whose answer or messages are for nobody.
pub(super) fn connection_ended(end: &ConnectionError) -> Status {
    let message = match end {
        ConnectionError::PeerClosed
        | ConnectionError::Announced(_)
        | ConnectionError::Torn
        | ConnectionError::Reset(_)
        | ConnectionError::BrokenPipe(_) => format!("the client has left: {end}"),
        _ => format!("the connection has ended: {end}"),
    };
    Status::new(Code::UNAVAILABLE, message)
}

pub(super) fn invalid(error: &dyn Error) -> Status {
    let message = format!("the request's message cannot be decoded: {error}");
    Status::new(Code::INVALID_ARGUMENT, message)
}

pub(super) fn too_many(Overflow { size, limit }: Overflow) -> Status {
    let message = format!("{size} bytes of messages wait, {limit} may");
    Status::new(Code::RESOURCE_EXHAUSTED, message)
}

pub(super) fn response_too_large(oversized: Oversized) -> Status {
    let message = format!("the response cannot be sent: {oversized}");
    Status::new(Code::RESOURCE_EXHAUSTED, message)
}

pub(super) fn invalid_request(reason: &dyn Display) -> Status {
    Status::new(Code::INVALID_ARGUMENT, reason.to_string())
}

/// For a frame whose payload is too large.
pub(super) fn skipped(what: &str, header: Header) -> Status {
    let oversized = Oversized {
        size: header.payload_length(),
        max: MAX_PAYLOAD,
    };
    let message = format!("{what} was skipped: {oversized}");
    Status::new(Code::RESOURCE_EXHAUSTED, message)
}
