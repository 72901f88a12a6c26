//! A client that is sent PINGs and PONGs. Of a server that keeps RFC KA-28 it never is.

use std::time::Duration;

use ttrpc_keepalive::wire::{
    Flags, MessageType, PING_STREAM_ID, Request, encode_data, encode_response,
};

use super::{MANY, Peer, answer, control, lines, soon};
use crate::Result;
use crate::process::Process;
use crate::raw::{RawPeer, RawServer};
use crate::report::{World, claim};
use crate::service::{int, text};

pub(super) async fn row(world: &World, peer: &Peer) -> Result<String> {
    let socket = world.socket();
    let listener = RawServer::bind(&socket)?;
    let mut client = peer.start(world, "script", &socket)?;
    client.expect("ready").await?;
    let mut server = listener.accept().await?;
    let ping = answer_to(&mut server, MessageType::PING).await?;
    let pong = answer_to(&mut server, MessageType::PONG).await?;
    let calls = calls(&mut client, &mut server, peer.streams).await;
    let logged = lines(&client, 2 + 2 * MANY).await;
    Ok(format!(
        "| {} | {ping} | {pong} | {} | {logged} |",
        peer.label(),
        calls.map_or_else(|error| format!("harmed: {error}"), |()| "unharmed".into()),
    ))
}

async fn answer_to(server: &mut RawPeer, message_type: MessageType) -> Result<String> {
    server.send(&control(message_type, 1)).await?;
    match soon(server.next()).await {
        None => answer(None),
        Some(Ok(Some(frame))) => {
            claim!(
                frame.header.stream_id == PING_STREAM_ID,
                "{:?}",
                frame.header
            );
            answer(Some(&frame))
        }
        Some(_) => Ok("the end of the connection".into()),
    }
}

/// Half of the frames come while a unary call waits, the other half among the messages of a stream;
/// a call follows.
async fn calls(client: &mut Process, server: &mut RawPeer, streams: bool) -> Result<()> {
    client.tell("say waits").await?;
    let id = request(server, "Say").await?;
    let half = if streams { MANY / 2 } else { MANY };
    pings_and_pongs(server, half).await?;
    server.send(&encode_response(id, &text("waits"))?).await?;
    expect(client, "say waits ok").await?;
    if streams {
        client.tell("stream").await?;
        let id = request(server, "Count").await?;
        for number in 0..5 {
            // Some clients take messages that come at once in any order, with PINGs or without.
            tokio::time::sleep(Duration::from_millis(50)).await;
            server
                .send(&encode_data(id, Flags::NONE, &int(number))?)
                .await?;
            pings_and_pongs(server, half / 5).await?;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        let ends = Flags::REMOTE_CLOSED | Flags::NO_DATA;
        server
            .send(&encode_data(id, ends, &ttrpc_keepalive::wire::Raw(&[]))?)
            .await?;
        expect(client, "stream ok").await?;
    }
    client.tell("say next").await?;
    let id = request(server, "Say").await?;
    server.send(&encode_response(id, &text("next"))?).await?;
    expect(client, "say next ok").await
}

async fn pings_and_pongs(server: &mut RawPeer, count: usize) -> Result<()> {
    for number in 0..count {
        server
            .send(&control(MessageType::PING, u64::try_from(number)?))
            .await?;
        server
            .send(&control(MessageType::PONG, u64::try_from(number)?))
            .await?;
    }
    Ok(())
}

/// The next REQUEST, which is for this method; yields its id. What ends a stream is passed over.
async fn request(server: &mut RawPeer, method: &str) -> Result<u32> {
    loop {
        let frame = server.expect_any().await?;
        if frame.header.message_type == MessageType::REQUEST {
            let request = Request::decode(&frame.payload)?;
            claim!(&*request.method == method, "{:?}", request.method);
            return Ok(frame.header.stream_id);
        }
    }
}

async fn expect(client: &mut Process, line: &str) -> Result<()> {
    let said = client.line().await?;
    claim!(said == line, "{said}");
    Ok(())
}
