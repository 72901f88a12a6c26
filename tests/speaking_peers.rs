//! Who speaks is not dead, whatever it does not read; that it does not read is said all the same.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::sync::{Arc, Mutex};

use protobuf::well_known_types::wrappers::StringValue;
use support::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep, timeout};
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::wire::{Flags, encode_data};
use ttrpc_keepalive::{
    Client, ConnectionError, DeadReason, Peer as Summary, Raw, Responses, Server, Service, Verdict,
};

fn watch() -> Keepalive {
    Keepalive::every(ms(500)).timeout(ms(500))
}

/// A client that has asked for a stream and writes something large, and its peer, which knows PING.
async fn uploading(keepalive: Keepalive) -> (Client, Peer<tokio::io::DuplexStream>, u32) {
    let (client, mut peer) = scripted(keepalive, 4096);
    peer.answer_ping().await;
    let call = client.server_stream::<_, StringValue>(SERVICE, "Count", &text(""));
    let mut stream = call.await.unwrap();
    let (id, _) = peer.request().await;
    tokio::spawn(async move { while let Some(Ok(_)) = stream.next().await {} });
    let bulk = text(&"x".repeat(3 << 20));
    tokio::spawn(client.call::<_, StringValue>("demo.Echo", "Say", &bulk));
    sleep(ms(1)).await;
    (client, peer, id)
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_sends_and_reads_nothing_is_alive_and_known_not_to_read() {
    let (client, mut peer, id) = uploading(watch()).await;
    let message = encode_data(id, Flags::NONE, &text("x")).unwrap();
    let speaks = async {
        for _ in 0..250 {
            peer.stream.write_all(&message).await.unwrap();
            sleep(ms(20)).await;
        }
    };
    let late = async {
        let error = say_within(&client, secs(2)).await.unwrap_err();
        assert_eq!(error.verdict(), Some(Verdict::NotReading), "{error}");
    };
    tokio::join!(speaks, late);
    assert!(client.snapshot().end().is_none());
    assert!(client.snapshot().write_blocked_for() > Some(secs(4)));
    // When it falls silent too, it is convicted.
    let silent = Instant::now();
    let end = timeout(secs(10), client.closed()).await.unwrap();
    assert!(end.dead_reason().is_some(), "{end}");
    assert!(silent.elapsed() >= ms(450), "{:?}", silent.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_sends_and_reads_slowly_is_alive() {
    let (client, mut peer, id) = uploading(watch()).await;
    let message = encode_data(id, Flags::NONE, &text("x")).unwrap();
    let mut buffer = vec![0; 1024];
    for _ in 0..500 {
        peer.stream.write_all(&message).await.unwrap();
        // 51 KB in a second.
        peer.stream.read_exact(&mut buffer).await.unwrap();
        sleep(ms(20)).await;
    }
    assert_eq!(client.peer(), Summary::Alive);
}

#[tokio::test(start_paused = true)]
async fn only_a_write_stall_that_was_set_ends_the_connection_of_a_peer_that_speaks() {
    let (client, mut peer, id) = uploading(watch().write_stall(secs(2))).await;
    let message = encode_data(id, Flags::NONE, &text("x")).unwrap();
    let start = Instant::now();
    tokio::spawn(async move {
        while peer.stream.write_all(&message).await.is_ok() {
            sleep(ms(20)).await;
        }
    });
    let end = timeout(secs(10), client.closed()).await.unwrap();
    assert!(start.elapsed() >= ms(1900), "{:?}", start.elapsed());
    assert_eq!(end.dead_reason(), Some(DeadReason::NotReading));
    for line in [end.to_string(), client.snapshot().state().to_string()] {
        assert!(!line.contains("dead") && !line.contains("silent"), "{line}");
        assert!(
            line.contains("takes no bytes") || line.contains("not reading"),
            "{line}"
        );
    }
}

// Both ends watch, and a server parks its reader when its answers are not taken.
#[tokio::test(start_paused = true)]
async fn a_server_convicts_no_client_that_calls_and_takes_no_answers() {
    let ends = Arc::new(Mutex::new(None));
    let server = Server::builder()
        .keepalive(watch())
        .service(Service::new(SERVICE, ()).server_stream(
            "Flood",
            |(), _, _: Raw, out: Responses<Raw>| async move {
                loop {
                    out.send(&raw([7; 1024])).await?;
                }
            },
        ))
        .service(Service::new("demo.Echo", ()).unary("Say", |(), _, q: Raw| async move { Ok(q) }))
        .build()
        .unwrap();
    let (here, there) = tokio::io::duplex(4096);
    let noted = Arc::clone(&ends);
    tokio::spawn(async move {
        let end: ConnectionError = server.serve_connection(here).await;
        *noted.lock().unwrap() = Some(end);
    });
    let mut peer = Peer::new(there);
    peer.send(ttrpc_keepalive::wire::ping(1)).await;
    peer.open(1, "Flood", Flags::REMOTE_CLOSED, b"").await;
    for id in 1..250 {
        sleep(ms(20)).await;
        peer.call(2 * id + 1, "Say", "x").await;
    }
    assert!(ends.lock().unwrap().is_none(), "{:?}", ends.lock().unwrap());
}
