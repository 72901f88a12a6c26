//! How servers of today are judged by what their processes read, and the table of it that stands in
//! `docs/judging.md`.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use protobuf::well_known_types::wrappers::Int64Value;
use tokio::time::{Duration, Instant, sleep};
use ttrpc_keepalive::{Call, Client, Error, Support, Verdict};

use crate::Result;
use crate::process::Process;
use crate::report::{NEWEST, World, claim};
use crate::service::{UNARY, int};
use crate::table::Place;
use crate::to_go::say;

const PLACE: Place = Place {
    file: "docs/judging.md",
    begin: "<!-- Written by `interop/run receipts --write`. -->",
};

/// The limit of a call, and how long its handler sleeps.
pub(crate) const LIMIT: Duration = Duration::from_secs(1);
const ASLEEP: i64 = 3000;

/// Late calls at one time.
pub(crate) const MANY: usize = 64;

/// The wrapper in Go, which is not to ask by itself here.
const WRAPPED: &[&str] = &["-idle", "60s", "-timeout", "10s"];

/// Late calls at one time under load.
const AT_ONCE: usize = 50;

/// How much later than its limit a call may end, on a busy machine.
const SLACK: Duration = Duration::from_millis(500);

/// A server that knows no PING, unmodified.
#[derive(Clone, Copy)]
struct Peer {
    name: &'static str,
    program: &'static str,
    /// How it serves.
    serve: &'static str,
    /// It reads on the thread that its handlers sleep on.
    blocks: bool,
}

const fn peer(name: &'static str, program: &'static str) -> Peer {
    Peer {
        name,
        program,
        serve: "serve",
        blocks: false,
    }
}

const RUST: &str = "debug/peer-ttrpc-rust-0-10";

const PEERS: &[Peer] = &[
    peer("containerd/ttrpc 1.0.2", "interop/go/peer-1.0.2"),
    peer("containerd/ttrpc 1.1.2", "interop/go/peer-1.1.2"),
    peer("containerd/ttrpc 1.2.2", "interop/go/peer-1.2.2"),
    peer("containerd/ttrpc 1.2.5", "interop/go/peer-1.2.5"),
    peer("containerd/ttrpc 1.2.10", "interop/go/peer-1.2.10"),
    peer("ttrpc-rust 0.8.4", "debug/peer-ttrpc-rust-0-8"),
    peer("ttrpc-rust 0.9.0", "debug/peer-ttrpc-rust-0-9"),
    peer("ttrpc-rust 0.10.0", RUST),
    Peer {
        serve: "serve-sync",
        ..peer("ttrpc-rust 0.10.0, sync", RUST)
    },
    Peer {
        serve: "serve-on-one-thread",
        blocks: true,
        ..peer("ttrpc-rust 0.10.0, on one thread, blocked", RUST)
    },
    peer("trapeze 0.7.6", "debug/peer-trapeze-0-7"),
];

const HEAD: &str = "\
| server | its handler sleeps | 64 such calls | stopped while the handler sleeps | stopped before the request | continued | log |
|---|---|---|---|---|---|---|";

/// Measures all peers and prints the table, or writes it.
pub(crate) async fn show(world: &Arc<World>, write: bool) -> Result<()> {
    let table = measure(world).await?;
    if write {
        return PLACE.write(&table);
    }
    crate::print(&table);
    Ok(())
}

/// Measures all peers, and compares the table with the one in the text.
pub(crate) async fn check(world: &Arc<World>) -> Result<String> {
    PLACE.check(&measure(world).await?)?;
    Ok(format!("{} servers as it says there", PEERS.len()))
}

async fn measure(world: &Arc<World>) -> Result<String> {
    let mut measured = Vec::new();
    for peer in PEERS {
        let world = Arc::clone(world);
        measured.push(tokio::spawn(async move { row(&world, peer).await }));
    }
    let mut rows = vec![HEAD.to_owned()];
    for row in measured {
        rows.push(row.await??);
    }
    Ok(rows.join("\n"))
}

/// A server that has just been started, and a client with what it has by default.
async fn pair(world: &World, peer: &Peer) -> Result<(Process, PathBuf, Client)> {
    let socket = world.socket();
    let path = socket.to_str().ok_or("the path is not UTF-8")?;
    let mut server = Process::start(&world.program(peer.program), &[peer.serve, path], &socket)?;
    server.expect("ready").await?;
    let client = connect(&socket).await?;
    Ok((server, socket, client))
}

async fn row(world: &World, peer: &Peer) -> Result<String> {
    // Of its own for each: what handlers sleep on one thread adds up.
    let (_asleep_server, _, client) = pair(world, peer).await?;
    let asleep = judged_with_process(late(&client)).await?;

    let (many_server, _, many) = pair(world, peer).await?;
    let calls: Vec<_> = (0..MANY)
        .map(|_| tokio::spawn(judged_with_process(late(&many))))
        .collect();
    let mut burst = Vec::new();
    for call in calls {
        burst.push(call.await??);
    }
    burst.sort_unstable();
    burst.dedup();

    let (server, socket, client) = pair(world, peer).await?;
    let other = connect(&socket).await?;
    let call = tokio::spawn(judged_with_process(late(&other)));
    sleep(LIMIT / 4).await;
    server.stop().await?;
    let within = call.await??;
    // All that this connection had been sent has been read.
    let before = judged_with_process(late(&client)).await?;
    server.go_on()?;
    for client in [&client, &other] {
        say(client, "still there").await?;
    }
    let pings = |client: &Client| client.snapshot().counters().keepalive.pings_sent;
    let logged = [
        (&many_server, pings(&many)),
        (&server, pings(&client) + pings(&other)),
    ]
    .map(|(server, pings)| (server.logged().lines().count(), pings));
    let logged = match logged {
        [(0, _), (0, _)] => "no line",
        _ => "some lines",
    };
    Ok(format!(
        "| {} | {asleep} | {} | {within} | {before} | answers | {logged} |",
        peer.name,
        burst.join(", ")
    ))
}

async fn connect(socket: &Path) -> Result<Client> {
    let client = Client::builder();
    let client = client
        .connect(&format!("unix://{}", socket.display()))
        .await?;
    say(&client, "first").await?;
    let support = client.snapshot().support();
    claim!(support == Support::No, "support {support:?}");
    Ok(client)
}

/// A call that cannot be answered in time.
fn late(client: &Client) -> Call<Int64Value> {
    let call = client.call::<_, Int64Value>(UNARY, "Sleep", &int(ASLEEP));
    call.timeout(LIMIT)
}

/// The verdict on its peer, if it came in time.
pub(crate) async fn judged(call: Call<Int64Value>) -> Result<&'static str> {
    let error = late_error(call).await?;
    verdict(&error).ok_or_else(|| format!("{error}").into())
}

/// The same, and of one that does not read what its process does.
async fn judged_with_process(call: Call<Int64Value>) -> Result<String> {
    let error = late_error(call).await?;
    let verdict = verdict(&error).ok_or_else(|| format!("{error}"))?;
    let process = error.evidence().and_then(|evidence| evidence.process);
    Ok(match process {
        Some(process) if verdict == "not reading" => format!("{verdict}, {process}"),
        _ => verdict.to_owned(),
    })
}

async fn late_error(call: Call<Int64Value>) -> Result<Error> {
    let start = Instant::now();
    let Err(error) = call.await else {
        return Err("a call that was to be late was answered".into());
    };
    let took = start.elapsed();
    claim!(took < LIMIT + SLACK, "it took {took:?}");
    Ok(error)
}

fn verdict(error: &Error) -> Option<&'static str> {
    Some(match error.verdict()? {
        Verdict::Slow => "slow",
        Verdict::NotReading => "not reading",
        Verdict::LocalStall => "local stall",
        Verdict::Unknown(_) => "unknown",
        _ => return None,
    })
}

/// What the wrapper in Go makes of the same servers: those that live, or those that are stopped.
pub(crate) async fn judged_by_go(world: &Arc<World>, stopped: bool) -> Result<String> {
    let mut judged = Vec::new();
    for peer in PEERS.iter().filter(|peer| stopped || !peer.blocks) {
        let world = Arc::clone(world);
        judged.push(tokio::spawn(async move {
            let (server, socket, _) = pair(&world, peer).await?;
            let plays = if stopped { "unread" } else { "reads" };
            let mut client = world.go_client(NEWEST, WRAPPED, &socket, &["play", plays])?;
            if stopped {
                client.expect("go").await?;
                server.stop().await?;
            }
            let told = client.outcome().await;
            told.map_err(|error| crate::Failure::from(format!("{}: {error}", peer.name)))
        }));
    }
    let mut told = Vec::new();
    for judge in judged {
        told.push(judge.await??);
    }
    Ok(format!("{} servers; {}", told.len(), told[0]))
}

/// Verdicts, and how often each was found.
type Counts = BTreeMap<&'static str, usize>;

/// Calls that are late while all processors are busy, so many to each peer that reads. Prints what was
/// found of each.
pub(crate) async fn load(world: &Arc<World>, calls: usize) -> Result<()> {
    for (name, counts) in under_load(world, calls).await? {
        crate::print(&format!("{name}: {}", shown(&counts)));
    }
    Ok(())
}

/// The same, with few calls.
pub(crate) async fn check_load(world: &Arc<World>) -> Result<String> {
    let mut all = Counts::new();
    for (verdict, count) in under_load(world, AT_ONCE)
        .await?
        .iter()
        .flat_map(|(_, counts)| counts)
    {
        *all.entry(verdict).or_default() += count;
    }
    Ok(shown(&all))
}

async fn under_load(world: &Arc<World>, calls: usize) -> Result<Vec<(&'static str, Counts)>> {
    let _busy = Busy::start()?;
    let mut counted = Vec::new();
    for peer in PEERS.iter().filter(|peer| !peer.blocks) {
        let world = Arc::clone(world);
        counted.push(tokio::spawn(
            async move { count(&world, peer, calls).await },
        ));
    }
    let mut all = Vec::new();
    for counts in counted {
        let (name, counts) = counts.await??;
        claim!(
            !counts.contains_key("not reading"),
            "{name} is said not to read: {}",
            shown(&counts)
        );
        all.push((name, counts));
    }
    Ok(all)
}

async fn count(world: &World, peer: &Peer, calls: usize) -> Result<(&'static str, Counts)> {
    let (_server, _, client) = pair(world, peer).await?;
    let mut counts = Counts::new();
    for begun in (0..calls).step_by(AT_ONCE) {
        let late: Vec<_> = (begun..calls.min(begun + AT_ONCE))
            .map(|_| tokio::spawn(late(&client).into_future()))
            .collect();
        for call in late {
            let error = call
                .await?
                .err()
                .ok_or("a call that was to be late was answered")?;
            let verdict = verdict(&error).ok_or_else(|| format!("{error}"))?;
            *counts.entry(verdict).or_default() += 1;
        }
    }
    Ok((peer.name, counts))
}

fn shown(counts: &Counts) -> String {
    let shown: Vec<_> = counts
        .iter()
        .map(|(verdict, count)| format!("{count} {verdict}"))
        .collect();
    shown.join(", ")
}

/// Keeps all processors busy.
struct Busy(Arc<AtomicBool>);

impl Busy {
    fn start() -> Result<Self> {
        let goes_on = Arc::new(AtomicBool::new(true));
        for _ in 0..thread::available_parallelism()?.get() {
            let goes_on = Arc::clone(&goes_on);
            thread::spawn(move || while goes_on.load(Ordering::Relaxed) {});
        }
        Ok(Self(goes_on))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}
