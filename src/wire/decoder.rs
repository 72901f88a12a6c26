//! Bytes in, frames out.

use std::mem;

use bytes::BytesMut;

use super::frame::Frame;
use super::header::{
    HEADER_LENGTH, Header, LENGTH_LIMIT, MAX_ECHO, MAX_PAYLOAD, MessageType, PartialHeader,
};
use crate::buffers;
use crate::tuning::{READ_BYTES, READ_IN_PLACE, SMALL_MESSAGE};

/// Makes frames of bytes that come in pieces of any size.
///
/// # In
///
/// [`decode`](Self::decode) with the bytes that were read; or, for a large payload, bytes put
/// straight into [`partial_payload`](Self::partial_payload), then [`take_complete`](Self::take_complete).
///
/// # Out
///
/// [`Decoded`] items, in the order of the wire. Call `decode` again with the rest of its input until
/// it returns `None`: the input is used up then, and what it held of an unfinished frame is kept.
///
/// # Memory
///
/// At most one payload of at most [`MAX_PAYLOAD`] bytes. Its memory grows with what has come of it, to
/// at most twice as much, so a header that announces 4 MiB costs nothing; only whoever asks for
/// [`partial_payload`](Self::partial_payload) takes all of it at once. Payloads of frames that are
/// skipped are never stored.
#[derive(Debug, Default)]
pub struct Decoder {
    state: DecoderState,
}

#[derive(Debug)]
enum DecoderState {
    /// At the beginning of a frame, or within its header.
    Header(PartialHeader),
    /// Some of the payload is still to come.
    Payload { header: Header, payload: BytesMut },
    /// Within a payload that nobody is going to see.
    Skip { remaining: usize },
    /// No frame can be found any more: where the next one begins is not known.
    Failed(ProtocolError),
}

impl Default for DecoderState {
    fn default() -> Self {
        Self::Header(PartialHeader::default())
    }
}

impl Decoder {
    /// A decoder at the beginning of a connection.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes from the front of `input` until one item is complete. `None` says that the input
    /// is used up.
    ///
    /// A frame to be skipped is reported as soon as its header is here; its payload is then dropped
    /// as it comes.
    ///
    /// # Errors
    ///
    /// The bytes are not ttrpc, or not any more. The decoder repeats the error from then on and takes
    /// no more input.
    pub fn decode(&mut self, input: &mut &[u8]) -> Result<Option<Decoded>, ProtocolError> {
        loop {
            match &mut self.state {
                DecoderState::Header(partial) => {
                    let Some(header) = partial.fill(input) else {
                        return Ok(None);
                    };
                    if let Some(decoded) = self.begin(header, input)? {
                        return Ok(Some(decoded));
                    }
                }
                DecoderState::Payload { header, payload } => {
                    let length = header.payload_length();
                    let piece = take(input, length.saturating_sub(payload.len()));
                    make_room(payload, length, piece.len());
                    payload.extend_from_slice(piece);
                    return Ok(self.take_complete());
                }
                DecoderState::Skip { remaining } => {
                    *remaining -= take(input, *remaining).len();
                    if *remaining > 0 {
                        return Ok(None);
                    }
                    self.state = DecoderState::default();
                }
                DecoderState::Failed(error) => return Err(*error),
            }
        }
    }

    /// A DATA frame that lies in `input` whole and is worth no memory of its own. Asked before
    /// [`decode`](Self::decode), which would make a copy.
    pub(crate) fn decode_small<'a>(&mut self, input: &mut &'a [u8]) -> Option<(Header, &'a [u8])> {
        match &self.state {
            DecoderState::Header(partial) if partial.is_empty() => {}
            _ => return None,
        }
        let (bytes, rest) = input.split_first_chunk()?;
        let header = Header::decode(bytes);
        if header.message_type != MessageType::DATA || header.payload_length() > SMALL_MESSAGE {
            return None;
        }
        let (payload, rest) = rest.split_at_checked(header.payload_length())?;
        *input = rest;
        Some((header, payload))
    }

    /// The buffer of a payload of which much is missing, and how many bytes that is.
    ///
    /// A caller that reads from a socket may append at most so many bytes to the buffer, instead of
    /// passing them through [`decode`](Self::decode), and saves a large payload one copy. It must
    /// neither append more nor change what is there. `None` where the copy is cheaper than a read of
    /// its own: frames that follow are then read together with what is missing.
    pub fn partial_payload(&mut self) -> Option<(&mut BytesMut, usize)> {
        match &mut self.state {
            DecoderState::Payload { header, payload } => {
                let length = header.payload_length();
                let missing = length.saturating_sub(payload.len());
                if missing < READ_IN_PLACE {
                    return None;
                }
                make_room(payload, length, missing);
                Some((payload, missing))
            }
            DecoderState::Header(_) | DecoderState::Skip { .. } | DecoderState::Failed(_) => None,
        }
    }

    /// The same for a peer that is not trusted to send what it has announced: at most as many bytes as have
    /// come, or as one read asks for.
    pub(crate) fn growing_payload(&mut self) -> Option<(&mut BytesMut, usize)> {
        match &mut self.state {
            DecoderState::Payload { header, payload } => {
                let length = header.payload_length();
                let missing = length.saturating_sub(payload.len());
                if missing < READ_IN_PLACE {
                    return None;
                }
                // Not what there is room for: what others have left of buffers decides that, and reads would not
                // be the same each time.
                let more = missing.min(payload.len().max(READ_BYTES));
                make_room(payload, length, more);
                Some((payload, more))
            }
            DecoderState::Header(_) | DecoderState::Skip { .. } | DecoderState::Failed(_) => None,
        }
    }

    /// The frame, if the bytes appended to [`partial_payload`](Self::partial_payload) have completed
    /// it.
    pub fn take_complete(&mut self) -> Option<Decoded> {
        let (header, payload) = match &mut self.state {
            DecoderState::Payload { header, payload }
                if payload.len() >= header.payload_length() =>
            {
                (*header, mem::take(payload))
            }
            _ => return None,
        };
        debug_assert_eq!(payload.len(), header.payload_length(), "appended too much");
        self.state = DecoderState::default();
        let payload = payload.freeze();
        Some(Decoded::Frame(Frame { header, payload }))
    }

    /// Whether the end of the stream would come too early here, inside a frame or after an error.
    #[must_use]
    pub fn is_mid_frame(&self) -> bool {
        match &self.state {
            DecoderState::Header(partial) => !partial.is_empty(),
            DecoderState::Skip { remaining } => *remaining > 0,
            DecoderState::Payload { .. } | DecoderState::Failed(_) => true,
        }
    }

    /// Whether a header has come in part.
    pub(crate) fn is_mid_header(&self) -> bool {
        matches!(&self.state, DecoderState::Header(partial) if !partial.is_empty())
    }

    /// Whether a PING begins within `input`, that follows the frame which was decoded last.
    pub(crate) fn finds_ping(&self, mut input: &[u8]) -> bool {
        let mut passed = match self.state {
            DecoderState::Skip { remaining } => remaining,
            _ => 0,
        };
        while let Some(bytes) = input.get(passed..).and_then(<[u8]>::first_chunk) {
            let header = Header::decode(bytes);
            if header.message_type == MessageType::PING {
                return true;
            }
            input = &input[passed..];
            passed = header.payload_length().saturating_add(HEADER_LENGTH);
        }
        false
    }

    /// Judges a header. `None`: the payload is not complete yet.
    fn begin(
        &mut self,
        header: Header,
        input: &mut &[u8],
    ) -> Result<Option<Decoded>, ProtocolError> {
        // RFC KA-5: before anything else, as the other fields mean nothing then.
        if header.length >= LENGTH_LIMIT {
            let error = ProtocolError::new(&header);
            self.state = DecoderState::Failed(error);
            return Err(error);
        }
        let length = header.payload_length();
        // RFC KA-6, KA-13, KA-3: the type decides first, so that an overlong PING is never taken for
        // a message that its sender should hear of.
        let reason = match header.message_type {
            MessageType::PING | MessageType::PONG => {
                (length > MAX_ECHO).then_some(Skipped::LongPing)
            }
            MessageType::REQUEST | MessageType::RESPONSE | MessageType::DATA => {
                (length > MAX_PAYLOAD).then_some(Skipped::Oversized)
            }
            _ => Some(Skipped::UnknownType),
        };
        if let Some(reason) = reason {
            self.state = DecoderState::Skip { remaining: length };
            return Ok(Some(Decoded::Skipped { header, reason }));
        }
        if input.len() >= length {
            let mut payload = buffers::take(length);
            payload.extend_from_slice(take(input, length));
            let payload = payload.into();
            return Ok(Some(Decoded::Frame(Frame { header, payload })));
        }
        let payload = BytesMut::new();
        self.state = DecoderState::Payload { header, payload };
        Ok(None)
    }
}

/// What a [`Decoder`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decoded {
    /// A frame of a known type and an allowed size.
    Frame(Frame),
    /// A frame whose payload is dropped while it comes.
    Skipped {
        /// Its header.
        header: Header,
        /// Why its payload is not kept.
        reason: Skipped,
    },
}

/// Why the payload of a frame is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Skipped {
    /// A message of more than [`MAX_PAYLOAD`] bytes. It costs its own stream only (RFC KA-3, KA-4).
    Oversized,
    /// A PING or PONG of more than [`MAX_ECHO`] bytes. It is not answered (RFC KA-13).
    LongPing,
    /// A message type this version does not know. Nothing depends on it (RFC KA-6).
    UnknownType,
}

/// The bytes are no ttrpc frame; nothing after them can be read (RFC KA-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame announces {length} bytes, which no ttrpc peer sends: {resembles}")]
pub struct ProtocolError {
    length: u32,
    resembles: Resemblance,
}

impl ProtocolError {
    pub(super) fn new(header: &Header) -> Self {
        Self {
            length: header.length,
            resembles: Resemblance::of(header.length),
        }
    }

    /// The length that the header announces, in bytes.
    #[must_use]
    pub fn length(&self) -> u32 {
        self.length
    }
}

/// What the first bytes of a header that is none look like. The peer's user needs to know most of
/// all that the wrong two programs talk to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Resemblance {
    #[error("the bytes look like HTTP")]
    Http,
    #[error("the bytes look like a TLS handshake")]
    Tls,
    #[error("the bytes look like SSH")]
    Ssh,
    #[error("the stream is torn, or it is not ttrpc")]
    Torn,
}

impl Resemblance {
    fn of(length: u32) -> Self {
        match &length.to_be_bytes() {
            b"SSH-" => Self::Ssh,
            // A handshake record or an alert, of any version since SSL 3.
            [0x15 | 0x16, 0x03, _, _] => Self::Tls,
            b"HTTP" | b"PRI " | b"GET " | b"HEAD" | b"POST" | b"PUT " | b"DELE" | b"CONN"
            | b"OPTI" | b"TRAC" | b"PATC" => Self::Http,
            _ => Self::Torn,
        }
    }
}

/// Makes room for `more` bytes of a payload of this length, and for no more than that has. Doubled, so
/// that few bytes are moved; a buffer of the process that is free is taken whole.
fn make_room(payload: &mut BytesMut, length: usize, more: usize) {
    let needed = payload.len().saturating_add(more);
    if payload.capacity() >= needed {
        return;
    }
    let doubled = payload.len().saturating_mul(2);
    let grown = buffers::spare_mut(length)
        .unwrap_or_else(|| buffers::take_mut(needed.max(doubled).min(length)));
    let before = mem::replace(payload, grown);
    payload.extend_from_slice(&before);
    buffers::give_mut(before);
}

/// Up to `count` bytes from the front of `input`.
fn take<'a>(input: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = input.split_at(count.min(input.len()));
    *input = rest;
    taken
}

#[cfg(test)]
mod tests {
    use super::super::frame::ping;
    use super::super::header::Flags;
    use super::*;

    fn header(message_type: MessageType, length: usize) -> Header {
        Header {
            length: u32::try_from(length).unwrap(),
            stream_id: 1,
            message_type,
            flags: Flags::NONE,
        }
    }

    #[test]
    fn a_header_alone_decides_what_becomes_of_a_frame() {
        use MessageType as Type;
        let unknown = Type::from(6);
        let none = Type::from(0);
        let limit = usize::try_from(LENGTH_LIMIT).unwrap();
        let table = [
            (Type::REQUEST, MAX_PAYLOAD, None),
            (Type::RESPONSE, MAX_PAYLOAD, None),
            (Type::DATA, MAX_PAYLOAD, None),
            (Type::REQUEST, MAX_PAYLOAD + 1, Some(Skipped::Oversized)),
            (Type::RESPONSE, MAX_PAYLOAD + 1, Some(Skipped::Oversized)),
            (Type::DATA, limit - 1, Some(Skipped::Oversized)),
            (Type::PING, MAX_ECHO, None),
            (Type::PONG, MAX_ECHO, None),
            (Type::PING, MAX_ECHO + 1, Some(Skipped::LongPing)),
            (Type::PONG, limit - 1, Some(Skipped::LongPing)),
            (unknown, 0, Some(Skipped::UnknownType)),
            (unknown, limit - 1, Some(Skipped::UnknownType)),
            (none, 8, Some(Skipped::UnknownType)),
        ];
        for (message_type, length, reason) in table {
            let header = header(message_type, length);
            let mut decoder = Decoder::new();
            let decoded = decoder.decode(&mut &header.encode()[..]).unwrap();
            let expected = reason.map(|reason| Decoded::Skipped { header, reason });
            assert_eq!(decoded, expected, "{message_type} of {length}");
            assert_eq!(decoder.is_mid_frame(), length > 0);
        }
    }

    #[test]
    fn a_length_from_the_limit_on_is_the_last_thing_a_decoder_says() {
        for message_type in 0..=6 {
            let bytes = Header {
                length: LENGTH_LIMIT,
                ..header(message_type.into(), 0)
            };
            let mut decoder = Decoder::new();
            let error = decoder.decode(&mut &bytes.encode()[..]).unwrap_err();
            assert_eq!(error.length(), LENGTH_LIMIT);
            let ping = ping(1);
            let mut more = &ping[..];
            assert_eq!(decoder.decode(&mut more), Err(error));
            assert_eq!(more.len(), ping.len(), "nothing is taken after an error");
            assert!(decoder.is_mid_frame());
        }
    }

    #[test]
    fn an_error_names_the_protocol_that_was_spoken_instead() {
        let table: [(&[u8], &str); 6] = [
            (b"GET / HTTP/1.1\r\n", "HTTP"),
            (b"PRI * HTTP/2.0\r\n", "HTTP"),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03", "TLS"),
            (b"SSH-2.0-OpenSSH_9.9", "SSH"),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "torn"),
            (b"\x10\x00\x00\x00\x00\x00\x00\x01\x01\x00", "torn"),
        ];
        for (mut bytes, name) in table {
            let error = Decoder::new().decode(&mut bytes).unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
        }
    }

    #[test]
    fn a_large_payload_may_be_read_into_its_place() {
        let length = READ_IN_PLACE + 1;
        let mut decoder = Decoder::new();
        assert!(decoder.partial_payload().is_none());
        let header = header(MessageType::DATA, length);
        decoder.decode(&mut &header.encode()[..]).unwrap();
        decoder.decode(&mut &b"x"[..]).unwrap();

        let (payload, missing) = decoder.partial_payload().unwrap();
        assert_eq!((payload.len(), missing), (1, READ_IN_PLACE));
        let place = payload.as_ptr();
        payload.extend_from_slice(&[b'x'; READ_IN_PLACE - 1]);
        assert_eq!(decoder.take_complete(), None);
        assert!(
            decoder.partial_payload().is_none(),
            "one byte is not worth a read"
        );

        let decoded = decoder.decode(&mut &b"x"[..]).unwrap();
        let Some(Decoded::Frame(frame)) = decoded else {
            panic!("{decoded:?}");
        };
        assert_eq!(frame.payload, vec![b'x'; length]);
        assert_eq!(frame.payload.as_ptr(), place, "the payload was never moved");
    }

    #[test]
    fn room_grows_with_what_has_come() {
        let mut decoder = Decoder::new();
        let header = header(MessageType::DATA, MAX_PAYLOAD);
        decoder.decode(&mut &header.encode()[..]).unwrap();
        let mut reads = 0;
        while let Some((payload, room)) = decoder.growing_payload() {
            assert!(room >= READ_BYTES.min(MAX_PAYLOAD - payload.len()));
            assert!(room <= payload.len().max(READ_BYTES));
            let before = payload.capacity();
            payload.extend_from_slice(&vec![b'x'; room]);
            assert_eq!(payload.capacity(), before, "it has room");
            reads += 1;
        }
        assert!(reads <= 10, "it doubles: {reads}");
        let Some(Decoded::Frame(frame)) = decoder.take_complete() else {
            panic!("it is complete");
        };
        assert_eq!(frame.payload, vec![b'x'; MAX_PAYLOAD]);
    }

    #[test]
    fn a_payload_filled_in_place_is_taken_either_way() {
        let header = header(MessageType::DATA, READ_IN_PLACE);
        let filled = || {
            let mut decoder = Decoder::new();
            decoder.decode(&mut &header.encode()[..]).unwrap();
            let (payload, missing) = decoder.partial_payload().unwrap();
            payload.resize(missing, b'x');
            decoder
        };
        let taken = filled().take_complete();
        assert!(taken.is_some());
        let ping = ping(1);
        let mut rest = &ping[..];
        assert_eq!(filled().decode(&mut rest).unwrap(), taken);
        assert_eq!(rest.len(), HEADER_LENGTH + 8);
    }
}
