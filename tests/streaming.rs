//! Streaming calls between a client and a server of this crate.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::future::{Future, poll_fn};
use std::pin::Pin;

use bytes::Bytes;
use futures_core::Stream;
use protobuf::well_known_types::wrappers::StringValue;
use support::*;
use tokio::time::timeout;
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::{
    Client, Code, Context, Error, Receiver, Reply, Requests, Responses, Sender, Server,
    ServerBuilder, Status,
};

const SERVICE: &str = "demo.Stream";

/// `Count` sends so many messages, `Join` answers with all requests in a row, `Echo` sends each
/// back, `Flood` sends 1 KiB each until it cannot.
fn streams() -> ServerBuilder {
    echo()
        .server_stream(
            SERVICE,
            "Count",
            |_: Context, to: StringValue, mut out: Responses<StringValue>| async move {
                for number in 0..to.value.parse().unwrap_or(0u32) {
                    out.send(&text(&number.to_string())).await?;
                }
                Ok(())
            },
        )
        .client_stream(
            SERVICE,
            "Join",
            |_: Context, mut requests: Requests<StringValue>| async move {
                let mut all = String::new();
                while let Some(request) = requests.next().await {
                    all.push_str(&request?.value);
                }
                Ok(text(&all))
            },
        )
        .bidi_stream(
            SERVICE,
            "Echo",
            |_: Context, mut requests: Requests<StringValue>, mut out: Responses<_>| async move {
                while let Some(request) = requests.next().await {
                    out.send(&request?).await?;
                }
                Ok::<_, Status>(())
            },
        )
        .server_stream_bytes(
            SERVICE,
            "Flood",
            |_: Context, _: Bytes, mut out: Responses<[u8]>| async move {
                loop {
                    out.send(&[7; 1024]).await?;
                }
            },
        )
}

fn client_of(server: ServerBuilder) -> Client {
    pair(server.build().unwrap(), Client::builder(), 64 << 10).0
}

async fn count(client: &Client, to: &str) -> Receiver<StringValue> {
    let to = text(to);
    client.server_stream(SERVICE, "Count", &to).await.unwrap()
}

async fn join(client: &Client) -> (Sender<StringValue>, Reply<StringValue>) {
    client.client_stream(SERVICE, "Join").await.unwrap()
}

async fn echoed(client: &Client) -> (Sender<StringValue>, Receiver<StringValue>) {
    client.bidi_stream(SERVICE, "Echo").await.unwrap()
}

/// Runs on four threads, and not for ever.
fn on_threads(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async { timeout(secs(60), test).await.expect("nothing is stuck") });
}

#[tokio::test(start_paused = true)]
async fn a_server_stream_yields_its_messages_in_order_and_ends() {
    let client = client_of(streams());
    let mut receiver = count(&client, "1000").await;
    for number in 0..1000 {
        let message = receiver.next().await.unwrap().unwrap();
        assert_eq!(message.value, number.to_string());
    }
    assert!(receiver.next().await.is_none());
    let mut none = count(&client, "0").await;
    assert!(none.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_client_stream_is_answered_after_its_last_message() {
    let client = client_of(streams());
    let (mut sender, reply) = join(&client).await;
    for part in ["a", "", "b", "c"] {
        sender.send(&text(part)).await.unwrap();
    }
    sender.finish();
    assert_eq!(reply.await.unwrap().value, "abc");
}

#[tokio::test(start_paused = true)]
async fn the_halves_of_a_bidirectional_stream_live_in_tasks_of_their_own() {
    let client = client_of(streams());
    let (mut sender, mut receiver) = echoed(&client).await;
    let sending = tokio::spawn(async move {
        for number in 0..1000 {
            sender.send(&text(&number.to_string())).await.unwrap();
        }
    });
    let receiving = tokio::spawn(async move {
        for number in 0..1000 {
            // As a `Stream`.
            let next = poll_fn(|cx| Pin::new(&mut receiver).poll_next(cx)).await;
            assert_eq!(next.unwrap().unwrap().value, number.to_string());
        }
        assert!(receiver.next().await.is_none());
    });
    sending.await.unwrap();
    receiving.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_message_waits_for_its_answer_and_the_next_one_for_that() {
    let client = client_of(streams());
    let (mut sender, mut receiver) = echoed(&client).await;
    for round in 0..100 {
        sender.send(&text(&round.to_string())).await.unwrap();
        let echo = receiver.next().await.unwrap().unwrap();
        assert_eq!(echo.value, round.to_string());
    }
    sender.finish();
    assert!(receiver.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn streams_of_bytes_carry_what_is_encoded_elsewhere() {
    let server = Server::builder()
        .client_stream_bytes(
            SERVICE,
            "Join",
            |_, mut requests: Requests<Bytes>| async move {
                let mut all = Vec::new();
                while let Some(request) = requests.next().await {
                    all.extend_from_slice(&request?);
                }
                Ok(all.into())
            },
        )
        .bidi_stream_bytes(
            SERVICE,
            "Echo",
            |_, mut requests: Requests<Bytes>, mut out: Responses<[u8]>| async move {
                while let Some(request) = requests.next().await {
                    out.send(&request?).await?;
                }
                Ok(())
            },
        );
    let client = client_of(server);
    let (mut sender, reply) = client.client_stream_bytes(SERVICE, "Join").await.unwrap();
    sender.send(b"\xff").await.unwrap();
    sender.send(b"\0").await.unwrap();
    sender.finish();
    assert_eq!(reply.await.unwrap(), b"\xff\0".as_slice());
    let (mut sender, mut receiver) = client.bidi_stream_bytes(SERVICE, "Echo").await.unwrap();
    sender.send(b"\xff").await.unwrap();
    sender.finish();
    assert_eq!(receiver.next().await.unwrap().unwrap(), b"\xff".as_slice());
    assert!(receiver.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_status_comes_after_the_data_that_was_sent_before_it() {
    for (how, code) in [("status", Code::NOT_FOUND), ("panic", Code::INTERNAL)] {
        let server = Server::builder().server_stream(
            SERVICE,
            "Fail",
            |_: Context, how: StringValue, mut out: Responses<StringValue>| async move {
                out.send(&text("a")).await?;
                out.send(&text("b")).await?;
                assert_ne!(how.value, "panic", "this handler was told to panic");
                Err(Status::new(Code::NOT_FOUND, "no more"))
            },
        );
        let client = client_of(server);
        let how = text(how);
        let call = client.server_stream::<_, StringValue>(SERVICE, "Fail", &how);
        let mut receiver = call.await.unwrap();
        assert_eq!(receiver.next().await.unwrap().unwrap().value, "a");
        assert_eq!(receiver.next().await.unwrap().unwrap().value, "b");
        let error = receiver.next().await.unwrap().unwrap_err();
        assert_eq!(error.status().unwrap().code(), code);
        assert!(receiver.next().await.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_method_that_does_not_exist_is_told_by_the_halves() {
    let client = client_of(echo());
    let (_sender, reply) = join(&client).await;
    let error = reply.await.unwrap_err();
    assert_eq!(error.status().unwrap().code(), Code::UNIMPLEMENTED);
    let (_sender, mut receiver) = echoed(&client).await;
    let error = receiver.next().await.unwrap().unwrap_err();
    assert_eq!(error.status().unwrap().code(), Code::UNIMPLEMENTED);
    // One that takes one request.
    let call = client.client_stream::<StringValue, StringValue>("demo.Echo", "Say");
    let (_sender, reply) = call.await.unwrap();
    let error = reply.await.unwrap_err();
    assert_eq!(error.status().unwrap().code(), Code::UNIMPLEMENTED);
}

// Part 2 number 7
#[tokio::test(start_paused = true)]
async fn a_stream_that_nobody_reads_fails_alone_and_holds_up_nothing() {
    let client = Client::builder().stream_limit(100_000);
    let server = streams().owed_limit(10_000).build().unwrap();
    let client = pair(server, client, 4096).0;
    let call = client.server_stream_bytes(SERVICE, "Flood", b"");
    let mut unread = call.await.unwrap();
    for _ in 0..100 {
        say_within(&client, secs(1)).await.unwrap();
        client.probe(secs(1)).await.unwrap();
    }
    let mut taken = 0;
    let error = loop {
        match unread.next().await.unwrap() {
            Ok(_) => taken += 1,
            Err(error) => break error,
        }
    };
    // 1,024 bytes and 64 beside them for each.
    assert_eq!(taken, 91);
    let Error::StreamOverflow { size, limit } = error else {
        panic!("{error}")
    };
    assert_eq!((size, limit), (92 * 1088, 100_000));
    assert!(unread.next().await.is_none());
    say_within(&client, secs(1)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_takes_nothing_costs_its_own_call() {
    let (told, mut seen) = tokio::sync::mpsc::channel(10);
    let server = streams().stream_limit(10_000).client_stream_bytes(
        SERVICE,
        "Slow",
        move |_: Context, mut requests: Requests<Bytes>| {
            let told = told.clone();
            async move {
                tokio::time::sleep(secs(10)).await;
                let mut taken = 0;
                loop {
                    match requests.next().await {
                        Some(Ok(_)) => taken += 1,
                        Some(Err(status)) => {
                            told.send((taken, status.clone())).await.unwrap();
                            return Err(status);
                        }
                        None => return Ok(Bytes::new()),
                    }
                }
            }
        },
    );
    let client = client_of(server);
    let (mut sender, reply) = client.client_stream_bytes(SERVICE, "Slow").await.unwrap();
    let sending = async {
        while sender.send(&[7; 936]).await.is_ok() {
            tokio::time::sleep(ms(1)).await;
        }
    };
    let ((), error) = tokio::join!(sending, reply);
    let error = error.unwrap_err();
    let status = error.status().unwrap();
    assert_eq!(status.code(), Code::RESOURCE_EXHAUSTED);
    assert!(status.message().contains("11000") && status.message().contains("10000"));
    say_within(&client, secs(1)).await.unwrap();
    let (taken, of_handler) = seen.recv().await.unwrap();
    assert_eq!((taken, &of_handler), (10, status));
}

// Part 2 number 8
#[test]
fn data_and_the_end_behind_it_lose_nothing_ten_thousand_times() {
    on_threads(async {
        let client = client_of(streams());
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move {
                    for _ in 0..1250 {
                        let mut receiver = count(&client, "2").await;
                        assert_eq!(receiver.next().await.unwrap().unwrap().value, "0");
                        assert_eq!(receiver.next().await.unwrap().unwrap().value, "1");
                        assert!(receiver.next().await.is_none());
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[test]
fn order_is_kept_whatever_the_threads_do() {
    on_threads(async {
        let client = Client::builder().outbox_limit(1000);
        let client = pair(streams().build().unwrap(), client, 4096).0;
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move {
                    let (mut sender, mut receiver) = echoed(&client).await;
                    tokio::spawn(async move {
                        for number in 0..2000 {
                            sender.send(&text(&number.to_string())).await.unwrap();
                        }
                    });
                    for number in 0..2000 {
                        let message = receiver.next().await.unwrap().unwrap();
                        assert_eq!(message.value, number.to_string());
                    }
                    assert!(receiver.next().await.is_none());
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

// Part 2 number 12
#[tokio::test(start_paused = true)]
async fn messages_that_encode_to_nothing_are_messages_both_ways() {
    let client = client_of(streams());
    let (mut sender, mut receiver) = echoed(&client).await;
    for _ in 0..3 {
        sender.send(&StringValue::new()).await.unwrap();
        let echo = receiver.next().await.unwrap().unwrap();
        assert_eq!(echo, StringValue::new());
    }
    sender.finish();
    assert!(receiver.next().await.is_none());
    let mut none = count(&client, "").await;
    assert!(none.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_early_reply_ends_the_requests() {
    let server =
        Server::builder().client_stream(
            SERVICE,
            "First",
            |_: Context, mut requests: Requests<StringValue>| async move {
                requests.next().await.unwrap()
            },
        );
    let client = client_of(server);
    let call = client.client_stream::<StringValue, StringValue>(SERVICE, "First");
    let (mut sender, reply) = call.await.unwrap();
    sender.send(&text("a")).await.unwrap();
    assert_eq!(reply.await.unwrap().value, "a");
    let ended = sender.send(&text("b")).await.unwrap_err();
    assert!(matches!(ended, Error::StreamEnded), "{ended}");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_waits_for_room_learns_that_its_stream_has_ended() {
    let (here, there) = tokio::io::duplex(64);
    let client = Client::builder()
        .keepalive(Keepalive::off())
        .outbox_limit(200);
    let client = client.attach(here).unwrap();
    let mut peer = Peer::new(there);
    let (mut first, _first) = client.client_stream_bytes(SERVICE, "Up").await.unwrap();
    let (mut second, reply) = client.client_stream_bytes(SERVICE, "Up").await.unwrap();
    peer.request().await;
    peer.request().await;
    first.send(&[1; 300]).await.unwrap();
    let waiting = tokio::spawn(async move { first.send(&[1; 300]).await });
    let behind = tokio::spawn(async move { second.send(&[2; 300]).await });
    tokio::time::sleep(secs(1)).await;
    peer.send(ttrpc_keepalive::wire::encode_response(3, &text("early")).unwrap())
        .await;
    reply.await.unwrap();
    let ended = timeout(secs(1), behind).await.expect("it is told").unwrap();
    assert!(matches!(ended, Err(Error::StreamEnded)));
    assert!(!waiting.is_finished());
    client.abort();
    let end = timeout(secs(1), waiting)
        .await
        .expect("it is told")
        .unwrap();
    assert!(end.unwrap_err().is_connection());
}

#[tokio::test(start_paused = true)]
async fn a_message_needs_no_room_among_the_calls() {
    let client = Client::builder().call_limit(1).outbox_limit(100);
    let client = pair(streams().build().unwrap(), client, 64).0;
    let (mut sender, mut receiver) = echoed(&client).await;
    // It waits for the stream to end, which cannot end before it has sent.
    let mut waiting = Box::pin(say(&client));
    poll_once(waiting.as_mut());
    let sending = async {
        for _ in 0..10 {
            sender.send(&text(&"x".repeat(100))).await.unwrap();
        }
        sender.finish();
    };
    let receiving = async {
        for _ in 0..10 {
            receiver.next().await.unwrap().unwrap();
        }
        assert!(receiver.next().await.is_none());
    };
    let both = async { tokio::join!(sending, receiving) };
    timeout(secs(60), both).await.expect("nothing is stuck");
    waiting.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_message_too_large_is_refused_and_the_stream_goes_on() {
    let client = client_of(streams());
    let (mut sender, reply) = join(&client).await;
    let large = text(&"x".repeat(4 << 20));
    let error = sender.send(&large).await.unwrap_err();
    assert!(matches!(error, Error::RequestTooLarge(_)), "{error}");
    sender.send(&text("a")).await.unwrap();
    sender.finish();
    assert_eq!(reply.await.unwrap().value, "a");
}

#[tokio::test(start_paused = true)]
async fn dropped_streams_leave_nothing_behind() {
    let client = Client::builder().call_limit(1);
    let server = streams().handler_limit(1).build().unwrap();
    let client = pair(server, client, 4096).0;
    for round in 0..100 {
        let (mut sender, receiver) = echoed(&client).await;
        sender.send(&text("a")).await.unwrap();
        if round % 2 == 0 {
            tokio::time::sleep(ms(1)).await;
        }
        drop(receiver);
        if round % 3 == 0 {
            sender.send(&text("b")).await.unwrap();
        }
        drop(sender);
        drop(count(&client, "10").await);
        let (sender, reply) = join(&client).await;
        drop(reply);
        sender.finish();
        // There is room for one call here and one handler there.
        say_within(&client, secs(1)).await.unwrap();
    }
    assert_eq!(client.snapshot().late_calls_unanswered(), 0);
}

#[tokio::test(start_paused = true)]
async fn requests_that_nobody_receives_do_not_hold_up_the_answer() {
    let server = Server::builder().bidi_stream(
        SERVICE,
        "Deaf",
        |_: Context, requests: Requests<StringValue>, mut out: Responses<StringValue>| async move {
            drop(requests);
            tokio::time::sleep(secs(5)).await;
            out.send(&text("done")).await
        },
    );
    let client = client_of(server.stream_limit(1000));
    let call = client.bidi_stream::<StringValue, StringValue>(SERVICE, "Deaf");
    let (mut sender, mut receiver) = call.await.unwrap();
    tokio::time::sleep(secs(1)).await;
    for _ in 0..100 {
        sender.send(&text(&"x".repeat(1000))).await.unwrap();
    }
    assert_eq!(receiver.next().await.unwrap().unwrap().value, "done");
    assert!(receiver.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_stream_outlives_the_last_handle_and_then_the_connection_closes() {
    let client = client_of(streams());
    let liveness = client.liveness();
    let (mut sender, mut receiver) = echoed(&client).await;
    drop(client);
    tokio::time::sleep(secs(60)).await;
    sender.send(&text("a")).await.unwrap();
    assert_eq!(receiver.next().await.unwrap().unwrap().value, "a");
    sender.finish();
    assert!(receiver.next().await.is_none());
    let mut liveness = liveness;
    timeout(secs(1), async { while liveness.next().await.is_some() {} })
        .await
        .expect("it closes");
}

#[tokio::test(start_paused = true)]
async fn responses_that_are_not_taken_wait_in_their_sender_and_requests_are_still_read() {
    let (sent, seen) = tokio::sync::watch::channel(0);
    let server = echo().owed_limit(10_000).server_stream_bytes(
        SERVICE,
        "Watch",
        move |_: Context, _: Bytes, mut out: Responses<[u8]>| {
            let sent = sent.clone();
            async move {
                loop {
                    out.send(&[7; 1000]).await?;
                    sent.send_modify(|sent| *sent += 1);
                }
            }
        },
    );
    let (here, there) = tokio::io::duplex(4096);
    let server = server.build().unwrap();
    tokio::spawn(async move { server.serve_connection(here).await });
    let mut peer = Peer::new(there);
    let flags = ttrpc_keepalive::wire::Flags::REMOTE_CLOSED;
    peer.open(1, "Watch", flags, b"").await;
    tokio::time::sleep(secs(60)).await;
    let waits_at = *seen.borrow();
    assert!((10..20).contains(&waits_at), "{waits_at}");
    // More than the pipe holds: it is read although nothing is taken.
    let message = "x".repeat(100);
    for id in 1..100 {
        let call = peer.call(2 * id + 1, "Say", &message);
        timeout(secs(1), call).await.expect("the server reads");
    }
}
