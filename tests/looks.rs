//! The peer is convicted by looks at the socket and by nothing else.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::future::Future;
use std::io::{self, Write};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll};

use support::*;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, sleep_until};
use ttrpc_keepalive::keepalive::{Keepalive, PeerSupport};
use ttrpc_keepalive::transport::{ByteStream, Look};
use ttrpc_keepalive::wire::{Flags, PING_STREAM_ID, pong};
use ttrpc_keepalive::{Client, DeadReason, State, Unknown, Verdict};

/// PING after one second, conviction one second later.
fn watch() -> Keepalive {
    Keepalive::every(secs(1)).timeout(secs(1))
}

/// A client over a [`Hooked`] pipe, and its peer, after the first PING was answered.
async fn hooked(
    hidden: &Arc<AtomicBool>,
    on_look: impl FnMut(&mut Context<'_>) -> Look + Send + 'static,
) -> (Client, Peer<tokio::io::DuplexStream>, Instant) {
    let (here, there) = tokio::io::duplex(64 << 10);
    let hidden = Arc::clone(hidden);
    // While it is set a read finds nothing, as a read does that trusts a stale cache.
    let on_read = move || hidden.load(Ordering::Relaxed).then_some(Poll::Pending);
    let transport = Hooked::new(here).on_read(on_read).on_look(on_look);
    let client = Client::builder()
        .keepalive(watch())
        .attach(transport)
        .unwrap();
    let mut peer = Peer::new(there);
    peer.answer_ping().await;
    (client, peer, Instant::now())
}

#[track_caller]
fn assert_alive(client: &Client) {
    let state = client.snapshot().state();
    assert!(matches!(state, State::Alive), "{state}");
}

// T30: the twin of the tests below, where the peer really is dead.
#[tokio::test(start_paused = true)]
async fn a_silent_peer_is_asked_after_the_interval_and_convicted_after_the_timeout() {
    let (client, mut peer) = scripted(Keepalive::every(secs(10)).timeout(secs(3)), 64 << 10);
    peer.answer_ping().await;
    let start = Instant::now();
    peer.silence(ms(9990)).await;
    peer.ping().await;
    assert_passed(start, secs(10));
    sleep_until(start + ms(11_400)).await;
    assert_alive(&client);
    sleep_until(start + ms(11_600)).await;
    assert!(matches!(client.snapshot().state(), State::Suspect));
    let end = client.closed().await;
    assert_eq!(end.dead_reason(), Some(DeadReason::Silent));
    assert_passed(start, secs(13));
    assert!(peer.next().await.is_none(), "the socket is closed");
}

// N38: the timer fires, and a call starts, while bytes lie in the socket.
#[tokio::test(start_paused = true)]
async fn a_paused_driver_that_finds_bytes_sends_no_ping() {
    let (client, mut peer) = scripted(watch(), 64 << 10);
    peer.answer_ping().await;
    sleep(ms(1)).await;
    for _ in 0..10 {
        pause(ms(1500));
        peer.send(pong(PING_STREAM_ID, Flags::NONE, &[0; 8])).await;
        let mut call = Box::pin(say(&client));
        poll_once(call.as_mut());
        let (id, _) = peer.request().await;
        peer.respond(id).await;
        call.await.unwrap();
        peer.silence(ms(900)).await;
    }
    assert_eq!(client.snapshot().counters().keepalive.pings_sent, 1);

    // The twin: it finds none.
    pause(ms(1500));
    let call = tokio::spawn(async move { say(&client).await });
    peer.request().await;
    peer.ping().await;
    call.abort();
}

// The clock is read before the socket is asked.
#[tokio::test(start_paused = true)]
async fn time_that_passes_while_the_socket_is_asked_is_not_held_against_the_peer() {
    let slow = Arc::new(AtomicBool::new(false));
    let hidden = Arc::new(AtomicBool::new(false));
    let on_look = {
        let (slow, hidden) = (Arc::clone(&slow), Arc::clone(&hidden));
        move |cx: &mut Context<'_>| {
            if slow.swap(false, Ordering::Relaxed) {
                // The kernel has said "empty", then this process was not run for a while, and
                // the answer came.
                let _ = pin!(tokio::time::advance(ms(60))).poll(cx);
                hidden.store(false, Ordering::Relaxed);
            }
            Look::Empty
        }
    };
    let (client, mut peer, start) = hooked(&hidden, on_look).await;
    // The PING leaves at 1.0; its looks are at 1.25, 1.5, 1.75 and 2.0. A call is judged at 1.99.
    let ping = peer.frame().await;
    assert_passed(start, secs(1));
    let late = {
        let client = client.clone();
        tokio::spawn(async move { say_within(&client, ms(990)).await })
    };
    sleep_until(start + ms(1985)).await;
    slow.store(true, Ordering::Relaxed);
    hidden.store(true, Ordering::Relaxed);
    peer.pong(&ping).await;
    let error = late.await.unwrap().unwrap_err();
    assert_eq!(error.verdict(), Some(Verdict::Unresponsive));
    assert!(
        !slow.load(Ordering::Relaxed),
        "the deadline's look was the slow one"
    );
    assert!(start.elapsed() >= ms(2050));
    sleep(ms(5)).await;
    assert_alive(&client);
    assert_eq!(client.snapshot().counters().keepalive.convictions_silent, 0);
}

// T06: "nothing to read" may come from a used-up budget or a stale cache.
#[tokio::test(start_paused = true)]
async fn bytes_that_a_look_finds_and_a_read_does_not_are_evidence() {
    let hidden = Arc::new(AtomicBool::new(false));
    let on_look = {
        let hidden = Arc::clone(&hidden);
        move |_: &mut Context<'_>| {
            if hidden.swap(false, Ordering::Relaxed) {
                Look::Readable
            } else {
                Look::Empty
            }
        }
    };
    let (client, mut peer, start) = hooked(&hidden, on_look).await;
    let ping = peer.frame().await;
    assert_passed(start, secs(1));
    sleep_until(start + ms(1900)).await;
    hidden.store(true, Ordering::Relaxed);
    peer.pong(&ping).await;
    sleep_until(start + ms(2100)).await;
    assert!(!hidden.load(Ordering::Relaxed), "the driver has looked");
    assert_alive(&client);
    let counters = client.snapshot().counters().keepalive;
    assert_eq!((counters.recoveries, counters.convictions_silent), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn bytes_that_come_in_the_extra_turn_of_a_blind_transport_are_evidence() {
    let hidden = Arc::new(AtomicBool::new(false));
    let looks = Arc::new(AtomicU32::new(0));
    let on_look = {
        let (hidden, looks) = (Arc::clone(&hidden), Arc::clone(&looks));
        move |_: &mut Context<'_>| {
            looks.fetch_add(1, Ordering::Relaxed);
            hidden.store(false, Ordering::Relaxed);
            Look::Blind
        }
    };
    let (client, mut peer, start) = hooked(&hidden, on_look).await;
    let ping = peer.frame().await;
    sleep_until(start + ms(1900)).await;
    let before = looks.load(Ordering::Relaxed);
    hidden.store(true, Ordering::Relaxed);
    peer.pong(&ping).await;
    sleep_until(start + ms(2100)).await;
    assert_eq!(
        looks.load(Ordering::Relaxed),
        before + 1,
        "one look, then a read"
    );
    assert_alive(&client);

    // The twin: nothing comes in the extra turn either.
    let end = client.closed().await;
    assert_eq!(end.dead_reason(), Some(DeadReason::Silent));
    assert_passed(start, secs(4));
    drop(peer);
}

/// A socket whose peer writes just before it is read at a certain time. The runtime has not asked
/// the kernel since, and holds the socket for empty.
struct SpeaksAt {
    stream: UnixStream,
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
            self.peer
                .write_all(&pong(PING_STREAM_ID, Flags::NONE, &[0; 8]))
                .unwrap();
            // As a handle may: the driver is polled again before the runtime asks the kernel.
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
async fn another_wake_up_is_not_taken_for_the_extra_turn_of_a_blind_transport() {
    let (stream, peer) = std::os::unix::net::UnixStream::pair().unwrap();
    stream.set_nonblocking(true).unwrap();
    let socket = SpeaksAt {
        stream: UnixStream::from_std(stream).unwrap(),
        peer,
        // The PING leaves at once, and its last look comes a second later.
        at: Some(Instant::now() + secs(1)),
    };
    let assume = Keepalive::every(secs(1)).timeout(secs(1));
    let assume = assume.peer_support(PeerSupport::Assume);
    let client = Client::builder().keepalive(assume);
    let client = client.attach(ByteStream::new(socket)).unwrap();
    sleep(ms(1500)).await;
    assert_alive(&client);
}

/// After the first exchange, and with a PING on trial for 0.8 s of 1 s.
async fn on_trial(client: &Client, peer: &mut BarePeer) -> u64 {
    sleep(ms(1)).await;
    peer.answer();
    let start = Instant::now();
    sleep_until(start + ms(1801)).await;
    let (frames, _) = peer.drain();
    let ping = frames.last().expect("a PING is out");
    assert!(client.snapshot().awaiting_pong_for().unwrap() >= ms(790));
    u64::from_be_bytes(ping.payload[..].try_into().unwrap())
}

// The driver runs at a look that is due before tokio's reactor has heard of the bytes: its cache
// says "empty", and so does everything that goes through the cache.
#[tokio::test(start_paused = true)]
async fn bytes_in_the_socket_that_the_reactor_has_not_noticed_are_evidence() {
    for _ in 0..20 {
        let (stream, mut peer) = BarePeer::pair();
        let client = Client::builder().keepalive(watch()).attach(stream).unwrap();
        let number = on_trial(&client, &mut peer).await;
        // Not so long that it would count as a pause of ours: this look decides.
        pause(ms(400));
        peer.send(&pong(u32::MAX, Flags::NONE, &number.to_be_bytes()));
        // Wakes the driver before the runtime turns to its reactor.
        let mut probe = Box::pin(client.probe(secs(1)));
        poll_once(probe.as_mut());
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        sleep(ms(1)).await;
        assert_alive(&client);
        assert_eq!(client.snapshot().counters().keepalive.pongs_received, 2);
        peer.answer();
        assert!(probe.await.is_ok());
    }
}

// The twin: the same pause, and a peer that said nothing in it.
#[tokio::test(start_paused = true)]
async fn a_socket_that_is_really_empty_convicts_at_the_same_look() {
    let (stream, mut peer) = BarePeer::pair();
    let client = Client::builder().keepalive(watch()).attach(stream).unwrap();
    on_trial(&client, &mut peer).await;
    pause(ms(400));
    assert!(say(&client).await.unwrap_err().is_connection());
    assert!(matches!(
        client.snapshot().state(),
        State::Dead(DeadReason::Silent)
    ));
}

// T01, T02
#[tokio::test(start_paused = true)]
async fn a_long_pause_of_ours_leaves_the_peer_its_time() {
    let (stream, mut peer) = BarePeer::pair();
    let client = Client::builder().keepalive(watch()).attach(stream).unwrap();
    on_trial(&client, &mut peer).await;
    let start = Instant::now();
    pause(secs(5));
    sleep(ms(480)).await;
    let state = client.snapshot().state();
    assert!(
        !state.is_final(),
        "half of the timeout is the peer's: {state}"
    );
    assert!(client.snapshot().local_stall().unwrap() >= secs(5));
    client.closed().await;
    assert!(start.elapsed() <= ms(5510), "{:?}", start.elapsed());
}

// T05
#[test]
fn a_runtime_whose_tasks_block_it_convicts_nobody() {
    let (stream, mut peer) = {
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        here.set_nonblocking(true).unwrap();
        (here, there)
    };
    let peer = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let mut frame = [0; 18];
        let mut answered = 0;
        while peer.read_exact(&mut frame).is_ok() {
            assert_eq!(frame[8], 4, "only PINGs are sent here");
            if peer
                .write_all(&pong(u32::MAX, Flags::NONE, &frame[10..]))
                .is_err()
            {
                break;
            }
            answered += 1;
        }
        answered
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let stream = UnixStream::from_std(stream).unwrap();
        let keepalive = Keepalive::every(ms(200)).timeout(ms(200));
        let client = Client::builder()
            .keepalive(keepalive)
            .attach(stream)
            .unwrap();
        let start = Instant::now();
        let mut block = 250;
        while start.elapsed() < secs(6) {
            std::thread::sleep(ms(block));
            block = 250 + (block * 7 + 13) % 200;
            tokio::task::yield_now().await;
        }
        let counters = client.snapshot().counters().keepalive;
        assert_eq!(counters.convictions_silent, 0);
        assert!(!client.snapshot().state().is_final());
    });
    drop(runtime);
    assert!(peer.join().unwrap() > 3, "PINGs were asked and answered");
}

// T11
#[tokio::test(start_paused = true)]
async fn a_response_wins_over_a_deadline_of_the_same_instant() {
    for round in 0..100 {
        let (client, mut peer) = scripted(Keepalive::on_demand(), 64 << 10);
        let (first, ()) = tokio::join!(say(&client), peer.first_exchange());
        first.unwrap();
        let start = Instant::now();
        let responder = tokio::spawn(async move {
            let (id, _) = peer.request().await;
            // One that is enqueued before the driver's timer and one behind it.
            if round % 2 == 0 {
                peer.ping().await;
            }
            sleep_until(start + secs(1)).await;
            peer.respond(id).await;
            peer
        });
        let reply = say_within(&client, secs(1)).await;
        assert!(reply.is_ok(), "round {round}: {reply:?}");
        responder.await.unwrap();
    }
}

// T72: a PING that only a PONG retires would blind the watch for ever.
#[tokio::test(start_paused = true)]
async fn any_byte_retires_a_ping_and_the_watch_goes_on() {
    let (client, mut peer) = scripted(watch(), 64 << 10);
    peer.answer_ping().await;
    let start = Instant::now();
    let ignored = peer.ping().await;
    assert_passed(start, secs(1));
    sleep_until(start + ms(1500)).await;
    peer.send(junk(9, 7, Flags::NONE, b"")).await;
    for at in [2500, 3500, 4500] {
        let ping = peer.frame().await;
        assert_passed(start, ms(at));
        assert!(ping.payload[..] > ignored.to_be_bytes()[..]);
        peer.pong(&ping).await;
    }
    let end = client.closed().await;
    assert_eq!(end.dead_reason(), Some(DeadReason::Silent));
    assert_passed(start, ms(6500));
}

// T12: bytes are life, although no frame completes.
#[tokio::test(start_paused = true)]
async fn a_large_response_that_trickles_in_is_evidence_all_the_time() {
    let (client, mut peer) = scripted(watch(), 64 << 10);
    peer.answer_ping().await;
    let call = {
        let client = client.clone();
        tokio::spawn(async move { say(&client).await })
    };
    let (id, _) = peer.request().await;
    let message = text(&"y".repeat(2 << 20));
    let response = ttrpc_keepalive::wire::encode_response(id, &message).unwrap();
    let (slow, rest) = response.split_at(40);
    for byte in slow {
        peer.send([*byte]).await;
        sleep(ms(900)).await;
    }
    assert_alive(&client);
    assert_eq!(client.snapshot().counters().keepalive.suspect_entries, 0);
    peer.send(rest).await;
    assert_eq!(call.await.unwrap().unwrap(), message);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_stream_is_found_by_a_look_too() {
    let gone = Arc::new(AtomicBool::new(false));
    let (client, peer, start) = hooked(&gone, {
        let gone = Arc::clone(&gone);
        move |_: &mut Context<'_>| {
            if gone.swap(false, Ordering::Relaxed) {
                Look::Readable
            } else {
                Look::Empty
            }
        }
    })
    .await;
    sleep_until(start + ms(1900)).await;
    gone.store(true, Ordering::Relaxed);
    drop(peer);
    let end = client.closed().await;
    assert_eq!(end.dead_reason(), None, "{end}");
}

// A multiplexer whose owner of the descriptor sees bytes of another channel, for example.
#[tokio::test(start_paused = true)]
async fn a_look_whose_bytes_no_read_finds_keeps_nobody_busy_and_convicts_nobody() {
    let (here, there) = tokio::io::duplex(64 << 10);
    let lying = Arc::new(AtomicBool::new(true));
    let on_look = {
        let lying = Arc::clone(&lying);
        let mut looks = 0;
        move |_: &mut Context<'_>| {
            looks += 1;
            // Sixteen each 10 ms are 6,400.
            assert!(looks < 20_000, "it looks without end");
            match lying.load(Ordering::Relaxed) {
                true => Look::Readable,
                false => Look::Empty,
            }
        }
    };
    let transport = Hooked::new(here).on_look(on_look);
    let client = Client::builder().keepalive(watch());
    let client = client.attach(transport).unwrap();
    let mut peer = Peer::new(there);
    peer.answer_ping().await;
    let start = Instant::now();
    // The PING of 1.0 has been out for 4 s, and a call has been late since 3.0.
    let error = say_within(&client, secs(3)).await.unwrap_err();
    assert_passed(start, secs(3));
    assert!(error.is_deadline(), "{error:?}");
    sleep_until(start + secs(5)).await;
    assert!(!client.snapshot().state().is_final());

    lying.store(false, Ordering::Relaxed);
    let end = client.closed().await;
    assert_eq!(end.dead_reason(), Some(DeadReason::Silent));
    drop(peer);
}

// A multiplexer whose owner of the descriptor is stuck, or who takes *nothing to read* for *not ready*.
#[tokio::test(start_paused = true)]
async fn a_look_that_stays_pending_holds_up_neither_a_deadline_nor_a_conviction() {
    for until in [ms(1500), secs(600)] {
        let (here, there) = tokio::io::duplex(64 << 10);
        let start = Instant::now();
        let pending = move || (start.elapsed() < until).then_some(Poll::Pending);
        let transport = Hooked::new(here).on_pending_look(pending);
        let client = Client::builder().keepalive(watch());
        let client = client.attach(transport).unwrap();
        let mut peer = Peer::new(there);
        peer.answer_ping().await;

        let start = Instant::now();
        let error = say_within(&client, ms(500)).await.unwrap_err();
        assert_passed(start, ms(510));
        let unknown = Verdict::Unknown(Unknown::NotSeen);
        assert_eq!(error.verdict(), Some(unknown), "{error}");
        assert!(!client.snapshot().state().is_final());

        let end = client.closed().await;
        assert_eq!(end.dead_reason(), Some(DeadReason::Silent));
        assert!(start.elapsed() <= ms(2200), "{:?}", start.elapsed());
    }
}

// The twin: the answer comes while the look is out.
#[tokio::test(start_paused = true)]
async fn bytes_that_come_while_a_look_is_pending_are_evidence() {
    let (here, there) = tokio::io::duplex(64 << 10);
    let transport = Hooked::new(here).on_pending_look(|| Some(Poll::Pending));
    let client = Client::builder().keepalive(watch());
    let client = client.attach(transport).unwrap();
    let mut peer = Peer::new(there);
    peer.answer_ping().await;
    let start = Instant::now();
    let ping = peer.frame().await;
    // The last look is out since 2.0.
    sleep_until(start + ms(2005)).await;
    peer.pong(&ping).await;
    sleep_until(start + ms(2100)).await;
    assert_alive(&client);
    assert_eq!(client.snapshot().counters().keepalive.convictions_silent, 0);
}
