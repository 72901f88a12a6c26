//! The decoder against streams of frames that are valid by construction, cut into pieces, damaged,
//! or not frames at all.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use bytes::{BufMut, Bytes};
use proptest::collection::vec;
use proptest::prelude::*;
use ttrpc_keepalive::wire::{
    Decoded, Decoder, Frame, HEADER_LENGTH, Header, LENGTH_LIMIT, MAX_ECHO, MAX_PAYLOAD,
    MessageType, ProtocolError, Skipped,
};

/// A frame on the wire and what becomes of it.
#[derive(Clone, Debug)]
struct Written {
    header: Header,
    payload: Vec<u8>,
}

impl Written {
    fn bytes(&self) -> Vec<u8> {
        [&self.header.encode()[..], &self.payload].concat()
    }

    fn decoded(&self) -> Decoded {
        let header = self.header;
        let known = (1..=5).contains(&header.message_type.value());
        let is_ping = [MessageType::PING, MessageType::PONG].contains(&header.message_type);
        let reason = if !known {
            Skipped::UnknownType
        } else if is_ping && self.payload.len() > MAX_ECHO {
            Skipped::LongPing
        } else if !is_ping && self.payload.len() > MAX_PAYLOAD {
            Skipped::Oversized
        } else {
            let payload = Bytes::copy_from_slice(&self.payload);
            return Decoded::Frame(Frame { header, payload });
        };
        Decoded::Skipped { header, reason }
    }
}

/// Frames of every type, mostly short; some long enough to be read in place, few too long.
fn written() -> impl Strategy<Value = Written> {
    let length = prop_oneof![
        24 => 0..80_usize,
        6 => 4_000..70_000_usize,
        1 => MAX_PAYLOAD - 2..MAX_PAYLOAD + 3,
    ];
    (length, any::<u32>(), 0..8_u8, any::<u8>(), any::<u8>()).prop_map(
        |(length, stream_id, message_type, flags, filling)| Written {
            header: Header {
                length: u32::try_from(length).unwrap(),
                stream_id,
                message_type: message_type.into(),
                flags: flags.into(),
            },
            payload: vec![filling; length],
        },
    )
}

/// Cuts bytes into pieces of these sizes, again and again.
fn pieces<'a>(mut bytes: &'a [u8], sizes: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
    let mut sizes = sizes.iter().cycle();
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let (piece, rest) = bytes.split_at((*sizes.next()?).min(bytes.len()));
        bytes = rest;
        Some(piece)
    })
}

/// Every piece through `decode`.
fn decode_all<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<Decoded>, Result<Decoder, ProtocolError>) {
    let (mut decoder, mut all) = (Decoder::new(), Vec::new());
    for piece in pieces {
        let mut input = piece;
        loop {
            match decoder.decode(&mut input) {
                Ok(Some(decoded)) => all.push(decoded),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(decoder.decode(&mut input), Err(error));
                    return (all, Err(error));
                }
            }
        }
        assert!(input.is_empty(), "None says that the input is used up");
    }
    (all, Ok(decoder))
}

/// Large payloads straight into their place, as a driver reads them; the rest through `decode`.
fn decode_in_place(mut bytes: &[u8], sizes: &[usize]) -> Vec<Decoded> {
    let (mut decoder, mut all) = (Decoder::new(), Vec::new());
    let mut sizes = sizes.iter().cycle();
    while !bytes.is_empty() {
        let size = (*sizes.next().unwrap()).min(bytes.len());
        if let Some((payload, missing)) = decoder.partial_payload() {
            let (read, rest) = bytes.split_at(size.min(missing));
            payload.put_slice(read);
            bytes = rest;
            all.extend(decoder.take_complete());
            continue;
        }
        let (mut read, rest) = bytes.split_at(size);
        bytes = rest;
        while let Some(decoded) = decoder.decode(&mut read).unwrap() {
            all.push(decoded);
        }
    }
    all
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    vec(prop_oneof![1..16_usize, 1_000..40_000_usize], 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn frames_come_out_as_they_went_in_however_they_are_cut(
        frames in vec(written(), 1..6),
        sizes in sizes(),
    ) {
        let bytes: Vec<u8> = frames.iter().flat_map(Written::bytes).collect();
        let expected: Vec<Decoded> = frames.iter().map(Written::decoded).collect();
        let (all, end) = decode_all(pieces(&bytes, &sizes));
        prop_assert!(all == expected, "in pieces");
        prop_assert!(!end.unwrap().is_mid_frame());
        prop_assert!(decode_all([&bytes[..]]).0 == expected, "in one piece");
        prop_assert!(decode_in_place(&bytes, &sizes) == expected, "in place");
    }

    #[test]
    fn the_end_of_the_stream_is_clean_between_frames_only(
        frames in vec(written(), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let bytes: Vec<u8> = frames.iter().flat_map(Written::bytes).collect();
        let cut = cut.index(bytes.len() + 1);
        let boundaries = frames.iter().scan(0, |at, frame| {
            *at += frame.bytes().len();
            Some(*at)
        });
        let between = cut == 0 || boundaries.into_iter().any(|boundary| boundary == cut);
        let (_, end) = decode_all([&bytes[..cut]]);
        prop_assert_eq!(end.unwrap().is_mid_frame(), !between);
    }

    #[test]
    fn one_damaged_byte_does_not_reach_back(
        frames in vec(written(), 1..6),
        sizes in sizes(),
        at in any::<prop::sample::Index>(),
        bits in 1..=255_u8,
    ) {
        let mut bytes: Vec<u8> = frames.iter().flat_map(Written::bytes).collect();
        let at = at.index(bytes.len());
        bytes[at] ^= bits;
        // The frames that were complete before the damage are what they were.
        let mut end = 0;
        let before = frames.iter().take_while(|frame| {
            end += frame.bytes().len();
            end <= at
        });
        let expected: Vec<Decoded> = before.map(Written::decoded).collect();
        let (all, _) = decode_all(pieces(&bytes, &sizes));
        prop_assert!(all.starts_with(&expected));
    }

    #[test]
    fn any_bytes_mean_the_same_in_any_pieces(
        // Mostly small numbers, or nearly every header would be the last.
        bytes in vec(prop_oneof![6 => Just(0), 3 => 0..8_u8, 1 => any::<u8>()], 0..2_000),
        sizes in sizes(),
    ) {
        let (whole, whole_end) = decode_all([&bytes[..]]);
        let (cut, cut_end) = decode_all(pieces(&bytes, &sizes));
        prop_assert!(whole == cut);
        prop_assert_eq!(whole_end.map(|d| d.is_mid_frame()), cut_end.map(|d| d.is_mid_frame()));
    }
}

#[test]
fn a_skipped_payload_takes_no_memory() {
    let header = Header {
        length: LENGTH_LIMIT - 1,
        stream_id: 1,
        message_type: MessageType::DATA,
        flags: 0.into(),
    };
    let mut decoder = Decoder::new();
    let skipped = decoder.decode(&mut &header.encode()[..]).unwrap();
    assert!(matches!(skipped, Some(Decoded::Skipped { .. })));
    // 256 MiB go by; none is offered a place, and what follows is read.
    let piece = vec![0; 1 << 20];
    let mut left = usize::try_from(header.length).unwrap();
    while left > 0 {
        assert!(decoder.partial_payload().is_none());
        assert!(decoder.is_mid_frame());
        let mut input = &piece[..piece.len().min(left)];
        left -= input.len();
        assert_eq!(decoder.decode(&mut input), Ok(None));
        assert!(input.is_empty());
    }
    assert!(!decoder.is_mid_frame());
}

#[test]
fn a_payload_has_room_for_itself_and_no_more() {
    for length in [16 << 10, 100_000, MAX_PAYLOAD] {
        let header = Header {
            length: u32::try_from(length).unwrap(),
            stream_id: 1,
            message_type: MessageType::DATA,
            flags: 0.into(),
        };
        let mut decoder = Decoder::new();
        assert_eq!(decoder.decode(&mut &header.encode()[..]), Ok(None));
        let (payload, missing) = decoder.partial_payload().unwrap();
        assert_eq!(
            (payload.len(), payload.capacity(), missing),
            (0, length, length)
        );
    }
}

#[test]
fn a_frame_that_comes_byte_by_byte_is_one_frame() {
    let payload = b"0123456789";
    let header = Header {
        length: 10,
        stream_id: 3,
        message_type: MessageType::DATA,
        flags: 0.into(),
    };
    let bytes = [&header.encode()[..], payload].concat();
    let mut decoder = Decoder::new();
    for (at, byte) in bytes.iter().enumerate() {
        let decoded = decoder.decode(&mut std::slice::from_ref(byte)).unwrap();
        let complete = at + 1 == HEADER_LENGTH + payload.len();
        assert_eq!(decoded.is_some(), complete, "byte {at}");
    }
}
