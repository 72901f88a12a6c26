//! Clients that leave with requests in their sockets: nothing is handled for nobody.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use support::*;
use tokio::io::AsyncWriteExt;
use tokio::sync::Semaphore;
use ttrpc_keepalive::wire::{Flags, Raw, RequestHead, encode_request};
use ttrpc_keepalive::{
    Code, ConnectionError, Dispatch, DriverThread, IntoTransport, Listener, Requests, Responses,
    Server, ServerBuilder, Service,
};

/// How many handlers have begun, of a server with each kind of method.
fn counted() -> (ServerBuilder, Arc<AtomicUsize>) {
    let begun = Arc::<AtomicUsize>::default();
    let [unary, upload, download, both] = [(); 4].map(|()| Arc::clone(&begun));
    let server = Server::builder().service(
        Service::new("demo.Count", ())
            .unary("Unary", move |(), _, q: Raw| {
                unary.fetch_add(1, Relaxed);
                async { Ok(q) }
            })
            .client_stream("Upload", move |(), _, _: Requests<Raw>| {
                upload.fetch_add(1, Relaxed);
                async { Ok(Raw("")) }
            })
            .server_stream("Download", move |(), _, _: Raw, _: Responses<Raw>| {
                download.fetch_add(1, Relaxed);
                async { Ok(()) }
            })
            .bidi_stream("Both", move |(), _, _: Requests<Raw>, _: Responses<Raw>| {
                both.fetch_add(1, Relaxed);
                async { Ok(()) }
            }),
    );
    (server, begun)
}

/// So many requests for one method, with the flags of its kind.
fn calls(method: &str, count: u32) -> Vec<u8> {
    let flags = match method {
        "Upload" | "Both" => Flags::REMOTE_OPEN | Flags::NO_DATA,
        _ => Flags::NONE,
    };
    let head = RequestHead {
        service: "demo.Count",
        method,
        timeout_nano: 0,
        metadata: &[],
    };
    let request = |n| encode_request(2 * n + 1, flags, &head, &Raw(b"some bytes")).unwrap();
    (0..count).flat_map(request).collect()
}

const METHODS: [&str; 4] = ["Unary", "Upload", "Download", "Both"];

/// Nothing runs, and it is counted that nothing did.
async fn nothing_runs(
    server: ServerBuilder,
    begun: &AtomicUsize,
    stream: impl IntoTransport,
    requests: u64,
) -> ConnectionError {
    let server = server.build().unwrap();
    let end = server.serve_connection(stream).await;
    // What was spawned has a turn.
    tokio::task::yield_now().await;
    assert_eq!(begun.load(Relaxed), 0, "of {requests}, {end}");
    assert_eq!(server.counters().abandoned, requests, "{end}");
    end
}

#[tokio::test(start_paused = true)]
async fn requests_behind_which_the_end_lies_are_not_run() {
    for method in METHODS {
        for dispatch in [Dispatch::Spawn, Dispatch::Inline] {
            for count in [1, 63, 64, 65, 200, 1000] {
                let (here, mut there) = tokio::io::duplex(1 << 20);
                there.write_all(&calls(method, count)).await.unwrap();
                drop(there);
                let (server, begun) = counted();
                let server = server.dispatch(dispatch);
                let end = nothing_runs(server, &begun, here, count.into()).await;
                assert!(matches!(end, ConnectionError::PeerClosed), "{end}");
            }
        }
    }
}

#[tokio::test]
async fn nor_are_those_in_a_socket_whatever_thread_reads_them() {
    for thread in [DriverThread::Shared, DriverThread::Dedicated] {
        for method in METHODS {
            let requests = calls(method, 200);
            let (here, mut there) = std::os::unix::net::UnixStream::pair().unwrap();
            there.write_all(&requests).unwrap();
            drop(there);
            here.set_nonblocking(true).unwrap();
            let here = tokio::net::UnixStream::from_std(here).unwrap();
            let (server, begun) = counted();
            nothing_runs(server.driver_thread(thread), &begun, here, 200).await;

            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let mut there = std::net::TcpStream::connect(address).unwrap();
            there.write_all(&requests).unwrap();
            let (here, _) = listener.accept().unwrap();
            drop(there);
            // The end has to come through, too.
            while here.peek(&mut [0; 1 << 16]).unwrap() < requests.len() {}
            std::thread::sleep(ms(20));
            here.set_nonblocking(true).unwrap();
            let here = tokio::net::TcpStream::from_std(here).unwrap();
            let (server, begun) = counted();
            nothing_runs(server.driver_thread(thread), &begun, here, 200).await;
        }
    }
}

#[tokio::test]
async fn nor_are_those_of_a_client_that_left_before_it_was_accepted() {
    let path = std::env::temp_dir().join(format!("ttrpc-leaving-{}", std::process::id()));
    let address = format!("unix://{}", path.display());
    let listener = Listener::bind(&address).await.unwrap();
    for method in METHODS {
        for _ in 0..20 {
            let mut client = std::os::unix::net::UnixStream::connect(&path).unwrap();
            client.write_all(&calls(method, 3)).unwrap();
        }
    }
    let (server, begun) = counted();
    let server = server.build().unwrap();
    let serving = tokio::spawn({
        let server = server.clone();
        async move { server.serve(listener).await }
    });
    while server.counters().abandoned < 240 {
        tokio::time::sleep(ms(5)).await;
    }
    assert!(server.shutdown(secs(5)).await);
    serving.await.unwrap();
    assert_eq!(begun.load(Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn whatever_the_end_is() {
    // Bytes that are no ttrpc, and a frame that is cut.
    for rest in [&b"GET / HTTP/1.1\r\n\r\n"[..], &calls("Unary", 1)[..15]] {
        let (here, mut there) = tokio::io::duplex(1 << 20);
        there.write_all(&calls("Unary", 100)).await.unwrap();
        there.write_all(rest).await.unwrap();
        drop(there);
        let (server, begun) = counted();
        let end = nothing_runs(server, &begun, here, 100).await;
        assert!(
            matches!(end, ConnectionError::Protocol(_) | ConnectionError::Torn),
            "{end}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn those_of_a_client_that_is_there_all_run() {
    for method in METHODS {
        let (here, mut there) = tokio::io::duplex(1 << 20);
        there.write_all(&calls(method, 1000)).await.unwrap();
        let (server, begun) = counted();
        let server = server.build().unwrap();
        let counters = server.clone();
        tokio::spawn(async move { server.serve_connection(here).await });
        tokio::time::sleep(ms(100)).await;
        assert_eq!(begun.load(Relaxed), 1000, "{method}");
        drop(there);
        tokio::time::sleep(ms(100)).await;
        assert_eq!(counters.counters().abandoned, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_handler_to_end_does_not_begin_when_its_client_has_left() {
    let gate = Arc::new(Semaphore::new(0));
    let begun = Arc::<AtomicUsize>::default();
    let (inside, counts) = (Arc::clone(&gate), Arc::clone(&begun));
    let server = Server::builder()
        .handler_limit(2)
        .service(
            Service::new("demo.Count", ()).unary("Unary", move |(), _, q: Raw| {
                counts.fetch_add(1, Relaxed);
                let gate = Arc::clone(&inside);
                async move {
                    gate.acquire().await.unwrap().forget();
                    Ok(q)
                }
            }),
        )
        .build()
        .unwrap();
    let mut peer = served(server.clone());
    peer.send(calls("Unary", 10)).await;
    peer.silence(ms(100)).await;
    drop(peer);
    tokio::time::sleep(ms(100)).await;
    gate.add_permits(10);
    tokio::time::sleep(ms(100)).await;
    assert_eq!(begun.load(Relaxed), 2, "those that had begun run on");
    assert_eq!(server.counters().abandoned, 8);
}

#[tokio::test]
async fn nor_does_a_handler_that_had_no_thread_until_its_client_had_left() {
    let (server, begun) = counted();
    let server = server
        .driver_thread(DriverThread::Dedicated)
        .service(
            Service::new("demo.Count", ()).unary("Block", |(), _, q: Raw| async {
                std::thread::sleep(ms(500));
                Ok(q)
            }),
        )
        .build()
        .unwrap();
    let (here, there) = tokio::net::UnixStream::pair().unwrap();
    let there = there.into_std().unwrap();
    // The only thread for handlers is this one, and blocked by the first.
    std::thread::spawn(move || {
        there.set_nonblocking(false).unwrap();
        let mut there = there;
        let head = RequestHead {
            service: "demo.Count",
            method: "Block",
            timeout_nano: 0,
            metadata: &[],
        };
        let block = encode_request(1, Flags::NONE, &head, &Raw(b"")).unwrap();
        there.write_all(&block).unwrap();
        std::thread::sleep(ms(100));
        let rest: Vec<u8> = calls("Unary", 11)[calls("Unary", 1).len()..].to_vec();
        there.write_all(&rest).unwrap();
        std::thread::sleep(ms(100));
    });
    let end = server.serve_connection(here).await;
    assert!(matches!(
        end,
        ConnectionError::PeerClosed | ConnectionError::Reset(_)
    ));
    tokio::time::sleep(ms(20)).await;
    assert_eq!(begun.load(Relaxed), 0);
    assert_eq!(server.counters().abandoned, 10);
}

#[tokio::test(start_paused = true)]
async fn a_handler_of_a_stream_is_told_that_its_client_has_left() {
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let server = Server::builder().service(Service::new("demo.Count", ()).bidi_stream(
        "Both",
        move |(), _, mut requests: Requests<Raw>, responses: Responses<Raw>| {
            let sender = sender.clone();
            async move {
                let failed = requests.next().await.unwrap().unwrap_err();
                sender.send(failed).unwrap();
                sender
                    .send(responses.send(&raw("x")).await.unwrap_err())
                    .unwrap();
                Ok(())
            }
        },
    ));
    let mut peer = served(server.build().unwrap());
    peer.send(calls("Both", 1)).await;
    tokio::time::sleep(ms(10)).await;
    drop(peer);
    for _ in 0..2 {
        let status = receiver.recv().await.unwrap();
        assert_eq!(status.code(), Code::UNAVAILABLE);
        assert_eq!(status.message(), "the client has left: the peer closed it");
    }
}
