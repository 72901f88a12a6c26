//! What an error displays is one line with its reason in it, and enough for a log.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use protobuf::well_known_types::wrappers::{self, StringValue};
use support::*;
use tokio::io::AsyncWriteExt;
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::wire::{
    Decoder, MAX_PAYLOAD, MAX_REPEATED, Raw, Request, Response, encode_response,
};
use ttrpc_keepalive::{Client, Code, ConnectionError, Error, RequestProgress, Service, Status};

fn connection(end: ConnectionError) -> Error {
    Error::Connection(end, RequestProgress::Sent)
}

fn system(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

/// Each error of the crate that has a source.
async fn with_sources() -> Vec<Box<dyn StdError>> {
    let not_ttrpc = Decoder::new().decode(&mut &b"GET / HTTP/1.1\r\n"[..]);
    let status = Status::new(Code::INTERNAL, "panicked\nat main.rs:1");
    let too_large = encode_response(1, &Raw(&vec![0; MAX_PAYLOAD + 1])).unwrap_err();
    let cut = Response::decode(&Bytes::from_static(b"\x12\x7f\x01")).unwrap_err();
    let (client, _) = echo_pair(Keepalive::off());
    // Two bytes of text that are none.
    let no_text = wrappers::BytesValue {
        value: vec![0xFF, 0xFE],
        ..Default::default()
    };
    let no_message = client.call::<_, StringValue>("demo.Echo", "Bytes", &no_text);
    let no_message = no_message.await.unwrap_err();
    let wrong = Keepalive::every(ms(0));
    let client = || Client::builder().keepalive(wrong.clone());
    vec![
        Box::new(connection(ConnectionError::PeerClosed)),
        Box::new(connection(ConnectionError::from(system(104)))),
        Box::new(ConnectionError::from(system(104))),
        Box::new(ConnectionError::from(system(32))),
        Box::new(ConnectionError::from(system(12))),
        Box::new(ConnectionError::Announced(Some(Arc::new(system(104))))),
        Box::new(ConnectionError::Protocol(not_ttrpc.unwrap_err())),
        Box::new(Error::Status(status.clone())),
        Box::new(Error::Refused(status)),
        Box::new(Error::RequestTooLarge(too_large)),
        Box::new(Error::ResponseTooLarge(too_large)),
        Box::new(Error::InvalidResponse(cut)),
        Box::new(no_message),
        Box::new(client().attach(tokio::io::duplex(1).0).unwrap_err()),
        Box::new(client().connect("unix://@nobody").await.unwrap_err()),
        Box::new(
            Client::builder()
                .connect("unix:///nobody/listens")
                .await
                .unwrap_err(),
        ),
    ]
}

fn sources(error: &dyn StdError) -> impl Iterator<Item = &dyn StdError> {
    std::iter::successors(error.source(), |error| (*error).source())
}

#[tokio::test]
async fn each_error_says_its_reason_in_one_line() {
    for error in with_sources().await {
        let line = error.to_string();
        assert!(!line.contains('\n'), "{line}");
        for reason in sources(&*error) {
            assert!(line.contains(&reason.to_string()), "{line} / {reason}");
        }
    }
    let error = connection(ConnectionError::PeerClosed);
    assert_eq!(
        error.to_string(),
        "the connection has ended: the peer closed it"
    );
    let reset = connection(ConnectionError::from(system(104)));
    assert!(
        reset
            .to_string()
            .starts_with("the connection has ended: the peer reset it: "),
        "{reset}"
    );
    let announced = ConnectionError::Announced(None).to_string();
    assert_eq!(announced, "the peer closed it, as announced");
}

#[tokio::test]
async fn the_peers_own_deadline_says_what_the_peer_said() {
    let late = "it took\ntoo long";
    let server = echo().service(
        Service::new("demo.Echo", ()).unary("Late", move |(), _, _: Raw| async move {
            Err::<Raw, _>(Status::new(Code::DEADLINE_EXCEEDED, late))
        }),
    );
    let client = client_of(server);
    let error = client.call::<_, Raw>("demo.Echo", "Late", &Raw("")).await;
    let line = error.unwrap_err().to_string();
    assert!(
        line.ends_with(": DEADLINE_EXCEEDED: it took\\ntoo long"),
        "{line}"
    );
}

fn frame(id: u32, envelope: &[u8]) -> Vec<u8> {
    junk(1, id, ttrpc_keepalive::wire::Flags::NONE, envelope)
}

/// A field with a length.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2, u8::try_from(bytes.len()).unwrap()];
    field.extend_from_slice(bytes);
    field
}

#[tokio::test]
async fn who_sends_a_request_that_cannot_be_read_is_told_why() {
    let head = [field(1, b"demo.Echo"), field(2, b"Say")].concat();
    let with = |tail: &[u8]| [&head, tail].concat();
    let pair = field(5, &[field(1, b"k"), field(2, b"v")].concat());
    let no_text = field(5, &[field(1, b"k"), field(2, b"\xff\xfe")].concat());
    let cases = [
        (
            with(&pair.repeat(MAX_REPEATED + 1)),
            "more than 4096 pairs of metadata",
        ),
        (with(&no_text), "a text is not UTF-8"),
        (with(&[0x1a, 0x7f, 1]), "the message is cut off"),
        (with(&[0x4B]), "a group without an end"),
        (with(&[0x4F]), "a field of no known wire type"),
        (with(&[0x80; 12]), "a number"),
        (
            [field(1, b"\xc3\x28"), field(2, b"Say")].concat(),
            "a text is not UTF-8",
        ),
        (with(&field(3, b"\x0a\x02\xff\xfe")), "UTF-8"),
    ];
    let mut peer = served(echo().build().unwrap());
    for (id, (envelope, reason)) in (1..).step_by(2).zip(cases) {
        peer.stream.write_all(&frame(id, &envelope)).await.unwrap();
        let (answered, response) = peer.expect_response().await;
        assert_eq!(answered, id);
        let status = response.status.unwrap();
        assert_eq!(status.code(), Code::INVALID_ARGUMENT);
        let said = status.message();
        assert!(said.contains(reason), "{said:?} does not say {reason:?}");
        assert!(Request::decode(&Bytes::from(envelope)).is_err() || said.contains("message"));
    }
}
