//! This test program again, as a child that plays one of its tests, is told what to do, and is stopped.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use super::{ms, secs};

const ROLE: &str = "TTRPC_KEEPALIVE_TEST_ROLE";
const ADDRESS: &str = "TTRPC_KEEPALIVE_TEST_ADDRESS";

/// A child process that runs the test of this name as its program.
pub(crate) struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    pub(crate) fn start(role: &str, address: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", role, "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(ADDRESS, address)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut process = Self {
            child,
            input,
            output: BufReader::new(output),
        };
        process.told("ready");
        process
    }

    /// Waits for a line that begins so, and yields the rest. The test harness writes lines, too.
    pub(crate) fn told(&mut self, what: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(
                self.output.read_line(&mut line).unwrap() > 0,
                "the child is gone"
            );
            if let Some((_, rest)) = line.trim_end().split_once(what) {
                return rest.trim().to_owned();
            }
        }
    }

    pub(crate) fn tell(&mut self) {
        self.input.write_all(b"go\n").unwrap();
    }

    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(sent.success());
        // A signal is on its way for a while, and each thread stops by itself.
        let start = Instant::now();
        while signal == "-STOP" && !self.is_stopped() {
            assert!(start.elapsed() < secs(20), "it does not stop");
            std::thread::sleep(ms(1));
        }
    }

    fn is_stopped(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        threads.into_iter().all(|thread| {
            let stat = std::fs::read_to_string(thread.unwrap().path().join("stat"));
            // The state follows the name, which is in brackets.
            stat.is_ok_and(|stat| {
                stat.rsplit_once(") ")
                    .is_some_and(|(_, rest)| rest.starts_with('T'))
            })
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL ends a stopped process, too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether this process is a child that is to play this part.
pub(crate) fn plays(role: &str) -> Option<String> {
    let played = std::env::var(ROLE).is_ok_and(|played| played == role);
    played.then(|| std::env::var(ADDRESS).unwrap())
}

pub(crate) fn wait_for_parent() {
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line).unwrap();
    if read == 0 {
        std::process::exit(0);
    }
}

/// A name of the abstract namespace that no other run has.
pub(crate) fn address(name: &str) -> String {
    format!("ttrpc-keepalive-{name}-{}", std::process::id())
}

/// What a child finds in its environment that plays this part, with no address.
pub(crate) fn as_child(role: &str) -> [(&str, &str); 2] {
    [(ROLE, role), (ADDRESS, "")]
}
