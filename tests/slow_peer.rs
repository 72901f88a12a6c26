//! Peers that are slow, stuck, frozen or gone, as those who call them see it.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use protobuf::well_known_types::wrappers::StringValue;
use support::*;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tracing::Level;
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::wire::{Flags, pong};
use ttrpc_keepalive::{
    Client, DeadReason, Error, LateOutcome, Peer as Summary, Server, Service, State, Verdict,
};

fn watch(interval: u64, timeout: u64) -> Keepalive {
    Keepalive::every(ms(interval)).timeout(ms(timeout))
}

/// A server on which `Say` never answers.
fn wedged() -> Server {
    Server::builder()
        .handler_limit(1 << 16)
        .service(
            Service::new("demo.Echo", ()).unary("Say", |(), _, _: StringValue| {
                pending::<Result<StringValue, _>>()
            }),
        )
        .build()
        .unwrap()
}

// A1: what ttrpc#203 asks for.
#[tokio::test(start_paused = true)]
async fn two_idle_ends_keep_each_other_alive_and_a_frozen_one_is_found() {
    // Only the frozen end's stream stands still, not its clock: it must not be the first to convict.
    let server = echo().keepalive(watch(200, 600)).build().unwrap();
    let client = Client::builder().keepalive(watch(200, 500));
    let (client, freezer) = pair(server, client, 64 << 10);
    sleep(secs(5)).await;
    let seen = client.snapshot();
    assert!(matches!(seen.state(), State::Alive));
    let counters = seen.counters().keepalive;
    assert!(counters.pongs_received >= 10, "{counters:?}");
    assert_eq!(counters.suspect_entries, 0);

    freezer.freeze();
    let start = Instant::now();
    let end = client.closed().await;
    assert_eq!(end.dead_reason(), Some(DeadReason::Silent));
    assert!(start.elapsed() <= ms(703), "{:?}", start.elapsed());
}

// A5, A6: nobody is disconnected for being late, so there is no time in which calls miss the peer.
#[tokio::test(start_paused = true)]
async fn calls_right_after_a_late_one_all_reach_the_peer() {
    let (client, _) = echo_pair(watch(200, 1000));
    let late = sleep_within(&client, secs(5), secs(2)).await.unwrap_err();
    assert_eq!(late.verdict(), Some(Verdict::Slow));
    let start = Instant::now();
    let mut calls = JoinSet::new();
    for _ in 0..50 {
        let client = client.clone();
        calls.spawn(async move { say(&client).await });
        sleep(ms(2)).await;
    }
    for result in calls.join_all().await {
        result.unwrap();
    }
    assert!(start.elapsed() < ms(150), "{:?}", start.elapsed());
}

// A6, A11: one of twenty calls pays for what is found out, and the rest fail at once with it.
#[tokio::test(start_paused = true)]
async fn calls_to_a_dead_peer_fail_at_once_and_with_the_one_cause() {
    let (client, freezer) = echo_pair(watch(1000, 3000));
    say(&client).await.unwrap();
    freezer.freeze();
    let start = Instant::now();
    let mut late = 0;
    for number in 0..20 {
        let error = say_within(&client, secs(2)).await.unwrap_err();
        if error.is_deadline() {
            assert_eq!(error.verdict(), Some(Verdict::Unresponsive), "{number}");
            late += 1;
            continue;
        }
        let Error::Connection(end, _) = &error else {
            panic!("{error:?}");
        };
        assert_eq!(end.dead_reason(), Some(DeadReason::Silent));
        assert!(error.evidence().unwrap().silent_for >= secs(4) - ms(1));
    }
    assert!(late <= 2, "{late} of them waited");
    assert_passed(start, secs(4));
}

// A4, A12: asking all of them takes as long as one may take, and the error names the cause.
#[tokio::test(start_paused = true)]
async fn one_frozen_peer_of_three_costs_its_own_time_only_and_is_named() {
    let peers: Vec<_> = (0..3).map(|_| echo_pair(watch(10_000, 10_000))).collect();
    for (client, _) in &peers {
        say(client).await.unwrap();
    }
    peers[1].1.freeze();
    let start = Instant::now();
    let mut answers = Vec::new();
    let mut asked = JoinSet::new();
    for (number, (client, _)) in peers.iter().enumerate() {
        let client = client.clone();
        asked.spawn(async move { (number, say_within(&client, secs(2)).await, start.elapsed()) });
    }
    while let Some(answer) = asked.join_next().await {
        answers.push(answer.unwrap());
    }
    assert_passed(start, secs(2));
    answers.sort_by_key(|(number, ..)| *number);
    for (number, answer, took) in answers {
        match answer {
            Ok(_) => assert!(number != 1 && took < ms(5), "{number}: {took:?}"),
            Err(error) => {
                assert_eq!((number, error.peer()), (1, Summary::Doubtful));
                let text = error.to_string();
                assert!(text.contains("does not respond"), "{text}");
            }
        }
    }
    // The next round skips it, and nobody had to call it for that.
    let alive = |(client, _): &&(Client, Freezer)| client.peer() == Summary::Alive;
    assert_eq!(peers.iter().filter(alive).count(), 2);
}

// A9, A20: the connection is alive and says so; that the work behind it does not end is another
// question, and has its own answer.
#[tokio::test(start_paused = true)]
async fn calls_to_a_wedged_server_leave_little_and_their_age_tells() {
    let client = Client::builder().keepalive(watch(1000, 1000));
    let (client, _) = pair(wedged(), client, 1 << 20);
    let patient = {
        let client = client.clone();
        tokio::spawn(async move { say(&client).await })
    };
    let start = Instant::now();
    for _ in 0..10 {
        let mut calls = JoinSet::new();
        for _ in 0..1000 {
            let client = client.clone();
            calls.spawn(async move { say_within(&client, secs(1)).await });
        }
        sleep(ms(500)).await;
        let seen = client.snapshot();
        assert_eq!(seen.calls_in_flight(), 1001);
        assert!(seen.oldest_call_for().unwrap() >= start.elapsed() - ms(1));
        for result in calls.join_all().await {
            assert!(result.unwrap_err().is_deadline());
        }
        assert_eq!(client.snapshot().calls_in_flight(), 1);
    }
    let seen = client.snapshot();
    assert!(matches!(seen.state(), State::Alive));
    assert_eq!(seen.late_calls_unanswered(), 1024, "late_limit");
    let age = seen.oldest_call_for().unwrap();
    assert!(age >= start.elapsed() - ms(1), "{age:?}");
    patient.abort();
    sleep(ms(1)).await;
    assert_eq!(client.snapshot().oldest_call_for(), None);
}

// G22: the age of a call is known while it waits, to whoever asks, also where the call was written
// by its caller and the driver sleeps.
#[tokio::test(start_paused = true)]
async fn the_age_of_a_call_is_told_without_taking_part_in_it() {
    let (stream, mut peer) = BarePeer::pair();
    let client = Client::builder().keepalive(Keepalive::off());
    let client = client.attach(stream).unwrap();
    assert_eq!(client.snapshot().oldest_call_for(), None);
    sleep(secs(1)).await;
    let mut call = Box::pin(say(&client));
    poll_once(call.as_mut());
    for seconds in [0, 10, 3600] {
        sleep(secs(seconds)).await;
        let seen = client.snapshot();
        assert_eq!(seen.calls_in_flight(), 1);
        assert!(seen.oldest_call_for().unwrap() >= secs(seconds));
    }
    // A younger one does not hide it, and takes its place when it is answered.
    let mut second = Box::pin(say(&client));
    poll_once(second.as_mut());
    sleep(secs(1)).await;
    assert_eq!(client.snapshot().calls_in_flight(), 2);
    assert!(client.snapshot().oldest_call_for().unwrap() >= secs(3611));
    let first = peer.drain().0.remove(0).header.stream_id;
    peer.send(&ttrpc_keepalive::wire::encode_response(first, &text("hello")).unwrap());
    call.await.unwrap();
    let seen = client.snapshot();
    assert_eq!(seen.calls_in_flight(), 1);
    assert!(seen.oldest_call_for().unwrap() <= ms(1005));
    drop(second);
    sleep(ms(1)).await;
    assert_eq!(client.snapshot().oldest_call_for(), None);
}

// B14: a thousand late answers are counted, and none of them is worth a line to read.
#[tokio::test(start_paused = true)]
async fn late_answers_are_counted_and_not_complained_about() {
    let (log, _guard) = Log::begin();
    let server = echo().handler_limit(2000).build().unwrap();
    let (client, _) = pair(server, Client::builder(), 1 << 20);
    let mut calls = JoinSet::new();
    for _ in 0..1000 {
        let client = client.clone();
        calls.spawn(async move { sleep_within(&client, secs(3), secs(1)).await });
    }
    let mut late = Vec::new();
    for result in calls.join_all().await {
        late.push(result.unwrap_err().late_answer().unwrap());
    }
    for answer in late {
        assert!(matches!(answer.await, LateOutcome::Answered { .. }));
    }
    sleep(ms(1)).await;
    assert_eq!(client.snapshot().counters().late_responses, 1000);
    assert_eq!(log.at_least(Level::INFO), [""; 0]);
    assert_eq!(log.count("a late answer has come"), 1000);
}

// H2, H3: not two PINGs and then silence, and one period is the interval, not the sum with the
// timeout.
#[tokio::test(start_paused = true)]
async fn a_call_that_takes_a_minute_is_watched_in_every_interval_of_it() {
    let (client, _) = echo_pair(watch(500, 10_000).while_idle(false));
    sleep_within(&client, secs(60), secs(90)).await.unwrap();
    let sent = client.snapshot().counters().keepalive.pings_sent;
    assert!((115..=122).contains(&sent), "{sent} PINGs in a minute");
    sleep(secs(60)).await;
    let idle = client.snapshot().counters().keepalive.pings_sent;
    assert!(idle <= sent + 1, "{idle}: nobody waits any more");
}

// H14: a PONG that takes longer than the timeout is no miss while other bytes come.
#[tokio::test(start_paused = true)]
async fn a_late_pong_is_excused_by_any_other_byte_and_by_nothing_else() {
    for speaks in [true, false] {
        let (client, mut peer) = scripted(watch(1000, 1000), 64 << 10);
        peer.answer_ping().await;
        let number = peer.ping().await;
        let start = Instant::now();
        sleep(ms(900)).await;
        if speaks {
            peer.send(junk(9, 1, Flags::NONE, b"")).await;
        }
        sleep(ms(600)).await;
        if speaks {
            let bytes = pong(u32::MAX, Flags::NONE, &number.to_be_bytes());
            peer.send(bytes).await;
            sleep(ms(1)).await;
            assert!(matches!(client.snapshot().state(), State::Alive));
        } else {
            client.closed().await;
            assert_passed(start, ms(1500));
            let convicted_for = client.snapshot().in_state_for();
            assert!(convicted_for >= ms(499) && convicted_for <= ms(503));
        }
    }
}

/// Uses all that can be used at once, whenever it is woken.
struct Meddler {
    client: Client,
    call: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    woken: AtomicU32,
}

impl Wake for Meddler {
    fn wake(self: Arc<Self>) {
        // A call that is made here wakes others that wait for room: somebody has to stop.
        if self.woken.fetch_add(1, Ordering::Relaxed) > 1000 {
            return;
        }
        let client = &self.client;
        let seen = client.snapshot();
        assert_eq!(client.peer(), seen.peer());
        client.expect_close();
        drop(client.liveness());
        drop(client.clone());
        let other = client.clone();
        let mut call = Box::pin(async move { drop(say_within(&other, ms(10)).await) });
        let mut cx = Context::from_waker(Waker::noop());
        let _ = call.as_mut().poll(&mut cx);
        // The one before it is dropped behind the lock: that makes room, and so wakes the next.
        let before = self.call.lock().unwrap().replace(call);
        drop(before);
    }
}

// G4: whoever is woken may run at once and use the connection: no lock is held around it.
#[tokio::test(start_paused = true)]
async fn nobody_is_woken_under_a_lock() {
    let builder = Client::builder().keepalive(watch(1000, 1000)).call_limit(2);
    let (client, freezer) = pair(echo().build().unwrap(), builder, 64 << 10);
    say(&client).await.unwrap();
    let meddler = Arc::new(Meddler {
        client: client.clone(),
        call: Mutex::default(),
        woken: AtomicU32::new(0),
    });
    let waker = Waker::from(Arc::clone(&meddler));
    let mut cx = Context::from_waker(&waker);
    let mut waiting: Vec<Pin<Box<dyn Future<Output = ()> + Send>>> = Vec::new();
    // Two calls run, the others wait for room.
    for _ in 0..5 {
        let client = client.clone();
        let call = async move { drop(sleep_within(&client, ms(20), secs(1)).await) };
        waiting.push(Box::pin(call));
    }
    let (probe, closed) = (client.clone(), client.clone());
    waiting.push(Box::pin(async move { drop(probe.probe(secs(1)).await) }));
    waiting.push(Box::pin(async move { drop(closed.closed().await) }));
    let mut liveness = client.liveness();
    waiting.push(Box::pin(
        async move { while liveness.next().await.is_some() {} },
    ));
    for round in 0..60 {
        let mut still = Vec::new();
        for mut future in waiting {
            if future.as_mut().poll(&mut cx).is_pending() {
                still.push(future);
            }
        }
        waiting = still;
        sleep(ms(100)).await;
        if round == 10 {
            freezer.freeze();
        }
    }
    assert!(waiting.is_empty(), "{} wait for ever", waiting.len());
    assert!(meddler.woken.load(Ordering::Relaxed) >= 8);
    let last = meddler.call.lock().unwrap().take();
    drop(last);
}

// The last waker of a task may drop the task, and with it whatever that holds of the connection.
#[tokio::test(start_paused = true)]
async fn no_waker_is_dropped_under_a_lock() {
    struct Task(Client);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for Task {
        fn drop(&mut self) {
            self.0.snapshot();
        }
    }

    let builder = Client::builder().keepalive(Keepalive::off()).call_limit(1);
    let (client, _freezer) = pair(echo().build().unwrap(), builder, 64 << 10);
    let poll = |future: Pin<&mut dyn Future<Output = ()>>| {
        let waker = Waker::from(Arc::new(Task(client.clone())));
        assert!(future.poll(&mut Context::from_waker(&waker)).is_pending());
    };
    // One runs, the other waits for room.
    let calls = [(); 2].map(|()| async { drop(sleep_within(&client, ms(20), secs(1)).await) });
    let mut calls = calls.map(Box::pin);
    for _ in 0..2 {
        for call in &mut calls {
            poll(call.as_mut());
        }
    }
    drop(calls);

    let request = StringValue::new();
    let stream = client.server_stream::<_, StringValue>("demo.Echo", "Nothing", &request);
    let mut receiver = stream.await.unwrap();
    for _ in 0..2 {
        let mut next = Box::pin(async { drop(receiver.next().await) });
        poll(next.as_mut());
    }
    drop(receiver);
}
