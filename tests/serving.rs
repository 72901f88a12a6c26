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
use tokio::time::{Instant, sleep, timeout};
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::wire::ping;
use ttrpc_keepalive::{
    Client, Code, ConnectionError, Context, DeadReason, Listener, Server, Status,
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
    assert!(matches!(client.closed().await, ConnectionError::PeerClosed));
}

// Part 2 number 14
#[tokio::test(start_paused = true)]
async fn a_shutdown_cuts_a_handler_that_never_ends() {
    let seen = Arc::new(AtomicU32::new(0));
    let server = {
        let seen = Arc::clone(&seen);
        Server::builder()
            .unary(
                "demo.Echo",
                "Say",
                move |context: Context, q: StringValue| {
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
            )
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
                .unary("demo.Echo", "Say", move |_: Context, q: StringValue| {
                    let server = Arc::clone(&server);
                    async move {
                        let server = server.get().unwrap().clone();
                        tokio::spawn(async move { server.shutdown(secs(10)).await });
                        Ok(q)
                    }
                })
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

#[tokio::test(start_paused = true)]
async fn a_handler_learns_that_its_caller_is_dead() {
    let (told, end) = tokio::sync::mpsc::unbounded_channel();
    let mut end = end;
    let server = Server::builder()
        .keepalive(Keepalive::every(secs(1)).timeout(secs(1)))
        .unary(
            "demo.Echo",
            "Say",
            move |context: Context, q: StringValue| {
                let told = told.clone();
                async move {
                    told.send(context.cancelled().await).unwrap();
                    Ok::<_, Status>(q)
                }
            },
        )
        .build()
        .unwrap();
    let mut peer = served(server);
    let start = Instant::now();
    // It has asked, so it may be asked; then it freezes.
    peer.send(ping(1)).await;
    peer.call(1, "Say", "hello").await;
    let end = end.recv().await.unwrap();
    assert_eq!(end.dead_reason(), Some(DeadReason::Silent));
    assert_passed(start, secs(2));
}

// RFC KA-50
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
