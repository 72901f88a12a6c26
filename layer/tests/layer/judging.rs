//! Alive, suspect, dead.

use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::{Instant, sleep, timeout};
use ttrpc_keepalive::keepalive::{Keepalive, OnSilence};
use ttrpc_keepalive::wire::{Flags, PING_STREAM_ID, pong};
use ttrpc_keepalive_layer::{
    ConnectionError, DeadReason, Layered, Peer as Summary, PeerSupport, State, Support, dead_reason,
};

use crate::peer::*;

#[tokio::test(start_paused = true)]
async fn a_peer_that_falls_silent_is_suspect_and_then_dead_and_the_read_says_why() {
    let (mut side, mut peer) = client(&watch());
    let reading = side.read_on();
    let mut liveness = side.liveness.clone();
    assert_eq!(liveness.next().await.unwrap().support(), Support::Unknown);
    peer.answer_ping().await;
    assert_eq!(liveness.next().await.unwrap().support(), Support::Yes);
    let heard = Instant::now();
    let suspect = liveness.next().await.unwrap();
    assert!(matches!(suspect.state(), State::Suspect), "{suspect:?}");
    assert_eq!(suspect.peer(), Summary::Doubtful);
    assert_passed(heard, ms(1500));
    let dead = liveness.next().await.unwrap();
    assert!(matches!(dead.state(), State::Dead(DeadReason::Silent)));
    assert_passed(heard, ms(2000));
    assert!(liveness.next().await.is_none());

    let (_, end) = reading.await.unwrap();
    let error = end.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert_eq!(dead_reason(&error), Some(DeadReason::Silent));
    let end: &ConnectionError = error.get_ref().unwrap().downcast_ref().unwrap();
    assert!(matches!(end, ConnectionError::Dead { evidence, .. }
        if evidence.awaiting_pong_for == Some(secs(1))));
    let error = side.writer.write(&request(1, secs(0))).await.unwrap_err();
    assert_eq!(dead_reason(&error), Some(DeadReason::Silent));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_answers_is_never_suspected_and_has_a_round_trip() {
    let (mut side, mut peer) = client(&watch());
    let _reading = side.read_on();
    for _ in 0..20 {
        let number = peer.ping().await;
        sleep(ms(30)).await;
        peer.send(pong_of(number)).await;
    }
    sleep(ms(1)).await;
    let seen = side.liveness.snapshot();
    assert_eq!(seen.counters().keepalive.suspect_entries, 0);
    assert_eq!(seen.counters().keepalive.pongs_received, 20);
    let rtt = seen.rtt().unwrap();
    assert!(rtt >= ms(30) && rtt <= ms(33), "{rtt:?}");
    assert!(seen.silent_for() <= ms(2), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_byte_of_an_unfinished_frame_is_life() {
    let (mut side, mut peer) = client(&watch());
    let _reading = side.read_on();
    peer.answer_ping().await;
    for byte in &response(1)[..12] {
        sleep(ms(900)).await;
        peer.send([*byte]).await;
    }
    let counters = side.liveness.snapshot().counters();
    assert_eq!(counters.keepalive.suspect_entries, 0);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_is_only_reported_is_overdue_and_comes_back() {
    let (mut side, mut peer) = client(&watch().on_silence(OnSilence::Report));
    let reading = side.read_on();
    peer.answer_ping().await;
    sleep(secs(60)).await;
    let seen = side.liveness.snapshot();
    assert!(seen.overdue() && matches!(seen.state(), State::Suspect));
    peer.send(response(1)).await;
    sleep(ms(1)).await;
    let seen = side.liveness.snapshot();
    assert!(!seen.overdue() && matches!(seen.state(), State::Alive));
    assert!(!reading.is_finished());
}

#[tokio::test(start_paused = true)]
async fn an_old_peer_is_asked_once_and_never_judged() {
    let (mut side, mut peer) = client(&watch());
    let reading = side.read_on();
    side.write(request(1, secs(0))).await;
    peer.ping().await;
    peer.next().await.unwrap();
    peer.send(response(1)).await;
    peer.silence(secs(3600)).await;
    let seen = side.liveness.snapshot();
    assert_eq!((seen.support(), seen.peer()), (Support::No, Summary::Alive));
    drop(peer);
    assert_eq!(reading.await.unwrap().0, response(1));
}

#[tokio::test(start_paused = true)]
async fn a_response_to_the_ping_itself_says_that_the_peer_is_old_and_is_hidden() {
    let (mut side, mut peer) = client(&watch());
    let reading = side.read_on();
    peer.ping().await;
    peer.send(response(PING_STREAM_ID)).await;
    peer.send(response(1)).await;
    peer.silence(secs(60)).await;
    assert_eq!(side.liveness.snapshot().support(), Support::No);
    drop(peer);
    assert_eq!(reading.await.unwrap().0, response(1));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_never_says_a_word_is_judged_only_if_its_support_is_assumed() {
    let (mut side, mut peer) = client(&watch());
    let reading = side.read_on();
    peer.ping().await;
    sleep(secs(3600)).await;
    assert!(!reading.is_finished());

    let (mut side, _peer) = client(&watch().peer_support(PeerSupport::Assume));
    let start = Instant::now();
    assert!(side.read_on().await.unwrap().1.is_err());
    assert_passed(start, secs(1));
}

// RFC KA-28
#[tokio::test(start_paused = true)]
async fn a_server_asks_only_a_client_that_has_asked_and_finds_it_dead_then() {
    let (mut side, mut peer) = server(&watch());
    let reading = side.read_on();
    peer.send(request(1, secs(0))).await;
    peer.silence(secs(60)).await;
    assert!(!reading.is_finished());
    peer.send(ping_of(7)).await;
    let heard = Instant::now();
    assert_eq!(peer.next().await.unwrap().payload, 7_u64.to_be_bytes()[..]);
    peer.ping().await;
    assert_passed(heard, secs(1));
    let error = reading.await.unwrap().1.unwrap_err();
    assert_eq!(dead_reason(&error), Some(DeadReason::Silent));
    assert_passed(heard, secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_reads_nothing_is_convicted_by_the_write_stall_and_the_write_that_waits_fails()
{
    let (mut side, mut peer) = client_with_room(&watch().write_stall(secs(1)), 100);
    let _reading = side.read_on();
    peer.answer_ping().await;
    sleep(ms(1)).await;
    let start = Instant::now();
    // It speaks, so it is not dead.
    let (mut voice, _keep) = (peer, ());
    tokio::spawn(async move {
        while voice.stream.write_all(&response(9)).await.is_ok() {
            sleep(ms(100)).await;
        }
    });
    let error = side.writer.write_all(&frame(3, 1, 0, &[0; 4096])).await;
    let reason = dead_reason(&error.unwrap_err());
    assert_eq!(reason, Some(DeadReason::NotReading));
    assert_passed(start, secs(1));
}

#[tokio::test(start_paused = true)]
async fn nobody_is_judged_while_the_wrapped_side_does_not_read() {
    let (mut side, mut peer) = client(&watch());
    let answered = tokio::spawn(async move {
        peer.answer_ping().await;
        peer
    });
    assert!(timeout(ms(500), side.expect([0])).await.is_err());
    let mut peer = answered.await.unwrap();
    // The PING comes with the next read, and the answer lies in the pipe for an hour.
    assert!(timeout(ms(600), side.expect([0])).await.is_err());
    peer.answer_ping().await;
    sleep(secs(3600)).await;
    peer.send(response(1)).await;
    side.expect(response(1)).await;
    let seen = side.liveness.snapshot();
    assert!(matches!(seen.state(), State::Alive), "{seen:?}");
    assert_eq!(seen.counters().keepalive.suspect_entries, 0);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_says_its_handlers_stall_is_alive_with_that_remark() {
    let (mut side, mut peer) = client(&watch());
    let _reading = side.read_on();
    let number = peer.ping().await.to_be_bytes();
    peer.send(pong(PING_STREAM_ID, Flags::HANDLERS_STALLED, &number))
        .await;
    sleep(ms(1)).await;
    let seen = side.liveness.snapshot();
    assert!(seen.handlers_stalled());
    assert_eq!(seen.peer(), Summary::Alive);
}

#[tokio::test(start_paused = true)]
async fn keepalive_that_is_off_answers_and_asks_nothing() {
    let (mut side, mut peer) = client(&Keepalive::off());
    let _reading = side.read_on();
    side.write(request(1, secs(0))).await;
    assert_eq!(peer.next().await.unwrap().header.stream_id, 1);
    peer.send(ping_of(1)).await;
    assert_eq!(peer.next().await.unwrap().payload, 1_u64.to_be_bytes()[..]);
    peer.silence(secs(3600)).await;
}

#[tokio::test(start_paused = true)]
async fn the_liveness_ends_with_the_stream() {
    let (side, _peer) = client(&watch());
    let mut liveness = side.liveness.clone();
    drop(side);
    let last = liveness.next().await.unwrap();
    assert!(matches!(
        last.state(),
        State::Closed(ConnectionError::LocalClose)
    ));
    assert!(liveness.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_goes_away_ends_the_stream_and_a_torn_frame_is_told_apart() {
    for (bytes, torn) in [(response(1), false), (response(1)[..13].to_vec(), true)] {
        let (mut side, mut peer) = client(&watch());
        let reading = side.read_on();
        peer.send(&bytes).await;
        drop(peer);
        let (came, end) = reading.await.unwrap();
        assert_eq!((came, end.is_ok()), (bytes, true));
        let end = side.liveness.snapshot().end().cloned().unwrap();
        assert_eq!(matches!(end, ConnectionError::Torn), torn, "{end}");
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_that_are_not_ttrpc_end_the_stream() {
    let (mut side, mut peer) = client(&watch());
    peer.send(b"HTTP/1.1 400 Bad Request\r\n").await;
    let error = side.read_on().await.unwrap().1.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    let end = side.liveness.snapshot().end().cloned().unwrap();
    assert!(matches!(end, ConnectionError::Protocol(_)), "{end}");

    let (mut side, _peer) = client(&watch());
    let error = side.writer.write_all(b"GET / HTTP/1.1\r\n").await;
    assert_eq!(error.unwrap_err().kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn settings_out_of_range_are_refused() {
    let (here, _there) = tokio::io::duplex(1);
    let error = Layered::client(here, &Keepalive::every(ms(1))).unwrap_err();
    assert_eq!(error.setting(), "every");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_cannot_pass_on_a_ping_is_a_peer_that_does_not_read() {
    let (here, mut there) = tokio::io::duplex(16);
    let layered = Layered::client(tokio::io::BufStream::new(here), &watch()).unwrap();
    let start = Instant::now();
    let mut reader = layered;
    there.write_all(&response(1)[..5]).await.unwrap();
    let mut all = Vec::new();
    let error = AsyncReadExt::read_to_end(&mut reader, &mut all).await;
    let reason = dead_reason(&error.unwrap_err());
    assert_eq!(reason, Some(DeadReason::NotReading));
    assert_passed(start, secs(1));
}

#[test]
fn a_layered_stream_goes_where_its_stream_goes() {
    fn goes_anywhere<T: Send + Sync + Unpin + 'static>() {}
    goes_anywhere::<Layered<tokio::net::UnixStream>>();
}

#[tokio::test(start_paused = true)]
async fn a_flush_that_waits_is_judged_as_a_write_is() {
    let (here, _there) = tokio::io::duplex(64);
    let keepalive = Keepalive::every(secs(100)).timeout(secs(1));
    let layered = Layered::client(tokio::io::BufStream::new(here), &keepalive).unwrap();
    let (mut reader, mut writer) = tokio::io::split(layered);
    tokio::spawn(async move { AsyncReadExt::read_u8(&mut reader).await });
    sleep(ms(1)).await;
    writer.write_all(&frame(3, 1, 0, &[0; 300])).await.unwrap();
    let start = Instant::now();
    let error = writer.flush().await.unwrap_err();
    assert_eq!(dead_reason(&error), Some(DeadReason::NotReading));
    assert_passed(start, secs(1));
}

#[tokio::test(start_paused = true)]
async fn what_came_before_bytes_that_are_not_ttrpc_is_handed_on() {
    let (mut side, mut peer) = client(&watch());
    peer.send([response(1), b"HTTP/1.1 400".to_vec()].concat())
        .await;
    let (came, end) = side.read_on().await.unwrap();
    assert_eq!(came, response(1));
    assert_eq!(end.unwrap_err().kind(), io::ErrorKind::InvalidData);
}

/// A socket whose peer writes just before it is read at a certain time. The runtime has not
/// asked the kernel since, and holds the socket for empty.
struct SpeaksAt {
    stream: tokio::net::UnixStream,
    peer: std::os::unix::net::UnixStream,
    at: Option<Instant>,
}

impl AsyncRead for SpeaksAt {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.at.is_some_and(|at| at <= Instant::now()) {
            self.at = None;
            self.peer.write_all(&response(1)).unwrap();
            // The task is polled again before the runtime asks the kernel.
            cx.waker().wake_by_ref();
        }
        Pin::new(&mut self.stream).poll_read(cx, out)
    }
}

impl AsyncWrite for SpeaksAt {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_the_runtime_has_not_seen_yet_is_found_before_a_peer_is_dead() {
    let (stream, peer) = std::os::unix::net::UnixStream::pair().unwrap();
    stream.set_nonblocking(true).unwrap();
    let socket = SpeaksAt {
        stream: tokio::net::UnixStream::from_std(stream).unwrap(),
        peer,
        // The PING leaves at once, and its last look comes a second later.
        at: Some(Instant::now() + secs(1)),
    };
    let assume = watch().peer_support(PeerSupport::Assume);
    let mut layered = Layered::client(socket, &assume).unwrap();
    let reading = tokio::spawn(async move { layered.read_u32().await });
    assert_eq!(reading.await.unwrap().unwrap(), 7);
}
