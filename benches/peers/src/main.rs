//! Calls and streams side by side: each contender echoes `bytes` messages between two processes
//! over a unix socket. See README.md.

mod awake;
mod bare;
mod baseline;
mod callgrind;
mod child;
mod contender;
mod counting;
mod counts;
mod goals;
mod idle;
mod instructions;
mod matrix;
mod measure;
mod ours;
mod pair;
mod ratios;
mod tonic_unix;
mod trapeze_unix;
mod ttrpc_rust;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use child::{Placement, Setting};
use contender::Contender;
use goals::{FACADE_GOALS, GOALS, Goal};
use matrix::Plan;
use nix::sys::signal::SigSet;
use ours::{Every10s, Inline, Off, OnDemand};
use ratios::Mode;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const TTRPC_RUST: &str = "ttrpc-rust";
const OURS: &str = "ttrpc-keepalive";
const BARE: &str = "bare tokio";
const TONIC: &str = "tonic";
const TRAPEZE: &str = "trapeze";
const EVERY: &str = "ttrpc-keepalive, every 10 s";
const OFF: &str = "ttrpc-keepalive, off";
const INLINE: &str = "ttrpc-keepalive, inline";
const FACADE: &str = "facade";
const TTRPC_RUST_THREADS: &str = "ttrpc-rust, sync";
const FACADE_THREADS: &str = "facade, sync";

const ENTRIES: &[Entry] = &[
    Entry::of::<ttrpc_rust::theirs::Echo>(TTRPC_RUST),
    Entry::of::<ours::Echo<OnDemand>>(OURS),
    Entry::of::<bare::Echo>(BARE),
    Entry::of::<tonic_unix::Echo>(TONIC),
    Entry::of::<trapeze_unix::Echo>(TRAPEZE),
    Entry::of::<ours::Echo<Every10s>>(EVERY),
    Entry::of::<ours::Echo<Off>>(OFF),
    Entry::of::<ours::Echo<Inline>>(INLINE),
    #[cfg(feature = "facade")]
    Entry::of::<ttrpc_rust::theirs::Threads>(TTRPC_RUST_THREADS),
    #[cfg(feature = "facade")]
    Entry::of::<ttrpc_rust::facade::Echo>(FACADE),
    #[cfg(feature = "facade")]
    Entry::of::<ttrpc_rust::facade::Threads>(FACADE_THREADS),
];

/// What the matrix compares; the ratios are to the first.
const CONTENDERS: &[&str] = &[TTRPC_RUST, OURS, INLINE, BARE, TONIC];

const USAGE: &str = "\
usage: peers run [--quick] [--one-core | --two-workers] [--only PAYLOAD,IN_FLIGHT]...
       peers ratios [--awake] [--only PLACE,BYTES,IN_FLIGHT]...
       peers facade [--awake] [--only PLACE,BYTES,IN_FLIGHT]...
       peers counts
       peers instructions [--check | --write]

run prints the ratios of all contenders to the first:
  --quick        shorter slices: the whole matrix in about a minute
  --one-core     client and server share one core (default: a core each)
  --two-workers  a runtime of two workers on each side, not pinned
  --only         cells to measure: `1KiB,16`, or one part alone: `1KiB`, `16`

ratios, facade, counts and instructions hold what is measured against what is to be reached, and exit with 1
if that is missed. ratios measures time, in some minutes:
  --awake        only with cores that are kept awake (default: as the host is, and then so)
  --only         cells to measure, by the words of their lines: `two cores,1024,16`, or some: `16`

facade does the same for `ttrpc-keepalive-compat` in the place of ttrpc-rust, if this program was built
with the feature of that name.

counts and instructions repeat, and take a minute or three. By valgrind, instructions also are:
  --check        compared with benches/peers/instructions.txt; exits with 1 if there are more
  --write        written to that file";

/// A contender's two halves, each run in a process of its own.
struct Entry {
    name: &'static str,
    serve: fn(&Setting<'_>) -> Result<()>,
    call: fn(&Setting<'_>) -> Result<()>,
}

impl Entry {
    const fn of<C: Contender>(name: &'static str) -> Self {
        Self {
            name,
            serve: child::serve::<C>,
            call: child::call::<C>,
        }
    }
}

fn entry(name: &str) -> Result<&'static Entry> {
    let entry = ENTRIES.iter().find(|entry| entry.name == name);
    entry.ok_or_else(|| format!("no contender is called {name}").into())
}

/// The path of an address of the form `unix:///path`.
fn path(address: &str) -> Result<&str> {
    let path = address.strip_prefix("unix://");
    path.ok_or_else(|| format!("{address} is not a unix address").into())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let met = match arguments.as_slice() {
        ["run", options @ ..] => plan(options)
            .and_then(|plan| matrix::run(&plan))
            .map(|()| true),
        ["ratios", options @ ..] => {
            ratios_plan(options, GOALS, idle::judge).and_then(|plan| ratios::run(&plan))
        }
        ["facade", options @ ..] => ratios_plan(options, FACADE_GOALS, idle::judge_threads)
            .and_then(|plan| ratios::run(&plan)),
        ["counts"] => counts::run(),
        ["instructions"] => instructions::run(),
        ["instructions", "--check"] => baseline::check(),
        ["instructions", "--write"] => baseline::write().map(|()| true),
        ["serve" | "call", ..] => child(&arguments).map(|()| true),
        ["spin", core] => awake::spin(core).map(|()| true),
        _ => Err(USAGE.into()),
    };
    match met {
        Ok(true) => return ExitCode::SUCCESS,
        Ok(false) => {}
        // The parent reads a child's standard output, so the reason goes there, as one line.
        Err(error) if matches!(arguments.first(), Some(&"serve" | &"call" | &"spin")) => {
            println!("error: {}", error.to_string().replace('\n', " "));
        }
        Err(error) => eprintln!("{error}"),
    }
    ExitCode::FAILURE
}

fn plan(options: &[&str]) -> Result<Plan> {
    let mut plan = Plan {
        placement: Placement::TwoCores,
        warm_up: Duration::from_millis(300),
        slice: Duration::from_millis(800),
        only: Vec::new(),
    };
    let mut options = options.iter();
    while let Some(&option) = options.next() {
        match option {
            "--quick" => {
                plan.warm_up = Duration::from_millis(60);
                plan.slice = Duration::from_millis(120);
            }
            "--one-core" => plan.placement = Placement::OneCore,
            "--two-workers" => plan.placement = Placement::TwoWorkers,
            "--only" => {
                let cells = options.next().ok_or(USAGE)?;
                plan.only.push((*cells).to_owned());
            }
            _ => return Err(format!("unknown option {option}\n\n{USAGE}").into()),
        }
    }
    Ok(plan)
}

fn ratios_plan(
    options: &[&str],
    goals: &'static [Goal],
    idle: fn(&Path) -> Result<usize>,
) -> Result<ratios::Plan> {
    let mut plan = ratios::Plan {
        goals,
        idle,
        modes: &[Mode::AsTheHostIs, Mode::Awake],
        only: Vec::new(),
    };
    let mut options = options.iter();
    while let Some(&option) = options.next() {
        match option {
            "--awake" => plan.modes = &[Mode::Awake],
            "--only" => plan.only.push((*options.next().ok_or(USAGE)?).to_owned()),
            _ => return Err(format!("unknown option {option}\n\n{USAGE}").into()),
        }
    }
    Ok(plan)
}

fn child(arguments: &[&str]) -> Result<()> {
    // Blocked by the parent, which waits for signals, and inherited.
    SigSet::all().thread_unblock()?;
    let [role, name, address, placement, bytes] = *arguments else {
        return Err(USAGE.into());
    };
    let setting = Setting {
        address,
        placement: placement.parse()?,
        bytes: bytes.parse()?,
    };
    let entry = entry(name)?;
    let run = if role == "serve" {
        entry.serve
    } else {
        entry.call
    };
    run(&setting)
}
