//! Slow or dead? A runtime, four plugin processes, and an event for each of them every second.
//!
//! ```text
//! cargo run --example slow_or_dead               decides by evidence
//! cargo run --example slow_or_dead -- --today    decides as runtimes of today do
//! cargo run --example slow_or_dead -- --old-peers    decides by evidence about plugins of today
//! cargo run --example slow_or_dead -- --old-peers-go    the same, if Go is there
//! ```
//!
//! `--svg FILE` behind it draws the run.
//!
//! With `--old-peers` the plugins know no PING, as those of today: the runtime sees what their processes
//! read. They are served by ttrpc-rust as it is. *wedged* blocks the one thread that it has to read on: it
//! is said not to read, and to run. With `--old-peers-go` they are served by Go's ttrpc, as those of
//! containerd: somebody always reads there, and *wedged* is slow as *slow* is.
//!
//! The four plugins are this same program, started again, or one in Go. Each may take 2 s for an event.
//! *prompt* answers at once. *slow* takes 5 s for one event. *wedged* blocks the one thread of its
//! handlers for 5 s. *frozen* is stopped with SIGSTOP in the middle of one, and much later
//! continued.
//!
//! How the runtime decides is in `decide.rs`, the part to take along. At the end the run is checked
//! against what the plugins themselves recorded; it exits with 1 if something did not come out as
//! said.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use protobuf::well_known_types::wrappers::UInt32Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use ttrpc_keepalive::Listener;

use cast::Cast;
use plugin::OnClose;
use record::Deed;
use runtime::Runtime;
use timeline::{Happening, Timeline, is_gone, say};

mod cast;
mod check;
mod decide;
mod old;
mod part;
mod picture;
mod plugin;
mod record;
mod runtime;
mod summary;
mod timeline;
mod today;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const PLUGINS: [&str; 4] = ["prompt", "slow", "wedged", "frozen"];
const PLUGIN_SERVICE: &str = "demo.Plugin";
const REGISTER: &str = "Register";
const HANDLE_EVENT: &str = "HandleEvent";

/// The time between two events.
const PERIOD: Duration = Duration::from_secs(1);
/// How long a plugin may take for one, as in containerd.
const LIMIT: Duration = Duration::from_secs(2);
/// How long a plugin may be silent before it is sent a PING.
const INTERVAL: Duration = Duration::from_secs(2);
/// How long it may leave that PING without a sign of life.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The event for which *slow* takes too long, and how long.
const SLOW_IN: u32 = 3;
const SLOW_WORK: Duration = Duration::from_secs(5);
/// The event in which *wedged* blocks its thread, and for how long: the second is for a thread that reads
/// too, which is longer than anybody may be silent.
const WEDGED_IN: u32 = 4;
const WEDGED_FOR: Duration = Duration::from_secs(5);
const WEDGED_AND_SILENT_FOR: Duration = Duration::from_secs(9);
/// The event in which *frozen* is stopped, and for how long.
const FROZEN_IN: u32 = 5;
const FROZEN_FOR: Duration = Duration::from_secs(8);
/// How long the run goes on after *frozen* is continued.
const EPILOGUE: Duration = Duration::from_millis(3500);
/// The whole run, however it goes, with some seconds to end in.
const PLAY_LIMIT: Duration = Duration::from_secs(24);

/// By which rules the runtime decides.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rules {
    Evidence,
    Today,
    /// By evidence, about plugins that know no PING: of ttrpc-rust, or of Go.
    OldPeers,
    OldPeersInGo,
}

// One thread, so that the handler that blocks it blocks its whole process.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (arguments, picture) = match arguments[..] {
        [ref rules @ .., "--svg", file] => (rules, Some(Path::new(file))),
        ref all => (all, None),
    };
    let done = match arguments[..] {
        [] => run(Rules::Evidence, picture).await,
        ["--today"] => run(Rules::Today, picture).await,
        ["--old-peers"] => run(Rules::OldPeers, picture).await,
        ["--old-peers-go"] => run(Rules::OldPeersInGo, picture).await,
        ["old-plugin", name, socket] => {
            let (name, socket) = (name.to_owned(), PathBuf::from(socket));
            let played = tokio::task::spawn_blocking(move || old::play(&name, &socket));
            let played = played.await.map_err(Into::into).and_then(|played| played);
            played.map(|()| ExitCode::SUCCESS)
        }
        ["plugin", name, on_close, socket] => {
            let on_close = match on_close {
                "exit" => OnClose::Exit,
                _ => OnClose::Reconnect,
            };
            let played = plugin::play(name, Path::new(socket), on_close).await;
            played.map(|()| ExitCode::SUCCESS)
        }
        _ => {
            eprintln!("usage: slow_or_dead [--today | --old-peers | --old-peers-go] [--svg FILE]");
            return ExitCode::from(2);
        }
    };
    done.unwrap_or_else(|error| {
        eprintln!("slow_or_dead: {error}");
        ExitCode::FAILURE
    })
}

/// Sets the stage, plays, and clears the stage, whatever has happened on it.
async fn run(rules: Rules, picture: Option<&Path>) -> Result<ExitCode> {
    let interrupted = interrupted()?;
    let directory = tempfile::tempdir()?;
    let socket = directory.path().join("runtime.sock");
    let listener = Listener::bind(&format!("unix://{}", socket.display())).await?;
    let program = match rules {
        Rules::OldPeersInGo => cast::built_by_go(directory.path()).await?,
        _ => std::env::current_exe()?,
    };

    say(rules);
    let timeline = Arc::new(Timeline::begin(rules));
    let cast = Cast::start(&program, &socket, rules)?;
    let played = tokio::select! {
        played = timeout(PLAY_LIMIT, play(&cast, listener, &timeline, rules)) => played,
        exit = interrupted => {
            cast.kill().await;
            return Ok(exit);
        }
    };
    // The plugins end before the clients are dropped, so that no record tells of a connection that
    // was closed only because the run was over.
    let (runtime, played) = match played {
        Ok(Ok(runtime)) => (Some(runtime), Ok(())),
        Ok(Err(error)) => (None, Err(error)),
        Err(_) => (None, Err(format!("not over after {PLAY_LIMIT:?}").into())),
    };
    let left = cast.end().await;
    drop(runtime);

    let held = timeline.read(|entries| {
        summary::print(&timeline, entries);
        check::print(&timeline, entries, &left, rules)
    });
    played?;
    if let Some(file) = picture {
        timeline.read(|entries| picture::draw(&timeline, entries, file))?;
    }
    Ok(if held {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The runtime serves its plugins while the script is played.
async fn play(
    cast: &Cast,
    listener: Listener,
    timeline: &Arc<Timeline>,
    rules: Rules,
) -> Result<Arc<Runtime>> {
    let runtime = Arc::new(Runtime::new(Arc::clone(timeline), rules));
    let mut serving = JoinSet::new();
    serving.spawn(Arc::clone(&runtime).accept(listener));
    for name in PLUGINS {
        let registered = |happening: &_| matches!(happening, Happening::Registered { .. });
        timeline.happened(name, registered).await?;
    }

    let mut sending = JoinSet::new();
    let (end, ended) = watch::channel(false);
    let start = Instant::now();
    for name in PLUGINS {
        let runtime = Arc::clone(&runtime);
        sending.spawn(runtime.send_events(name, start, ended.clone()));
    }
    follow_script(cast, timeline).await?;
    end.send_replace(true);
    while let Some(sent) = sending.join_next().await {
        sent?;
    }
    serving.shutdown().await;
    Ok(runtime)
}

/// What the stage does to *frozen*; the others play by themselves.
async fn follow_script(cast: &Cast, timeline: &Timeline) -> Result<()> {
    let frozen = cast.player("frozen")?;
    frozen
        .recorded(|record| record.deed == Deed::Got(FROZEN_IN))
        .await?;
    frozen.signal(Signal::SIGSTOP)?;
    timeline.tell(frozen.name, Happening::Stopped);
    let thaw = Instant::now() + FROZEN_FOR;

    timeline.happened(frozen.name, is_gone).await?;
    sleep_until(thaw).await;
    timeline.tell(frozen.name, Happening::Continued);
    frozen.signal(Signal::SIGCONT)?;
    sleep(EPILOGUE).await;
    Ok(())
}

/// Ends when somebody wants this program to end, with the exit status for it.
fn interrupted() -> Result<impl Future<Output = ExitCode>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        let number = tokio::select! {
            _ = interrupt.recv() => 2,
            _ = terminate.recv() => 15,
            _ = hangup.recv() => 1,
        };
        // As a shell reports a program that died of the signal.
        ExitCode::from(128 + number)
    })
}

fn number(value: u32) -> UInt32Value {
    let mut message = UInt32Value::new();
    message.value = value;
    message
}

impl Rules {
    /// How a plugin of that name is started, before the path of the socket.
    fn plugin(self, name: &'static str) -> Vec<&'static str> {
        match self {
            Self::Evidence => vec!["plugin", name, "reconnect"],
            Self::Today => vec!["plugin", name, "exit"],
            Self::OldPeers => vec!["old-plugin", name],
            Self::OldPeersInGo => vec![name],
        }
    }
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = match self {
            Self::Evidence => {
                "A late plugin is judged by evidence: a slow one is kept, a dead one is evicted."
            }
            Self::OldPeers | Self::OldPeersInGo => {
                "The plugins know no PING. A late one is judged by what its process reads."
            }
            Self::Today => {
                "As today: a late plugin is disconnected, slow or dead, and ends as NRI's stub does."
            }
        };
        let limit = LIMIT.as_secs();
        write!(
            f,
            "Four plugins get an event every second and have {limit} s to answer.\n{rules}\n"
        )
    }
}
