//! What waits in a server.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as TaskContext, Poll};

use bytes::BytesMut;
use tokio::time::{Sleep, sleep, timeout};
use ttrpc_keepalive::transport::Transport;
use ttrpc_keepalive::wire::{Flags, Raw, RequestHead, encode_request, ping, ping_number};
use ttrpc_keepalive::{
    Accept, Code, MethodOptions, Requests, Responses, ServerBuilder, Service, Status,
};

use super::support::*;
use super::{MIB, raw, refused};

/// `demo.Echo/Work` counts itself and never answers.
fn endless() -> (ServerBuilder, Arc<AtomicUsize>) {
    let running = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&running);
    let server = streams().service(Service::new("demo.Echo", ()).unary(
        "Work",
        move |(), _, _: Raw| {
            counter.fetch_add(1, Ordering::Relaxed);
            std::future::pending::<Result<Raw, Status>>()
        },
    ));
    (server, running)
}

// row: handlers that run
#[tokio::test(start_paused = true)]
async fn of_1_025_requests_1_024_run_and_one_waits() {
    let (server, running) = endless();
    let mut peer = served(server.build().unwrap());
    for number in 0..1023 {
        peer.call(2 * number + 1, "Work", "").await;
    }
    peer.call(2047, "Sleep", "1000").await;
    peer.call(2049, "Work", "").await;
    peer.silence(ms(900)).await;
    assert_eq!(running.load(Ordering::Relaxed), 1023);
    assert_eq!(peer.expect_response().await.0, 2047);
    peer.silence(ms(1)).await;
    assert_eq!(running.load(Ordering::Relaxed), 1024);
}

// row: requests that wait for a handler
#[tokio::test(start_paused = true)]
async fn behind_1_024_that_wait_a_request_is_refused_at_once() {
    let (server, running) = endless();
    let mut peer = served(server.build().unwrap());
    for number in 0..2048 {
        peer.call(2 * number + 1, "Work", "").await;
    }
    peer.silence(secs(10)).await;
    peer.call(4097, "Work", "").await;
    let status = timeout(ms(10), refused(&mut peer, 4097)).await;
    let status = status.expect("at once");
    assert_eq!(status.code(), Code::RESOURCE_EXHAUSTED);
    assert_eq!(running.load(Ordering::Relaxed), 1024);
    peer.send(ping(1)).await;
    assert_eq!(ping_number(&peer.frame().await.payload), Some(1));
}

// row: handlers that run on all connections
#[tokio::test(start_paused = true)]
async fn without_a_total_1_200_handlers_run_and_with_one_connections_have_their_turns() {
    let (server, running) = endless();
    let server = server.build().unwrap();
    let mut peers = [served(server.clone()), served(server)];
    for peer in &mut peers {
        for number in 0..600 {
            peer.call(2 * number + 1, "Work", "").await;
        }
        peer.silence(ms(1)).await;
    }
    assert_eq!(running.load(Ordering::Relaxed), 1200);

    let (server, running) = endless();
    let server = server.total_handler_limit(3).build().unwrap();
    let [mut one, mut other] = [served(server.clone()), served(server)];
    one.call(1, "Sleep", "1000").await;
    for id in [3, 5, 7, 9] {
        one.call(id, "Work", "").await;
    }
    one.silence(ms(1)).await;
    other.call(1, "Say", "hello").await;
    other.silence(ms(900)).await;
    assert_eq!(running.load(Ordering::Relaxed), 2);
    assert_eq!(one.expect_response().await.0, 1);
    // One that waited longer goes first, and then the other connection has its turn.
    one.silence(secs(10)).await;
    assert_eq!(running.load(Ordering::Relaxed), 3);
    other.silence(secs(10)).await;
    other.send(ping(1)).await;
    assert_eq!(ping_number(&other.frame().await.payload), Some(1));
}

// row: calls of one method
#[tokio::test(start_paused = true)]
async fn a_call_beyond_those_of_its_method_is_refused_at_once() {
    let (server, running) = endless();
    let two = MethodOptions::new().call_limit(2);
    let server = server.method("demo.Echo", "Work", two).build().unwrap();
    let mut peers = [served(server.clone()), served(server)];
    for peer in &mut peers {
        peer.call(1, "Work", "").await;
        peer.silence(ms(1)).await;
    }
    for peer in &mut peers {
        peer.call(3, "Work", "").await;
        let status = timeout(ms(10), refused(peer, 3)).await.expect("at once");
        assert_eq!(status.code(), Code::RESOURCE_EXHAUSTED);
        peer.call(5, "Say", "hello").await;
        assert_eq!(peer.expect_response().await.0, 5);
    }
    assert_eq!(running.load(Ordering::Relaxed), 2);
}

// row: bytes of these requests, and of their streams' messages
#[tokio::test(start_paused = true)]
async fn behind_16_mib_that_wait_a_request_or_message_is_refused_at_once() {
    let (server, _) = endless();
    let mut peer = served(server.handler_limit(1).build().unwrap());
    let message = "x".repeat(MIB);
    peer.call(1, "Work", "").await;
    let open = Flags::REMOTE_OPEN | Flags::NO_DATA;
    peer.open(3, "Join", open, b"").await;
    // With what is beside them 15 fit.
    for number in 0..14 {
        peer.call(2 * number + 5, "Work", &message).await;
    }
    peer.data(3, Flags::NONE, message.as_bytes()).await;
    peer.silence(secs(10)).await;
    peer.call(101, "Work", &message).await;
    let status = timeout(ms(10), refused(&mut peer, 101)).await;
    let status = status.expect("at once");
    assert_eq!(status.code(), Code::RESOURCE_EXHAUSTED);
    peer.data(3, Flags::NONE, message.as_bytes()).await;
    let status = timeout(ms(10), refused(&mut peer, 3)).await;
    let status = status.expect("at once");
    assert_eq!(status.code(), Code::RESOURCE_EXHAUSTED);

    // Pairs of two bytes count as what they take in memory.
    let (server, _) = endless();
    let mut peer = served(server.handler_limit(1).build().unwrap());
    let metadata = vec![(String::new(), String::new()); 4096];
    let head = RequestHead {
        service: "demo.Echo",
        method: "Work",
        timeout_nano: 0,
        metadata: &metadata,
    };
    for number in 0..100 {
        let request = encode_request(2 * number + 1, Flags::NONE, &head, &Raw(b""));
        peer.send(request.unwrap()).await;
    }
    let (refused, _) = peer.expect_response().await;
    assert!((150..190).contains(&refused), "{refused}");
}

// row: messages of all streams that no handler has taken
#[tokio::test(start_paused = true)]
async fn at_64_mib_of_messages_of_all_streams_the_one_whose_message_comes_fails() {
    let server = echo().service(Service::new(SERVICE, ()).client_stream(
        "Deaf",
        |(), _, mut requests: Requests<Raw>| async move {
            sleep(secs(60)).await;
            requests.next().await;
            sleep(secs(3600)).await;
            Ok(Raw(""))
        },
    ));
    let mut peer = served(server.build().unwrap());
    let open = Flags::REMOTE_OPEN | Flags::NO_DATA;
    let message = vec![0; MIB];
    // With the 64 bytes beside each message 63 fit.
    for number in 0..63 {
        if number % 9 == 0 {
            peer.open(number / 9 * 2 + 1, "Deaf", open, b"").await;
        }
        peer.data(number / 9 * 2 + 1, Flags::NONE, &message).await;
    }
    peer.silence(secs(1)).await;
    peer.data(5, Flags::NONE, &message).await;
    let status = timeout(ms(10), refused(&mut peer, 5)).await;
    let status = status.expect("at once");
    assert_eq!(status.code(), Code::RESOURCE_EXHAUSTED);
    assert!(status.message().contains(&(64 * MIB).to_string()));
    let first = Flags::REMOTE_OPEN;
    peer.open(101, "Deaf", first, &message).await;
    let status = timeout(ms(10), refused(&mut peer, 101)).await;
    let status = status.expect("at once");
    assert_eq!(status.code(), Code::RESOURCE_EXHAUSTED);
    peer.call(103, "Say", "hello").await;
    assert_eq!(peer.expect_response().await.0, 103);
    // After a minute each handler takes one, and others go on.
    peer.silence(secs(60)).await;
    peer.open(105, "Deaf", first, &message).await;
    peer.data(1, Flags::NONE, &message).await;
    peer.silence(secs(1)).await;
}

// row: answers not taken by the client
#[tokio::test(start_paused = true)]
async fn with_more_than_16_mib_of_answers_owed_requests_are_not_read_and_messages_wait() {
    let (sent, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (called, counted) = (Arc::clone(&seen), Arc::clone(&sent));
    let server = echo()
        .service(
            Service::new("demo.Echo", ()).unary("Counted", move |(), _, _: Raw| {
                called.fetch_add(1, Ordering::Relaxed);
                async { Ok(Raw(vec![0; MIB])) }
            }),
        )
        .service(Service::new(SERVICE, ()).server_stream(
            "Down",
            move |(), _, _: Raw, out: Responses<Raw>| {
                let counted = Arc::clone(&counted);
                async move {
                    for _ in 0..20 {
                        out.send(&raw(vec![0; MIB])).await?;
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                }
            },
        ));
    let server = server.build().unwrap();
    let connect = || {
        let (here, there) = tokio::io::duplex(4096);
        let server = server.clone();
        tokio::spawn(async move { server.serve_connection(here).await });
        Peer::new(there)
    };

    let mut peer = connect();
    for number in 0..20 {
        peer.call(2 * number + 1, "Counted", "").await;
        sleep(ms(1)).await;
    }
    // The pipe has a part of the first answer, so that the 17th makes it more than 16 MiB.
    assert_eq!(seen.load(Ordering::Relaxed), 17);
    for number in 0..20 {
        assert_eq!(peer.expect_response().await.0, 2 * number + 1);
    }
    assert_eq!(seen.load(Ordering::Relaxed), 20);

    let mut peer = connect();
    peer.open(1, "Down", Flags::REMOTE_CLOSED, b"").await;
    sleep(secs(1)).await;
    assert_eq!(sent.load(Ordering::Relaxed), 17);
    peer.call(3, "Counted", "").await;
    sleep(secs(1)).await;
    assert_eq!(seen.load(Ordering::Relaxed), 21, "requests are still read");
    for _ in 0..20 {
        peer.frame().await;
    }
    assert_eq!(sent.load(Ordering::Relaxed), 20);
}

// row: connections of a listener
#[tokio::test(start_paused = true)]
async fn of_65_537_connections_of_a_listener_one_waits_until_another_has_ended() {
    let accepted = Arc::new(AtomicUsize::new(0));
    let endless = Endless {
        accepted: Arc::clone(&accepted),
    };
    let server = echo().build().unwrap();
    tokio::spawn(async move { server.serve(endless).await });
    sleep(ms(1)).await;
    assert_eq!(accepted.load(Ordering::Relaxed), 65_536);
    sleep(secs(2)).await;
    assert_eq!(accepted.load(Ordering::Relaxed), 65_537);
}

/// Has more connections than a server takes. On all of them there is silence, and the first one ends
/// after a second.
struct Endless {
    accepted: Arc<AtomicUsize>,
}

impl Accept for Endless {
    type Stream = Silence;

    fn poll_accept(&mut self, _: &mut TaskContext<'_>) -> Poll<Option<io::Result<Silence>>> {
        let before = self.accepted.load(Ordering::Relaxed);
        if before == 70_000 {
            return Poll::Pending; // a server without a limit has failed by now
        }
        self.accepted.store(before + 1, Ordering::Relaxed);
        let end = (before == 0).then(|| Box::pin(sleep(secs(1))));
        Poll::Ready(Some(Ok(Silence { end })))
    }
}

struct Silence {
    end: Option<Pin<Box<Sleep>>>,
}

impl Transport for Silence {
    fn poll_read(
        &mut self,
        cx: &mut TaskContext<'_>,
        _: &mut BytesMut,
        _: usize,
    ) -> Poll<io::Result<usize>> {
        match &mut self.end {
            Some(end) => end.as_mut().poll(cx).map(|()| Ok(0)),
            None => Poll::Pending,
        }
    }

    fn poll_write(
        &mut self,
        _: &mut TaskContext<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()))
    }
}
