//! The messages of ttrpc itself: what stands around a service's own messages in a REQUEST and a
//! RESPONSE.

use std::fmt;
use std::mem;
use std::ops::{Deref, Range};

use bytes::{Buf, Bytes};
use protobuf::Chars;
use protobuf::well_known_types::any::Any;

use super::fields::{
    NUMBER_1, NUMBER_4, TEXT_1, TEXT_2, TEXT_3, TEXT_5, each_field, low_half, malformed, skip, text,
};
use crate::status::{Code, Status};
use crate::text::{self, ShownBytes, ShownPairs};

/// The envelope of a REQUEST.
#[derive(Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Request {
    /// Full name of the service; a slice of the frame.
    pub service: Chars,
    /// Bare name of the method; a slice of the frame.
    pub method: Chars,
    /// The service's own message, encoded; a slice of the frame.
    pub payload: Bytes,
    /// Time the server has, in nanoseconds. 0: no limit; negative: none is left (RFC KA-33).
    pub timeout_nano: i64,
    /// Pairs of key and value in the order they were sent; a key may repeat.
    pub metadata: Vec<(String, String)>,
}

impl Request {
    /// Reads the payload of a REQUEST frame.
    ///
    /// # Errors
    ///
    /// The bytes are no envelope, a text in it is not UTF-8 (RFC KA-47), or it has more than
    /// [`MAX_REPEATED`] pairs of metadata (RFC KA-32).
    pub fn decode(bytes: &Bytes) -> Result<Self, EnvelopeError> {
        let request = RequestFields::decode(bytes)?;
        let (service, method) = request.names()?;
        let chars = |name: &str| {
            let name = Chars::from_bytes(bytes.slice_ref(name.as_bytes()));
            name.map_err(|error| request_error(malformed(error.to_string())))
        };
        Ok(Self {
            service: chars(service)?,
            method: chars(method)?,
            payload: bytes.slice(request.payload),
            timeout_nano: request.timeout_nano,
            metadata: request.metadata,
        })
    }
}

/// Its texts and its payload are cut: they are the peer's.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("service", &text::name(&self.service))
            .field("method", &text::name(&self.method))
            .field("payload", &ShownBytes(&self.payload))
            .field("timeout_nano", &self.timeout_nano)
            .field("metadata", &ShownPairs(&self.metadata))
            .finish()
    }
}

/// The envelope of a REQUEST, read where it is: a server looks at most of it only once.
#[derive(Debug, Default)]
pub(crate) struct RequestFields<'a> {
    /// Names as they came: one that is served is known by its bytes, and a name for which that does
    /// not hold is a text only if [`names`](Self::names) says so.
    pub(crate) service: &'a [u8],
    pub(crate) method: &'a [u8],
    /// Where the service's own message is; a [`Part`].
    pub(crate) payload: Range<usize>,
    pub(crate) timeout_nano: i64,
    pub(crate) metadata: Vec<(String, String)>,
}

impl<'a> RequestFields<'a> {
    /// As [`Request::decode`], but for what [`names`](Self::names) finds.
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self, EnvelopeError> {
        let mut request = Self::default();
        each_field(bytes, |tag, input| {
            match tag {
                // The last one wins, and those before it are no less to be texts.
                TEXT_1 => text(mem::replace(&mut request.service, input.bytes()?)).map(drop)?,
                TEXT_2 => text(mem::replace(&mut request.method, input.bytes()?)).map(drop)?,
                TEXT_3 => request.payload = input.span()?,
                NUMBER_4 => request.timeout_nano = input.number()?,
                TEXT_5 => {
                    check_count(request.metadata.len(), "pairs of metadata")?;
                    request.metadata.push(read_pair(input.bytes()?)?);
                }
                other => skip(other, input)?,
            }
            Ok(())
        })
        .map_err(request_error)?;
        Ok(request)
    }

    /// The names of service and method.
    pub(crate) fn names(&self) -> Result<(&'a str, &'a str), EnvelopeError> {
        let both = text(self.service).and_then(|service| Ok((service, text(self.method)?)));
        both.map_err(request_error)
    }
}

/// The envelope of a RESPONSE.
#[derive(Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Response {
    /// Why the call failed. `None` is success, and so is a status with code 0 on the wire
    /// (RFC KA-35).
    pub status: Option<Status>,
    /// The service's own message, encoded; a slice of the frame.
    pub payload: Bytes,
}

impl Response {
    /// Reads the payload of a RESPONSE frame.
    ///
    /// # Errors
    ///
    /// The bytes are no envelope, a text in it is not UTF-8, or its status has more than
    /// [`MAX_REPEATED`] details.
    pub fn decode(bytes: &Bytes) -> Result<Self, EnvelopeError> {
        Self::from_envelope(bytes.clone())
    }

    /// As [`decode`](Self::decode), of bytes that nobody else needs: a message at their end, which
    /// is where it is, is cut out without sharing them.
    pub(crate) fn from_envelope(bytes: Bytes) -> Result<Self, EnvelopeError> {
        let mut payload = 0..0;
        let (mut code, mut message, mut details) = (0, "", Vec::new());
        each_field(&bytes, |tag, input| {
            match tag {
                // A message field that comes twice is one message in two parts.
                TEXT_1 => each_field(input.bytes()?, |tag, input| {
                    match tag {
                        NUMBER_1 => code = low_half(input.number()?),
                        TEXT_2 => message = input.text()?,
                        TEXT_3 => {
                            check_count(details.len(), "details of a status")?;
                            details.push(read_any(input.bytes()?)?);
                        }
                        other => skip(other, input)?,
                    }
                    Ok(())
                })?,
                TEXT_2 => payload = input.span()?,
                other => skip(other, input)?,
            }
            Ok(())
        })
        .map_err(|source| EnvelopeError {
            envelope: "Response",
            source,
        })?;
        let failed = code != Code::OK.value();
        let status = failed.then(|| Status::new(code.into(), message).with_details(details));
        let payload = Part::new(bytes, payload).into_bytes();
        Ok(Self { status, payload })
    }
}

/// Its payload is cut, as its status is: they are the peer's.
impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("status", &self.status)
            .field("payload", &ShownBytes(&self.payload))
            .finish()
    }
}

/// A part of bytes. Those behind it are cut off only for who keeps it: what is cut is shared, which
/// takes memory.
#[derive(Debug, Default)]
pub(crate) struct Part {
    bytes: Bytes,
    length: usize,
}

impl Part {
    pub(crate) fn new(mut bytes: Bytes, part: Range<usize>) -> Self {
        bytes.advance(part.start);
        let length = part.len();
        Self { bytes, length }
    }

    pub(crate) fn into_bytes(mut self) -> Bytes {
        self.bytes.truncate(self.length);
        self.bytes
    }

    /// The same bytes once more.
    pub(crate) fn to_bytes(&self) -> Bytes {
        self.bytes.slice(..self.length)
    }

    /// All of the bytes, for their memory.
    pub(crate) fn into_whole(self) -> Bytes {
        self.bytes
    }
}

impl Deref for Part {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

fn request_error(source: protobuf::Error) -> EnvelopeError {
    EnvelopeError {
        envelope: "Request",
        source,
    }
}

/// The payload of a REQUEST or RESPONSE is not what the protocol says it is.
#[derive(Debug, thiserror::Error)]
#[error("the {envelope} envelope cannot be decoded: {source}")]
pub struct EnvelopeError {
    envelope: &'static str,
    source: protobuf::Error,
}

/// The most pairs of metadata, and the most details of a status, that are taken from one envelope.
///
/// A pair may be two bytes on the wire and is some fifty in memory: without a bound a frame of 4 MiB
/// would grow to more than 100 MiB.
pub const MAX_REPEATED: usize = 4096;

fn read_pair(bytes: &[u8]) -> protobuf::Result<(String, String)> {
    let (mut key, mut value) = ("", "");
    each_field(bytes, |tag, input| {
        match tag {
            TEXT_1 => key = input.text()?,
            TEXT_2 => value = input.text()?,
            other => skip(other, input)?,
        }
        Ok(())
    })?;
    Ok((key.to_owned(), value.to_owned()))
}

fn read_any(bytes: &[u8]) -> protobuf::Result<Any> {
    let mut any = Any::new();
    each_field(bytes, |tag, input| {
        match tag {
            TEXT_1 => any.type_url = input.text()?.to_owned(),
            TEXT_2 => any.value = input.bytes()?.to_vec(),
            other => skip(other, input)?,
        }
        Ok(())
    })?;
    Ok(any)
}

/// Refuses one more of a repeated field when there are enough.
fn check_count(count: usize, what: &str) -> protobuf::Result<()> {
    if count < MAX_REPEATED {
        return Ok(());
    }
    Err(malformed(format!("more than {MAX_REPEATED} {what}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_and_names_are_slices_of_the_frame() {
        let payload = Bytes::from(b"\x0a\x01s\x12\x01m\x1a\x02hi".to_vec());
        let within = payload.as_ptr_range();
        let request = Request::decode(&payload).unwrap();
        assert!(within.contains(&request.payload.as_ptr()));
        assert!(within.contains(&request.service.as_bytes().as_ptr()));
    }

    #[test]
    fn the_last_value_wins_and_the_parts_of_a_status_are_one() {
        let request = Bytes::from_static(b"\x0a\x01a\x0a\x01b\x20\x05\x20\x07");
        let request = Request::decode(&request).unwrap();
        assert_eq!((&*request.service, request.timeout_nano), ("b", 7));

        let response = Bytes::from_static(b"\x0a\x02\x08\x05\x0a\x03\x12\x01m");
        let response = Response::decode(&response).unwrap();
        assert_eq!(response.status, Some(Status::new(Code::NOT_FOUND, "m")));
    }

    #[test]
    fn a_name_that_is_no_text_is_an_error_wherever_it_stands() {
        let tables: [&[u8]; 4] = [
            b"\x0a\x01\xff",
            b"\x12\x01\xff",
            b"\x0a\x01\xff\x0a\x01a",
            b"\x12\x01m\x12\x01\xff",
        ];
        for bytes in tables {
            assert!(
                Request::decode(&Bytes::from_static(bytes)).is_err(),
                "{bytes:x?}"
            );
        }
    }

    #[test]
    fn an_int32_takes_the_low_half_of_a_longer_number() {
        let response = Bytes::from_static(b"\x0a\x06\x08\x85\x80\x80\x80\x10");
        let status = Response::decode(&response).unwrap().status.unwrap();
        assert_eq!(status.code(), Code::NOT_FOUND);
    }

    #[test]
    fn repeated_fields_are_bounded() {
        let pairs = |count| Bytes::from(b"\x2a\x00".repeat(count));
        let most = Request::decode(&pairs(MAX_REPEATED)).unwrap();
        assert_eq!(most.metadata.len(), MAX_REPEATED);
        assert!(Request::decode(&pairs(MAX_REPEATED + 1)).is_err());

        // The bound is for the whole envelope, however its status is cut into parts.
        let details = |count| Bytes::from(b"\x0a\x04\x08\x02\x1a\x00".repeat(count));
        let most = Response::decode(&details(MAX_REPEATED)).unwrap();
        assert_eq!(most.status.unwrap().details().len(), MAX_REPEATED);
        assert!(Response::decode(&details(MAX_REPEATED + 1)).is_err());
    }

    #[test]
    fn an_envelope_error_says_which_envelope_and_why() {
        use std::error::Error as _;
        let error = Request::decode(&Bytes::from_static(b"\x0a\x01\xff")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the Request envelope cannot be decoded: a text is not UTF-8"
        );
        assert!(
            error
                .source()
                .is_some_and(|source| source.is::<protobuf::Error>())
        );
    }
}
