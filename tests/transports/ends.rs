//! Peers that go away, and streams that are no sockets.

use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice, Write};
use std::net::{TcpListener as StdTcpListener, TcpStream as StdTcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use socket2::SockRef;
use tokio::io::AsyncWrite;
use tokio::time::{Instant, sleep, timeout};
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::transport::{Look, Transport};
use ttrpc_keepalive::{Client, ConnectionError, DeadReason, Socket, Verdict};

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

fn tcp_pair() -> (StdTcpStream, StdTcpStream) {
    let listener = StdTcpListener::bind("127.0.0.1:0").unwrap();
    let here = StdTcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (here, listener.accept().unwrap().0)
}

type Meet = fn(&mut Socket) -> io::Result<usize>;

/// The ways to write to a socket: of the driver, of a handshake and of a handle.
const WRITES: [Meet; 4] = [
    |socket| {
        let mut cx = Context::from_waker(Waker::noop());
        match socket.poll_write(&mut cx, &[IoSlice::new(b"x")]) {
            Poll::Ready(result) => result,
            Poll::Pending => Err(ErrorKind::WouldBlock.into()),
        }
    },
    |socket| socket.try_send(b"x").unwrap(),
    |socket| {
        let mut cx = Context::from_waker(Waker::noop());
        match AsyncWrite::poll_write(Pin::new(socket), &mut cx, b"x") {
            Poll::Ready(result) => result,
            Poll::Pending => Err(ErrorKind::WouldBlock.into()),
        }
    },
    |socket| {
        let shortcut = socket.shortcut().unwrap();
        shortcut.try_write(&[IoSlice::new(b"x")])
    },
];

/// Writes until the peer's end is known here.
fn meet_the_end(socket: &mut Socket, write: Meet) -> ErrorKind {
    loop {
        if let Err(error) = write(socket) {
            return error.kind();
        }
    }
}

// N1: a library cannot count on a host that ignores SIGPIPE, as programs in Rust do. A signal that a
// thread blocks is kept for it even if it is ignored, so that it can be seen.
#[tokio::test]
async fn no_way_to_write_to_a_peer_that_has_closed_raises_a_signal() {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGPIPE);
    signals.thread_block().unwrap();
    let raised = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK).unwrap();

    for write in WRITES {
        let (unix, tcp) = (StdStream::pair().unwrap(), tcp_pair());
        drop((unix.1, tcp.1));
        for descriptor in [OwnedFd::from(unix.0), OwnedFd::from(tcp.0)] {
            let witness = descriptor.try_clone().unwrap();
            let mut socket = Socket::from_fd(descriptor).unwrap();
            // The first error of TCP may be another, and raises none in any case.
            while meet_the_end(&mut socket, write) != ErrorKind::BrokenPipe {}
            assert!(raised.read_signal().unwrap().is_none());

            SockRef::from(&witness).send(b"x").unwrap_err();
            assert!(raised.read_signal().unwrap().is_some());
        }
    }
}

// N12: the kernel tells a reset once, to whichever call comes first.
#[tokio::test]
async fn a_reset_that_a_write_or_a_look_meets_is_told_behind_all_that_came_before_it() {
    let look: Meet = |socket| {
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(socket.poll_look(&mut cx), Poll::Ready(Look::Readable));
        Err(ErrorKind::Other.into())
    };
    for meet in WRITES.into_iter().chain([look]) {
        let (here, mut there) = tcp_pair();
        let mut socket = Socket::from_fd(here).unwrap();
        there.write_all(b"last").unwrap();
        SockRef::from(&there).set_linger(Some(ms(0))).unwrap();
        drop(there);

        let mut buffer = BytesMut::with_capacity(64);
        meet_the_end(&mut socket, meet);
        let read = poll_fn(|cx| socket.poll_read(cx, &mut buffer, 64)).await;
        assert_eq!(read.unwrap(), b"last".len());
        meet_the_end(&mut socket, meet);
        let read = poll_fn(|cx| socket.poll_read(cx, &mut buffer, 64)).await;
        assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
}

// N12: a handle writes by itself, before the driver has read.
#[tokio::test]
async fn a_reset_that_a_call_meets_ends_the_connection_as_one() {
    let (here, there) = tcp_pair();
    let client = Client::builder().keepalive(Keepalive::off());
    let client = client.attach(Socket::from_fd(here).unwrap()).unwrap();
    // The driver has had its first turn.
    sleep(ms(10)).await;
    SockRef::from(&there).set_linger(Some(ms(0))).unwrap();
    drop(there);
    assert!(say(&client).await.is_err());
    let end = client.closed().await;
    assert!(matches!(end, ConnectionError::Reset(_)), "{end:?}");
}
