//! `peers counts`: what a call costs in things that can be counted. Unlike time they repeat, so each
//! is held to its goal exactly. One thread on each side, both on one core, in processes of their own.

use std::path::Path;
use std::thread::sleep;

use crate::child::{Order, Placement};
use crate::contender::BURST;
use crate::counting::Counts;
use crate::idle::{self, as_float};
use crate::pair::{self, Pair};
use crate::{INLINE, OURS, Result, TTRPC_RUST, entry};

/// Calls of one measurement.
const CALLS: u16 = 4096;

/// What the orders themselves cost is spread over the calls.
const ROUNDING: f64 = 0.02;

/// Pairs that may try to meet a goal. A connection times now and then whether it should answer few
/// calls at a time, and when something else runs on its core just then it chooses wrongly for some
/// thousands of calls. What the code costs is the same for each pair.
const TRIES: usize = 10;

/// Something that is counted, for each call, on each side.
struct Count {
    name: &'static str,
    bytes: usize,
    in_flight: usize,
    of: fn(&Counts) -> i64,
    /// What one call is divided by: 1, or the payload's bytes.
    unit: f64,
    goals: [f64; 2],
    ours: &'static str,
}

const KIB: usize = 1 << 10;

#[rustfmt::skip]
const COUNTS: &[Count] = &[
    Count { name: "write calls", bytes: KIB, in_flight: 16, of: |counts| counts.writes, unit: 1.0, goals: [0.15, 0.15], ours: OURS },
    Count { name: "read calls", bytes: KIB, in_flight: 16, of: |counts| counts.reads, unit: 1.0, goals: [0.15, 0.15], ours: OURS },
    Count { name: "write calls", bytes: 4 * KIB, in_flight: 1, of: |counts| counts.writes, unit: 1.0, goals: [1.0, 1.0], ours: OURS },
    // One read more, which finds nothing, is tolerable.
    Count { name: "read calls", bytes: 4 * KIB, in_flight: 1, of: |counts| counts.reads, unit: 1.0, goals: [2.0, 2.0], ours: OURS },
    Count { name: "allocations", bytes: KIB, in_flight: 1, of: |counts| counts.allocations, unit: 1.0, goals: [5.0, 5.0], ours: OURS },
    Count { name: "allocations", bytes: KIB, in_flight: 16, of: |counts| counts.allocations, unit: 1.0, goals: [5.0, 5.0], ours: OURS },
    Count { name: "bytes allocated, to the payload's", bytes: 64 * KIB, in_flight: 1, of: |counts| counts.allocated, unit: 65536.0, goals: [2.1, 2.1], ours: OURS },
    Count { name: "page faults", bytes: 64 * KIB, in_flight: 1, of: |counts| counts.page_faults, unit: 1.0, goals: [1.0, 1.0], ours: OURS },
    // By default a handler gets a task, so that it cannot hold up a PONG.
    Count { name: "tasks spawned", bytes: KIB, in_flight: 1, of: |counts| counts.tasks, unit: 1.0, goals: [0.0, 1.0], ours: OURS },
    Count { name: "tasks spawned, inline", bytes: KIB, in_flight: 1, of: |counts| counts.tasks, unit: 1.0, goals: [0.0, 0.0], ours: INLINE },
];

/// Returns whether every goal was met.
pub(crate) fn run() -> Result<bool> {
    let folder = pair::folder()?;
    println!("Counted for each call, client and server\n");
    println!(
        "{:<34} {:>6} {:>9}  {:>15} {:>15} {:>15}",
        "", "bytes", "in flight", TTRPC_RUST, "goal, at most", OURS
    );
    let mut missed = 0;
    for count in COUNTS {
        let theirs = count.measure(TTRPC_RUST, folder.path())?;
        let mut ours = count.measure(count.ours, folder.path())?;
        for _ in 1..TRIES {
            if !exceeds(ours, count.goals) {
                break;
            }
            let again = count.measure(count.ours, folder.path())?;
            ours = [0, 1].map(|side| ours[side].min(again[side]));
        }
        missed += row(
            &format!(
                "{:<34} {:>6} {:>9}",
                count.name, count.bytes, count.in_flight
            ),
            Some(theirs),
            count.goals,
            ours,
        );
    }
    let ours = abandoned(OURS, folder.path())?;
    let name = "bytes that stay, late or dropped";
    missed += row(
        &format!("{name:<34} {:>6} {:>9}", KIB, 20),
        None,
        [0.0, 0.0],
        ours,
    );
    let name = "KiB that stay, after a burst";
    missed += row(
        &format!("{name:<34} {:>6} {BURST:>9}", KIB),
        None,
        KEPT,
        burst(OURS, folder.path())?,
    );
    missed += idle::judge(folder.path())?;
    println!("\n{missed} of the goals missed");
    Ok(missed == 0)
}

fn row(title: &str, theirs: Option<[f64; 2]>, goals: [f64; 2], ours: [f64; 2]) -> usize {
    let both = |[client, server]: [f64; 2]| format!("{client:.2} {server:.2}");
    let missed = exceeds(ours, goals);
    let verdict = if missed { "MISSED" } else { "" };
    println!(
        "{title}  {:>15} {:>15} {:>15}  {verdict}",
        theirs.map_or_else(|| "-".to_owned(), both),
        both(goals),
        both(ours)
    );
    usize::from(missed)
}

fn exceeds(counts: [f64; 2], goals: [f64; 2]) -> bool {
    counts
        .iter()
        .zip(goals)
        .any(|(count, goal)| *count > goal + ROUNDING)
}

impl Count {
    /// After as many calls to warm up.
    fn measure(&self, name: &str, folder: &Path) -> Result<[f64; 2]> {
        let mut pair = Pair::start(entry(name)?, self.bytes, Placement::OneCore, folder)?;
        let order = Order::Exactly {
            calls: CALLS.into(),
            in_flight: self.in_flight,
        };
        pair.counts()?;
        pair.order(&order)?;
        let [client, server] = counted(&mut pair, &order)?;
        Ok([client, server]
            .map(|counts| as_float((self.of)(&counts)) / f64::from(CALLS) / self.unit))
    }
}

fn counted(pair: &mut Pair, order: &Order) -> Result<[Counts; 2]> {
    let before = pair.counts()?;
    pair.order(order)?;
    let after = pair.counts()?;
    Ok([after[0] - before[0], after[1] - before[1]])
}

/// By how many bytes for each 10,000 calls that ran out of time, and as many that were dropped, let
/// memory grow. That is the least of several times: what leaks does so each time, while a table grows
/// once when more calls than ever before meet in it.
fn abandoned(name: &str, folder: &Path) -> Result<[f64; 2]> {
    const CALLS: u16 = 10_000;
    // Some of what is bounded fills slowly: then one of these times it does not grow.
    const TIMES: usize = 10;
    let mut pair = Pair::start(entry(name)?, KIB, Placement::OneCore, folder)?;
    let order = Order::Abandon {
        calls: CALLS.into(),
    };
    pair.counts()?;
    // Fills what is bounded.
    pair.order(&order)?;
    let mut least = [f64::INFINITY; 2];
    for _ in 0..TIMES {
        let grown = counted(&mut pair, &order)?;
        for (least, counts) in least.iter_mut().zip(grown) {
            *least = least.min(as_float(counts.live) / f64::from(CALLS));
        }
    }
    Ok(least.map(|bytes| bytes.max(0.0)))
}

/// What a side may keep of a burst: tables with room for some entries, buffers, and on the server the
/// room that its runtime keeps for tasks. Four bytes for each call.
const KEPT: [f64; 2] = [256.0, 256.0];

/// KiB that live on each side after so many calls at once and a quiet second, and did not before.
fn burst(name: &str, folder: &Path) -> Result<[f64; 2]> {
    let mut pair = Pair::start(entry(name)?, KIB, Placement::OneCore, folder)?;
    let order = |calls| Order::Exactly {
        calls,
        in_flight: calls,
    };
    pair.counts()?;
    // Begins the connection. The room that the runtime keeps for tasks is none of it.
    pair.order(&order(100))?;
    pair.order(&Order::Tasks { tasks: BURST })?;
    sleep(idle::SETTLE);
    let before = pair.counts()?;
    pair.order(&order(BURST))?;
    sleep(idle::SETTLE);
    let after = pair.counts()?;
    Ok([0, 1].map(|side| as_float((after[side] - before[side]).live) / 1024.0))
}
