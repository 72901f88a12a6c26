//! The plugins' processes, and what they record.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::watch;

use crate::{PLUGINS, Result};

pub(crate) struct Processes {
    all: Vec<Process>,
}

/// One of them. Killed when dropped, stopped or not.
pub(crate) struct Process {
    name: &'static str,
    pid: i32,
    records: watch::Receiver<Vec<String>>,
    child: Child,
}

/// What each recorded.
pub(crate) type Records = Vec<(&'static str, Vec<String>)>;

impl Processes {
    /// Starts this program once more for each plugin.
    pub(crate) fn start(socket: &Path) -> Result<Self> {
        let program = std::env::current_exe()?;
        let mut all = Vec::new();
        for name in PLUGINS {
            let mut child = Command::new(&program)
                .args(["plugin", name])
                .arg(socket)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .kill_on_drop(true)
                .spawn()?;
            let started = child.id().zip(child.stdout.take());
            let (pid, stdout) = started.ok_or("a plugin has no pid or no output")?;
            let (sender, records) = watch::channel(Vec::new());
            tokio::spawn(read(stdout, sender));
            all.push(Process {
                name,
                pid: pid.try_into()?,
                records,
                child,
            });
        }
        Ok(Self { all })
    }

    pub(crate) fn of(&self, name: &str) -> Result<&Process> {
        let found = self.all.iter().find(|process| process.name == name);
        Ok(found.ok_or_else(|| format!("no plugin is called {name}"))?)
    }

    /// Ends all of them, stopped ones too, and yields what they recorded.
    pub(crate) async fn end(&mut self) -> Records {
        let mut records = Vec::new();
        for process in &mut self.all {
            // What it has written is read first; an error says that it has ended already.
            tokio::time::sleep(Duration::from_millis(20)).await;
            let _ = process.child.kill().await;
            records.push((process.name, process.records.borrow().clone()));
        }
        records
    }
}

impl Process {
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill(Pid::from_raw(self.pid), signal)?)
    }

    /// Waits until its record holds that line.
    pub(crate) async fn recorded(&self, line: &str) -> Result<()> {
        let mut records = self.records.clone();
        let found = records.wait_for(|records| records.iter().any(|it| it == line));
        let found = found.await.map(drop);
        Ok(found.map_err(|_| format!("{} ended before {line:?}", self.name))?)
    }
}

async fn read(stdout: ChildStdout, records: watch::Sender<Vec<String>>) {
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        records.send_modify(|records| records.push(line));
    }
}
