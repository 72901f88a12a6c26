//! Other implementations run as processes, are told and asked by lines, and can be stopped.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::Result;

/// How long a process may take for a line. Each scenario is much shorter.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Process {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    log: PathBuf,
}

impl Process {
    /// Starts a program. What it logs goes to a file beside `socket`.
    pub(crate) fn start(program: &Path, arguments: &[&str], socket: &Path) -> Result<Self> {
        let log = socket.with_extension(format!("{}.log", arguments.len()));
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let input = child.stdin.take().ok_or("no input")?;
        let output = child.stdout.take().ok_or("no output")?;
        Ok(Self {
            child,
            input,
            lines: BufReader::new(output).lines(),
            log,
        })
    }

    /// The next line that it prints.
    pub(crate) async fn line(&mut self) -> Result<String> {
        let line = timeout(PATIENCE, self.lines.next_line())
            .await
            .map_err(|_| "the process says nothing")??;
        line.ok_or_else(|| format!("the process has ended: {}", self.logged()).into())
    }

    pub(crate) async fn expect(&mut self, line: &str) -> Result<()> {
        let said = self.line().await?;
        if said == line {
            return Ok(());
        }
        Err(format!("the process says {said:?} and not {line:?}").into())
    }

    /// The line in which a scenario says how it went.
    pub(crate) async fn outcome(&mut self) -> Result<String> {
        let line = self.line().await?;
        let shown = line.strip_prefix("ok ").map(str::to_owned);
        shown.ok_or_else(|| line.trim_start_matches("FAIL ").to_owned().into())
    }

    pub(crate) async fn tell(&mut self, line: &str) -> Result<()> {
        self.input.write_all(format!("{line}\n").as_bytes()).await?;
        Ok(())
    }

    /// Tells and waits for the answer, which repeats what was told.
    pub(crate) async fn ask(&mut self, line: &str) -> Result<String> {
        self.tell(line).await?;
        let said = self.line().await?;
        let answer = said.strip_prefix(line).map(|rest| rest.trim().to_owned());
        answer.ok_or_else(|| format!("asked {line:?}, it says {said:?}").into())
    }

    /// Stops it, and waits until all its threads are.
    pub(crate) async fn stop(&self) -> Result<()> {
        stop(self.pid()?).await
    }

    /// How many sockets it has open.
    pub(crate) fn sockets(&self) -> Result<usize> {
        let folder = format!(
            "/proc/{}/fd",
            self.child.id().ok_or("the process has ended")?
        );
        let open = std::fs::read_dir(folder)?.flatten().filter(|descriptor| {
            let target = std::fs::read_link(descriptor.path());
            target.is_ok_and(|target| target.to_string_lossy().starts_with("socket:"))
        });
        Ok(open.count())
    }

    /// The most address space that it has had.
    pub(crate) fn memory_kb(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()?))?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmPeak:"));
        let peak = peak
            .ok_or("it has no memory")?
            .trim()
            .trim_end_matches(" kB");
        Ok(peak.parse()?)
    }

    pub(crate) fn go_on(&self) -> Result<()> {
        go_on(self.pid()?)
    }

    pub(crate) fn kill(&self) -> Result<()> {
        Ok(signal::kill(self.pid()?, Signal::SIGKILL)?)
    }

    fn pid(&self) -> Result<Pid> {
        let id = self.child.id().ok_or("the process has ended")?;
        Ok(Pid::from_raw(i32::try_from(id)?))
    }

    /// What it has logged so far.
    pub(crate) fn logged(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

/// Stops a process, as a debugger or a frozen machine would, and waits until all its threads are.
pub(crate) async fn stop(pid: Pid) -> Result<()> {
    signal::kill(pid, Signal::SIGSTOP)?;
    for _ in 0..2000 {
        if is_stopped(pid) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Err("the process does not stop".into())
}

pub(crate) fn go_on(pid: Pid) -> Result<()> {
    Ok(signal::kill(pid, Signal::SIGCONT)?)
}

fn is_stopped(pid: Pid) -> bool {
    std::fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|threads| {
        threads.flatten().all(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("stat"));
            // The state follows the name, which is in brackets.
            let state = stat
                .ok()
                .and_then(|stat| Some(stat.rsplit_once(") ")?.1.to_owned()));
            state.is_some_and(|state| state.starts_with('T'))
        })
    })
}
