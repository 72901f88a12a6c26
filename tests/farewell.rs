//! A connection that ends in order ends its stream in order, and waits for that no longer than it may.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use support::*;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, DuplexStream, ReadBuf};
use tokio::time::{Instant, sleep, timeout};
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::{ByteStream, Client, ConnectionError, DeadReason};

const FAREWELL: &[u8] = b"farewell";

/// A stream that ends with a word of its own, as TLS does.
struct Polite {
    stream: DuplexStream,
    said: usize,
    /// It never gets so far.
    stuck: bool,
    seen: Seen,
}

/// What was asked of it.
#[derive(Clone, Default)]
struct Seen {
    polls: Arc<AtomicU32>,
    ends: Arc<AtomicU32>,
}

impl Seen {
    fn polls(&self) -> u32 {
        self.polls.load(Ordering::Relaxed)
    }

    fn ends(&self) -> u32 {
        self.ends.load(Ordering::Relaxed)
    }
}

fn polite(stream: DuplexStream, stuck: bool) -> (ByteStream<Polite>, Seen) {
    let seen = Seen::default();
    let stream = Polite {
        stream,
        said: 0,
        stuck,
        seen: seen.clone(),
    };
    (ByteStream::new(stream), seen)
}

impl AsyncRead for Polite {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, out)
    }
}

impl AsyncWrite for Polite {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.seen.polls.fetch_add(1, Ordering::Relaxed);
        assert_eq!(self.seen.ends(), 0, "it has ended");
        while self.said < FAREWELL.len() {
            let word = &FAREWELL[self.said..];
            let said = match Pin::new(&mut self.stream).poll_write(cx, word) {
                Poll::Ready(said) => said?,
                Poll::Pending => return Poll::Pending,
            };
            self.said += said;
        }
        if self.stuck {
            return Poll::Pending;
        }
        let ended = Pin::new(&mut self.stream).poll_shutdown(cx);
        if ended.is_ready() {
            self.seen.ends.fetch_add(1, Ordering::Relaxed);
        }
        ended
    }
}

/// What the other end reads from here on, to the end of the stream.
async fn rest(stream: &mut DuplexStream) -> Vec<u8> {
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    rest
}

#[tokio::test(start_paused = true)]
async fn an_end_in_order_is_said_to_the_stream_once() {
    // A client whose last handle is dropped.
    let (here, mut there) = tokio::io::duplex(4096);
    let (stream, seen) = polite(here, false);
    let client = Client::builder().keepalive(Keepalive::off());
    drop(client.attach(stream).unwrap());
    assert_eq!(rest(&mut there).await, FAREWELL);
    assert_eq!(seen.ends(), 1);

    // Either side, when its peer has closed.
    let (here, mut there) = tokio::io::duplex(4096);
    let (stream, seen) = polite(here, false);
    let client = Client::builder().keepalive(Keepalive::off());
    let client = client.attach(stream).unwrap();
    tokio::io::AsyncWriteExt::shutdown(&mut there)
        .await
        .unwrap();
    assert!(matches!(client.closed().await, ConnectionError::PeerClosed));
    assert_eq!(
        (rest(&mut there).await, seen.ends()),
        (FAREWELL.to_vec(), 1)
    );

    let (here, mut there) = tokio::io::duplex(4096);
    let (stream, seen) = polite(here, false);
    let server = echo().build().unwrap();
    let serving = tokio::spawn(async move { server.serve_connection(stream).await });
    tokio::io::AsyncWriteExt::shutdown(&mut there)
        .await
        .unwrap();
    assert!(matches!(serving.await, Ok(ConnectionError::PeerClosed)));
    assert_eq!(
        (rest(&mut there).await, seen.ends()),
        (FAREWELL.to_vec(), 1)
    );

    // A server that shuts down, behind its last answer.
    let (here, there) = tokio::io::duplex(4096);
    let (stream, seen) = polite(here, false);
    let server = echo().build().unwrap();
    let serving = tokio::spawn({
        let server = server.clone();
        async move { server.serve_connection(stream).await }
    });
    let mut peer = Peer::new(there);
    peer.call(1, "Say", "hello").await;
    sleep(ms(1)).await;
    assert!(server.shutdown(secs(1)).await);
    assert_eq!(seen.ends(), 1, "before the shutdown is over");
    assert!(serving.await.unwrap().is_local_close());
    let all = rest(&mut peer.stream).await;
    let answer = all.strip_suffix(FAREWELL).unwrap();
    let mut answer = Peer::new(io::Cursor::new(answer.to_vec()));
    assert_eq!(answer.expect_response().await.0, 1);
    assert!(answer.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_was_convicted_is_told_nothing() {
    let (here, mut there) = tokio::io::duplex(4096);
    let (stream, seen) = polite(here, false);
    let keepalive = Keepalive::every(secs(1)).timeout(secs(1));
    let keepalive = keepalive.peer_support(ttrpc_keepalive::keepalive::PeerSupport::Assume);
    let client = Client::builder().keepalive(keepalive);
    let client = client.attach(stream).unwrap();
    let end = client.closed().await;
    assert_eq!(end.dead_reason(), Some(DeadReason::Silent));
    assert_eq!(seen.polls(), 0);
    assert!(!rest(&mut there).await.ends_with(FAREWELL));
}

#[tokio::test(start_paused = true)]
async fn a_farewell_that_does_not_end_is_given_up_after_a_second() {
    let (here, mut there) = tokio::io::duplex(4096);
    let (stream, seen) = polite(here, true);
    let client = Client::builder().attach(stream).unwrap();
    let calling = tokio::spawn({
        let client = client.clone();
        async move { (say(&client).await, Instant::now()) }
    });
    sleep(ms(1)).await;
    let start = Instant::now();
    tokio::io::AsyncWriteExt::shutdown(&mut there)
        .await
        .unwrap();
    let end = client.closed().await;
    assert_passed(start, secs(1));
    assert!(matches!(end, ConnectionError::PeerClosed), "{end}");
    let (failed, at) = calling.await.unwrap();
    assert!(
        failed.is_err() && at - start < ms(2),
        "calls do not wait for it"
    );
    assert!(
        rest(&mut there).await.ends_with(FAREWELL),
        "and it is closed"
    );
    assert_eq!((seen.polls(), seen.ends()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn whoever_ends_a_connection_at_once_does_not_wait_for_the_farewell() {
    // It is stuck already when it is cut.
    let (here, mut there) = tokio::io::duplex(4096);
    let (stream, seen) = polite(here, true);
    let client = Client::builder().attach(stream).unwrap();
    sleep(ms(1)).await;
    tokio::io::AsyncWriteExt::shutdown(&mut there)
        .await
        .unwrap();
    sleep(ms(100)).await;
    let start = Instant::now();
    client.abort();
    client.closed().await;
    assert_passed(start, ms(0));
    assert_eq!(seen.ends(), 0);

    // It is cut before it has begun: as much is said as goes at once.
    let (here, mut there) = tokio::io::duplex(4096);
    let (stream, seen) = polite(here, true);
    let client = Client::builder().keepalive(Keepalive::off());
    let client = client.attach(stream).unwrap();
    let start = Instant::now();
    client.abort();
    client.closed().await;
    assert_passed(start, ms(0));
    assert_eq!(rest(&mut there).await, FAREWELL);
    assert_eq!(seen.polls(), 1);

    // A shutdown is over at its limit.
    let (here, _there) = tokio::io::duplex(4096);
    let (stream, _) = polite(here, true);
    let server = echo().build().unwrap();
    let serving = tokio::spawn({
        let server = server.clone();
        async move { server.serve_connection(stream).await }
    });
    sleep(ms(1)).await;
    let start = Instant::now();
    assert!(!server.shutdown(ms(200)).await);
    assert_passed(start, ms(200));
    assert!(serving.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_future_that_serves_and_is_dropped_within_the_farewell_leaves_nothing() {
    let (here, mut there) = tokio::io::duplex(4096);
    let (stream, _) = polite(here, true);
    let server = echo().build().unwrap();
    let serving = async { server.serve_connection(stream).await };
    tokio::io::AsyncWriteExt::shutdown(&mut there)
        .await
        .unwrap();
    assert!(timeout(ms(500), serving).await.is_err());
    assert_eq!(rest(&mut there).await, FAREWELL);
}
