//! What is said of the process at the other end: of the one that holds the connection, or nothing.
//! The children are this test program again.

#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid, getppid, setuid};
use support::*;
use tokio::net::{UnixListener, UnixStream};
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::transport::Transport;
use ttrpc_keepalive::{
    Client, ConnectionError, Error, PeerProcess, ProcessState, ProcessUnknown, Socket, Verdict,
};

const ROLE: &str = "TTRPC_KEEPALIVE_TEST_ROLE";
const ADDRESS: &str = "TTRPC_KEEPALIVE_TEST_ADDRESS";

/// A process that is ended with its test.
struct Process(Child);

impl Process {
    /// Runs the test of this name as a program, by another program or by itself.
    fn start(by: &[&str], role: &str, address: &str) -> Self {
        let me = std::env::current_exe().unwrap();
        let mut command = match by {
            [] => Command::new(me),
            [by, arguments @ ..] => {
                let mut command = Command::new(by);
                command.args(arguments).arg(me);
                command
            }
        };
        let command = command.args(["--exact", role, "--nocapture", "--test-threads=1"]);
        let command = command.env(ROLE, role).env(ADDRESS, address);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    /// One that holds a socket as its input, and does nothing.
    fn holding(socket: OwnedFd) -> Self {
        let mut command = Command::new("sleep");
        Self(command.arg("600").stdin(socket).spawn().unwrap())
    }

    fn pid(&self) -> i32 {
        self.0.id().try_into().unwrap()
    }

    fn signal(&self, signal: Signal) {
        signal_to(self.pid(), signal);
    }

    /// A line that begins so, without that.
    fn told(&mut self, what: &str) -> String {
        let lines = BufReader::new(self.0.stdout.take().unwrap()).lines();
        let mut told = lines.filter_map(|line| Some(line.unwrap().split_once(what)?.1.to_owned()));
        told.next().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn signal_to(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

fn played(role: &str) -> Option<String> {
    let plays = std::env::var(ROLE).is_ok_and(|played| played == role);
    plays.then(|| std::env::var(ADDRESS).unwrap())
}

/// The same question until it is answered so: a signal is on its way for a while.
#[track_caller]
fn comes_to(process: PeerProcess, state: ProcessState) {
    let start = Instant::now();
    while process.state() != state {
        let seen = process.state();
        assert!(start.elapsed() < secs(20), "{seen:?}, not {state:?}");
        std::thread::sleep(ms(1));
    }
}

fn unknown(reason: ProcessUnknown) -> ProcessState {
    ProcessState::Unknown(reason)
}

/// The error of a call that is late, on a machine that may be too busy to say something of others.
async fn late_within(client: &Client, time: Duration) -> Error {
    loop {
        let error = say_within(client, time).await.unwrap_err();
        if error.verdict() != Some(Verdict::LocalStall) {
            return error;
        }
    }
}

/// A listener, and the folder of its socket.
fn listener() -> (UnixListener, String, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    (listener, path.to_str().unwrap().to_owned(), folder)
}

#[test]
fn child_that_connects() {
    let Some(address) = played("child_that_connects") else {
        return;
    };
    let _stream = StdStream::connect(address).unwrap();
    // Until its parent is gone.
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn child_that_listens() {
    let Some(address) = played("child_that_listens") else {
        return;
    };
    let _listener = std::os::unix::net::UnixListener::bind(address).unwrap();
    println!("\nready");
    let _ = std::io::stdin().read(&mut [0]);
}

/// Gives its connection to a process of its own, and ends.
#[test]
fn child_that_hands_on() {
    let Some(address) = played("child_that_hands_on") else {
        return;
    };
    let stream = StdStream::connect(address).unwrap();
    let heir = std::mem::ManuallyDrop::new(Process::holding(stream.into()));
    println!("\nheir {}", heir.pid());
}

/// Tells what it sees of its parent, as another user if it may.
#[test]
fn child_that_looks() {
    let Some(address) = played("child_that_looks") else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let socket = Socket::unix(UnixStream::connect(address).await.unwrap());
        let process = socket.peer_process().unwrap();
        // Its parent has no number in a namespace of its own.
        if getppid().as_raw() != 0 {
            setuid(Uid::from_raw(65534)).unwrap();
        }
        println!("\nstate {}", process.state());
    });
}

#[tokio::test]
async fn a_peer_is_told_to_run_to_be_stopped_and_to_be_gone() {
    let (listener, address, _folder) = listener();
    let mut child = Process::start(&[], "child_that_connects", &address);
    let (stream, _) = listener.accept().await.unwrap();
    let client = Client::builder().attach(stream).unwrap();
    let process = client.peer_process().unwrap();
    assert_eq!(process.pid(), Some(child.pid()));
    comes_to(process, ProcessState::Running);
    assert_eq!(process.find(), Ok(process));

    child.signal(Signal::SIGSTOP);
    comes_to(process, ProcessState::Stopped);
    let error = late_within(&client, secs(1)).await;
    assert_eq!(error.verdict(), Some(Verdict::NotReading));
    let evidence = error.evidence().unwrap();
    assert_eq!(evidence.process, Some(ProcessState::Stopped));
    assert!(
        error.to_string().contains(", its process is stopped)"),
        "{error}"
    );

    child.signal(Signal::SIGCONT);
    comes_to(process, ProcessState::Running);
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    comes_to(process, ProcessState::Gone);
}

#[tokio::test]
async fn a_conviction_tells_what_the_process_was_doing() {
    let (listener, address, _folder) = listener();
    let child = Process::start(&[], "child_that_connects", &address);
    let (stream, _) = listener.accept().await.unwrap();
    let keepalive = Keepalive::every(ms(100)).timeout(ms(400));
    let keepalive = keepalive.peer_support(ttrpc_keepalive::PeerSupport::Assume);
    let client = Client::builder().keepalive(keepalive);
    child.signal(Signal::SIGSTOP);
    let client = client.attach(stream).unwrap();
    let end = client.closed().await;
    let ConnectionError::Dead { evidence, .. } = &end else {
        panic!("{end}");
    };
    assert_eq!(evidence.process, Some(ProcessState::Stopped), "{end}");
}

/// A group of processes that can be frozen, by what freezes it. `None` where that may not be made.
fn group(version: u32) -> Option<(PathBuf, &'static str, &'static str, &'static str)> {
    let (mounts, file, on, off): (&[&str], _, _, _) = match version {
        1 => (
            &["/sys/fs/cgroup/freezer"],
            "freezer.state",
            "FROZEN",
            "THAWED",
        ),
        _ => (
            &["/sys/fs/cgroup/unified", "/sys/fs/cgroup"],
            "cgroup.freeze",
            "1",
            "0",
        ),
    };
    mounts.iter().find_map(|mount| {
        let name = format!("ttrpc-keepalive-test-{}", std::process::id());
        let group = PathBuf::from(mount).join(name);
        fs::create_dir(&group).ok()?;
        if group.join(file).exists() && group.join("cgroup.procs").exists() {
            return Some((group, file, on, off));
        }
        let _ = fs::remove_dir(&group);
        None
    })
}

#[tokio::test]
async fn a_peer_whose_cgroup_is_frozen_is_told_so() {
    for version in [1, 2] {
        let Some((group, file, on, off)) = group(version) else {
            println!("no cgroup of version {version} can be made here");
            continue;
        };
        let (listener, address, _folder) = listener();
        let mut child = Process::start(&[], "child_that_connects", &address);
        let socket = Socket::unix(listener.accept().await.unwrap().0);
        let process = socket.peer_process().unwrap();
        if fs::write(group.join("cgroup.procs"), child.pid().to_string()).is_ok() {
            fs::write(group.join(file), on).unwrap();
            comes_to(process, ProcessState::Frozen);
            fs::write(group.join(file), off).unwrap();
            comes_to(process, ProcessState::Running);
        }
        child.0.kill().unwrap();
        child.0.wait().unwrap();
        fs::remove_dir(&group).unwrap();
    }
}

/// Connects, and waits uninterruptibly for a child that shares its memory, until its input ends.
#[cfg(target_arch = "x86_64")]
const WAITS: &str = "\
use Socket;
socket(my $socket, AF_UNIX, SOCK_STREAM, 0) or die;
connect($socket, sockaddr_un($ARGV[0])) or die;
if (syscall(58) == 0) { sysread(STDIN, my $end, 1); syscall(231, 0); }";

// No disk can be made to hang here, but vfork makes a process wait in the same way.
#[tokio::test]
#[cfg(target_arch = "x86_64")]
async fn a_peer_that_waits_uninterruptibly_is_said_to_wait_for_the_disk() {
    let (listener, address, _folder) = listener();
    let mut perl = Command::new("perl");
    let perl = perl.args(["-e", WAITS, &address]).stdin(Stdio::piped());
    let Ok(child) = perl.spawn() else {
        return println!("there is no perl here");
    };
    let mut child = Process(child);
    let client = Client::builder().attach(listener.accept().await.unwrap().0);
    let client = client.unwrap();
    let process = client.peer_process().unwrap();
    comes_to(process, ProcessState::WaitingForDisk);
    let error = late_within(&client, secs(1)).await;
    assert_eq!(error.verdict(), Some(Verdict::NotReading));
    let text = error.to_string();
    assert!(
        text.contains(", its process is waiting for the disk)"),
        "{text}"
    );
    drop(child.0.stdin.take());
    child.0.wait().unwrap();
    comes_to(process, ProcessState::Gone);
}

// As the launcher of a shim does. The number of who connected may be anybody's then.
#[tokio::test]
async fn of_a_connection_that_was_handed_on_nothing_is_said_but_of_who_holds_it() {
    let (listener, address, _folder) = listener();
    let mut child = Process::start(&[], "child_that_hands_on", &address);
    let socket = Socket::unix(listener.accept().await.unwrap().0);
    let process = socket.peer_process().unwrap();
    let heir: i32 = child.told("heir ").parse().unwrap();
    let heir = Guard(heir);
    child.0.wait().unwrap();
    assert_eq!(process.pid(), Some(child.pid()));
    assert_eq!(process.state(), unknown(ProcessUnknown::HandedOn));

    let found = process.find().unwrap();
    assert_eq!(found.pid(), Some(heir.0));
    comes_to(found, ProcessState::Running);
    signal_to(heir.0, Signal::SIGSTOP);
    comes_to(found, ProcessState::Stopped);

    // The number again, if this user may choose it.
    let other = (0..200).find_map(|_| {
        let newest = "/proc/sys/kernel/ns_last_pid";
        fs::write(newest, (child.pid() - 1).to_string()).ok()?;
        let other = Command::new("sleep").arg("600").spawn().unwrap();
        let other = Process(other);
        (other.pid() == child.pid()).then_some(other)
    });
    match &other {
        Some(_) => assert_eq!(process.state(), unknown(ProcessUnknown::HandedOn)),
        None => println!("no process could be given the number of another"),
    }
    drop(heir);
    comes_to(found, ProcessState::Gone);
}

#[tokio::test]
async fn a_late_call_on_a_connection_that_was_handed_on_has_its_process_looked_for() {
    let (here, there) = StdStream::pair().unwrap();
    let keepalive = Keepalive::on_demand().probe_before_deadline(secs(1));
    let client = Client::builder().keepalive(keepalive);
    let client = client.attach(Socket::from_fd(here).unwrap()).unwrap();
    let heir = Process::holding(there.into());
    heir.signal(Signal::SIGSTOP);
    let process = client.peer_process().unwrap();
    assert_eq!(process.state(), unknown(ProcessUnknown::HandedOn));
    comes_to(process.find().unwrap(), ProcessState::Stopped);
    // Nothing is known of it when the call begins, and all of it when the first verdict is told.
    let error = late_within(&client, secs(4)).await;
    assert_eq!(error.verdict(), Some(Verdict::NotReading));
    let evidence = error.evidence().unwrap();
    assert_eq!(evidence.process, Some(ProcessState::Stopped));
}

/// A process that is no child of this one.
struct Guard(i32);

impl Drop for Guard {
    fn drop(&mut self) {
        signal_to(self.0, Signal::SIGKILL);
    }
}

#[tokio::test]
async fn one_of_several_that_hold_a_connection_is_not_chosen() {
    let (here, there) = StdStream::pair().unwrap();
    let socket = Socket::from_fd(here).unwrap();
    // The kernel names who made the pair.
    let process = socket.peer_process().unwrap();
    assert_eq!(process.state(), ProcessState::Running);
    let first = Process::holding(there.try_clone().unwrap().into());
    let second = Process::holding(there.into());
    assert_eq!(process.state(), unknown(ProcessUnknown::HandedOn));
    assert_eq!(process.find(), Err(ProcessUnknown::Several));
    drop(second);
    assert_eq!(process.find().unwrap().pid(), Some(first.pid()));
}

#[tokio::test]
async fn while_nobody_has_accepted_a_connection_its_process_is_the_one_that_listens() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut child = Process::start(&[], "child_that_listens", path.to_str().unwrap());
    let _ = child.told("ready");
    // There is another one that listens, and has one waiting.
    let (_other, other_address, _folder) = listener();
    let other = Socket::unix(UnixStream::connect(&other_address).await.unwrap());
    let socket = Socket::unix(UnixStream::connect(&path).await.unwrap());
    let process = socket.peer_process().unwrap();
    assert_eq!(process.pid(), Some(child.pid()));
    comes_to(process, ProcessState::Running);
    child.signal(Signal::SIGSTOP);
    comes_to(process, ProcessState::Stopped);
    let other = other.peer_process().unwrap();
    assert_eq!(other.state(), ProcessState::Running);
    assert_eq!((process.find(), other.find()), (Ok(process), Ok(other)));
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    comes_to(process, ProcessState::Gone);
}

#[tokio::test]
async fn what_may_not_be_seen_is_said_to_be_that() {
    if !Uid::effective().is_root() {
        return println!("only root can become somebody else");
    }
    for (by, state) in [
        (&[][..], "what it has open may not be seen"),
        (
            &["unshare", "--pid", "--fork", "--mount-proc"][..],
            "it has no number here",
        ),
    ] {
        let (listener, address, folder) = listener();
        let accepts = tokio::spawn(async move { listener.accept().await.unwrap().0 });
        let mut child = Process::start(by, "child_that_looks", &address);
        let seen = tokio::task::spawn_blocking(move || child.told("state ")).await;
        drop((accepts.await.unwrap(), folder));
        assert_eq!(seen.unwrap(), format!("not known: {state}"));
    }
}
