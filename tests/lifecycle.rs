//! The stream of snapshots, the end of a connection or of a server, and what is left of them.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_core::Stream;
use protobuf::well_known_types::wrappers::StringValue;
use support::*;
use tokio::time::{Instant, sleep, timeout};
use ttrpc_keepalive::keepalive::{Keepalive, OnSilence};
use ttrpc_keepalive::wire::{Flags, pong};
use ttrpc_keepalive::{
    Client, Code, ConnectionError, Context as CallContext, DeadReason, Listener, Liveness,
    Peer as Summary, Server, Service, Snapshot, State, Support,
};

fn watch() -> Keepalive {
    Keepalive::every(secs(1)).timeout(secs(1))
}

#[derive(Default)]
struct Wakes(AtomicU32);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn poll(liveness: &mut Liveness, wakes: &Arc<Wakes>) -> Poll<Option<Snapshot>> {
    let waker = Waker::from(Arc::clone(wakes));
    Pin::new(liveness).poll_next(&mut Context::from_waker(&waker))
}

#[tokio::test(start_paused = true)]
async fn the_stream_yields_the_present_and_then_each_change_and_ends() {
    let (client, mut peer) = scripted(watch(), 64 << 10);
    let mut liveness = client.liveness();
    let present = liveness.next().await.unwrap();
    assert!(matches!(present.state(), State::Alive));
    assert_eq!(present.support(), Support::Unknown);
    peer.answer_ping().await;
    assert_eq!(liveness.next().await.unwrap().support(), Support::Yes);
    peer.ping().await;
    let start = Instant::now();
    let suspect = liveness.next().await.unwrap();
    assert!(matches!(suspect.state(), State::Suspect));
    assert_eq!(suspect.peer(), Summary::Doubtful);
    assert_passed(start, ms(500));
    peer.send(junk(9, 1, Flags::NONE, b"")).await;
    let alive = liveness.next().await.unwrap();
    assert!(matches!(alive.state(), State::Alive));
    peer.ping().await;
    assert!(matches!(
        liveness.next().await.unwrap().state(),
        State::Suspect
    ));
    let dead = liveness.next().await.unwrap();
    assert!(matches!(dead.state(), State::Dead(DeadReason::Silent)));
    assert_eq!(dead.peer(), Summary::Gone);
    assert!(liveness.next().await.is_none());
    assert!(liveness.next().await.is_none());

    // A clone starts with the present value, which is the last one.
    let mut late = client.liveness();
    assert!(late.next().await.unwrap().state().is_final());
    assert!(late.next().await.is_none());
    let counters = client.snapshot().counters().keepalive;
    assert_eq!((counters.suspect_entries, counters.recoveries), (2, 1));
}

// T61
// The driver has no turn in between.
#[tokio::test(start_paused = true)]
async fn a_call_is_in_flight_from_its_begin_to_its_drop_whoever_asks() {
    let (client, _peer) = scripted(Keepalive::off(), 64 << 10);
    let liveness = client.liveness();
    let seen = || {
        let (client, liveness) = (client.snapshot(), liveness.snapshot());
        [client.calls_in_flight(), liveness.calls_in_flight()]
    };
    assert_eq!(seen(), [0, 0]);
    let mut call = Box::pin(say(&client));
    poll_once(call.as_mut());
    assert_eq!(seen(), [1, 1]);
    drop(call);
    assert_eq!(seen(), [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_watcher_that_comes_late_sees_the_newest_state_and_the_counters_see_all() {
    let (client, mut peer) = scripted(watch(), 64 << 10);
    peer.answer_ping().await;
    sleep(ms(1)).await;
    let wakes = Arc::default();
    let mut liveness = client.liveness();
    assert!(poll(&mut liveness, &wakes).is_ready());
    assert!(poll(&mut liveness, &wakes).is_pending());
    let ping = peer.frame().await;
    sleep(ms(700)).await;
    assert!(matches!(client.snapshot().state(), State::Suspect));
    peer.pong(&ping).await;
    sleep(ms(1)).await;
    let Poll::Ready(Some(seen)) = poll(&mut liveness, &wakes) else {
        panic!("something has changed");
    };
    assert!(matches!(seen.state(), State::Alive));
    assert!(poll(&mut liveness, &wakes).is_pending());
    assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
    let counters = client.snapshot().counters().keepalive;
    assert_eq!((counters.suspect_entries, counters.recoveries), (1, 1));
}

// T62
#[tokio::test(start_paused = true)]
async fn dead_is_final_and_told_once() {
    let (client, mut peer) = scripted(watch(), 64 << 10);
    peer.answer_ping().await;
    let ping = peer.frame().await;
    let end = client.closed().await;
    assert_eq!(end.dead_reason(), Some(DeadReason::Silent));
    let bytes = pong(u32::MAX, Flags::NONE, &ping.payload);
    let _ = tokio::io::AsyncWriteExt::write_all(&mut peer.stream, &bytes).await;
    sleep(secs(100)).await;
    let seen = client.snapshot();
    assert!(matches!(seen.state(), State::Dead(DeadReason::Silent)));
    assert_eq!(seen.counters().keepalive.convictions_silent, 1);
    assert!(
        client.closed().await.dead_reason().is_some(),
        "at once and the same"
    );
    assert!(say(&client).await.unwrap_err().is_connection());
    assert!(client.probe(secs(1)).await.unwrap_err().is_connection());
}

// T64
#[tokio::test(start_paused = true)]
async fn a_watcher_that_never_polls_costs_nothing_and_holds_up_nobody() {
    let keepalive = watch().on_silence(OnSilence::Report);
    let (client, mut peer) = scripted(keepalive, 64 << 10);
    let idle: Vec<_> = (0..100).map(|_| client.liveness()).collect();
    peer.answer_ping().await;
    for _ in 0..100 {
        let ping = peer.frame().await;
        sleep(ms(700)).await;
        peer.pong(&ping).await;
    }
    sleep(ms(1)).await;
    let wakes = Arc::default();
    for mut liveness in idle {
        assert!(poll(&mut liveness, &wakes).is_ready());
        assert!(
            poll(&mut liveness, &wakes).is_pending(),
            "one value, the newest"
        );
    }
    assert_eq!(client.snapshot().counters().keepalive.suspect_entries, 100);
}

// T43
#[tokio::test(start_paused = true)]
async fn dropping_the_last_handle_with_a_ping_out_ends_everything() {
    let alive = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let before = alive();
    let (client, mut peer) = scripted(watch(), 64 << 10);
    let other = client.clone();
    peer.ping().await;
    let mut liveness = client.liveness();
    drop(client);
    sleep(ms(1)).await;
    assert!(
        !other.snapshot().state().is_final(),
        "another handle is there"
    );
    let dropped = Instant::now();
    drop(other);
    assert!(peer.next().await.is_none(), "the descriptor is closed");
    assert!(dropped.elapsed() <= ms(1), "no timer is waited for");
    sleep(ms(1)).await;
    assert_eq!(alive(), before);
    let last = loop {
        let seen = liveness.next().await.unwrap();
        if seen.state().is_final() {
            break seen;
        }
    };
    assert!(matches!(
        last.state(),
        State::Closed(ConnectionError::LocalClose)
    ));
    assert!(last.end().unwrap().is_local_close());
}

// The peer does not read: there is nothing to wait for.
#[tokio::test(start_paused = true)]
async fn dropping_the_last_handle_does_not_wait_for_a_stuck_write() {
    let (client, mut peer) = scripted(Keepalive::off(), 4096);
    let mut bulk = Box::pin(say_large(&client, 1 << 20));
    poll_once(bulk.as_mut());
    sleep(ms(1)).await;
    drop(bulk);
    drop(client);
    sleep(ms(1)).await;
    let mut rest = Vec::new();
    let read = tokio::io::AsyncReadExt::read_to_end(&mut peer.stream, &mut rest);
    timeout(secs(1), read).await.unwrap().unwrap();
    assert!(rest.len() <= 4096);
}

#[tokio::test(start_paused = true)]
async fn closed_waits_for_the_end_and_tells_why() {
    let (client, peer) = scripted(Keepalive::on_demand(), 64 << 10);
    assert!(timeout(secs(3600), client.closed()).await.is_err());
    drop(peer);
    assert!(matches!(client.closed().await, ConnectionError::PeerClosed));
    let State::Closed(end) = client.snapshot().state() else {
        panic!("{:?}", client.snapshot().state());
    };
    assert!(matches!(end, ConnectionError::PeerClosed));
    assert_eq!(client.peer(), Summary::Gone);
}

#[test]
fn a_runtime_that_goes_away_ends_its_connections() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let (client, peer) = {
        let _entered = runtime.enter();
        let (here, there) = tokio::io::duplex(4096);
        (Client::builder().attach(here).unwrap(), there)
    };
    runtime.shutdown_background();
    let other = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    other.block_on(async {
        let end = timeout(secs(10), client.closed()).await.unwrap();
        assert!(matches!(end, ConnectionError::Abandoned), "{end:?}");
        assert!(say(&client).await.unwrap_err().is_connection());
    });
    drop(peer);
}

// Ages grow while a snapshot is held; facts do not change.
#[tokio::test(start_paused = true)]
async fn a_snapshot_is_of_its_moment_and_its_ages_grow() {
    let (client, mut peer) = scripted(watch(), 64 << 10);
    peer.answer_ping().await;
    sleep(ms(1)).await;
    let seen = client.snapshot();
    let before = seen.silent_for();
    sleep(secs(1) + ms(700)).await;
    assert!(seen.silent_for() >= before + ms(1700));
    assert!(seen.in_state_for() >= ms(1700));
    assert!(matches!(seen.state(), State::Alive));
    assert_eq!(seen.awaiting_pong_for(), None);
    let later = client.snapshot();
    assert!(matches!(later.state(), State::Suspect));
    let awaiting = later.awaiting_pong_for().unwrap();
    assert!(awaiting >= ms(690) && awaiting <= ms(710), "{awaiting:?}");
}

// C21: what the peer sent before it went away is delivered, and the end is told once.
#[tokio::test(start_paused = true)]
async fn a_response_that_came_before_the_peer_went_away_is_delivered() {
    for round in 0..20 {
        let (stream, mut peer) = BarePeer::pair();
        let client = Client::builder().keepalive(Keepalive::off());
        let client = client.attach(stream).unwrap();
        let answered = {
            let client = client.clone();
            tokio::spawn(async move { say(&client).await })
        };
        sleep(ms(1)).await;
        let bulk = {
            let client = client.clone();
            tokio::spawn(async move { say_large(&client, 3 << 20).await })
        };
        if round % 2 == 0 {
            sleep(ms(1)).await;
        }
        // It has read only a part of the second request when it answers the first and dies.
        peer.send(&ttrpc_keepalive::wire::encode_response(1, &text("hello")).unwrap());
        drop(peer);
        assert_eq!(answered.await.unwrap().unwrap().value, "hello");
        let error = bulk.await.unwrap().unwrap_err();
        assert!(error.is_connection(), "{error:?}");
        assert!(client.snapshot().state().is_final());
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_last_read_brought_is_in_the_last_snapshot() {
    let (client, mut peer) = scripted(Keepalive::on_demand(), 64 << 10);
    let mut call = Box::pin(say(&client));
    poll_once(call.as_mut());
    let number = peer.ping().await;
    peer.send(pong(u32::MAX, Flags::NONE, &number.to_be_bytes()))
        .await;
    drop(peer);
    assert!(call.await.unwrap_err().is_connection());
    let last = client.snapshot();
    assert_eq!(last.support(), Support::Yes);
    assert_eq!(last.counters().keepalive.pongs_received, 1);
}

/// A server with a method that waits for something that never comes, unless it is told to stop.
fn long_poll() -> Server {
    streams()
        .service(Service::new("demo.Echo", ()).unary(
            "Poll",
            |(), call: CallContext, _: StringValue| async move {
                assert!(!call.is_draining());
                call.draining().await;
                assert!(call.is_draining());
                Ok(text("draining"))
            },
        ))
        .build()
        .unwrap()
}

// C6, G21
#[tokio::test(start_paused = true)]
async fn a_shutdown_tells_handlers_that_wait_for_something_rare() {
    let server = long_poll();
    let (client, _) = pair(server.clone(), Client::builder(), 4096);
    let poll = {
        let client = client.clone();
        let request = text("");
        tokio::spawn(async move { client.call("demo.Echo", "Poll", &request).await })
    };
    sleep(secs(60)).await;
    let start = Instant::now();
    assert!(server.shutdown(secs(30)).await);
    assert_passed(start, secs(0));
    let reply: StringValue = poll.await.unwrap().unwrap();
    assert_eq!(reply.value, "draining");
    assert!(matches!(client.closed().await, ConnectionError::PeerClosed));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_the_requests_of_streams_that_are_still_open_at_half_its_limit() {
    let server = long_poll();
    let (client, _) = pair(server.clone(), Client::builder(), 4096);
    let call = client.client_stream::<_, StringValue>(SERVICE, "Join");
    let (ends, joined) = call.await.unwrap();
    let call = client.bidi_stream::<_, StringValue>(SERVICE, "Echo");
    let (endless, mut echoes) = call.await.unwrap();
    ends.send(&text("a")).await.unwrap();
    endless.send(&text("x")).await.unwrap();
    assert_eq!(echoes.next().await.unwrap().unwrap().value, "x");
    let start = Instant::now();
    let stopping = {
        let server = server.clone();
        tokio::spawn(async move { server.shutdown(secs(10)).await })
    };
    // One that is done in time is not cut in its middle.
    sleep(secs(4)).await;
    ends.send(&text("b")).await.unwrap();
    ends.finish();
    assert_eq!(joined.await.unwrap().value, "ab");
    endless.send(&text("y")).await.unwrap();
    assert_eq!(echoes.next().await.unwrap().unwrap().value, "y");
    let end = echoes.next().await.unwrap().unwrap_err();
    assert_eq!(end.status().unwrap().code(), Code::UNAVAILABLE);
    assert_passed(start, secs(5));
    assert!(stopping.await.unwrap());
    assert_passed(start, secs(5));
}

// C8: whoever waits for the end hears of it, however close together they come.
#[test]
fn no_shutdown_misses_the_end_that_it_waits_for() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        for round in 0..2_000u32 {
            let server = long_poll();
            let (client, _) = pair(server.clone(), Client::builder(), 4096);
            let poll = tokio::spawn(async move {
                let request = text("");
                client
                    .call::<_, StringValue>("demo.Echo", "Poll", &request)
                    .await
            });
            if round % 2 == 0 {
                tokio::task::yield_now().await;
            }
            let others = [server.clone(), server.clone()]
                .map(|server| tokio::spawn(async move { server.shutdown(secs(60)).await }));
            assert!(timeout(secs(30), server.shutdown(secs(60))).await.unwrap());
            for other in others {
                assert!(timeout(secs(30), other).await.unwrap().unwrap(), "{round}");
            }
            // Refused if it came too late; in no case without an end.
            let _ = timeout(secs(30), poll).await.unwrap().unwrap();
        }
    });
}

// C10
#[tokio::test(start_paused = true)]
async fn a_server_serves_on_when_its_handles_are_dropped() {
    let name = format!("unix://@ttrpc-keepalive-handles-{}", std::process::id());
    let listener = Listener::bind(&name).await.unwrap();
    let server = long_poll();
    let serving = {
        let server = server.clone();
        tokio::spawn(async move { server.serve(listener).await })
    };
    drop(server);
    for _ in 0..3 {
        let client = Client::builder().connect(&name).await.unwrap();
        say(&client).await.unwrap();
    }
    serving.abort();
}

// G16
#[tokio::test(start_paused = true)]
async fn dropping_the_future_that_serves_ends_its_connections_at_once() {
    let name = format!("unix://@ttrpc-keepalive-drop-{}", std::process::id());
    let listener = Listener::bind(&name).await.unwrap();
    let server = long_poll();
    let serving = {
        let server = server.clone();
        tokio::spawn(async move { server.serve(listener).await })
    };
    let client = Client::builder().connect(&name).await.unwrap();
    say(&client).await.unwrap();
    let request = text("");
    let mut poll = Box::pin(
        client
            .call::<_, StringValue>("demo.Echo", "Poll", &request)
            .into_future(),
    );
    poll_once(poll.as_mut());
    serving.abort();
    assert!(poll.await.unwrap_err().is_connection());
    client.closed().await;
    Listener::bind(&name).await.unwrap();
}
