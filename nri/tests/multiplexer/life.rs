//! One process at the other end, of which both connections know the same.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};
use ttrpc_keepalive::keepalive::{Keepalive, PeerSupport};
use ttrpc_keepalive::wire::{Header, MessageType};
use ttrpc_keepalive::{Client, ClientBuilder, DeadReason, State, Verdict};
use ttrpc_keepalive_nri::multiplexer::Multiplexer;

use super::support::*;

fn watching(interval: Duration, timeout: Duration) -> ClientBuilder {
    let watch = Keepalive::every(interval).timeout(timeout);
    Client::builder().keepalive(watch.peer_support(PeerSupport::Assume))
}

// It sends one message slowly, and its PONG cannot come in between.
#[tokio::test(start_paused = true)]
async fn bytes_for_one_connection_are_life_for_the_other() {
    let (connections, mut peer) = split(64 << 10);
    let client = watching(secs(1), secs(1));
    let client = client.attach(connections.plugin_service).unwrap();
    let other = Client::builder()
        .attach(connections.runtime_service)
        .unwrap();
    let bytes = piece(2, &frame(99, 1 << 20));
    for part in bytes.chunks(bytes.len() / 40) {
        peer.stream.write_all(part).await.unwrap();
        sleep(ms(100)).await;
    }
    let snapshot = client.snapshot();
    assert!(matches!(snapshot.state(), State::Alive), "{snapshot:?}");
    let start = Instant::now();
    // The twin: then it is silent on both.
    let end = client.closed().await;
    assert_eq!(end.dead_reason(), Some(DeadReason::Silent));
    assert!(start.elapsed() <= secs(2), "{:?}", start.elapsed());
    drop((other, peer));
}

// A megabyte for each, which it reads piece by piece, and says nothing.
#[tokio::test(start_paused = true)]
async fn a_peer_that_reads_slowly_all_the_time_is_never_not_reading() {
    let (connections, mut peer) = split(8 << 10);
    let clients = [connections.plugin_service, connections.runtime_service];
    let clients = clients.map(|connection| {
        let client = watching(secs(1), secs(1)).attach(connection);
        client.unwrap()
    });
    let calls = clients
        .clone()
        .map(|client| tokio::spawn(async move { say(&client, 1 << 20).await }));
    let mut read = vec![0; 16 << 10];
    let mut all = 0;
    let start = Instant::now();
    while all < 2 << 20 {
        all += peer.stream.read(&mut read).await.unwrap();
        sleep(ms(100)).await;
        for client in &clients {
            let state = client.snapshot().state();
            assert!(matches!(state, State::Alive), "{state:?} after {all} bytes");
        }
    }
    assert!(start.elapsed() >= secs(10), "{:?}", start.elapsed());

    // The twin: it stops.
    let ends = clients.each_ref().map(|client| client.closed());
    for end in ends {
        assert!(end.await.dead_reason().is_some());
    }
    for call in calls {
        call.await.unwrap().unwrap_err();
    }
}

// Both ways at once: the requests of one, and the answers of the other.
#[tokio::test]
async fn large_messages_both_ways_over_a_slow_link_convict_nobody() {
    let (here, near) = tokio::io::duplex(16 << 10);
    let (there, far) = tokio::io::duplex(16 << 10);
    tokio::spawn(async move {
        let (mut near_read, mut near_write) = tokio::io::split(near);
        let (mut far_read, mut far_write) = tokio::io::split(far);
        let one_way = async {
            let mut some = vec![0; 8 << 10];
            loop {
                let length = near_read.read(&mut some).await.unwrap();
                sleep(ms(2)).await;
                far_write.write_all(&some[..length]).await.unwrap();
            }
        };
        let other_way = async {
            let mut some = vec![0; 8 << 10];
            loop {
                let length = far_read.read(&mut some).await.unwrap();
                sleep(ms(2)).await;
                near_write.write_all(&some[..length]).await.unwrap();
            }
        };
        tokio::join!(one_way, other_way)
    });
    let plugin = Multiplexer::new().split(here);
    let runtime = Multiplexer::new().split(there);
    tokio::spawn(async move { echo().serve_connection(plugin.plugin_service).await });
    tokio::spawn(async move { echo().serve_connection(runtime.runtime_service).await });
    let to_plugin = watching(ms(500), secs(5)).attach(runtime.plugin_service);
    let to_runtime = watching(ms(500), secs(5)).attach(plugin.runtime_service);
    let (to_plugin, to_runtime) = (to_plugin.unwrap(), to_runtime.unwrap());
    let calls = async {
        for _ in 0..2 {
            let both = tokio::join!(say(&to_plugin, 1 << 20), say(&to_runtime, 1 << 20));
            both.0.unwrap();
            both.1.unwrap();
        }
    };
    timeout(secs(60), calls).await.unwrap();
}

// It knows no PING. Whether its process reads is what the kernel says of the whole stream.
#[tokio::test]
async fn a_peer_without_ping_that_reads_is_slow_and_one_that_does_not_is_not_reading() {
    for reads in [true, false] {
        let (here, there) = UnixStream::pair().unwrap();
        let mut peer = Peer::new(there);
        let connections = Multiplexer::new().split(here);
        let client = Client::builder()
            .attach(connections.plugin_service)
            .unwrap();
        let other = Client::builder()
            .attach(connections.runtime_service)
            .unwrap();
        // An answer without a PONG before it: it does not know PING.
        let call = tokio::spawn({
            let client = client.clone();
            async move { say_within(&client, secs(30)).await }
        });
        let request = loop {
            let (_, bytes) = peer.next().await.unwrap();
            let found = frames(&bytes).into_iter().map(|(header, _)| header);
            let mut requests = found.filter(|header| header.message_type == MessageType::REQUEST);
            if let Some(request) = requests.next() {
                break request;
            }
        };
        let response = Header {
            length: 0,
            message_type: MessageType::RESPONSE,
            ..request
        };
        peer.send(1, &response.encode()).await;
        call.await.unwrap().unwrap();

        let reading = tokio::spawn(async move {
            while reads && peer.next().await.is_some() {}
            peer
        });
        let late = say_within(&client, secs(2)).await.unwrap_err();
        let verdict = if reads {
            Verdict::Slow
        } else {
            Verdict::NotReading
        };
        assert_eq!(late.verdict(), Some(verdict), "{late}");
        drop((client, other));
        drop(reading);
    }
}

// What the other connection writes hides nothing of what is read of this one.
#[tokio::test]
async fn a_peer_without_ping_that_reads_is_slow_though_the_other_connection_writes_all_the_time() {
    let (here, there) = UnixStream::pair().unwrap();
    let connections = Multiplexer::new().split(here);
    let client = Client::builder()
        .attach(connections.plugin_service)
        .unwrap();
    let mut other = connections.runtime_service;
    let writing = tokio::spawn(async move {
        loop {
            write(&mut other, &frame(1, 60_000)).await.unwrap();
            sleep(ms(10)).await;
        }
    });
    let mut peer = Peer::new(there);
    let reading = tokio::spawn(async move {
        // A little at a time, so that its queue is never empty for long.
        while peer.next().await.is_some() {
            sleep(ms(5)).await;
        }
    });
    sleep(ms(300)).await;
    for _ in 0..3 {
        let late = say_within(&client, secs(1)).await.unwrap_err();
        let verdict = late.verdict();
        assert_ne!(verdict, Some(Verdict::NotReading), "{late}");
    }
    writing.abort();
    reading.abort();
}
