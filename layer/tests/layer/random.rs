//! Any bytes, in any pieces, both ways: what passes is what was given, less PING and PONG.

use proptest::collection::vec;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex, split};
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::wire::{HEADER_LENGTH, Header, MessageType, PING_STREAM_ID};
use ttrpc_keepalive_layer::Layered;

use crate::peer::*;

/// A frame of any type, PINGs and PONGs more often than others.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let message_type = prop_oneof![Just(4), Just(5), 1..=3_u8, any::<u8>()];
    let id = prop_oneof![Just(PING_STREAM_ID), 0..9_u32, any::<u32>()];
    let payload = prop_oneof![vec(any::<u8>(), 0..70), vec(any::<u8>(), 0..2000)];
    (message_type, id, any::<u8>(), payload)
        .prop_map(|(message_type, id, flags, payload)| frame(message_type, id, flags, &payload))
}

/// How many bytes each read or write is for, over and over.
fn pieces() -> impl Strategy<Value = Vec<usize>> {
    vec(prop_oneof![1..4_usize, 1..40_usize, 1..3000_usize], 1..20)
}

/// The frames of some bytes that end with one.
fn frames(mut bytes: &[u8]) -> Vec<(Header, &[u8])> {
    let mut frames = Vec::new();
    while let Some((header, rest)) = bytes.split_first_chunk::<HEADER_LENGTH>() {
        let header = Header::decode(header);
        let (payload, rest) = rest.split_at(usize::try_from(header.length).unwrap());
        frames.push((header, payload));
        bytes = rest;
    }
    assert_eq!(bytes, [], "a frame is torn");
    frames
}

/// What is left when the layer has taken out what is not for the other end.
fn without_control(bytes: &[u8], hides_answer_to_ping: bool) -> Vec<u8> {
    let hidden = |header: &Header| match header.message_type {
        MessageType::PING | MessageType::PONG => true,
        MessageType::RESPONSE => hides_answer_to_ping && header.stream_id == PING_STREAM_ID,
        _ => false,
    };
    let kept = frames(bytes)
        .into_iter()
        .filter(|(header, _)| !hidden(header));
    kept.flat_map(|(header, payload)| [&header.encode(), payload].concat())
        .collect()
}

async fn write(mut to: impl AsyncWriteExt + Unpin, bytes: Vec<u8>, pieces: Vec<usize>) {
    let mut rest = &bytes[..];
    for &piece in pieces.iter().cycle() {
        let (now, later) = rest.split_at(piece.min(rest.len()));
        to.write_all(now).await.unwrap();
        if piece % 3 == 0 {
            to.flush().await.unwrap();
        }
        tokio::task::yield_now().await;
        rest = later;
        if rest.is_empty() {
            break;
        }
    }
    to.shutdown().await.unwrap();
}

async fn read(mut from: impl AsyncReadExt + Unpin, pieces: Vec<usize>) -> Vec<u8> {
    let mut all = Vec::new();
    for &piece in pieces.iter().cycle() {
        let mut chunk = vec![0; piece];
        let count = from.read(&mut chunk).await.unwrap();
        if count == 0 {
            break;
        }
        all.extend_from_slice(&chunk[..count]);
        tokio::task::yield_now().await;
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn what_passes_is_what_was_given_and_no_frame_is_torn(
        client in any::<bool>(),
        out in vec(any_frame(), 0..12),
        back in vec(any_frame(), 0..12),
        cuts in [pieces(), pieces(), pieces(), pieces()],
        room in prop_oneof![1..40_usize, Just(4096_usize)],
    ) {
        let (out, back) = (out.concat(), back.concat());
        let pings = frames(&back)
            .iter()
            .filter(|(header, _)| header.message_type == MessageType::PING && header.length <= 64)
            .count();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let [cut_out, cut_in, cut_back, cut_there] = cuts;
        let (reached_peer, reached_side) = runtime.block_on(async {
            let (here, there) = duplex(room);
            let layered = match client {
                true => Layered::client(here, &watch()),
                false => Layered::server(here, &Keepalive::off()),
            };
            let (reader, writer) = split(layered.unwrap());
            let (peer_reader, peer_writer) = split(there);
            let ((), reached_side, (), reached_peer) = tokio::join!(
                write(writer, out.clone(), cut_out),
                read(reader, cut_in),
                write(peer_writer, back.clone(), cut_back),
                read(peer_reader, cut_there),
            );
            (reached_peer, reached_side)
        });
        prop_assert_eq!(&reached_side, &without_control(&back, client));
        prop_assert_eq!(without_control(&reached_peer, false), without_control(&out, false));
        let pongs = frames(&reached_peer)
            .iter()
            .filter(|(header, _)| header.message_type == MessageType::PONG)
            .count();
        prop_assert!(pongs <= pings, "{} PONGs for {} PINGs", pongs, pings);
    }
}
