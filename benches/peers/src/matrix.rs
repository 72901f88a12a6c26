//! The run: every cell of the matrix, all contenders in turn, medians of ratios.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{self, Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use nix::time::ClockId;
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::child::Placement;
use crate::{CONTENDERS, Entry, Result};

const PAYLOADS: [(&str, usize); 4] = [
    ("0B", 0),
    ("1KiB", 1 << 10),
    ("64KiB", 1 << 16),
    ("1MiB", 1 << 20),
];
const IN_FLIGHT: [usize; 3] = [1, 16, 256];
const ROUNDS: usize = 5;

pub(crate) struct Plan {
    pub(crate) placement: Placement,
    pub(crate) warm_up: Duration,
    pub(crate) slice: Duration,
    pub(crate) only: Vec<String>,
}

pub(crate) fn run(plan: &Plan) -> Result<()> {
    let folder = TempDir::with_prefix("peers-")?;
    remove_on_signal(folder.path().to_owned())?;
    let cells = cells(&plan.only)?;
    print_heading(plan);
    for cell in cells {
        let columns = cell
            .measure(plan, folder.path())
            .map_err(|error| format!("{}, {} in flight: {error}", cell.payload, cell.in_flight))?;
        cell.print_row(&columns);
    }
    Ok(())
}

/// A signal ends the process without running destructors. The children need no more than that:
/// they end with their standard input.
fn remove_on_signal(folder: PathBuf) -> Result<()> {
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
    signals.thread_block()?;
    std::thread::spawn(move || {
        // `wait` fails only for an invalid set of signals.
        let _ = signals.wait();
        let _ = std::fs::remove_dir_all(folder);
        process::exit(130);
    });
    Ok(())
}

fn cells(only: &[String]) -> Result<Vec<Cell>> {
    let all = PAYLOADS.iter().flat_map(|&(payload, bytes)| {
        IN_FLIGHT.map(|in_flight| Cell {
            payload,
            bytes,
            in_flight,
        })
    });
    let cells: Vec<Cell> = all
        .filter(|cell| only.is_empty() || only.iter().any(|filter| cell.matches(filter)))
        .collect();
    if cells.is_empty() {
        return Err("--only leaves no cell of 0B, 1KiB, 64KiB, 1MiB at 1, 16, 256".into());
    }
    Ok(cells)
}

struct Cell {
    payload: &'static str,
    bytes: usize,
    in_flight: usize,
}

impl Cell {
    fn matches(&self, filter: &str) -> bool {
        let in_flight = self.in_flight.to_string();
        filter
            .split(',')
            .all(|part| part == self.payload || part == in_flight)
    }

    /// The samples of each contender, round by round. The contenders take turns, so that whatever
    /// else the machine does meets all of them alike.
    fn measure(&self, plan: &Plan, folder: &Path) -> Result<Vec<Vec<Sample>>> {
        let mut pairs = Vec::new();
        for entry in CONTENDERS {
            let mut pair = Pair::start(entry, self, plan.placement, folder)?;
            pair.measure(plan.warm_up)?;
            pairs.push(pair);
        }
        let mut columns: Vec<Vec<Sample>> = pairs.iter().map(|_| Vec::new()).collect();
        for _ in 0..ROUNDS {
            for (pair, column) in pairs.iter_mut().zip(&mut columns) {
                column.push(pair.measure(plan.slice)?);
            }
        }
        Ok(columns)
    }

    fn print_row(&self, columns: &[Vec<Sample>]) {
        let base = &columns[0];
        let absolute = |of: fn(&Sample) -> f64| median(base.iter().map(of));
        print!(
            "{:>7} {:>9} | {:>8.0} {:>8.1} {}",
            self.payload,
            self.in_flight,
            absolute(|sample| sample.rate),
            absolute(|sample| sample.cpu * 1e6),
            self.if_one(absolute(|sample| sample.latency * 1e6), 8, 1)
        );
        for column in &columns[1..] {
            let ratios =
                |of: fn(&Sample) -> f64| column.iter().zip(base).map(move |(a, b)| of(a) / of(b));
            let rates = || ratios(|sample| sample.rate);
            print!(
                " | {:>7.2} {:>6.2}-{:<6.2} {:>6.2} {}",
                median(rates()),
                rates().fold(f64::INFINITY, f64::min),
                rates().fold(0.0, f64::max),
                median(ratios(|sample| sample.cpu)),
                self.if_one(median(ratios(|sample| sample.latency)), 6, 2)
            );
        }
        println!();
    }

    /// Latency says nothing new with many calls in flight, so it is measured with one only.
    fn if_one(&self, value: f64, width: usize, digits: usize) -> String {
        if self.in_flight == 1 {
            format!("{value:>width$.digits$}")
        } else {
            format!("{:>width$}", "")
        }
    }
}

fn print_heading(plan: &Plan) {
    println!(
        "{}; medians of {ROUNDS} rounds of {} ms; ratios to {}",
        plan.placement.name(),
        plan.slice.as_millis(),
        CONTENDERS[0].name
    );
    print!("\n{:>17} | {:<26}", "", CONTENDERS[0].name);
    for entry in &CONTENDERS[1..] {
        print!(" | {:<35}", entry.name);
    }
    print!(
        "\n{:>7} {:>9} | {:>8} {:>8} {:>8}",
        "payload", "in flight", "calls/s", "CPU us", "p50 us"
    );
    for _ in &CONTENDERS[1..] {
        print!(
            " | {:>7} {:>13} {:>6} {:>6}",
            "calls/s", "(least-most)", "CPU", "p50"
        );
    }
    println!();
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What one contender did in one slice: calls per second, and seconds per call.
struct Sample {
    rate: f64,
    cpu: f64,
    latency: f64,
}

/// One contender's server and client, connected.
struct Pair {
    // Dropped, and so ended, before the server it talks to.
    client: Process,
    server: Process,
}

impl Pair {
    fn start(entry: &Entry, cell: &Cell, placement: Placement, folder: &Path) -> Result<Self> {
        let name = format!(
            "{}-{}-{}.sock",
            entry.name.replace(' ', "-"),
            cell.bytes,
            cell.in_flight
        );
        let address = format!("unix://{}", folder.join(name).display());
        let [bytes, in_flight] = [cell.bytes, cell.in_flight].map(|number| number.to_string());
        let setting = [entry.name, &address, placement.name(), &bytes, &in_flight];
        let server = Process::start("serve", &setting)?;
        let client = Process::start("call", &setting)?;
        Ok(Self { client, server })
    }

    fn measure(&mut self, slice: Duration) -> Result<Sample> {
        let before = self.client.cpu()? + self.server.cpu()?;
        let reply = self.client.ask(&slice.as_millis().to_string())?;
        let cpu = self.client.cpu()? + self.server.cpu()? - before;
        let numbers: Vec<f64> = reply
            .split(' ')
            .map(str::parse)
            .collect::<std::result::Result<_, _>>()?;
        let [calls, taken, median] = numbers[..] else {
            return Err(format!("{}: unexpected reply {reply}", self.client.title).into());
        };
        Ok(Sample {
            rate: calls * 1e9 / taken,
            cpu: cpu.as_secs_f64() / calls,
            latency: median / 1e9,
        })
    }
}

/// This program again, as a child that is killed with this value.
struct Process {
    title: String,
    child: Child,
    orders: ChildStdin,
    replies: BufReader<ChildStdout>,
    clock: ClockId,
}

impl Process {
    /// Returns once the child says that it is ready.
    fn start(role: &str, setting: &[&str; 5]) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(role)
            .args(setting)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (Some(orders), Some(replies)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a child without pipes".into());
        };
        let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(child.id().try_into()?))?;
        let mut process = Self {
            title: format!("{} ({role})", setting[0]),
            child,
            orders,
            replies: BufReader::new(replies),
            clock,
        };
        process.reply()?;
        Ok(process)
    }

    fn ask(&mut self, order: &str) -> Result<String> {
        writeln!(self.orders, "{order}").map_err(|error| format!("{}: {error}", self.title))?;
        self.reply()
    }

    fn reply(&mut self) -> Result<String> {
        let mut line = String::new();
        self.replies.read_line(&mut line)?;
        let line = line.trim_end();
        if line.is_empty() {
            return Err(format!("{} ended early", self.title).into());
        }
        if let Some(error) = line.strip_prefix("error: ") {
            return Err(format!("{}: {error}", self.title).into());
        }
        Ok(line.to_owned())
    }

    /// Processor time, user and system, of all threads so far.
    fn cpu(&self) -> Result<Duration> {
        let now = self.clock.now();
        Ok(now
            .map_err(|error| format!("{}: no clock: {error}", self.title))?
            .into())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only for a child that has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
