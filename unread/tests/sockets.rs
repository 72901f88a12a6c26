//! What the kernel says of real sockets of each family.

#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::thread;

use ttrpc_keepalive_unread::unread;

/// The least that a write of some bytes counts for.
const SMALL: usize = 256;

/// Writes twice and reads in steps.
fn falls_only_when_a_buffer_is_read(mut here: impl Write + AsFd, mut there: impl Read) {
    assert_eq!(unread(&here).unwrap(), 0);
    here.write_all(&[0; 18]).unwrap();
    let one = unread(&here).unwrap();
    assert!((18 + SMALL..4096).contains(&one), "{one}");
    here.write_all(&[0; 100]).unwrap();
    let two = unread(&here).unwrap();
    assert!(two >= one + 100 + SMALL, "{two}");

    there.read_exact(&mut [0; 10]).unwrap();
    assert_eq!(unread(&here).unwrap(), two, "a part of the first buffer");
    there.read_exact(&mut [0; 8]).unwrap();
    assert_eq!(unread(&here).unwrap(), two - one);
    there.read_exact(&mut [0; 100]).unwrap();
    assert_eq!(unread(&here).unwrap(), 0);
}

#[test]
fn a_socket_pair_tells_what_is_unread() {
    let (here, there) = UnixStream::pair().unwrap();
    falls_only_when_a_buffer_is_read(&here, &there);
    falls_only_when_a_buffer_is_read(&there, &here);
}

#[test]
fn a_unix_socket_tells_what_is_unread_and_so_before_it_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let mut here = UnixStream::connect(&path).unwrap();
    here.write_all(b"hello").unwrap();
    assert!(unread(&here).unwrap() >= SMALL);
    let (mut there, _) = listener.accept().unwrap();
    there.read_exact(&mut [0; 5]).unwrap();
    falls_only_when_a_buffer_is_read(here, there);
}

#[test]
fn an_abstract_unix_socket_tells_what_is_unread() {
    let name = format!("ttrpc-keepalive-unread-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    let here = UnixStream::connect_addr(&address).unwrap();
    let (there, _) = listener.accept().unwrap();
    falls_only_when_a_buffer_is_read(here, there);
}

#[test]
fn a_large_write_falls_in_steps() {
    let (mut here, mut there) = UnixStream::pair().unwrap();
    here.set_nonblocking(true).unwrap();
    let written = here.write(&vec![0; 1 << 20]).unwrap();
    let mut counts = vec![unread(&here).unwrap()];
    assert!(counts[0] >= written, "{} of {written}", counts[0]);
    for _ in 0..written.div_ceil(1024) {
        let count = 1024.min(written);
        assert!(there.read(&mut vec![0; count]).unwrap() > 0);
        counts.push(unread(&here).unwrap());
    }
    assert!(counts.is_sorted_by(|one, other| one >= other), "{counts:?}");
    assert_eq!(counts.last(), Some(&0));
    counts.dedup();
    assert!(counts.len() < written / 1024, "{counts:?}");
}

// The kernel subtracts all but one, wakes the writer, and then the one.
#[test]
fn while_the_peer_reads_it_is_too_high_by_one_at_most() {
    let (mut here, mut there) = UnixStream::pair().unwrap();
    here.write_all(&[0; 18]).unwrap();
    let one = unread(&here).unwrap();
    let reader = thread::spawn(move || while there.read(&mut [0; 18]).unwrap() > 0 {});
    for _ in 0..20_000 {
        let mut count = unread(&here).unwrap();
        while count > 1 {
            assert!(count % one <= 1, "{count}");
            count = unread(&here).unwrap();
        }
        here.write_all(&[0; 18]).unwrap();
    }
    drop(here);
    reader.join().unwrap();
}

#[test]
fn the_end_of_a_closed_peer_is_seen_behind_the_question() {
    for unread_there in [false, true] {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        if unread_there {
            there.write_all(b"hello").unwrap();
        }
        here.write_all(b"hello").unwrap();
        drop(there);
        assert_eq!(unread(&here).unwrap(), 0, "nobody can read it any more");
        if unread_there {
            here.read_exact(&mut [0; 5]).unwrap();
        }
        // What was unread makes it a reset.
        let end = here.read(&mut [0; 1]);
        assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
}

#[test]
fn what_is_not_connected_has_nothing_unread() {
    let name = format!("ttrpc-keepalive-unread-listener-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    let _client = UnixStream::connect_addr(&address).unwrap();
    assert_eq!(unread(&listener).unwrap(), 0);
    assert_eq!(unread(UnixDatagram::unbound().unwrap()).unwrap(), 0);
}

#[test]
fn tcp_tells_of_the_other_kernel_and_not_of_a_process() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    assert!(unread(&listener).is_err());
    let mut here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (_there, _) = listener.accept().unwrap();
    here.write_all(b"nobody reads it").unwrap();
    // Acknowledged by the kernel at the other end.
    while unread(&here).unwrap() > 0 {
        thread::yield_now();
    }
}

#[test]
fn what_is_no_socket_is_an_error() {
    assert!(unread(tempfile::tempfile().unwrap()).is_err());
}
