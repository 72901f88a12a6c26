//! Messages of applications: into frames, and out of what was received. Each is a message of
//! protobuf, or bytes that are encoded elsewhere.

use bytes::Bytes;
use protobuf::Message;

use crate::buffers;
use crate::connection::Received;
use crate::wire::{Flags, Oversized, Raw, encode_data_into};

/// Writes a message's frame in place of what the buffer holds.
pub(crate) type Encode<Q> = fn(u32, &Q, &mut Vec<u8>) -> Result<(), Oversized>;
/// Takes a message of an application out of what was received.
pub(crate) type Decode<R> = fn(Received<'_>) -> protobuf::Result<R>;

pub(crate) fn encode_message<Q: Message>(
    id: u32,
    message: &Q,
    frame: &mut Vec<u8>,
) -> Result<(), Oversized> {
    encode_data_into(frame, id, Flags::NONE, message)
}

pub(crate) fn encode_bytes(id: u32, message: &[u8], frame: &mut Vec<u8>) -> Result<(), Oversized> {
    encode_data_into(frame, id, Flags::NONE, &Raw(message))
}

pub(crate) fn decode_message<R: Message>(message: Received<'_>) -> protobuf::Result<R> {
    match message {
        Received::Own(bytes) => {
            let message = R::parse_from_tokio_bytes(&bytes);
            buffers::give_bytes(bytes);
            message
        }
        Received::Shared(bytes) => R::parse_from_bytes(bytes),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "decodes as others do")]
pub(crate) fn decode_bytes(message: Received<'_>) -> protobuf::Result<Bytes> {
    Ok(match message {
        Received::Own(bytes) => bytes,
        Received::Shared(bytes) => Bytes::copy_from_slice(bytes),
    })
}
