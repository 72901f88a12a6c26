//! Several connections on one stream: one process at the other end, of which all know the same.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;
use support::*;
use tokio::io::DuplexStream;
use tokio::time::{Instant, sleep, sleep_until};
use ttrpc_keepalive::keepalive::{Keepalive, PeerSupport};
use ttrpc_keepalive::transport::{Look, Transport};
use ttrpc_keepalive::wire::Flags;
use ttrpc_keepalive::{ByteStream, Client, ConnectionError, DeadReason, State, Verdict};

/// What the sides of a multiplexer share.
#[derive(Default)]
struct Trunk {
    heard: Option<Instant>,
    end: Option<ConnectionError>,
    readers: Vec<Waker>,
}

/// One connection on it. Its bytes have a pipe of their own here, so that a test has a peer for each.
struct Branch {
    stream: ByteStream<DuplexStream>,
    trunk: Arc<Mutex<Trunk>>,
}

impl Transport for Branch {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        let mut trunk = self.trunk.lock().unwrap();
        if let Some(end) = &trunk.end {
            return Poll::Ready(Err(end.clone().into()));
        }
        trunk.readers.push(cx.waker().clone());
        let read = self.stream.poll_read(cx, buffer, limit);
        if read.is_ready() {
            trunk.heard = Some(Instant::now());
        }
        read
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream.poll_write(cx, slices)
    }

    fn poll_look(&mut self, _: &mut Context<'_>) -> Poll<Look> {
        Poll::Ready(Look::Empty)
    }

    fn last_heard(&self) -> Option<std::time::Instant> {
        Some(self.trunk.lock().unwrap().heard?.into_std())
    }

    fn handle_end(&mut self, end: &ConnectionError) {
        let mut trunk = self.trunk.lock().unwrap();
        trunk.end.get_or_insert_with(|| end.clone());
        trunk.readers.drain(..).for_each(Waker::wake);
    }
}

/// A client on such a stream, after the first exchange, and its peer.
async fn branch(trunk: &Arc<Mutex<Trunk>>, keepalive: Keepalive) -> (Client, Peer<DuplexStream>) {
    let (here, there) = tokio::io::duplex(64 << 10);
    let transport = Branch {
        stream: ByteStream::new(here),
        trunk: Arc::clone(trunk),
    };
    let client = Client::builder().keepalive(keepalive);
    let client = client.attach(transport).unwrap();
    let mut peer = Peer::new(there);
    peer.answer_ping().await;
    (client, peer)
}

/// It asks at the beginning, and then not for the length of a test.
fn rarely() -> Keepalive {
    Keepalive::every(secs(60))
}

fn watch() -> Keepalive {
    Keepalive::every(secs(1)).timeout(secs(1))
}

// A peer that sends much on one connection cannot put the PONG of another in between.
#[tokio::test(start_paused = true)]
async fn bytes_for_one_connection_are_life_for_all_on_the_stream() {
    let trunk = Arc::default();
    let (client, mut peer) = branch(&trunk, watch()).await;
    let (other, mut busy) = branch(&trunk, rarely()).await;
    let start = Instant::now();
    let mut sends = tokio::spawn(async move {
        while start.elapsed() < secs(5) {
            busy.send(junk(9, 7, Flags::NONE, &[0; 100])).await;
            sleep(ms(50)).await;
        }
        busy
    });
    peer.silence(ms(3990)).await;
    let snapshot = client.snapshot();
    assert!(matches!(snapshot.state(), State::Alive), "{snapshot:?}");
    assert_eq!(snapshot.counters().keepalive.pings_sent, 1, "none was due");
    let late = say_within(&client, ms(300)).await.unwrap_err();
    assert_eq!(late.verdict(), Some(Verdict::Slow), "its process lives");

    // The twin: then it falls silent on all of them.
    let _busy = (&mut sends).await.unwrap();
    let silent = Instant::now();
    let end = client.closed().await;
    assert_eq!(end.dead_reason(), Some(DeadReason::Silent));
    assert!(silent.elapsed() <= secs(2), "{:?}", silent.elapsed());
    assert!(silent.elapsed() >= ms(1900), "{:?}", silent.elapsed());
    drop((other, peer));
}

// A byte that came before the PING left says nothing of what the peer does since.
#[tokio::test(start_paused = true)]
async fn what_was_heard_before_the_ping_is_no_answer_to_it() {
    let trunk: Arc<Mutex<Trunk>> = Arc::default();
    let (client, mut peer) = branch(&trunk, watch()).await;
    let start = Instant::now();
    peer.ping().await;
    assert_passed(start, secs(1));
    sleep_until(start + ms(1500)).await;
    trunk.lock().unwrap().heard = Some(start + ms(990));
    let end = client.closed().await;
    assert_eq!(end.dead_reason(), Some(DeadReason::Silent));
    assert_passed(start, secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_conviction_on_one_connection_ends_the_others_with_the_same_reason_and_evidence() {
    let trunk = Arc::default();
    let assume = watch().peer_support(PeerSupport::Assume);
    let (client, _silent) = branch(&trunk, assume).await;
    let (other, _peer) = branch(&trunk, rarely()).await;
    let calling = tokio::spawn({
        let other = other.clone();
        async move { say(&other).await }
    });
    let (first, second) = tokio::join!(client.closed(), other.closed());
    let ConnectionError::Dead { reason, evidence } = first else {
        panic!("{first:?}");
    };
    let ConnectionError::Dead {
        reason: also,
        evidence: same,
    } = second
    else {
        panic!("{second:?}");
    };
    assert_eq!((reason, evidence), (also, same));
    assert!(matches!(
        other.snapshot().state(),
        State::Dead(DeadReason::Silent)
    ));
    let failed = calling.await.unwrap().unwrap_err();
    assert!(failed.is_connection(), "{failed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_local_close_of_a_shared_stream_is_one_on_all_of_its_connections() {
    let trunk = Arc::default();
    let (client, _peer) = branch(&trunk, rarely()).await;
    let (other, _peer) = branch(&trunk, rarely()).await;
    client.abort();
    assert!(client.closed().await.is_local_close());
    let end = other.closed().await;
    assert!(end.is_local_close(), "{end}");
}

/// A stream that takes all it is given, and passes it on when it can.
struct Holding {
    stream: ByteStream<DuplexStream>,
    held: Vec<u8>,
    stuck: Arc<AtomicBool>,
}

impl Transport for Holding {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        self.stream.poll_read(cx, buffer, limit)
    }

    fn poll_write(
        &mut self,
        _: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let before = self.held.len();
        slices
            .iter()
            .for_each(|slice| self.held.extend_from_slice(slice));
        Poll::Ready(Ok(self.held.len() - before))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.stuck.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        while !self.held.is_empty() {
            match self.stream.poll_write(cx, &[IoSlice::new(&self.held)]) {
                Poll::Ready(written) => drop(self.held.drain(..written?)),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(()))
    }
}

// Its trunk takes no byte: neither is this side to blame for that, nor does the peer not answer.
#[tokio::test(start_paused = true)]
async fn what_a_stream_holds_back_has_not_left_and_says_that_the_peer_does_not_read() {
    let (here, there) = tokio::io::duplex(64 << 10);
    let stuck = Arc::new(AtomicBool::new(false));
    let transport = Holding {
        stream: ByteStream::new(here),
        held: Vec::new(),
        stuck: Arc::clone(&stuck),
    };
    let client = Client::builder().attach(transport).unwrap();
    let mut peer = Peer::new(there);
    let (first, ()) = tokio::join!(say(&client), peer.first_exchange());
    first.unwrap();

    stuck.store(true, Ordering::Relaxed);
    let late = say_within(&client, secs(1)).await.unwrap_err();
    assert_eq!(late.verdict(), Some(Verdict::NotReading), "{late}");
    assert!(late.evidence().unwrap().write_blocked_for.unwrap() >= ms(900));
}
