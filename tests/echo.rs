//! A peer that sends back what it is sent is no peer (RFC KA-52).

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use support::*;
use tokio::io::DuplexStream;
use tokio::time::Instant;
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::wire::{MessageType, ping};
use ttrpc_keepalive::{Client, ClientBuilder, ConnectionError, Peer as Seen};

/// A client of a service that echoes.
fn echoed(builder: ClientBuilder) -> Client {
    let (here, there) = tokio::io::duplex(64 << 10);
    let (mut reads, mut writes) = tokio::io::split(there);
    tokio::spawn(async move { tokio::io::copy(&mut reads, &mut writes).await });
    builder.attach(here).unwrap()
}

async fn assert_echo(client: &Client) {
    let end = client.closed().await;
    assert!(matches!(end, ConnectionError::Echo), "{end}");
    assert_eq!(client.peer(), Seen::Gone);
}

#[tokio::test(start_paused = true)]
async fn a_probe_is_not_answered_by_itself() {
    let client = echoed(Client::builder());
    let error = client.probe(secs(1)).await.unwrap_err();
    assert!(error.is_connection(), "{error:?}");
    assert_echo(&client).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_does_not_take_its_own_pings_for_life() {
    let watch = Keepalive::every(secs(1)).timeout(secs(1));
    let client = echoed(Client::builder().keepalive(watch));
    let start = Instant::now();
    assert_echo(&client).await;
    assert_passed(start, ms(0));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_comes_back_ends_the_connection_without_a_ping_too() {
    let client = echoed(Client::builder().keepalive(Keepalive::off()));
    let error = say_within(&client, secs(5)).await.unwrap_err();
    assert!(error.is_connection(), "{error:?}");
    assert_echo(&client).await;
}

// Two clients that were given the two ends of one stream.
#[tokio::test(start_paused = true)]
async fn a_client_is_no_server_for_another_of_its_kind() {
    let (one, other) = tokio::io::duplex(64 << 10);
    let keepalive = Keepalive::off();
    let attach = |stream: DuplexStream| {
        let builder = Client::builder().keepalive(keepalive.clone());
        builder.attach(stream).unwrap()
    };
    let (one, other) = (attach(one), attach(other));
    let (first, second) = tokio::join!(say(&one), say(&other));
    assert!(first.is_err() && second.is_err());
    // The other one is told of the end, or has noticed as well.
    let ends = [one.closed().await, other.closed().await];
    assert!(
        ends.iter().any(|end| matches!(end, ConnectionError::Echo)),
        "{ends:?}"
    );
}

// The twin: another implementation counts its PINGs as this one does, and they cross.
#[tokio::test(start_paused = true)]
async fn a_ping_of_the_peers_own_is_no_echo() {
    let watch = Keepalive::every(secs(1)).timeout(secs(1));
    let (client, mut peer) = scripted(watch, 64 << 10);
    for number in 1..50 {
        let asked = peer.frame().await;
        peer.send(ping(number)).await;
        peer.pong(&asked).await;
        let answer = peer.frame().await;
        assert_eq!(answer.header.message_type, MessageType::PONG);
    }
    assert!(!client.snapshot().state().is_final());
}
