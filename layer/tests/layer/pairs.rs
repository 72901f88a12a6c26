//! The layer around unmodified ttrpc-rust, with this project's client and server at the other end,
//! and with ttrpc-rust as it is.

use std::collections::HashMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use protobuf::Message;
use protobuf::well_known_types::wrappers::StringValue;
use tokio::io::{DuplexStream, duplex};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use ttrpc::r#async::transport::{Listener, Socket};
use ttrpc::r#async::{MethodHandler, Service, TtrpcContext};
use ttrpc_keepalive::{Client, Server, Verdict};
use ttrpc_keepalive_layer::{Keepalive, Layered, Liveness, Peer as Summary, State, Support};

use crate::peer::*;

/// ttrpc-rust's client on a layered stream.
fn old_client(stream: DuplexStream, keepalive: &Keepalive) -> (ttrpc::r#async::Client, Liveness) {
    let layered = Layered::client(stream, keepalive).unwrap();
    let liveness = layered.liveness();
    (ttrpc::r#async::Client::new(Socket::new(layered)), liveness)
}

async fn ask(
    client: &ttrpc::r#async::Client,
    text: &str,
    limit: Duration,
) -> ttrpc::Result<String> {
    let mut message = StringValue::new();
    message.value = text.to_owned();
    let request = ttrpc::Request {
        service: "demo.Echo".into(),
        method: "Say".into(),
        payload: message.write_to_bytes().unwrap(),
        timeout_nano: i64::try_from(limit.as_nanos()).unwrap(),
        ..Default::default()
    };
    let response = client.request(request).await?;
    Ok(StringValue::parse_from_bytes(&response.payload)
        .unwrap()
        .value)
}

/// Waits as many milliseconds as the text says, if it says a number.
async fn work(text: &str) {
    if let Ok(millis) = text.parse() {
        sleep(ms(millis)).await;
    }
}

struct Say;

#[async_trait]
impl MethodHandler for Say {
    async fn handler(
        &self,
        _: TtrpcContext,
        request: ttrpc::Request,
    ) -> ttrpc::Result<ttrpc::Response> {
        let message = StringValue::parse_from_bytes(&request.payload).unwrap();
        work(&message.value).await;
        Ok(ttrpc::Response {
            payload: request.payload,
            ..Default::default()
        })
    }
}

/// ttrpc-rust's server on one stream. It serves while it is kept.
async fn old_server<S>(stream: S) -> ttrpc::r#async::Server
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Sync + Unpin + 'static,
{
    let say: Box<dyn MethodHandler + Send + Sync> = Box::new(Say);
    let service = Service {
        methods: HashMap::from([("Say".to_owned(), say)]),
        streams: HashMap::new(),
    };
    let mut server = ttrpc::r#async::Server::new()
        .add_listener(Listener::new(One(Some(stream))))
        .register_service(HashMap::from([("demo.Echo".to_owned(), service)]));
    server.start().await.unwrap();
    server
}

/// Yields one connection, and then waits.
struct One<S>(Option<S>);

impl<S: Unpin> futures_core::Stream for One<S> {
    type Item = std::io::Result<S>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.0.take() {
            Some(stream) => Poll::Ready(Some(Ok(stream))),
            None => Poll::Pending,
        }
    }
}

/// This project's server on one stream, which stops when it is told to.
fn new_server(stream: DuplexStream) -> Arc<AtomicBool> {
    let server = Server::builder()
        .service(ttrpc_keepalive::Service::new("demo.Echo", ()).unary(
            "Say",
            |(), _, request: StringValue| async move {
                work(&request.value).await;
                Ok(request)
            },
        ))
        .build()
        .unwrap();
    let frozen = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&frozen);
    tokio::spawn(async move {
        let mut serving = pin!(server.serve_connection(stream));
        std::future::poll_fn(|cx| match stop.load(Ordering::Relaxed) {
            true => Poll::Pending,
            false => serving.as_mut().poll(cx),
        })
        .await
    });
    frozen
}

#[tokio::test(start_paused = true)]
async fn an_old_client_finds_a_new_server_slow_and_then_frozen() {
    let (here, there) = duplex(64 << 10);
    let (client, liveness) = old_client(here, &watch());
    let frozen = new_server(there);
    assert_eq!(ask(&client, "hello", secs(2)).await.unwrap(), "hello");
    assert_eq!(liveness.snapshot().support(), Support::Yes);

    assert!(ask(&client, "5000", secs(2)).await.is_err());
    let seen = liveness.snapshot();
    assert_eq!(seen.peer(), Summary::Alive);
    assert_eq!(ask(&client, "again", secs(2)).await.unwrap(), "again");
    sleep(secs(5)).await;
    assert_eq!(liveness.snapshot().counters().late_responses, 1);

    frozen.store(true, Ordering::Relaxed);
    let start = Instant::now();
    assert!(ask(&client, "hello", secs(60)).await.is_err());
    assert!(start.elapsed() <= secs(2) + ms(10), "{:?}", start.elapsed());
    let state = liveness.snapshot().state();
    assert!(matches!(state, State::Dead(_)), "{state}");
}

#[tokio::test(start_paused = true)]
async fn a_new_client_judges_an_old_server_by_its_layer() {
    let (here, there) = duplex(64 << 10);
    let layered = Layered::server(there, &watch()).unwrap();
    let liveness = layered.liveness();
    let _server = old_server(layered).await;
    let client = Client::builder().attach(here).unwrap();
    let say = |text: &str, limit: Duration| {
        let mut request = StringValue::new();
        request.value = text.to_owned();
        let client = client.clone();
        async move {
            let call = client.call::<_, StringValue>("demo.Echo", "Say", &request);
            call.timeout(limit).await
        }
    };
    assert_eq!(say("hello", secs(2)).await.unwrap().value, "hello");
    assert_eq!(client.snapshot().support(), Support::Yes);
    let late = say("5000", secs(2)).await.unwrap_err();
    assert_eq!(late.verdict(), Some(Verdict::Slow));
    // The layer of the server asks as well, since it has been asked.
    assert_eq!(liveness.snapshot().support(), Support::Yes);
    sleep(secs(10)).await;
    assert!(liveness.snapshot().rtt().is_some());
    assert_eq!(liveness.snapshot().peer(), Summary::Alive);
}

#[tokio::test(start_paused = true)]
async fn two_old_ones_with_a_layer_each_judge_each_other() {
    let (here, there) = duplex(64 << 10);
    let (client, of_server) = old_client(here, &watch());
    let layered = Layered::server(there, &watch()).unwrap();
    let of_client = layered.liveness();
    let _server = old_server(layered).await;
    assert_eq!(ask(&client, "hello", secs(0)).await.unwrap(), "hello");
    sleep(secs(60)).await;
    for liveness in [of_server, of_client] {
        let seen = liveness.snapshot();
        assert_eq!(
            (seen.support(), seen.peer()),
            (Support::Yes, Summary::Alive)
        );
        assert!(seen.counters().keepalive.pongs_received > 10);
        assert_eq!(seen.counters().keepalive.suspect_entries, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn an_old_server_without_a_layer_is_served_as_before_and_not_judged() {
    let (here, there) = duplex(64 << 10);
    let (client, liveness) = old_client(here, &watch());
    let _server = old_server(there).await;
    assert_eq!(ask(&client, "hello", secs(2)).await.unwrap(), "hello");
    assert!(ask(&client, "5000", secs(2)).await.is_err());
    sleep(secs(60)).await;
    assert_eq!(ask(&client, "hello", secs(2)).await.unwrap(), "hello");
    let seen = liveness.snapshot();
    assert_eq!((seen.support(), seen.peer()), (Support::No, Summary::Alive));
    assert_eq!(seen.counters().keepalive.pings_sent, 1);
}

#[tokio::test(start_paused = true)]
async fn an_old_client_without_a_layer_is_sent_no_ping() {
    let (here, there) = duplex(64 << 10);
    let client = ttrpc::r#async::Client::new(Socket::new(here));
    let layered = Layered::server(there, &watch()).unwrap();
    let liveness = layered.liveness();
    let _server = old_server(layered).await;
    assert_eq!(ask(&client, "hello", secs(2)).await.unwrap(), "hello");
    sleep(secs(60)).await;
    assert_eq!(ask(&client, "hello", secs(2)).await.unwrap(), "hello");
    let seen = liveness.snapshot();
    assert_eq!(
        (seen.support(), seen.peer()),
        (Support::Unknown, Summary::Alive)
    );
    assert_eq!(seen.counters().keepalive.pings_sent, 0);
}

#[tokio::test(start_paused = true)]
async fn many_calls_of_any_size_pass_while_pings_come_all_the_time() {
    let (here, there) = duplex(5000);
    let busy = Keepalive::every(ms(10)).timeout(secs(5));
    let layered = Layered::client(here, &busy).unwrap();
    let liveness = layered.liveness();
    let client = Client::builder()
        .keepalive(Keepalive::off())
        .attach(ttrpc_keepalive::ByteStream::new(layered))
        .unwrap();
    let _frozen = new_server(there);
    let mut calls = JoinSet::new();
    for number in 0..200_usize {
        let client = client.clone();
        calls.spawn(async move {
            let mut request = StringValue::new();
            request.value = "x".repeat(number * number);
            let call = client.call::<_, StringValue>("demo.Echo", "Say", &request);
            assert_eq!(call.await.unwrap(), request);
        });
    }
    while let Some(ended) = calls.join_next().await {
        ended.unwrap();
    }
    sleep(secs(1)).await;
    assert!(liveness.snapshot().counters().keepalive.pongs_received > 50);
}
