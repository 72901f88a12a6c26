//! A server that is sent PINGs and PONGs.

use tokio::net::UnixStream;
use ttrpc_keepalive::wire::{
    Flags, MessageType, PING_STREAM_ID, RequestHead, Response, encode_request,
};
use ttrpc_keepalive::{Client, Support};

use super::{MANY, Peer, answer, control, lines};
use crate::Result;
use crate::process::Process;
use crate::raw::RawPeer;
use crate::report::{World, claim};
use crate::service::{UNARY, int, text};
use crate::to_go::say;

/// How often a shutdown is tried until a call in flight is answered.
const SHUTDOWNS: usize = 5;

pub(super) async fn row(world: &World, peer: &Peer) -> Result<String> {
    let (server, mut connection, _) = connect(world, peer).await?;
    // As the first frame of a connection, which is where the RFC has it.
    let ping = answer_to(&mut connection, MessageType::PING, 1).await?;
    let pong = answer_to(&mut connection, MessageType::PONG, 3).await?;
    let calls = calls(&mut connection, 5).await;
    drop(connection);
    let logged = lines(&server, 2 + 2 * MANY).await;

    let shutdown = if answers_at_shutdown(world, peer, true).await? {
        "answered"
    } else if answers_at_shutdown(world, peer, false).await? {
        "cut, and without PINGs answered"
    } else {
        "cut, also without PINGs"
    };

    let (_server, _, socket) = connect(world, peer).await?;
    let client = Client::builder()
        .connect(&format!("unix://{}", socket.display()))
        .await?;
    say(&client, "first").await?;
    say(&client, "second").await?;
    let known = match client.snapshot().support() {
        Support::Yes => "yes",
        Support::No => "no",
        _ => "undecided",
    };
    Ok(format!(
        "| {} | {ping} | {pong} | {} | {shutdown} | {logged} | {known} |",
        peer.label(),
        calls.map_or_else(|error| format!("harmed: {error}"), |()| "unharmed".into()),
    ))
}

type Connected = (Process, RawPeer, std::path::PathBuf);

async fn connect(world: &World, peer: &Peer) -> Result<Connected> {
    let socket = world.socket();
    let mut server = peer.start(world, "serve", &socket)?;
    server.expect("ready").await?;
    let connection = RawPeer::new(UnixStream::connect(&socket).await?);
    Ok((server, connection, socket))
}

/// What comes before the answer to a call that is made behind the frame.
async fn answer_to(connection: &mut RawPeer, message_type: MessageType, id: u32) -> Result<String> {
    connection.send(&control(message_type, 1)).await?;
    call(connection, id, "Say", 0).await?;
    let mut answered = None;
    loop {
        let frame = connection.expect_any().await?;
        if frame.header.stream_id == id {
            return answer(answered.as_ref());
        }
        claim!(
            frame.header.stream_id == PING_STREAM_ID,
            "{:?}",
            frame.header
        );
        answered = Some(frame);
    }
}

/// A call is in flight while many PINGs and PONGs come, and another one follows.
async fn calls(connection: &mut RawPeer, id: u32) -> Result<()> {
    call(connection, id, "Sleep", 400).await?;
    for number in 0..MANY {
        connection
            .send(&control(MessageType::PING, u64::try_from(number)?))
            .await?;
        connection
            .send(&control(MessageType::PONG, u64::try_from(number)?))
            .await?;
    }
    answered(connection, id).await?;
    call(connection, id + 2, "Sleep", 0).await?;
    answered(connection, id + 2).await
}

async fn call(connection: &mut RawPeer, id: u32, method: &str, ms: i64) -> Result<()> {
    let head = RequestHead {
        service: UNARY,
        method,
        timeout_nano: 0,
        metadata: &[],
    };
    let request = if method == "Say" {
        encode_request(id, Flags::NONE, &head, &text("warm"))?
    } else {
        encode_request(id, Flags::NONE, &head, &int(ms))?
    };
    connection.send(&request).await
}

async fn answered(connection: &mut RawPeer, id: u32) -> Result<()> {
    loop {
        let frame = connection.expect_any().await?;
        if frame.header.stream_id == id {
            let status = Response::decode(&frame.payload)?.status;
            claim!(
                status.is_none_or(|status| status.code().value() == 0),
                "call {id} fails"
            );
            return Ok(());
        }
        claim!(
            frame.header.stream_id == PING_STREAM_ID,
            "{:?}",
            frame.header
        );
    }
}

/// Whether a server that is shut down answers a call in flight. Some versions cut one now and then,
/// whether PINGs come or not; one that PINGs make it cut is cut each time.
async fn answers_at_shutdown(world: &World, peer: &Peer, pings: bool) -> Result<bool> {
    for _ in 0..SHUTDOWNS {
        if shutdown(world, peer, pings).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Shuts the server down while a call is in flight and another one has ended meanwhile, since some
/// versions count calls only then.
async fn shutdown(world: &World, peer: &Peer, pings: bool) -> Result<bool> {
    let (mut server, mut connection, _) = connect(world, peer).await?;
    call(&mut connection, 1, "Sleep", 900).await?;
    for number in 0..MANY * usize::from(pings) {
        connection
            .send(&control(MessageType::PING, u64::try_from(number)?))
            .await?;
    }
    call(&mut connection, 3, "Say", 0).await?;
    answered(&mut connection, 3).await?;
    server.tell("shutdown").await?;
    Ok(answered(&mut connection, 1).await.is_ok())
}
