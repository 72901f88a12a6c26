//! What the tests share: a server to call, a scripted peer, a switch that freezes a peer, and a
//! pause of the process under a paused clock.

#![allow(
    dead_code,
    unused_imports,
    reason = "each test binary uses a part of it"
)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test says what it expects by panicking"
)]

mod bare;
mod freezer;
mod hooked;
mod log;
mod peer;
mod process;
mod streams;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Waker};
use std::time::Duration;

use bytes::Bytes;
use protobuf::well_known_types::wrappers::StringValue;
use tokio::io::DuplexStream;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::{
    Client, ClientBuilder, Code, ConnectionError, Context, Error, Raw, Server, ServerBuilder,
    Service, Status,
};

pub(crate) use bare::BarePeer;
pub(crate) use freezer::{Freezable, Freezer};
pub(crate) use hooked::Hooked;
pub(crate) use log::Log;
pub(crate) use peer::{Peer, call_within, code, junk, requests};
pub(crate) use process::{Process, address, as_child, plays, wait_for_parent};
pub(crate) use streams::{SERVICE, client_of, count, echoed, join, streams};

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) fn text(value: &str) -> StringValue {
    let mut message = StringValue::new();
    message.value = value.to_owned();
    message
}

/// Bytes as a message.
pub(crate) fn raw(bytes: impl AsRef<[u8]>) -> Raw {
    Raw(Bytes::copy_from_slice(bytes.as_ref()))
}

/// `Say` answers at once, `Sleep` after so many milliseconds, `Panic` never, `Bytes` with the
/// bytes it got, `Large` with so many bytes.
pub(crate) fn echo() -> ServerBuilder {
    Server::builder().service(
        Service::new("demo.Echo", ())
            .unary("Say", |(), _, q: StringValue| async move { Ok(q) })
            .unary("Sleep", |(), _, q: StringValue| async move {
                tokio::time::sleep(ms(number(&q)?)).await;
                Ok(q)
            })
            .unary("Panic", |(), _, q: StringValue| async move {
                assert!(q.value.is_empty(), "this handler was told to panic");
                Ok(q)
            })
            .unary("Bytes", |(), _, q: Raw| async move { Ok(q) })
            .unary("Large", |(), _, q: Raw| async move {
                let size: usize = std::str::from_utf8(&q).unwrap().parse().unwrap();
                Ok(Raw(vec![7; size]))
            }),
    )
}

fn number(text: &StringValue) -> Result<u64, Status> {
    let parsed = text.value.parse();
    parsed.map_err(|_| Status::new(Code::INVALID_ARGUMENT, "not a number"))
}

/// Calls `demo.Echo/Say` without a timeout.
pub(crate) async fn say(client: &Client) -> Result<StringValue, Error> {
    client.call("demo.Echo", "Say", &text("hello")).await
}

/// Calls `demo.Echo/Say` with a timeout.
pub(crate) async fn say_within(client: &Client, timeout: Duration) -> Result<StringValue, Error> {
    let request = text("hello");
    let call = client.call("demo.Echo", "Say", &request);
    call.timeout(timeout).await
}

/// Calls `demo.Echo/Say` with a message of so many bytes, without a timeout.
pub(crate) async fn say_large(client: &Client, size: usize) -> Result<StringValue, Error> {
    let message = text(&"x".repeat(size));
    client.call("demo.Echo", "Say", &message).await
}

/// Calls `demo.Echo/Sleep`.
pub(crate) async fn sleep_within(
    client: &Client,
    sleep: Duration,
    timeout: Duration,
) -> Result<StringValue, Error> {
    let request = text(&sleep.as_millis().to_string());
    let call = client.call("demo.Echo", "Sleep", &request);
    call.timeout(timeout).await
}

/// A client of a server in a task of its own, over a pipe of this capacity, and the switch that
/// freezes the server.
pub(crate) fn pair(server: Server, client: ClientBuilder, capacity: usize) -> (Client, Freezer) {
    let (here, there) = tokio::io::duplex(capacity);
    let freezer = Freezer::default();
    let there = ttrpc_keepalive::ByteStream::new(Freezable::new(there, &freezer));
    tokio::spawn(async move { server.serve_connection(there).await });
    (client.attach(here).unwrap(), freezer)
}

/// A client of the echo server.
pub(crate) fn echo_pair(keepalive: Keepalive) -> (Client, Freezer) {
    let client = Client::builder().keepalive(keepalive);
    pair(echo().build().unwrap(), client, 64 << 10)
}

/// A client of a scripted peer, over a pipe of this capacity.
pub(crate) fn scripted(keepalive: Keepalive, capacity: usize) -> (Client, Peer<DuplexStream>) {
    attached(Client::builder().keepalive(keepalive), capacity)
}

/// The same with other settings.
pub(crate) fn attached(client: ClientBuilder, capacity: usize) -> (Client, Peer<DuplexStream>) {
    let (here, there) = tokio::io::duplex(capacity);
    (client.attach(here).unwrap(), Peer::new(there))
}

/// A call is made and answered: nothing else was lost on the connection.
pub(crate) async fn goes_on(client: &Client, peer: &mut Peer<DuplexStream>) {
    let (reply, ()) = tokio::join!(say(client), async {
        let (id, _) = peer.request().await;
        peer.respond(id).await;
    });
    reply.unwrap();
}

/// A scripted peer of this server, over a pipe.
pub(crate) fn served(server: Server) -> Peer<DuplexStream> {
    let (here, there) = tokio::io::duplex(1 << 20);
    tokio::spawn(async move { server.serve_connection(here).await });
    Peer::new(there)
}

/// A pause of this process under a paused clock: time passes and no task runs.
pub(crate) fn pause(duration: Duration) {
    let mut cx = TaskContext::from_waker(Waker::noop());
    // The clock is moved by the first poll; what the rest of the future does is let others run.
    let _ = pin!(tokio::time::advance(duration)).poll(&mut cx);
}

/// Runs on four threads, and not for ever.
pub(crate) fn on_threads(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .unwrap();
    let test = async { tokio::time::timeout(secs(60), test).await };
    runtime.block_on(test).expect("nothing is stuck");
}

/// What a panic may carry: its drop panics, outside of what has caught the first one, and carries another
/// one.
pub(crate) struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            std::panic::panic_any(Self);
        }
    }
}

/// Polls a future once, as a task does that then has something else to do.
pub(crate) fn poll_once<F: Future + ?Sized>(future: std::pin::Pin<&mut F>) {
    let mut cx = TaskContext::from_waker(Waker::noop());
    assert!(future.poll(&mut cx).is_pending(), "it is not over yet");
}

/// So much time has passed since `start`, but for the rounding of tokio's timers.
#[track_caller]
pub(crate) fn assert_passed(start: Instant, expected: Duration) {
    let passed = start.elapsed();
    assert!(
        passed >= expected.saturating_sub(ms(1)) && passed <= expected + ms(3),
        "{passed:?} have passed and not {expected:?}"
    );
}

/// A scripted client of the echo server, and why the server's side of the connection ends.
pub(crate) fn served_until() -> (Peer<DuplexStream>, JoinHandle<ConnectionError>) {
    let (here, there) = tokio::io::duplex(1 << 20);
    let server = echo().build().unwrap();
    let end = tokio::spawn(async move { server.serve_connection(here).await });
    (Peer::new(there), end)
}

/// A client with a call on stream 1 that waits for its answer.
pub(crate) async fn waiting() -> (
    Client,
    Peer<DuplexStream>,
    JoinHandle<Result<String, Error>>,
) {
    let (client, mut peer) = scripted(Keepalive::on_demand(), 1 << 20);
    let call = {
        let client = client.clone();
        tokio::spawn(async move { say(&client).await.map(|reply| reply.value) })
    };
    peer.answer_ping().await;
    assert_eq!(peer.request().await.0, 1);
    (client, peer, call)
}
