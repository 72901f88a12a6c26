//! The ten bytes in front of every payload. This is the only file that looks at a wire byte by its
//! position.

use std::fmt;
use std::ops::BitOr;

use byteorder::{BigEndian, ByteOrder};

/// Bytes of a header.
pub const HEADER_LENGTH: usize = 10;

/// The largest payload of a frame, in bytes: 4,194,304 passes, one more does not (RFC KA-2).
pub const MAX_PAYLOAD: usize = 4 << 20;

/// A length from which on the bytes are no ttrpc header (RFC KA-5).
///
/// It leaves room above [`MAX_PAYLOAD`] for peers that do not check what they send, and lies below
/// the first four bytes of HTTP, TLS and SSH.
pub const LENGTH_LIMIT: u32 = 1 << 28;

/// The stream id of every PING that is sent (RFC KA-9).
///
/// It is odd, as a client's ids are, and no stream gets so far. A PONG carries the id of its PING.
pub const PING_STREAM_ID: u32 = 0xFFFF_FFFF;

/// The largest payload of a PING that is answered, in bytes (RFC KA-10, KA-13).
///
/// An answer is held until it is written. Without a bound a peer would choose how much that is.
pub const MAX_ECHO: usize = 64;

/// The header of a frame.
#[expect(
    clippy::exhaustive_structs,
    reason = "ten bytes on the wire, all of them taken"
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of payload that follow; the header itself does not count.
    pub length: u32,
    /// The stream that the frame belongs to.
    pub stream_id: u32,
    /// What the payload is.
    pub message_type: MessageType,
    /// What the sender says beside the payload; the meaning depends on the message type.
    pub flags: Flags,
}

impl Header {
    /// The header as it stands on the wire: length and stream id in big-endian order, then message
    /// type and flags (RFC KA-1).
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_LENGTH] {
        let mut bytes = [0; HEADER_LENGTH];
        BigEndian::write_u32(&mut bytes[LENGTH_AT..STREAM_ID_AT], self.length);
        BigEndian::write_u32(&mut bytes[STREAM_ID_AT..MESSAGE_TYPE_AT], self.stream_id);
        bytes[MESSAGE_TYPE_AT] = self.message_type.0;
        bytes[FLAGS_AT] = self.flags.0;
        bytes
    }

    /// The header that these bytes say. Every ten bytes are one: whether it makes sense is for the
    /// [`Decoder`](super::Decoder) to judge.
    #[must_use]
    pub fn decode(bytes: &[u8; HEADER_LENGTH]) -> Self {
        Self {
            length: BigEndian::read_u32(&bytes[LENGTH_AT..STREAM_ID_AT]),
            stream_id: BigEndian::read_u32(&bytes[STREAM_ID_AT..MESSAGE_TYPE_AT]),
            message_type: MessageType(bytes[MESSAGE_TYPE_AT]),
            flags: Flags(bytes[FLAGS_AT]),
        }
    }

    /// `length` for comparing it with memory.
    pub(crate) fn payload_length(&self) -> usize {
        usize::try_from(self.length).unwrap_or(usize::MAX)
    }
}

/// Writes the stream id into a frame that was encoded before its id was known.
///
/// A frame is built without a lock. Its id is taken under the lock that orders frames, so that ids
/// grow on the wire. Bytes too few to be a frame are left alone.
pub fn set_stream_id(frame: &mut [u8], stream_id: u32) {
    if let Some(bytes) = frame.get_mut(STREAM_ID_AT..MESSAGE_TYPE_AT) {
        BigEndian::write_u32(bytes, stream_id);
    }
}

/// Writes the length of its payload into a frame that has grown.
pub(super) fn set_length(frame: &mut [u8], length: u32) {
    if let Some(bytes) = frame.get_mut(..STREAM_ID_AT) {
        BigEndian::write_u32(bytes, length);
    }
}

/// A header of which some bytes may still be on their way.
#[derive(Clone, Debug, Default)]
pub(super) struct PartialHeader {
    bytes: [u8; HEADER_LENGTH],
    /// How many of `bytes` are here; less than [`HEADER_LENGTH`] between calls.
    filled: usize,
}

impl PartialHeader {
    /// Takes bytes from the front of `input` until the header is complete, and is empty again then.
    pub(super) fn fill(&mut self, input: &mut &[u8]) -> Option<Header> {
        if self.filled == 0 {
            if let Some((bytes, rest)) = input.split_first_chunk() {
                *input = rest;
                return Some(Header::decode(bytes));
            }
        }
        let missing = &mut self.bytes[self.filled..];
        let (taken, rest) = input.split_at(missing.len().min(input.len()));
        missing[..taken.len()].copy_from_slice(taken);
        *input = rest;
        self.filled += taken.len();
        if self.filled < HEADER_LENGTH {
            return None;
        }
        self.filled = 0;
        Some(Header::decode(&self.bytes))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// What is here of a header that is not complete.
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.filled).unwrap_or_default()
    }
}

/// What the payload of a frame is. An open set: frames of other types are skipped (RFC KA-6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MessageType(u8);

impl MessageType {
    /// Opens a stream; from client to server.
    pub const REQUEST: Self = Self(1);
    /// Ends a stream with a message or a status; from server to client.
    pub const RESPONSE: Self = Self(2);
    /// A message on an open stream; both ways.
    pub const DATA: Self = Self(3);
    /// Asks the peer for a PONG; both ways (RFC KA-8).
    pub const PING: Self = Self(4);
    /// Answers a PING; both ways (RFC KA-8).
    pub const PONG: Self = Self(5);

    /// The byte on the wire.
    #[must_use]
    pub const fn value(self) -> u8 {
        self.0
    }
}

impl From<u8> for MessageType {
    fn from(value: u8) -> Self {
        Self(value)
    }
}

impl fmt::Display for MessageType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match *self {
            Self::REQUEST => "REQUEST",
            Self::RESPONSE => "RESPONSE",
            Self::DATA => "DATA",
            Self::PING => "PING",
            Self::PONG => "PONG",
            Self(other) => return write!(f, "type {other}"),
        })
    }
}

/// The flags of a frame: eight bits, whose meaning depends on the message type. Those without one
/// are kept and ignored (RFC KA-7). `|` unites them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(u8);

impl Flags {
    /// No flag: a unary request, a response, a message in the middle of a stream, a PING.
    pub const NONE: Self = Self(0);
    /// On REQUEST and DATA: the sender sends no more messages on this stream.
    pub const REMOTE_CLOSED: Self = Self(1);
    /// On REQUEST: the sender is going to send messages on this stream.
    pub const REMOTE_OPEN: Self = Self(2);
    /// On REQUEST and DATA: the frame carries no message, not even an empty one.
    pub const NO_DATA: Self = Self(4);
    /// On PONG: the sender's handlers have stopped, although its connection answers (RFC KA-12).
    pub const HANDLERS_STALLED: Self = Self(1);

    /// The byte on the wire.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The flags of both. `|` does the same where no constant is needed.
    #[must_use]
    pub(crate) const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those that mean something on PONG. A receiver ignores all others (RFC KA-7).
    #[must_use]
    pub(crate) const fn of_pong(self) -> Self {
        Self(self.0 & Self::HANDLERS_STALLED.0)
    }

    /// Whether all flags of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl From<u8> for Flags {
    fn from(bits: u8) -> Self {
        Self(bits)
    }
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

const LENGTH_AT: usize = 0;
const STREAM_ID_AT: usize = 4;
const MESSAGE_TYPE_AT: usize = 8;
const FLAGS_AT: usize = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_ten_bytes_in_big_endian_order() {
        let header = Header {
            length: 0x0102_0304,
            stream_id: 0x0506_0708,
            message_type: MessageType::from(9),
            flags: Flags::from(10),
        };
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
        assert_eq!(header.encode(), bytes);
        assert_eq!(Header::decode(&bytes), header);
    }

    #[test]
    fn a_header_may_come_byte_by_byte() {
        let bytes = [0, 0, 0, 7, 0, 0, 0, 1, 3, 5];
        for cut in 0..HEADER_LENGTH {
            let mut partial = PartialHeader::default();
            let (mut first, mut second) = bytes.split_at(cut);
            assert_eq!(partial.fill(&mut first), None);
            assert_eq!(partial.is_empty(), cut == 0);
            assert_eq!(partial.fill(&mut second), Some(Header::decode(&bytes)));
            assert!(first.is_empty() && second.is_empty() && partial.is_empty());
        }
    }

    #[test]
    fn only_the_stream_id_is_rewritten() {
        let mut frame = [1, 2, 3, 4, 0, 0, 0, 0, 9, 10, 11];
        set_stream_id(&mut frame, 0x0506_0708);
        assert_eq!(frame, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);

        let mut no_frame = [1, 2, 3, 4, 5, 6, 7];
        set_stream_id(&mut no_frame, 0);
        assert_eq!(no_frame, [1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn a_flag_is_contained_in_a_union_and_a_union_not_in_a_flag() {
        let both = Flags::REMOTE_CLOSED | Flags::NO_DATA;
        assert_eq!(both.bits(), 5);
        assert!(both.contains(Flags::NO_DATA) && both.contains(both) && both.contains(Flags::NONE));
        assert!(!both.contains(Flags::REMOTE_OPEN) && !Flags::NO_DATA.contains(both));
    }

    #[test]
    fn a_message_type_without_a_name_keeps_its_number() {
        assert_eq!(MessageType::from(4), MessageType::PING);
        assert_eq!(MessageType::PONG.to_string(), "PONG");
        assert_eq!(MessageType::from(200).to_string(), "type 200");
        assert_eq!(MessageType::from(200).value(), 200);
    }
}
