//! How a shared stream ends.

use std::io::ErrorKind;

use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::time::timeout;
use ttrpc_keepalive::keepalive::{Keepalive, PeerSupport};
use ttrpc_keepalive::{Client, ConnectionError, DeadReason};
use ttrpc_keepalive_nri::multiplexer::Multiplexer;

use super::support::*;

#[tokio::test(start_paused = true)]
async fn one_conviction_ends_both_with_the_same_reason_and_evidence() {
    let (connections, mut peer) = split(64 << 10);
    let watch = Keepalive::every(secs(1)).timeout(secs(1));
    let watch = Client::builder().keepalive(watch.peer_support(PeerSupport::Assume));
    let watching = watch.attach(connections.plugin_service).unwrap();
    let other = Client::builder()
        .attach(connections.runtime_service)
        .unwrap();
    let calling = tokio::spawn({
        let other = other.clone();
        async move { say(&other, 1).await }
    });
    let (first, second) = tokio::join!(watching.closed(), other.closed());
    let (
        ConnectionError::Dead { reason, evidence },
        ConnectionError::Dead {
            reason: also,
            evidence: same,
        },
    ) = (&first, &second)
    else {
        panic!("{first:?} {second:?}");
    };
    assert_eq!((reason, evidence), (also, same));
    assert_eq!(*reason, DeadReason::Silent);
    assert!(calling.await.unwrap().unwrap_err().is_connection());
    while peer.next().await.is_some() {}
}

/// Two clients on one stream, after a word on each.
async fn two_clients(peer: &mut Peer<UnixStream>, here: UnixStream) -> [Client; 2] {
    let connections = Multiplexer::new().split(here);
    let clients = [connections.plugin_service, connections.runtime_service];
    let clients = clients.map(|connection| Client::builder().attach(connection).unwrap());
    for (client, id) in clients.iter().zip([1, 2]) {
        let client = client.clone();
        let call = tokio::spawn(async move { say_within(&client, ms(50)).await });
        while peer.next().await.unwrap().0 != id {}
        call.await.unwrap().unwrap_err();
    }
    clients
}

#[tokio::test]
async fn the_stream_closes_when_both_are_done_in_whatever_order() {
    for order in [[0, 1], [1, 0]] {
        let (here, there) = UnixStream::pair().unwrap();
        let mut peer = Peer::new(there);
        let clients = two_clients(&mut peer, here).await;
        let mut clients = clients.map(Some);
        let [first, second] = order;
        let client = clients[first].take().unwrap();
        client.close().await.unwrap();
        drop(client);
        let other = clients[second].take().unwrap();
        let waiting = timeout(ms(100), other.closed()).await;
        assert!(waiting.is_err(), "{waiting:?}");
        let call = tokio::spawn({
            let other = other.clone();
            async move { say_within(&other, ms(50)).await }
        });
        let id = u32::try_from(second).unwrap() + 1;
        while peer.next().await.expect("open").0 != id {}
        assert!(call.await.unwrap().unwrap_err().is_deadline());
        other.close().await.unwrap();
        while peer.next().await.is_some() {}
    }
}

#[tokio::test]
async fn what_was_taken_is_passed_on_before_the_stream_closes() {
    let (connections, mut peer) = split(1000);
    let mut first = connections.plugin_service;
    let bytes = frame(1, 4000);
    let slices = [std::io::IoSlice::new(&bytes)];
    let taken = std::future::poll_fn(|cx| {
        ttrpc_keepalive::transport::Transport::poll_write(&mut first, cx, &slices)
    });
    assert_eq!(taken.await.unwrap(), bytes.len());
    drop(connections.runtime_service);
    let ending = tokio::spawn(async move {
        use ttrpc_keepalive::transport::Transport;
        first.handle_end(&ConnectionError::LocalClose);
        std::future::poll_fn(|cx| first.poll_shutdown(cx)).await
    });
    assert_eq!(peer.next().await, Some((1, bytes)));
    assert_eq!(peer.next().await, None);
    ending.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_handle_that_is_kept_does_not_keep_the_stream_open() {
    let (here, there) = UnixStream::pair().unwrap();
    let mut peer = Peer::new(there);
    let clients = two_clients(&mut peer, here).await;
    for client in &clients {
        client.abort();
        assert!(client.closed().await.is_local_close());
    }
    while peer.next().await.is_some() {}
    drop(clients);
}

#[tokio::test]
async fn a_peer_that_closes_does_so_for_both_and_in_the_middle_of_a_piece_the_stream_is_torn() {
    for (bytes, torn) in [(piece(1, &[]), false), (piece(3, b"abc"), true)] {
        let (here, there) = UnixStream::pair().unwrap();
        let mut peer = Peer::new(there);
        let connections = Multiplexer::new().split(here);
        let clients = [connections.plugin_service, connections.runtime_service];
        let clients = clients.map(|connection| Client::builder().attach(connection).unwrap());
        let cut = bytes.len() - usize::from(torn);
        peer.stream.write_all(&bytes[..cut]).await.unwrap();
        drop(peer);
        for client in clients {
            let end = client.closed().await;
            match end {
                ConnectionError::Torn => assert!(torn),
                ConnectionError::PeerClosed => assert!(!torn),
                other => panic!("{other:?}"),
            }
        }
    }
}

// What has been received is still delivered, on both.
#[tokio::test]
async fn a_write_error_ends_writing_only() {
    let (here, there) = UnixStream::pair().unwrap();
    let mut peer = Peer::new(there);
    let connections = Multiplexer::new().split(here);
    let (mut first, mut second) = (connections.plugin_service, connections.runtime_service);
    let std = peer.stream.into_std().unwrap();
    std.shutdown(std::net::Shutdown::Read).unwrap();
    peer.stream = UnixStream::from_std(std).unwrap();
    peer.send(2, b"last").await;
    peer.send(1, b"word").await;
    let error = loop {
        if let Err(error) = write(&mut first, &frame(1, 10)).await {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    assert_eq!(read(&mut first, 4).await.unwrap(), b"word");
    assert_eq!(read(&mut second, 4).await.unwrap(), b"last");
}
