//! Unary calls side by side: each contender echoes `bytes` messages between two processes over a
//! unix socket, and the table gives ratios to ttrpc-rust. See README.md.

mod bare;
mod child;
mod matrix;
mod ours;
mod ttrpc_rust;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use child::{Contender, Placement, Setting};
use matrix::Plan;
use nix::sys::signal::SigSet;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// All contenders; the ratios are to the first.
const CONTENDERS: &[Entry] = &[
    Entry::of::<ttrpc_rust::Echo>("ttrpc-rust"),
    Entry::of::<ours::Echo>("ttrpc-keepalive"),
    Entry::of::<bare::Echo>("bare tokio"),
];

const USAGE: &str = "\
usage: peers run [--quick] [--one-core | --two-workers] [--only PAYLOAD,IN_FLIGHT]...

  --quick        shorter slices: the whole matrix in less than a minute
  --one-core     client and server share one core (default: a core each)
  --two-workers  a runtime of two workers on each side, not pinned
  --only         cells to measure: `1KiB,16`, or one part alone: `1KiB`, `16`";

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

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["run", options @ ..] => plan(options)
            .and_then(|plan| matrix::run(&plan))
            .map_err(|error| eprintln!("{error}")),
        // The parent reads a child's standard output, so the reason goes there, as one line.
        ["serve" | "call", ..] => child(&arguments)
            .map_err(|error| println!("error: {}", error.to_string().replace('\n', " "))),
        _ => {
            eprintln!("{USAGE}");
            Err(())
        }
    };
    outcome.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
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

fn child(arguments: &[&str]) -> Result<()> {
    // Blocked by the parent, which waits for signals, and inherited.
    SigSet::all().thread_unblock()?;
    let [role, name, address, placement, bytes, in_flight] = *arguments else {
        return Err(USAGE.into());
    };
    let entry = CONTENDERS.iter().find(|entry| entry.name == name);
    let entry = entry.ok_or_else(|| format!("no contender is called {name}"))?;
    let setting = Setting {
        address,
        placement: placement.parse()?,
        bytes: bytes.parse()?,
        in_flight: in_flight.parse()?,
    };
    if role == "serve" {
        (entry.serve)(&setting)
    } else {
        (entry.call)(&setting)
    }
}
