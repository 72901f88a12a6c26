//! Requests that are found after a pause of this process.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use protobuf::well_known_types::wrappers::{BoolValue, BytesValue};
use support::*;
use tokio::time::{Duration, sleep};
use ttrpc_keepalive::wire::{Flags, Raw, RequestHead, encode_request};
use ttrpc_keepalive::{Code, Context, MethodOptions, Server, ServerBuilder, Service};

/// `Ask` tells in milliseconds how long its request may have waited.
fn asking() -> ServerBuilder {
    Server::builder().service(Service::new("demo.Echo", ()).unary(
        "Ask",
        |(), context, _: Raw| async move {
            let waited = context.may_have_waited().as_millis();
            Ok(Raw(waited.to_string()))
        },
    ))
}

fn ask(id: u32) -> Vec<u8> {
    let head = RequestHead {
        service: "demo.Echo",
        method: "Ask",
        timeout_nano: 2_000_000_000,
        metadata: &[],
    };
    encode_request(id, Flags::NONE, &head, &Raw(b"")).unwrap()
}

type Client = Peer<tokio::io::DuplexStream>;

/// What the next answer says.
async fn waited(peer: &mut Client) -> Duration {
    let (id, response) = peer.expect_response().await;
    assert_eq!(response.status, None, "{id}");
    let millis = std::str::from_utf8(&response.payload).unwrap();
    ms(millis.parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_request_found_after_a_pause_says_how_long_it_may_have_waited() {
    let mut peer = served(asking().observe_pauses().build().unwrap());
    peer.send(ask(1)).await;
    assert_eq!(waited(&mut peer).await, ms(0));
    // However long nothing came.
    sleep(secs(3600)).await;
    peer.send(ask(3)).await;
    assert_eq!(waited(&mut peer).await, ms(0));
    sleep(secs(10)).await;
    peer.send([ask(5), ask(7)].concat()).await;
    pause(secs(6));
    for _ in 0..2 {
        let waited = waited(&mut peer).await;
        assert!(waited >= secs(6) && waited < ms(6300), "{waited:?}");
    }
    // The next one has not, and neither has one after a pause in which nothing came.
    peer.send(ask(9)).await;
    assert_eq!(waited(&mut peer).await, ms(0));
    pause(secs(6));
    sleep(secs(1)).await;
    peer.send(ask(11)).await;
    assert_eq!(waited(&mut peer).await, ms(0));
}

#[tokio::test(start_paused = true)]
async fn a_request_behind_which_another_was_read_can_be_told() {
    let handler = |(), context: Context, _: BytesValue| async move {
        let mut newest = BoolValue::new();
        newest.value = context.is_newest();
        Ok(newest)
    };
    let service = Service::new("demo.Echo", ()).unary("Ask", handler);
    let mut peer = served(Server::builder().service(service).build().unwrap());
    peer.send([ask(1), ask(3), ask(5)].concat()).await;
    for (id, newest) in [(1, false), (3, false), (5, true)] {
        let (answered, response) = peer.expect_response().await;
        assert_eq!((answered, !response.payload.is_empty()), (id, newest));
    }
    peer.send(ask(7)).await;
    let (_, response) = peer.expect_response().await;
    assert!(!response.payload.is_empty());
}

#[tokio::test(start_paused = true)]
async fn all_that_lay_there_has_waited_however_long_it_takes_to_read_it() {
    let mut peer = served(asking().observe_pauses().build().unwrap());
    sleep(secs(1)).await;
    let requests: Vec<u8> = (0..1000).flat_map(|n| ask(2 * n + 1)).collect();
    peer.send(requests).await;
    pause(secs(6));
    for _ in 0..1000 {
        assert!(waited(&mut peer).await >= secs(6));
    }
}

#[tokio::test(start_paused = true)]
async fn a_method_may_refuse_what_has_waited_for_too_long() {
    let refuse = MethodOptions::new().refuse_waited(secs(1));
    let server = asking().method("demo.Echo", "Ask", refuse).build().unwrap();
    assert!(server.settings().observe_pauses);
    let mut peer = served(server.clone());
    peer.send(ask(1)).await;
    assert_eq!(waited(&mut peer).await, ms(0));
    sleep(secs(1)).await;
    peer.send(ask(3)).await;
    pause(secs(2));
    let (answered, response) = peer.expect_response().await;
    assert_eq!(answered, 3);
    let status = response.status.unwrap();
    assert_eq!(status.code(), Code::UNAVAILABLE);
    assert!(status.message().contains("did not run for 2"), "{status}");
    // A caller that tries again at once is served.
    peer.send(ask(5)).await;
    assert_eq!(waited(&mut peer).await, ms(0));
    sleep(secs(1)).await;
    peer.send(ask(1001)).await;
    pause(ms(800));
    assert!(
        waited(&mut peer).await >= ms(800),
        "it is told of it, and runs"
    );
    assert_eq!(server.counters().waited, 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_ask_for_it_looks_at_no_clock_and_knows_of_no_pause() {
    let mut peer = served(asking().build().unwrap());
    sleep(secs(1)).await;
    peer.send(ask(1)).await;
    pause(secs(6));
    assert_eq!(waited(&mut peer).await, ms(0));
}
