//! Limits that callers keep by themselves, where the driver of their connection does not run.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::future::{Future, IntoFuture};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Instant;

use support::*;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::{Client, Error, Verdict};

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
    let call = client.server_stream_bytes(SERVICE, "Down", b"");
    let mut receiver = call.timeout(LIMIT).await.unwrap();
    receiver.next().await.unwrap().unwrap_err()
}

async fn waits_for_a_reply(client: Client) -> Error {
    let call = client.client_stream_bytes(SERVICE, "Up");
    let (_sender, reply) = call.timeout(LIMIT).await.unwrap();
    reply.await.unwrap_err()
}

async fn sends(client: Client) -> Error {
    let call = client.client_stream_bytes(SERVICE, "Up");
    let (mut sender, reply) = call.timeout(LIMIT).await.unwrap();
    // The first one may find room.
    while sender.send(b"message").await.is_ok() {}
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

#[test]
fn a_call_ends_by_itself_while_something_blocks_the_thread_of_its_driver() {
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let blocks = Arc::new(AtomicBool::new(false));
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let (here, _there) = UnixStream::pair().unwrap();
    here.set_nonblocking(true).unwrap();
    let ended = runtime.block_on(async {
        let here = tokio::net::UnixStream::from_std(here).unwrap();
        let blocked = Arc::clone(&blocks);
        let transport = Hooked::new(here).on_read(move || {
            if blocked.load(Ordering::Relaxed) {
                let _ = released.lock().unwrap().recv_timeout(secs(10));
            }
            None
        });
        let client = Client::builder().keepalive(Keepalive::off());
        let client = client.attach(transport.without_shortcut()).unwrap();
        sleep(ms(20)).await;
        blocks.store(true, Ordering::Relaxed);
        timeout(secs(5), say_within(&client, LIMIT).into_future()).await
    });
    drop(release);
    let error = ended.expect("it waits for its driver").unwrap_err();
    assert_eq!(error.verdict(), Some(Verdict::LocalStall), "{error}");
}
