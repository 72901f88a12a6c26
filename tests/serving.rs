//! A server's limits, and the ways to stop it.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use protobuf::well_known_types::wrappers::StringValue;
use support::*;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, sleep, timeout};
use tracing::Level;
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::wire::{Flags, RequestHead, encode_request, ping};
use ttrpc_keepalive::{
    Client, Code, ConnectionError, DeadReason, Dispatch, Listener, MethodOptions, Raw, Server,
    Service, Status,
};

#[tokio::test(start_paused = true)]
async fn requests_beyond_the_handlers_wait_and_beyond_that_are_refused_at_once() {
    let server = echo().handler_limit(2).waiting_limit(3).build().unwrap();
    let (client, _) = pair(server, Client::builder(), 1 << 20);
    let start = Instant::now();
    let calls: Vec<_> = (0..10)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                let result = sleep_within(&client, secs(1), secs(60)).await;
                (result, start.elapsed().as_secs())
            })
        })
        .collect();
    let mut ended = Vec::new();
    for call in calls {
        let (result, at) = call.await.unwrap();
        let code = result.err().map(|error| error.status().unwrap().code());
        ended.push((at, code));
    }
    ended.sort_unstable();
    let refused = Some(Code::RESOURCE_EXHAUSTED);
    assert_eq!(ended[..5], [(0, refused); 5]);
    assert_eq!(
        ended[5..],
        [(1, None), (1, None), (2, None), (2, None), (3, None)]
    );
    assert!(say(&client).await.is_ok(), "there is room again");
}

#[tokio::test(start_paused = true)]
async fn pings_are_answered_while_all_handlers_are_taken() {
    let server = echo().handler_limit(1).waiting_limit(1).build().unwrap();
    let mut peer = served(server);
    peer.call(1, "Sleep", "60000").await;
    peer.call(3, "Sleep", "60000").await;
    peer.call(5, "Say", "hello").await;
    assert_eq!(peer.frame().await.header.stream_id, 5, "refused at once");
    peer.send(ping(1)).await;
    assert_eq!(peer.frame().await.payload[..], 1u64.to_be_bytes());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_expires_while_it_waits_is_answered_without_its_handler() {
    let server = echo().handler_limit(1).build().unwrap();
    let mut peer = served(server.clone());
    let start = Instant::now();
    call_within(&mut peer, "Sleep", 1, "3000", secs(60)).await;
    call_within(&mut peer, "Sleep", 3, "3000", secs(2)).await;
    peer.call(5, "Say", "hello").await;
    assert_eq!(code(&mut peer, 1).await, Code::OK);
    assert_eq!(code(&mut peer, 3).await, Code::DEADLINE_EXCEEDED);
    assert_eq!(code(&mut peer, 5).await, Code::OK);
    assert_passed(start, secs(3));
    assert_eq!(server.counters().expired, 1);
    // RFC KA-34
    let head = RequestHead {
        service: "demo.Echo",
        method: "Sleep",
        timeout_nano: -1,
        metadata: &[],
    };
    let request = encode_request(7, Flags::NONE, &head, &text("1")).unwrap();
    peer.send(request).await;
    assert_eq!(code(&mut peer, 7).await, Code::DEADLINE_EXCEEDED);
    assert_eq!(server.counters().expired, 2);
}

// As after a handler that kept the only thread: the task of the next one is there, and too late.
#[tokio::test(start_paused = true)]
async fn a_request_that_expires_before_its_task_runs_is_answered_without_its_handler() {
    let server = echo()
        .service(
            Service::new("demo.Echo", ()).unary("Block", |(), _, q: StringValue| async {
                pause(secs(3));
                Ok(q)
            }),
        )
        .build()
        .unwrap();
    let mut peer = served(server.clone());
    peer.call(1, "Block", "").await;
    call_within(&mut peer, "Sleep", 3, "3000", secs(2)).await;
    let mut codes = [peer.expect_response().await, peer.expect_response().await];
    codes.sort_by_key(|(id, _)| *id);
    assert_eq!(codes[0].1.status, None);
    let status = codes[1].1.status.clone().unwrap();
    assert_eq!(status.code(), Code::DEADLINE_EXCEEDED);
    assert_eq!(server.counters().expired, 1);
}

#[tokio::test(start_paused = true)]
async fn requests_that_have_expired_make_room_for_those_that_have_not() {
    let server = echo().handler_limit(1).waiting_limit(2).build().unwrap();
    let mut peer = served(server.clone());
    call_within(&mut peer, "Sleep", 1, "9000", secs(60)).await;
    call_within(&mut peer, "Sleep", 3, "1", secs(2)).await;
    call_within(&mut peer, "Sleep", 5, "1", secs(60)).await;
    peer.call(7, "Say", "too many").await;
    assert_eq!(code(&mut peer, 7).await, Code::RESOURCE_EXHAUSTED);
    sleep(secs(3)).await;
    peer.call(9, "Say", "hello").await;
    for (id, expected) in [
        (3, Code::DEADLINE_EXCEEDED),
        (1, Code::OK),
        (5, Code::OK),
        (9, Code::OK),
    ] {
        assert_eq!(code(&mut peer, id).await, expected);
    }
    let counters = server.counters();
    assert_eq!((counters.refused, counters.expired), (1, 1));
}

// G18
#[tokio::test(start_paused = true)]
async fn requests_that_come_while_a_handler_is_slow_are_handled_in_their_order() {
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let noted = Arc::clone(&order);
    let server = Server::builder()
        .handler_limit(1)
        .service(
            Service::new("demo.Echo", ()).unary("Say", move |(), _, q: StringValue| {
                let noted = Arc::clone(&noted);
                async move {
                    noted.lock().unwrap().push(q.value.clone());
                    sleep(secs(1)).await;
                    Ok(q)
                }
            }),
        );
    let mut peer = served(server.build().unwrap());
    for event in 0..20u32 {
        peer.call(2 * event + 1, "Say", &event.to_string()).await;
    }
    for event in 0..20 {
        assert_eq!(code(&mut peer, 2 * event + 1).await, Code::OK);
    }
    let expected: Vec<_> = (0..20).map(|event| event.to_string()).collect();
    assert_eq!(*order.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_are_bounded_in_bytes_too() {
    let server = echo().handler_limit(1).waiting_byte_limit(10_000);
    let server = server.build().unwrap();
    let mut peer = served(server.clone());
    let (large, long) = ("x".repeat(20_000), "x".repeat(4_000));
    peer.call(1, "Sleep", "1000").await;
    peer.call(3, "Say", &large).await; // alone it always fits
    peer.call(5, "Say", "x").await;
    assert_eq!(code(&mut peer, 5).await, Code::RESOURCE_EXHAUSTED);
    assert_eq!(code(&mut peer, 1).await, Code::OK);
    assert_eq!(code(&mut peer, 3).await, Code::OK);
    peer.call(7, "Sleep", "1000").await;
    for id in [9, 11, 13] {
        peer.call(id, "Say", &long).await;
    }
    assert_eq!(code(&mut peer, 13).await, Code::RESOURCE_EXHAUSTED);
    for id in [7, 9, 11] {
        assert_eq!(code(&mut peer, id).await, Code::OK);
    }
    assert_eq!(server.counters().refused, 2);
}

#[tokio::test(start_paused = true)]
async fn a_method_with_a_limit_refuses_more_calls_at_once_and_holds_up_no_other() {
    let options = MethodOptions::new().call_limit(2);
    let server = echo().method("demo.Echo", "Sleep", options);
    let server = server.handler_limit(1).build().unwrap();
    let (mut one, mut other) = (served(server.clone()), served(server.clone()));
    one.call(1, "Sleep", "1000").await;
    one.call(3, "Sleep", "1000").await; // waits, and counts
    one.call(5, "Say", "hello").await;
    sleep(ms(1)).await;
    other.call(1, "Sleep", "1000").await;
    assert_eq!(code(&mut other, 1).await, Code::RESOURCE_EXHAUSTED);
    other.call(3, "Say", "hello").await;
    assert_eq!(code(&mut other, 3).await, Code::OK);
    for id in [1, 3, 5] {
        assert_eq!(code(&mut one, id).await, Code::OK);
    }
    other.call(5, "Sleep", "1").await;
    assert_eq!(code(&mut other, 5).await, Code::OK, "there is room again");
    assert_eq!(server.counters().refused, 1);
}

#[tokio::test(start_paused = true)]
async fn connections_have_the_handlers_of_a_server_in_turn() {
    let server = echo().total_handler_limit(1).build().unwrap();
    let (greedy, _) = pair(server.clone(), Client::builder(), 1 << 20);
    let (modest, _) = pair(server.clone(), Client::builder(), 1 << 20);
    let start = Instant::now();
    let call = |client: &Client| {
        let client = client.clone();
        tokio::spawn(async move {
            sleep_within(&client, secs(1), secs(60)).await.unwrap();
            start.elapsed().as_secs()
        })
    };
    let many: Vec<_> = (0..6).map(|_| call(&greedy)).collect();
    sleep(ms(1)).await;
    let few: Vec<_> = (0..2).map(|_| call(&modest)).collect();
    let mut ended = [Vec::new(), Vec::new()];
    for (calls, ended) in [many, few].into_iter().zip(&mut ended) {
        for call in calls {
            ended.push(call.await.unwrap());
        }
    }
    assert_eq!(ended, [vec![1, 2, 4, 6, 7, 8], vec![3, 5]]);
    // PINGs are answered meanwhile, and nothing is left over.
    let (waits, runs) = (call(&greedy), call(&modest));
    greedy.probe(ms(10)).await.unwrap();
    modest.probe(ms(10)).await.unwrap();
    assert!(waits.await.unwrap() + runs.await.unwrap() == 19);
}

#[tokio::test(start_paused = true)]
async fn a_handler_counts_until_its_end_although_its_connection_has_ended() {
    let server = echo().total_handler_limit(1).build().unwrap();
    let start = Instant::now();
    let mut gone = served(server.clone());
    call_within(&mut gone, "Sleep", 1, "3000", secs(60)).await;
    sleep(ms(1)).await;
    // Two that wait for it, of which one goes away too.
    let (mut leaves, mut stays) = (served(server.clone()), served(server.clone()));
    call_within(&mut leaves, "Sleep", 1, "1", secs(60)).await;
    sleep(ms(1)).await;
    call_within(&mut stays, "Sleep", 1, "1", secs(60)).await;
    sleep(ms(1)).await;
    drop((gone, leaves));
    assert_eq!(code(&mut stays, 1).await, Code::OK);
    assert_passed(start, secs(3));
}

// RFC KA-41
#[tokio::test(start_paused = true)]
async fn a_shutdown_lets_calls_end_and_refuses_new_ones() {
    let server = echo().build().unwrap();
    let (client, _) = pair(server.clone(), Client::builder(), 64 << 10);
    let running = {
        let client = client.clone();
        tokio::spawn(async move { sleep_within(&client, secs(2), secs(60)).await })
    };
    sleep(ms(1)).await;
    let stopping = {
        let server = server.clone();
        tokio::spawn(async move { server.shutdown(secs(10)).await })
    };
    sleep(ms(1)).await;
    let error = say(&client).await.unwrap_err();
    assert_eq!(error.status().unwrap().code(), Code::UNAVAILABLE);
    assert!(running.await.unwrap().is_ok());
    assert!(stopping.await.unwrap(), "all ended in time");
    assert!(client.closed().await.is_announced(), "it was told so");
}

// Part 2 number 14
#[tokio::test(start_paused = true)]
async fn a_shutdown_cuts_a_handler_that_never_ends() {
    let seen = Arc::new(AtomicU32::new(0));
    let server = {
        let seen = Arc::clone(&seen);
        Server::builder()
            .service(Service::new("demo.Echo", ()).unary(
                "Say",
                move |(), context, q: StringValue| {
                    let seen = Arc::clone(&seen);
                    async move {
                        let end = context.cancelled().await;
                        seen.fetch_add(1, Ordering::Relaxed);
                        assert!(matches!(
                            end,
                            ConnectionError::LocalClose | ConnectionError::Abandoned
                        ));
                        Ok(q)
                    }
                },
            ))
            .build()
            .unwrap()
    };
    let (client, _) = pair(server.clone(), Client::builder(), 64 << 10);
    let call = {
        let client = client.clone();
        tokio::spawn(async move { say(&client).await })
    };
    sleep(ms(1)).await;
    let start = Instant::now();
    assert!(!server.shutdown(secs(3)).await);
    assert_passed(start, secs(3));
    assert!(call.await.unwrap().unwrap_err().is_connection());
    sleep(ms(1)).await;
    assert_eq!(seen.load(Ordering::Relaxed), 1, "the handler was told");
}

// Part 2 number 15
#[tokio::test]
async fn a_handler_that_stops_its_server_is_answered() {
    for round in 0..50 {
        let server: Arc<std::sync::OnceLock<Server>> = Arc::default();
        let built = {
            let server = Arc::clone(&server);
            Server::builder()
                .service(Service::new("demo.Echo", ()).unary(
                    "Say",
                    move |(), _, q: StringValue| {
                        let server = Arc::clone(&server);
                        async move {
                            let server = server.get().unwrap().clone();
                            tokio::spawn(async move { server.shutdown(secs(10)).await });
                            Ok(q)
                        }
                    },
                ))
                .build()
                .unwrap()
        };
        server.set(built.clone()).unwrap();
        let name = format!(
            "unix://@ttrpc-keepalive-stop-{}-{round}",
            std::process::id()
        );
        let listener = Listener::bind(&name).await.unwrap();
        let serving = tokio::spawn(async move { built.serve(listener).await });
        let client = Client::builder().connect(&name).await.unwrap();
        assert!(say(&client).await.is_ok(), "round {round}");
        timeout(secs(10), serving).await.unwrap().unwrap();
    }
}

/// A server whose handler waits until nobody can receive its answer, and the reasons that it sees.
fn waits_for_the_end() -> (Server, UnboundedReceiver<ConnectionError>) {
    let (told, ends) = unbounded_channel();
    let server = Server::builder()
        .keepalive(Keepalive::every(secs(1)).timeout(secs(1)))
        .service(
            Service::new("demo.Echo", ()).unary("Say", move |(), context, q: StringValue| {
                let told = told.clone();
                async move {
                    told.send(context.cancelled().await).unwrap();
                    Ok::<_, Status>(q)
                }
            }),
        );
    (server.build().unwrap(), ends)
}

// A21
#[tokio::test(start_paused = true)]
async fn a_handler_learns_that_its_caller_is_dead() {
    let (server, mut ends) = waits_for_the_end();
    let mut peer = served(server);
    let start = Instant::now();
    // It has asked, so it may be asked; then it freezes.
    peer.send(ping(1)).await;
    peer.call(1, "Say", "hello").await;
    let end = ends.recv().await.unwrap();
    assert_eq!(end.dead_reason(), Some(DeadReason::Silent));
    assert_passed(start, secs(2));
}

// A21
#[tokio::test(start_paused = true)]
async fn a_handler_learns_that_its_caller_has_gone_away() {
    let (server, mut ends) = waits_for_the_end();
    let mut peer = served(server);
    peer.call(1, "Say", "hello").await;
    sleep(secs(1)).await;
    let start = Instant::now();
    drop(peer);
    let end = ends.recv().await.unwrap();
    assert!(matches!(end, ConnectionError::PeerClosed), "{end}");
    assert_passed(start, secs(0));
}

// A client that sends small requests for large answers and takes none of them: what waits would
// add to what it owes.
#[tokio::test(start_paused = true)]
async fn requests_that_wait_do_not_begin_while_answers_are_not_taken() {
    let begun = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&begun);
    let server =
        echo()
            .handler_limit(2)
            .owed_limit(100_000)
            .service(
                Service::new("demo.Echo", ()).unary("Counted", move |(), _, _: Raw| {
                    counter.fetch_add(1, Ordering::Relaxed);
                    async { Ok(Raw(vec![7; 100_000])) }
                }),
            );
    let server = server.build().unwrap();
    let (here, there) = tokio::io::duplex(4096);
    tokio::spawn(async move { server.serve_connection(here).await });
    let mut peer = Peer::new(there);
    for number in 0..50 {
        peer.call(2 * number + 1, "Counted", "").await;
    }
    sleep(secs(1)).await;
    let some = begun.load(Ordering::Relaxed);
    assert!(some <= 2 + 2 * 2, "{some} have begun");
    for number in 0..50 {
        assert_eq!(peer.expect_response().await.0, 2 * number + 1);
    }
    assert_eq!(begun.load(Ordering::Relaxed), 50);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_parks_goes_on_when_its_answers_are_taken() {
    let server = echo().owed_limit(1000).build().unwrap();
    let (here, there) = tokio::io::duplex(4096);
    tokio::spawn(async move { server.serve_connection(here).await });
    let mut peer = Peer::new(there);
    // The pipe takes 4096 bytes of answers, and the server owes 1,000 more before it parks; the
    // rest of the requests stays in the pipe to it.
    let mut sent = 0u32;
    let long = "x".repeat(500);
    while timeout(secs(1), peer.call(2 * sent + 1, "Say", &long))
        .await
        .is_ok()
    {
        sent += 1;
        assert!(sent < 100, "it never parks");
    }
    // The last request was cut in its middle by the timeout: only the whole ones are answered.
    for _ in 0..sent {
        timeout(secs(1), peer.frame()).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn settings_of_a_server_in_use_can_be_read_and_are_logged_once() {
    let (log, _guard) = Log::begin();
    let options = MethodOptions::new().timeout(secs(17)).call_limit(19);
    let server = echo()
        .keepalive(Keepalive::every(secs(7)))
        .total_handler_limit(2000)
        .waiting_limit(11)
        .method("demo.Echo", "Say", options)
        .build()
        .unwrap();
    let settings = server.settings();
    assert_eq!(settings.keepalive.settings().every, Some(secs(7)));
    assert_eq!(settings.total_handlers, Some(2000));
    let limits = (settings.limits.waiting, settings.limits.handlers);
    assert_eq!(limits, (11, 1024));
    assert_eq!(settings.dispatch, Dispatch::Spawn);

    let (client, _) = pair(server, Client::builder(), 64 << 10);
    for _ in 0..10 {
        say(&client).await.unwrap();
    }
    assert_eq!(log.count("a server is built"), 1);
    let line = log.at_least(Level::DEBUG);
    let line = line.iter().find(|line| line.contains("Every(7s)")).unwrap();
    for part in [
        "waiting: 11",
        "demo.Echo/Say",
        "17s",
        "call_limit: Some(19)",
    ] {
        assert!(line.contains(part), "{part} is missing in {line}");
    }
}
