//! An unmodified client in Go and a server of this crate, or one that does what no good server does.

use std::time::Duration;

use ttrpc_keepalive::wire::{MessageType, encode_response};

use crate::Result;
use crate::raw::RawServer;
use crate::report::{NEWEST, Report, World, claim};
use crate::service::text;

/// Scenarios that `interop/go/peer` plays, and what they are called here.
const SCENARIOS: &[(&str, &str)] = &[
    ("unary", "unary"),
    ("client-stream", "client stream"),
    ("server-stream", "server stream"),
    ("bidi-stream", "bidi stream"),
    ("metadata", "metadata"),
    ("timeout", "timeouts"),
    ("errors", "errors"),
    ("oversize", "oversize"),
    ("many", "64 x 1,000 calls"),
    ("late", "late response"),
];

pub(crate) async fn all(world: &World, report: &mut Report) {
    for (scenario, called) in SCENARIOS {
        let name = format!("go client {NEWEST}, rust server: {called}");
        report.pairing(&name, play(world, NEWEST, scenario)).await;
    }
    let name = "go client 1.2.5, rust server: oversize";
    report.pairing(name, play(world, "1.2.5", "oversize")).await;
    let name = format!("go client {NEWEST}, rust server: graceful shutdown");
    report.pairing(&name, shutdown(world, &[])).await;
    let name =
        format!("go client {NEWEST} with keepalive, rust server: graceful shutdown, PINGs flow");
    report
        .pairing(
            &name,
            shutdown(world, &["-idle", "20ms", "-timeout", "20s"]),
        )
        .await;
    let name = format!("go client {NEWEST}, rust server: repeated responses");
    report.pairing(&name, repeated(world)).await;
    let name = format!("go client {NEWEST}, rust server: no PING unasked");
    report.pairing(&name, unasked(world)).await;
}

async fn play(world: &World, version: &str, scenario: &str) -> Result<String> {
    let (_server, socket) = world.own_server(&[]).await?;
    let mut client = world.go_client(version, &[], &socket, &["play", scenario])?;
    client.outcome().await
}

async fn shutdown(world: &World, wrap: &[&str]) -> Result<String> {
    let (mut server, socket) = world.own_server(&[]).await?;
    let mut client = world.go_client(NEWEST, wrap, &socket, &["play", "shutdown"])?;
    client.expect("go").await?;
    server.tell("shutdown").await?;
    let shown = client.outcome().await?;
    server.expect("down true").await?;
    Ok(shown)
}

async fn repeated(world: &World) -> Result<String> {
    let socket = world.socket();
    let listener = RawServer::bind(&socket)?;
    let mut client = world.go_client(NEWEST, &[], &socket, &["script"])?;
    client.expect("ready").await?;
    let mut server = listener.accept().await?;
    for round in 0..3 {
        client.tell(&format!("say {round}")).await?;
        let request = server.expect(MessageType::REQUEST).await?;
        let id = request.header.stream_id;
        for _ in 0..5 {
            server
                .send(&encode_response(id, &text(&round.to_string()))?)
                .await?;
        }
        let said = client.line().await?;
        claim!(said == format!("say {round} ok"), "{said}");
    }
    Ok("five responses a call, the first counts".into())
}

// T55
/// A server that would ask every 50 ms, were it allowed to.
async fn unasked(world: &World) -> Result<String> {
    let (_server, socket) = world.own_server(&["50"]).await?;
    let mut client = world.go_client(NEWEST, &[], &socket, &["script"])?;
    client.expect("ready").await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    for call in ["say idle", "sleep 500", "stream", "say busy"] {
        let said = client.ask(call).await?;
        claim!(said == "ok", "{call}: {said}");
    }
    // This client writes a line for each frame that it does not expect.
    claim!(
        client.logged().is_empty(),
        "the client logs {}",
        client.logged()
    );
    Ok("idle and busy for a second, no line in the client's log".into())
}
