//! Sockets: addresses, files, descriptors, connecting, accepting, and what is left of them.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod accepting;
mod connecting;
mod copies;
mod descriptors;
mod ends;
mod files;
#[path = "../support/mod.rs"]
mod support;

use std::error::Error as _;
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};

use support::*;
use tokio::task::JoinHandle;
use ttrpc_keepalive::{Accept, ConnectError, Listener};

/// A directory of its own, and the path and address of a socket in it.
struct Place {
    _directory: tempfile::TempDir,
    path: PathBuf,
    address: String,
}

fn place() -> Place {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    Place {
        address: format!("unix://{}", path.display()),
        path,
        _directory: directory,
    }
}

fn abstract_name(of: &str) -> String {
    format!("@ttrpc-keepalive-{of}-{}", std::process::id())
}

/// The file of a server that has died: nobody listens on it.
fn leave_stale(path: &Path) {
    drop(StdListener::bind(path).unwrap());
}

async fn bind_replacing(address: &str) -> Result<Listener, ConnectError> {
    let listener = Listener::builder().replace_stale(true);
    listener.bind(address).await
}

#[track_caller]
fn io_error(error: &ConnectError) -> &io::Error {
    let source = error.source().expect("the cause is kept");
    source.downcast_ref().expect("it is the system's")
}

#[track_caller]
fn assert_in_use(bound: Result<Listener, ConnectError>) {
    assert_eq!(io_error(&bound.unwrap_err()).kind(), ErrorKind::AddrInUse);
}

/// An echo server in a task of its own.
fn serve(incoming: impl Accept + 'static) -> JoinHandle<()> {
    let server = echo().build().unwrap();
    tokio::spawn(async move { server.serve(incoming).await })
}

/// Unix sockets of this name that are open: the one that listens, and those it has accepted.
fn sockets_of(name: &str) -> usize {
    let all = std::fs::read_to_string("/proc/net/unix").unwrap();
    all.lines().filter(|line| line.ends_with(name)).count()
}
