//! Texts of a peer: cut where they are shown, and answered with the reason where they cannot be read.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use support::*;
use tokio::io::DuplexStream;
use tracing::Level;
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::wire::{Flags, Raw, RequestHead, encode_request, encode_status};
use ttrpc_keepalive::{Code, Service, Status};

/// A text that the longest frame can carry.
fn long(letter: &str) -> String {
    letter.repeat(4_194_000 / letter.len())
}

/// A field with a length.
fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let mut length = value.len();
    let mut out = vec![number << 3 | 2];
    while length > 0x7F {
        out.push(u8::try_from(length & 0x7F).unwrap() | 0x80);
        length >>= 7;
    }
    out.push(u8::try_from(length).unwrap());
    [&out, value].concat()
}

/// An envelope for `demo.Echo/Say`, with these bytes behind it.
fn envelope(rest: &[u8]) -> Vec<u8> {
    [&field(1, b"demo.Echo"), &field(2, b"Say"), rest].concat()
}

/// All that was logged.
fn logged(log: &Log) -> String {
    log.at_least(Level::TRACE).join("\n")
}

/// Sends this envelope as the request of a stream, and yields how it is refused.
async fn refused(peer: &mut Peer<DuplexStream>, id: u32, envelope: &[u8]) -> Status {
    peer.send(junk(1, id, Flags::NONE, envelope)).await;
    let (answered, response) = peer.expect_response().await;
    assert_eq!(answered, id);
    response.status.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_be_read_is_refused_with_the_reason() {
    let pair = field(5, &[field(1, b"k"), field(2, b"v")].concat());
    let odd_name = [field(1, b"\xc3\x28"), field(2, b"Say")].concat();
    let odd_value = field(5, &[field(1, b"k"), field(2, b"\xff\xfe")].concat());
    let cut_in_message = field(3, b"\x0a\x7f\x01");
    let table: [(Vec<u8>, &[&str]); 8] = [
        (envelope(&pair.repeat(4097)), &["4096", "pairs of metadata"]),
        (odd_name, &["UTF-8"]),
        (envelope(&odd_value), &["UTF-8"]),
        (envelope(b"\x1a\x7f\x01"), &["cut off"]),
        (envelope(b"\x20\xff"), &["does not end"]),
        (envelope(b"\x7b\x78\x01"), &["a group without an end"]),
        (envelope(b"\x02\x00"), &["field number 0"]),
        (envelope(&cut_in_message), &["the request's message", "EOF"]),
    ];
    let mut peer = served(echo().build().unwrap());
    for ((envelope, words), id) in table.into_iter().zip((1..).step_by(2)) {
        let status = refused(&mut peer, id, &envelope).await;
        assert_eq!(status.code(), Code::INVALID_ARGUMENT, "{status}");
        for word in words {
            assert!(status.message().contains(word), "{status} lacks {word:?}");
        }
    }
    peer.call(101, "Say", "hello").await;
    assert_eq!(code(&mut peer, 101).await, Code::OK);
}

#[tokio::test(start_paused = true)]
async fn a_name_as_long_as_a_frame_is_refused_with_its_beginning() {
    let mut peer = served(echo().build().unwrap());
    let mut id = 1;
    for letter in ["x", "\u{1}", "\u{10ffff}"] {
        let name = long(letter);
        for (service, method) in [("demo.Echo", name.as_str()), (&name, "Say")] {
            let names = [field(1, service.as_bytes()), field(2, method.as_bytes())].concat();
            let status = refused(&mut peer, id, &names).await;
            assert_eq!(status.code(), Code::UNIMPLEMENTED);
            let message = status.message();
            assert!(message.len() < 2048, "{} bytes", message.len());
            let length = format!("({} bytes)", name.len());
            assert!(message.contains(&length), "{message}");
            id += 2;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_of_a_peer_is_cut_in_errors_and_logs_and_can_be_read_whole() {
    let (log, _guard) = Log::begin();
    let (client, mut peer) = scripted(Keepalive::off(), 8 << 20);
    for code in [Code::NOT_FOUND, Code::DEADLINE_EXCEEDED, Code::UNAVAILABLE] {
        let message = format!("first line\nERROR second line {}", long("x"));
        let mut detail = protobuf::well_known_types::any::Any::new();
        detail.type_url = "t".repeat(1000);
        let status = Status::new(code, message.as_str()).with_details(vec![detail; 16]);
        let (error, ()) = tokio::join!(say(&client), async {
            let (id, _) = peer.request().await;
            peer.send(encode_status(id, &status)).await;
        });
        let error = error.unwrap_err();
        for shown in [error.to_string(), format!("{error:?}")] {
            assert!(shown.len() < 8 << 10, "{} bytes", shown.len());
            assert!(!shown.contains('\n'), "a line of its own");
        }
        assert!(error.status().unwrap().message().len() > 1 << 20);
    }
    assert!(logged(&log).len() < 64 << 10);
}

#[tokio::test(start_paused = true)]
async fn what_a_context_shows_of_its_call_is_cut() {
    let server = echo().service(
        Service::new("demo.Echo", ()).unary("Show", |(), context, _: Raw| async move {
            Ok(Raw(format!("{context:?}")))
        }),
    );
    let mut peer = served(server.build().unwrap());
    let metadata = vec![("key".repeat(300), "value\n".repeat(150)); 1000];
    let head = RequestHead {
        service: "demo.Echo",
        method: "Show",
        timeout_nano: 0,
        metadata: &metadata,
    };
    peer.send(encode_request(1, Flags::NONE, &head, &Raw(b"")).unwrap())
        .await;
    let (_, response) = peer.expect_response().await;
    let shown = String::from_utf8(response.payload.to_vec()).unwrap();
    assert!(
        shown.len() < 16 << 10 && shown.contains("(1000 pairs)"),
        "{shown}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_a_log_tells_of_a_refusal_is_cut() {
    let (log, _guard) = Log::begin();
    let mut peer = served(echo().build().unwrap());
    let names = [field(1, b"demo.Echo"), field(2, long("\n").as_bytes())].concat();
    refused(&mut peer, 1, &names).await;
    let text = logged(&log);
    assert!(text.contains("a request is refused"), "{text}");
    assert!(text.len() < 16 << 10, "{} bytes", text.len());
}
