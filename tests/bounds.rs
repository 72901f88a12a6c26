//! Every row of the table of limits on the front page, walked to its bound with nothing set: the
//! default is what the table says, and what happens there too.
//!
//! A test stands below the name of its row, or the row says where its test is.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use support::*;
use tokio::io::DuplexStream;
use tokio::time::{sleep, timeout};
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::wire::{
    Flags, MAX_PAYLOAD, MAX_REPEATED, MessageType, Raw, RequestHead, Response, encode_request,
    encode_status, ping, ping_number,
};
use ttrpc_keepalive::{
    Client, Code, Context, Error, LateOutcome, Requests, Responses, ServerBuilder, Status,
};

const MIB: usize = 1 << 20;

/// A client without keepalive of a scripted peer.
fn client(capacity: usize) -> (Client, Peer<DuplexStream>) {
    scripted(Keepalive::off(), capacity)
}

/// The status on this stream; the next frame is its RESPONSE.
async fn refused(peer: &mut Peer<DuplexStream>, stream_id: u32) -> Status {
    let (id, response) = peer.expect_response().await;
    assert_eq!(id, stream_id);
    response.status.expect("it is refused")
}

/// `demo.Echo/Work` counts itself and never answers.
fn endless() -> (ServerBuilder, Arc<AtomicUsize>) {
    let running = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&running);
    let server = streams().unary_bytes("demo.Echo", "Work", move |_: Context, _: Bytes| {
        counter.fetch_add(1, Ordering::Relaxed);
        std::future::pending::<Result<Bytes, Status>>()
    });
    (server, running)
}

// row: requests waiting to be written
#[tokio::test(start_paused = true)]
async fn with_16_mib_unwritten_calls_and_messages_wait_within_their_timeouts() {
    let (client, mut peer) = client(4096);
    let call = client.client_stream_bytes(SERVICE, "Up");
    let (mut sender, _reply) = call.await.unwrap();
    peer.request().await;
    // The pipe has a part of the first, so that the 17th makes it more than 16 MiB.
    for _ in 0..17 {
        let sent = timeout(secs(1), sender.send(&vec![0; MIB])).await;
        sent.expect("there is room").unwrap();
    }
    let mut message = Box::pin(sender.send(b"x"));
    poll_once(message.as_mut());
    assert!(
        say_within(&client, secs(1))
            .await
            .unwrap_err()
            .is_deadline()
    );
    let waiting = client.clone();
    let call = tokio::spawn(async move { say(&waiting).await });
    for _ in 0..2 {
        peer.expect_data().await;
    }
    timeout(secs(1), message).await.expect("room").unwrap();
    for _ in 0..15 {
        peer.expect_data().await;
    }
    let mut last = vec![peer.frame().await.header, peer.frame().await.header];
    last.sort_by_key(|header| header.message_type.value());
    assert_eq!(last[0].message_type, MessageType::REQUEST);
    assert_eq!(last[1].message_type, MessageType::DATA);
    peer.respond(last[0].stream_id).await;
    call.await.unwrap().unwrap();
    peer.silence(secs(10)).await;
}

// row: calls in flight
#[tokio::test(start_paused = true)]
async fn with_65_536_calls_in_flight_the_next_one_waits_within_its_timeout() {
    let (client, mut peer) = client(8 * MIB);
    let mut calls: Vec<_> = (0..1 << 16).map(|_| Box::pin(say(&client))).collect();
    calls.iter_mut().for_each(|call| poll_once(call.as_mut()));
    for number in 0..1 << 16 {
        assert_eq!(peer.frame().await.header.stream_id, 2 * number + 1);
    }
    assert!(
        say_within(&client, secs(1))
            .await
            .unwrap_err()
            .is_deadline()
    );
    let waiting = client.clone();
    let next = tokio::spawn(async move { say(&waiting).await });
    peer.silence(secs(10)).await;
    peer.respond(1).await;
    let (id, _) = peer.request().await;
    peer.respond(id).await;
    next.await.unwrap().unwrap();
}

// row: those who wait for room, and probes
#[tokio::test(start_paused = true)]
async fn nothing_is_left_of_ten_thousand_who_waited_and_were_dropped() {
    let (here, there) = tokio::io::duplex(64);
    let client = Client::builder().outbox_limit(100).call_limit(2);
    let client = client.attach(here).unwrap();
    let mut peer = Peer::new(there);
    let call = client.client_stream_bytes(SERVICE, "Up");
    let (mut sender, reply) = call.await.unwrap();
    sender.send(&[0; 200]).await.unwrap();
    for _ in 0..100 {
        let mut calls: Vec<_> = (0..50).map(|_| Box::pin(say(&client))).collect();
        calls.iter_mut().for_each(|call| poll_once(call.as_mut()));
        let mut probes: Vec<_> = (0..50).map(|_| Box::pin(client.probe(secs(9)))).collect();
        probes
            .iter_mut()
            .for_each(|probe| poll_once(probe.as_mut()));
        poll_once(Box::pin(sender.send(&[0; 200])).as_mut());
    }
    peer.answer_ping().await;
    assert_eq!(peer.request().await.0, 1);
    let rest = timeout(secs(60), peer.expect_data()).await;
    assert_eq!(rest.expect("the one message").2.len(), 200);
    drop((sender, reply));
    // A PING that the probes had asked for, at most, and the half-close.
    while let Ok(frame) = timeout(secs(60), peer.frame()).await {
        let known = [MessageType::PING, MessageType::DATA];
        assert!(known.contains(&frame.header.message_type), "{frame:?}");
    }
    let (reply, ()) = tokio::join!(say(&client), async {
        let (id, _) = peer.request().await;
        assert_eq!(id, 3, "none of them has an id");
        peer.respond(id).await;
    });
    reply.unwrap();
}

// row: messages of one stream that nobody has taken
#[tokio::test(start_paused = true)]
async fn at_16_mib_of_messages_that_nobody_takes_their_stream_fails_alone() {
    // With the 64 bytes beside each message 15 fit, and the 16th does not.
    let expected = (16 * (MIB + 64), 16 * MIB);
    let (client, mut peer) = client(64 << 10);
    let call = client.server_stream_bytes(SERVICE, "Down", b"");
    let mut receiver = call.await.unwrap();
    peer.request().await;
    for _ in 0..16 {
        peer.data(1, Flags::NONE, &vec![0; MIB]).await;
    }
    sleep(ms(1)).await;
    for _ in 0..15 {
        receiver.next().await.unwrap().unwrap();
    }
    let error = receiver.next().await.unwrap().unwrap_err();
    let Error::StreamOverflow { size, limit } = error else {
        panic!("{error}")
    };
    assert_eq!((size, limit), expected);
    let (reply, ()) = tokio::join!(say(&client), async {
        let (id, _) = peer.request().await;
        peer.respond(id).await;
    });
    reply.unwrap();

    let server = echo().client_stream_bytes(
        SERVICE,
        "Deaf",
        |_: Context, requests: Requests<Bytes>| async move {
            sleep(secs(3600)).await;
            drop(requests);
            Ok(Bytes::new())
        },
    );
    let mut peer = served(server.build().unwrap());
    let open = Flags::REMOTE_OPEN | Flags::NO_DATA;
    peer.open(1, "Deaf", open, b"").await;
    for _ in 0..15 {
        peer.data(1, Flags::NONE, &vec![0; MIB]).await;
    }
    peer.silence(secs(1)).await;
    peer.data(1, Flags::NONE, &vec![0; MIB]).await;
    let status = refused(&mut peer, 1).await;
    assert_eq!(status.code(), Code::RESOURCE_EXHAUSTED);
    for number in [expected.0, expected.1] {
        assert!(status.message().contains(&number.to_string()), "{status}");
    }
    peer.call(3, "Say", "hello").await;
    assert_eq!(peer.expect_response().await.0, 3);
}

// row: late calls that are followed
#[tokio::test(start_paused = true)]
async fn of_1_025_late_calls_the_oldest_is_forgotten() {
    let (client, mut peer) = client(MIB);
    let mut late = Vec::new();
    for number in 0..1025 {
        let error = say_within(&client, ms(10)).await.unwrap_err();
        late.push(error.late_answer().expect("it was written"));
        assert_eq!(peer.request().await.0, 2 * number + 1);
        let followed = client.snapshot().late_calls_unanswered();
        assert_eq!(followed, late.len().min(1024));
    }
    let mut late = late.into_iter();
    assert!(matches!(late.next().unwrap().await, LateOutcome::Forgotten));
    peer.respond(3).await;
    let second = late.next().unwrap().await;
    assert!(matches!(second, LateOutcome::Answered { .. }));
}

// row: handlers that run
#[tokio::test(start_paused = true)]
async fn of_1_025_requests_1_024_run_and_one_waits() {
    let (server, running) = endless();
    let mut peer = served(server.build().unwrap());
    for number in 0..1023 {
        peer.call(2 * number + 1, "Work", "").await;
    }
    peer.call(2047, "Sleep", "1000").await;
    peer.call(2049, "Work", "").await;
    peer.silence(ms(900)).await;
    assert_eq!(running.load(Ordering::Relaxed), 1023);
    assert_eq!(peer.expect_response().await.0, 2047);
    peer.silence(ms(1)).await;
    assert_eq!(running.load(Ordering::Relaxed), 1024);
}

// row: requests that wait for a handler
#[tokio::test(start_paused = true)]
async fn behind_1_024_that_wait_a_request_is_refused_at_once() {
    let (server, running) = endless();
    let mut peer = served(server.build().unwrap());
    for number in 0..2048 {
        peer.call(2 * number + 1, "Work", "").await;
    }
    peer.silence(secs(10)).await;
    peer.call(4097, "Work", "").await;
    let status = timeout(ms(10), refused(&mut peer, 4097)).await;
    let status = status.expect("at once");
    assert_eq!(status.code(), Code::RESOURCE_EXHAUSTED);
    assert_eq!(running.load(Ordering::Relaxed), 1024);
    peer.send(ping(1)).await;
    assert_eq!(ping_number(&peer.frame().await.payload), Some(1));
}

// row: answers not taken by the client
#[tokio::test(start_paused = true)]
async fn with_more_than_16_mib_of_answers_owed_requests_are_not_read_and_messages_wait() {
    let (sent, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (called, counted) = (Arc::clone(&seen), Arc::clone(&sent));
    let server = echo()
        .unary_bytes("demo.Echo", "Counted", move |_: Context, _: Bytes| {
            called.fetch_add(1, Ordering::Relaxed);
            async { Ok(Bytes::from(vec![0; MIB])) }
        })
        .server_stream_bytes(
            SERVICE,
            "Down",
            move |_: Context, _: Bytes, mut out: Responses<[u8]>| {
                let counted = Arc::clone(&counted);
                async move {
                    for _ in 0..20 {
                        out.send(&vec![0; MIB]).await?;
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                }
            },
        );
    let server = server.build().unwrap();
    let connect = || {
        let (here, there) = tokio::io::duplex(4096);
        let server = server.clone();
        tokio::spawn(async move { server.serve_connection(here).await });
        Peer::new(there)
    };

    let mut peer = connect();
    for number in 0..20 {
        peer.call(2 * number + 1, "Counted", "").await;
        sleep(ms(1)).await;
    }
    // The pipe has a part of the first answer, so that the 17th makes it more than 16 MiB.
    assert_eq!(seen.load(Ordering::Relaxed), 17);
    for number in 0..20 {
        assert_eq!(peer.expect_response().await.0, 2 * number + 1);
    }
    assert_eq!(seen.load(Ordering::Relaxed), 20);

    let mut peer = connect();
    peer.open(1, "Down", Flags::REMOTE_CLOSED, b"").await;
    sleep(secs(1)).await;
    assert_eq!(sent.load(Ordering::Relaxed), 17);
    peer.call(3, "Counted", "").await;
    sleep(secs(1)).await;
    assert_eq!(seen.load(Ordering::Relaxed), 21, "requests are still read");
    for _ in 0..20 {
        peer.frame().await;
    }
    assert_eq!(sent.load(Ordering::Relaxed), 20);
}

// row: PONGs waiting to be written
#[tokio::test(start_paused = true)]
async fn of_1_000_pings_that_wait_the_newest_is_answered() {
    let (here, there) = tokio::io::duplex(4096);
    let server = echo().build().unwrap();
    tokio::spawn(async move { server.serve_connection(here).await });
    let mut peer = Peer::new(there);
    let head = RequestHead {
        service: "demo.Echo",
        method: "Large",
        timeout_nano: 0,
        metadata: &[],
    };
    let request = encode_request(1, Flags::NONE, &head, &Raw(b"10000"));
    peer.send(request.unwrap()).await;
    sleep(ms(1)).await;
    for number in 1..=1000 {
        peer.send(ping(number)).await;
        sleep(ms(1)).await;
    }
    assert_eq!(peer.expect_response().await.0, 1);
    assert_eq!(ping_number(&peer.frame().await.payload), Some(1000));
    peer.silence(secs(1)).await;
    // Of as many bytes as a PONG may have.
    for size in [64, 65] {
        peer.send(junk(4, 1, Flags::NONE, &vec![7; size])).await;
    }
    assert_eq!(peer.frame().await.payload.len(), 64);
    peer.silence(secs(1)).await;
}

// row: a frame
#[tokio::test(start_paused = true)]
async fn a_payload_of_4_mib_passes_and_one_byte_more_costs_its_own_call() {
    let most = vec![7; MAX_PAYLOAD];
    let more = vec![7; MAX_PAYLOAD + 1];
    assert_eq!(MAX_PAYLOAD, 4 * MIB);
    let (client, mut peer) = client(64 << 10);
    let call = client.bidi_stream_bytes(SERVICE, "Both");
    let (mut sender, mut receiver) = call.await.unwrap();
    peer.request().await;
    sender.send(&most).await.unwrap();
    assert_eq!(peer.expect_data().await.2.len(), MAX_PAYLOAD);
    let error = sender.send(&more).await.unwrap_err();
    assert!(matches!(error, Error::RequestTooLarge(_)), "{error}");
    for message in [&most, &more] {
        peer.send(junk(3, 1, Flags::NONE, message)).await;
    }
    assert_eq!(receiver.next().await.unwrap().unwrap(), most);
    let error = receiver.next().await.unwrap().unwrap_err();
    assert!(matches!(error, Error::ResponseTooLarge(_)), "{error}");

    let mut peer = served(streams().build().unwrap());
    peer.open(1, "Echo", Flags::REMOTE_OPEN | Flags::NO_DATA, b"")
        .await;
    // A message that rust-protobuf can read: one unknown field.
    let around = [&[0xFA, 0x07][..], &[0xFA, 0xFF, 0xFF, 0x01]].concat();
    let mut message = around.clone();
    message.resize(MAX_PAYLOAD, 7);
    peer.send(junk(3, 1, Flags::NONE, &message)).await;
    assert_eq!(peer.expect_data().await.2.len(), MAX_PAYLOAD);
    peer.send(junk(3, 1, Flags::NONE, &more)).await;
    let status = refused(&mut peer, 1).await;
    assert_eq!(status.code(), Code::RESOURCE_EXHAUSTED);
    peer.call(3, "Say", "hello").await;
    assert_eq!(peer.expect_response().await.0, 3);
}

// row: pairs of metadata, details of a status
#[tokio::test(start_paused = true)]
async fn with_4_097_pairs_or_details_an_envelope_cannot_be_read() {
    assert_eq!(MAX_REPEATED, 4096);
    let mut peer = served(echo().build().unwrap());
    for (id, pairs, code) in [
        (1, 4096, Code::OK),
        (3, 4097, Code::INVALID_ARGUMENT),
        (5, 0, Code::OK),
    ] {
        let metadata = vec![(String::new(), String::new()); pairs];
        let head = RequestHead {
            service: "demo.Echo",
            method: "Say",
            timeout_nano: 0,
            metadata: &metadata,
        };
        let request = encode_request(id, Flags::NONE, &head, &Raw(b"")).unwrap();
        peer.send(request).await;
        let (of, response) = peer.expect_response().await;
        let came = response.status.map_or(Code::OK, |status| status.code());
        assert_eq!((of, came), (id, code));
    }
    for (details, readable) in [(4096, true), (4097, false)] {
        let (client, mut peer) = client(MIB);
        let status = Status::new(Code::ABORTED, "");
        let status = status.with_details(vec![Default::default(); details]);
        let (reply, ()) = tokio::join!(say(&client), async {
            let (id, _) = peer.request().await;
            peer.send(encode_status(id, &status)).await;
        });
        let error = reply.unwrap_err();
        assert_eq!(error.status().is_some(), readable, "{error}");
        assert_eq!(matches!(error, Error::InvalidResponse(_)), !readable);
    }
}

// row: buffers kept for the next frames, in src/buffers.rs: what_is_kept_is_bounded_and_follows_the_sizes_in_use

// row: connections of a server
#[tokio::test(start_paused = true)]
async fn a_server_takes_every_connection_that_comes() {
    let server = echo().build().unwrap();
    let mut peers = Vec::new();
    for _ in 0..2000 {
        let (here, there) = tokio::io::duplex(4096);
        let server = server.clone();
        tokio::spawn(async move { server.serve_connection(here).await });
        peers.push(Peer::new(there));
    }
    for peer in &mut peers {
        peer.call(1, "Say", "hello").await;
    }
    for peer in &mut peers {
        let answer = Response::decode(&peer.frame().await.payload).unwrap();
        assert_eq!(answer.status, None);
    }
}

/// A row that is added without a test, or a test whose row is gone, fails here.
#[test]
fn every_row_of_the_table_has_a_test_and_every_test_its_row() {
    let front_page = include_str!("../src/lib.rs");
    let (_, limits) = front_page.split_once("//! # Limits").unwrap();
    let table: BTreeMap<&str, ()> = limits
        .lines()
        .skip_while(|line| !line.starts_with("//! |---"))
        .skip(1)
        .take_while(|line| line.starts_with("//! |"))
        .map(|line| (line.split('|').nth(1).unwrap().trim(), ()))
        .collect();
    let mut tested = BTreeMap::new();
    let mut lines = include_str!("bounds.rs").lines();
    while let Some(line) = lines.next() {
        let Some(row) = line.strip_prefix("// row: ") else {
            continue;
        };
        match row.split_once(", in ") {
            None => {
                assert!(lines.next().unwrap().starts_with("#[tokio::test"), "{row}");
                tested.insert(row, ());
            }
            Some((row, place)) => {
                let (file, test) = place.split_once(": ").unwrap();
                let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
                let source = std::fs::read_to_string(file).unwrap();
                assert!(source.contains(&format!("fn {test}()")), "{row}: {place}");
                tested.insert(row, ());
            }
        }
    }
    assert!(table.len() > 5, "{table:?}");
    assert_eq!(tested, table);
}
