//! Streaming calls frame by frame: what a client sends and what it makes of what comes.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use support::*;
use tokio::io::DuplexStream;
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::wire::{Flags, MAX_PAYLOAD, MessageType, Raw, encode_response, encode_status};
use ttrpc_keepalive::{Client, Code, Error, LateOutcome, Receiver, Reply, Sender, Status};

fn end() -> Flags {
    Flags::REMOTE_CLOSED | Flags::NO_DATA
}

fn client(capacity: usize) -> (Client, Peer<DuplexStream>) {
    scripted(Keepalive::off(), capacity)
}

async fn down(client: &Client) -> Receiver<Raw> {
    let call = client.server_stream::<_, Raw>("demo.Stream", "Down", &Raw("first"));
    call.await.unwrap()
}

async fn up(client: &Client) -> (Sender<Raw>, Reply<Raw>) {
    let call = client.client_stream::<Raw, Raw>("demo.Stream", "Up");
    call.await.unwrap()
}

async fn both(client: &Client) -> (Sender<Raw>, Receiver<Raw>) {
    let call = client.bidi_stream::<Raw, Raw>("demo.Stream", "Both");
    call.await.unwrap()
}

fn response(id: u32, message: &[u8]) -> Vec<u8> {
    encode_response(id, &Raw(message)).unwrap()
}

// RFC KA-38
#[tokio::test(start_paused = true)]
async fn a_server_stream_is_one_request_and_nothing_follows_it() {
    let (client, mut peer) = client(1 << 20);
    let mut receiver = down(&client).await;
    let request = peer.frame().await;
    assert_eq!(request.header.flags, Flags::REMOTE_CLOSED);
    peer.data(1, Flags::NONE, b"a").await;
    assert_eq!(*receiver.next().await.unwrap().unwrap(), "a");
    drop(receiver);
    peer.silence(secs(10)).await;
    peer.data(1, Flags::NONE, b"b").await;
    peer.data(1, end(), b"").await;
    goes_on(&client, &mut peer).await;
}

// RFC KA-42, KA-43, KA-44
#[tokio::test(start_paused = true)]
async fn a_client_stream_opens_without_a_message_and_ends_with_a_half_close() {
    let (client, mut peer) = client(1 << 20);
    let (sender, reply) = up(&client).await;
    let request = peer.frame().await;
    assert_eq!(request.header.flags, Flags::REMOTE_OPEN | Flags::NO_DATA);
    sender.send(&raw("one")).await.unwrap();
    sender.send(&raw("")).await.unwrap();
    assert_eq!(peer.expect_data().await, (1, Flags::NONE, "one".into()));
    assert_eq!(peer.expect_data().await, (1, Flags::NONE, "".into()));
    peer.silence(secs(3600)).await;
    sender.finish();
    assert_eq!(peer.expect_data().await, (1, end(), "".into()));
    peer.send(response(1, b"done")).await;
    assert_eq!(*reply.await.unwrap(), "done");
    peer.silence(secs(10)).await;
}

#[tokio::test(start_paused = true)]
async fn every_way_in_which_a_server_ends_a_stream() {
    let refused = encode_status(1, &Status::new(Code::NOT_FOUND, "gone"));
    let frames = [
        (junk(3, 1, end(), b""), "a", Code::OK),
        (junk(3, 1, Flags::REMOTE_CLOSED, b"z"), "az", Code::OK),
        (junk(3, 1, end(), b"ignored"), "a", Code::OK),
        (response(1, b""), "a", Code::OK),
        (response(1, b"z"), "az", Code::OK),
        (refused, "a", Code::NOT_FOUND),
    ];
    for (last, messages, code) in frames {
        let (client, mut peer) = client(1 << 20);
        let mut receiver = down(&client).await;
        peer.frame().await;
        peer.data(1, Flags::NONE, b"a").await;
        // No data is no message, and no end either.
        peer.data(1, Flags::NO_DATA, b"").await;
        peer.send(&last).await;
        let mut seen = String::new();
        let mut ended = Code::OK;
        while let Some(next) = receiver.next().await {
            match next {
                Ok(message) => seen.push_str(std::str::from_utf8(&message).unwrap()),
                Err(error) => ended = error.status().unwrap().code(),
            }
        }
        assert_eq!((&*seen, ended), (messages, code), "{last:?}");
        assert!(receiver.next().await.is_none());
        // RFC KA-37: what comes after the last frame is for nobody.
        peer.data(1, Flags::NONE, b"late").await;
        peer.send(&last).await;
        goes_on(&client, &mut peer).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_message_is_delivered_and_no_data_is_not() {
    let (client, mut peer) = client(1 << 20);
    let mut receiver = down(&client).await;
    peer.frame().await;
    peer.data(1, Flags::NONE, b"").await;
    peer.data(1, Flags::REMOTE_CLOSED, b"").await;
    assert_eq!(*receiver.next().await.unwrap().unwrap(), "");
    assert_eq!(*receiver.next().await.unwrap().unwrap(), "");
    assert!(receiver.next().await.is_none());
}

// RFC KA-39
#[tokio::test(start_paused = true)]
async fn what_is_unwritten_when_the_server_ends_a_stream_is_never_sent() {
    let (client, mut peer) = client(64);
    let (sender, reply) = up(&client).await;
    peer.request().await;
    for _ in 0..5 {
        sender.send(&raw([7; 100])).await.unwrap();
    }
    sender.finish();
    // The pipe holds a part of the first message. The rest has not begun.
    tokio::time::sleep(secs(1)).await;
    peer.send(response(1, b"early")).await;
    assert_eq!(*reply.await.unwrap(), "early");
    assert_eq!(peer.expect_data().await.2.len(), 100);
    peer.silence(secs(10)).await;
    goes_on(&client, &mut peer).await;
}

#[tokio::test(start_paused = true)]
async fn after_the_servers_last_frame_nothing_is_sent_whatever_the_sender_does() {
    for (last, which) in [(response(1, b""), 0), (junk(3, 1, end(), b""), 1)] {
        let (client, mut peer) = client(1 << 20);
        let (sender, mut receiver) = both(&client).await;
        peer.request().await;
        peer.send(last).await;
        assert!(receiver.next().await.is_none());
        let error = sender.send(&raw("late")).await.unwrap_err();
        assert!(matches!(error, Error::StreamEnded), "{error}");
        if which == 0 {
            sender.finish();
        } else {
            drop(sender);
        }
        drop(receiver);
        peer.silence(secs(10)).await;
        goes_on(&client, &mut peer).await;
    }
}

// The half-close waits behind other bytes when the stream that was dropped ends.
#[tokio::test(start_paused = true)]
async fn a_half_close_is_taken_back_when_the_stream_ends_first() {
    let (client, mut peer) = client(64);
    let (sender, reply) = up(&client).await;
    peer.request().await;
    let large = say_large(&client, 1000);
    let mut large = Box::pin(large);
    poll_once(large.as_mut());
    tokio::time::sleep(secs(1)).await;
    drop((sender, reply));
    tokio::time::sleep(secs(1)).await;
    peer.send(response(1, b"")).await;
    tokio::time::sleep(secs(1)).await;
    assert_eq!(peer.request().await.0, 3);
    peer.silence(secs(10)).await;
    peer.respond(3).await;
    large.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_sends_what_was_sent_and_half_closes() {
    let (client, mut peer) = client(1 << 20);
    let (sender, receiver) = both(&client).await;
    peer.request().await;
    sender.send(&raw("one")).await.unwrap();
    drop(receiver);
    drop(sender);
    assert_eq!(peer.expect_data().await, (1, Flags::NONE, "one".into()));
    assert_eq!(peer.expect_data().await, (1, end(), "".into()));
    peer.data(1, Flags::NONE, b"for nobody").await;
    peer.send(response(1, b"")).await;
    peer.silence(secs(10)).await;
    goes_on(&client, &mut peer).await;
    assert_eq!(client.snapshot().late_calls_unanswered(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_before_its_request_is_written_sends_nothing() {
    let (client, mut peer) = client(64);
    let mut large = Box::pin(say_large(&client, 1000));
    poll_once(large.as_mut());
    tokio::time::sleep(secs(1)).await;
    let (sender, reply) = up(&client).await;
    sender.send(&raw("one")).await.unwrap();
    sender.finish();
    drop(reply);
    tokio::time::sleep(secs(1)).await;
    assert_eq!(peer.request().await.0, 1);
    peer.silence(secs(10)).await;
    peer.respond(1).await;
    large.await.unwrap();
}

// RFC KA-38
#[tokio::test(start_paused = true)]
async fn a_unary_call_is_never_followed_by_data() {
    let (client, mut peer) = client(1 << 20);
    let mut dropped = Box::pin(say(&client));
    poll_once(dropped.as_mut());
    assert_eq!(peer.request().await.0, 1);
    drop(dropped);
    assert!(
        say_within(&client, secs(1))
            .await
            .unwrap_err()
            .is_deadline()
    );
    assert_eq!(peer.request().await.0, 3);
    peer.silence(secs(10)).await;
}

#[tokio::test(start_paused = true)]
async fn data_in_answer_to_a_client_stream_fails_that_call_and_half_closes() {
    let (client, mut peer) = client(1 << 20);
    let (sender, reply) = up(&client).await;
    peer.request().await;
    peer.data(1, Flags::NONE, b"why").await;
    let error = reply.await.unwrap_err();
    assert!(matches!(error, Error::UnexpectedData) && error.is_peer_fault());
    assert!(matches!(
        sender.send(&raw("x")).await,
        Err(Error::StreamEnded)
    ));
    assert_eq!(peer.expect_data().await, (1, end(), "".into()));
    drop(sender);
    peer.silence(secs(10)).await;
    goes_on(&client, &mut peer).await;
}

#[tokio::test(start_paused = true)]
async fn data_for_streams_that_nobody_knows_is_dropped() {
    let (client, mut peer) = client(1 << 20);
    for id in [0, 1, 2, 3, 99, u32::MAX] {
        for flags in [Flags::NONE, Flags::REMOTE_CLOSED, Flags::NO_DATA, end()] {
            peer.data(id, flags, b"for nobody").await;
        }
    }
    tokio::time::sleep(secs(1)).await;
    goes_on(&client, &mut peer).await;
    peer.silence(secs(10)).await;
}

#[tokio::test(start_paused = true)]
async fn oversized_data_fails_its_stream_after_what_came_before() {
    let (client, mut peer) = client(1 << 20);
    let (sender, mut receiver) = both(&client).await;
    peer.request().await;
    peer.data(1, Flags::NONE, b"a").await;
    let size = MAX_PAYLOAD + 1;
    peer.send(junk(3, 1, Flags::NONE, &vec![0; size])).await;
    assert_eq!(*receiver.next().await.unwrap().unwrap(), "a");
    let error = receiver.next().await.unwrap().unwrap_err();
    let Error::ResponseTooLarge(oversized) = error else {
        panic!("{error}")
    };
    assert_eq!((oversized.size, oversized.max), (size, MAX_PAYLOAD));
    assert!(receiver.next().await.is_none());
    assert_eq!(peer.expect_data().await, (1, end(), "".into()));
    goes_on(&client, &mut peer).await;
    drop(sender);
}

// RFC KA-39
#[tokio::test(start_paused = true)]
async fn a_last_frame_that_cannot_be_taken_is_followed_by_nothing() {
    let too_large = vec![0; MAX_PAYLOAD + 1];
    for last in [
        junk(3, 1, Flags::REMOTE_CLOSED, &too_large),
        [
            junk(3, 1, Flags::NONE, &vec![0; MAX_PAYLOAD]).repeat(3),
            junk(3, 1, Flags::REMOTE_CLOSED, &vec![0; MAX_PAYLOAD]),
        ]
        .concat(),
    ] {
        let (client, mut peer) = client(1 << 20);
        let (sender, mut receiver) = both(&client).await;
        peer.request().await;
        peer.send(last).await;
        tokio::time::sleep(secs(1)).await;
        let error = loop {
            if let Err(error) = receiver.next().await.unwrap() {
                break error;
            }
        };
        let expected = matches!(
            error,
            Error::ResponseTooLarge(_) | Error::StreamOverflow { .. }
        );
        assert!(expected, "{error}");
        assert!(matches!(
            sender.send(&raw("x")).await,
            Err(Error::StreamEnded)
        ));
        drop((sender, receiver));
        peer.silence(secs(10)).await;
        goes_on(&client, &mut peer).await;
    }
    for flags in [Flags::REMOTE_CLOSED, end()] {
        for message in [&b"why"[..], &too_large] {
            let (client, mut peer) = client(1 << 20);
            let (sender, reply) = up(&client).await;
            peer.request().await;
            peer.send(junk(3, 1, flags, message)).await;
            assert!(matches!(reply.await, Err(Error::UnexpectedData)));
            drop(sender);
            peer.silence(secs(10)).await;
            goes_on(&client, &mut peer).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_stream_half_closes_and_its_end_is_the_late_answer() {
    let too_large = vec![0; MAX_PAYLOAD + 1];
    for last in [
        response(1, b""),
        junk(3, 1, end(), b""),
        junk(3, 1, Flags::REMOTE_CLOSED, &too_large),
    ] {
        let (client, mut peer) = client(1 << 20);
        let call = client.bidi_stream::<Raw, Raw>("demo.Stream", "Both");
        let (sender, mut receiver) = call.timeout(secs(2)).await.unwrap();
        let (id, request) = peer.request().await;
        assert_eq!((id, request.timeout_nano), (1, 2_000_000_000));
        peer.data(1, Flags::NONE, b"a").await;
        tokio::time::sleep(secs(3)).await;
        assert_eq!(*receiver.next().await.unwrap().unwrap(), "a");
        let late = receiver.next().await.unwrap().unwrap_err();
        assert!(late.is_deadline(), "{late}");
        assert!(receiver.next().await.is_none());
        assert!(matches!(
            sender.send(&raw("x")).await,
            Err(Error::StreamEnded)
        ));
        assert_eq!(peer.expect_data().await, (1, end(), "".into()));
        // More data is not yet the answer.
        peer.data(1, Flags::NONE, b"b").await;
        tokio::time::sleep(secs(1)).await;
        assert_eq!(client.snapshot().late_calls_unanswered(), 1);
        peer.send(last).await;
        tokio::time::sleep(secs(1)).await;
        assert_eq!(client.snapshot().late_calls_unanswered(), 0);
        let answered = late.late_answer().unwrap().await;
        assert!(
            matches!(answered, LateOutcome::Answered { .. }),
            "{answered:?}"
        );
        peer.silence(secs(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_expires_before_it_is_written_is_not_sent() {
    let (client, mut peer) = client(64);
    let mut large = Box::pin(say_large(&client, 1000));
    poll_once(large.as_mut());
    tokio::time::sleep(secs(1)).await;
    let call = client.client_stream::<Raw, Raw>("demo.Stream", "Up");
    let (sender, reply) = call.timeout(secs(2)).await.unwrap();
    sender.send(&raw("one")).await.unwrap();
    let late = reply.await.unwrap_err();
    assert!(late.is_deadline() && late.late_answer().is_none(), "{late}");
    assert_eq!(peer.request().await.0, 1);
    peer.silence(secs(10)).await;
    assert!(matches!(
        sender.send(&raw("x")).await,
        Err(Error::StreamEnded)
    ));
}

#[tokio::test(start_paused = true)]
async fn data_received_is_delivered_before_the_connections_end() {
    let (client, mut peer) = client(1 << 20);
    let (sender, mut receiver) = both(&client).await;
    peer.request().await;
    for message in [b"a", b"b"] {
        peer.data(1, Flags::NONE, message).await;
    }
    drop(peer);
    client.closed().await;
    assert_eq!(*receiver.next().await.unwrap().unwrap(), "a");
    assert_eq!(*receiver.next().await.unwrap().unwrap(), "b");
    assert!(receiver.next().await.unwrap().unwrap_err().is_connection());
    assert!(receiver.next().await.is_none());
    assert!(sender.send(&raw("x")).await.unwrap_err().is_connection());
}

// T41
#[tokio::test(start_paused = true)]
async fn an_open_stream_keeps_the_watch_although_nobody_says_anything() {
    let watch = Keepalive::every(secs(60)).while_idle(false);
    let (client, mut peer) = scripted(watch, 1 << 20);
    let (sender, receiver) = both(&client).await;
    peer.answer_ping().await;
    peer.request().await;
    for _ in 0..60 {
        peer.silence(secs(59)).await;
        peer.answer_ping().await;
    }
    drop((sender, receiver));
    assert_eq!(peer.expect_data().await, (1, end(), "".into()));
    peer.silence(secs(3600)).await;
}

#[tokio::test(start_paused = true)]
async fn a_response_to_a_stream_tells_that_the_peer_does_not_know_ping() {
    let (client, mut peer) = scripted(Keepalive::on_demand(), 1 << 20);
    let mut receiver = down(&client).await;
    assert_eq!(peer.frame().await.header.message_type, MessageType::PING);
    peer.request().await;
    peer.send(encode_status(1, &Status::new(Code::NOT_FOUND, "")))
        .await;
    assert!(receiver.next().await.unwrap().is_err());
    assert_eq!(client.snapshot().support(), ttrpc_keepalive::Support::No);
}
