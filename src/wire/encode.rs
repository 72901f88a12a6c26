//! From a message to a whole frame, in one pass; fields in the order of their numbers, those with
//! the default value left out (RFC KA-45).

use protobuf::well_known_types::any::Any;

use super::envelope::RequestFields;
use super::fields::{
    field_size, integer_size, optional_size, string_size, write_integer, write_length, write_string,
};
use super::header::{Flags, HEADER_LENGTH, Header, MAX_PAYLOAD, MessageType, set_length};
use super::message::Encode;
use crate::buffers;
use crate::status::Status;

/// What a request says beside its message.
#[expect(clippy::exhaustive_structs, reason = "the fields that ttrpc has")]
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    /// Full name of the service, as `demo.Echo`.
    pub service: &'a str,
    /// Bare name of the method, as `Say`.
    pub method: &'a str,
    /// Time the server has, in nanoseconds. 0: no limit; negative: none is left (RFC KA-33).
    pub timeout_nano: i64,
    /// Pairs of key and value; a key may repeat.
    pub metadata: &'a [(String, String)],
}

/// A REQUEST frame. The stream id may be put in later, by
/// [`set_stream_id`](super::set_stream_id).
///
/// # Errors
///
/// Head and message together are longer than [`MAX_PAYLOAD`] (RFC KA-2).
///
/// # Panics
///
/// `payload` writes another number of bytes than it has announced.
pub fn encode_request(
    stream_id: u32,
    flags: Flags,
    head: &RequestHead<'_>,
    payload: &dyn Encode,
) -> Result<Vec<u8>, Oversized> {
    let payload_len = payload.encoded_len();
    let pairs = head.metadata.iter();
    let size = string_size(head.service)
        .saturating_add(string_size(head.method))
        .saturating_add(optional_size(payload_len))
        .saturating_add(integer_size(head.timeout_nano))
        .saturating_add(pairs.map(|pair| field_size(pair_size(pair))).sum());
    frame(stream_id, MessageType::REQUEST, flags, size, |out| {
        write_string(1, head.service, out);
        write_string(2, head.method, out);
        write_payload(3, payload, payload_len, out);
        write_integer(4, head.timeout_nano, out);
        write_pairs(head.metadata, out);
    })
}

/// A REQUEST frame to which the time and the metadata are added when it is sent, and anew if it had to
/// wait.
#[derive(Debug)]
pub(crate) struct RequestDraft {
    frame: Vec<u8>,
    /// Where time and metadata go. They are the last fields.
    end: usize,
}

/// Bytes of the field of a time that is not negative, at most.
const TIME_FIELD: usize = 10;

impl RequestDraft {
    pub(crate) fn new(
        flags: Flags,
        service: &str,
        method: &str,
        payload: &dyn Encode,
    ) -> Result<Self, Oversized> {
        let payload_len = payload.encoded_len();
        let size = string_size(service)
            .saturating_add(string_size(method))
            .saturating_add(optional_size(payload_len));
        let mut frame = Vec::new();
        if size <= MAX_PAYLOAD {
            frame = buffers::take(HEADER_LENGTH + size + TIME_FIELD);
        }
        let kind = MessageType::REQUEST;
        frame_into(&mut frame, 0, kind, flags, size, |out| {
            write_string(1, service, out);
            write_string(2, method, out);
            write_payload(3, payload, payload_len, out);
        })?;
        let end = frame.len();
        Ok(Self { frame, end })
    }

    /// The whole frame. Once it is taken out of here the draft is empty.
    pub(crate) fn finish(
        &mut self,
        timeout_nano: i64,
        metadata: &[(String, String)],
    ) -> Result<&mut Vec<u8>, Oversized> {
        let pairs = metadata.iter();
        let size = (self.end - HEADER_LENGTH)
            .saturating_add(integer_size(timeout_nano))
            .saturating_add(pairs.map(|pair| field_size(pair_size(pair))).sum());
        let length = payload_length(size)?;
        let out = &mut self.frame;
        out.truncate(self.end);
        out.reserve_exact(HEADER_LENGTH + size - self.end);
        write_integer(4, timeout_nano, out);
        write_pairs(metadata, out);
        set_length(out, length);
        Ok(out)
    }

    /// The names of service and method, read where they are.
    pub(crate) fn names(&self) -> (&str, &str) {
        let payload = self.frame.get(HEADER_LENGTH..).unwrap_or_default();
        let fields = RequestFields::decode(payload);
        fields.and_then(|fields| fields.names()).unwrap_or(("", ""))
    }
}

fn write_pairs(metadata: &[(String, String)], out: &mut Vec<u8>) {
    for pair in metadata {
        write_length(5, pair_size(pair), out);
        write_string(1, &pair.0, out);
        write_string(2, &pair.1, out);
    }
}

/// A RESPONSE frame that ends a call with a message, and so with success.
///
/// # Errors
///
/// The message with its envelope is longer than [`MAX_PAYLOAD`] (RFC KA-2).
///
/// # Panics
///
/// `payload` writes another number of bytes than it has announced.
pub fn encode_response(stream_id: u32, payload: &dyn Encode) -> Result<Vec<u8>, Oversized> {
    let payload_len = payload.encoded_len();
    let size = optional_size(payload_len);
    let flags = Flags::NONE;
    frame(stream_id, MessageType::RESPONSE, flags, size, |out| {
        write_payload(2, payload, payload_len, out);
    })
}

/// A RESPONSE frame that ends a call with a status.
///
/// It always fits into a frame, since an error that cannot be told would leave the client waiting.
/// Where it would be longer than [`MAX_PAYLOAD`] it loses its details, all of them; the message is
/// then cut between two characters if it is still too long.
#[must_use]
#[expect(
    clippy::missing_panics_doc,
    reason = "what does not fit is cut before it is written"
)]
pub fn encode_status(stream_id: u32, status: &Status) -> Vec<u8> {
    let code = status.code().value();
    let whole = status_size(code, status.message(), status.details());
    let (message, details) = if field_size(whole) <= MAX_PAYLOAD {
        (status.message(), status.details())
    } else {
        let room = MAX_PAYLOAD - AROUND_STATUS_MESSAGE;
        (prefix(status.message(), room), [].as_slice())
    };
    let status_size = status_size(code, message, details);
    let (kind, flags) = (MessageType::RESPONSE, Flags::NONE);
    frame(stream_id, kind, flags, field_size(status_size), |out| {
        write_length(1, status_size, out);
        write_integer(1, code.into(), out);
        write_string(2, message, out);
        for detail in details {
            write_length(3, detail.encoded_len(), out);
            detail.encode(out);
        }
    })
    .expect("cut to fit above")
}

/// A DATA frame with one message, which has no envelope.
///
/// # Errors
///
/// The message is longer than [`MAX_PAYLOAD`] (RFC KA-2).
///
/// # Panics
///
/// `payload` writes another number of bytes than it has announced.
pub fn encode_data(
    stream_id: u32,
    flags: Flags,
    payload: &dyn Encode,
) -> Result<Vec<u8>, Oversized> {
    let mut frame = Vec::new();
    encode_data_into(&mut frame, stream_id, flags, payload).map(|()| frame)
}

/// The same, in place of what `frame` holds.
pub(crate) fn encode_data_into(
    frame: &mut Vec<u8>,
    stream_id: u32,
    flags: Flags,
    payload: &dyn Encode,
) -> Result<(), Oversized> {
    let size = payload.encoded_len();
    frame_into(frame, stream_id, MessageType::DATA, flags, size, |out| {
        payload.encode(out);
    })
}

/// A message does not fit into a frame (RFC KA-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a payload of {size} bytes is longer than the {max} that a frame may carry")]
#[non_exhaustive]
pub struct Oversized {
    /// Bytes of payload that the frame would have.
    pub size: usize,
    /// Bytes of payload that a frame may have: [`MAX_PAYLOAD`].
    pub max: usize,
}

/// Writes a frame whose payload has this size, into one allocation that is just large enough.
fn frame(
    stream_id: u32,
    message_type: MessageType,
    flags: Flags,
    size: usize,
    write: impl FnOnce(&mut Vec<u8>),
) -> Result<Vec<u8>, Oversized> {
    let mut frame = Vec::new();
    frame_into(&mut frame, stream_id, message_type, flags, size, write)?;
    Ok(frame)
}

/// The same in place of what `frame` holds, and in its memory if that is enough.
fn frame_into(
    frame: &mut Vec<u8>,
    stream_id: u32,
    message_type: MessageType,
    flags: Flags,
    size: usize,
    write: impl FnOnce(&mut Vec<u8>),
) -> Result<(), Oversized> {
    frame.clear();
    let length = payload_length(size)?;
    let header = Header {
        length,
        stream_id,
        message_type,
        flags,
    };
    if frame.capacity() < HEADER_LENGTH + size {
        *frame = buffers::take(HEADER_LENGTH + size);
    }
    frame.extend_from_slice(&header.encode());
    write(frame);
    // A wrong length would tear the stream for every call of the connection. It is a defect of this
    // one message's code, and stays with its caller.
    assert_eq!(
        frame.len() - HEADER_LENGTH,
        size,
        "a message wrote another number of bytes than it announced"
    );
    Ok(())
}

fn payload_length(size: usize) -> Result<u32, Oversized> {
    let max = MAX_PAYLOAD;
    match u32::try_from(size) {
        Ok(length) if size <= max => Ok(length),
        _ => Err(Oversized { size, max }),
    }
}

/// The longest beginning of `text` that has at most `room` bytes and ends with a whole character.
fn prefix(text: &str, room: usize) -> &str {
    let mut end = room.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn write_payload(field: u32, payload: &dyn Encode, payload_len: usize, out: &mut Vec<u8>) {
    if payload_len > 0 {
        write_length(field, payload_len, out);
        payload.encode(out);
    }
}

fn pair_size((key, value): &(String, String)) -> usize {
    string_size(key) + string_size(value)
}

fn status_size(code: i32, message: &str, details: &[Any]) -> usize {
    let details = details
        .iter()
        .map(|detail| field_size(detail.encoded_len()));
    integer_size(code.into()) + string_size(message) + details.sum::<usize>()
}

/// The most bytes in a status frame's payload beside the message: tag and length of the status, its
/// code, tag and length of the message.
const AROUND_STATUS_MESSAGE: usize = (1 + 4) + (1 + 10) + (1 + 4);

#[cfg(test)]
mod tests;
