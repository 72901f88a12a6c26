//! One contender's two processes, as their parent sees them.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{self, Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use nix::time::ClockId;
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::child::{Order, Placement};
use crate::counting::Counts;
use crate::{Entry, Result};

/// A folder for sockets, removed at the end. A signal ends the process without running destructors,
/// and removes it too. The children need no more than that: they end with their standard input.
pub(crate) fn folder() -> Result<TempDir> {
    let folder = TempDir::with_prefix("peers-")?;
    let path: PathBuf = folder.path().to_owned();
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
    signals.thread_block()?;
    std::thread::spawn(move || {
        // `wait` fails only for an invalid set of signals.
        let _ = signals.wait();
        let _ = std::fs::remove_dir_all(path);
        process::exit(130);
    });
    Ok(folder)
}

/// What one contender did in one slice: calls or messages per second, and seconds for each.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) rate: f64,
    pub(crate) cpu: f64,
    pub(crate) latency: f64,
}

/// One contender's server and client, connected.
pub(crate) struct Pair {
    // Dropped, and so ended, before the server it talks to.
    client: Process,
    server: Process,
}

impl Pair {
    pub(crate) fn start(
        entry: &Entry,
        bytes: usize,
        placement: Placement,
        folder: &Path,
    ) -> Result<Self> {
        let program = std::env::current_exe()?;
        let commands = [Command::new(&program), Command::new(&program)];
        Self::start_by(commands, entry, bytes, placement, folder)
    }

    /// By commands for the client and the server that run this program, and take its arguments last.
    pub(crate) fn start_by(
        [client, server]: [Command; 2],
        entry: &Entry,
        bytes: usize,
        placement: Placement,
        folder: &Path,
    ) -> Result<Self> {
        let name = format!("{}.sock", entry.name.replace([' ', ','], "-"));
        let socket = folder.join(name);
        // What an earlier pair has left.
        let _ = std::fs::remove_file(&socket);
        let address = format!("unix://{}", socket.display());
        let bytes = bytes.to_string();
        let setting = [entry.name, &address, placement.name(), &bytes];
        let server = Process::start(server, "serve", &setting)?;
        let client = Process::start(client, "call", &setting)?;
        Ok(Self { client, server })
    }

    /// Has the client do what takes some time.
    pub(crate) fn measure(&mut self, order: &Order) -> Result<Sample> {
        let before = self.cpu()?;
        let reply = self.client.ask(order)?;
        let cpu = self.cpu()? - before;
        let numbers: Vec<f64> = reply
            .split(' ')
            .map(str::parse)
            .collect::<std::result::Result<_, _>>()?;
        let [count, taken, median] = numbers[..] else {
            return Err(format!("{}: unexpected reply {reply}", self.client.title).into());
        };
        Ok(Sample {
            rate: count * 1e9 / taken,
            cpu: cpu.as_secs_f64() / count,
            latency: median / 1e9,
        })
    }

    pub(crate) fn order(&mut self, order: &Order) -> Result<()> {
        self.client.ask(order).map(|_| ())
    }

    /// Lets both end by themselves instead of killing them.
    pub(crate) fn end(mut self) -> Result<()> {
        self.client.end()?;
        self.server.end()
    }

    /// The counts of the client and of the server.
    pub(crate) fn counts(&mut self) -> Result<[Counts; 2]> {
        let client = self.client.ask(&Order::Counts)?.parse()?;
        Ok([client, self.server.ask(&Order::Counts)?.parse()?])
    }

    /// Processor time of both so far, user and system, of all threads.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        Ok(self.client.cpu()? + self.server.cpu()?)
    }
}

const NO_PIPE: &str = "a child without pipes";

/// This program again, as a child that is killed with this value.
pub(crate) struct Process {
    title: String,
    child: Child,
    replies: BufReader<ChildStdout>,
    clock: ClockId,
}

impl Process {
    /// Returns once the child says that it is ready.
    pub(crate) fn start(mut command: Command, role: &str, setting: &[&str]) -> Result<Self> {
        command.arg(role).args(setting);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", command.get_program().display()))?;
        let replies = child.stdout.take().ok_or(NO_PIPE)?;
        let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(child.id().try_into()?))?;
        let mut process = Self {
            title: format!("{role} {}", setting[0]),
            child,
            replies: BufReader::new(replies),
            clock,
        };
        process.reply()?;
        Ok(process)
    }

    fn ask(&mut self, order: &Order) -> Result<String> {
        let orders = self.child.stdin.as_mut().ok_or(NO_PIPE)?;
        writeln!(orders, "{order}").map_err(|error| format!("{}: {error}", self.title))?;
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

    fn end(&mut self) -> Result<()> {
        // `wait` closes its standard input, which ends it.
        let status = self.child.wait()?;
        if !status.success() {
            return Err(format!("{}: {status}", self.title).into());
        }
        Ok(())
    }

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

pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
