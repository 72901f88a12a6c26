//! Peers that do not know PING, and those of which it is not known yet.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Waker};

use support::*;
use tokio::io::DuplexStream;
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep, sleep_until};
use ttrpc_keepalive::keepalive::{Keepalive, PeerSupport};
use ttrpc_keepalive::transport::Look;
use ttrpc_keepalive::wire::MessageType;
use ttrpc_keepalive::{
    Client, DeadReason, Peer as Summary, Server, State, Support, Unknown, Verdict,
};

/// Answers calls and ignores PINGs, as an old server does. Yields the number of PINGs it saw.
async fn serve_as_of_old(mut peer: Peer<DuplexStream>) -> u32 {
    let mut pings = 0;
    while let Some(frame) = peer.next().await {
        match frame.header.message_type {
            MessageType::PING => pings += 1,
            MessageType::REQUEST => peer.respond(frame.header.stream_id).await,
            other => panic!("{other:?}"),
        }
    }
    pings
}

// T83
#[tokio::test(start_paused = true)]
async fn an_old_peer_costs_one_ping_and_is_known_at_its_first_response() {
    let (client, peer) = scripted(Keepalive::on_demand(), 64 << 10);
    let server = tokio::spawn(serve_as_of_old(peer));
    for _ in 0..3 {
        say(&client).await.unwrap();
        sleep(ms(1)).await;
        assert_eq!(client.snapshot().support(), Support::No);
    }
    drop(client);
    assert_eq!(server.await.unwrap(), 1);
}

// RFC KA-23. On another thread than the driver's the answer may be there before its turn is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_answered_finds_that_support_is_decided() {
    for _ in 0..200 {
        let (client, peer) = scripted(Keepalive::on_demand(), 64 << 10);
        tokio::spawn(serve_as_of_old(peer));
        answered_while_looked_at(&client);
        assert_eq!(client.snapshot().support(), Support::No);

        let (here, there) = tokio::io::duplex(64 << 10);
        let server = echo().build().unwrap();
        tokio::spawn(async move { server.serve_connection(there).await });
        let client = Client::builder().attach(here).unwrap();
        answered_while_looked_at(&client);
        assert_eq!(client.snapshot().support(), Support::Yes);
    }
}

/// Makes a call and does not wait to be woken, which would take longer than the driver's turn.
fn answered_while_looked_at(client: &Client) {
    // Or tokio, which is not given a turn here, would end it for having taken too much of one.
    let mut call = pin!(unconstrained(say(client)));
    let mut cx = Context::from_waker(Waker::noop());
    while call.as_mut().poll(&mut cx).is_pending() {
        std::thread::yield_now();
    }
}

// Part 2 number 18, T53
#[tokio::test(start_paused = true)]
async fn an_old_peer_is_never_convicted() {
    let (client, mut peer) = scripted(Keepalive::every(secs(1)).timeout(secs(1)), 64 << 10);
    peer.ping().await;
    let slow = {
        let client = client.clone();
        tokio::spawn(async move { say(&client).await })
    };
    let (first, _) = peer.request().await;
    let quick = {
        let client = client.clone();
        tokio::spawn(async move { say(&client).await })
    };
    let (second, _) = peer.request().await;
    peer.respond(second).await;
    quick.await.unwrap().unwrap();
    assert_eq!(client.snapshot().support(), Support::No);
    // A call of 60 s, and then an idle minute.
    peer.silence(secs(60)).await;
    peer.respond(first).await;
    slow.await.unwrap().unwrap();
    peer.silence(secs(60)).await;
    assert!(matches!(client.snapshot().state(), State::Alive));
    assert_eq!(client.peer(), Summary::Alive);
}

#[tokio::test(start_paused = true)]
async fn a_late_call_of_an_old_peer_says_unknown_and_holds_nothing_against_it() {
    let (client, peer) = scripted(Keepalive::on_demand(), 64 << 10);
    tokio::spawn(async move {
        let mut peer = peer;
        peer.ping().await;
        let (id, _) = peer.request().await;
        peer.respond(id).await;
        while peer.next().await.is_some() {}
    });
    say(&client).await.unwrap();
    let error = say_within(&client, secs(2)).await.unwrap_err();
    assert_eq!(error.verdict(), Some(Verdict::Unknown(Unknown::NoSupport)));
    assert_eq!(error.peer(), Summary::Alive);
    assert_eq!(client.peer(), Summary::Alive);
}

// F6: somebody listens and nobody accepts.
#[tokio::test(start_paused = true)]
async fn a_peer_that_never_says_a_word_is_unknown_unless_its_support_is_assumed() {
    let (client, _peer) = scripted(Keepalive::every(secs(1)).timeout(secs(1)), 64 << 10);
    let error = say_within(&client, secs(10)).await.unwrap_err();
    assert_eq!(error.verdict(), Some(Verdict::Unknown(Unknown::NoSupport)));
    assert!(matches!(client.snapshot().state(), State::Alive));

    let assumed = Keepalive::every(secs(1))
        .timeout(secs(1))
        .peer_support(PeerSupport::Assume);
    let (client, _peer) = scripted(assumed, 64 << 10);
    let start = Instant::now();
    let end = client.closed().await;
    assert_eq!(end.dead_reason(), Some(DeadReason::Silent));
    assert_passed(start, secs(1));
}

// T84
#[tokio::test(start_paused = true)]
async fn a_peer_that_boots_is_asked_with_doubling_distance_until_it_answers() {
    let (client, mut peer) = scripted(Keepalive::every(secs(1)).timeout(secs(1)), 64 << 10);
    let start = Instant::now();
    for at in [0, 1, 3, 7, 15, 31] {
        let number = peer.ping().await;
        assert_passed(start, secs(at));
        assert!(number > 0);
        assert_eq!(client.snapshot().support(), Support::Unknown);
    }
    sleep_until(start + secs(32)).await;
    assert!(matches!(client.snapshot().state(), State::Alive));
    peer.send(ttrpc_keepalive::wire::pong(
        u32::MAX,
        Default::default(),
        &6u64.to_be_bytes(),
    ))
    .await;
    sleep(ms(1)).await;
    assert_eq!(client.snapshot().support(), Support::Yes);

    // From now on its silence counts.
    peer.ping().await;
    let end = client.closed().await;
    assert_eq!(end.dead_reason(), Some(DeadReason::Silent));
    assert_passed(start, secs(34));
}

// T55
#[tokio::test(start_paused = true)]
async fn a_server_sends_no_ping_to_a_client_that_has_sent_none() {
    let server = echo()
        .keepalive(Keepalive::every(secs(1)).timeout(secs(1)))
        .build()
        .unwrap();
    let mut peer = served(server);
    peer.silence(secs(60)).await;
    peer.call(1, "Sleep", "60000").await;
    peer.silence(secs(59)).await;
    let frame = peer.frame().await;
    assert_eq!(frame.header.message_type, MessageType::RESPONSE);
    peer.silence(secs(60)).await;

    // Once it has, it is asked too, and its silence ends the connection.
    peer.send(ttrpc_keepalive::wire::ping(1)).await;
    assert_eq!(peer.frame().await.header.message_type, MessageType::PONG);
    let start = Instant::now();
    peer.ping().await;
    assert_passed(start, secs(1));
    assert!(peer.next().await.is_none());
    assert_passed(start, secs(2));
}

// T37
#[tokio::test(start_paused = true)]
async fn an_idle_connection_costs_nothing() {
    for keepalive in [
        Keepalive::on_demand(),
        Keepalive::off(),
        Keepalive::every(secs(1)).while_idle(false),
    ] {
        let (here, there) = tokio::io::duplex(64 << 10);
        let transport = Hooked::new(here).on_look(|_| Look::Empty);
        let reads = transport.reads();
        let client = Client::builder().keepalive(keepalive.clone());
        let client = client.attach(transport).unwrap();
        let mut peer = Peer::new(there);
        peer.silence(secs(60)).await;
        assert_eq!(reads.load(Ordering::Relaxed), 1, "one turn, and then rest");
        let (reply, ()) = tokio::join!(say(&client), async {
            if !keepalive.settings().off {
                peer.answer_ping().await;
            }
            let (id, _) = peer.request().await;
            peer.respond(id).await;
        });
        reply.unwrap();
        // A deadline that was armed for the call may fire once.
        sleep(secs(60)).await;
        let before = reads.load(Ordering::Relaxed);
        peer.silence(secs(24 * 3600)).await;
        assert_eq!(reads.load(Ordering::Relaxed), before, "no wake-up in a day");
        assert!(matches!(client.snapshot().state(), State::Alive));
    }
}

// T38, T39
#[tokio::test(start_paused = true)]
async fn a_call_after_a_long_silence_is_asked_for_at_once() {
    let watch = Keepalive::every(secs(10))
        .timeout(secs(2))
        .while_idle(false);
    let (client, mut peer) = scripted(watch, 64 << 10);
    let (reply, ()) = tokio::join!(say(&client), peer.first_exchange());
    reply.unwrap();
    sleep(secs(3600)).await;
    let start = Instant::now();
    let call = {
        let client = client.clone();
        tokio::spawn(async move { say(&client).await })
    };
    peer.ping().await;
    peer.request().await;
    assert_passed(start, secs(0));
    // The call ends and takes the watch with it: the PING is held against nobody.
    call.abort();
    sleep(secs(3600)).await;
    assert!(matches!(client.snapshot().state(), State::Alive));
    let start = Instant::now();
    let call = {
        let client = client.clone();
        tokio::spawn(async move { say(&client).await })
    };
    peer.ping().await;
    peer.request().await;
    let error = call.await.unwrap().unwrap_err();
    assert!(error.is_connection());
    assert_passed(start, secs(2));
}

// T56
#[tokio::test(start_paused = true)]
async fn a_new_connection_inherits_nothing() {
    let server: Server = echo().build().unwrap();
    let (first, _) = pair(server.clone(), Client::builder(), 64 << 10);
    say(&first).await.unwrap();
    assert_eq!(first.snapshot().support(), Support::Yes);
    let (second, _) = pair(server, Client::builder(), 64 << 10);
    let seen = second.snapshot();
    assert_eq!(seen.support(), Support::Unknown);
    assert_eq!((seen.rtt(), seen.smoothed_rtt()), (None, None));
    assert_eq!(seen.counters(), Default::default());
}
