//! The program against peers of each kind: its lines, and its exit status.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket,
};
use nix::unistd::Pid;
use serde_json::Value;
use ttrpc_keepalive::wire::{Flags, ping as ping_frame, pong};
use ttrpc_keepalive::{Listener, Server};

const ALIVE: i32 = 0;
const DOUBTFUL: i32 = 1;
const GONE: i32 = 2;
const MISUSE: i32 = 3;

/// A PING as the program sends it, and what a PONG repeats of it.
const PING: usize = 19;
const PAYLOAD: std::ops::Range<usize> = 10..19;
const STREAM_ID: u32 = 11;

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ttrpc-ping"));
    command.args(arguments);
    command
}

/// Runs the program to its end.
fn ping(arguments: &[&str]) -> (String, i32) {
    told(&program(arguments).output().unwrap())
}

fn told(output: &Output) -> (String, i32) {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    println!("{text}{}", String::from_utf8_lossy(&output.stderr));
    (text, output.status.code().unwrap())
}

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn address(&self, name: &str) -> String {
        format!("unix://{}", self.path(name).display())
    }
}

/// A server of the crate, which knows PING.
fn serve(path: &Path) {
    let address = format!("unix://{}", path.display());
    let (ready, started) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let listener = Listener::bind(&address).await.unwrap();
            ready.send(()).unwrap();
            Server::builder().build().unwrap().serve(listener).await;
        });
    });
    started.recv().unwrap();
}

/// A peer whose connections are served by this function, each by a thread.
fn scripted(path: &Path, serve: fn(UnixStream)) {
    let listener = UnixListener::bind(path).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            thread::spawn(move || serve(stream));
        }
    });
}

/// Reads, and answers nothing: what a peer does that does not know the type.
fn only_reads(mut stream: UnixStream) {
    let mut bytes = [0; 1024];
    while stream.read(&mut bytes).is_ok_and(|read| read > 0) {}
}

/// Has room for one or two connections that nobody accepts.
fn socket_with_a_short_queue(path: &Path) -> OwnedFd {
    let flags = SockFlag::SOCK_CLOEXEC;
    let listener = socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
    bind(listener.as_raw_fd(), &UnixAddr::new(path).unwrap()).unwrap();
    listen(&listener, Backlog::new(1).unwrap()).unwrap();
    listener
}

/// A connection, unless one would have to wait for it.
fn connected_at_once(path: &Path) -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let stream = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(stream.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(stream)
}

fn does_not_read(stream: UnixStream) {
    thread::sleep(Duration::from_secs(60));
    drop(stream);
}

fn says_that_it_is_stalled(mut stream: UnixStream) {
    let mut ping = [0; PING];
    while stream.read_exact(&mut ping).is_ok() {
        let answer = pong(STREAM_ID, Flags::HANDLERS_STALLED, &ping[PAYLOAD]);
        stream.write_all(&answer).unwrap();
    }
}

fn answers_once_and_then_only_reads(mut stream: UnixStream) {
    let mut ping = [0; PING];
    stream.read_exact(&mut ping).unwrap();
    stream
        .write_all(&pong(STREAM_ID, Flags::NONE, &ping[PAYLOAD]))
        .unwrap();
    only_reads(stream);
}

fn closes_at_the_first_ping(mut stream: UnixStream) {
    let _ = stream.read_exact(&mut [0; PING]);
}

#[test]
fn a_peer_that_knows_ping_answers_each() {
    let place = Place::new();
    serve(&place.path("peer"));
    let (text, status) = ping(&["-c", "3", "-i", "0.02", &place.address("peer")]);
    assert_eq!(status, ALIVE);
    assert_eq!(text.matches(": answered in ").count(), 3);
    assert!(text.contains("alive. Of 3 asked: 3 alive, 0 doubtful, 0 gone"));
    assert!(text.contains("p99"));
}

#[test]
fn a_peer_that_does_not_know_ping_is_alive_while_its_process_reads() {
    let place = Place::new();
    scripted(&place.path("peer"), only_reads);
    let (text, status) = ping(&["-c", "2", "-i", "0.02", &place.address("peer")]);
    assert_eq!(status, ALIVE);
    assert_eq!(text.matches(", does not know PING").count(), 2);
}

#[test]
fn one_that_does_not_read_is_doubtful_and_is_sent_no_more() {
    let place = Place::new();
    scripted(&place.path("peer"), does_not_read);
    let (text, status) = ping(&["-c", "3", "-W", "0.1", "-i", "0.02", &place.address("peer")]);
    assert_eq!(status, DOUBTFUL);
    assert_eq!(text.matches(": unread for ").count(), 3);
    assert!(text.contains("its process is running"), "it is this one");
}

#[test]
fn one_whose_handlers_are_stuck_is_doubtful_although_it_answers() {
    let place = Place::new();
    scripted(&place.path("peer"), says_that_it_is_stalled);
    let (text, status) = ping(&["-c", "1", &place.address("peer")]);
    assert_eq!(status, DOUBTFUL);
    assert!(text.contains("says that its handlers are stuck"));
}

#[test]
fn one_that_has_answered_before_and_only_reads_now_is_doubtful() {
    let place = Place::new();
    scripted(&place.path("peer"), answers_once_and_then_only_reads);
    let (text, status) = ping(&["-c", "2", "-W", "0.3", "-i", "0.02", &place.address("peer")]);
    assert_eq!(status, DOUBTFUL);
    assert!(text.contains("1: answered in"));
    assert!(text.contains("but is not answered; its process is running"));
}

#[test]
fn pings_of_a_peer_are_answered_and_a_flood_of_them_holds_nothing_up() {
    fn floods(mut stream: UnixStream) {
        // It answers nothing and reads little, and asks without end.
        let pings = ping_frame(7).repeat(1000);
        while stream.write_all(&pings).is_ok() {}
    }
    let place = Place::new();
    scripted(&place.path("peer"), floods);
    let start = Instant::now();
    let (_, status) = ping(&["-c", "1", "-W", "0.3", &place.address("peer")]);
    assert_eq!(status, DOUBTFUL);
    assert!(start.elapsed() < Duration::from_secs(20));

    /// A PONG with a number.
    const ANSWER: usize = 18;
    fn asks_back(mut stream: UnixStream) {
        stream.write_all(&ping_frame(7)).unwrap();
        let mut both = [0; PING + ANSWER];
        stream.read_exact(&mut both).unwrap();
        // In whatever order its own PING and the answer to this one came.
        let (asked, answer) = match both[8] {
            4 => both.split_at(PING),
            _ => {
                let (answer, asked) = both.split_at(ANSWER);
                (asked, answer)
            }
        };
        assert_eq!(answer[10..], 7_u64.to_be_bytes());
        let answer = pong(STREAM_ID, Flags::NONE, &asked[PAYLOAD]);
        stream.write_all(&answer).unwrap();
        only_reads(stream);
    }
    scripted(&place.path("other"), asks_back);
    let (text, status) = ping(&["-c", "1", "-W", "20", &place.address("other")]);
    assert_eq!(status, ALIVE);
    assert!(text.contains("answered in"));
}

#[test]
fn a_connection_that_ends_is_gone_at_once_unless_somebody_listens_still() {
    let place = Place::new();
    let listener = UnixListener::bind(place.path("peer")).unwrap();
    let once = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        drop(listener);
        closes_at_the_first_ping(stream);
    });
    let start = Instant::now();
    let (text, status) = ping(&["-c", "5", "-W", "30", &place.address("peer")]);
    once.join().unwrap();
    assert_eq!(status, GONE);
    assert!(text.contains("1: the connection has ended: the peer closed it\n"));

    scripted(&place.path("other"), closes_at_the_first_ping);
    let (text, status) = ping(&["-c", "5", "-W", "30", &place.address("other")]);
    assert_eq!(status, DOUBTFUL);
    assert!(text.contains("1: the connection has ended: the peer closed it; somebody listens"));
    assert!(start.elapsed() < Duration::from_secs(20));
}

// A socket of gRPC lies beside one of ttrpc in the same folder.
#[test]
fn a_socket_of_another_protocol_is_said_to_be_that() {
    fn grpc(mut stream: UnixStream) {
        let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0x40, 0];
        stream.write_all(&settings).unwrap();
        closes_at_the_first_ping(stream);
    }
    fn http(mut stream: UnixStream) {
        stream.read_exact(&mut [0; PING]).unwrap();
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .unwrap();
    }
    fn echo(mut stream: UnixStream) {
        let mut bytes = [0; 1024];
        while let Ok(read @ 1..) = stream.read(&mut bytes) {
            stream.write_all(&bytes[..read]).unwrap();
        }
    }
    let place = Place::new();
    scripted(&place.path("grpc"), grpc);
    scripted(&place.path("http"), http);
    scripted(&place.path("echo"), echo);
    for (name, protocol) in [
        ("grpc", "it speaks HTTP/2, as gRPC does"),
        ("http", "it speaks HTTP"),
        ("echo", "it sends back what it is sent"),
    ] {
        let (text, status) = ping(&["-W", "20", &place.address(name)]);
        assert_eq!(status, DOUBTFUL);
        assert!(text.contains(&format!("1: this is not ttrpc: {protocol}")));
    }
    let datagrams = std::os::unix::net::UnixDatagram::bind(place.path("datagrams")).unwrap();
    let (_, status) = ping(&[&place.address("datagrams")]);
    assert_eq!(status, DOUBTFUL, "somebody is there");
    drop(datagrams);
}

#[test]
fn a_listener_whose_queue_is_full_is_doubtful_and_not_gone() {
    let place = Place::new();
    let listener = socket_with_a_short_queue(&place.path("peer"));
    let mut waiting = Vec::new();
    while let Ok(stream) = connected_at_once(&place.path("peer")) {
        waiting.push(stream);
    }
    let (text, status) = ping(&["-W", "0.2", &place.address("peer")]);
    assert_eq!(status, DOUBTFUL);
    assert!(text.contains("1: as many connections wait as may, and nobody accepts them"));
    drop(listener);
}

#[test]
fn what_is_no_socket_is_a_mistake_and_is_named() {
    let place = Place::new();
    std::fs::write(place.path("file"), "").unwrap();
    let folder = place.0.path().to_str().unwrap();
    let file = place.path("file");
    for (address, told) in [
        (folder, format!("`ttrpc-ping scan {folder}`")),
        (file.to_str().unwrap(), "no socket".to_owned()),
    ] {
        let output = program(&[address]).output().unwrap();
        assert_eq!(output.status.code(), Some(MISUSE));
        assert!(String::from_utf8_lossy(&output.stderr).contains(&told));
    }
}

#[test]
fn nobody_who_reads_on_ends_it_quietly() {
    let place = Place::new();
    serve(&place.path("peer"));
    let child = program(&["-i", "0.02", &place.address("peer")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(141));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

#[test]
fn a_place_where_nobody_listens_is_gone() {
    let place = Place::new();
    drop(UnixListener::bind(place.path("left")).unwrap());
    for name in ["left", "missing"] {
        let (_, status) = ping(&["-c", "1", &place.address(name)]);
        assert_eq!(status, GONE, "{name}");
    }
}

#[test]
fn over_tcp_a_peer_that_says_nothing_cannot_be_judged() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    let (text, status) = ping(&["-c", "1", "-W", "0.1", &address]);
    assert_eq!(status, DOUBTFUL);
    assert!(text.contains("this transport cannot tell"));
}

#[test]
fn json_has_an_object_a_line_and_the_summary_last() {
    let place = Place::new();
    serve(&place.path("peer"));
    let (text, _) = ping(&["--json", "-c", "2", "-i", "0.02", &place.address("peer")]);
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[1]["outcome"], "answered");
    assert!(lines[1]["seconds"].as_f64().unwrap() > 0.0);
    assert_eq!(
        (&lines[2]["alive"], &lines[2]["health"]),
        (&2.into(), &"alive".into())
    );
}

#[test]
fn an_interrupt_ends_it_with_what_it_has_learned() {
    let place = Place::new();
    serve(&place.path("peer"));
    let mut child = program(&["-i", "0.02", &place.address("peer")]);
    let mut child = child.stdout(Stdio::piped()).spawn().unwrap();
    let mut output = child.stdout.take().unwrap();
    let mut seen = String::new();
    while !seen.contains("3: answered") {
        let mut bytes = [0; 256];
        let read = output.read(&mut bytes).unwrap();
        assert!(read > 0);
        seen += std::str::from_utf8(&bytes[..read]).unwrap();
    }
    signal(&child, Signal::SIGINT);
    output.read_to_string(&mut seen).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(ALIVE));
    assert!(seen.contains("0 doubtful, 0 gone"), "{seen}");
}

#[test]
fn arguments_without_sense_are_told_apart_from_a_peer_that_is_gone() {
    for arguments in [
        &["-c", "0", "x"][..],
        &["-i", "0", "x"],
        &["--nonsense"],
        &[],
    ] {
        assert_eq!(ping(arguments).1, MISUSE, "{arguments:?}");
    }
    assert_eq!(ping(&["http://example.org"]).1, MISUSE);
    assert_eq!(ping(&["scan", "/nowhere/at/all"]).1, MISUSE);
    assert_eq!(ping(&["--json", "scan", "/nowhere/at/all"]).1, MISUSE);
    let (_, status) = ping(&["--json", "scan", "@no such name"]);
    assert_eq!(status, ALIVE, "it may stand in front");
    assert_eq!(ping(&["--help"]).1, 0);
    assert!(ping(&["completions", "bash"]).0.contains("ttrpc-ping"));
}

#[test]
fn a_scan_shows_the_sick_ones_first() {
    let place = Place::new();
    serve(&place.path("a-well"));
    scripted(&place.path("b-old"), only_reads);
    scripted(&place.path("c-stuck"), does_not_read);
    drop(UnixListener::bind(place.path("d-left")).unwrap());
    std::fs::write(place.path("e-no-socket"), "").unwrap();
    std::os::unix::fs::symlink(place.path("a-well"), place.path("f-link")).unwrap();
    let folder = place.0.path().to_str().unwrap();
    let (text, status) = ping(&["scan", folder, "-W", "0.2"]);
    assert_eq!(status, GONE);
    let order = ["d-left", "c-stuck", "a-well", "b-old"].map(|name| text.find(name).unwrap());
    assert!(order.is_sorted(), "{order:?}");
    assert!(!text.contains("e-no-socket"));
    let (json, _) = ping(&["scan", folder, "-W", "0.2", "--json"]);
    assert_eq!(
        json.lines()
            .filter(|line| serde_json::from_str::<Value>(line).is_ok())
            .count(),
        5
    );
}

#[test]
#[cfg(target_os = "linux")]
fn a_scan_finds_abstract_names_by_how_they_begin() {
    use std::os::linux::net::SocketAddrExt;
    let name = format!("ttrpc-ping-test-{}", std::process::id());
    let address =
        std::os::unix::net::SocketAddr::from_abstract_name(format!("{name}/one")).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    thread::spawn(move || only_reads(listener.accept().unwrap().0));
    let (text, status) = ping(&["scan", &format!("@{name}")]);
    assert_eq!(status, ALIVE);
    assert!(text.contains(&format!("unix://@{name}/one")));
    // As the shims of old releases have it, and as lists of sockets show it.
    let address =
        std::os::unix::net::SocketAddr::from_abstract_name(format!("{name}/two\0")).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    thread::spawn(move || only_reads(listener.accept().unwrap().0));
    let (text, status) = ping(&["scan", &format!("@{name}/t")]);
    assert_eq!(status, ALIVE);
    assert!(text.contains(&format!("unix://@{name}/two@")));
    let (_, status) = ping(&["scan", "@no such name"]);
    assert_eq!(status, ALIVE, "nothing is sick where nothing is");
}

/// The program of a child: a server of the crate at this place, until it is killed.
#[test]
fn child_server() {
    if let Some(path) = std::env::var_os("TTRPC_PING_TEST_SERVER") {
        serve(Path::new(&path));
        thread::sleep(Duration::from_secs(120));
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_process_that_is_stopped_is_said_to_be() {
    let place = Place::new();
    let path = place.path("peer");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_server"])
        .env("TTRPC_PING_TEST_SERVER", &path)
        .spawn()
        .unwrap();
    while UnixStream::connect(&path).is_err() {
        thread::sleep(Duration::from_millis(5));
    }
    signal(&child, Signal::SIGSTOP);
    // A signal is on its way for a while, and each thread stops by itself.
    while !is_stopped(&child) {
        thread::sleep(Duration::from_millis(1));
    }
    let address = place.address("peer");
    let (stopped, status) = ping(&["-c", "1", "-W", "1", &address]);
    signal(&child, Signal::SIGCONT);
    let (_, well) = ping(&["-c", "1", "-W", "20", &address]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!((status, well), (DOUBTFUL, ALIVE));
    assert!(stopped.contains("; its process is stopped"));
}

#[cfg(target_os = "linux")]
fn is_stopped(child: &Child) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
    tasks.flatten().all(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        // The state follows the name, which is in brackets.
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('T'))
    })
}

fn signal(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id()).unwrap();
    kill(Pid::from_raw(pid), signal).unwrap();
}

// As a shim's is, whose launcher has ended.
#[test]
#[cfg(target_os = "linux")]
fn of_a_connection_that_was_handed_on_the_process_is_the_one_that_holds_it() {
    let place = Place::new();
    let listener = UnixListener::bind(place.path("peer")).unwrap();
    let (started, told) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut command = Command::new("sleep");
        let heir = command.arg("60").stdin(OwnedFd::from(stream));
        started.send(heir.spawn().unwrap()).unwrap();
        listener
    });
    let folder = place.0.path().display().to_string();
    let (text, _) = ping(&["scan", "--json", "-W", "1", &folder]);
    let mut heir = told.recv().unwrap();
    heir.kill().unwrap();
    heir.wait().unwrap();
    let row: Value = serde_json::from_str(text.trim()).unwrap();
    assert_eq!(row["pid"], heir.id());
    assert_eq!(
        (&row["program"], &row["process"]),
        (&"sleep".into(), &"running".into())
    );
    assert!(row["outcome"].as_str().unwrap().starts_with("unread for"));
}
