//! The vectors in `interop/vectors` played to a live server and a live client over a pipe: exchanges
//! here, scripts in `scripts`.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

#[path = "../support/vectors.rs"]
mod files;
mod scripts;
#[path = "../support/mod.rs"]
mod support;

use files::{Vector, fits, vectors, wrong_answers};
use protobuf::Message;
use serde_json::{Value, json};
use support::*;
use tokio::io::DuplexStream;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::wire::{MessageType, ping, pong};
use ttrpc_keepalive::{Client, Error, Raw};

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
    let wrong = wrong_answers(&came, &vector.frames_out);
    assert!(wrong.is_none(), "{name}: {}", wrong.unwrap_or_default());
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
        let ended = ended(call).await;
        assert!(fits(&ended, outcome), "{name}: {ended} and not {outcome}");
        played += 1;
    }
    assert!(played > 20, "{played}");
}

/// The call that the vectors describe.
async fn call(client: Client) -> Result<Raw, Error> {
    let message = text("hi").write_to_bytes().unwrap();
    client
        .call::<_, Raw>("demo.Echo", "Say", &Raw(&message))
        .await
}

/// How a call has ended, as the vectors say it.
async fn ended(call: JoinHandle<Result<Raw, Error>>) -> Value {
    if !call.is_finished() {
        return json!("waits");
    }
    match call.await.unwrap() {
        Ok(message) => json!({"ok": hex(&message)}),
        Err(error) => error.status().map_or_else(
            || json!("fails"),
            |status| json!({"code": status.code().value(), "message": status.message()}),
        ),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
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
