//! Peers that go away, and streams that are no sockets.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use tokio::time::{Instant, sleep, timeout};
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::{Client, ConnectionError, DeadReason, Verdict};

use super::support::*;

// C21
#[tokio::test(start_paused = true)]
async fn a_broken_pipe_is_met_once_and_ends_the_connection_once() {
    let (here, there) = tokio::io::duplex(4096);
    let writes = Arc::new(AtomicUsize::new(0));
    let stream = Hooked::new(here).on_write({
        let writes = Arc::clone(&writes);
        move || {
            writes.fetch_add(1, Ordering::Relaxed);
            Some(Poll::Ready(Err(ErrorKind::BrokenPipe.into())))
        }
    });
    let client = Client::builder().attach(stream).unwrap();
    let mut liveness = client.liveness();
    for _ in 0..10 {
        let error = say(&client).await.unwrap_err();
        assert!(error.is_connection(), "{error:?}");
    }
    let ConnectionError::BrokenPipe(error) = client.closed().await else {
        panic!("the peer has closed nothing");
    };
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    assert_eq!(writes.load(Ordering::Relaxed), 1);
    let mut ends = 0;
    while let Some(seen) = liveness.next().await {
        ends += usize::from(seen.state().is_final());
    }
    assert_eq!(ends, 1);
    drop(there);
}

// G20
#[tokio::test(start_paused = true)]
async fn a_stream_in_memory_is_timed_and_watched_as_a_socket_is() {
    let keepalive = Keepalive::every(secs(2)).timeout(secs(4));
    let (client, freezer) = echo_pair(keepalive);
    let slow = sleep_within(&client, secs(60), secs(1)).await.unwrap_err();
    assert_eq!(slow.verdict(), Some(Verdict::Slow));
    freezer.freeze();
    let start = Instant::now();
    let late = say_within(&client, secs(1)).await.unwrap_err();
    assert_eq!(late.verdict(), Some(Verdict::Unresponsive));
    assert_passed(start, secs(1));
    let end = client.closed().await;
    assert_eq!(end.dead_reason(), Some(DeadReason::Silent));
    assert!(start.elapsed() <= secs(6), "{:?}", start.elapsed());
}

// A14: the peer is gone, and has read nothing of what it was sent.
#[tokio::test(start_paused = true)]
async fn a_peer_that_crashes_within_a_call_ends_it_and_every_holder_learns_it_once() {
    for unread in [100, 3 << 20] {
        let (stream, mut peer) = BarePeer::pair();
        let client = Client::builder().attach(stream).unwrap();
        let holders: Vec<_> = (0..3)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move {
                    let mut liveness = client.liveness();
                    let mut ends = 0;
                    while let Some(seen) = liveness.next().await {
                        ends += usize::from(seen.state().is_final());
                    }
                    (ends, client.closed().await.to_string())
                })
            })
            .collect();
        peer.answer();
        let call = {
            let client = client.clone();
            tokio::spawn(async move { say_large(&client, unread).await })
        };
        let short = {
            let client = client.clone();
            tokio::spawn(async move { say_within(&client, secs(1)).await })
        };
        sleep(ms(10)).await;
        let start = Instant::now();
        drop(peer);
        let error = timeout(secs(1), call).await.unwrap().unwrap().unwrap_err();
        assert!(error.is_connection(), "{error:?}");
        let error = short.await.unwrap().unwrap_err();
        assert!(error.is_connection(), "{error:?}");
        assert_passed(start, ms(0));
        let mut told = Vec::new();
        for holder in holders {
            let (ends, end) = holder.await.unwrap();
            assert_eq!(ends, 1);
            told.push(end);
        }
        told.dedup();
        assert_eq!(told.len(), 1, "the same end for all: {told:?}");
    }
}
