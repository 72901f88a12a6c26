//! Slow or dead, over NRI: a runtime, four plugin processes, and a container every second.
//!
//! ```text
//! cargo run -p ttrpc-keepalive-nri --example runtime
//! cargo run -p ttrpc-keepalive-nri --example runtime -- --write    and writes the table of the README
//! cargo run -p ttrpc-keepalive-nri --example runtime -- serve /tmp/nri.sock [annotation=value]...
//! ```
//!
//! The last is for plugins of your own: a container every second, in a pod with these annotations.
//!
//! The plugins are this same program, started again. Each may take 2 s for a container. *prompt* answers at
//! once. *slow* takes 5 s for one. *wedged* blocks the one thread of its handlers for 5 s. *frozen* is stopped
//! with SIGSTOP in the middle of one, and continued long after it was found dead.
//!
//! How a runtime uses it is in `node.rs`. At the end the run is checked, also against what the plugins
//! recorded themselves; it exits with 1 if something did not come out as said.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use nix::sys::signal::Signal;

mod check;
mod node;
mod plugin;
mod processes;
mod serve;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const PLUGINS: [&str; 4] = ["10-prompt", "20-slow", "30-wedged", "40-frozen"];

/// The time between two containers, if none is waited for.
const PERIOD: Duration = Duration::from_secs(1);
/// How long a plugin may take for one, as in containerd.
const LIMIT: Duration = Duration::from_secs(2);
/// How long a plugin may be silent before it is sent a PING.
const INTERVAL: Duration = Duration::from_secs(2);
/// How long it may leave that PING without a sign of life.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The container for which *slow* takes too long, and how long.
const SLOW_IN: usize = 3;
const SLOW_WORK: Duration = Duration::from_secs(5);
/// The container in which *wedged* blocks its thread, and for how long.
const WEDGED_IN: usize = 4;
const WEDGED_FOR: Duration = Duration::from_secs(5);
/// The container in which *frozen* is stopped.
const FROZEN_IN: usize = 5;
/// How long *frozen* works on that one: enough for the signal to find it at work.
const FROZEN_WORK: Duration = Duration::from_secs(1);
/// How long the run goes on after all are served again.
const EPILOGUE: Duration = Duration::from_secs(3);
/// The whole run, however it goes.
const PLAY_LIMIT: Duration = Duration::from_secs(60);

// One thread, so that the handler that blocks it blocks its whole process.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        [] => run(false).await,
        ["--write"] => run(true).await,
        ["plugin", name, socket] => plugin::play(name, Path::new(socket)).await.map(|()| true),
        ["serve", socket, ref annotations @ ..] => {
            serve::serve(socket, annotations).await.map(|()| true)
        }
        _ => {
            eprintln!("usage: runtime [--write | serve SOCKET [ANNOTATION=VALUE]...]");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("runtime: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Plays, and clears the stage whatever has happened on it. Whether all came out as said.
async fn run(write: bool) -> Result<bool> {
    let directory = tempfile::tempdir()?;
    let socket = directory.path().join("nri.sock");
    let node = node::Node::start(&socket).await?;
    let mut processes = processes::Processes::start(&socket)?;
    let played = tokio::time::timeout(PLAY_LIMIT, play(&node, &processes)).await;
    // The plugins end before the runtime, so that no record tells of a connection that was closed only
    // because the run was over.
    node.end();
    let records = processes.end().await;
    node.runtime.shutdown();
    let held = node.read(|entries| check::print(entries, &records));
    match played {
        Ok(played) => played?,
        Err(_) => return Err(format!("not over after {PLAY_LIMIT:?}").into()),
    }
    if write && held {
        node.read(check::write_table)?;
    }
    Ok(held)
}

async fn play(node: &node::Node, processes: &processes::Processes) -> Result<()> {
    for name in PLUGINS {
        node.happened(name, "serving", 1).await;
    }
    let creating = node.create_containers();
    let script = async {
        let frozen = processes.of("40-frozen")?;
        frozen.recorded(&format!("got {FROZEN_IN}")).await?;
        frozen.signal(Signal::SIGSTOP)?;
        node.say("40-frozen", "(SIGSTOP)", String::new());
        node.happened("40-frozen", "gone", 1).await;
        tokio::time::sleep(PERIOD).await;
        node.say("40-frozen", "(SIGCONT)", String::new());
        frozen.signal(Signal::SIGCONT)?;
        for name in &PLUGINS[1..] {
            node.happened(name, "serving", 2).await;
        }
        tokio::time::sleep(EPILOGUE).await;
        Ok(())
    };
    tokio::select! {
        failed = creating => failed,
        played = script => played,
    }
}
