//! What connections cost that do nothing: memory that lives on each side, and processor time.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use crate::child::{Order, Placement};
use crate::goals::Bound::{self, AtMost};
use crate::pair::Pair;
use crate::{FACADE_THREADS, OURS, Result, TTRPC_RUST, entry};

const CONNECTIONS: u16 = 1000;
const CALL: usize = 1 << 16;
const REQUEST_KIB: f64 = 64.0;

/// Buffers may be kept for a quiet second.
pub(crate) const SETTLE: Duration = Duration::from_millis(1500);

/// For how long nothing happens while processor time is measured.
const IDLE: Duration = Duration::from_secs(2);

/// A wake-up for each connection would take 5 ms or more for all of them.
const CPU_LIMIT: f64 = 1.0;

/// What a connection costs: KiB that live in the client and in the server, fresh and after a call of
/// 64 KiB; milliseconds of processor time for all connections together.
struct Idle {
    fresh: [f64; 2],
    after_a_call: [f64; 2],
    cpu: f64,
}

/// Measures and prints. Returns how many of the floors are missed.
pub(crate) fn judge(folder: &Path) -> Result<usize> {
    let theirs = measure(TTRPC_RUST, folder)?;
    let ours = measure(OURS, folder)?;
    println!(
        "\nIdle: {CONNECTIONS} connections, of each KiB that live; processor time of both sides in {IDLE:?}"
    );
    let sides = ["client", "server"];
    let mut missed = 0;
    for (side, name) in sides.iter().enumerate() {
        for (what, theirs, ours) in [
            ("fresh", theirs.fresh, ours.fresh),
            (
                "after a call of 64 KiB",
                theirs.after_a_call,
                ours.after_a_call,
            ),
        ] {
            let what = format!("{name}, {what}: KiB, to {TTRPC_RUST}'s {:.1}", theirs[side]);
            let (ours, ratio) = (ours[side], ours[side] / theirs[side]);
            missed += row(
                &what,
                &format!("{ours:.1}, so {ratio:.2}"),
                ratio,
                AtMost(1.0),
            );
        }
    }
    rest(TTRPC_RUST, &theirs, Bound::Shown);
    Ok(missed + rest(OURS, &ours, AtMost(CPU_LIMIT)))
}

/// The same for the facade's threads, of which processor time alone says something.
pub(crate) fn judge_threads(folder: &Path) -> Result<usize> {
    let ours = measure(FACADE_THREADS, folder)?;
    println!("\nIdle: {CONNECTIONS} connections in {IDLE:?}");
    Ok(rest(FACADE_THREADS, &ours, AtMost(CPU_LIMIT)))
}

fn rest(name: &str, Idle { cpu, .. }: &Idle, bound: Bound) -> usize {
    let what = format!("{name}: processor time, ms");
    row(&what, &format!("{cpu:.2}"), *cpu, bound)
}

fn row(what: &str, measured: &str, value: f64, bound: Bound) -> usize {
    let missed = bound.is_missed(value);
    let verdict = if missed { "MISSED" } else { "" };
    println!("{what:<62} {measured:>15}  {bound:<13} {verdict}");
    usize::from(missed)
}

fn measure(name: &str, folder: &Path) -> Result<Idle> {
    let mut pair = Pair::start(entry(name)?, CALL, Placement::OneCore, folder)?;
    let before = pair.counts()?;
    pair.order(&Order::Connect {
        connections: CONNECTIONS.into(),
    })?;
    sleep(SETTLE);
    let connected = pair.counts()?;
    let cpu = pair.cpu()?;
    sleep(IDLE);
    let cpu = pair.cpu()? - cpu;
    pair.order(&Order::CallEach)?;
    sleep(SETTLE);
    let called = pair.counts()?;
    let per_connection = |after: [crate::counting::Counts; 2]| {
        let live = |side: usize| as_float(after[side].live - before[side].live);
        let kib = |side: usize| live(side) / (f64::from(CONNECTIONS) * 1024.0);
        // The client's side of each holds the request to be sent.
        [kib(0) - REQUEST_KIB, kib(1)]
    };
    Ok(Idle {
        fresh: per_connection(connected),
        after_a_call: per_connection(called),
        cpu: cpu.as_secs_f64() * 1e3,
    })
}

/// Exact for everything that is measured here.
#[expect(clippy::as_conversions, reason = "there is no other way to a float")]
pub(crate) fn as_float(number: i64) -> f64 {
    number as f64
}
