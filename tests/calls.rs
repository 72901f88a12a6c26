//! Unary calls between a client and a server of this crate.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::time::Duration;

use protobuf::well_known_types::wrappers::StringValue;
use ttrpc_keepalive::{Client, Code, Context, Server, Status, Verdict};

fn text(value: &str) -> StringValue {
    let mut message = StringValue::new();
    message.value = value.to_owned();
    message
}

fn echo() -> Server {
    Server::builder()
        .unary(
            "demo.Echo",
            "Say",
            |_: Context, request: StringValue| async move { Ok(request) },
        )
        .unary(
            "demo.Echo",
            "Sleep",
            |_: Context, request: StringValue| async move {
                let millis = request
                    .value
                    .parse()
                    .map_err(|_| Status::new(Code::INVALID_ARGUMENT, "not a number"))?;
                tokio::time::sleep(Duration::from_millis(millis)).await;
                Ok(request)
            },
        )
        .build()
        .unwrap()
}

fn pair(capacity: usize) -> Client {
    let (here, there) = tokio::io::duplex(capacity);
    tokio::spawn(async move { echo().serve_connection(there).await });
    Client::builder().attach(here).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_call_returns_what_the_handler_answers() {
    let client = pair(4096);
    let reply: StringValue = client
        .call("demo.Echo", "Say", &text("hello"))
        .await
        .unwrap();
    assert_eq!(reply.value, "hello");
}

#[tokio::test(start_paused = true)]
async fn a_late_call_is_slow_and_the_connection_goes_on() {
    let client = pair(4096);
    let error = client
        .call::<_, StringValue>("demo.Echo", "Sleep", &text("5000"))
        .timeout(Duration::from_secs(1))
        .await
        .unwrap_err();
    println!("{error}");
    assert_eq!(error.verdict(), Some(Verdict::Slow));
    let reply: StringValue = client
        .call("demo.Echo", "Say", &text("hello"))
        .await
        .unwrap();
    assert_eq!(reply.value, "hello");
    println!("{:?}", error.late_answer().unwrap().await);
}
