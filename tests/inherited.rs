//! What a child inherits, whenever it is started: none of the descriptors of this crate. The tests look at
//! the whole process, so each is played by this test program again, as a child.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream as StdStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use support::*;
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::{Client, DriverThread, Listener, Server, Socket};

/// The descriptors that a child finds open, and what they are.
fn inherited() -> BTreeMap<String, String> {
    let listing = Command::new("sh")
        .args([
            "-c",
            "for fd in /proc/$$/fd/*; do echo ${fd##*/} $(readlink $fd); done",
        ])
        .output()
        .unwrap();
    let listing = String::from_utf8(listing.stdout).unwrap();
    let of_each = listing.lines().filter_map(|line| line.split_once(' '));
    of_each
        .map(|(number, what)| (number.to_owned(), what.to_owned()))
        .collect()
}

fn assert_as_before(before: &BTreeMap<String, String>, when: &str) {
    let mut now = inherited();
    // Those of the child itself.
    for own in ["0", "1", "2"] {
        now.remove(own);
    }
    now.retain(|number, _| !before.contains_key(number));
    assert!(now.is_empty(), "{when}: {now:?}");
}

fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

fn dedicated(server: bool) -> DriverThread {
    if server {
        DriverThread::Dedicated
    } else {
        DriverThread::Shared
    }
}

/// A client of this address, with all that may be asked for.
async fn client(address: &str, thread: DriverThread) -> Client {
    let client = Client::builder()
        .driver_thread(thread)
        .keepalive(Keepalive::every(ms(50)).timeout(secs(60)))
        .connect_retry(ms(10));
    client.connect(address).await.unwrap()
}

/// A process that starts children has them inherit nothing, in each part of a connection's life.
#[test]
fn a_child_inherits_nothing_whenever_it_is_started() {
    let role = "a_child_inherits_nothing_whenever_it_is_started";
    if plays(role).is_none() {
        alone(role);
        return;
    }
    let before = inherited();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s").display().to_string();
    let runtime = runtime();
    runtime.block_on(async {
        for address in [format!("unix://{path}"), "tcp://127.0.0.1:0".to_owned()] {
            for thread in [dedicated(false), dedicated(true)] {
                lives(&before, &address, thread).await;
            }
        }
        // Descriptors that were passed on to this process, as `systemd` and `nri` do, lose it here.
        let (here, there) = StdStream::pair().unwrap();
        let here = inheritable(here);
        assert_ne!(inherited().len(), before.len(), "it can be inherited");
        let client = Client::builder().attach(Socket::from_fd(here).unwrap());
        assert_as_before(&before, "a descriptor that was passed on");
        drop((client, there));
    });
}

/// A socket that children inherit.
fn inheritable(socket: StdStream) -> StdStream {
    socket2::SockRef::from(&socket).set_cloexec(false).unwrap();
    socket
}

async fn lives(before: &BTreeMap<String, String>, address: &str, thread: DriverThread) {
    let when = |what: &str| format!("{what}, {address}, {thread:?}");
    let listener = Listener::builder().replace_stale(true);
    let listener = listener.bind(address).await.unwrap();
    let address = match listener.port() {
        Some(port) => format!("tcp://127.0.0.1:{port}"),
        None => address.to_owned(),
    };
    assert_as_before(before, &when("bound"));

    let waiting = client(&address, thread).await;
    assert_as_before(before, &when("connected, and not accepted"));

    let server = echo().driver_thread(thread).build().unwrap();
    let serving = tokio::spawn({
        let server = server.clone();
        async move { server.serve(listener).await }
    });
    say(&waiting).await.unwrap();
    assert_as_before(before, &when("called"));

    // Within a write and a read that take several turns, and beside a handler.
    let asleep = tokio::spawn({
        let client = waiting.clone();
        async move { sleep_within(&client, ms(200), secs(60)).await }
    });
    let (large, ()) = tokio::join!(say_large(&waiting, 4_000_000), async {
        sleep(ms(1)).await;
        assert_as_before(before, &when("within a call"));
    });
    large.unwrap();

    let (drained, ()) = tokio::join!(server.shutdown(secs(60)), async {
        assert_as_before(before, &when("within a shutdown"));
    });
    assert!(drained);
    asleep.await.unwrap().unwrap();
    serving.await.unwrap();
    waiting.closed().await;
    assert_as_before(before, &when("ended"));
}

/// Whatever happens at the same instant: connections come and go while children are started.
#[test]
fn a_child_inherits_nothing_of_connections_that_begin_meanwhile() {
    let role = "a_child_inherits_nothing_of_connections_that_begin_meanwhile";
    if plays(role).is_none() {
        alone(role);
        return;
    }
    let before = inherited();
    let folder = tempfile::tempdir().unwrap();
    let (over, begun) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let runtime = runtime();
            runtime.block_on(async {
                let path = folder.path().join("s").display().to_string();
                while !over.load(Ordering::Relaxed) {
                    for address in [&*path, "tcp://127.0.0.1:0"] {
                        come_and_go(address).await;
                        begun.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        });
        for _ in 0..100 {
            assert_as_before(&before, "while connections come and go");
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(begun.load(Ordering::Relaxed) > 20);
}

async fn come_and_go(address: &str) {
    let listener = Listener::bind(address).await.unwrap();
    let address = match listener.port() {
        Some(port) => format!("tcp://127.0.0.1:{port}"),
        None => address.to_owned(),
    };
    let server: Server = echo().build().unwrap();
    tokio::spawn({
        let server = server.clone();
        async move { server.serve(listener).await }
    });
    let client = client(&address, DriverThread::Shared).await;
    say(&client).await.unwrap();
    drop(client);
    server.shutdown(secs(60)).await;
}

/// Plays this test in a process of its own.
fn alone(role: &str) {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", role, "--nocapture"])
        .envs(as_child(role))
        .output()
        .unwrap();
    assert!(child.status.success(), "{child:?}");
}
