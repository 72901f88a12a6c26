//! The bytes of ttrpc: frames, and the messages that stand in them.
//!
//! Nothing in here knows a socket, a clock or a stream's state: bytes go in and frames come out, or
//! the other way round. [`Decoder`] takes bytes in pieces of any size, and [`Cutter`] finds frames for
//! who only passes them on. The `encode_` functions give a
//! whole frame, written in one pass into one allocation of the right size. [`Request::decode`] and
//! [`Response::decode`] read the envelope that a frame carries, without copying its payload.
//!
//! ```
//! use protobuf::well_known_types::wrappers::StringValue;
//! use ttrpc_keepalive::wire::{Decoded, Decoder, Flags, Request, RequestHead, encode_request};
//!
//! let head = RequestHead { service: "demo.Echo", method: "Say", timeout_nano: 0, metadata: &[] };
//! let frame = encode_request(1, Flags::NONE, &head, &StringValue::new())?;
//!
//! let mut decoder = Decoder::new();
//! let (mut first, mut second) = frame.split_at(7);
//! assert_eq!(decoder.decode(&mut first)?, None);
//! let Some(Decoded::Frame(frame)) = decoder.decode(&mut second)? else { panic!("a whole frame") };
//! assert_eq!(&*Request::decode(&frame.payload)?.method, "Say");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What a receiver does with a frame is decided elsewhere; the rules are in `RFC.md`, by their ids.

mod cutter;
pub(crate) mod decoder;
pub(crate) mod encode;
pub(crate) mod envelope;
mod fields;
pub(crate) mod frame;
pub(crate) mod header;
mod message;

pub use cutter::{Cut, Cutter};
pub use decoder::{Decoded, Decoder, ProtocolError, Skipped};
pub use encode::{
    Oversized, RequestHead, encode_data, encode_request, encode_response, encode_status,
};
pub(crate) use encode::{RequestDraft, encode_data_into};
pub use envelope::{EnvelopeError, MAX_REPEATED, Request, Response};
pub(crate) use envelope::{Part, RequestFields};
pub use frame::{Frame, ping, ping_number, pong};
pub use header::{
    Flags, HEADER_LENGTH, Header, LENGTH_LIMIT, MAX_ECHO, MAX_PAYLOAD, MessageType, PING_STREAM_ID,
    set_stream_id,
};
pub use message::{Decode, Encode, Raw};
