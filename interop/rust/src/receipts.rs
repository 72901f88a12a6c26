//! How peers of today are judged by what their processes read, and the table of it that stands in
//! `docs/judging.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use protobuf::well_known_types::wrappers::Int64Value;
use tokio::task::JoinHandle;
use tokio::time::{Duration, Instant, sleep};
use ttrpc_keepalive::{Call, Error, Verdict};

use crate::Result;
use crate::old_peers::{PEERS, Pair, Peer};
use crate::report::{NEWEST, World, claim};
use crate::table::Place;

const PLACE: Place = Place {
    file: "docs/judging.md",
    begin: "<!-- Written by `interop/run receipts --write`. -->",
};

/// The limit of a call whose handler sleeps for longer.
pub(crate) const LIMIT: Duration = Duration::from_secs(1);

/// Late calls at one time.
pub(crate) const MANY: usize = 64;

/// The wrapper in Go, which is not to ask by itself here.
const WRAPPED: &[&str] = &["-idle", "60s", "-timeout", "10s"];

/// Late calls at one time under load.
const AT_ONCE: usize = 50;

/// How much later than its limit a call may end, on a busy machine.
const SLACK: Duration = Duration::from_millis(500);

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
    Ok(format!("{} peers as it says there", PEERS.len()))
}

async fn measure(world: &Arc<World>) -> Result<String> {
    let mut measured = Vec::new();
    for peer in PEERS {
        let world = Arc::clone(world);
        measured.push(tokio::spawn(async move { row(&world, peer).await }));
    }
    let mut rows = vec![HEAD.to_owned()];
    let by_go = row_by_go(world).await?;
    for row in measured {
        rows.push(row.await??);
    }
    rows.push(by_go);
    Ok(rows.join("\n"))
}

/// A server in Go, judged by a client in Go whose connection is wrapped.
async fn row_by_go(world: &World) -> Result<String> {
    let named = |peer: &&Peer| peer.name == "containerd/ttrpc 1.2.10";
    let peer = PEERS.iter().find(named).ok_or("there is no such peer")?;
    let server = peer.start(world).await?;
    let mut client = world.go_client(NEWEST, WRAPPED, &server.socket, &["play", "verdicts"])?;
    for stops in [true, false, true, false] {
        client.expect("go").await?;
        match stops {
            true => server.process.stop().await?,
            false => server.process.go_on()?,
        }
    }
    let cells = client.outcome().await?;
    let name = format!("{}, judged by a client in Go", peer.name);
    Ok(format!(
        "| {name} | {cells} | answers | {} |",
        logged(&[server])
    ))
}

fn logged(pairs: &[Pair]) -> &'static str {
    match pairs.iter().any(Pair::has_logged) {
        true => "some lines",
        false => "no line",
    }
}

async fn row(world: &World, peer: &Peer) -> Result<String> {
    // Of its own for each: what handlers sleep on one thread adds up.
    let asleep = peer.start(world).await?;
    let shown = judged(late(&asleep)).await?;

    let many = peer.start(world).await?;
    let calls: Vec<_> = (0..MANY)
        .map(|_| tokio::spawn(judged(late(&many))))
        .collect();
    let burst = each_once(calls).await?;

    let at_work = peer.start(world).await?;
    let call = tokio::spawn(judged(late(&at_work)));
    sleep(LIMIT / 4).await;
    at_work.process.stop().await?;
    let within = call.await??;

    // All that this one had been sent has been read.
    let idle = peer.start(world).await?;
    idle.process.stop().await?;
    let before = judged(late(&idle)).await?;

    for stopped in [&at_work, &idle] {
        stopped.process.go_on()?;
        stopped.answers().await?;
    }
    let logged = logged(&[asleep, many, at_work, idle]);
    Ok(format!(
        "| {} | {shown} | {burst} | {within} | {before} | answers | {logged} |",
        peer.name
    ))
}

/// What calls came to, each thing once.
pub(crate) async fn each_once(calls: Vec<JoinHandle<Result<String>>>) -> Result<String> {
    let mut all = BTreeSet::new();
    for call in calls {
        all.insert(call.await??);
    }
    Ok(Vec::from_iter(all).join(", "))
}

/// A call that cannot be answered in time.
fn late(pair: &Pair) -> Call<Int64Value> {
    pair.sleep().timeout(LIMIT)
}

/// The verdict on its peer, if it came in time, and of one that does not read what its process does.
pub(crate) async fn judged(call: Call<Int64Value>) -> Result<String> {
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
    let asked = |peer: &&Peer| peer.is_server() && (stopped || peer.reads());
    for peer in PEERS.iter().filter(asked) {
        let world = Arc::clone(world);
        judged.push(tokio::spawn(async move {
            let server = peer.start(&world).await?;
            let plays = if stopped { "unread" } else { "reads" };
            let mut client = world.go_client(NEWEST, WRAPPED, &server.socket, &["play", plays])?;
            if stopped {
                client.expect("go").await?;
                server.process.stop().await?;
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
    for peer in PEERS.iter().filter(|peer| peer.reads()) {
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
    let pair = peer.start(world).await?;
    let mut counts = Counts::new();
    for begun in (0..calls).step_by(AT_ONCE) {
        let late: Vec<_> = (begun..calls.min(begun + AT_ONCE))
            .map(|_| tokio::spawn(late(&pair)))
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
