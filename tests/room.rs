//! Calls that wait for room, and what is left of a call that was dropped.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::BytesMut;
use protobuf::well_known_types::wrappers::StringValue;
use support::*;
use tokio::time::{Instant, sleep, timeout};
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::transport::Transport;
use ttrpc_keepalive::wire::MessageType;
use ttrpc_keepalive::{Client, Raw, Verdict};

// T42
#[test]
fn no_wake_up_is_lost_between_calls_that_wait_for_each_other() {
    on_threads(async {
        for (calls, outbox) in [(1, 1 << 20), (1 << 10, 1), (2, 100)] {
            let client = Client::builder().call_limit(calls).outbox_limit(outbox);
            let (client, _) = pair(echo().build().unwrap(), client, 64 << 10);
            let tasks: Vec<_> = (0..8)
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
                let done = timeout(secs(20), task).await;
                assert!(done.is_ok(), "stuck with {calls} calls and {outbox} bytes");
            }
        }
    });
}

// T42, dormancy entered and left from 8 tasks
#[test]
fn a_watch_that_comes_and_goes_with_calls_loses_no_wake_up() {
    on_threads(async {
        let watch = Keepalive::every(ms(10)).timeout(secs(20)).while_idle(false);
        let (client, _) = echo_pair(watch);
        let tasks: Vec<_> = (0..8u64)
            .map(|task| {
                let client = client.clone();
                tokio::spawn(async move {
                    for round in 0..100 {
                        say(&client).await.unwrap();
                        sleep(ms((task * 7 + round * 3) % 5)).await;
                    }
                })
            })
            .collect();
        for task in tasks {
            timeout(secs(20), task)
                .await
                .expect("nothing is stuck")
                .unwrap();
        }
    });
}

#[tokio::test(start_paused = true)]
async fn a_call_beyond_the_limit_waits_and_goes_on_in_its_turn() {
    let client = Client::builder().call_limit(2);
    let (client, mut peer) = attached(client, 64 << 10);
    let calls: Vec<_> = (0..5)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { say(&client).await })
        })
        .collect();
    peer.answer_ping().await;
    assert_eq!(peer.request().await.0, 1);
    assert_eq!(peer.request().await.0, 3);
    peer.silence(secs(10)).await;
    for id in [1, 3, 5] {
        peer.respond(id).await;
        assert_eq!(peer.request().await.0, id + 4);
        peer.silence(secs(1)).await;
    }
    peer.respond(7).await;
    peer.respond(9).await;
    for call in calls {
        call.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_finds_no_room_in_time_is_not_sent() {
    let client = Client::builder().call_limit(1);
    let (client, mut peer) = attached(client, 64 << 10);
    let first = {
        let client = client.clone();
        tokio::spawn(async move { say(&client).await })
    };
    peer.answer_ping().await;
    assert_eq!(peer.request().await.0, 1);
    let start = Instant::now();
    let error = say_within(&client, secs(1)).await.unwrap_err();
    assert_passed(start, secs(1));
    assert!(error.is_deadline());
    assert!(error.late_answer().is_none());
    println!("{error}");
    peer.respond(1).await;
    first.await.unwrap().unwrap();
    assert_eq!(client.snapshot().late_calls_unanswered(), 0);
    let (reply, ()) = tokio::join!(say(&client), async {
        // At the deadline the peer was asked.
        let mut frame = peer.frame().await;
        if frame.header.message_type == MessageType::PING {
            frame = peer.frame().await;
        }
        assert_eq!(frame.header.stream_id, 3);
        peer.respond(3).await;
    });
    reply.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_room_in_the_outbox_and_goes_on() {
    let client = Client::builder()
        .keepalive(Keepalive::off())
        .outbox_limit(10_000);
    let (client, mut peer) = attached(client, 4096);
    let calls: Vec<_> = (0..5)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { say_large(&client, 50_000).await })
        })
        .collect();
    sleep(secs(10)).await;
    for number in 0..5 {
        assert_eq!(peer.request().await.0, 2 * number + 1);
        peer.respond(2 * number + 1).await;
    }
    for call in calls {
        call.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_without_any_time_is_not_sent() {
    let (client, mut peer) = scripted(Keepalive::on_demand(), 64 << 10);
    let (first, ()) = tokio::join!(say(&client), peer.first_exchange());
    first.unwrap();
    let start = Instant::now();
    let error = say_within(&client, secs(0)).await.unwrap_err();
    assert_passed(start, secs(0));
    assert!(error.is_deadline(), "{error:?}");
    assert!(error.late_answer().is_none(), "{error:?}");
    peer.silence(secs(1)).await;
}

// A call that has run out of time when the driver comes to it is not sent any more.
#[tokio::test(start_paused = true)]
async fn a_call_that_expired_in_our_own_pause_is_not_sent() {
    let (client, mut peer) = scripted(Keepalive::off(), 64 << 10);
    let other = {
        let client = client.clone();
        tokio::spawn(async move { say(&client).await })
    };
    peer.request().await;
    let mut call = Box::pin(say_within(&client, ms(100)));
    poll_once(call.as_mut());
    pause(ms(200));
    let error = call.await.unwrap_err();
    assert_eq!(error.verdict(), Some(Verdict::LocalStall), "{error}");
    assert!(error.late_answer().is_none());
    peer.silence(secs(1)).await;
    other.abort();
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_leaves_nothing_in_whatever_state_it_was() {
    let client = Client::builder().keepalive(Keepalive::off()).call_limit(3);
    let (client, mut peer) = attached(client, 4096);
    let mut written = Box::pin(say(&client));
    let mut begun = Box::pin(say_large(&client, 20_000));
    let mut queued = Box::pin(say(&client));
    let mut waiting = Box::pin(say(&client));
    poll_once(written.as_mut());
    assert_eq!(peer.request().await.0, 1);
    poll_once(begun.as_mut());
    sleep(ms(1)).await;
    poll_once(queued.as_mut());
    poll_once(waiting.as_mut());
    sleep(ms(1)).await;
    drop((written, begun, queued, waiting));
    sleep(ms(1)).await;

    // What has begun is finished, what has not is not sent, and there is room for three again.
    let mut next: Vec<_> = (0..3).map(|_| Box::pin(say(&client))).collect();
    for call in &mut next {
        poll_once(call.as_mut());
    }
    assert_eq!(peer.request().await.0, 3);
    for id in [7, 9, 11] {
        assert_eq!(peer.request().await.0, id, "5 was never sent");
    }
    for id in [1, 3, 7, 9, 11] {
        peer.respond(id).await;
    }
    for call in next {
        call.await.unwrap();
    }
    let seen = client.snapshot();
    assert_eq!(seen.late_calls_unanswered(), 0);
    assert_eq!(
        seen.counters().repeated_responses,
        2,
        "of the two dropped ones"
    );
}

#[tokio::test(start_paused = true)]
async fn dropped_calls_free_their_room_for_those_that_wait() {
    let client = Client::builder().keepalive(Keepalive::off()).call_limit(1);
    let (client, mut peer) = attached(client, 64 << 10);
    let mut first = Box::pin(say(&client));
    poll_once(first.as_mut());
    let waiting = {
        let client = client.clone();
        tokio::spawn(async move { say(&client).await })
    };
    assert_eq!(peer.request().await.0, 1);
    peer.silence(secs(1)).await;
    drop(first);
    assert_eq!(peer.request().await.0, 3);
    peer.respond(3).await;
    waiting.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_room_fails_with_its_connection() {
    let client = Client::builder().keepalive(Keepalive::off()).call_limit(1);
    let (client, _peer) = attached(client, 64 << 10);
    let mut first = Box::pin(say(&client));
    poll_once(first.as_mut());
    let waiting = {
        let client = client.clone();
        tokio::spawn(async move { say(&client).await })
    };
    sleep(ms(1)).await;
    client.abort();
    let ended = timeout(secs(1), waiting).await.expect("it is told");
    assert!(ended.unwrap().unwrap_err().is_connection());
}

// It may lie in a `select!` and not be polled for long.
#[tokio::test(start_paused = true)]
async fn a_call_that_expires_unpolled_keeps_no_place() {
    let client = Client::builder().keepalive(Keepalive::off()).call_limit(1);
    let (client, mut peer) = attached(client, 64 << 10);
    let mut first = Box::pin(say(&client));
    poll_once(first.as_mut());
    let mut unpolled = Box::pin(say_within(&client, secs(1)));
    poll_once(unpolled.as_mut());
    let behind = {
        let client = client.clone();
        tokio::spawn(async move { say(&client).await })
    };
    assert_eq!(peer.request().await.0, 1);
    sleep(secs(2)).await;
    peer.respond(1).await;
    first.await.unwrap();
    let next = timeout(secs(1), peer.request()).await;
    assert_eq!(next.expect("there is room").0, 3);
    peer.respond(3).await;
    behind.await.unwrap().unwrap();
    assert!(unpolled.await.unwrap_err().is_deadline());
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_expires_unpolled_while_it_is_opened_keeps_no_place() {
    let client = Client::builder().keepalive(Keepalive::off()).call_limit(1);
    let (client, mut peer) = attached(client, 64 << 10);
    let mut first = Box::pin(say(&client));
    poll_once(first.as_mut());
    let opened = client
        .client_stream::<Raw, Raw>(SERVICE, "Up")
        .timeout(secs(1));
    let mut unpolled = Box::pin(opened);
    poll_once(unpolled.as_mut());
    let mut behind = client.server_stream::<_, Raw>(SERVICE, "Down", &Raw(""));
    poll_once(Pin::new(&mut behind));
    let behind = tokio::spawn(behind);
    assert_eq!(peer.request().await.0, 1);
    sleep(secs(2)).await;
    peer.respond(1).await;
    first.await.unwrap();
    let next = timeout(secs(1), peer.request()).await;
    assert_eq!(next.expect("there is room").0, 3);
    drop(behind.await.unwrap().unwrap());
    assert!(unpolled.await.unwrap_err().is_deadline());
}

type Waiting = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Refuses every write until it `opens`. Then it polls a call that waits for room in the middle
/// of the driver's write, as another thread may, and takes all.
struct Gate {
    opens: Arc<AtomicBool>,
    blocked: Arc<Mutex<Option<Waker>>>,
    waiting: Arc<Mutex<Option<Waiting>>>,
    woken: Arc<Woken>,
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Transport for Gate {
    fn poll_read(
        &mut self,
        _: &mut Context<'_>,
        _: &mut BytesMut,
        _: usize,
    ) -> Poll<io::Result<usize>> {
        Poll::Pending
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if !self.opens.load(Ordering::Relaxed) {
            *self.blocked.lock().unwrap() = Some(cx.waker().clone());
            return Poll::Pending;
        }
        if let Some(waiting) = &mut *self.waiting.lock().unwrap() {
            self.woken.0.store(false, Ordering::Relaxed);
            let waker = Waker::from(Arc::clone(&self.woken));
            let polled = waiting.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
        }
        Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()))
    }
}

// A call that looks for room just before the driver makes some must be woken after that.
#[tokio::test(start_paused = true)]
async fn room_made_while_a_call_looks_for_it_wakes_the_call() {
    let gate = Gate {
        opens: Arc::default(),
        blocked: Arc::default(),
        waiting: Arc::default(),
        woken: Arc::default(),
    };
    let (opens, blocked) = (Arc::clone(&gate.opens), Arc::clone(&gate.blocked));
    let (waiting, woken) = (Arc::clone(&gate.waiting), Arc::clone(&gate.woken));
    let client = Client::builder()
        .keepalive(Keepalive::off())
        .outbox_limit(1)
        .attach(gate)
        .unwrap();
    let mut first = Box::pin(say(&client));
    poll_once(first.as_mut());
    sleep(ms(1)).await;
    let second = client.clone();
    let mut second: Waiting = Box::pin(async move { drop(say(&second).await) });
    poll_once(second.as_mut());
    sleep(ms(1)).await;

    *waiting.lock().unwrap() = Some(second);
    opens.store(true, Ordering::Relaxed);
    blocked.lock().unwrap().take().unwrap().wake();
    sleep(ms(1)).await;
    assert!(
        woken.0.load(Ordering::Relaxed),
        "there is room, and nobody told the call"
    );
}

#[tokio::test(start_paused = true)]
async fn the_peer_is_told_what_is_left_of_the_time() {
    let client = Client::builder().keepalive(Keepalive::off()).call_limit(1);
    let (client, mut peer) = attached(client, 64 << 10);
    let calls: Vec<_> = [secs(5), secs(5), Duration::MAX]
        .map(|limit| {
            let client = client.clone();
            tokio::spawn(async move { say_within(&client, limit).await })
        })
        .into();
    let (id, request) = peer.request().await;
    assert_eq!(request.timeout_nano, 5_000_000_000);
    sleep(secs(2)).await;
    peer.respond(id).await;
    let (id, request) = peer.request().await;
    let left = u64::try_from(request.timeout_nano).unwrap();
    assert!((2_990_000_000..=3_000_000_000).contains(&left), "{left}");
    peer.respond(id).await;
    let (id, request) = peer.request().await;
    assert_eq!(request.timeout_nano, i64::MAX, "a limit that never comes");
    sleep(secs(1)).await;
    peer.respond(id).await;
    for call in calls {
        call.await.unwrap().unwrap();
    }
}

// B1, B2: a frame that has begun is finished, whatever became of its call.
#[tokio::test(start_paused = true)]
async fn a_call_that_expires_while_it_is_written_leaves_whole_frames() {
    let (here, there) = tokio::io::duplex(4096);
    let client = Client::builder().keepalive(Keepalive::off());
    let client = client.attach(here).unwrap();
    let large = text(&"x".repeat(1 << 20));
    let start = Instant::now();
    let call = client.call::<_, StringValue>("demo.Echo", "Say", &large);
    let late = call.timeout(secs(1)).await.unwrap_err();
    assert!(late.is_deadline());
    assert_passed(start, secs(1));
    // One behind it is never sent, although it would have been written at once.
    assert!(
        say_within(&client, ms(500))
            .await
            .unwrap_err()
            .is_deadline()
    );
    assert_eq!(client.snapshot().late_calls_unanswered(), 1);

    let mut peer = Peer::new(there);
    let last = {
        let client = client.clone();
        tokio::spawn(async move { say(&client).await })
    };
    let (id, request) = peer.request().await;
    assert_eq!((id, request.payload.len() > 1 << 20), (1, true));
    let (id, _) = peer.request().await;
    assert_eq!(id, 5);
    peer.respond(id).await;
    last.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_dropped_probe_leaves_at_most_its_ping() {
    let (client, mut peer) = scripted(Keepalive::on_demand(), 64 << 10);
    let (first, ()) = tokio::join!(say(&client), peer.first_exchange());
    first.unwrap();
    for _ in 0..100 {
        let mut probe = Box::pin(client.probe(secs(1)));
        poll_once(probe.as_mut());
        drop(probe);
        let mut probe = Box::pin(client.probe(secs(1)));
        poll_once(probe.as_mut());
        peer.ping().await;
        drop(probe);
        peer.silence(secs(60)).await;
    }
    assert_eq!(client.snapshot().late_calls_unanswered(), 0);
    let (rtt, ()) = tokio::join!(client.probe(secs(1)), peer.answer_ping());
    assert!(rtt.is_ok());
}
