//! What is known of a peer when something ends: a call, or the connection.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use support::*;
use tokio::time::sleep;
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::{Client, Peer as Summary};

// The call's deadline and the look that convicts may be of the same instant, or of any near it.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_late_at_the_conviction_fails_with_the_conviction() {
    for timeout in 1990..2010 {
        let (client, freezer) = echo_pair(Keepalive::every(secs(1)).timeout(secs(1)));
        say(&client).await.unwrap();
        freezer.freeze();
        let error = say_within(&client, ms(timeout)).await.unwrap_err();
        let gone = error.peer() == Summary::Gone;
        assert_eq!(gone, error.is_connection(), "after {timeout} ms: {error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_snapshot_knows_what_came_last() {
    let (client, mut peer) = scripted(Keepalive::on_demand(), 64 << 10);
    let (reply, ()) = tokio::join!(say(&client), peer.first_exchange());
    reply.unwrap();
    let error = say_within(&client, secs(2)).await.unwrap_err();
    assert_eq!(client.snapshot().late_calls_unanswered(), 1);
    // In one turn: the late answer, and the end.
    peer.respond(3).await;
    drop(peer);
    client.closed().await;
    let snapshot = client.snapshot();
    assert_eq!(snapshot.counters().late_responses, 1);
    assert_eq!(snapshot.late_calls_unanswered(), 0);
    assert!(snapshot.silent_for() < ms(5), "{:?}", snapshot.silent_for());
    drop(error);
}

/// Notes what is known of the peer whenever it wakes somebody.
struct Witness {
    client: Client,
    seen: Mutex<Vec<Summary>>,
}

impl Wake for Witness {
    fn wake(self: Arc<Self>) {
        self.seen.lock().unwrap().push(self.client.peer());
    }
}

// Whoever waits may run on another thread before the driver's turn is over.
#[tokio::test(start_paused = true)]
async fn who_hears_of_an_answer_already_finds_the_peer_alive() {
    let (client, mut peer) = scripted(Keepalive::on_demand(), 64 << 10);
    let (reply, ()) = tokio::join!(say(&client), peer.first_exchange());
    reply.unwrap();
    let error = say_within(&client, secs(2)).await.unwrap_err();
    assert_eq!(client.peer(), Summary::Doubtful);

    let witness = Arc::new(Witness {
        client: client.clone(),
        seen: Mutex::default(),
    });
    let waker = Waker::from(Arc::clone(&witness));
    let mut late = pin!(error.late_answer().unwrap());
    let mut cx = Context::from_waker(&waker);
    assert!(late.as_mut().poll(&mut cx).is_pending());
    peer.respond(3).await;
    sleep(ms(1)).await;
    assert_eq!(*witness.seen.lock().unwrap(), [Summary::Alive]);
}
