//! Limits that callers keep by themselves, where the driver of their connection does not run.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::future::Future;
use std::os::unix::net::UnixStream;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use support::*;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::{Client, Error, IntoTransport, Raw, RequestProgress, Verdict};

const LIMIT: std::time::Duration = ms(100);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A client of a silent peer, whose driver belongs to a runtime that is not driven any more. Before
/// that it has run for a while, or not at all.
fn left_alone(has_run: bool) -> (Client, Runtime, UnixStream) {
    let runtime = runtime();
    let (here, there) = UnixStream::pair().unwrap();
    here.set_nonblocking(true).unwrap();
    let client = runtime.block_on(async {
        let here = tokio::net::UnixStream::from_std(here).unwrap();
        let client = Client::builder().call_limit(3).outbox_limit(1);
        let client = client.attach(here).unwrap();
        if has_run {
            sleep(ms(20)).await;
        }
        client
    });
    (client, runtime, there)
}

type Limited = Pin<Box<dyn Future<Output = Error>>>;

async fn unary(client: Client) -> Error {
    say_within(&client, LIMIT).await.unwrap_err()
}

async fn waits_for_room(client: Client) -> Error {
    let mut others: Vec<_> = (0..3).map(|_| Box::pin(say(&client))).collect();
    for other in &mut others {
        poll_once(other.as_mut());
    }
    say_within(&client, LIMIT).await.unwrap_err()
}

async fn probe(client: Client) -> Error {
    client.probe(LIMIT).await.unwrap_err()
}

async fn receives(client: Client) -> Error {
    let call = client.server_stream::<_, Raw>(SERVICE, "Down", &Raw(""));
    let mut receiver = call.timeout(LIMIT).await.unwrap();
    receiver.next().await.unwrap().unwrap_err()
}

async fn waits_for_a_reply(client: Client) -> Error {
    let call = client.client_stream::<Raw, Raw>(SERVICE, "Up");
    let (_sender, reply) = call.timeout(LIMIT).await.unwrap();
    reply.await.unwrap_err()
}

async fn sends(client: Client) -> Error {
    let call = client.client_stream::<Raw, Raw>(SERVICE, "Up");
    let (sender, reply) = call.timeout(LIMIT).await.unwrap();
    // The first one may find room.
    while sender.send(&raw("message")).await.is_ok() {}
    reply.await.unwrap_err()
}

fn limited(client: &Client) -> [(&'static str, Limited); 6] {
    let client = || client.clone();
    [
        ("a call", Box::pin(unary(client()))),
        ("a call without room", Box::pin(waits_for_room(client()))),
        ("a probe", Box::pin(probe(client()))),
        ("a receiver", Box::pin(receives(client()))),
        ("a reply", Box::pin(waits_for_a_reply(client()))),
        ("a sender", Box::pin(sends(client()))),
    ]
}

#[test]
fn what_has_a_limit_ends_by_itself_where_no_driver_runs() {
    for has_run in [false, true] {
        for number in 0..6 {
            let (client, _runtime, _peer) = left_alone(has_run);
            let (name, ends) = limited(&client).into_iter().nth(number).unwrap();
            let start = Instant::now();
            let ended = runtime().block_on(async { timeout(secs(5), ends).await });
            let error = ended.unwrap_or_else(|_| panic!("{name} waits for its driver"));
            assert!(start.elapsed() >= LIMIT, "{name}: {:?}", start.elapsed());
            let verdict = error.verdict();
            assert_eq!(verdict, Some(Verdict::LocalStall), "{name}: {error}");
        }
    }
}

/// Polls it to its end on this thread, without a runtime.
fn by_hand<T>(work: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let (mut work, start) = (pin!(work), Instant::now());
    loop {
        if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
            return done;
        }
        std::thread::park_timeout(secs(1));
        assert!(start.elapsed() < secs(5), "it waits for its driver");
    }
}

#[test]
fn and_where_its_caller_has_no_runtime_either() {
    for number in 0..6 {
        let (client, _runtime, _peer) = left_alone(true);
        let (name, ends) = limited(&client).into_iter().nth(number).unwrap();
        let start = Instant::now();
        let error = by_hand(ends);
        assert!(start.elapsed() >= LIMIT, "{name}: {:?}", start.elapsed());
        assert_eq!(
            error.verdict(),
            Some(Verdict::LocalStall),
            "{name}: {error}"
        );
    }
}

/// A transport that blocks its thread, in reading or in writing, once `blocks` says so.
fn blocking(
    here: UnixStream,
    in_writing: bool,
    blocks: &Arc<AtomicBool>,
    released: mpsc::Receiver<()>,
) -> impl IntoTransport<Transport: Send> + use<> {
    here.set_nonblocking(true).unwrap();
    let here = tokio::net::UnixStream::from_std(here).unwrap();
    let blocks = Arc::clone(blocks);
    let released = Mutex::new(released);
    let block = move || {
        if blocks.load(Ordering::Relaxed) {
            let _ = released.lock().unwrap().recv_timeout(secs(10));
        }
        None
    };
    let transport = Hooked::new(here);
    let transport = if in_writing {
        transport.on_write(block)
    } else {
        transport.on_read(block)
    };
    transport.without_shortcut()
}

#[test]
fn a_call_ends_by_itself_while_something_blocks_the_thread_of_its_driver() {
    for (in_writing, streams) in [(false, false), (false, true), (true, false), (true, true)] {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let blocks = Arc::new(AtomicBool::new(false));
        let (release, released) = mpsc::channel::<()>();
        let (here, _there) = UnixStream::pair().unwrap();
        let ended = runtime.block_on(async {
            let transport = blocking(here, in_writing, &blocks, released);
            let client = Client::builder().keepalive(Keepalive::off());
            let client = client.attach(transport).unwrap();
            sleep(ms(20)).await;
            blocks.store(true, Ordering::Relaxed);
            let ends = if streams {
                timeout(secs(5), waits_for_a_reply(client)).await
            } else {
                timeout(secs(5), unary(client)).await
            };
            drop(release);
            ends
        });
        let error = ended.unwrap_or_else(|_| panic!("it waits, {in_writing}, {streams}"));
        assert_eq!(error.verdict(), Some(Verdict::LocalStall), "{error}");
        // Nobody knows how much of it is written.
        if in_writing {
            assert_eq!(error.request(), RequestProgress::Sent, "{error}");
        }
    }
}

#[test]
fn a_shutdown_ends_in_time_where_its_connections_are_not_driven() {
    let (driven, here) = (runtime(), runtime());
    let (server, mut peer) = driven.block_on(async {
        let server = echo().build().unwrap();
        let (ours, theirs) = tokio::io::duplex(4096);
        let serving = server.clone();
        tokio::spawn(async move { serving.serve_connection(ours).await });
        let mut peer = Peer::new(theirs);
        peer.call(1, "Sleep", "60000").await;
        sleep(ms(20)).await;
        (server, peer)
    });
    let start = Instant::now();
    let drained = here.block_on(async { timeout(secs(5), server.shutdown(LIMIT)).await });
    assert!(!drained.expect("it waits for its connections"));
    assert!(start.elapsed() >= LIMIT);
    let ended = driven.block_on(async {
        let rest = async { while peer.next().await.is_some() {} };
        timeout(secs(5), rest).await
    });
    ended.expect("it is closed when it is driven again");
}
