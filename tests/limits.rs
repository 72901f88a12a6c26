//! What the operating system refuses a process: descriptors, threads and memory. The limits are of a whole
//! process, so each test is played by this test program again, as a child.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{Uid, setuid};
use support::*;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use ttrpc_keepalive::wire::{Flags, Header, MAX_PAYLOAD, MessageType};
use ttrpc_keepalive::{
    Client, ConnectError, ConnectionError, DriverThread, IntoTransport, Listener, Raw, Server,
    Service, Status,
};

const CHILD: &str = "TTRPC_KEEPALIVE_TEST_CHILD";

/// Whether this process is the child that plays the test of this name. The parent plays it by
/// starting one.
fn plays(test: &str) -> bool {
    plays_by(Command::new(std::env::current_exe().unwrap()), test)
}

/// The same, where it takes another program to start it.
fn plays_by(mut program: Command, test: &str) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let child = program
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    assert!(child.status.success(), "{child:?}");
    false
}

/// Sets what the process may have of it, and yields what it might before.
fn limit(resource: Resource, soft: u64) -> u64 {
    let (before, most) = getrlimit(resource).unwrap();
    setrlimit(resource, soft, most).unwrap();
    before
}

/// Opens all that the process may.
fn use_up_descriptors() -> Vec<File> {
    limit(Resource::RLIMIT_NOFILE, 64);
    let files = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    let error = File::open("/dev/null").unwrap_err();
    assert_eq!(
        error.raw_os_error().map(Errno::from_raw),
        Some(Errno::EMFILE)
    );
    files
}

fn serve(stream: impl IntoTransport<Transport: Send> + Send + 'static) {
    let server = echo().build().unwrap();
    tokio::spawn(async move { server.serve_connection(stream).await });
}

// N32: neither the request nor the answer goes into the kernel at once.
#[tokio::test]
async fn no_descriptor_is_needed_to_begin_a_connection_nor_to_wait_for_a_slow_peer() {
    if !plays("no_descriptor_is_needed_to_begin_a_connection_nor_to_wait_for_a_slow_peer") {
        return;
    }
    let dedicated = || Client::builder().driver_thread(DriverThread::Dedicated);
    let (starts_the_thread, _there) = UnixStream::pair().unwrap();
    dedicated().attach(starts_the_thread).unwrap();

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connecting = TcpStream::connect(listener.local_addr().unwrap());
    let (connected, accepted) = tokio::join!(connecting, listener.accept());
    let (connected, accepted) = (connected.unwrap(), accepted.unwrap().0);
    let pairs = [UnixStream::pair().unwrap(), UnixStream::pair().unwrap()];
    let files = use_up_descriptors();

    serve(accepted);
    let mut clients = vec![Client::builder().attach(connected).unwrap()];
    for ((here, there), builder) in pairs.into_iter().zip([Client::builder(), dedicated()]) {
        serve(there);
        clients.push(builder.attach(here).unwrap());
    }
    for client in clients {
        let answer = say_large(&client, 4_000_000).await;
        assert!(answer.is_ok(), "{answer:?}");
    }
    drop(files);
}

// The process is at its limit when a connection comes: it waits, and so do its callers.
#[tokio::test]
async fn a_connection_that_cannot_be_accepted_now_is_accepted_when_a_descriptor_is_free() {
    if !plays("a_connection_that_cannot_be_accepted_now_is_accepted_when_a_descriptor_is_free") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let listener = Listener::bind(path.to_str().unwrap()).await.unwrap();
    let server = echo().build().unwrap();
    tokio::spawn(async move { server.serve(listener).await });
    let served = Client::builder().connect(path.to_str().unwrap());
    let served = served.await.unwrap();
    assert!(say(&served).await.is_ok());

    let mut files = use_up_descriptors();
    files.pop();
    let waiting = Client::builder().connect(path.to_str().unwrap());
    let waiting = waiting.await.unwrap();
    let error = say_within(&waiting, ms(200)).await.unwrap_err();
    assert!(error.is_deadline(), "{error:?}");
    assert!(say_large(&served, 4_000_000).await.is_ok(), "others go on");

    drop(files);
    assert!(say_within(&waiting, secs(5)).await.is_ok());
}

async fn assert_refused(client: &Client, errno: Errno) {
    assert!(say(client).await.unwrap_err().is_connection());
    let ConnectionError::Io(error) = client.closed().await else {
        panic!("it is the system that refuses");
    };
    assert_eq!(error.raw_os_error().map(Errno::from_raw), Some(errno));
}

// A runtime cannot be dropped in a task, so what has begun of it must not come to that.
#[tokio::test]
async fn a_dedicated_thread_that_cannot_be_started_ends_the_connection_and_is_tried_again() {
    if !plays("a_dedicated_thread_that_cannot_be_started_ends_the_connection_and_is_tried_again") {
        return;
    }
    let dedicated = || Client::builder().driver_thread(DriverThread::Dedicated);
    let pair = || UnixStream::pair().unwrap();
    let (first, second, third) = (pair(), pair(), pair());

    let files = use_up_descriptors();
    let client = dedicated().attach(first.0).unwrap();
    assert_refused(&client, Errno::EMFILE).await;
    drop(files);

    // Root may have any number of threads.
    if Uid::effective().is_root() {
        setuid(Uid::from_raw(65534)).unwrap();
    }
    let threads = limit(Resource::RLIMIT_NPROC, 0);
    let client = dedicated().attach(second.0).unwrap();
    assert_refused(&client, Errno::EAGAIN).await;
    limit(Resource::RLIMIT_NPROC, threads);

    serve(third.1);
    let client = dedicated().attach(third.0).unwrap();
    assert!(say(&client).await.is_ok());
}

// Each announces 4 MiB, and sends a byte of them: 40 GB for ten thousand of them.
#[tokio::test]
async fn memory_follows_what_has_come_and_not_what_is_announced() {
    if !plays("memory_follows_what_has_come_and_not_what_is_announced") {
        return;
    }
    limit(Resource::RLIMIT_AS, 1 << 30);
    let server = Server::builder()
        .service(
            Service::new("demo.Echo", ())
                .unary("Say", |(), _, q: Raw| async move { Ok::<_, Status>(q) }),
        )
        .build()
        .unwrap();
    let mut peers = Vec::new();
    for _ in 0..2_000 {
        let (here, there) = tokio::io::duplex(64);
        let server = server.clone();
        tokio::spawn(async move { server.serve_connection(there).await });
        let mut peer = Peer::new(here);
        let header = Header {
            length: MAX_PAYLOAD.try_into().unwrap(),
            stream_id: 1,
            message_type: MessageType::REQUEST,
            flags: Flags::NONE,
        };
        peer.send([&header.encode()[..], b"x"].concat()).await;
        peers.push(peer);
    }
    let (here, there) = tokio::io::duplex(64 << 10);
    tokio::spawn(async move { server.serve_connection(there).await });
    let client = Client::builder().attach(here).unwrap();
    let answer = client
        .call::<_, Raw>("demo.Echo", "Say", &Raw(&[7; 3 << 20]))
        .await;
    assert_eq!(answer.unwrap().len(), 3 << 20);
}

// The runtime resolves names on threads of its own, and panics where it cannot start the first.
#[tokio::test]
async fn a_name_that_no_thread_can_resolve_is_an_error_and_no_panic() {
    if !plays("a_name_that_no_thread_can_resolve_is_an_error_and_no_panic") {
        return;
    }
    let listener = Listener::bind("tcp://127.0.0.1:0").await.unwrap();
    let port = listener.port().unwrap();
    if Uid::effective().is_root() {
        setuid(Uid::from_raw(65534)).unwrap();
    }
    let threads = limit(Resource::RLIMIT_NPROC, 0);
    let name = format!("tcp://localhost:{port}");
    let refused = Client::builder().connect(&name).await.unwrap_err();
    assert!(matches!(refused, ConnectError::Io { .. }), "{refused}");
    let retried = Client::builder().connect_retry(ms(50));
    let retried = retried.connect_timeout(ms(200)).connect(&name).await;
    assert!(matches!(retried, Err(ConnectError::TimedOut { .. })));
    let refused = Listener::bind("tcp://localhost:0").await.unwrap_err();
    assert!(matches!(refused, ConnectError::Io { .. }), "{refused}");
    // A number needs no thread.
    let number = format!("tcp://127.0.0.1:{port}");
    Client::builder().connect(&number).await.unwrap();
    limit(Resource::RLIMIT_NPROC, threads);
    Client::builder().connect(&name).await.unwrap();
}

/// The child has mounts of its own, as root can and whoever may have a user namespace. Where neither is
/// possible nothing is played, and `.ci/run` says so.
fn plays_with_own_mounts(test: &str) -> bool {
    let ways: [&[&str]; 2] = [&["--mount"], &["--user", "--map-root-user", "--mount"]];
    let works = |way: &&&[&str]| {
        let tried = Command::new("unshare").args(**way).arg("true").output();
        tried.is_ok_and(|tried| tried.status.success())
    };
    let Some(way) = ways.iter().find(works) else {
        eprintln!("skipped: no mounts of its own can be made here");
        return false;
    };
    let mut unshare = Command::new("unshare");
    unshare.args(*way).arg(std::env::current_exe().unwrap());
    plays_by(unshare, test)
}

/// Fills what is left, and yields the files.
fn fill(folder: &Path) -> Vec<PathBuf> {
    let files = (0..).map(|number: u32| folder.join(number.to_string()));
    let files: Vec<_> = files
        .take_while(|file| File::create(file).is_ok())
        .collect();
    let error = File::create(folder.join("more")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    files
}

#[tokio::test]
async fn a_full_disk_costs_who_wants_a_new_address_an_error_and_nobody_else() {
    if !plays_with_own_mounts("a_full_disk_costs_who_wants_a_new_address_an_error_and_nobody_else")
    {
        return;
    }
    let disk = tempfile::tempdir().unwrap();
    let disk = disk.path();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=16k,nr_inodes=8", "none"])
        .arg(disk)
        .status();
    assert!(mounted.unwrap().success());
    let at = |name: &str| disk.join(name).display().to_string();
    let full = |bound: Result<Listener, ConnectError>| match bound {
        Err(ConnectError::Io { source, .. }) => assert_eq!(source.kind(), ErrorKind::StorageFull),
        other => panic!("{other:?}"),
    };

    // Two that are there before: one at work, and one that was killed.
    let listener = Listener::bind(&at("served")).await.unwrap();
    let server = echo().build().unwrap();
    tokio::spawn(async move { server.serve(listener).await });
    drop(std::os::unix::net::UnixListener::bind(at("stale")).unwrap());
    let files = fill(disk);

    full(Listener::bind(&at("new")).await);
    let replacing = || Listener::builder().replace_stale(true);
    full(replacing().bind(&at("stale")).await);
    let left: Vec<_> = std::fs::read_dir(disk).unwrap().collect();
    assert_eq!(left.len(), files.len() + 2, "{left:?}");

    let client = Client::builder().connect(&at("served")).await.unwrap();
    assert!(say_large(&client, 4_000_000).await.is_ok());

    std::fs::remove_file(&files[0]).unwrap();
    replacing().bind(&at("stale")).await.unwrap();
    Listener::bind(&at("new")).await.unwrap();
}
