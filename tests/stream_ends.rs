//! Halves of streams: shared by several senders, and ended as a handler decides.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::sync::Arc;

use protobuf::well_known_types::wrappers::{Int64Value, StringValue};
use support::*;
use tokio::task::JoinSet;
use ttrpc_keepalive::testing::TestCall;
use ttrpc_keepalive::{
    CallOptions, Client, Code, Context, Requests, Responses, Server, Service, Status,
};

fn text(value: &str) -> StringValue {
    let mut text = StringValue::new();
    value.clone_into(&mut text.value);
    text
}

/// A stream that sends its first request back, twice, and ends as the second one says.
async fn serve(
    (): (),
    mut requests: Requests<StringValue>,
    responses: Responses<StringValue>,
) -> Result<Option<StringValue>, Status> {
    let Some(first) = requests.next().await else {
        return Ok(Some(text("nothing came")));
    };
    let first = first?;
    match first.value.as_str() {
        "many" => {
            responses.send(&first).await?;
            responses.send(&first).await?;
            Ok(None)
        }
        "one" => Ok(Some(first)),
        _ => Err(Status::new(Code::INVALID_ARGUMENT, "neither")),
    }
}

fn client() -> Client {
    let service = Service::new("demo.Any", ())
        .stream("Kind", |_, _: Context, requests, responses| {
            serve((), requests, responses)
        });
    let server = Server::builder().service(service).build().unwrap();
    let (here, there) = tokio::io::duplex(4096);
    tokio::spawn(async move { server.serve_connection(there).await });
    Client::builder().attach(here).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_handler_decides_with_its_end_which_kind_its_method_is() {
    let client = client();
    // As a method with one request and many responses.
    for (request, expected) in [("many", vec!["many", "many"]), ("one", vec!["one"])] {
        let request = text(request);
        let call = client.server_stream::<_, StringValue>("demo.Any", "Kind", &request);
        let mut responses = call.await.unwrap();
        let mut came = Vec::new();
        while let Some(response) = responses.next().await {
            came.push(response.unwrap().value);
        }
        assert_eq!(came, expected);
    }
    // As one with many requests and one response.
    let call = client.client_stream::<StringValue, StringValue>("demo.Any", "Kind");
    let (requests, reply) = call.await.unwrap();
    requests.send(&text("one")).await.unwrap();
    assert_eq!(reply.await.unwrap().value, "one");
    let call = client.client_stream::<StringValue, StringValue>("demo.Any", "Kind");
    let (requests, reply) = call.await.unwrap();
    requests.finish();
    assert_eq!(reply.await.unwrap().value, "nothing came");
    // As one with many of both, which fails.
    let call = client.bidi_stream::<StringValue, StringValue>("demo.Any", "Kind");
    let (requests, mut responses) = call.await.unwrap();
    requests.send(&text("else")).await.unwrap();
    let failed = responses.next().await.unwrap().unwrap_err();
    assert_eq!(failed.status().unwrap().message(), "neither");
}

/// A message of which three have room.
fn numbered(number: u32) -> StringValue {
    text(&format!("{number:03}{}", "x".repeat(30_000)))
}

/// Waits until all have been sent.
async fn all(mut sending: JoinSet<()>) {
    while let Some(sent) = sending.join_next().await {
        sent.unwrap();
    }
}

/// `Up` checks that the messages come in their order, and says how many there were; `Down` sends 300, each
/// in a task of its own.
fn crowded(limit: usize) -> Client {
    let service = Service::new("demo.Crowd", ())
        .client_stream(
            "Up",
            |_, _: Context, mut requests: Requests<StringValue>| async move {
                let mut count = 0;
                while let Some(request) = requests.next().await {
                    assert!(request? == numbered(count));
                    count += 1;
                }
                Ok(text(&count.to_string()))
            },
        )
        .server_stream(
            "Down",
            |_, _: Context, _: StringValue, responses: Responses<StringValue>| async move {
                let responses = Arc::new(responses);
                let mut sending = JoinSet::new();
                for number in 0..300 {
                    let responses = Arc::clone(&responses);
                    sending.spawn(async move { responses.send(&numbered(number)).await.unwrap() });
                }
                all(sending).await;
                Ok(())
            },
        );
    let server = Server::builder().service(service).owed_limit(limit);
    let server = server.build().unwrap();
    let (here, there) = tokio::io::duplex(4096);
    tokio::spawn(async move { server.serve_connection(there).await });
    let client = Client::builder().outbox_limit(limit);
    client.attach(here).unwrap()
}

// Of senders that wait for room only one has a place in the queue of the connection; each behind it must
// be let in all the same, in the order in which they came.
#[tokio::test(start_paused = true)]
async fn senders_that_share_a_half_are_let_in_one_after_the_other() {
    let client = crowded(100_000);
    let call = client.client_stream::<StringValue, StringValue>("demo.Crowd", "Up");
    let (sender, reply) = call.await.unwrap();
    let sender = Arc::new(sender);
    let mut sending = JoinSet::new();
    for number in 0..300 {
        let sender = Arc::clone(&sender);
        sending.spawn(async move { sender.send(&numbered(number)).await.unwrap() });
    }
    drop(sender);
    all(sending).await;
    // The last one who held the half has ended the requests.
    assert_eq!(reply.await.unwrap().value, "300");

    let request = text("");
    let call = client.server_stream::<_, StringValue>("demo.Crowd", "Down", &request);
    let mut receiver = call.await.unwrap();
    for number in 0..300 {
        assert!(receiver.next().await.unwrap().unwrap() == numbered(number));
    }
    assert!(receiver.next().await.is_none());
}

// A message that is given up while it waits must not keep those behind it, nor those on other streams.
#[tokio::test(start_paused = true)]
async fn a_sender_that_gives_up_lets_the_next_one_in() {
    let (here, mut there) = tokio::io::duplex(4096);
    let client = Client::builder()
        .outbox_limit(100_000)
        .attach(here)
        .unwrap();
    let open = || client.client_stream::<StringValue, StringValue>("demo.S", "M");
    let ((first, _reply), (second, _other)) = (open().await.unwrap(), open().await.unwrap());
    let first = Arc::new(first);
    let mut sending = JoinSet::new();
    for number in 0..10 {
        let sender = Arc::clone(&first);
        sending.spawn(async move { sender.send(&numbered(number)).await.unwrap() });
    }
    tokio::time::sleep(secs(1)).await;
    let behind = tokio::spawn(async move { second.send(&numbered(0)).await.unwrap() });
    tokio::time::sleep(secs(1)).await;
    assert!(!behind.is_finished());
    // The one in front is among them.
    sending.abort_all();
    let last = tokio::spawn(async move { first.send(&numbered(0)).await.unwrap() });
    tokio::spawn(async move { tokio::io::copy(&mut there, &mut tokio::io::sink()).await });
    behind.await.unwrap();
    last.await.unwrap();
}

// `TestCall` stands for a caller that goes, a server that shuts down and a handler that ends.
#[tokio::test(start_paused = true)]
async fn a_test_plays_both_ends_of_a_call() {
    let options = CallOptions::new().timeout(secs(2));
    let mut call = TestCall::<Int64Value, Int64Value>::open("demo.S", "M", &options)
        .await
        .unwrap();
    let second = call
        .client
        .bidi_stream::<Int64Value, Int64Value>("demo.S", "M");
    let (_requests, mut responses) = second.await.unwrap();
    let refused = responses.next().await.unwrap().unwrap_err();
    assert_eq!(refused.status().unwrap().code(), Code::INTERNAL);
    assert!(!call.context.is_draining());

    let server = call.server.clone();
    let down = tokio::spawn(async move { server.shutdown(secs(1)).await });
    call.context.draining().await;
    call.handler
        .end(Err(Status::new(Code::ABORTED, "so it ends")));
    let end = call.receiver.next().await.unwrap().unwrap_err();
    assert_eq!(end.status().unwrap().message(), "so it ends");
    assert!(down.await.unwrap());

    let options = CallOptions::new();
    let call = TestCall::<Int64Value, Int64Value>::open("demo.S", "M", &options)
        .await
        .unwrap();
    drop((call.client, call.sender, call.receiver));
    call.context.cancelled().await;
}
