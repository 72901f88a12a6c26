//! What a server holds on to and for how long: requests, answers, connections, itself.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use protobuf::well_known_types::wrappers::StringValue;
use support::*;
use tokio::io::{AsyncReadExt, BufWriter, DuplexStream};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use ttrpc_keepalive::{
    ByteStream, Client, Code, ConnectionError, Listener, Raw, Server, Service, Status,
};

/// One handler at a time, which counts itself and waits until it is let go.
fn gated() -> (Server, Arc<AtomicU32>, Arc<Notify>) {
    let begun = Arc::new(AtomicU32::new(0));
    let gate = Arc::new(Notify::new());
    let server = {
        let (begun, gate) = (Arc::clone(&begun), Arc::clone(&gate));
        Server::builder()
            .handler_limit(1)
            .service(
                Service::new("demo.Echo", ()).unary("Say", move |(), _, q: StringValue| {
                    let (begun, gate) = (Arc::clone(&begun), Arc::clone(&gate));
                    async move {
                        begun.fetch_add(1, Ordering::Relaxed);
                        gate.notified().await;
                        Ok(q)
                    }
                }),
            )
            .build()
            .unwrap()
    };
    (server, begun, gate)
}

/// A peer whose first request runs and whose second one waits for it.
async fn one_runs_and_one_waits(there: DuplexStream) -> Peer<DuplexStream> {
    let mut peer = Peer::new(there);
    peer.call(1, "Say", "runs").await;
    peer.call(3, "Say", "waits").await;
    peer
}

// The answer of the first handler is on the desk when the connection ends: it must not make room
// for a request whose answer nobody can receive.
#[tokio::test(start_paused = true)]
async fn a_request_that_waits_does_not_begin_when_its_connection_has_ended() {
    let (server, begun, gate) = gated();
    let (here, there) = tokio::io::duplex(1 << 16);
    let mut connection = Box::pin(server.serve_connection(here));
    let _peer = one_runs_and_one_waits(there).await;
    assert!(timeout(ms(10), &mut connection).await.is_err());
    assert_eq!(begun.load(Ordering::Relaxed), 1);

    gate.notify_one();
    sleep(ms(1)).await;
    drop(connection);
    sleep(ms(1)).await;
    assert_eq!(begun.load(Ordering::Relaxed), 1, "the second never begins");
}

#[test]
fn a_connection_may_be_dropped_after_its_runtime() {
    let (server, begun, gate) = gated();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (here, there) = tokio::io::duplex(1 << 16);
    let mut connection = Box::pin(server.serve_connection(here));
    let peer = runtime.block_on(async {
        let peer = one_runs_and_one_waits(there).await;
        assert!(timeout(ms(50), &mut connection).await.is_err());
        gate.notify_one();
        sleep(ms(50)).await;
        peer
    });
    drop(connection);
    drop((peer, runtime));
    assert_eq!(begun.load(Ordering::Relaxed), 1);
}

// As in `select! { _ = &mut serving => .., _ = signal() => server.shutdown(limit).await }`.
#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_although_nobody_polls_what_it_stops() {
    let server = echo().build().unwrap();
    let (here, there) = tokio::io::duplex(1 << 16);
    let mut connection = Box::pin(server.serve_connection(here));
    let _there = there;
    assert!(timeout(ms(10), &mut connection).await.is_err());
    let stopped = timeout(secs(60), server.shutdown(secs(1))).await;
    assert_eq!(
        stopped.ok(),
        Some(false),
        "it ends, and says that not all did"
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_shut_down_handles_nothing_that_comes_later() {
    let (server, begun, _) = gated();
    assert!(server.shutdown(secs(1)).await);
    let (here, there) = tokio::io::duplex(1 << 16);
    let _peer = one_runs_and_one_waits(there).await;
    let end = timeout(secs(1), server.serve_connection(here)).await;
    assert!(matches!(end, Ok(ConnectionError::LocalClose)), "{end:?}");
    sleep(ms(1)).await;
    assert_eq!(begun.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_the_next_try_to_accept() {
    let server = echo().build().unwrap();
    // A socket that does not listen: each accept fails, and the waits between them grow to 1 s.
    let (socket, _) = UnixStream::pair().unwrap();
    let socket = UnixListener::from(OwnedFd::from(socket));
    socket.set_nonblocking(true).unwrap();
    let listener = Listener::from(tokio::net::UnixListener::from_std(socket).unwrap());
    let serving = {
        let server = server.clone();
        tokio::spawn(async move { server.serve(listener).await })
    };
    sleep(ms(4500)).await;
    assert!(server.shutdown(ms(1)).await, "nothing was left to wait for");
    serving.await.unwrap();
}

// An answer that left the outbox is not yet with the client: the stream may hold it back.
#[tokio::test(start_paused = true)]
async fn a_shutdown_sends_what_the_stream_holds_back() {
    let server = echo().build().unwrap();
    let (here, there) = tokio::io::duplex(64);
    let (here_reads, here_writes) = tokio::io::split(here);
    let stream = ByteStream::new(tokio::io::join(
        here_reads,
        BufWriter::with_capacity(1 << 16, here_writes),
    ));
    let connection = {
        let server = server.clone();
        tokio::spawn(async move { server.serve_connection(stream).await })
    };
    let mut peer = Peer::new(there);
    peer.call(1, "Say", &"x".repeat(1000)).await;
    sleep(ms(1)).await;
    let stopping = tokio::spawn(async move { server.shutdown(secs(10)).await });
    sleep(ms(1)).await;
    let mut received = Vec::new();
    peer.stream.read_to_end(&mut received).await.unwrap();
    assert!(received.len() > 1000, "only {} bytes came", received.len());
    assert!(stopping.await.unwrap());
    assert!(matches!(
        connection.await.unwrap(),
        ConnectionError::LocalClose
    ));
}

// A RESPONSE with code 0 is a success: the caller would take the failure for an empty message.
#[tokio::test(start_paused = true)]
async fn a_handler_that_fails_with_the_status_ok_has_failed() {
    let server = Server::builder()
        .service(
            Service::new("demo.Echo", ()).unary("Say", |(), _, _: StringValue| async move {
                Err::<StringValue, _>(Status::new(Code::OK, "all is well"))
            }),
        )
        .build()
        .unwrap();
    let (client, _) = pair(server, Client::builder(), 1 << 16);
    let error = say(&client).await.unwrap_err();
    assert_eq!(error.status().unwrap().code(), Code::INTERNAL);
}

// The names in a request are slices of its frame: a handler that runs long must not keep 4 MiB for
// two words.
#[tokio::test]
async fn a_handler_holds_no_more_of_its_request_than_the_payload() {
    let server = Server::builder()
        .service(Service::new("demo.Echo", ()).unary(
            "Alone",
            |(), call, payload: Raw| async move {
                assert_eq!((call.service(), call.method()), ("demo.Echo", "Alone"));
                assert!(payload.is_unique(), "nobody else holds the frame");
                Ok(Raw(payload.slice(..1)))
            },
        ))
        .build()
        .unwrap();
    let (client, _) = pair(server, Client::builder(), 64 << 10);
    let request = vec![7; 1 << 20];
    let reply = client
        .call::<_, Raw>("demo.Echo", "Alone", &Raw(&request))
        .await;
    assert_eq!(reply.unwrap()[..], [7]);
}
