//! The PING of this program. It is sent to any socket that it was told of, and so to ones behind which
//! something else is than was thought: it must hurt nobody.
//!
//! Above all a runtime's socket for NRI plugins: ttrpc is inside of the frames of a multiplexer there,
//! which begin with the number of a connection and a length. The id that PINGs have between calls is a
//! length of 4 GiB to it: older releases make room for as much, later ones end the connection. So the id
//! here is what is left of this frame behind those eight bytes. The PING is then one whole frame of the
//! multiplexer too, for a connection that it does not have, which is read and dropped. To servers of ttrpc
//! all odd ids are alike on which there is no call, and no call is made here (RFC KA-9).

use ttrpc_keepalive::wire::{Flags, HEADER_LENGTH, Header, MessageType};

/// A number, and one byte more: an id is odd, and so is its distance to a length.
const PAYLOAD: usize = NUMBER + 1;
const NUMBER: usize = 8;

const LENGTH: u32 = 9;
/// Type, flags and payload.
const STREAM_ID: u32 = 2 + LENGTH;

pub(crate) fn ping(number: u64) -> [u8; HEADER_LENGTH + PAYLOAD] {
    let header = Header {
        length: LENGTH,
        stream_id: STREAM_ID,
        message_type: MessageType::PING,
        flags: Flags::NONE,
    };
    let mut frame = [0; HEADER_LENGTH + PAYLOAD];
    frame[..HEADER_LENGTH].copy_from_slice(&header.encode());
    frame[HEADER_LENGTH..][..NUMBER].copy_from_slice(&number.to_be_bytes());
    frame
}

/// The number of the PING that a PONG with this payload answers.
pub(crate) fn number(payload: &[u8]) -> Option<u64> {
    let payload = <[u8; PAYLOAD]>::try_from(payload).ok()?;
    let number = payload.first_chunk()?;
    Some(u64::from_be_bytes(*number))
}

/// What else than ttrpc these first bytes of a peer are.
pub(crate) fn foreign(bytes: &[u8]) -> Option<&'static str> {
    if bytes.starts_with(b"HTTP/") {
        return Some("it speaks HTTP");
    }
    if bytes.starts_with(b"SSH-") {
        return Some("it speaks SSH");
    }
    // A frame SETTINGS: three bytes of length, a type, flags, and four bytes of stream id.
    let (length, rest) = bytes.split_first_chunk::<3>()?;
    let entries = u32::from_be_bytes([0, length[0], length[1], length[2]]);
    let settings = rest.starts_with(&[4, 0, 0, 0, 0, 0]) && entries % 6 == 0;
    settings.then_some("it speaks HTTP/2, as gRPC does")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ping_is_a_whole_frame_of_a_multiplexer_for_nobody() {
        let frame = ping(7);
        let (connection, rest) = frame.split_first_chunk::<4>().unwrap();
        let (length, payload) = rest.split_first_chunk::<4>().unwrap();
        // 1 and 2 are those that there are.
        assert!(u32::from_be_bytes(*connection) > 2);
        assert_eq!(
            usize::try_from(u32::from_be_bytes(*length)),
            Ok(payload.len())
        );
        assert_eq!(STREAM_ID % 2, 1);
        assert_eq!(number(&frame[HEADER_LENGTH..]), Some(7));
    }

    #[test]
    fn what_others_say_first_is_told_from_ttrpc() {
        for (bytes, told) in [
            (&b"HTTP/1.1 400 Bad Request"[..], Some("it speaks HTTP")),
            (b"SSH-2.0-OpenSSH_9.6", Some("it speaks SSH")),
            // As of Go's gRPC.
            (
                &[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0x40, 0],
                Some("it speaks HTTP/2, as gRPC does"),
            ),
            (&ping(1), None),
            (&[0, 0, 0, 0, 0, 0, 0, 1, 2, 0], None),
            (b"HT", None),
        ] {
            assert_eq!(foreign(bytes), told, "{bytes:?}");
        }
    }
}
