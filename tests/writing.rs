//! What happens to bytes on their way out: order, blocked writes, and the room for more.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use support::*;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, DuplexStream, ReadBuf};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::transport::Shortcut;
use ttrpc_keepalive::wire::{
    Flags, MessageType, PING_STREAM_ID, encode_data, encode_response, encode_status, ping, pong,
};
use ttrpc_keepalive::{ByteStream, Client, Code, DeadReason, State, Status, Support};

fn watch() -> Keepalive {
    Keepalive::every(secs(1)).timeout(secs(1))
}

#[track_caller]
fn assert_alive(client: &Client) {
    let state = client.snapshot().state();
    assert!(matches!(state, State::Alive), "{state}");
}

// T22
#[tokio::test(start_paused = true)]
async fn a_peer_that_stops_reading_is_convicted_for_that_and_not_for_silence() {
    let (client, mut peer) = scripted(watch().write_stall(secs(5)), 64 << 10);
    peer.answer_ping().await;
    sleep(ms(1)).await;
    let start = Instant::now();
    let bulk = client.clone();
    let bulk = tokio::spawn(async move { say_large(&bulk, 1 << 20).await });
    let end = client.closed().await;
    assert_eq!(end.dead_reason(), Some(DeadReason::NotReading));
    assert_passed(start, secs(5));
    let error = bulk.await.unwrap().unwrap_err();
    assert!(error.is_connection());
    assert!(error.evidence().unwrap().write_blocked_for.unwrap() >= ms(4990));
    let counters = client.snapshot().counters().keepalive;
    assert_eq!(
        counters.pings_sent, 1,
        "the one that was due is behind the frame"
    );
    assert_eq!(counters.convictions_silent, 0);
}

// T22: the trial of a PING begins when the kernel has taken it, not when it was queued.
#[tokio::test(start_paused = true)]
async fn a_ping_behind_a_blocked_write_is_held_against_nobody() {
    let (client, mut peer) = scripted(watch().write_stall(secs(60)), 64 << 10);
    peer.answer_ping().await;
    sleep(ms(1)).await;
    let bulk = client.clone();
    tokio::spawn(async move { say_large(&bulk, 1 << 20).await });
    sleep(secs(20)).await;
    assert_alive(&client);
    let seen = client.snapshot();
    assert!(seen.write_blocked_for().unwrap() >= ms(19_990));
    assert_eq!(seen.awaiting_pong_for(), None);

    // It follows the frame that has begun, and then its time runs.
    let start = Instant::now();
    peer.request().await;
    peer.ping().await;
    let end = client.closed().await;
    assert_eq!(end.dead_reason(), Some(DeadReason::Silent));
    assert_passed(start, secs(1));
}

// N33: bytes received are life, whatever is not taken.
#[tokio::test(start_paused = true)]
async fn a_peer_that_speaks_and_does_not_read_is_convicted_only_by_a_write_stall_that_was_set() {
    let speaks = pong(PING_STREAM_ID, Flags::NONE, &[0; 8]);
    for (keepalive, set) in [(watch(), false), (watch().write_stall(secs(2)), true)] {
        let (client, mut peer) = scripted(keepalive, 64 << 10);
        peer.answer_ping().await;
        sleep(ms(1)).await;
        let start = Instant::now();
        let bulk = client.clone();
        tokio::spawn(async move { say_large(&bulk, 1 << 20).await });
        for _ in 0..6 {
            sleep(ms(300)).await;
            let seen = client.snapshot();
            assert!(matches!(seen.state(), State::Alive) || set && !seen.state().is_final());
            assert!(seen.write_blocked_for() > Some(ms(200)));
            peer.send(&speaks).await;
        }
        let end = client.closed().await;
        assert_eq!(end.dead_reason(), Some(DeadReason::NotReading));
        // Otherwise it is convicted once it is silent as well.
        assert_passed(start, if set { secs(2) } else { ms(2800) });
        let text = format!("{end} {}", client.snapshot().state());
        assert!(!text.contains("dead") && !text.contains("silent"), "{text}");
    }
}

// T23
#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_a_byte_now_and_then_is_not_convicted() {
    let (client, mut peer) = scripted(watch().write_stall(secs(2)), 64 << 10);
    peer.answer_ping().await;
    let bulk = client.clone();
    tokio::spawn(async move { say_large(&bulk, 1 << 20).await });
    for _ in 0..40 {
        sleep(ms(1800)).await;
        peer.stream.read_u8().await.unwrap();
    }
    assert!(!client.snapshot().state().is_final());
    assert_eq!(
        client
            .snapshot()
            .counters()
            .keepalive
            .convictions_not_reading,
        0
    );

    // The twin: it stops.
    let start = Instant::now();
    let end = client.closed().await;
    assert_eq!(end.dead_reason(), Some(DeadReason::NotReading));
    assert_passed(start, secs(2));
}

// T24
#[tokio::test(start_paused = true)]
async fn a_conviction_with_a_stuck_write_ends_everything_at_once() {
    let (client, mut peer) = scripted(watch(), 4096);
    peer.answer_ping().await;
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { say_large(&client, 100_000).await })
        })
        .collect();
    client.closed().await;
    let start = Instant::now();
    for call in calls {
        let error = call.await.unwrap().unwrap_err();
        assert!(error.is_connection(), "{error}");
    }
    assert_passed(start, secs(0));
    // No farewell, no flush: only what was in the pipe is there.
    let mut rest = Vec::new();
    peer.stream.read_to_end(&mut rest).await.unwrap();
    assert!(rest.len() <= 4096, "{}", rest.len());
}

// T73: the write is tried before its clock is believed.
#[tokio::test(start_paused = true)]
async fn room_in_the_socket_that_the_reactor_has_not_noticed_is_progress() {
    let (stream, mut peer) = BarePeer::pair();
    // What the peer has read would speak for it as well.
    let keepalive = watch().read_receipts(false);
    let client = Client::builder()
        .keepalive(keepalive)
        .attach(stream)
        .unwrap();
    sleep(ms(1)).await;
    peer.answer();
    sleep(ms(1)).await;
    let bulk = client.clone();
    let bulk = tokio::spawn(async move { say_large(&bulk, 3 << 20).await });
    sleep(ms(801)).await;
    assert!(client.snapshot().write_blocked_for().unwrap() >= ms(790));
    // Three of four looks have found the write refused; this one decides. Meanwhile the peer has
    // taken what there was.
    pause(ms(400));
    assert!(peer.drain().1 > 4096);
    let mut call = Box::pin(say(&client));
    poll_once(call.as_mut());
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
    sleep(ms(1)).await;
    assert!(!client.snapshot().state().is_final());
    for _ in 0..2000 {
        if bulk.is_finished() {
            break;
        }
        peer.answer();
        sleep(ms(1)).await;
    }
    bulk.await.unwrap().unwrap();
    peer.answer();
    call.await.unwrap();
}

// The twin of it.
#[tokio::test(start_paused = true)]
async fn a_socket_that_really_has_no_room_convicts_at_the_same_look() {
    let (stream, mut peer) = BarePeer::pair();
    let client = Client::builder().keepalive(watch()).attach(stream).unwrap();
    sleep(ms(1)).await;
    peer.answer();
    sleep(ms(1)).await;
    let bulk = client.clone();
    tokio::spawn(async move { say_large(&bulk, 3 << 20).await });
    sleep(ms(801)).await;
    pause(ms(400));
    assert!(say(&client).await.unwrap_err().is_connection());
    let state = client.snapshot().state();
    assert!(
        matches!(state, State::Dead(DeadReason::NotReading)),
        "{state}"
    );
}

// T25
// RFC KA-50
#[tokio::test(start_paused = true)]
async fn a_client_that_cannot_write_goes_on_reading() {
    let (client, mut peer) = scripted(Keepalive::on_demand(), 4096);
    let bulk = client.clone();
    let bulk = tokio::spawn(async move { say_large(&bulk, 1 << 20).await });
    sleep(ms(1)).await;
    // The peer is itself in the middle of a write that is far larger than the pipe.
    for number in 0..10_000 {
        let sent = timeout(secs(1), peer.send(ping(number))).await;
        assert!(
            sent.is_ok(),
            "the client has stopped reading at PING {number}"
        );
    }
    peer.ping().await;
    let (id, _) = peer.request().await;
    let pong = peer.frame().await;
    assert_eq!(pong.header.message_type, MessageType::PONG);
    assert_eq!(
        pong.payload[..],
        9999u64.to_be_bytes(),
        "the newest is answered"
    );
    peer.silence(ms(10)).await;
    assert_eq!(client.snapshot().counters().pongs_coalesced, 9999);
    peer.respond(id).await;
    bulk.await.unwrap().unwrap();
}

// T74, part 2 number 6
#[tokio::test(start_paused = true)]
async fn two_sides_that_blast_at_each_other_through_small_pipes_finish() {
    let server = echo().owed_limit(1 << 20).build().unwrap();
    let client = Client::builder().keepalive(watch());
    let (client, _) = pair(server, client, 4096);
    let calls: Vec<_> = (0..2000)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { say_large(&client, 64 << 10).await })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().value.len(), 64 << 10);
    }
    assert_alive(&client);
    assert_eq!(client.snapshot().counters().keepalive.suspect_entries, 0);
}

// T19
// RFC KA-15
#[tokio::test(start_paused = true)]
async fn a_pong_waits_for_one_frame_at_most() {
    let server = echo().owed_limit(1 << 30).build().unwrap();
    let (here, there) = tokio::io::duplex(64 << 10);
    tokio::spawn(async move { server.serve_connection(here).await });
    let mut peer = Peer::new(there);
    for number in 0..100 {
        let size = ((4 << 20) - 100).to_string();
        let head = ttrpc_keepalive::wire::RequestHead {
            service: "demo.Echo",
            method: "Large",
            timeout_nano: 0,
            metadata: &[],
        };
        let raw = ttrpc_keepalive::wire::Raw(size.as_bytes());
        let request =
            ttrpc_keepalive::wire::encode_request(2 * number + 1, Flags::NONE, &head, &raw);
        peer.send(request.unwrap()).await;
    }
    sleep(ms(1)).await;
    // The first answer has begun and fills the pipe.
    peer.send(ping(7)).await;
    sleep(ms(1)).await;
    assert_eq!(
        peer.frame().await.header.message_type,
        MessageType::RESPONSE
    );
    assert_eq!(peer.frame().await.header.message_type, MessageType::PONG);
    for _ in 1..100 {
        assert_eq!(
            peer.frame().await.header.message_type,
            MessageType::RESPONSE
        );
    }
}

// T85
#[tokio::test(start_paused = true)]
async fn a_pong_is_written_before_every_answer_to_what_came_after_the_ping() {
    let mut peer = served(echo().build().unwrap());
    for round in 0..200 {
        // In one write: the answer of the request is ready as soon as it can be.
        let ping = ping(round);
        let even = junk(1, 2, Flags::NONE, b"");
        peer.send([&ping[..], &even].concat()).await;
        let first = peer.frame().await;
        assert_eq!(
            first.header.message_type,
            MessageType::PONG,
            "round {round}"
        );
        assert_eq!(first.payload[..], round.to_be_bytes());
        assert_eq!(
            peer.frame().await.header.message_type,
            MessageType::RESPONSE
        );
    }
    for round in 0..200u32 {
        peer.send(ping(u64::from(round))).await;
        peer.call(2 * round + 1, "Say", "hello").await;
        assert_eq!(peer.frame().await.header.message_type, MessageType::PONG);
        assert_eq!(
            peer.frame().await.header.message_type,
            MessageType::RESPONSE
        );
    }
}

// Part 2 number 5. An id that is taken before its frame is queued is overtaken.
#[test]
fn ids_on_the_wire_are_odd_and_strictly_increasing_whatever_the_threads_do() {
    on_threads(async {
        let (here, there) = tokio::net::UnixStream::pair().unwrap();
        let client = Client::builder().attach(here).unwrap();
        let mut peer = Peer::new(there);
        let server = tokio::spawn(async move {
            let (mut last, mut count) = (0, 0u32);
            while let Some(frame) = peer.next().await {
                let id = frame.header.stream_id;
                match frame.header.message_type {
                    MessageType::PING => peer.pong(&frame).await,
                    MessageType::REQUEST => {
                        assert!(id > last && id % 2 == 1, "{id} after {last}");
                        (last, count) = (id, count + 1);
                        peer.respond(id).await;
                    }
                    other => panic!("{other:?}"),
                }
            }
            count
        });
        let tasks: Vec<_> = (0..64)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move {
                    for _ in 0..1000 {
                        say(&client).await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        drop(client);
        assert_eq!(server.await.unwrap(), 64_000);
    });
}

/// Takes bytes and says that it has not passed them on, while `holds` is set.
struct Holding {
    stream: DuplexStream,
    holds: Arc<AtomicBool>,
}

impl AsyncRead for Holding {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Holding {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.holds.load(Ordering::Relaxed) {
            Poll::Pending
        } else {
            Poll::Ready(Ok(()))
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A watched client of a peer that is known, over a stream that holds back from now on.
async fn held_back() -> (Client, Peer<DuplexStream>, Arc<AtomicBool>) {
    let (here, there) = tokio::io::duplex(64 << 10);
    let holds = Arc::new(AtomicBool::new(false));
    let stream = Holding {
        stream: here,
        holds: Arc::clone(&holds),
    };
    let client = Client::builder()
        .keepalive(watch())
        .attach(ByteStream::new(stream))
        .unwrap();
    let mut peer = Peer::new(there);
    peer.answer_ping().await;
    holds.store(true, Ordering::Relaxed);
    (client, peer, holds)
}

#[tokio::test(start_paused = true)]
async fn a_ping_that_the_stream_holds_back_is_held_against_nobody() {
    let (client, mut peer, holds) = held_back().await;
    let start = Instant::now();
    sleep_until(start + ms(1400)).await;
    assert_alive(&client);

    // Its answer shows that it was let go, and the watch goes on with the next one.
    peer.answer_ping().await;
    holds.store(false, Ordering::Relaxed);
    sleep(ms(1)).await;
    assert_eq!(client.snapshot().awaiting_pong_for(), None);
    peer.answer_ping().await;
    assert_passed(start, ms(2400));
    assert_alive(&client);
}

/// What a client knows of its peer when this has come, over a stream that does not say that the first PING
/// and the request behind it have left.
async fn learned_from(answer: impl FnOnce(u32) -> Vec<u8>) -> Support {
    let (here, there) = tokio::io::duplex(64 << 10);
    let stream = Holding {
        stream: here,
        holds: Arc::new(AtomicBool::new(true)),
    };
    let client = Client::builder().attach(ByteStream::new(stream)).unwrap();
    let mut peer = Peer::new(there);
    let _counted = tokio::spawn({
        let client = client.clone();
        async move { count(&client, "7").await }
    });
    peer.ping().await;
    let (id, _) = peer.request().await;
    peer.send(answer(id)).await;
    sleep(ms(1)).await;
    client.snapshot().support()
}

// Whoever writes the first PING and the request behind it tells that they have left, and an answer may
// come before he does.
#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_before_its_ping_is_known_to_have_left_decides_all_the_same() {
    let status = Status::new(Code::INVALID_ARGUMENT, "no such type");
    let response = learned_from(|id| encode_response(id, &text("hello")).unwrap()).await;
    let data = learned_from(|id| encode_data(id, Flags::NONE, &text("1")).unwrap()).await;
    let refused = learned_from(|_| encode_status(PING_STREAM_ID, &status)).await;
    assert_eq!([response, data, refused], [Support::No; 3]);
}

/// The twin: behind a buffer a peer that does not read must be found too.
#[tokio::test(start_paused = true)]
async fn a_stream_that_never_passes_on_what_it_holds_is_a_peer_that_does_not_read() {
    let (client, _peer, _) = held_back().await;
    let start = Instant::now();
    let end = client.closed().await;
    assert_eq!(end.dead_reason(), Some(DeadReason::NotReading));
    assert_passed(start, ms(2000));
}

type Write = fn(&[IoSlice<'_>]) -> io::Result<usize>;

/// Does the first write of a caller, and no other.
struct First {
    write: Write,
    done: AtomicBool,
}

impl Shortcut for First {
    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.done.swap(true, Ordering::Relaxed) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        (self.write)(slices)
    }
}

// A panic among them must not leave a connection that cannot write, nor a call that nobody ends.
#[tokio::test(start_paused = true)]
async fn what_a_shortcut_does_not_write_is_written_by_the_driver() {
    let writes: [Write; 3] = [
        |_| Err(io::ErrorKind::WouldBlock.into()),
        |_| Ok(0),
        |_| panic!("a shortcut of somebody"),
    ];
    for write in writes {
        let done = AtomicBool::new(false);
        let (here, there) = tokio::io::duplex(64 << 10);
        let transport = Hooked::new(here).with_shortcut(Arc::new(First { write, done }));
        let client = Client::builder().keepalive(Keepalive::off());
        let client = client.attach(transport).unwrap();
        let mut peer = Peer::new(there);
        tokio::spawn(async move { peer.serve().await });
        for _ in 0..3 {
            sleep(ms(1)).await;
            let reply = timeout(secs(1), say(&client)).await;
            reply.expect("it is written").unwrap();
        }
        assert_eq!(client.snapshot().calls_in_flight(), 0);
    }
}
