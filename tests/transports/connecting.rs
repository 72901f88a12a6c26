//! Addresses, and what comes of connecting to them.

use std::io::ErrorKind;
use std::os::unix::net::UnixListener as StdListener;

use socket2::{Domain, SockAddr, Type};
use tokio::time::{Instant, sleep};
use ttrpc_keepalive::keepalive::{Keepalive, PeerSupport};
use ttrpc_keepalive::{Client, ConnectError, DeadReason, Unknown, Verdict};

use super::support::*;
use super::{bind_replacing, io_error, leave_stale, place, serve};

// F1, F9
#[tokio::test]
async fn a_vsock_address_is_dialled_with_its_feature_and_names_it_without() {
    let client = Client::builder().connect_timeout(secs(5));
    let error = client.connect("vsock://2:4294967000").await.unwrap_err();
    if cfg!(feature = "vsock") {
        // Nobody listens there, if this machine has vsock at all.
        assert!(io_error(&error).raw_os_error().is_some(), "{error:?}");
    } else {
        assert!(error.to_string().contains("feature `vsock`"), "{error}");
    }
}

// F7
#[tokio::test(start_paused = true)]
async fn a_server_that_is_not_there_is_told_at_once_unless_a_retry_is_asked_for() {
    let place = place();
    for kind in [ErrorKind::NotFound, ErrorKind::ConnectionRefused] {
        if kind == ErrorKind::ConnectionRefused {
            leave_stale(&place.path);
        }
        let start = Instant::now();
        let error = Client::builder().connect(&place.address).await.unwrap_err();
        assert_eq!(io_error(&error).kind(), kind);
        assert_passed(start, ms(0));

        let client = Client::builder().connect_timeout(secs(3));
        let client = client.connect_retry(ms(100));
        let error = client.connect(&place.address).await.unwrap_err();
        assert!(matches!(error, ConnectError::TimedOut { .. }), "{error:?}");
        assert_eq!(io_error(&error).kind(), kind, "of the last attempt");
        assert_passed(start, secs(3));
    }
}

// F7, F8
#[tokio::test(start_paused = true)]
async fn a_retry_meets_a_server_that_starts_later() {
    let place = place();
    leave_stale(&place.path);
    let address = place.address.clone();
    tokio::spawn(async move {
        sleep(secs(20)).await;
        serve(bind_replacing(&address).await.unwrap()).await
    });
    let start = Instant::now();
    let client = Client::builder().connect_timeout(secs(60));
    let client = client.connect_retry(ms(250));
    let client = client.connect(&place.address).await.unwrap();
    assert!(start.elapsed() < secs(21), "{:?}", start.elapsed());
    assert!(say(&client).await.is_ok());
}

// The twin of a blocking connect, which waits for room in the queue.
#[tokio::test(start_paused = true)]
async fn a_full_queue_of_connections_is_waited_for() {
    let place = place();
    let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    socket.bind(&SockAddr::unix(&place.path).unwrap()).unwrap();
    socket.listen(0).unwrap();
    let _first = Client::builder().connect(&place.address).await.unwrap();
    let start = Instant::now();
    let client = Client::builder().connect_timeout(secs(2));
    let error = client.clone().connect(&place.address).await.unwrap_err();
    assert_eq!(io_error(&error).kind(), ErrorKind::WouldBlock);
    assert_passed(start, secs(2));
    let accepting = tokio::spawn(async move {
        sleep(secs(1)).await;
        (socket.accept().unwrap(), socket)
    });
    client.connect(&place.address).await.unwrap();
    assert!(accepting.is_finished());
}

// F6: a socket of a process that is stuck before its first accept.
#[tokio::test(start_paused = true)]
async fn a_server_that_never_accepts_is_dead_if_it_was_assumed_to_answer_and_unknown_if_not() {
    let place = place();
    let _stuck = StdListener::bind(&place.path).unwrap();
    for (support, dies) in [(PeerSupport::Assume, true), (PeerSupport::Learn, false)] {
        let keepalive = Keepalive::every(secs(2)).timeout(secs(5));
        let client = Client::builder().keepalive(keepalive.peer_support(support));
        let client = client.connect(&place.address).await.unwrap();
        let start = Instant::now();
        let error = say_within(&client, secs(60)).await.unwrap_err();
        if dies {
            let end = client.closed().await;
            assert_eq!(end.dead_reason(), Some(DeadReason::Silent));
            assert!(error.is_connection());
            assert_passed(start, secs(5));
        } else {
            let verdict = Verdict::Unknown(Unknown::NoSupport);
            assert_eq!(error.verdict(), Some(verdict));
            assert_passed(start, secs(60));
            assert!(!client.snapshot().state().is_final());
        }
    }
}
