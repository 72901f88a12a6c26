//! The plugin processes: starting them, reading their records, stopping them for a while, and
//! leaving none behind.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::record::Record;
use crate::{PLUGINS, Result, Rules};

/// How long a plugin may take to end by itself.
const ENDING: Duration = Duration::from_secs(5);

/// The plugin in Go, on containerd/ttrpc as it is.
pub(crate) async fn built_by_go(folder: &Path) -> Result<PathBuf> {
    let program = folder.join("plugin");
    let mut go = Command::new("go");
    go.args(["build", "-buildvcs=false", "-o"]).arg(&program);
    go.arg("./plugin");
    go.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/interop/go"));
    let built = go.status().await;
    let built = built.map_err(|error| format!("go cannot be run: {error}"))?;
    match built.success() {
        true => Ok(program),
        false => Err("go has not built the plugin".into()),
    }
}

/// All plugin processes.
pub(crate) struct Cast {
    players: Vec<Player>,
}

/// One plugin process. Killed when dropped, whatever state it is in.
pub(crate) struct Player {
    pub(crate) name: &'static str,
    pub(crate) pid: i32,
    records: watch::Receiver<Vec<Record>>,
    reading: JoinHandle<()>,
    child: Child,
}

/// What a plugin process left.
pub(crate) struct Testimony {
    pub(crate) name: &'static str,
    pub(crate) records: Vec<Record>,
    /// `None` if it had to be killed.
    pub(crate) exit: Option<ExitStatus>,
}

impl Cast {
    /// Starts the program for each plugin.
    pub(crate) fn start(program: &Path, socket: &Path, rules: Rules) -> Result<Self> {
        let mut players = Vec::new();
        for name in PLUGINS {
            let mut child = Command::new(program)
                .args(rules.plugin(name))
                .arg(socket)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .kill_on_drop(true)
                .spawn()?;
            let (pid, stdout) = (child.id(), child.stdout.take());
            let (pid, stdout) = pid.zip(stdout).ok_or("a plugin has no pid or no output")?;
            let (sender, records) = watch::channel(Vec::new());
            players.push(Player {
                name,
                pid: pid.try_into()?,
                records,
                reading: tokio::spawn(read(stdout, sender)),
                child,
            });
        }
        Ok(Self { players })
    }

    /// The process of that name; the names are those of [`PLUGINS`].
    pub(crate) fn player(&self, name: &str) -> Result<&Player> {
        let player = self.players.iter().find(|player| player.name == name);
        Ok(player.ok_or_else(|| format!("no plugin is called {name}"))?)
    }

    /// Lets all of them end by closing their standard input, and collects what they recorded.
    pub(crate) async fn end(mut self) -> Vec<Testimony> {
        let mut left = Vec::new();
        for player in &mut self.players {
            drop(player.child.stdin.take());
        }
        for mut player in self.players {
            let ended = tokio::time::timeout(ENDING, player.child.wait()).await;
            let exit = ended.ok().and_then(std::result::Result::ok);
            // Its output ends with it; dropping a player that has not ended kills it.
            player.kill().await;
            let _ = (&mut player.reading).await;
            left.push(Testimony {
                name: player.name,
                records: player.records.borrow().clone(),
                exit,
            });
        }
        left
    }

    /// Ends all of them at once, stopped ones too.
    pub(crate) async fn kill(mut self) {
        for player in &mut self.players {
            player.kill().await;
        }
    }
}

impl Player {
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill(Pid::from_raw(self.pid), signal)?)
    }

    /// Waits until its record holds such a line.
    pub(crate) async fn recorded(&self, such: impl Fn(&Record) -> bool) -> Result<()> {
        let mut records = self.records.clone();
        let found = records.wait_for(|records| records.iter().any(&such)).await;
        let missing = format!("{} ended before it did what it should", self.name);
        Ok(found.map(drop).map_err(|_| missing)?)
    }

    /// SIGKILL ends a stopped process too. It is reaped here, so that it is gone and not a zombie.
    async fn kill(&mut self) {
        // An error says that it has ended already.
        let _ = self.child.kill().await;
    }
}

async fn read(stdout: ChildStdout, records: watch::Sender<Vec<Record>>) {
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        match line.parse() {
            Ok(record) => records.send_modify(|records| records.push(record)),
            Err(problem) => eprintln!("{problem}"),
        }
    }
}
