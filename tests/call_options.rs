//! What several calls have in common, and what a handler that calls on tells its caller.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use protobuf::well_known_types::wrappers::StringValue;
use support::*;
use ttrpc_keepalive::testing::TestCall;
use ttrpc_keepalive::{CallOptions, Client, Code, Context, Error, Server, Service, Status};

/// `Tell` answers with all metadata and the seconds that are left.
fn telling() -> Service<()> {
    Service::new("demo.Options", ()).unary(
        "Tell",
        |_, context: Context, _: StringValue| async move {
            let left = context.remaining().map(|left| left.as_secs());
            let mut told = StringValue::new();
            told.value = format!("{:?} {left:?}", context.metadata());
            Ok(told)
        },
    )
}

async fn told(client: &Client, options: &CallOptions) -> String {
    let request = StringValue::new();
    let call = client.call::<_, StringValue>("demo.Options", "Tell", &request);
    call.timeout(secs(9)).options(options).await.unwrap().value
}

#[tokio::test(start_paused = true)]
async fn options_are_used_for_many_calls_and_say_only_what_is_set() {
    let server = Server::builder().service(telling()).build().unwrap();
    let (here, there) = tokio::io::duplex(4096);
    tokio::spawn(async move { server.serve_connection(there).await });
    let client = Client::builder().attach(here).unwrap();

    let tenant = CallOptions::new().metadata("Tenant", "one");
    let short = tenant.clone().timeout(secs(2));
    for _ in 0..2 {
        assert_eq!(
            told(&client, &tenant).await,
            r#"[("tenant", "one")] Some(9)"#
        );
        assert_eq!(
            told(&client, &short).await,
            r#"[("tenant", "one")] Some(2)"#
        );
    }
    let endless = CallOptions::new().no_timeout();
    assert_eq!(told(&client, &endless).await, "[] None");
}

#[tokio::test(start_paused = true)]
async fn streams_take_options_and_their_ids_are_those_of_the_connection() {
    let options = CallOptions::new().metadata("k", "v").timeout(secs(5));
    let call = TestCall::<StringValue, StringValue>::open("demo.S", "M", &options);
    let call = call.await.unwrap();
    assert_eq!(call.context.stream_id(), 1);
    assert_eq!(call.context.values("k").collect::<Vec<_>>(), ["v"]);
    assert_eq!(call.context.remaining(), Some(secs(5)));
}

// Each kind of failure, as the handler of another server meets it.
#[tokio::test(start_paused = true)]
async fn a_handler_that_calls_on_tells_what_kind_of_failure_it_was() {
    let next = Service::new("demo.Next", ())
        .unary("No", |_, _: Context, _: StringValue| async move {
            Err::<StringValue, _>(Status::new(Code::NOT_FOUND, "no such pod"))
        })
        .unary("Leave", |_, _: Context, _: StringValue| async move {
            Err::<StringValue, _>(Status::shutting_down())
        })
        .unary("Sleep", |_, _: Context, request: StringValue| async move {
            tokio::time::sleep(secs(60)).await;
            Ok(request)
        });
    let server = Server::builder().service(next).build().unwrap();
    let (here, there) = tokio::io::duplex(4096);
    tokio::spawn(async move { server.serve_connection(there).await });
    let client = Client::builder().attach(here).unwrap();
    let ask = async |method| {
        let request = StringValue::new();
        let call = client.call::<_, StringValue>("demo.Next", method, &request);
        Status::from(call.timeout(secs(1)).await.unwrap_err())
    };

    assert_eq!(ask("No").await, Status::new(Code::NOT_FOUND, "no such pod"));
    assert_eq!(ask("Sleep").await.code(), Code::DEADLINE_EXCEEDED);
    // It is not this server that shuts down.
    let leaving = ask("Leave").await;
    assert_eq!(leaving.code(), Code::UNAVAILABLE);
    assert!(!leaving.announces_shutdown());

    client.abort();
    let gone = ask("No").await;
    assert_eq!(gone.code(), Code::UNAVAILABLE);
    assert_eq!(
        gone.message(),
        "the connection has ended: this side closed it"
    );
    assert_eq!(Status::from(Error::StreamEnded).code(), Code::CANCELLED);
}
