//! Streaming calls frame by frame: what a server sends and what it makes of what comes.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use bytes::Bytes;
use support::*;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use ttrpc_keepalive::wire::{Flags, MAX_PAYLOAD, Raw, RequestHead, encode_data, encode_request};
use ttrpc_keepalive::{Code, Requests, Responses, Service, Status};

const OPEN: Flags = Flags::REMOTE_OPEN;

fn end() -> Flags {
    Flags::REMOTE_CLOSED | Flags::NO_DATA
}

/// `Up` answers with its requests, each in brackets; `Down` sends `a` and ends; `Early` answers with
/// the first request and goes on sending in another task; `Deaf` takes no request for 10 s.
fn server() -> Peer<DuplexStream> {
    let server = echo().stream_limit(1000).service(
        Service::new("demo.Stream", ())
            .client_stream("Up", |(), _, mut requests: Requests<Raw>| async move {
                let mut all = Vec::new();
                while let Some(request) = requests.next().await {
                    all.extend([b"[", &request?[..], b"]"].concat());
                }
                Ok(Raw(all))
            })
            .server_stream("Down", |(), _, _: Raw, out: Responses<Raw>| async move {
                out.send(&raw("a")).await?;
                out.send(&raw("")).await
            })
            .bidi_stream(
                "Early",
                |(), _, mut requests: Requests<Raw>, out: Responses<Raw>| async move {
                    let first = requests.next().await.unwrap()?;
                    out.send(&first).await?;
                    tokio::spawn(async move {
                        tokio::time::sleep(secs(1)).await;
                        let status = out.send(&raw("late")).await.unwrap_err();
                        assert_eq!(status.code(), Code::CANCELLED);
                        let status = requests.next().await.unwrap().unwrap_err();
                        assert_eq!(status.code(), Code::CANCELLED);
                    });
                    Ok(())
                },
            )
            .bidi_stream(
                "Deaf",
                |(), _, requests: Requests<Raw>, out: Responses<Raw>| async move {
                    tokio::time::sleep(secs(10)).await;
                    let sent = out.send(&raw("late")).await;
                    assert_eq!(sent.unwrap_err().code(), Code::CANCELLED);
                    drop(requests);
                    Err(Status::new(Code::ABORTED, "late"))
                },
            ),
    );
    served(server.build().unwrap())
}

async fn answer(peer: &mut Peer<DuplexStream>, id: u32) -> Bytes {
    let (of, response) = peer.expect_response().await;
    assert_eq!((of, response.status), (id, None));
    response.payload
}

async fn refused(peer: &mut Peer<DuplexStream>, id: u32) -> Status {
    let (of, response) = peer.expect_response().await;
    assert_eq!(of, id);
    response.status.unwrap()
}

/// A unary call is answered: nothing else was lost.
async fn goes_on(peer: &mut Peer<DuplexStream>, id: u32) {
    peer.call(id, "Say", "hello").await;
    answer(peer, id).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_stream_ends_with_a_frame_of_its_own() {
    let mut peer = server();
    peer.open(1, "Down", Flags::REMOTE_CLOSED, b"").await;
    assert_eq!(peer.expect_data().await, (1, Flags::NONE, "a".into()));
    assert_eq!(peer.expect_data().await, (1, Flags::NONE, "".into()));
    assert_eq!(peer.expect_data().await, (1, end(), "".into()));
    peer.silence(secs(10)).await;
    goes_on(&mut peer, 3).await;
}

// RFC KA-42, KA-43, KA-44
#[tokio::test(start_paused = true)]
async fn what_is_a_message_and_what_is_none() {
    let closed = Flags::REMOTE_CLOSED;
    let none = Flags::NO_DATA;
    let mut peer = server();
    let mut id = 1;
    let data = |flags: Flags, message: &'static str| Some((flags, message));
    for (flags, first, then, joined) in [
        (OPEN | none, "", data(end(), ""), ""),
        (OPEN, "", data(end(), ""), ""),
        (OPEN, "a", data(end(), ""), "[a]"),
        (OPEN | none, "a", data(end(), ""), ""),
        (OPEN, "a", data(closed, "b"), "[a][b]"),
        (OPEN, "", data(closed, ""), "[]"),
        (OPEN, "", data(end(), "ignored"), ""),
        (closed, "", None, "[]"),
        (closed, "a", None, "[a]"),
        (end(), "", None, ""),
        (Flags::NONE, "a", None, "[a]"),
    ] {
        peer.open(id, "Up", flags, first.as_bytes()).await;
        if let Some((flags, message)) = then {
            peer.data(id, none, b"").await;
            peer.data(id, flags, message.as_bytes()).await;
        }
        let answer = answer(&mut peer, id).await;
        assert_eq!(answer, joined, "{flags:?} {first:?} {then:?}");
        id += 2;
    }
}

// A request and all its data in one write.
#[tokio::test(start_paused = true)]
async fn data_right_behind_its_request_is_delivered() {
    let mut peer = server();
    let head = RequestHead {
        service: "demo.Stream",
        method: "Up",
        timeout_nano: 0,
        metadata: &[],
    };
    let mut bytes = encode_request(1, OPEN | Flags::NO_DATA, &head, &Raw(b"")).unwrap();
    for message in ["a", "", "b"] {
        bytes.extend(encode_data(1, Flags::NONE, &Raw(message.as_bytes())).unwrap());
    }
    bytes.extend(encode_data(1, end(), &Raw(b"")).unwrap());
    peer.send(bytes).await;
    assert_eq!(answer(&mut peer, 1).await, "[a][][b]");
}

// RFC KA-37, KA-40, KA-48
#[tokio::test(start_paused = true)]
async fn data_for_nobody_is_dropped() {
    let mut peer = server();
    // Unknown streams, a unary one, one that takes one request, one that is half-closed.
    peer.call(1, "Sleep", "1000").await;
    peer.open(3, "Down", Flags::REMOTE_CLOSED, b"").await;
    peer.open(5, "Up", OPEN, b"a").await;
    peer.data(5, end(), b"").await;
    for id in [0, 1, 2, 3, 5, 99, u32::MAX] {
        for flags in [Flags::NONE, Flags::NO_DATA, Flags::REMOTE_CLOSED, end()] {
            peer.data(id, flags, b"x").await;
        }
    }
    for _ in 0..3 {
        assert_eq!(peer.expect_data().await.0, 3);
    }
    assert_eq!(answer(&mut peer, 5).await, "[a]");
    answer(&mut peer, 1).await;
    peer.silence(secs(10)).await;
    goes_on(&mut peer, 7).await;
}

// RFC KA-39
#[tokio::test(start_paused = true)]
async fn nothing_follows_the_end_whatever_the_halves_do() {
    let mut peer = server();
    peer.open(1, "Early", OPEN, b"a").await;
    assert_eq!(peer.expect_data().await, (1, Flags::NONE, "a".into()));
    assert_eq!(peer.expect_data().await, (1, end(), "".into()));
    peer.data(1, Flags::NONE, b"for nobody").await;
    peer.data(1, end(), b"").await;
    peer.silence(secs(10)).await;
    goes_on(&mut peer, 3).await;
}

#[tokio::test(start_paused = true)]
async fn too_many_messages_end_their_stream_with_one_answer() {
    let mut peer = server();
    peer.open(1, "Deaf", OPEN | Flags::NO_DATA, b"").await;
    for _ in 0..10 {
        peer.data(1, Flags::NONE, &[7; 436]).await;
    }
    let status = refused(&mut peer, 1).await;
    assert_eq!(status.code(), Code::RESOURCE_EXHAUSTED);
    assert!(status.message().contains("1500") && status.message().contains("1000"));
    // Neither the handler's message nor its status follows.
    peer.silence(secs(60)).await;
    goes_on(&mut peer, 3).await;
}

#[tokio::test(start_paused = true)]
async fn oversized_data_ends_its_stream_with_one_answer() {
    let mut peer = server();
    peer.open(1, "Up", OPEN, b"a").await;
    let oversized = junk(3, 1, Flags::NONE, &vec![0; MAX_PAYLOAD + 1]);
    peer.send(oversized).await;
    let status = refused(&mut peer, 1).await;
    assert_eq!(status.code(), Code::RESOURCE_EXHAUSTED);
    assert!(status.message().contains("4194305") && status.message().contains("4194304"));
    peer.data(1, end(), b"").await;
    // For a stream that nobody knows it costs nothing.
    peer.send(junk(3, 99, Flags::NONE, &vec![0; MAX_PAYLOAD + 1]))
        .await;
    peer.silence(secs(10)).await;
    goes_on(&mut peer, 3).await;
}

#[tokio::test(start_paused = true)]
async fn messages_wait_for_a_handler_that_waits_for_another() {
    let server = echo()
        .handler_limit(1)
        .service(Service::new("demo.Stream", ()).client_stream(
            "Count",
            |(), _, mut requests: Requests<Raw>| async move {
                let mut count = 0;
                while requests.next().await.is_some() {
                    count += 1;
                }
                Ok(Raw(count.to_string()))
            },
        ));
    let mut peer = served(server.build().unwrap());
    peer.call(1, "Sleep", "1000").await;
    peer.open(3, "Count", OPEN, b"").await;
    for _ in 0..10 {
        peer.data(3, Flags::NONE, b"").await;
    }
    peer.data(3, end(), b"").await;
    answer(&mut peer, 1).await;
    assert_eq!(answer(&mut peer, 3).await, "10");
}

// One whose handler does not begin, by its own queue or by what may wait on the connection.
#[tokio::test(start_paused = true)]
async fn a_stream_that_overflows_while_it_waits_is_answered_once_and_never_handled() {
    for (stream_limit, waiting_limit) in [(1000, 100_000), (100_000, 1000)] {
        let begun = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&begun);
        let server = echo()
            .handler_limit(1)
            .stream_limit(stream_limit)
            .waiting_byte_limit(waiting_limit)
            .service(Service::new("demo.Stream", ()).client_stream(
                "Count",
                move |(), _, _: Requests<Raw>| {
                    counted.fetch_add(1, Relaxed);
                    async { Ok(Raw("")) }
                },
            ))
            .build()
            .unwrap();
        let mut peer = served(server.clone());
        peer.call(1, "Sleep", "1000").await;
        peer.open(3, "Count", OPEN, b"").await;
        peer.open(5, "Count", OPEN | Flags::NO_DATA, b"").await;
        for _ in 0..10 {
            peer.data(3, Flags::NONE, &[7; 136]).await;
        }
        let status = refused(&mut peer, 3).await;
        assert_eq!(status.code(), Code::RESOURCE_EXHAUSTED);
        peer.data(3, end(), b"").await;
        peer.data(5, end(), b"").await;
        answer(&mut peer, 1).await;
        answer(&mut peer, 5).await;
        assert_eq!(begun.load(Relaxed), 1, "that of the other stream");
        peer.silence(secs(10)).await;
        goes_on(&mut peer, 7).await;
        // It counts for nothing any more.
        let stopping = tokio::spawn(async move { server.shutdown(secs(1)).await });
        assert!(stopping.await.unwrap());
    }
}

// RFC KA-37: what would be dropped if it were small costs nothing if it is large.
#[tokio::test(start_paused = true)]
async fn oversized_data_that_no_call_takes_is_dropped() {
    let mut peer = server();
    peer.call(1, "Sleep", "1000").await;
    peer.open(3, "Up", OPEN, b"a").await;
    peer.data(3, end(), b"").await;
    for id in [1, 3] {
        peer.send(junk(3, id, Flags::NONE, &vec![0; MAX_PAYLOAD + 1]))
            .await;
    }
    assert_eq!(answer(&mut peer, 3).await, "[a]");
    answer(&mut peer, 1).await;
    goes_on(&mut peer, 5).await;
}

// C3
#[tokio::test(start_paused = true)]
async fn a_receive_that_waits_in_another_task_ends_with_its_handler() {
    let (told, mut seen) = mpsc::unbounded_channel();
    let server = echo().service(Service::new("demo.Stream", ()).client_stream(
        "Early",
        move |(), _, mut requests: Requests<Raw>| {
            let told = told.clone();
            tokio::spawn(async move {
                let next = requests.next().await.unwrap();
                told.send(next.unwrap_err().code()).unwrap();
            });
            async { Ok(Raw("")) }
        },
    ));
    let mut peer = served(server.build().unwrap());
    peer.open(1, "Early", OPEN | Flags::NO_DATA, b"").await;
    answer(&mut peer, 1).await;
    assert_eq!(seen.recv().await, Some(Code::CANCELLED));
}

#[tokio::test(start_paused = true)]
async fn a_handler_gets_what_was_received_before_the_connections_end() {
    let (told, mut seen) = mpsc::unbounded_channel();
    let server = echo().service(Service::new("demo.Stream", ()).client_stream(
        "Tell",
        move |(), _, mut requests: Requests<Raw>| {
            let told = told.clone();
            async move {
                tokio::time::sleep(secs(1)).await;
                while let Some(request) = requests.next().await {
                    told.send(request.map_err(|status| status.code())).unwrap();
                }
                Ok(Raw(""))
            }
        },
    ));
    let mut peer = served(server.build().unwrap());
    peer.open(1, "Tell", OPEN, b"a").await;
    // A request behind which the end lies is not handled.
    tokio::time::sleep(ms(1)).await;
    peer.data(1, Flags::NONE, b"b").await;
    drop(peer);
    assert_eq!(seen.recv().await, Some(Ok(raw("a"))));
    assert_eq!(seen.recv().await, Some(Ok(raw("b"))));
    assert_eq!(seen.recv().await, Some(Err(Code::UNAVAILABLE)));
}
