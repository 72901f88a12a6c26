//! A whole frame, and the two frames that carry no message.

use std::fmt;

use bytes::Bytes;

use super::header::{Flags, HEADER_LENGTH, Header, MAX_ECHO, MessageType, PING_STREAM_ID};
use crate::text::ShownBytes;

/// A frame as the [`Decoder`](super::Decoder) yields it.
#[expect(
    clippy::exhaustive_structs,
    reason = "a frame is its header and its payload"
)]
#[derive(Clone, PartialEq, Eq)]
pub struct Frame {
    /// The header; its `length` is that of `payload`.
    pub header: Header,
    /// The bytes after the header, in an allocation that is just so long, or a used one.
    pub payload: Bytes,
}

/// Of the payload its beginning.
impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("header", &self.header)
            .field("payload", &ShownBytes(&self.payload))
            .finish()
    }
}

/// A PING: the frame that asks for the PONG with the same number (RFC KA-9).
///
/// The number stands in the payload as eight big-endian bytes. It means nothing to the peer.
#[must_use]
pub fn ping(number: u64) -> [u8; HEADER_LENGTH + NUMBER_LENGTH] {
    let payload = number.to_be_bytes();
    let header = echo_header(PING_STREAM_ID, MessageType::PING, Flags::NONE, &payload);
    let mut frame = [0; HEADER_LENGTH + NUMBER_LENGTH];
    frame[..HEADER_LENGTH].copy_from_slice(&header);
    frame[HEADER_LENGTH..].copy_from_slice(&payload);
    frame
}

/// The PONG for a PING with this stream id and this payload (RFC KA-11).
///
/// A PING of more than [`MAX_ECHO`] bytes has no answer: the decoder skips it (RFC KA-13). Should
/// one be given here all the same, what is over is left out, and the frame stays a valid one.
#[must_use]
pub fn pong(stream_id: u32, flags: Flags, payload: &[u8]) -> Vec<u8> {
    let payload = payload.get(..MAX_ECHO).unwrap_or(payload);
    let header = echo_header(stream_id, MessageType::PONG, flags, payload);
    [&header, payload].concat()
}

/// The number that [`ping`] put into this payload; `None` if it did not make this payload.
#[must_use]
pub fn ping_number(payload: &[u8]) -> Option<u64> {
    payload.try_into().ok().map(u64::from_be_bytes)
}

/// The header of a PING or PONG, whose payload is short.
fn echo_header(
    stream_id: u32,
    message_type: MessageType,
    flags: Flags,
    payload: &[u8],
) -> [u8; HEADER_LENGTH] {
    Header {
        length: u32::try_from(payload.len()).expect("at most MAX_ECHO bytes"),
        stream_id,
        message_type,
        flags,
    }
    .encode()
}

const NUMBER_LENGTH: usize = size_of::<u64>();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ping_is_eighteen_bytes() {
        let frame = ping(0x0102_0304_0506_0708);
        let bytes = [0, 0, 0, 8, 255, 255, 255, 255, 4, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(frame, bytes);
    }

    #[test]
    fn a_pong_echoes_id_and_payload_and_sets_its_own_flags() {
        assert_eq!(
            pong(7, Flags::HANDLERS_STALLED, b"abc"),
            [0, 0, 0, 3, 0, 0, 0, 7, 5, 1, b'a', b'b', b'c']
        );
        assert_eq!(pong(0, Flags::NONE, b""), [0, 0, 0, 0, 0, 0, 0, 0, 5, 0]);
    }

    #[test]
    fn a_pong_is_never_longer_than_a_peer_takes() {
        for (given, sent) in [(63, 63), (64, 64), (65, 64), (4096, 64)] {
            let frame = pong(1, Flags::NONE, &vec![0xAB; given]);
            assert_eq!(frame.len(), HEADER_LENGTH + sent);
            assert_eq!(frame[..4], [0, 0, 0, u8::try_from(sent).unwrap()]);
        }
    }

    #[test]
    fn only_eight_bytes_are_a_number() {
        assert_eq!(
            ping_number(&ping(u64::MAX)[HEADER_LENGTH..]),
            Some(u64::MAX)
        );
        for length in [0, 7, 9, 64] {
            assert_eq!(ping_number(&vec![0; length]), None);
        }
    }
}
