//! One line a pairing, and the sum of them.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::time::timeout;

use crate::process::Process;
use crate::{Result, print};

/// No pairing takes longer, on a busy machine neither.
const LIMIT: Duration = Duration::from_secs(60);

/// Where the programs and the sockets are.
pub(crate) struct World {
    programs: PathBuf,
    own: PathBuf,
    folder: TempDir,
    sockets: AtomicUsize,
}

/// The version of containerd/ttrpc that all pairings are played with.
pub(crate) const NEWEST: &str = "1.2.10";

impl World {
    /// `programs` is the target folder of cargo, where `interop/run` puts those in Go, too.
    pub(crate) fn new(programs: PathBuf) -> Result<Self> {
        Ok(Self {
            programs,
            own: std::env::current_exe()?,
            folder: TempDir::new()?,
            sockets: AtomicUsize::new(0),
        })
    }

    /// A path that no socket has had.
    pub(crate) fn socket(&self) -> PathBuf {
        let number = self.sockets.fetch_add(1, Ordering::Relaxed);
        self.folder.path().join(format!("{number}"))
    }

    /// A server in Go that waits for connections.
    pub(crate) async fn go_server(
        &self,
        version: &str,
        wrap: &[&str],
    ) -> Result<(Process, String)> {
        let socket = self.socket();
        let path = utf8(&socket)?;
        let arguments = [wrap, &["serve", path]].concat();
        let mut process = Process::start(&self.go_peer(version), &arguments, &socket)?;
        process.expect("ready").await?;
        Ok((process, format!("unix://{path}")))
    }

    /// A client in Go: `script`, or `play` and the name of a scenario.
    pub(crate) fn go_client(
        &self,
        version: &str,
        wrap: &[&str],
        socket: &Path,
        does: &[&str],
    ) -> Result<Process> {
        let [verb, rest @ ..] = does else {
            return Err("nothing to do".into());
        };
        let arguments = [wrap, &[*verb, utf8(socket)?], rest].concat();
        Process::start(&self.go_peer(version), &arguments, socket)
    }

    fn go_peer(&self, version: &str) -> PathBuf {
        self.program(&format!("interop/go/peer-{version}"))
    }

    pub(crate) fn program(&self, path: &str) -> PathBuf {
        self.programs.join(path)
    }

    /// A server of this crate in a process of its own, and its socket.
    pub(crate) async fn own_server(&self, arguments: &[&str]) -> Result<(Process, PathBuf)> {
        let socket = self.socket();
        let arguments = [&["serve", utf8(&socket)?], arguments].concat();
        let mut process = Process::start(&self.own, &arguments, &socket)?;
        process.expect("ready").await?;
        Ok((process, socket))
    }

    /// This program again, as a client.
    pub(crate) fn own_client(&self, verb: &str, address: &str) -> Result<Process> {
        Process::start(&self.own, &[verb, address], &self.socket())
    }
}

fn utf8(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| "the path is not UTF-8".into())
}

pub(crate) struct Report {
    part: String,
    passed: usize,
    failed: usize,
}

impl Report {
    /// Pairings without this in their name are left out.
    pub(crate) fn new(part: &str) -> Self {
        Self {
            part: part.to_owned(),
            passed: 0,
            failed: 0,
        }
    }

    /// Plays a pairing, and prints what it has shown.
    pub(crate) async fn pairing(
        &mut self,
        name: &str,
        plays: impl Future<Output = Result<String>>,
    ) {
        if !name.contains(&self.part) {
            return;
        }
        let begin = Instant::now();
        let outcome = timeout(LIMIT, plays).await;
        let outcome = outcome.unwrap_or_else(|_| Err("it takes too long".into()));
        let took = begin.elapsed().as_secs_f64();
        match outcome {
            Ok(shown) => {
                self.passed += 1;
                print(&format!("ok    {name}: {shown} ({took:.1} s)"));
            }
            Err(error) => {
                self.failed += 1;
                print(&format!("FAIL  {name}: {error} ({took:.1} s)"));
            }
        }
    }

    /// Prints the sum, and says whether all is well.
    pub(crate) fn close(self) -> bool {
        print(&format!("{} passed, {} failed", self.passed, self.failed));
        self.failed == 0 && self.passed > 0
    }
}

/// Fails a pairing with a text, unless the claim holds.
macro_rules! claim {
    ($holds:expr, $($text:tt)+) => {
        if !$holds {
            return Err(format!($($text)+).into());
        }
    };
}
pub(crate) use claim;
