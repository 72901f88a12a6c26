//! A call owns what it needs: it is spawned, kept, and polled beside others as it is.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::sync::{Arc, Mutex};

use protobuf::well_known_types::wrappers::StringValue;
use support::*;
use tokio::task::JoinSet;
use tokio::time::sleep;
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::{AtEnd, Call, Client, ConnectionError, Error, StreamCall};

fn say_text(client: &Client, value: &str) -> Call<StringValue> {
    // Neither the names nor the message need to live on.
    let (service, method) = ("demo.Echo".to_owned(), "Say".to_owned());
    client.call(&service, &method, &text(value))
}

#[tokio::test(start_paused = true)]
async fn a_call_is_spawned_and_selected_on_as_it_is() {
    let (client, freezer) = echo_pair(Keepalive::on_demand());
    let reply = tokio::spawn(say_text(&client, "spawned").timeout(secs(1)));
    assert_eq!(reply.await.unwrap().unwrap().value, "spawned");

    let mut all = JoinSet::new();
    for number in 0..10 {
        all.spawn(say_text(&client, &number.to_string()).metadata("k", "v"));
    }
    let mut said: Vec<_> = all.join_all().await;
    said.sort_by_key(|reply| reply.as_ref().unwrap().value.clone());
    assert_eq!(said[9].as_ref().unwrap().value, "9");

    freezer.freeze();
    let mut slow = say_text(&client, "slow").timeout(secs(5));
    tokio::select! {
        reply = &mut slow => panic!("{reply:?}"),
        () = sleep(secs(1)) => freezer.thaw(),
    }
    assert_eq!(slow.await.unwrap().value, "slow");
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_opened_in_a_task_of_its_own() {
    let client = client_of(streams());
    let call = client.bidi_stream::<StringValue, StringValue>(SERVICE, "Echo");
    let (sender, mut receiver) = tokio::spawn(call.timeout(secs(5))).await.unwrap().unwrap();
    sender.send(&text("x")).await.unwrap();
    assert_eq!(receiver.next().await.unwrap().unwrap().value, "x");
    let down: StreamCall<_> = client.server_stream(SERVICE, "Count", &text("1"));
    let mut down: ttrpc_keepalive::Receiver<StringValue> =
        tokio::spawn(down).await.unwrap().unwrap();
    assert_eq!(down.next().await.unwrap().unwrap().value, "0");
}

#[tokio::test(start_paused = true)]
async fn a_call_holds_its_connection_when_its_client_is_gone() {
    let (client, mut peer) = scripted(Keepalive::off(), 64 << 10);
    let call = say_text(&client, "x");
    drop(client);
    sleep(secs(1)).await;
    let (reply, ()) = tokio::join!(call, async {
        let (id, _) = peer.request().await;
        peer.respond(id).await;
    });
    reply.unwrap();
    assert!(peer.next().await.is_none(), "the last call is gone");

    // Nor does one that nobody awaits hold it longer than it is kept.
    let (client, mut peer) = scripted(Keepalive::off(), 64 << 10);
    drop((say_text(&client, "never"), client));
    assert!(peer.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waited_says_what_is_left_of_its_time_and_all_of_the_rest() {
    let limited = Client::builder().keepalive(Keepalive::off()).call_limit(1);
    let (client, mut peer) = attached(limited, 64 << 10);
    let first = tokio::spawn(say_text(&client, "first"));
    peer.request().await;
    let long = "x".repeat(200);
    let call = say_text(&client, "second").metadata("key", &long);
    let second = tokio::spawn(call.timeout(secs(60)));
    sleep(secs(50)).await;
    peer.respond(1).await;
    let (id, request) = peer.request().await;
    let timeout = u64::try_from(request.timeout_nano).unwrap();
    assert!(
        (9_000_000_000..=10_000_000_000).contains(&timeout),
        "{timeout}"
    );
    let metadata = request.metadata.as_slice();
    assert_eq!(metadata, [("key".to_owned(), long)]);
    assert_eq!((&*request.service, &*request.method), ("demo.Echo", "Say"));
    peer.respond(id).await;
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_hook_knows_the_names_of_a_call_that_is_too_large() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let builder = Client::builder().hook(move |call| {
        let names = format!("{}/{}", call.service(), call.method());
        noted.lock().unwrap().push(names);
        Ok(AtEnd::nothing())
    });
    let (client, _) = pair(echo().build().unwrap(), builder, 4096);
    let error = say_text(&client, &"x".repeat(4 << 20)).await.unwrap_err();
    assert!(matches!(error, Error::RequestTooLarge(_)), "{error}");
    // With its metadata it is.
    let large = say_text(&client, &"x".repeat((4 << 20) - 30));
    let error = large.metadata("k", "0123456789").await.unwrap_err();
    assert!(matches!(error, Error::RequestTooLarge(_)), "{error}");
    say_text(&client, "x").await.unwrap();
    assert_eq!(*seen.lock().unwrap(), ["demo.Echo/Say"; 3]);
    client.abort();
    let error = say_text(&client, "x").await.unwrap_err();
    assert!(
        matches!(error, Error::Connection(ConnectionError::LocalClose, _)),
        "{error}"
    );
}
