//! Calls that are seen to pass, and their deadlines.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::{Instant, advance, sleep, sleep_until};
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::wire::MessageType;
use ttrpc_keepalive_layer::{Layered, Peer as Summary, State, Support};

use crate::peer::*;

/// A client of a peer that is known to answer PINGs, and a task that reads for it.
async fn known(keepalive: &Keepalive) -> (Side, Peer) {
    let (mut side, mut peer) = client(keepalive);
    drop(side.read_on());
    side.write(request(1, secs(0))).await;
    peer.answer_ping().await;
    peer.frame(MessageType::REQUEST).await;
    peer.send(response(1)).await;
    sleep(secs(60)).await;
    assert_eq!(side.liveness.snapshot().support(), Support::Yes);
    (side, peer)
}

#[tokio::test(start_paused = true)]
async fn a_slow_peer_is_asked_before_the_deadline_and_alive_at_it() {
    let (mut side, mut peer) = known(&Keepalive::on_demand()).await;
    let start = Instant::now();
    side.write(request(3, secs(2))).await;
    peer.frame(MessageType::REQUEST).await;
    peer.answer_ping().await;
    let asked = start.elapsed();
    assert!(asked > ms(1500) && asked < ms(1800), "{asked:?}");
    sleep_until(start + secs(2)).await;
    let seen = side.liveness.snapshot();
    assert_eq!(seen.peer(), Summary::Alive);
    assert_eq!(seen.calls_in_flight(), 1);
    assert_eq!(seen.oldest_call_for(), Some(secs(2)));
    assert!(seen.silent_for() < ms(400), "{seen:?}");
    sleep(ms(2)).await;
    assert_eq!(side.liveness.snapshot().late_calls_unanswered(), 1);
    peer.send(response(3)).await;
    sleep(ms(1)).await;
    let seen = side.liveness.snapshot();
    assert_eq!(seen.late_calls_unanswered(), 0);
    assert_eq!(seen.counters().late_responses, 1);
}

#[tokio::test(start_paused = true)]
async fn a_frozen_peer_is_doubtful_when_the_timer_of_the_wrapped_side_fires() {
    let (mut side, mut peer) = known(&Keepalive::on_demand()).await;
    let start = Instant::now();
    side.write(request(3, secs(2))).await;
    sleep_until(start + secs(2)).await;
    let seen = side.liveness.snapshot();
    assert_eq!(seen.peer(), Summary::Doubtful);
    assert!(seen.awaiting_pong_for().unwrap() > ms(200), "{seen:?}");
    // On demand nothing is closed.
    sleep(secs(3600)).await;
    assert!(matches!(side.liveness.snapshot().state(), State::Alive));
    peer.send(response(3)).await;
    sleep(ms(1)).await;
    assert_eq!(side.liveness.snapshot().peer(), Summary::Alive);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_answered_in_time_asks_nothing() {
    let (mut side, mut peer) = known(&Keepalive::on_demand()).await;
    side.write(request(3, secs(2))).await;
    peer.frame(MessageType::REQUEST).await;
    sleep(secs(1)).await;
    peer.send(response(3)).await;
    peer.silence(secs(60)).await;
    let seen = side.liveness.snapshot();
    assert_eq!(seen.counters().late_responses, 0);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_the_server_ends_with_data_is_not_late() {
    let (mut side, mut peer) = known(&Keepalive::on_demand()).await;
    side.write(request(3, secs(2))).await;
    peer.frame(MessageType::REQUEST).await;
    peer.send(frame(3, 3, 0, b"message")).await;
    peer.send(frame(3, 3, 5, b"")).await;
    peer.silence(secs(60)).await;
    assert_eq!(side.liveness.snapshot().late_calls_unanswered(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_not_watched_while_idle_is_watched_while_a_call_is_open() {
    let keepalive = watch().while_idle(false);
    for answered in [true, false] {
        let (mut side, mut peer) = known(&keepalive).await;
        peer.silence(secs(60)).await;
        side.write(request(3, secs(0))).await;
        // The silence before it was long: it is asked for at once.
        peer.answer_ping().await;
        peer.frame(MessageType::REQUEST).await;
        if answered {
            peer.send(response(3)).await;
            peer.silence(secs(60)).await;
        } else {
            peer.answer_ping().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_oldest_of_too_many_late_calls_is_forgotten() {
    let (mut side, mut peer) = known(&Keepalive::on_demand()).await;
    for number in 0..1100 {
        side.write(request(2 * number + 3, ms(100))).await;
        peer.next().await.unwrap();
    }
    sleep(secs(1)).await;
    assert_eq!(side.liveness.snapshot().late_calls_unanswered(), 1024);
    peer.send(response(3)).await;
    peer.send(response(2203 - 2)).await;
    sleep(ms(1)).await;
    let seen = side.liveness.snapshot();
    assert_eq!(seen.late_calls_unanswered(), 1023);
    assert_eq!(seen.counters().late_responses, 1);
}

/// A peer that takes everything, and sends without end.
struct Endless;

impl AsyncRead for Endless {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let frame = frame(3, 9, 0, &[0; 22]);
        while room.remaining() >= frame.len() {
            room.put_slice(&frame);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Endless {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_sends_without_end_keeps_no_deadline_from_being_seen() {
    let mut layered = Layered::client(Endless, &Keepalive::on_demand()).unwrap();
    let liveness = layered.liveness();
    layered.write_all(&request(1, ms(500))).await.unwrap();
    let mut chunk = [0; 4096];
    for _ in 0..600 {
        assert!(layered.read(&mut chunk).await.unwrap() > 0);
        advance(ms(1)).await;
    }
    let seen = liveness.snapshot();
    assert_eq!(seen.late_calls_unanswered(), 1);
    assert_eq!(seen.peer(), Summary::Alive);
}

#[tokio::test(start_paused = true)]
async fn a_server_ends_a_call_with_its_last_data_too() {
    let (mut side, mut peer) = server(&Keepalive::on_demand());
    let _reading = side.read_on();
    peer.send(request(1, secs(0))).await;
    sleep(ms(1)).await;
    assert_eq!(side.liveness.snapshot().calls_in_flight(), 1);
    side.write(frame(3, 1, 0, b"one")).await;
    assert_eq!(side.liveness.snapshot().calls_in_flight(), 1);
    side.write(frame(3, 1, 1, b"the last")).await;
    assert_eq!(side.liveness.snapshot().calls_in_flight(), 0);
}
