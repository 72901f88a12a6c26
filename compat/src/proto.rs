//! The messages of ttrpc itself, and what encodes others.

use protobuf::Message;

use crate::context::{self, Context};
use crate::error::{Error, Result, get_status};

#[allow(
    missing_docs,
    unused_qualifications,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    clippy::as_conversions,
    clippy::unwrap_used,
    clippy::use_self,
    reason = "it is generated"
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/proto/mod.rs"));
}

pub use generated::ttrpc::*;

/// Bytes of a frame's header.
pub const MESSAGE_HEADER_LENGTH: usize = 10;
/// Bytes that may follow a header.
pub const MESSAGE_LENGTH_MAX: usize = 4 << 20;
/// A buffer's size.
pub const DEFAULT_PAGE_SIZE: usize = 4 << 10;
/// The type of a request.
pub const MESSAGE_TYPE_REQUEST: u8 = 1;
/// The type of a response.
pub const MESSAGE_TYPE_RESPONSE: u8 = 2;
/// The type of a stream's messages.
pub const MESSAGE_TYPE_DATA: u8 = 3;
/// Nothing follows from whoever sent it.
pub const FLAG_REMOTE_CLOSED: u8 = 1;
/// Messages follow from whoever sent it.
pub const FLAG_REMOTE_OPEN: u8 = 2;
/// There is no message in the frame.
pub const FLAG_NO_DATA: u8 = 4;

/// What stands in front of each message on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageHeader {
    /// Bytes that follow it.
    pub length: u32,
    /// The call.
    pub stream_id: u32,
    /// One of the `MESSAGE_TYPE_` constants.
    pub type_: u8,
    /// Some of the `FLAG_` constants.
    pub flags: u8,
}

impl MessageHeader {
    /// Of a request, without flags.
    pub fn new_request(stream_id: u32, length: u32) -> Self {
        Self::of(MESSAGE_TYPE_REQUEST, stream_id, length)
    }

    /// Of a response, without flags.
    pub fn new_response(stream_id: u32, length: u32) -> Self {
        Self::of(MESSAGE_TYPE_RESPONSE, stream_id, length)
    }

    /// Of a stream's message, without flags.
    pub fn new_data(stream_id: u32, length: u32) -> Self {
        Self::of(MESSAGE_TYPE_DATA, stream_id, length)
    }

    fn of(type_: u8, stream_id: u32, length: u32) -> Self {
        Self {
            length,
            stream_id,
            type_,
            flags: 0,
        }
    }

    /// Sets the call.
    pub fn set_stream_id(&mut self, stream_id: u32) {
        self.stream_id = stream_id;
    }

    /// Sets all flags.
    pub fn set_flags(&mut self, flags: u8) {
        self.flags = flags;
    }

    /// Adds flags.
    pub fn add_flags(&mut self, flags: u8) {
        self.flags |= flags;
    }

    fn encode(self) -> [u8; MESSAGE_HEADER_LENGTH] {
        let mut bytes = [0; MESSAGE_HEADER_LENGTH];
        bytes[..4].copy_from_slice(&self.length.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.stream_id.to_be_bytes());
        bytes[8..].copy_from_slice(&[self.type_, self.flags]);
        bytes
    }
}

/// What is missing of the bytes is taken for zeros.
impl<T: AsRef<[u8]>> From<T> for MessageHeader {
    fn from(bytes: T) -> Self {
        let mut header = [0; MESSAGE_HEADER_LENGTH];
        for (to, from) in header.iter_mut().zip(bytes.as_ref()) {
            *to = *from;
        }
        let [a, b, c, d, e, f, g, h, type_, flags] = header;
        Self {
            length: u32::from_be_bytes([a, b, c, d]),
            stream_id: u32::from_be_bytes([e, f, g, h]),
            type_,
            flags,
        }
    }
}

impl From<MessageHeader> for Vec<u8> {
    fn from(header: MessageHeader) -> Self {
        header.encode().to_vec()
    }
}

#[cfg(feature = "async")]
impl MessageHeader {
    /// Writes it, and flushes.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub async fn write_to(
        &self,
        mut writer: impl tokio::io::AsyncWriteExt + Unpin,
    ) -> std::io::Result<()> {
        writer.write_all(&self.encode()).await?;
        writer.flush().await
    }

    /// Reads one.
    ///
    /// # Errors
    ///
    /// Those of the reader.
    pub async fn read_from(
        mut reader: impl tokio::io::AsyncReadExt + Unpin,
    ) -> std::io::Result<Self> {
        let mut bytes = [0; MESSAGE_HEADER_LENGTH];
        reader.read_exact(&mut bytes).await?;
        Ok(Self::from(bytes))
    }
}

/// A message that can be sent and received. Each of rust-protobuf is one.
pub trait Codec {
    /// Why it failed.
    type E;

    /// Bytes of the encoded message.
    fn size(&self) -> u32;

    /// Encodes it.
    ///
    /// # Errors
    ///
    /// If a field that is required is missing.
    fn encode(&self) -> std::result::Result<Vec<u8>, Self::E>;

    /// Decodes one.
    ///
    /// # Errors
    ///
    /// If the bytes are none.
    fn decode(bytes: impl AsRef<[u8]>) -> std::result::Result<Self, Self::E>
    where
        Self: Sized;

    /// Decodes into one that is there.
    ///
    /// # Errors
    ///
    /// If the bytes are none.
    fn merge(&mut self, bytes: impl AsRef<[u8]>) -> std::result::Result<(), Self::E>;
}

impl<M: Message> Codec for M {
    type E = protobuf::Error;

    fn size(&self) -> u32 {
        u32::try_from(self.compute_size()).unwrap_or(u32::MAX)
    }

    fn encode(&self) -> std::result::Result<Vec<u8>, protobuf::Error> {
        self.write_to_bytes()
    }

    fn decode(bytes: impl AsRef<[u8]>) -> std::result::Result<Self, protobuf::Error> {
        Self::parse_from_bytes(bytes.as_ref())
    }

    fn merge(&mut self, bytes: impl AsRef<[u8]>) -> std::result::Result<(), protobuf::Error> {
        self.merge_from_bytes(bytes.as_ref())
    }
}

/// The request of a generated client.
#[doc(hidden)]
pub fn request(service: &str, method: &str, context: Context, payload: Vec<u8>) -> Request {
    let mut request = Request::new();
    request.set_service(service.to_owned());
    request.set_method(method.to_owned());
    request.set_timeout_nano(context.timeout_nano);
    request.set_metadata(context::to_pb(context.metadata));
    request.set_payload(payload);
    request
}

/// The response of a generated service.
#[doc(hidden)]
pub fn response<M: Codec>(result: Result<M>) -> Result<Response>
where
    M::E: std::fmt::Display,
{
    let mut response = Response::new();
    match result {
        Ok(message) => {
            let payload = message.encode();
            response.set_status(get_status(Code::OK, ""));
            response.set_payload(payload.map_err(crate::err_to_others!(e, "Encoding response "))?);
        }
        Err(error) => response.set_status(status_of(error)),
    }
    Ok(response)
}

/// The status of a handler that failed.
#[doc(hidden)]
pub fn status_of(error: Error) -> Status {
    match error {
        Error::RpcStatus(status) => status,
        other => get_status(Code::UNKNOWN, format!("{other:?}")),
    }
}
