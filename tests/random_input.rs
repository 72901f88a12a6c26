//! Random frames and random bytes: both ends go on working, or the connection ends in order.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

#[path = "support/played.rs"]
mod played;
mod support;

use protobuf::Message;
use support::*;
use tokio::time::{sleep, timeout};
use ttrpc_keepalive::ConnectionError;
use ttrpc_keepalive::wire::{Flags, MessageType, ping};

/// Numbers that look random and are the same in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        let count = self.below(most + 1);
        (0..count).map(|_| self.next().to_le_bytes()[0]).collect()
    }

    /// A frame with a header that can be read, and anything in it.
    fn frame(&mut self) -> Vec<u8> {
        let kind = self.next().to_le_bytes()[0] % 8;
        let id = match self.below(3) {
            0 => u32::try_from(self.below(40)).unwrap(),
            1 => u32::MAX - u32::try_from(self.below(3)).unwrap(),
            _ => u32::from_le_bytes(self.next().to_le_bytes()[..4].try_into().unwrap()),
        };
        let flags = Flags::from(self.next().to_le_bytes()[0]);
        let payload = match self.below(4) {
            0 => text("hello").write_to_bytes().unwrap(),
            _ => self.bytes(100),
        };
        junk(kind, id, flags, &payload)
    }
}

#[tokio::test(start_paused = true)]
async fn random_frames_in_random_pieces_leave_both_ends_working() {
    for seed in 1..200 {
        let mut random = Random(seed * 0x9E37_79B9);
        let stream: Vec<u8> = (0..50).flat_map(|_| random.frame()).collect();
        let (mut peer, end) = served_until();
        let (client, mut far, call) = waiting().await;
        let mut rest = &stream[..];
        while !rest.is_empty() {
            let piece = usize::try_from(1 + random.below(300)).unwrap();
            let (piece, behind) = rest.split_at(piece.min(rest.len()));
            peer.send(piece).await;
            far.send(piece).await;
            rest = behind;
            if random.below(4) == 0 {
                sleep(ms(1)).await;
            }
        }
        // The id is the last one that a random request can have left.
        peer.call(0xFFFF_FFFD, "Say", "hello").await;
        peer.send(ping(u64::MAX)).await;
        loop {
            let frame = timeout(secs(5), peer.frame())
                .await
                .expect("the server answers");
            let pong = frame.header.message_type == MessageType::PONG;
            if pong && frame.payload[..] == u64::MAX.to_be_bytes() {
                break;
            }
        }
        assert!(!end.is_finished(), "seed {seed}");

        assert!(!client.snapshot().state().is_final(), "seed {seed}");
        far.respond(1).await;
        // The random frames may have been an answer to it.
        let _ = timeout(secs(5), call).await.expect("it has ended").unwrap();
        far.send(ping(u64::MAX)).await;
        loop {
            let frame = timeout(secs(5), far.frame())
                .await
                .expect("the client answers");
            let pong = frame.header.message_type == MessageType::PONG;
            if pong && frame.payload[..] == u64::MAX.to_be_bytes() {
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn random_bytes_end_a_connection_at_most() {
    let mut protocol_errors = 0;
    for seed in 1..300 {
        let mut random = Random(seed * 0x9E37_79B9);
        let bytes = random.bytes(3000);
        let (mut peer, end) = served_until();
        let (client, mut far, call) = waiting().await;
        let _ = tokio::io::AsyncWriteExt::write_all(&mut peer.stream, &bytes).await;
        let _ = tokio::io::AsyncWriteExt::write_all(&mut far.stream, &bytes).await;
        sleep(ms(1)).await;
        drop((peer, far));
        let end = timeout(secs(5), end).await.expect("it ends").unwrap();
        protocol_errors += u32::from(matches!(end, ConnectionError::Protocol(_)));
        let _ = timeout(secs(5), call).await.expect("it ends").unwrap();
        timeout(secs(5), client.closed()).await.expect("it ends");
    }
    assert!(protocol_errors > 200, "{protocol_errors}");
}

#[test]
fn whatever_is_sent_no_request_is_answered_twice_and_the_end_of_the_pipe_ends_it() {
    for seed in 1..60 {
        let mut random = Random(seed * 0x9E37_79B9);
        played::check(&random.bytes(2000));
    }
}
