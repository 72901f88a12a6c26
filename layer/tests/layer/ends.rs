//! Ends of the stream below, as the wrapped side sees them.

use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use ttrpc_keepalive::keepalive::PeerSupport;
use ttrpc_keepalive::{ByteStream, Client};
use ttrpc_keepalive_layer::{ConnectionError, DeadReason, Keepalive, Layered};

use super::peer::{Peer, watch};

// A client of the crate below reads the error of a stream, as it does on a multiplexer.
#[tokio::test(start_paused = true)]
async fn a_conviction_is_handed_on_with_its_evidence() {
    let (here, there) = duplex(4096);
    let assume = watch().peer_support(PeerSupport::Assume);
    let layered = Layered::client(here, &assume).unwrap();
    let liveness = layered.liveness();
    let client = Client::builder().keepalive(Keepalive::off());
    let client = client.attach(ByteStream::new(layered)).unwrap();
    let ConnectionError::Dead { reason, evidence } = client.closed().await else {
        panic!("{}", client.closed().await);
    };
    assert_eq!(reason, DeadReason::Silent);
    assert!(evidence.awaiting_pong_for.is_some(), "{evidence}");
    assert!(liveness.snapshot().state().is_final());
    drop(there);
}

#[tokio::test(start_paused = true)]
async fn an_end_in_order_goes_through_and_one_after_a_conviction_does_not() {
    let (here, there) = duplex(4096);
    let mut layered = Layered::client(here, &Keepalive::off()).unwrap();
    layered.shutdown().await.unwrap();
    let mut peer = Peer::new(there);
    assert!(peer.next().await.is_none(), "the peer sees the end");

    let (here, mut there) = duplex(4096);
    let assume = watch().peer_support(PeerSupport::Assume);
    let mut layered = Layered::client(here, &assume).unwrap();
    let convicted = layered.read_u8().await.unwrap_err();
    assert!(ttrpc_keepalive_layer::dead_reason(&convicted).is_some());
    let refused = layered.shutdown().await.unwrap_err();
    assert!(ttrpc_keepalive_layer::dead_reason(&refused).is_some());
    let mut ping = [0; 18];
    there.read_exact(&mut ping).await.unwrap();
    let more = tokio::time::timeout(std::time::Duration::from_secs(1), there.read_u8());
    assert!(more.await.is_err(), "nothing is said to it");
}
