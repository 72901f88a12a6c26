//! Streaming calls between a client and a server of this crate.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::future::poll_fn;
use std::pin::Pin;

use futures_core::Stream;
use protobuf::well_known_types::wrappers::StringValue;
use support::*;
use tokio::time::timeout;
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::{
    Client, Code, Decode, Encode, Error, Raw, Requests, Responses, Server, Service, Status,
};

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
    let (sender, reply) = join(&client).await;
    for part in ["a", "", "b", "c"] {
        sender.send(&text(part)).await.unwrap();
    }
    sender.finish();
    assert_eq!(reply.await.unwrap().value, "abc");
}

#[tokio::test(start_paused = true)]
async fn the_halves_of_a_bidirectional_stream_live_in_tasks_of_their_own() {
    let client = client_of(streams());
    let (sender, mut receiver) = echoed(&client).await;
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
    let (sender, mut receiver) = echoed(&client).await;
    for round in 0..100 {
        sender.send(&text(&round.to_string())).await.unwrap();
        let echo = receiver.next().await.unwrap().unwrap();
        assert_eq!(echo.value, round.to_string());
    }
    sender.finish();
    assert!(receiver.next().await.is_none());
}

/// A message that is none of protobuf: a word of lower case.
#[derive(Debug, PartialEq)]
struct Word(String);

impl Encode for Word {
    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0.as_bytes());
    }
}

impl Decode for Word {
    fn decode(bytes: &[u8]) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        match bytes.iter().all(u8::is_ascii_lowercase) {
            true => Ok(Self(std::str::from_utf8(bytes)?.to_owned())),
            false => Err("not in lower case".into()),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn messages_of_another_format_go_through_calls_of_every_kind() {
    let server = Server::builder().service(
        Service::new(SERVICE, ())
            .unary("Say", |(), _, word: Word| async { Ok(word) })
            .unary("Shout", |(), _, Word(word)| async move {
                Ok(Word(word.to_uppercase()))
            })
            .server_stream("Spell", |(), _, Word(word), out| async move {
                for letter in word.chars() {
                    out.send(&Word(letter.into())).await?;
                }
                Ok(())
            })
            .client_stream("Join", |(), _, mut words: Requests<Word>| async move {
                let mut all = String::new();
                while let Some(word) = words.next().await {
                    all.push_str(&word?.0);
                }
                Ok(Word(all))
            }),
    );
    let client = client_of(server);
    let word = |word: &str| Word(word.to_owned());
    let said: Word = client.call(SERVICE, "Say", &word("a")).await.unwrap();
    assert_eq!(said, word("a"));
    let call = client.call::<_, Word>(SERVICE, "Shout", &word("a"));
    let error = call.await.unwrap_err();
    let source = std::error::Error::source(&error).unwrap();
    assert_eq!(source.to_string(), "not in lower case");
    let call = client.call::<_, Word>(SERVICE, "Say", &word("A"));
    let status = call.await.unwrap_err();
    let status = status.status().unwrap();
    assert_eq!(status.code(), Code::INVALID_ARGUMENT);
    assert!(status.message().ends_with("not in lower case"), "{status}");
    let letters = client
        .server_stream::<_, Word>(SERVICE, "Spell", &word("ab"))
        .await;
    let mut letters = letters.unwrap();
    assert_eq!(letters.next().await.unwrap().unwrap(), word("a"));
    assert_eq!(letters.next().await.unwrap().unwrap(), word("b"));
    assert!(letters.next().await.is_none());
    let (words, reply) = client
        .client_stream::<_, Word>(SERVICE, "Join")
        .await
        .unwrap();
    words.send(&word("a")).await.unwrap();
    words.send(&word("b")).await.unwrap();
    words.finish();
    assert_eq!(reply.await.unwrap(), word("ab"));
}

#[tokio::test(start_paused = true)]
async fn streams_of_bytes_carry_what_is_encoded_elsewhere() {
    let server = Server::builder().service(
        Service::new(SERVICE, ())
            .client_stream("Join", |(), _, mut requests: Requests<Raw>| async move {
                let mut all = Vec::new();
                while let Some(request) = requests.next().await {
                    all.extend_from_slice(&request?);
                }
                Ok(Raw(all))
            })
            .bidi_stream(
                "Echo",
                |(), _, mut requests: Requests<Raw>, out: Responses<Raw>| async move {
                    while let Some(request) = requests.next().await {
                        out.send(&request?).await?;
                    }
                    Ok(())
                },
            ),
    );
    let client = client_of(server);
    let (sender, reply) = client
        .client_stream::<Raw, Raw>(SERVICE, "Join")
        .await
        .unwrap();
    sender.send(&raw(b"\xff")).await.unwrap();
    sender.send(&raw(b"\0")).await.unwrap();
    sender.finish();
    assert_eq!(*reply.await.unwrap(), b"\xff\0".as_slice());
    let (sender, mut receiver) = client
        .bidi_stream::<Raw, Raw>(SERVICE, "Echo")
        .await
        .unwrap();
    sender.send(&raw(b"\xff")).await.unwrap();
    sender.finish();
    assert_eq!(*receiver.next().await.unwrap().unwrap(), b"\xff".as_slice());
    assert!(receiver.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_status_comes_after_the_data_that_was_sent_before_it() {
    for (how, code) in [("status", Code::NOT_FOUND), ("panic", Code::INTERNAL)] {
        let server = Server::builder().service(Service::new(SERVICE, ()).server_stream(
            "Fail",
            |(), _, how: StringValue, out: Responses<StringValue>| async move {
                out.send(&text("a")).await?;
                out.send(&text("b")).await?;
                assert_ne!(how.value, "panic", "this handler was told to panic");
                Err(Status::new(Code::NOT_FOUND, "no more"))
            },
        ));
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
                    let (sender, mut receiver) = echoed(&client).await;
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
    let (sender, mut receiver) = echoed(&client).await;
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
    let server = Server::builder().service(Service::new(SERVICE, ()).client_stream(
        "First",
        |(), _, mut requests: Requests<StringValue>| async move { requests.next().await.unwrap() },
    ));
    let client = client_of(server);
    let call = client.client_stream::<StringValue, StringValue>(SERVICE, "First");
    let (sender, reply) = call.await.unwrap();
    sender.send(&text("a")).await.unwrap();
    assert_eq!(reply.await.unwrap().value, "a");
    let ended = sender.send(&text("b")).await.unwrap_err();
    assert!(matches!(ended, Error::StreamEnded), "{ended}");
}

#[tokio::test(start_paused = true)]
async fn dropped_streams_leave_nothing_behind() {
    let client = Client::builder().call_limit(1);
    let server = streams().handler_limit(1).build().unwrap();
    let client = pair(server, client, 4096).0;
    for round in 0..100 {
        let (sender, receiver) = echoed(&client).await;
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
async fn a_stream_outlives_the_last_handle_and_then_the_connection_closes() {
    let client = client_of(streams());
    let liveness = client.liveness();
    let (sender, mut receiver) = echoed(&client).await;
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
async fn dropping_a_receiver_behind_the_last_handle_closes_the_connection() {
    let (client, mut peer) = scripted(Keepalive::off(), 64 << 10);
    let receiver = client
        .server_stream::<_, Raw>(SERVICE, "Down", &Raw(""))
        .await;
    assert_eq!(peer.request().await.0, 1);
    drop(client);
    peer.silence(secs(1)).await;
    drop(receiver);
    let next = timeout(secs(1), peer.next()).await;
    assert!(next.expect("it is closed").is_none());
}
