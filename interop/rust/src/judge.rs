//! One side judges the other, which lives, is slow, is stopped or is gone. The side in Go is an
//! unmodified containerd/ttrpc with package `interop/go/keepalive` around its connection, or one with
//! the lines that `interop/go/native` inserts.

use std::time::{Duration, Instant};

use tokio::time::timeout;
use ttrpc_keepalive::{Client, DeadReason, Error, Keepalive, State, Support, Verdict};

use crate::process::Process;
use crate::report::{NEWEST, Report, World, claim};
use crate::service::{int, unary_of, zeros};
use crate::to_go::say;
use crate::{Result, print};

/// The settings of both sides here: asked after 200 ms, convicted 800 ms later.
const INTERVAL: Duration = Duration::from_millis(200);
const WRAPPED: &[&str] = &["-idle", "200ms", "-timeout", "800ms"];

/// A server in Go that answers PINGs.
struct GoServer {
    name: &'static str,
    version: &'static str,
    wrap: &'static [&'static str],
}

const SERVERS: [GoServer; 2] = [
    GoServer {
        name: "go server with keepalive",
        version: NEWEST,
        wrap: WRAPPED,
    },
    GoServer {
        name: "go server with PING of its own",
        version: "native",
        wrap: &[],
    },
];

/// For what takes a second on an idle machine.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn watched(interval: u64) -> Keepalive {
    let interval = Duration::from_millis(interval);
    Keepalive::every(interval).timeout(4 * interval)
}

pub(crate) async fn all(world: &World, report: &mut Report) {
    for server in &SERVERS {
        let judge = format!("rust client judges {}", server.name);
        report
            .pairing(&format!("{judge}: alive"), alive(world, server))
            .await;
        report
            .pairing(&format!("{judge}: slow"), slow(world, server))
            .await;
        report
            .pairing(
                &format!("{judge}: frozen, at a deadline"),
                unresponsive(world, server),
            )
            .await;
        report
            .pairing(&format!("{judge}: frozen"), frozen(world, server))
            .await;
        report
            .pairing(
                &format!("{judge}: frozen, with a full socket"),
                full(world, server),
            )
            .await;
        report
            .pairing(&format!("{judge}: dead"), dead(world, server))
            .await;
    }
    report
        .pairing(
            "rust server judges go client with keepalive: frozen",
            frozen_client(world),
        )
        .await;
    let judge = format!("go client {NEWEST} with keepalive judges rust server");
    for scenario in ["alive", "slow", "frozen", "full", "dead"] {
        let called = match scenario {
            "full" => "frozen, with a full socket",
            other => other,
        };
        let plays = judged_by_go(world, scenario);
        report.pairing(&format!("{judge}: {called}"), plays).await;
    }
    report
        .pairing(
            "go server with keepalive judges rust client: frozen",
            frozen_caller(world),
        )
        .await;
}

async fn pair(world: &World, server: &GoServer) -> Result<(Process, Client)> {
    let (server, address) = world.go_server(server.version, server.wrap).await?;
    let keepalive = Keepalive::every(INTERVAL).timeout(4 * INTERVAL);
    let client = Client::builder()
        .keepalive(keepalive)
        .connect(&address)
        .await?;
    say(&client, "first").await?;
    // The call may end a moment before what else came with its answer is published.
    let mut liveness = client.liveness();
    while liveness.snapshot().support() != Support::Yes {
        timeout(PATIENCE, liveness.next())
            .await?
            .ok_or("the connection ended")?;
    }
    Ok((server, client))
}

async fn alive(world: &World, server: &GoServer) -> Result<String> {
    let (server, client) = pair(world, server).await?;
    tokio::time::sleep(3 * (5 * INTERVAL)).await;
    let snapshot = client.snapshot();
    claim!(
        matches!(snapshot.state(), State::Alive),
        "{}",
        snapshot.state()
    );
    let counters = snapshot.counters().keepalive;
    claim!(counters.pongs_received > 3, "{counters:?}");
    claim!(
        server.logged().is_empty(),
        "the server logs {}",
        server.logged()
    );
    say(&client, "still there").await?;
    Ok(format!(
        "{} PINGs, {} PONGs",
        counters.pings_sent, counters.pongs_received
    ))
}

async fn slow(world: &World, server: &GoServer) -> Result<String> {
    let (_server, client) = pair(world, server).await?;
    let request = int(3000);
    let call = unary_of(&client).sleep(&request);
    let error = call
        .timeout(Duration::from_millis(500))
        .await
        .err()
        .ok_or("it was not late")?;
    claim!(
        matches!(error.verdict(), Some(Verdict::Slow | Verdict::LocalStall)),
        "{error}"
    );
    error.late_answer().ok_or("nothing to wait for")?.await;
    let state = client.snapshot().state();
    claim!(matches!(state, State::Alive), "{state}");
    say(&client, "still there").await?;
    Ok(format!("{error}; kept, and answered later"))
}

/// Not watched: the verdict comes with the deadline.
async fn unresponsive(world: &World, server: &GoServer) -> Result<String> {
    let (server, address) = world.go_server(server.version, server.wrap).await?;
    let client = Client::builder().connect(&address).await?;
    say(&client, "first").await?;
    server.stop().await?;
    let request = int(1);
    let call = unary_of(&client).sleep(&request);
    let error = call
        .timeout(Duration::from_secs(2))
        .await
        .err()
        .ok_or("it was answered")?;
    claim!(
        matches!(
            error.verdict(),
            Some(Verdict::Unresponsive | Verdict::LocalStall)
        ),
        "{error}"
    );
    server.go_on()?;
    say(&client, "still there").await?;
    Ok(format!("{error}; let go on, it answers"))
}

async fn frozen(world: &World, server: &GoServer) -> Result<String> {
    let (server, client) = pair(world, server).await?;
    server.stop().await?;
    let begin = Instant::now();
    let reply = unary_of(&client).sleep(&int(60_000)).await;
    convicted(
        &reply.err().ok_or("it was answered")?,
        DeadReason::Silent,
        begin,
    )
}

async fn full(world: &World, server: &GoServer) -> Result<String> {
    let (server, client) = pair(world, server).await?;
    server.stop().await?;
    let begin = Instant::now();
    let reply = unary_of(&client).bytes(&zeros(3 << 20)).await;
    convicted(
        &reply.err().ok_or("it was answered")?,
        DeadReason::NotReading,
        begin,
    )
}

fn convicted(error: &Error, reason: DeadReason, begin: Instant) -> Result<String> {
    let took = begin.elapsed();
    let Error::Connection(end, _) = error else {
        return Err(format!("{error}").into());
    };
    claim!(end.dead_reason() == Some(reason), "{end}");
    claim!(took < PATIENCE, "after {took:?}");
    Ok(format!("found after {} ms: {end}", took.as_millis()))
}

async fn dead(world: &World, server: &GoServer) -> Result<String> {
    let (server, client) = pair(world, server).await?;
    let begin = Instant::now();
    server.kill()?;
    let end = client.closed().await;
    claim!(end.dead_reason().is_none(), "{end}");
    Ok(format!(
        "found after {} ms: {end}",
        begin.elapsed().as_millis()
    ))
}

async fn judged_by_go(world: &World, scenario: &str) -> Result<String> {
    let (server, socket) = world.own_server(&[]).await?;
    let mut client = world.go_client(NEWEST, WRAPPED, &socket, &["play", scenario])?;
    if matches!(scenario, "frozen" | "full" | "dead") {
        client.expect("go").await?;
        if scenario == "dead" {
            server.kill()?;
        } else {
            server.stop().await?;
        }
    }
    client.outcome().await
}

async fn frozen_client(world: &World) -> Result<String> {
    let (server, socket) = world.own_server(&["200"]).await?;
    let client = world.go_client(NEWEST, WRAPPED, &socket, &["play", "hold"])?;
    let_go_of(&server, client).await
}

async fn frozen_caller(world: &World) -> Result<String> {
    let (server, address) = world.go_server(NEWEST, WRAPPED).await?;
    let client = world.own_client("hold", &address)?;
    let_go_of(&server, client).await
}

/// Stops a client, and waits until its server has closed the connection.
async fn let_go_of(server: &Process, mut client: Process) -> Result<String> {
    client.expect("go").await?;
    let before = server.sockets()?;
    client.stop().await?;
    let begin = Instant::now();
    while server.sockets()? == before {
        claim!(
            begin.elapsed() < Duration::from_secs(20),
            "it is still served"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(format!(
        "its connection was closed after {} ms",
        begin.elapsed().as_millis()
    ))
}

/// A client that is watched and stays until it is ended.
pub(crate) async fn hold(address: &str) -> Result<()> {
    let client = Client::builder()
        .keepalive(watched(200))
        .connect(address)
        .await?;
    say(&client, "first").await?;
    print("go");
    let end = client.closed().await;
    Err(end.into())
}
