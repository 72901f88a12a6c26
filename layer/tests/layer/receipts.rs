//! Peers that know no PING, on a unix socket, judged by what they read.

use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::net::UnixStream;
use tokio::time::sleep;
use ttrpc_keepalive::ProcessState;
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive_layer::{ConnectionError, DeadReason, Layered, Liveness, Peer, Support};

use crate::peer::*;

struct Side {
    reader: ReadHalf<Layered<UnixStream>>,
    writer: WriteHalf<Layered<UnixStream>>,
    liveness: Liveness,
}

/// A client and its peer, which has answered a request and ignored the PING in front of it.
async fn old_peer(keepalive: &Keepalive) -> (Side, UnixStream) {
    let (here, mut there) = UnixStream::pair().unwrap();
    let layered = Layered::client(here, keepalive).unwrap().with_receipts();
    let liveness = layered.liveness();
    let (reader, writer) = split(layered);
    let mut side = Side {
        reader,
        writer,
        liveness,
    };
    side.writer.write_all(&request(1, secs(0))).await.unwrap();
    there
        .read_exact(&mut vec![0; 18 + request(1, secs(0)).len()])
        .await
        .unwrap();
    there.write_all(&response(1)).await.unwrap();
    side.reader
        .read_exact(&mut vec![0; response(1).len()])
        .await
        .unwrap();
    let seen = side.liveness.snapshot();
    assert_eq!((seen.support(), seen.receipts()), (Support::No, true));
    (side, there)
}

#[tokio::test(start_paused = true)]
async fn a_late_call_says_whether_the_process_of_an_old_peer_reads() {
    for (reads, expected) in [(true, Peer::Alive), (false, Peer::Doubtful)] {
        let (mut side, mut there) = old_peer(&Keepalive::on_demand()).await;
        side.writer.write_all(&request(3, secs(2))).await.unwrap();
        let mut reader = side.reader;
        let reading = tokio::spawn(async move { reader.read_u8().await });
        let mut rest = vec![0; request(3, secs(2)).len()];
        there.read_exact(&mut rest).await.unwrap();
        let mut pings = Vec::new();
        if reads {
            // Its PING, which says nothing to it.
            let reads = async { there.read_buf(&mut pings).await.unwrap() };
            assert_eq!(reads.await, 18);
        }
        sleep(ms(if reads { 230 } else { 2000 })).await;
        assert_eq!(side.liveness.snapshot().peer(), expected);
        assert_eq!(side.liveness.snapshot().unread_for().is_some(), !reads);
        reading.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn receipts_that_are_turned_off_cost_no_ping() {
    let (mut side, mut there) = {
        let (here, there) = UnixStream::pair().unwrap();
        let keepalive = Keepalive::on_demand().read_receipts(false);
        let layered = Layered::client(here, &keepalive).unwrap().with_receipts();
        assert!(!layered.liveness().snapshot().receipts());
        (layered, there)
    };
    side.write_all(&request(1, secs(2))).await.unwrap();
    let mut came = vec![0; 18 + request(1, secs(2)).len()];
    there.read_exact(&mut came).await.unwrap();
    there.write_all(&response(1)).await.unwrap();
    side.read_exact(&mut vec![0; response(1).len()])
        .await
        .unwrap();
    side.write_all(&request(3, secs(2))).await.unwrap();
    let reading = tokio::spawn(async move { side.read_u8().await });
    let mut rest = vec![0; request(3, secs(2)).len()];
    there.read_exact(&mut rest).await.unwrap();
    let more = tokio::time::timeout(secs(4), there.read_u8()).await;
    assert!(more.is_err(), "{more:?}");
    reading.abort();
}

#[tokio::test(start_paused = true)]
async fn one_that_is_watched_by_receipts_and_does_not_read_is_convicted_and_its_process_is_told() {
    let keepalive = watch().watch_by_receipts(true);
    let (mut side, _there) = old_peer(&keepalive).await;
    let end = side.reader.read_u8().await.unwrap_err();
    let end: &ConnectionError = end.get_ref().unwrap().downcast_ref().unwrap();
    let ConnectionError::Dead { reason, evidence } = end else {
        panic!("{end}");
    };
    assert_eq!(*reason, DeadReason::NotReading);
    // It is this one, whose main thread may have ended.
    assert!(evidence.process.is_some(), "{end}");
    let known = matches!(
        evidence.process,
        Some(ProcessState::Running | ProcessState::Unknown(_))
    );
    assert!(known, "{end}");
}
