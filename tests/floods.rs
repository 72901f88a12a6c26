//! A peer that sends without end: memory is bounded, and nothing else starves.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::io::{self, IoSlice, Read, Write};
use std::os::unix::net::UnixStream;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::BytesMut;
use support::*;
use tokio::time::sleep;
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::transport::Transport;
use ttrpc_keepalive::wire::{Flags, MessageType, ping};
use ttrpc_keepalive::{Client, State, Verdict};

/// A thread that writes `frames` again and again until the socket closes or it has done so
/// `times`, and never reads. Yields how often it did.
fn flood(mut socket: UnixStream, frames: Vec<u8>, times: usize) -> std::thread::JoinHandle<usize> {
    std::thread::spawn(move || {
        for done in 0..times {
            if socket.write_all(&frames).is_err() {
                return done;
            }
        }
        // The socket stays open until the other side is done with it.
        let _ = socket.set_read_timeout(Some(secs(20)));
        while socket.read(&mut [0; 4096]).is_ok_and(|read| read > 0) {}
        times
    })
}

fn sockets() -> (tokio::net::UnixStream, UnixStream) {
    let (here, there) = UnixStream::pair().unwrap();
    here.set_nonblocking(true).unwrap();
    (tokio::net::UnixStream::from_std(here).unwrap(), there)
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_pings_in_one_go_gets_one_pong() {
    let mut peer = served(echo().build().unwrap());
    let flood: Vec<u8> = (0..1000).flat_map(ping).collect();
    peer.send(flood).await;
    let pong = peer.frame().await;
    assert_eq!(pong.header.message_type, MessageType::PONG);
    assert_eq!(
        pong.payload[..],
        999u64.to_be_bytes(),
        "the newest is answered"
    );
    peer.silence(secs(1)).await;
}

// T45
// RFC KA-20
#[tokio::test(start_paused = true)]
async fn a_peer_that_pings_all_the_time_gets_its_calls_answered() {
    let mut peer = served(echo().build().unwrap());
    for round in 0..300u32 {
        let mut burst: Vec<u8> = (0..100).flat_map(ping).collect();
        burst.extend(ping(u64::from(round)));
        peer.send(burst).await;
        peer.call(2 * round + 1, "Say", "hello").await;
        let (mut pongs, mut answered) = (0, false);
        while !answered {
            match peer.frame().await.header.message_type {
                MessageType::PONG => pongs += 1,
                _ => answered = true,
            }
        }
        assert!(pongs <= 3, "{pongs} PONGs in front of an answer");
    }
}

/// What a peer may send without end. Frames are large enough for this side to keep up where it is
/// not optimised.
fn endless() -> Vec<(&'static str, Vec<u8>)> {
    let unknown = junk(77, 3, Flags::NONE, &[0; 1000]).repeat(60);
    vec![
        ("PINGs", [&unknown[..], &ping(1)].concat()),
        (
            "oversized frames",
            junk(3, 5, Flags::NONE, &vec![0; 5 << 20]),
        ),
    ]
}

// A look needs the socket read until it is empty, which it never is here.
#[test]
fn a_call_ends_at_its_deadline_while_the_peer_floods() {
    for (what, frames) in endless() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (here, there) = sockets();
            let client = Client::builder()
                .keepalive(Keepalive::off())
                .attach(here)
                .unwrap();
            let flooder = flood(there, frames, usize::MAX);
            let start = Instant::now();
            let late = tokio::time::timeout(secs(20), say_within(&client, ms(300))).await;
            let Ok(late) = late else {
                panic!("{what}: no end after {:?}", start.elapsed());
            };
            let error = late.unwrap_err();
            assert_eq!(error.verdict(), Some(Verdict::Slow), "{what}: {error}");

            // And the connection ends when its last handle is dropped.
            drop(client);
            let ended = tokio::task::spawn_blocking(move || flooder.join().unwrap());
            let ended = tokio::time::timeout(secs(20), ended).await;
            assert!(ended.is_ok(), "{what}: the connection did not close");
        });
    }
}

/// A stream that always has more to read and takes whatever is written.
struct Endless(Vec<u8>);

impl Transport for Endless {
    fn poll_read(
        &mut self,
        _: &mut Context<'_>,
        buffer: &mut BytesMut,
        _: usize,
    ) -> Poll<io::Result<usize>> {
        buffer.extend_from_slice(&self.0);
        Poll::Ready(Ok(self.0.len()))
    }

    fn poll_write(
        &mut self,
        _: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()))
    }
}

// The same where the stream is never found empty, however fast this side reads.
#[tokio::test(start_paused = true)]
async fn a_stream_that_is_never_empty_keeps_no_deadline_from_being_seen() {
    let frames = ping(1).repeat(10);
    let client = Client::builder().attach(Endless(frames)).unwrap();
    let call = {
        let client = client.clone();
        tokio::spawn(async move { say_within(&client, ms(300)).await })
    };
    for _ in 0..100 {
        tokio::task::yield_now().await;
        pause(ms(10));
    }
    assert!(call.is_finished(), "the deadline was 700 ms ago");
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.verdict(), Some(Verdict::Slow));

    let mut liveness = client.liveness();
    drop(client);
    while let Some(seen) = liveness.next().await {
        if seen.state().is_final() {
            return;
        }
    }
    panic!("the last snapshot is final");
}

// The same for the server: it answers, serves other connections, and can be stopped.
#[tokio::test]
async fn a_server_flooded_on_one_connection_serves_another() {
    let server = echo().build().unwrap();
    let (here, there) = sockets();
    let flooded = {
        let server = server.clone();
        tokio::spawn(async move { server.serve_connection(here).await })
    };
    let flooder = flood(there, endless().remove(0).1, usize::MAX);
    let (client, _) = pair(server.clone(), Client::builder(), 64 << 10);
    for _ in 0..3 {
        tokio::time::timeout(secs(20), say(&client))
            .await
            .unwrap()
            .unwrap();
    }
    drop(client);
    let stopped = tokio::time::timeout(secs(20), server.shutdown(ms(200))).await;
    assert!(stopped.is_ok(), "it stops");
    let end = flooded.await.unwrap();
    assert!(end.is_local_close() || end.io_error().is_some(), "{end}");
    flooder.join().unwrap();
}

// T86
#[tokio::test(start_paused = true)]
async fn a_watcher_is_not_woken_by_frames() {
    let (client, mut peer) = scripted(Keepalive::every(secs(1)).timeout(secs(1)), 64 << 10);
    let mut liveness = client.liveness();
    let watcher = tokio::spawn(async move {
        let mut seen = Vec::new();
        while let Some(snapshot) = liveness.next().await {
            seen.push((snapshot.state(), snapshot.support()));
        }
        seen
    });
    peer.answer_ping().await;
    let frames = junk(77, 3, Flags::NONE, b"x").repeat(100);
    for _ in 0..1000 {
        peer.send(&frames).await;
    }
    sleep(ms(1)).await;
    drop(peer);
    let seen = watcher.await.unwrap();
    assert!(matches!(seen.last().unwrap().0, State::Closed(_)));
    assert!(seen.len() <= 3, "first, support, end: {seen:?}");
}
