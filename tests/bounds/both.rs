//! What has a bound on both ends.

use tokio::time::sleep;
use ttrpc_keepalive::wire::{
    Flags, MAX_PAYLOAD, MAX_REPEATED, Raw, RequestHead, encode_request, encode_status, ping,
    ping_number,
};
use ttrpc_keepalive::{Code, Error, Requests, Service, Status};

use super::support::*;
use super::{MIB, client, raw, refused};

// row: messages of one stream that nobody has taken
#[tokio::test(start_paused = true)]
async fn at_16_mib_of_messages_that_nobody_takes_their_stream_fails_alone() {
    // With the 64 bytes beside each message 15 fit, and the 16th does not.
    let expected = (16 * (MIB + 64), 16 * MIB);
    let (client, mut peer) = client(64 << 10);
    let call = client.server_stream::<_, Raw>(SERVICE, "Down", &Raw(""));
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
    goes_on(&client, &mut peer).await;

    let server = echo().service(Service::new(SERVICE, ()).client_stream(
        "Deaf",
        |(), _, requests: Requests<Raw>| async move {
            sleep(secs(3600)).await;
            drop(requests);
            Ok(Raw(""))
        },
    ));
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
    let request = encode_request(1, Flags::NONE, &head, &Raw("10000"));
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
    let call = client.bidi_stream::<Raw, Raw>(SERVICE, "Both");
    let (sender, mut receiver) = call.await.unwrap();
    peer.request().await;
    sender.send(&raw(&most)).await.unwrap();
    assert_eq!(peer.expect_data().await.2.len(), MAX_PAYLOAD);
    let error = sender.send(&raw(&more)).await.unwrap_err();
    assert!(matches!(error, Error::RequestTooLarge(_)), "{error}");
    for message in [&most, &more] {
        peer.send(junk(3, 1, Flags::NONE, message)).await;
    }
    assert_eq!(*receiver.next().await.unwrap().unwrap(), most);
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
