//! Peers that take for ever: a client that never asks for anything, a header that never ends.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use support::*;
use tokio::io::DuplexStream;
use tokio::task::JoinHandle;
use tokio::time::{Duration, Instant, sleep};
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::wire::{
    Flags, MAX_PAYLOAD, MessageType, Raw, RequestHead, encode_request, ping,
};
use ttrpc_keepalive::{Client, Code, ConfigError, ConnectionError, Server, ServerBuilder};

/// A scripted client of this server, and why the connection ends.
fn connected(server: ServerBuilder) -> (Peer<DuplexStream>, JoinHandle<ConnectionError>) {
    let (here, there) = tokio::io::duplex(1 << 20);
    let server = server.build().unwrap();
    let end = tokio::spawn(async move { server.serve_connection(here).await });
    (Peer::new(there), end)
}

fn first_request(timeout: Duration) -> ServerBuilder {
    echo().first_request_timeout(timeout)
}

fn header(timeout: Duration) -> ServerBuilder {
    echo().header_timeout(timeout)
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_asks_for_anything_does_not_stay() {
    let start = Instant::now();
    let (_silent, end) = connected(first_request(secs(5)));
    let end = end.await.unwrap();
    assert!(
        matches!(end, ConnectionError::NoRequest(limit) if limit == secs(5)),
        "{end}"
    );
    assert_eq!(end.to_string(), "the client made no request within 5s");
    assert_passed(start, secs(5));

    // PINGs, frames of unknown types and half a request are none.
    let start = Instant::now();
    let (mut peer, end) = connected(first_request(secs(5)));
    let talk = async {
        loop {
            peer.send(ping(1)).await;
            peer.send(junk(9, 1, Flags::NONE, b"abc")).await;
            peer.send(junk(3, 1, Flags::NONE, b"abc")).await;
            sleep(ms(300)).await;
        }
    };
    let end = tokio::select! { end = end => end.unwrap(), () = talk => unreachable!() };
    assert!(matches!(end, ConnectionError::NoRequest(_)), "{end}");
    assert_passed(start, secs(5));

    let (mut peer, end) = connected(first_request(secs(5)));
    let whole = requests(1, &["Say"]);
    peer.send(&whole[..whole.len() - 1]).await;
    let end = end.await.unwrap();
    assert!(matches!(end, ConnectionError::NoRequest(_)), "{end}");
}

#[tokio::test(start_paused = true)]
async fn one_that_has_asked_once_stays_whatever_came_of_it() {
    let oversized = u32::try_from(MAX_PAYLOAD).unwrap() + 1;
    for first in 0..3 {
        let (mut peer, end) = connected(first_request(secs(5)));
        sleep(ms(4900)).await;
        match first {
            0 => peer.call(1, "Say", "hello").await,
            1 => peer.call(1, "Unknown", "").await,
            _ => {
                let mut frame = junk(1, 1, Flags::NONE, b"");
                frame[..4].copy_from_slice(&oversized.to_be_bytes());
                frame.resize(frame.len() + MAX_PAYLOAD + 1, 0);
                peer.send(frame).await;
            }
        }
        let refusal = [Code::OK, Code::UNIMPLEMENTED, Code::RESOURCE_EXHAUSTED][first];
        assert_eq!(code(&mut peer, 1).await, refusal);
        peer.silence(secs(60)).await;
        peer.call(3, "Say", "hello").await;
        assert_eq!(code(&mut peer, 3).await, Code::OK);
        drop(peer);
        let end = end.await.unwrap();
        assert!(matches!(end, ConnectionError::PeerClosed), "{end}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_among_the_connections_is_free_again() {
    let (connect, incoming) = tokio::sync::mpsc::channel(8);
    let server = first_request(secs(5)).connection_limit(2).build().unwrap();
    tokio::spawn(async move { server.serve(incoming).await });
    let mut silent = Vec::new();
    for _ in 0..2 {
        let (here, there) = tokio::io::duplex(4096);
        connect.send(there).await.unwrap();
        silent.push(here);
    }
    let (here, there) = tokio::io::duplex(4096);
    connect.send(there).await.unwrap();
    let client = Client::builder().attach(here).unwrap();
    assert!(say_within(&client, secs(4)).await.is_err());
    assert!(say_within(&client, secs(4)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_header_that_does_not_end_ends_its_connection() {
    // A byte now and then, each of which is a sign of life.
    let keepalive = Keepalive::every(secs(1)).timeout(secs(2));
    for rest in 1..10 {
        let start = Instant::now();
        let (mut peer, end) = connected(header(secs(5)).keepalive(keepalive.clone()));
        let trickle = async {
            for _ in 0..rest {
                peer.send([0]).await;
                sleep(ms(600)).await;
            }
            std::future::pending::<()>().await;
        };
        let end = tokio::select! { end = end => end.unwrap(), () = trickle => unreachable!() };
        assert!(
            matches!(end, ConnectionError::HeaderTimeout(limit) if limit == secs(5)),
            "{end}"
        );
        assert_eq!(
            end.to_string(),
            "the header of a frame was not complete within 5s"
        );
        assert_passed(start, secs(5));
    }
    // Zeros without an end are frames of nothing, each ten seconds long.
    let (mut peer, end) = connected(header(secs(5)));
    let zeros = async {
        loop {
            peer.send([0]).await;
            sleep(secs(1)).await;
        }
    };
    let end = tokio::select! { end = end => end.unwrap(), () = zeros => unreachable!() };
    assert!(matches!(end, ConnectionError::HeaderTimeout(_)), "{end}");
}

#[tokio::test(start_paused = true)]
async fn what_follows_a_header_may_take_its_time_and_so_may_the_next_one() {
    let (mut peer, end) = connected(header(secs(1)));
    let whole = requests(1, &["Say"]);
    peer.send(&whole[..10]).await;
    for byte in &whole[10..] {
        sleep(secs(3)).await;
        peer.send([*byte]).await;
    }
    assert_eq!(code(&mut peer, 1).await, Code::OK);
    // Each header is cut by the end of a read, and comes in time.
    for n in 0..40 {
        let whole = requests(3 + 2 * n, &["Say"]);
        peer.send(&whole[..5]).await;
        sleep(ms(800)).await;
        peer.send(&whole[5..]).await;
        assert_eq!(code(&mut peer, 3 + 2 * n).await, Code::OK);
    }
    // One that begins in the read that ends another has its own time.
    let frames: Vec<u8> = junk(9, 1, Flags::NONE, b"").repeat(100);
    for piece in frames.chunks(7) {
        peer.send(piece).await;
        sleep(ms(400)).await;
    }
    drop(peer);
    assert!(matches!(
        end.await.unwrap(),
        ConnectionError::PeerClosed | ConnectionError::Torn
    ));
}

#[tokio::test(start_paused = true)]
async fn both_are_off_unless_they_are_asked_for() {
    let (mut peer, end) = connected(echo());
    peer.send([0; 5]).await;
    sleep(secs(100_000)).await;
    peer.send([0; 5]).await;
    peer.call(1, "Say", "hello").await;
    assert_eq!(code(&mut peer, 1).await, Code::OK);
    drop(peer);
    assert!(matches!(end.await.unwrap(), ConnectionError::PeerClosed));
}

#[tokio::test(start_paused = true)]
async fn a_client_may_limit_headers_of_its_server() {
    let client = Client::builder().header_timeout(secs(2));
    let (client, mut peer) = attached(client, 4096);
    peer.send([0]).await;
    let start = Instant::now();
    let end = client.closed().await;
    assert!(matches!(end, ConnectionError::HeaderTimeout(_)), "{end}");
    assert_passed(start, secs(2));
}

#[tokio::test(start_paused = true)]
async fn time_in_which_this_process_did_not_run_is_not_held_against_the_peer() {
    // The request lies in the stream, and the timer has fired.
    let (mut peer, _end) = connected(first_request(secs(5)));
    sleep(secs(4)).await;
    peer.call(1, "Say", "hello").await;
    pause(secs(60));
    assert_eq!(code(&mut peer, 1).await, Code::OK);

    // Both were paused: the peer has half of its time again.
    let (mut peer, _end) = connected(first_request(secs(5)).header_timeout(secs(5)));
    sleep(secs(1)).await;
    pause(secs(60));
    sleep(secs(2)).await;
    let whole = requests(1, &["Say"]);
    peer.send(&whole[..3]).await;
    pause(secs(60));
    sleep(secs(2)).await;
    peer.send(&whole[3..]).await;
    assert_eq!(code(&mut peer, 1).await, Code::OK);
}

#[tokio::test(start_paused = true)]
async fn nor_is_time_in_which_it_did_not_read() {
    let server = header(secs(2)).owed_limit(1 << 10).build().unwrap();
    let (here, there) = tokio::io::duplex(4096);
    let end = tokio::spawn(async move { server.serve_connection(here).await });
    let mut peer = Peer::new(there);
    let head = requests(3, &["Say"]);
    let large = RequestHead {
        service: "demo.Echo",
        method: "Large",
        timeout_nano: 0,
        metadata: &[],
    };
    let large = encode_request(1, Flags::NONE, &large, &Raw(b"100000")).unwrap();
    peer.send([&large, &head[..4]].concat()).await;
    // It reads nothing while its answer is not taken, and knows half of a header.
    sleep(secs(60)).await;
    assert!(!end.is_finished());
    let frame = peer.frame().await;
    assert_eq!(frame.header.message_type, MessageType::RESPONSE);
    peer.send(&head[4..]).await;
    assert_eq!(code(&mut peer, 3).await, Code::OK);
}

#[test]
fn a_time_of_nothing_is_refused_with_its_name() {
    let first = Server::builder().first_request_timeout(Duration::ZERO);
    let header = Server::builder().header_timeout(Duration::ZERO);
    for (server, name) in [(first, "first_request_timeout"), (header, "header_timeout")] {
        let error = server.build().unwrap_err();
        assert_eq!(error, ConfigError::ZeroTimeout { setting: name });
    }
}
