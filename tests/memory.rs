//! Memory: what a peer or a caller does over and over costs nothing more.
//!
//! What is measured is the whole process, so these tests take turns.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::io::Write;
use std::os::unix::net::UnixStream;

use support::*;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::sleep;
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::wire::{Flags, Raw, RequestHead, encode_request, ping};
use ttrpc_keepalive::{Client, Listener, MethodOptions, SoftReply, State};

async fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::const_new(());
    TURN.lock().await
}

/// Bytes of memory of this process.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

fn sockets() -> (tokio::net::UnixStream, UnixStream) {
    let (here, there) = UnixStream::pair().unwrap();
    here.set_nonblocking(true).unwrap();
    (tokio::net::UnixStream::from_std(here).unwrap(), there)
}

// Part 2 number 13
#[tokio::test]
async fn sequential_calls_leave_nothing_behind() {
    let _turn = turn().await;
    let (client, _) = echo_pair(Keepalive::on_demand());
    for _ in 0..10_000 {
        say(&client).await.unwrap();
    }
    let before = resident();
    for _ in 0..40_000 {
        say(&client).await.unwrap();
    }
    assert!(
        resident() < before + (2 << 20),
        "{} and {before}",
        resident()
    );
    assert_eq!(client.snapshot().late_calls_unanswered(), 0);
    assert!(matches!(client.snapshot().state(), State::Alive));
}

// C1, C2: handlers that have answered before the reader has done with their requests, streams of
// each kind, and handlers that run on behind their answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_and_streams_on_threads_leave_nothing_behind_on_the_server() {
    let _turn = turn().await;
    let soft = MethodOptions::new().soft_deadline(secs(1), SoftReply::message(&text("")));
    let server = streams()
        .method("demo.Echo", "Sleep", soft)
        .total_handler_limit(8);
    let server = server.build().unwrap();
    let (client, _) = pair(server.clone(), Client::builder(), 64 << 10);
    let mut before = 0;
    for round in 0..5 {
        let callers: Vec<_> = (0..4)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move {
                    for _ in 0..500 {
                        say(&client).await.unwrap();
                        let (sender, mut receiver) = echoed(&client).await;
                        sender.send(&text("a")).await.unwrap();
                        sender.finish();
                        while receiver.next().await.is_some() {}
                        let mut receiver = count(&client, "3").await;
                        while receiver.next().await.is_some() {}
                    }
                    for _ in 0..5 {
                        // Answered at half of its time, or late on a machine that is busy.
                        let _ = sleep_within(&client, ms(80), ms(100)).await;
                    }
                })
            })
            .collect();
        for caller in callers {
            caller.await.unwrap();
        }
        if round == 1 {
            before = resident();
        }
    }
    assert!(
        resident() < before + (2 << 20),
        "{} and {before}",
        resident()
    );
    assert!(server.shutdown(secs(10)).await, "no call is left over");
}

// Calls that are dropped or late at once, over and over.
#[tokio::test(start_paused = true)]
async fn dropped_and_late_calls_leave_nothing_behind() {
    let _turn = turn().await;
    let client = Client::builder().late_limit(10).call_limit(100);
    let server = echo().handler_limit(1 << 20).build().unwrap();
    let (client, _) = pair(server, client, 1 << 20);
    let mut before = 0;
    for round in 0..2000 {
        let mut dropped = Box::pin(say(&client));
        poll_once(dropped.as_mut());
        drop(dropped);
        let late = sleep_within(&client, secs(1), ms(2)).await.unwrap_err();
        assert!(late.is_deadline());
        if round == 1000 {
            before = resident();
        }
    }
    assert!(
        resident() < before + (2 << 20),
        "{} and {before}",
        resident()
    );
    assert!(client.snapshot().late_calls_unanswered() <= 10);
    // There is room for all the calls that are allowed.
    let calls: Vec<_> = (0..100)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { sleep_within(&client, secs(1), secs(2)).await })
        })
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

// B7: neither a call that waits nor a watch keeps a connection that nobody holds.
#[tokio::test]
async fn clients_that_are_dropped_give_their_descriptors_back() {
    let _turn = turn().await;
    let address = format!("unix://@ttrpc-keepalive-dropped-{}", std::process::id());
    let listener = Listener::bind(&address).await.unwrap();
    let server = echo().build().unwrap();
    tokio::spawn(async move { server.serve(listener).await });
    let tasks = || {
        let metrics = tokio::runtime::Handle::current().metrics();
        metrics.num_alive_tasks()
    };
    let (before, alive) = (descriptors(), tasks());
    for round in 0..10 {
        let mut kept = Vec::new();
        for number in 0..100 {
            let keepalive = match number % 3 {
                0 => Keepalive::off(),
                1 => Keepalive::every(ms(20)).timeout(secs(60)),
                _ => Keepalive::on_demand(),
            };
            let client = Client::builder().keepalive(keepalive);
            let client = client.connect(&address).await.unwrap();
            if number % 2 == 0 {
                let mut call = Box::pin(sleep_within(&client, secs(600), secs(900)));
                poll_once(call.as_mut());
            }
            kept.push(client);
        }
        assert!(descriptors() >= before + 100, "they are open in between");
        sleep(ms(30)).await;
        drop(kept);
        let start = std::time::Instant::now();
        // A server's side ends with it, and its handlers that sleep do not keep it open.
        // Of a hundred clients none is left; the runtimes of other tests have descriptors too.
        while descriptors() > before + 50 {
            assert!(
                start.elapsed() < secs(20),
                "round {round}: {}",
                descriptors()
            );
            sleep(ms(5)).await;
        }
    }
    // Handlers that sleep are the only tasks left.
    assert!(tasks() <= alive + 500, "{} and {alive}", tasks());
}

// T44: the peer never reads while it floods, so each PONG but the first finds the socket full.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_pings_from_a_peer_that_never_reads_costs_one_slot() {
    let _turn = turn().await;
    let (here, mut there) = sockets();
    let client = Client::builder().attach(here).unwrap();
    // Fills the pipe to the peer, so that no PONG can leave.
    let bulk = client.clone();
    let bulk = tokio::spawn(async move { say_large(&bulk, 3 << 20).await });
    while client.snapshot().write_blocked_for().is_none() {
        sleep(ms(5)).await;
    }
    let before = resident();
    let pings = ping(7).repeat(1000);
    let (there, pinged) = tokio::task::spawn_blocking(move || {
        for _ in 0..200 {
            there.write_all(&pings).unwrap();
        }
        (there, 200_000)
    })
    .await
    .unwrap();
    sleep(ms(200)).await;
    assert!(resident() < before + (8 << 20), "memory does not grow");
    let seen = client.snapshot();
    assert!(!seen.state().is_final(), "nobody is closed for the rate");
    assert_eq!(seen.counters().pongs_coalesced, pinged - 1);
    drop(there);
    client.closed().await;
    bulk.await.unwrap().unwrap_err();
}

// Answers of ten bytes, and a limit in bytes: what each takes in memory counts too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_answers_for_a_peer_that_never_reads_take_no_more_than_large_ones() {
    let _turn = turn().await;
    let server = echo().owed_limit(8 << 20).build().unwrap();
    let (here, mut there) = sockets();
    let before = resident();
    let serving = tokio::spawn(async move { server.serve_connection(here).await });
    there.set_write_timeout(Some(ms(500))).unwrap();
    let head = RequestHead {
        service: "demo.Echo",
        method: "Bytes",
        timeout_nano: 0,
        metadata: &[],
    };
    let asked = tokio::task::spawn_blocking(move || {
        let ids = (1u32..2_000_001).step_by(2);
        let mut written = ids.map_while(|id| {
            let request = encode_request(id, Flags::NONE, &head, &Raw(b"")).unwrap();
            there.write_all(&request).ok()
        });
        let count = written.by_ref().count();
        (there, count)
    });
    let (there, asked) = asked.await.unwrap();
    assert!(asked < 1_000_000, "the server has stopped reading");
    let grown = resident().saturating_sub(before);
    assert!(grown < 40 << 20, "{grown} bytes for {asked} answers");
    drop(there);
    serving.await.unwrap();
}

// Requests are refused, and the refusals wait for a peer that does not read: the server stops
// reading, as TCP lets it, instead of keeping them all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_bad_requests_from_a_peer_that_never_reads_is_bounded() {
    let _turn = turn().await;
    let server = echo().owed_limit(1 << 20).build().unwrap();
    let (here, there) = sockets();
    let before = resident();
    let serving = {
        let server = server.clone();
        tokio::spawn(async move { server.serve_connection(here).await })
    };
    there.set_write_timeout(Some(ms(500))).unwrap();
    let frames = junk(1, 2, Flags::NONE, b"").repeat(1000);
    let mut flooder = there.try_clone().unwrap();
    let refused = tokio::task::spawn_blocking(move || {
        (0..1000)
            .take_while(|_| flooder.write_all(&frames).is_ok())
            .count()
    })
    .await
    .unwrap();
    assert!(refused < 1000, "the server has stopped reading");
    assert!(resident() < before + (16 << 20), "memory is bounded");
    drop(there);
    serving.await.unwrap();
}
