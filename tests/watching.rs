//! A watcher is told what it may decide by, and not of what comes and goes.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::sync::{Arc, Mutex};

use support::*;
use tokio::io::{AsyncReadExt, DuplexStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use ttrpc_keepalive::keepalive::{Keepalive, Machine, Peer as Summary, Role};
use ttrpc_keepalive::wire::{Flags, MessageType, PING_STREAM_ID, pong};
use ttrpc_keepalive::{Client, Publisher, Snapshot, State, Support};

type Told = Arc<Mutex<Vec<(Instant, Snapshot)>>>;

/// What a watcher of this client is told from now on, and when.
fn watched(client: &Client) -> (Told, JoinHandle<()>) {
    let told = Told::default();
    let noted = Arc::clone(&told);
    let mut liveness = client.liveness();
    let watcher = tokio::spawn(async move {
        while let Some(seen) = liveness.next().await {
            noted.lock().unwrap().push((Instant::now(), seen));
        }
    });
    (told, watcher)
}

async fn known(keepalive: Keepalive, capacity: usize) -> (Client, Peer<DuplexStream>) {
    let (client, mut peer) = scripted(keepalive, capacity);
    let (reply, ()) = tokio::join!(say(&client), async {
        if peer_asks(&client) {
            peer.first_exchange().await;
        } else {
            let (id, _) = peer.request().await;
            peer.respond(id).await;
        }
    });
    reply.unwrap();
    (client, peer)
}

fn peer_asks(client: &Client) -> bool {
    !client.settings().keepalive.settings().off
}

#[tokio::test(start_paused = true)]
async fn writes_that_are_blocked_now_and_then_are_told_to_nobody() {
    for keepalive in [Keepalive::off(), Keepalive::on_demand()] {
        let (client, mut peer) = known(keepalive, 4096).await;
        sleep(ms(1)).await;
        let (told, _watcher) = watched(&client);
        let mut bulk = Box::pin(say_large(&client, 3 << 20));
        let mut buffer = vec![0; 4096];
        let mut blocked = 0;
        tokio::select! {
            reply = &mut bulk => panic!("{reply:?}"),
            () = async {
                for _ in 0..500 {
                    sleep(ms(5)).await;
                    let seen = client.snapshot().write_blocked_for();
                    blocked += u32::from(seen.is_some());
                    peer.stream.read_exact(&mut buffer).await.unwrap();
                }
            } => {}
        }
        assert!(blocked > 100, "{blocked}");
        assert_eq!(told.lock().unwrap().len(), 1, "the present one");
    }
}

/// Answers a PING after each of these pauses, in turns with handlers stalled and not.
async fn flips(client: &Client, peer: &mut Peer<DuplexStream>, pauses: &[u64]) {
    for (number, pause) in pauses.iter().enumerate() {
        let flags = if number % 2 == 0 {
            Flags::HANDLERS_STALLED
        } else {
            Flags::NONE
        };
        let (probed, ()) = tokio::join!(client.probe(secs(1)), async {
            let ping = peer.frame().await;
            assert_eq!(ping.header.message_type, MessageType::PING);
            peer.send(pong(PING_STREAM_ID, flags, &ping.payload)).await;
        });
        probed.unwrap();
        sleep(ms(*pause)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_changes_back_at_once_is_told_once() {
    let (client, mut peer) = known(Keepalive::on_demand(), 64 << 10).await;
    let (told, _watcher) = watched(&client);
    sleep(ms(200)).await;
    let begin = Instant::now();
    // Ten changes in 100 ms, and nothing changes afterwards.
    flips(&client, &mut peer, &[10; 10]).await;
    sleep(secs(1)).await;
    let stalled: Vec<_> = told
        .lock()
        .unwrap()
        .drain(..)
        .map(|(at, seen)| (at - begin, seen.handlers_stalled()))
        .collect();
    let said: Vec<_> = stalled.iter().map(|(_, stalled)| *stalled).collect();
    assert_eq!(said, [false, true, false], "{stalled:?}");
    // The first change at once, and how it came out when it had lasted.
    assert!(stalled[1].0 < ms(2) && stalled[2].0 > ms(98), "{stalled:?}");

    // As many that each last are told each.
    flips(&client, &mut peer, &[150; 10]).await;
    assert_eq!(told.lock().unwrap().drain(..).count(), 10);
    // One that has changed back when its time comes was none.
    flips(&client, &mut peer, &[150, 150, 10, 20, 500]).await;
    let said: Vec<_> = told
        .lock()
        .unwrap()
        .drain(..)
        .map(|(_, seen)| seen.handlers_stalled())
        .collect();
    assert_eq!(said, [true, false, true]);
}

#[tokio::test(start_paused = true)]
async fn a_suspicion_and_an_end_are_told_at_once() {
    let keepalive = Keepalive::every(ms(100)).timeout(ms(100));
    let (client, mut peer) = known(keepalive, 64 << 10).await;
    let (told, watcher) = watched(&client);
    sleep(ms(1)).await;
    let frozen = Instant::now();
    while client.peer() == Summary::Alive {
        sleep(ms(1)).await;
    }
    let suspected = Instant::now();
    assert!(suspected - frozen < ms(200));
    // It comes back for a moment: that is held back, and the end is not.
    let ping = peer.frame().await;
    peer.pong(&ping).await;
    sleep(ms(10)).await;
    let ended = Instant::now();
    drop(peer);
    watcher.await.unwrap();
    assert!(ended.elapsed() < ms(2));
    let told = told.lock().unwrap();
    let states: Vec<_> = told
        .iter()
        .map(|(_, seen)| seen.state().to_string())
        .collect();
    assert_eq!(states, ["alive", "suspect", "closed (the peer closed it)"]);
    assert!(told[1].0 - suspected < ms(3));
    assert!(matches!(told[2].1.state(), State::Closed(_)));
}

#[tokio::test]
async fn a_watcher_ends_with_who_tells_it() {
    let mut machine = Machine::new(&Keepalive::on_demand(), Role::Client, 0);
    let publisher = Publisher::new(&machine);
    let mut liveness = publisher.liveness();
    assert_eq!(liveness.next().await.unwrap().support(), Support::Unknown);
    machine.handle_bytes(publisher.now());
    machine.handle_pong(publisher.now(), None, Flags::NONE);
    publisher.publish(
        publisher.now(),
        &machine,
        &ttrpc_keepalive::Traffic::default(),
        None,
    );
    drop(publisher);
    assert_eq!(liveness.next().await.unwrap().support(), Support::Yes);
    assert!(liveness.next().await.is_none());
}

#[test]
fn a_watcher_needs_no_runtime() {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use futures_core::Stream;

    let mut machine = Machine::new(&Keepalive::on_demand(), Role::Client, 0);
    let publisher = Publisher::new(&machine);
    let mut liveness = publisher.liveness();
    let mut cx = Context::from_waker(Waker::noop());
    let mut poll = || Pin::new(&mut liveness).poll_next(&mut cx);
    assert!(matches!(poll(), Poll::Ready(Some(_))));
    for flags in [
        Flags::HANDLERS_STALLED,
        Flags::NONE,
        Flags::HANDLERS_STALLED,
    ] {
        machine.handle_bytes(publisher.now());
        machine.handle_pong(publisher.now(), None, flags);
        publisher.publish(
            publisher.now(),
            &machine,
            &ttrpc_keepalive::Traffic::default(),
            None,
        );
        assert!(matches!(poll(), Poll::Ready(Some(_))));
        assert!(poll().is_pending());
    }
}
