//! What a peer sends that it should not: the one concerned is told, nothing else is lost.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use support::*;
use tokio::io::DuplexStream;
use tokio::time::{sleep, timeout};
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::wire::{
    Flags, LENGTH_LIMIT, MAX_PAYLOAD, MessageType, PING_STREAM_ID, Raw, RequestHead, Response,
    encode_request, encode_status, ping,
};
use ttrpc_keepalive::{Code, ConnectionError, Error, Status, Support};

/// A header that announces more than follows.
fn header(message_type: u8, stream_id: u32, length: u32) -> Vec<u8> {
    let mut frame = junk(message_type, stream_id, Flags::NONE, b"");
    frame[..4].copy_from_slice(&length.to_be_bytes());
    frame
}

/// The next frame is a RESPONSE on this stream; yields its code.
async fn code(peer: &mut Peer<DuplexStream>, stream_id: u32) -> Code {
    let frame = peer.frame().await;
    assert_eq!(
        frame.header.message_type,
        MessageType::RESPONSE,
        "{frame:?}"
    );
    assert_eq!(frame.header.stream_id, stream_id);
    let response = Response::decode(&frame.payload).unwrap();
    response.status.map_or(Code::OK, |status| status.code())
}

/// A call on this stream is answered and so is a PING: nothing was lost.
async fn goes_on(peer: &mut Peer<DuplexStream>, stream_id: u32) {
    peer.call(stream_id, "Say", "hello").await;
    assert_eq!(code(peer, stream_id).await, Code::OK);
    peer.send(ping(77)).await;
    assert_eq!(peer.frame().await.payload[..], 77u64.to_be_bytes());
}

// T87
#[tokio::test(start_paused = true)]
async fn what_is_not_ttrpc_ends_the_connection_and_is_named() {
    let limit = header(1, 1, LENGTH_LIMIT);
    let most = header(4, 1, u32::MAX);
    let table: [(&[u8], &str); 5] = [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00", "TLS"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", "SSH"),
        (&limit, "torn"),
        (&most, "torn"),
    ];
    for (bytes, name) in table {
        let (mut peer, end) = served_until();
        peer.send(bytes).await;
        let end = end.await.unwrap();
        let ConnectionError::Protocol(error) = &end else {
            panic!("{end:?}");
        };
        assert!(error.to_string().contains(name), "{error}");
        assert!(peer.next().await.is_none());

        let (client, mut peer, call) = waiting().await;
        peer.send(bytes).await;
        let error = call.await.unwrap().unwrap_err();
        assert!(error.is_connection() && error.is_peer_fault(), "{error:?}");
        let end = client.closed().await;
        assert!(matches!(end, ConnectionError::Protocol(_)), "{end:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_within_a_frame_is_torn_and_between_two_is_closed() {
    let whole = junk(9, 1, Flags::NONE, b"abc");
    for cut in 0..=whole.len() {
        let torn = cut != 0 && cut != whole.len();
        let (mut peer, end) = served_until();
        peer.send(&whole[..cut]).await;
        drop(peer);
        let end = end.await.unwrap();
        assert_eq!(
            matches!(end, ConnectionError::Torn),
            torn,
            "cut at {cut}: {end:?}"
        );
        assert_eq!(matches!(end, ConnectionError::PeerClosed), !torn);

        let (client, mut peer, call) = waiting().await;
        peer.send(&whole[..cut]).await;
        drop(peer);
        let error = call.await.unwrap().unwrap_err();
        let Error::Connection(end, _) = &error else {
            panic!("{error:?}");
        };
        assert_eq!(
            matches!(end, ConnectionError::Torn),
            torn,
            "cut at {cut}: {end:?}"
        );
        assert!(say(&client).await.unwrap_err().is_connection());
    }
}

// Part 2 number 9, T87
#[tokio::test(start_paused = true)]
async fn an_oversized_request_costs_its_own_stream() {
    let (mut peer, _) = served_until();
    for (id, size) in [(1, MAX_PAYLOAD + 1), (5, 20 << 20)] {
        let chunk = vec![0; 64 << 10];
        peer.send(header(1, id, u32::try_from(size).unwrap())).await;
        let mut left = size;
        while left > 0 {
            let piece = left.min(chunk.len());
            peer.send(&chunk[..piece]).await;
            left -= piece;
        }
        assert_eq!(code(&mut peer, id).await, Code::RESOURCE_EXHAUSTED);
        goes_on(&mut peer, id + 2).await;
    }
}

// Part 2 number 9
#[tokio::test(start_paused = true)]
async fn an_oversized_response_fails_its_call_with_both_sizes() {
    let (client, mut peer, call) = waiting().await;
    peer.send(junk(2, 1, Flags::NONE, &vec![0; MAX_PAYLOAD + 1]))
        .await;
    let error = call.await.unwrap().unwrap_err();
    let Error::ResponseTooLarge(sizes) = &error else {
        panic!("{error:?}");
    };
    assert_eq!((sizes.size, sizes.max), (MAX_PAYLOAD + 1, MAX_PAYLOAD));
    assert!(error.is_peer_fault());
    support::goes_on(&client, &mut peer).await;
}

// RFC KA-4: DATA too.
#[tokio::test(start_paused = true)]
async fn oversized_data_fails_its_call_and_nothing_else() {
    let (client, mut peer, call) = waiting().await;
    peer.send(junk(3, 1, Flags::NONE, &vec![0; MAX_PAYLOAD + 1]))
        .await;
    let ended = timeout(secs(60), call).await.unwrap();
    let error = ended.unwrap().unwrap_err();
    assert!(error.is_peer_fault(), "{error:?}");
    let (reply, _) = tokio::join!(say(&client), async {
        assert_eq!(peer.request().await.0, 3);
        // For a call that has ended it is dropped.
        peer.send(junk(3, 1, Flags::NONE, &vec![0; MAX_PAYLOAD + 1]))
            .await;
        peer.respond(3).await;
    });
    reply.unwrap();
    assert_eq!(client.snapshot().counters().repeated_responses, 0);
}

// Part 2 number 10
#[tokio::test(start_paused = true)]
async fn what_is_too_large_to_send_is_refused_here_and_the_connection_is_untouched() {
    let (client, _) = echo_pair(Keepalive::on_demand());
    say(&client).await.unwrap();
    let error = say_large(&client, MAX_PAYLOAD).await.unwrap_err();
    let Error::RequestTooLarge(sizes) = &error else {
        panic!("{error:?}");
    };
    assert!(sizes.size > MAX_PAYLOAD && sizes.max == MAX_PAYLOAD);

    let size = MAX_PAYLOAD.to_string();
    let error = client
        .call::<_, Raw>("demo.Echo", "Large", &Raw(size.as_bytes()))
        .await
        .unwrap_err();
    let status = error.status().expect("the server says so");
    assert_eq!(status.code(), Code::RESOURCE_EXHAUSTED, "{status}");
    say(&client).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn frames_of_unknown_types_are_skipped_whatever_they_carry() {
    let unknown = || (0..=255u8).filter(|value| !(1..=5).contains(value));
    let payloads: [&[u8]; 3] = [b"", b"abc", &[255; 5000]];
    let (mut peer, _) = served_until();
    for value in unknown() {
        for (payload, id) in payloads.into_iter().zip([0, 1, u32::MAX]) {
            peer.send(junk(value, id, Flags::from(value), payload))
                .await;
        }
    }
    goes_on(&mut peer, 1).await;

    let (_, mut peer, call) = waiting().await;
    for value in unknown() {
        for (payload, id) in payloads.into_iter().zip([0, 1, u32::MAX]) {
            peer.send(junk(value, id, Flags::from(value), payload))
                .await;
        }
    }
    peer.respond(1).await;
    assert_eq!(call.await.unwrap().unwrap(), "hello");
}

#[tokio::test(start_paused = true)]
async fn a_request_on_a_wrong_id_is_refused_and_the_next_one_is_taken() {
    let (mut peer, _) = served_until();
    goes_on(&mut peer, 7).await;
    for wrong in [0, 2, 8, 0xFFFF_FFFE, 1, 5, 7, PING_STREAM_ID] {
        peer.call(wrong, "Say", "hello").await;
        assert_eq!(
            code(&mut peer, wrong).await,
            Code::INVALID_ARGUMENT,
            "id {wrong}"
        );
    }
    goes_on(&mut peer, 9).await;
    // Oversized on a wrong id, too.
    peer.send(junk(1, 4, Flags::NONE, &vec![0; MAX_PAYLOAD + 1]))
        .await;
    assert_eq!(code(&mut peer, 4).await, Code::INVALID_ARGUMENT);
    goes_on(&mut peer, 11).await;
    // The last id that a client may use.
    goes_on(&mut peer, 0xFFFF_FFFD).await;
}

#[tokio::test(start_paused = true)]
async fn an_id_is_used_once_even_while_its_call_runs() {
    let (mut peer, _) = served_until();
    peer.call(1, "Sleep", "1000").await;
    peer.call(1, "Say", "hello").await;
    assert_eq!(code(&mut peer, 1).await, Code::INVALID_ARGUMENT);
    goes_on(&mut peer, 3).await;
    assert_eq!(code(&mut peer, 1).await, Code::OK);
}

#[tokio::test(start_paused = true)]
async fn a_ping_of_any_size_id_and_flag_is_echoed_and_a_long_one_is_skipped() {
    let (mut server, _) = served_until();
    let (_, mut client, call) = waiting().await;
    for peer in [&mut server, &mut client] {
        for size in 0..=70u8 {
            let payload: Vec<u8> = (0..size).collect();
            let id = [0, 1, 2, 77, u32::MAX][usize::from(size % 5)];
            let flags = Flags::from(size.wrapping_mul(37));
            peer.send(junk(4, id, flags, &payload)).await;
            if size > 64 {
                peer.silence(ms(10)).await;
                continue;
            }
            let pong = peer.frame().await;
            assert_eq!(pong.header.message_type, MessageType::PONG);
            assert_eq!(pong.header.stream_id, id);
            assert_eq!(pong.payload, payload);
            assert_eq!(pong.header.flags.bits() & 0xFE, 0, "reserved bits are 0");
        }
        peer.send(junk(4, 1, Flags::NONE, &vec![0; 5 << 20])).await;
        peer.silence(ms(10)).await;
    }
    goes_on(&mut server, 1).await;
    client.respond(1).await;
    call.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pong_of_any_size_id_and_flag_is_taken_and_never_answered() {
    let (mut server, _) = served_until();
    let (watched, mut client, call) = waiting().await;
    for peer in [&mut server, &mut client] {
        for size in 0..=70u8 {
            let payload = vec![255; usize::from(size)];
            let id = [0, 1, 2, 77, u32::MAX][usize::from(size % 5)];
            peer.send(junk(5, id, Flags::from(size.wrapping_mul(37)), &payload))
                .await;
        }
        peer.send(junk(5, 1, Flags::NONE, &vec![0; 5 << 20])).await;
        peer.silence(ms(10)).await;
    }
    goes_on(&mut server, 1).await;
    assert!(!call.is_finished(), "a PONG on a call's id ends nothing");
    client.respond(1).await;
    call.await.unwrap().unwrap();
    // A number that was never asked is no answer: the one round trip is the true one.
    assert!(watched.snapshot().rtt().unwrap() < ms(5));
}

#[tokio::test(start_paused = true)]
async fn an_envelope_that_cannot_be_decoded_fails_its_call() {
    let broken: [&[u8]; 6] = [
        b"\xff",
        b"\x0a\x05ab",
        b"\x0a\x01\xff",
        b"\x07",
        b"\x1a\xff\xff\xff\xff\x0f",
        &[0x80; 40],
    ];
    let (mut peer, _) = served_until();
    for (number, envelope) in (0u32..).zip(broken) {
        let id = 4 * number + 1;
        peer.send(junk(1, id, Flags::NONE, envelope)).await;
        assert_eq!(
            code(&mut peer, id).await,
            Code::INVALID_ARGUMENT,
            "{envelope:?}"
        );
        goes_on(&mut peer, id + 2).await;
    }
    for envelope in broken {
        let (client, mut peer, call) = waiting().await;
        peer.send(junk(2, 1, Flags::NONE, envelope)).await;
        let error = call.await.unwrap().unwrap_err();
        assert!(
            matches!(&error, Error::InvalidResponse(_)),
            "{envelope:?}: {error:?}"
        );
        assert!(error.is_peer_fault());
        support::goes_on(&client, &mut peer).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_cannot_be_decoded_fails_its_call() {
    let raw = Raw(b"\x0a\x05ab");
    let (mut peer, _) = served_until();
    let head = RequestHead {
        service: "demo.Echo",
        method: "Say",
        timeout_nano: 0,
        metadata: &[],
    };
    peer.send(encode_request(1, Flags::NONE, &head, &raw).unwrap())
        .await;
    assert_eq!(code(&mut peer, 1).await, Code::INVALID_ARGUMENT);
    goes_on(&mut peer, 3).await;

    let (_, mut peer, call) = waiting().await;
    let response = ttrpc_keepalive::wire::encode_response(1, &raw).unwrap();
    peer.send(response).await;
    let error = call.await.unwrap().unwrap_err();
    assert!(matches!(&error, Error::InvalidMessage(_)), "{error:?}");
}

// A message of groups in groups, one level a byte: older releases of rust-protobuf take a call on the
// stack for each, and end the process.
#[tokio::test(start_paused = true)]
async fn a_message_of_nested_groups_costs_its_call_and_no_stack() {
    let mut peer = served(echo().build().unwrap());
    let head = RequestHead {
        service: "demo.Echo",
        method: "Say",
        timeout_nano: 0,
        metadata: &[],
    };
    let groups = vec![0x3b; 1 << 20];
    let request = encode_request(1, Flags::NONE, &head, &Raw(&groups)).unwrap();
    peer.send(request).await;
    assert_eq!(code(&mut peer, 1).await, Code::INVALID_ARGUMENT);
    goes_on(&mut peer, 3).await;
}

// RFC KA-48, KA-49
#[tokio::test(start_paused = true)]
async fn requests_that_cannot_be_served_are_told_why() {
    let (mut peer, _) = served_until();
    let pairs = vec![(String::new(), String::new()); 5000];
    type Row<'a> = (&'a str, &'a str, i64, Flags, &'a [(String, String)], Code);
    let table: [Row<'_>; 6] = [
        (
            "demo.Nobody",
            "Say",
            0,
            Flags::NONE,
            &[],
            Code::UNIMPLEMENTED,
        ),
        (
            "demo.Echo",
            "Nothing",
            0,
            Flags::NONE,
            &[],
            Code::UNIMPLEMENTED,
        ),
        ("", "", 0, Flags::NONE, &[], Code::UNIMPLEMENTED),
        (
            "demo.Echo",
            "Say",
            0,
            Flags::REMOTE_OPEN,
            &[],
            Code::UNIMPLEMENTED,
        ),
        (
            "demo.Echo",
            "Say",
            -1,
            Flags::NONE,
            &[],
            Code::DEADLINE_EXCEEDED,
        ),
        (
            "demo.Echo",
            "Say",
            0,
            Flags::NONE,
            &pairs,
            Code::INVALID_ARGUMENT,
        ),
    ];
    for (number, (service, method, timeout_nano, flags, metadata, expected)) in (0u32..).zip(table)
    {
        let head = RequestHead {
            service,
            method,
            timeout_nano,
            metadata,
        };
        let id = 2 * number + 1;
        peer.send(encode_request(id, flags, &head, &text("")).unwrap())
            .await;
        assert_eq!(code(&mut peer, id).await, expected, "{service}/{method}");
    }
    goes_on(&mut peer, 101).await;
}

#[tokio::test(start_paused = true)]
async fn frames_for_nobody_are_dropped() {
    let (mut peer, _) = served_until();
    for id in [0, 1, 2, 3, u32::MAX] {
        for message_type in [2, 3] {
            for flags in 0..8 {
                peer.send(junk(message_type, id, Flags::from(flags), b"\xff\xff"))
                    .await;
            }
        }
    }
    goes_on(&mut peer, 1).await;

    let (client, mut peer, call) = waiting().await;
    for id in [0, 2, 3, 99, 0xFFFF_FFFD] {
        for message_type in [1, 2, 3] {
            peer.send(junk(message_type, id, Flags::NONE, b"\xff\xff"))
                .await;
        }
    }
    peer.send(junk(1, 1, Flags::NONE, b"")).await;
    sleep(ms(1)).await;
    assert!(!call.is_finished());
    peer.respond(1).await;
    call.await.unwrap().unwrap();
    assert_eq!(client.snapshot().counters().repeated_responses, 0);
}

#[tokio::test(start_paused = true)]
async fn stream_data_in_answer_to_a_unary_call_fails_that_call() {
    let (client, mut peer, call) = waiting().await;
    peer.send(junk(3, 1, Flags::NONE, b"x")).await;
    let error = call.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::UnexpectedData), "{error:?}");
    support::goes_on(&client, &mut peer).await;
}

// Part 2 number 11
#[tokio::test(start_paused = true)]
async fn a_response_of_no_bytes_is_an_empty_message() {
    let (_, mut peer, call) = waiting().await;
    peer.send(junk(2, 1, Flags::NONE, b"")).await;
    assert_eq!(call.await.unwrap().unwrap(), "");
}

// T88
#[tokio::test(start_paused = true)]
async fn a_response_that_is_repeated_is_dropped_and_counted() {
    let (client, mut peer, call) = waiting().await;
    for _ in 0..3 {
        peer.respond(1).await;
    }
    call.await.unwrap().unwrap();
    sleep(ms(1)).await;
    assert_eq!(client.snapshot().counters().repeated_responses, 2);
    assert_eq!(client.snapshot().support(), Support::Yes);
}

// T54
#[tokio::test(start_paused = true)]
async fn an_error_on_the_pings_own_id_says_that_the_peer_does_not_know_it() {
    let (client, mut peer) = scripted(Keepalive::every(secs(1)).timeout(secs(1)), 64 << 10);
    peer.ping().await;
    let refused = Status::new(Code::INVALID_ARGUMENT, "StreamID must be odd");
    peer.send(encode_status(PING_STREAM_ID, &refused)).await;
    peer.silence(secs(60)).await;
    assert_eq!(client.snapshot().support(), Support::No);
    support::goes_on(&client, &mut peer).await;
}

// T51
#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_costs_its_call() {
    let (mut peer, _) = served_until();
    peer.call(1, "Sleep", "1000").await;
    peer.call(3, "Panic", "now").await;
    peer.send(ping(5)).await;
    let (mut pong, mut internal) = (false, false);
    for _ in 0..2 {
        let frame = peer.frame().await;
        if frame.header.message_type == MessageType::PONG {
            pong = true;
        } else {
            assert_eq!(frame.header.stream_id, 3);
            let status = Response::decode(&frame.payload).unwrap().status.unwrap();
            internal = status.code() == Code::INTERNAL;
        }
    }
    assert!(pong && internal);
    goes_on(&mut peer, 5).await;
    assert_eq!(code(&mut peer, 1).await, Code::OK, "the other call goes on");
}
