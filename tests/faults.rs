//! Errors of the operating system that end nothing, and say nothing of the peer.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::BytesMut;
use nix::errno::Errno;
use support::*;
use tokio::io::DuplexStream;
use tokio::time::{Instant, sleep};
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::transport::Transport;
use ttrpc_keepalive::{ByteStream, Client, DeadReason, Verdict};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Read,
    Write,
    Flush,
    Send,
}

/// So many of these calls fail with this error.
struct Fault {
    at: At,
    error: Errno,
    times: u32,
    met: u32,
}

/// A stream that fails on demand.
struct Faulty {
    stream: ByteStream<DuplexStream>,
    fault: Arc<Mutex<Fault>>,
    /// Whether a PING is held back until the flush.
    unflushed: BytesMut,
}

fn faulty(at: At, error: Errno, times: u32) -> (Faulty, DuplexStream, Arc<Mutex<Fault>>) {
    let (here, there) = tokio::io::duplex(64);
    let fault = Fault {
        at,
        error,
        times,
        met: 0,
    };
    let fault = Arc::new(Mutex::new(fault));
    let stream = Faulty {
        stream: ByteStream::new(here),
        fault: Arc::clone(&fault),
        unflushed: BytesMut::new(),
    };
    (stream, there, fault)
}

impl Faulty {
    fn meet(&self, at: At) -> io::Result<()> {
        let mut fault = self.fault.lock().unwrap();
        if fault.at == at && fault.met < fault.times {
            fault.met += 1;
            assert!(fault.met < 20_000, "it is asked without a pause");
            return Err(fault.error.into());
        }
        Ok(())
    }
}

impl Transport for Faulty {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        self.meet(At::Read)?;
        self.stream.poll_read(cx, buffer, limit)
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.meet(At::Write)?;
        if self.fault.lock().unwrap().at != At::Flush {
            return self.stream.poll_write(cx, slices);
        }
        self.unflushed.extend_from_slice(&slices[0]);
        Poll::Ready(Ok(slices[0].len()))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.meet(At::Flush)?;
        while !self.unflushed.is_empty() {
            match self.stream.poll_write(cx, &[IoSlice::new(&self.unflushed)]) {
                Poll::Ready(written) => drop(self.unflushed.split_to(written?)),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(()))
    }

    fn try_send(&mut self, _: &[u8]) -> Option<io::Result<usize>> {
        Some(
            self.meet(At::Send)
                .and_then(|()| Err(io::ErrorKind::WouldBlock.into())),
        )
    }
}

const PASSING: [Errno; 4] = [Errno::EINTR, Errno::EAGAIN, Errno::ENOMEM, Errno::ENOBUFS];

#[tokio::test(start_paused = true)]
async fn a_call_that_failed_for_a_reason_which_passes_is_made_again() {
    for at in [At::Read, At::Write, At::Flush] {
        for error in PASSING {
            let (stream, there, fault) = faulty(at, error, 20);
            let client = Client::builder().attach(stream).unwrap();
            let mut peer = Peer::new(there);
            tokio::spawn(async move { peer.serve().await });
            let start = Instant::now();
            let said = say_within(&client, secs(5)).await;
            assert!(said.is_ok(), "{at:?} {error}: {said:?}");
            assert_eq!(fault.lock().unwrap().met, 20);
            assert!(start.elapsed() < secs(1), "{:?}", start.elapsed());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn while_this_side_lacks_memory_nothing_is_held_against_the_peer() {
    for at in [At::Read, At::Write, At::Flush] {
        let (stream, there, fault) = faulty(at, Errno::ENOMEM, 0);
        let keepalive = Keepalive::every(secs(1)).timeout(secs(1));
        let client = Client::builder().keepalive(keepalive);
        let client = client.attach(stream).unwrap();
        let mut peer = Peer::new(there);
        tokio::spawn(async move { peer.serve().await });
        assert!(say(&client).await.is_ok());

        fault.lock().unwrap().times = u32::MAX;
        let error = say_within(&client, secs(2)).await.unwrap_err();
        let verdict = error.verdict().unwrap();
        let ours = matches!(verdict, Verdict::Unknown(_) | Verdict::LocalStall);
        assert!(ours, "{at:?}: {verdict}");
        sleep(secs(8)).await;
        assert!(!client.snapshot().state().is_final(), "{at:?}");
        let convicted = client.snapshot().counters().keepalive;
        assert_eq!(
            convicted.convictions_silent + convicted.convictions_not_reading,
            0
        );

        fault.lock().unwrap().times = 0;
        assert!(say_within(&client, secs(1)).await.is_ok(), "{at:?}");
    }
}

// The twin: the peer takes nothing, and what else is tried fails.
#[tokio::test(start_paused = true)]
async fn an_error_of_a_bare_send_is_no_sign_of_life() {
    for error in PASSING {
        let (stream, _there, _) = faulty(At::Send, error, u32::MAX);
        let keepalive = Keepalive::every(secs(1)).timeout(secs(1));
        let client = Client::builder().keepalive(keepalive);
        let client = client.attach(stream).unwrap();
        sleep(ms(1)).await;
        let start = Instant::now();
        let error = say_large(&client, 1 << 20).await.unwrap_err();
        assert!(error.is_connection(), "{error:?}");
        let end = client.closed().await;
        assert_eq!(end.dead_reason(), Some(DeadReason::NotReading), "{end}");
        assert!(start.elapsed() <= ms(2100), "{:?}", start.elapsed());
    }
}
