//! The statuses with which a server refuses a call by itself.

use crate::connection::Overflow;
use crate::status::{Code, Status};
use crate::wire::Oversized;

pub(super) fn expired() -> Status {
    let message = "the request had expired before its handler could begin";
    Status::new(Code::DEADLINE_EXCEEDED, message)
}

/// For a half of a call that has been answered.
pub(super) fn answered() -> Status {
    Status::new(Code::CANCELLED, "the call has been answered")
}

pub(super) fn invalid(error: &protobuf::Error) -> Status {
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
