//! What is known of a peer when something ends: a call, or the connection.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Wake, Waker};

use bytes::BytesMut;
use support::*;
use tokio::time::{Instant, sleep, timeout};
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::transport::{Look, Transport};
use ttrpc_keepalive::wire::encode_response;
use ttrpc_keepalive::{Client, ConnectionError, Peer as Summary};

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Within {
    Read,
    Write,
    Look,
}

/// Aborts its client in the middle of a turn, as another thread may.
struct Aborting {
    client: Arc<OnceLock<Client>>,
    within: Within,
    done: bool,
}

impl Aborting {
    fn pass(&mut self, place: Within) {
        if let (Some(client), false) = (self.client.get(), self.done || place != self.within) {
            self.done = true;
            client.abort();
        }
    }
}

impl Transport for Aborting {
    fn poll_read(
        &mut self,
        _: &mut Context<'_>,
        _: &mut BytesMut,
        _: usize,
    ) -> Poll<io::Result<usize>> {
        self.pass(Within::Read);
        Poll::Pending
    }

    fn poll_write(
        &mut self,
        _: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.pass(Within::Write);
        Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()))
    }

    fn poll_look(&mut self, _: &mut Context<'_>) -> Poll<Look> {
        self.pass(Within::Look);
        Poll::Pending
    }
}

#[tokio::test(start_paused = true)]
async fn an_abort_within_a_turn_of_the_driver_is_not_lost() {
    let cases = [
        (Within::Read, secs(0)),
        (Within::Write, secs(0)),
        (Within::Look, secs(1)),
    ];
    for (within, after) in cases {
        let client = Arc::new(OnceLock::new());
        let transport = Aborting {
            client: Arc::clone(&client),
            within,
            done: false,
        };
        let builder = Client::builder().keepalive(Keepalive::off());
        let client = client.get_or_init(|| builder.attach(transport).unwrap());
        let start = Instant::now();
        let call = timeout(secs(60), say_within(client, secs(1))).await;
        let error = call.expect("the connection goes on").unwrap_err();
        assert!(error.is_connection(), "within a {within:?}: {error}");
        assert_passed(start, after);
        assert!(client.closed().await.is_local_close());
    }
}

/// A peer that answers, and closes; from then on writes fail. The reactor tells of it later than the
/// kernel.
struct Closed {
    look: Look,
    error: io::ErrorKind,
    failed: bool,
    reads_before: u32,
    rest: Vec<u8>,
}

impl Transport for Closed {
    fn poll_read(
        &mut self,
        _: &mut Context<'_>,
        buffer: &mut BytesMut,
        _: usize,
    ) -> Poll<io::Result<usize>> {
        if !self.failed {
            return Poll::Pending;
        }
        match self.reads_before.checked_sub(1) {
            Some(left) => {
                self.reads_before = left;
                Poll::Pending
            }
            None => {
                let rest = std::mem::take(&mut self.rest);
                buffer.extend_from_slice(&rest);
                Poll::Ready(Ok(rest.len()))
            }
        }
    }

    fn poll_write(
        &mut self,
        _: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
        // The second call.
        self.failed |= bytes > 1000;
        Poll::Ready(if self.failed {
            Err(self.error.into())
        } else {
            Ok(bytes)
        })
    }

    fn poll_look(&mut self, _: &mut Context<'_>) -> Poll<Look> {
        Poll::Ready(self.look)
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_received_is_delivered_before_the_end_when_a_write_fails() {
    // A peer that closes breaks the pipe, too; a reset is told once, and is why it is closed.
    for error in [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset] {
        for look in [Look::Readable, Look::Blind] {
            for reads_before in [0, 1, 10, 90] {
                let end = end_of(look, reads_before, error).await;
                match error {
                    io::ErrorKind::BrokenPipe => {
                        assert!(matches!(end, ConnectionError::PeerClosed), "{end:?}");
                    }
                    _ => assert!(matches!(end, ConnectionError::Reset(_)), "{end:?}"),
                }
            }
        }
    }
}

/// The answer of a call that such a peer has sent is read, and the connection ends.
async fn end_of(look: Look, reads_before: u32, error: io::ErrorKind) -> ConnectionError {
    let transport = Closed {
        look,
        error,
        failed: false,
        reads_before,
        rest: encode_response(1, &text("hello")).unwrap(),
    };
    let client = Client::builder().keepalive(Keepalive::off());
    let client = client.attach(transport).unwrap();
    let mut answered = pin!(say(&client));
    poll_once(answered.as_mut());
    sleep(ms(1)).await;
    let failed = say_large(&client, 1000).await.unwrap_err();
    assert!(failed.is_connection(), "{failed}");
    let answer = answered.await.unwrap();
    assert_eq!(answer.value, "hello", "{look:?} after {reads_before} reads");
    client.closed().await
}
