//! Whether the request of a call that failed had left: may the call be made again?

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use protobuf::well_known_types::wrappers::StringValue;
use support::*;
use tokio::io::{AsyncReadExt, DuplexStream};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::wire::{Flags, encode_data};
use ttrpc_keepalive::{Client, Code, Error, Raw, Reply, RequestProgress, Sender, Status};

/// A client that asks nothing, of a peer to whom so many bytes can be written.
fn quiet(capacity: usize) -> (Client, Peer<DuplexStream>) {
    scripted(Keepalive::off(), capacity)
}

/// Calls in a task, and lets it come as far as it comes.
async fn calling(client: &Client, size: usize) -> JoinHandle<Result<StringValue, Error>> {
    let client = client.clone();
    let call = tokio::spawn(async move { say_large(&client, size).await });
    sleep(ms(10)).await;
    call
}

async fn failed(call: JoinHandle<Result<StringValue, Error>>) -> Error {
    call.await.unwrap().unwrap_err()
}

#[tokio::test(start_paused = true)]
async fn a_request_is_known_to_be_sent_or_not_when_its_connection_ends() {
    use RequestProgress::{NotSent, PartlySent, Sent};

    // The peer has all of it, and dies.
    let (client, mut peer) = quiet(64 << 10);
    let sent = calling(&client, 10).await;
    peer.request().await;
    drop(peer);
    let sent = failed(sent).await;
    assert!(sent.is_connection(), "{sent}");
    assert_eq!(sent.request(), Sent);
    let after = say(&client).await.unwrap_err();
    assert!(after.is_connection(), "{after}");
    assert_eq!(after.request(), NotSent, "made after the end");

    // Each of two large requests is more than the peer takes.
    let (client, mut peer) = quiet(4096);
    let begun = calling(&client, 10_000).await;
    let behind = calling(&client, 10_000).await;
    drop(peer.stream.read_u64().await);
    drop(peer);
    assert_eq!(failed(begun).await.request(), PartlySent);
    assert_eq!(failed(behind).await.request(), NotSent);
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_room_when_its_connection_ends_was_not_sent() {
    let limited = Client::builder().keepalive(Keepalive::off()).call_limit(1);
    let (client, peer) = attached(limited, 64 << 10);
    let first = calling(&client, 10).await;
    let waiting = calling(&client, 10).await;
    let opening = {
        let client = client.clone();
        tokio::spawn(async move {
            let call = client.client_stream::<StringValue, StringValue>(SERVICE, "Join");
            call.await.map(|_| ())
        })
    };
    sleep(ms(10)).await;
    drop(peer);
    assert_eq!(failed(first).await.request(), RequestProgress::Sent);
    assert_eq!(failed(waiting).await.request(), RequestProgress::NotSent);
    let opening = opening.await.unwrap().unwrap_err();
    assert!(opening.is_connection(), "{opening}");
    assert_eq!(opening.request(), RequestProgress::NotSent);
    // A probe asks for nothing that could be executed twice.
    let probe = client.probe(secs(1)).await.unwrap_err();
    assert_eq!(probe.request(), RequestProgress::NotSent);
}

async fn upload(client: &Client) -> (Sender<StringValue>, Reply<StringValue>) {
    let call = client.client_stream::<StringValue, StringValue>(SERVICE, "Join");
    call.await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_sent_when_all_of_its_messages_are() {
    use RequestProgress::{NotSent, PartlySent, Sent};
    // A large call in front of the stream, messages behind its request, and what was sent then.
    let cases = [
        (0, 0, Sent),
        (0, 10, Sent),
        (0, 10_000, PartlySent),
        (10_000, 0, NotSent),
    ];
    for (in_front, message, expected) in cases {
        let (client, peer) = quiet(4096);
        let front = calling(&client, in_front).await;
        let (sender, reply) = upload(&client).await;
        sender.send(&text(&"x".repeat(message))).await.unwrap();
        sleep(ms(10)).await;
        drop(peer);
        let error = reply.await.unwrap_err();
        assert!(error.is_connection(), "{error}");
        assert_eq!(error.request(), expected, "{in_front}, {message}");
        failed(front).await;
        // This is about the message.
        let late = sender.send(&text("more")).await.unwrap_err();
        assert_eq!(late.request(), NotSent);
    }

    // The end of the requests is one more message.
    let (client, peer) = quiet(4096);
    let (sender, reply) = upload(&client).await;
    sender.send(&text("x")).await.unwrap();
    sleep(ms(10)).await;
    let front = calling(&client, 10_000).await;
    sender.finish();
    sleep(ms(10)).await;
    drop(peer);
    assert_eq!(reply.await.unwrap_err().request(), PartlySent);
    failed(front).await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_whose_first_message_has_come_is_answered() {
    let (client, mut peer) = quiet(64 << 10);
    let two = text("2");
    let call = client.server_stream::<_, StringValue>(SERVICE, "Count", &two);
    let mut received = call.await.unwrap();
    let (id, _) = peer.request().await;
    peer.send(encode_data(id, Flags::NONE, &text("1")).unwrap())
        .await;
    drop(peer);
    assert_eq!(received.next().await.unwrap().unwrap().value, "1");
    let error = received.next().await.unwrap().unwrap_err();
    assert!(error.is_connection(), "{error}");
    assert_eq!(error.request(), RequestProgress::Answered);
}

#[tokio::test(start_paused = true)]
async fn a_late_call_is_known_to_be_sent_or_not() {
    use RequestProgress::{NotSent, Sent};
    let (client, mut peer) = quiet(4096);
    let error = say_within(&client, secs(0)).await.unwrap_err();
    assert_eq!(error.request(), NotSent, "without any time");
    let error = say_within(&client, secs(1)).await.unwrap_err();
    assert_eq!(error.request(), Sent);

    // What has begun is finished, whatever became of its call.
    let large = text(&"x".repeat(10_000));
    let begun = client.call::<_, StringValue>("demo.Echo", "Say", &large);
    let begun = begun.timeout(secs(1));
    let behind = say_within(&client, secs(1));
    let (begun, behind) = tokio::join!(async { begun.await.unwrap_err() }, behind);
    let behind = behind.unwrap_err();
    assert!(begun.is_deadline() && behind.is_deadline());
    assert_eq!((begun.request(), behind.request()), (Sent, NotSent));
    peer.request().await;
    let (_, whole) = peer.request().await;
    assert!(whole.payload.len() > 10_000);
    peer.silence(secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_whatever_kind_says_that_the_request_was_read() {
    let (client, _) = echo_pair(Keepalive::off());
    let error = say_large(&client, 4 << 20).await.unwrap_err();
    assert_eq!(error.request(), RequestProgress::NotSent, "{error}");
    let unknown = client.call::<_, Raw>("demo.Echo", "None", &Raw(""));
    let error = unknown.await.unwrap_err();
    assert_eq!(error.request(), RequestProgress::Answered, "{error}");
    let request = text("4194304");
    let no_text = client.call::<_, StringValue>("demo.Echo", "Bytes", &request);
    assert!(no_text.await.is_ok());
    let large = client
        .call::<_, Raw>("demo.Echo", "Large", &Raw("4194304"))
        .await;
    assert_eq!(large.unwrap_err().request(), RequestProgress::Answered);

    let refusing = Client::builder().hook(|_| Err(Status::new(Code::PERMISSION_DENIED, "no")));
    let (client, _) = pair(echo().build().unwrap(), refusing, 4096);
    let error = say(&client).await.unwrap_err();
    assert_eq!(error.request(), RequestProgress::NotSent, "{error}");
}
