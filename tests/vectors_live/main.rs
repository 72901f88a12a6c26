//! The vectors in `interop/vectors` played to a live server and a live client over a pipe.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

#[path = "support/vectors.rs"]
mod files;
mod support;

use bytes::Bytes;
use files::{Vector, bytes, vectors};
use protobuf::Message;
use serde_json::Value;
use support::*;
use tokio::io::DuplexStream;
use tokio::time::{sleep, timeout};
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::wire::{Frame, MessageType, Response, ping, pong};
use ttrpc_keepalive::{Client, Error};

/// Plays the frames of a vector, and checks what comes back and whether the connection goes on.
async fn play(vector: &Vector, peer: &mut Peer<DuplexStream>) {
    let name = &vector.name;
    let mut came = Vec::new();
    for piece in &vector.frames_in {
        for part in piece.chunks(64 << 10) {
            // One that ends the connection may do so before its last piece is written.
            let _ = tokio::io::AsyncWriteExt::write_all(&mut peer.stream, part).await;
        }
        while let Ok(Some(frame)) = timeout(ms(5), peer.next()).await {
            came.push(frame);
        }
    }
    check_answers(name, &vector.frames_out, came);
    if vector.ends {
        let next = timeout(secs(5), peer.next()).await;
        assert_eq!(next.ok(), Some(None), "{name}: the connection ends");
    } else {
        peer.send(ping(0x1234_5678)).await;
        let answer = timeout(secs(5), peer.next()).await.expect("a PONG comes");
        let answer = answer.unwrap_or_else(|| panic!("{name}: the connection goes on"));
        assert_eq!(answer.header.message_type, MessageType::PONG, "{name}");
    }
}

fn check_answers(name: &str, expected: &[Value], came: Vec<Frame>) {
    let mut came = came.into_iter().peekable();
    for answer in expected {
        let exact = match answer {
            Value::String(_) => Some(bytes(answer)),
            _ => answer.get("hex").map(bytes),
        };
        let Some(exact) = exact else {
            let frame = came
                .next()
                .unwrap_or_else(|| panic!("{name}: an answer is missing"));
            assert_eq!(frame.header.message_type, MessageType::RESPONSE, "{name}");
            assert_eq!(answer["stream_id"], frame.header.stream_id, "{name}");
            let status = Response::decode(&frame.payload).unwrap().status.unwrap();
            assert_eq!(answer["code"], status.code().value(), "{name}: {status}");
            continue;
        };
        let optional = answer["optional"] == true;
        let next = came
            .peek()
            .map(|frame| [&frame.header.encode()[..], &frame.payload].concat());
        if next.as_ref() == Some(&exact) {
            came.next();
        } else {
            assert!(optional, "{name}: {next:?} and not {exact:?}");
        }
    }
    let rest: Vec<_> = came.collect();
    assert!(
        rest.is_empty(),
        "{name}: nothing more is answered, but {rest:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_answers_each_vector_as_it_says() {
    let mut played = 0;
    for vector in vectors().iter().filter(|vector| vector.call.is_none()) {
        let mut peer = served(echo().build().unwrap());
        play(vector, &mut peer).await;
        played += 1;
    }
    assert!(played > 20, "{played}");
}

#[tokio::test(start_paused = true)]
async fn a_client_takes_each_vector_as_it_says() {
    let mut played = 0;
    for vector in vectors() {
        let (name, Some(outcome)) = (&vector.name, &vector.call) else {
            continue;
        };
        let (client, mut peer) = scripted(Keepalive::on_demand(), 1 << 20);
        let call = tokio::spawn(call(client.clone()));
        peer.ping().await;
        assert_eq!(peer.request().await.0, 1);
        play(&vector, &mut peer).await;
        sleep(ms(1)).await;
        match outcome {
            Value::String(waits) if waits == "waits" => {
                assert!(!call.is_finished(), "{name}: the call waits");
            }
            Value::String(fails) if fails == "fails" => {
                let error = call.await.unwrap().unwrap_err();
                assert!(error.status().is_none(), "{name}: {error}");
            }
            result => match (call.await.unwrap(), result.get("ok")) {
                (Ok(message), Some(ok)) => assert_eq!(message, bytes(ok), "{name}"),
                (Err(error), None) => {
                    let status = error.status().unwrap_or_else(|| panic!("{name}: {error}"));
                    assert_eq!(result["code"], status.code().value(), "{name}");
                    assert_eq!(result["message"], status.message(), "{name}");
                }
                (came, _) => panic!("{name}: {came:?} and not {result}"),
            },
        }
        played += 1;
    }
    assert!(played > 20, "{played}");
}

/// The call that the vectors describe.
async fn call(client: Client) -> Result<Bytes, Error> {
    let message = text("hi").write_to_bytes().unwrap();
    client.call_bytes("demo.Echo", "Say", &message).await
}

// T47
#[tokio::test(start_paused = true)]
async fn two_ends_that_receive_a_pong_produce_no_frames() {
    let mut server = served(echo().build().unwrap());
    let (_client, mut client) = scripted(Keepalive::on_demand(), 1 << 20);
    for peer in [&mut server, &mut client] {
        for number in 0..10u64 {
            let payload = number.to_be_bytes();
            peer.send(pong(u32::MAX, Default::default(), &payload))
                .await;
        }
        peer.silence(secs(60)).await;
    }
}
