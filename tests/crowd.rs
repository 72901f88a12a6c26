//! Very many calls that end at once: none may cost a search among all the others.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::time::Instant;

use support::*;
use tokio::task::JoinSet;
use ttrpc_keepalive::{Client, ClientBuilder};

const CALLS: usize = 30_000;

/// The time that this takes where each call searches for itself is many times as much, and a
/// driver that is busy for so long answers no PING.
const BEARABLE: std::time::Duration = secs(12);

/// Makes the calls to a peer that is silent, and waits until they are late.
async fn all_are_late(client: ClientBuilder) {
    let (here, _there) = tokio::io::duplex(1 << 24);
    let client = client.attach(here).unwrap();
    let mut calls = JoinSet::new();
    for _ in 0..CALLS {
        let client = client.clone();
        calls.spawn(async move { say_within(&client, secs(2)).await });
    }
    let start = Instant::now();
    while let Some(reply) = calls.join_next().await {
        assert!(reply.unwrap().unwrap_err().is_deadline());
    }
    let spent = start.elapsed();
    assert!(spent < BEARABLE, "{spent:?}");
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_late_at_once_end_at_once() {
    all_are_late(Client::builder()).await;
}

#[tokio::test(start_paused = true)]
async fn calls_that_wait_for_room_and_are_late_at_once_end_at_once() {
    all_are_late(Client::builder().call_limit(1)).await;
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_dropped_in_any_order_are_gone_at_once() {
    // A step of a search is short: it takes more of them than elsewhere to be told from none.
    const MANY: usize = 2 * CALLS;
    // It takes nothing, so that all of them are queued.
    let (here, _there) = tokio::io::duplex(1);
    let client = Client::builder().attach(here).unwrap();
    let mut calls: Vec<_> = (0..MANY).map(|_| Some(Box::pin(say(&client)))).collect();
    for call in calls.iter_mut().flatten() {
        poll_once(call.as_mut());
    }
    let start = Instant::now();
    // In steps that meet each of them once: the two numbers have no common divisor.
    for step in 0..MANY {
        drop(calls[step * 7919 % MANY].take());
    }
    let spent = start.elapsed();
    assert!(spent < BEARABLE, "{spent:?}");
    assert_eq!(client.snapshot().calls_in_flight(), 0);
}
