//! What is never sent on a stream, what decides by a stream, and what its halves promise.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::io::{self, IoSlice};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use bytes::BytesMut;
use protobuf::well_known_types::wrappers::StringValue;
use support::*;
use tokio::io::DuplexStream;
use tokio::time::{sleep, timeout};
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::transport::Transport;
use ttrpc_keepalive::wire::{Flags, MAX_PAYLOAD, MessageType, Raw, Request, encode_response};
use ttrpc_keepalive::{
    ByteStream, Client, Code, Error, Receiver, Reply, Requests, Responses, Sender, Service, Status,
    StreamCall, Support,
};

fn end() -> Flags {
    Flags::REMOTE_CLOSED | Flags::NO_DATA
}

fn too_large() -> Vec<u8> {
    vec![0; MAX_PAYLOAD + 1]
}

// RFC KA-23: some streams never see a RESPONSE.
#[tokio::test(start_paused = true)]
async fn data_of_a_stream_tells_whether_the_peer_knows_ping() {
    let message = junk(3, 1, Flags::NONE, b"a");
    let skipped = junk(3, 1, Flags::NONE, &too_large());
    let of_nobody = junk(3, 3, Flags::NONE, b"a");
    for (answers_ping, frame, support) in [
        (true, &message, Support::Yes),
        (false, &message, Support::No),
        (false, &junk(3, 1, end(), b""), Support::No),
        (false, &skipped, Support::No),
        (false, &of_nobody, Support::Unknown),
    ] {
        let (client, mut peer) = scripted(Keepalive::on_demand(), 1 << 20);
        let call = client.server_stream::<_, Raw>(SERVICE, "Down", &Raw(""));
        let _receiver = call.await.unwrap();
        let ping = peer.frame().await;
        assert_eq!(ping.header.message_type, MessageType::PING);
        if answers_ping {
            peer.pong(&ping).await;
        }
        peer.request().await;
        peer.send(frame).await;
        sleep(ms(1)).await;
        assert_eq!(client.snapshot().support(), support, "{answers_ping}");
    }
}

// RFC KA-38
#[tokio::test(start_paused = true)]
async fn nothing_follows_the_request_of_a_unary_call_however_it_ends() {
    for last in [
        junk(2, 1, Flags::NONE, b""),
        junk(2, 1, Flags::NONE, b"\xff"),
        junk(2, 1, Flags::NONE, &too_large()),
        junk(3, 1, Flags::NONE, b"x"),
        junk(3, 1, Flags::NONE, &too_large()),
        junk(3, 1, Flags::REMOTE_CLOSED, b"x"),
        junk(3, 1, end(), b""),
        vec![],
    ] {
        let (client, mut peer) = scripted(Keepalive::off(), 1 << 20);
        let call = {
            let client = client.clone();
            tokio::spawn(async move { say_within(&client, secs(5)).await })
        };
        assert_eq!(peer.request().await.0, 1);
        peer.send(&last).await;
        let _ = call.await.unwrap();
        peer.silence(secs(10)).await;
        goes_on(&client, &mut peer).await;
    }
}

// RFC KA-33
#[tokio::test(start_paused = true)]
async fn a_limit_is_never_sent_as_none_however_little_is_left_of_it() {
    for nanos in [0, 1, 999, 999_999] {
        let limit = Duration::from_nanos(nanos);
        let (client, mut peer) = scripted(Keepalive::off(), 1 << 20);
        let call = {
            let client = client.clone();
            tokio::spawn(async move { say_within(&client, limit).await })
        };
        let stream = client
            .client_stream::<Raw, Raw>(SERVICE, "Up")
            .timeout(limit);
        let stream = stream.await;
        let mut sent = 0;
        while let Ok(frame) = timeout(secs(1), peer.frame()).await {
            if frame.header.message_type == MessageType::REQUEST {
                let request = Request::decode(&frame.payload).unwrap();
                assert_ne!(request.timeout_nano, 0, "{limit:?}");
                sent += 1;
            }
        }
        // One without any time is not sent at all.
        assert_eq!(sent, if nanos == 0 { 0 } else { 2 }, "{limit:?}");
        assert!(call.await.unwrap().unwrap_err().is_deadline());
        drop(stream);
    }
}

// RFC KA-41
#[tokio::test(start_paused = true)]
async fn the_stream_of_bytes_stays_open_both_ways_while_a_call_is_in_flight() {
    let (client, mut peer) = scripted(Keepalive::off(), 1 << 20);
    let call = client.client_stream::<Raw, Raw>(SERVICE, "Up");
    let (sender, reply) = call.await.unwrap();
    drop(client);
    sender.finish();
    peer.request().await;
    assert_eq!(peer.expect_data().await, (1, end(), "".into()));
    peer.silence(secs(3600)).await;
    peer.send(encode_response(1, &Raw(b"done")).unwrap()).await;
    assert_eq!(*reply.await.unwrap(), "done");
    assert!(peer.next().await.is_none(), "it ends when the call has");

    let server = echo().build().unwrap();
    let mut peer = served(server.clone());
    peer.call(1, "Sleep", "1000").await;
    sleep(ms(1)).await;
    let shutdown = tokio::spawn(async move { server.shutdown(secs(10)).await });
    peer.silence(ms(900)).await;
    assert_eq!(peer.expect_response().await.0, 1);
    assert!(peer.next().await.is_none());
    assert!(shutdown.await.unwrap());
}

// RFC KA-2. The scripted peer takes no frame that is too large.
#[tokio::test(start_paused = true)]
async fn nothing_larger_than_a_frame_is_sent_and_who_wanted_to_is_told() {
    let (client, mut peer) = scripted(Keepalive::off(), 1 << 20);
    let value = "x".repeat(MAX_PAYLOAD);
    let call = client.client_stream::<Raw, Raw>(SERVICE, "Up");
    let error = call.metadata("key", &value).await.unwrap_err();
    let Error::RequestTooLarge(sizes) = error else {
        panic!("{error}")
    };
    assert!(sizes.size > MAX_PAYLOAD && sizes.max == MAX_PAYLOAD);
    goes_on(&client, &mut peer).await;

    let server = echo().service(
        Service::new(SERVICE, ())
            .server_stream("Large", |(), _, _: Raw, out: Responses<Raw>| async move {
                let status = out.send(&raw(too_large())).await.unwrap_err();
                assert_eq!(status.code(), Code::RESOURCE_EXHAUSTED);
                assert!(status.message().contains("4194305"), "{status}");
                assert!(status.message().contains("4194304"), "{status}");
                out.send(&raw("a")).await
            })
            .server_stream("Fail", |(), _, _: Raw, _: Responses<Raw>| async move {
                Err(Status::new(Code::ABORTED, "x".repeat(5 << 20)))
            }),
    );
    let mut peer = served(server.build().unwrap());
    peer.open(1, "Large", Flags::REMOTE_CLOSED, b"").await;
    assert_eq!(peer.expect_data().await, (1, Flags::NONE, "a".into()));
    assert_eq!(peer.expect_data().await, (1, end(), "".into()));
    peer.open(3, "Fail", Flags::REMOTE_CLOSED, b"").await;
    let status = peer.expect_response().await.1.status.unwrap();
    assert_eq!(status.code(), Code::ABORTED);
    assert!(status.message().len() > 4_000_000);
}

// RFC KA-4
#[tokio::test(start_paused = true)]
async fn oversized_data_costs_a_call_nothing_that_takes_no_messages() {
    let mut peer = served(streams().build().unwrap());
    peer.call(1, "Sleep", "1000").await;
    peer.open(3, "Join", Flags::REMOTE_OPEN | Flags::NO_DATA, b"")
        .await;
    peer.data(3, end(), b"").await;
    assert_eq!(peer.expect_response().await.0, 3);
    for id in [1, 3] {
        peer.send(junk(3, id, Flags::NONE, &too_large())).await;
    }
    let (id, answer) = peer.expect_response().await;
    assert_eq!((id, answer.status), (1, None));
    peer.silence(secs(10)).await;
}

// RFC KA-7
#[tokio::test(start_paused = true)]
async fn flags_without_a_meaning_are_ignored_on_every_type() {
    let strange = Flags::from(0xF8);
    let (client, mut peer) = scripted(Keepalive::off(), 1 << 20);
    for flags in 0..=255 {
        let (reply, ()) = tokio::join!(say(&client), async {
            let (id, _) = peer.request().await;
            let mut response = encode_response(id, &text("hello")).unwrap();
            response[9] = flags;
            peer.send(response).await;
        });
        assert_eq!(reply.unwrap().value, "hello", "{flags}");
    }
    let call = client.server_stream::<_, Raw>(SERVICE, "Down", &Raw(""));
    let mut receiver = call.await.unwrap();
    let (id, _) = peer.request().await;
    peer.data(id, strange | Flags::REMOTE_OPEN, b"a").await;
    peer.data(id, strange | end(), b"").await;
    assert_eq!(*receiver.next().await.unwrap().unwrap(), "a");
    assert!(receiver.next().await.is_none());

    let mut peer = served(streams().build().unwrap());
    let open = Flags::REMOTE_OPEN | Flags::NO_DATA;
    let message = protobuf::Message::write_to_bytes(&text("a")).unwrap();
    peer.open(1, "Join", strange | open, b"").await;
    let flags = strange | Flags::REMOTE_OPEN;
    peer.data(1, flags, &message).await;
    peer.data(1, strange | end(), b"").await;
    let (_, response) = peer.expect_response().await;
    assert_eq!((response.status, response.payload), (None, message.into()));
}

/// Reads at most so many bytes at once.
struct Sips(ByteStream<DuplexStream>, usize);

impl Transport for Sips {
    fn poll_read(
        &mut self,
        cx: &mut TaskContext<'_>,
        buffer: &mut BytesMut,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        self.0.poll_read(cx, buffer, limit.min(self.1))
    }

    fn poll_write(
        &mut self,
        cx: &mut TaskContext<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_write(cx, slices)
    }
}

#[tokio::test(start_paused = true)]
async fn an_oversized_frame_costs_its_stream_in_reads_of_any_size() {
    for size in [61, 4096, 5 << 20] {
        let pipe = || tokio::io::duplex(8 << 20);
        let (here, there) = pipe();
        let (server, mut peer) = (streams().build().unwrap(), Peer::new(there));
        let here = Sips(ByteStream::new(here), size);
        tokio::spawn(async move { server.serve_connection(here).await });
        peer.send(junk(1, 1, Flags::NONE, &too_large())).await;
        peer.call(3, "Say", "hello").await;
        let status = peer.expect_response().await.1.status.unwrap();
        assert_eq!(status.code(), Code::RESOURCE_EXHAUSTED);
        assert_eq!(peer.expect_response().await.0, 3);

        let (here, there) = pipe();
        let here = Sips(ByteStream::new(here), size);
        let client = Client::builder().keepalive(Keepalive::off());
        let (client, mut peer) = (client.attach(here).unwrap(), Peer::new(there));
        let call = client.server_stream::<_, Raw>(SERVICE, "Down", &Raw(""));
        let mut receiver = call.await.unwrap();
        peer.request().await;
        peer.data(1, Flags::NONE, b"a").await;
        peer.send(junk(3, 1, Flags::NONE, &too_large())).await;
        assert_eq!(*receiver.next().await.unwrap().unwrap(), "a");
        let error = receiver.next().await.unwrap().unwrap_err();
        assert!(matches!(error, Error::ResponseTooLarge(_)), "{error}");
        goes_on(&client, &mut peer).await;
    }
}

/// It compiles: who keeps a call for later can name it and its halves.
#[tokio::test(start_paused = true)]
async fn every_half_of_a_stream_has_a_name() {
    #[derive(Debug, Default)]
    #[expect(dead_code, reason = "named, and nothing else")]
    struct Held {
        call: Option<StreamCall<(Sender<StringValue>, Receiver<StringValue>)>>,
        sender: Option<Sender<Raw>>,
        receiver: Option<Receiver<Raw>>,
        reply: Option<Reply<Raw>>,
        requests: Option<Requests<StringValue>>,
        responses: Option<Responses<Raw>>,
    }
    fn movable<T: Send + 'static>() {}
    movable::<Held>();
    let (client, _) = echo_pair(Keepalive::off());
    let held = Held {
        call: Some(client.bidi_stream(SERVICE, "Echo")),
        ..Held::default()
    };
    println!("{held:?}");
    assert!(held.call.is_some());
}

#[tokio::test(start_paused = true)]
async fn that_a_send_has_returned_says_nothing_of_the_peer() {
    let (client, frozen) = scripted(Keepalive::off(), 64);
    let (sender, reply) = client
        .client_stream::<Raw, Raw>(SERVICE, "Up")
        .await
        .unwrap();
    for _ in 0..10 {
        let sent = timeout(secs(1), sender.send(&raw([7; 1000]))).await;
        sent.expect("it is queued").unwrap();
    }
    sender.finish();
    drop(frozen);
    assert!(reply.await.unwrap_err().is_connection());
}

#[tokio::test(start_paused = true)]
async fn a_send_that_nobody_polls_holds_its_place_until_it_is_dropped() {
    let client = Client::builder()
        .keepalive(Keepalive::off())
        .outbox_limit(200);
    let (client, mut peer) = attached(client, 64);
    let mut halves = Vec::new();
    for _ in 0..3 {
        let call = client.client_stream::<Raw, Raw>(SERVICE, "Up");
        halves.push(call.await.unwrap());
        peer.request().await;
    }
    let mut senders = halves.iter_mut().map(|(sender, _)| sender);
    let (full, first, second) = (senders.next(), senders.next(), senders.next());
    full.unwrap().send(&raw([0; 300])).await.unwrap();
    let messages = [raw([1; 300]), raw([2; 300])];
    let mut unpolled = Box::pin(first.unwrap().send(&messages[0]));
    poll_once(unpolled.as_mut());
    let mut behind = Box::pin(second.unwrap().send(&messages[1]));
    poll_once(behind.as_mut());
    assert_eq!(peer.expect_data().await.0, 1);
    let still = timeout(secs(60), behind.as_mut()).await;
    assert!(still.is_err(), "messages are let in in their order");
    drop(unpolled);
    timeout(secs(1), behind)
        .await
        .expect("it is first")
        .unwrap();
    assert_eq!(peer.expect_data().await.0, 5);
}

/// A task that waits for the next request when the handler returns learns of the end.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_waited_for_when_the_handler_returns_will_not_come() {
    let (told, mut seen) = tokio::sync::mpsc::channel(1);
    let server = echo().service(Service::new(SERVICE, ()).client_stream(
        "Early",
        move |(), _, mut requests: Requests<Raw>| {
            let told = told.clone();
            async move {
                tokio::spawn(async move {
                    let next = requests.next().await.unwrap();
                    told.send(next.unwrap_err().code()).await.unwrap();
                });
                sleep(secs(1)).await;
                Ok(Raw(""))
            }
        },
    ));
    let mut peer = served(server.build().unwrap());
    peer.open(1, "Early", Flags::REMOTE_OPEN | Flags::NO_DATA, b"")
        .await;
    assert_eq!(peer.expect_response().await.0, 1);
    let code = timeout(secs(1), seen.recv()).await.expect("it is told");
    assert_eq!(code, Some(Code::CANCELLED));
}
