//! `ttrpc-ping` asks peers as they are, and harms none.

use std::path::Path;
use std::sync::Arc;

use tokio::process::Command;

use crate::old_peers::{PEERS, Peer};
use crate::process::Process;
use crate::report::{Report, World, claim};
use crate::{Result, nri};

const ALIVE: i32 = 0;
const DOUBTFUL: i32 = 1;
const GONE: i32 = 2;

/// What it may come to have more of address space meanwhile.
const ROOM_KB: u64 = 1 << 20;

pub(crate) async fn all(world: &Arc<World>, report: &mut Report) {
    let name = "ttrpc-ping, old servers: at work, stopped, continued, killed";
    report.pairing(name, servers(world)).await;
    for release in nri::RELEASES {
        let name = format!("ttrpc-ping, Go NRI runtime {release}: asked, and no worse for it");
        report.pairing(&name, runtime(world, release)).await;
    }
}

async fn servers(world: &Arc<World>) -> Result<String> {
    let mut asked = Vec::new();
    for peer in PEERS.iter().filter(|peer| peer.is_server()) {
        let world = Arc::clone(world);
        asked.push(tokio::spawn(async move {
            let told = server(&world, peer).await;
            told.map_err(|error| crate::Failure::from(format!("{}: {error}", peer.name)))
        }));
    }
    let servers = asked.len();
    for asked in asked {
        asked.await??;
    }
    Ok(format!("{servers} servers"))
}

async fn server(world: &World, peer: &Peer) -> Result<()> {
    let pair = peer.start(world).await?;
    let at_work = tokio::spawn(pair.sleep());
    tokio::time::sleep(tokio::time::Duration::from_millis(300)).await;
    if peer.reads() {
        let reads = "does not know PING";
        ping(
            world,
            &pair.socket,
            &["-c", "3", "-i", "0.1", "-W", "20"],
            ALIVE,
            reads,
        )
        .await?;
    } else {
        let runs = "its process is running";
        ping(
            world,
            &pair.socket,
            &["-c", "1", "-W", "0.5"],
            DOUBTFUL,
            runs,
        )
        .await?;
    }
    let answered = at_work.await?;
    claim!(answered.is_ok(), "the call that was at work: {answered:?}");

    pair.process.stop().await?;
    let stopped = "its process is stopped";
    ping(
        world,
        &pair.socket,
        &["-c", "1", "-W", "0.5"],
        DOUBTFUL,
        stopped,
    )
    .await?;
    pair.process.go_on()?;
    ping(
        world,
        &pair.socket,
        &["-c", "1", "-W", "20"],
        ALIVE,
        "read in",
    )
    .await?;
    pair.answers().await?;

    pair.process.kill()?;
    let error = pair.client.closed().await;
    ping(world, &pair.socket, &["-c", "1"], GONE, "nobody listens").await?;
    claim!(error.dead_reason().is_none(), "{error}");
    Ok(())
}

/// Its socket is one for plugins. What it is asked is to be a whole frame of its multiplexer, for which it makes
/// no room to speak of and that it drops.
async fn runtime(world: &World, release: &str) -> Result<String> {
    let socket = world.socket();
    let program = world.program(&format!("interop/go/nri-runtime-{release}"));
    let path = socket.display().to_string();
    let mut runtime = Process::start(&program, &[&path, "/nowhere", "0"], &socket)?;
    while runtime.line().await? != "ready" {}
    let before = runtime.memory_kb()?;
    ping(
        world,
        &socket,
        &["-c", "3", "-i", "0.1", "-W", "4"],
        ALIVE,
        "3 alive",
    )
    .await?;
    let more = runtime.memory_kb()?.saturating_sub(before);
    claim!(more < ROOM_KB, "it has made room for {more} KB");
    ping(world, &socket, &["-c", "1", "-W", "4"], ALIVE, "read in").await?;
    Ok(format!("{} MB more", more >> 10))
}

async fn ping(
    world: &World,
    socket: &Path,
    arguments: &[&str],
    status: i32,
    tells: &str,
) -> Result<()> {
    let mut command = Command::new(world.program("debug/ttrpc-ping"));
    let output = command.args(arguments).arg(socket).output().await?;
    let text = String::from_utf8_lossy(&output.stdout);
    let so = output.status.code() == Some(status) && text.contains(tells);
    claim!(so, "{arguments:?} says, with {}: {text}", output.status);
    Ok(())
}
