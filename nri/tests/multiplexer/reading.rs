//! What comes in, and for whom.

use std::collections::HashMap;
use std::error::Error as _;

use proptest::prelude::*;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};
use ttrpc_keepalive::wire::{Flags, Header, Response};
use ttrpc_keepalive::wire::{MAX_PAYLOAD, MessageType, Raw, RequestHead, encode_request, ping};
use ttrpc_keepalive::{Client, Code, ConnectionError};
use ttrpc_keepalive_nri::multiplexer::{Connections, Multiplexer, MultiplexerError};

use super::support::*;

/// What the multiplexer says of an end.
fn reason(end: &ConnectionError) -> MultiplexerError {
    let source = end.io_error().unwrap_or_else(|| panic!("{end:?}"));
    let inner = source.get_ref().and_then(|inner| inner.downcast_ref());
    inner
        .cloned()
        .unwrap_or_else(|| panic!("{source:?} {:?}", source.source()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn pieces_arrive_whole_and_in_order_however_they_are_cut(
        pieces in prop::collection::vec((0_u32..5, 0_usize..9000), 1..20),
        room in 1_usize..9000,
        limits in (1_usize..5000, 1_usize..5000),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (connections, mut peer) = split(room);
            let Connections { mut plugin_service, mut runtime_service, .. } = connections;
            let mut sent: HashMap<u32, Vec<u8>> = HashMap::new();
            let mut bytes = Vec::new();
            for (number, (id, length)) in pieces.iter().enumerate() {
                let fill = vec![u8::try_from(number).unwrap(); *length];
                bytes.extend_from_slice(&piece(*id, &fill));
                sent.entry(*id).or_default().extend_from_slice(&fill);
            }
            tokio::spawn(async move { peer.stream.write_all(&bytes).await.unwrap() });
            let (first, second) = tokio::join!(
                read_in(&mut plugin_service, limits.0),
                read_in(&mut runtime_service, limits.1),
            );
            assert_eq!(first, sent.remove(&1).unwrap_or_default());
            assert_eq!(second, sent.remove(&2).unwrap_or_default());
        });
    }
}

/// All that comes, in reads of this size.
async fn read_in(
    connection: &mut ttrpc_keepalive_nri::multiplexer::Connection,
    limit: usize,
) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let some = read(connection, limit).await.unwrap();
        all.extend_from_slice(&some);
        if some.len() < limit {
            return all;
        }
    }
}

#[tokio::test]
async fn what_comes_for_no_connection_is_dropped_and_an_empty_piece_is_nothing() {
    let (mut connections, mut peer) = split(64 << 10);
    for id in [0, 3, u32::MAX] {
        peer.send(id, b"nobody").await;
        peer.send(id, b"").await;
    }
    peer.send(1, b"").await;
    peer.send(1, b"some").await;
    let found = read(&mut connections.plugin_service, 4).await.unwrap();
    assert_eq!(found, b"some");
}

#[tokio::test]
async fn a_piece_as_long_as_the_longest_frame_is_taken() {
    let (mut connections, mut peer) = split(64 << 10);
    let bytes = vec![5; MAX_PAYLOAD + 10];
    let sent = bytes.clone();
    tokio::spawn(async move { peer.send(1, &sent).await });
    let found = read(&mut connections.plugin_service, bytes.len()).await;
    assert!(found.unwrap() == bytes);
}

#[tokio::test]
async fn a_longer_piece_closes_the_stream_with_an_error_that_names_its_length() {
    let (connections, mut peer) = split(64 << 10);
    let first = Client::builder()
        .attach(connections.plugin_service)
        .unwrap();
    let second = Client::builder()
        .attach(connections.runtime_service)
        .unwrap();
    let header = [2_u32.to_be_bytes(), 4_194_315_u32.to_be_bytes()].concat();
    peer.stream.write_all(&header).await.unwrap();
    for client in [first, second] {
        let end = client.closed().await;
        let too_long = MultiplexerError::TooLong {
            connection: 2,
            length: 4_194_315,
            limit: 4_194_314,
        };
        assert_eq!(reason(&end), too_long);
        assert!(
            end.to_string().contains("4194315 bytes on connection 2"),
            "{end}"
        );
    }
    assert_eq!(peer.next().await, None, "closed");
}

#[tokio::test]
async fn what_came_before_such_a_piece_is_delivered() {
    let (mut connections, mut peer) = split(64 << 10);
    let bytes = [piece(1, b"good"), vec![0xff; 16]].concat();
    peer.stream.write_all(&bytes).await.unwrap();
    let connection = &mut connections.plugin_service;
    assert_eq!(read(connection, 4).await.unwrap(), b"good");
    let error = read(connection, 1).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
}

// Its driver never runs: the stream was split and one side of it is not served yet.
#[tokio::test]
async fn a_connection_that_nobody_reads_does_not_stop_the_other() {
    let (connections, mut peer) = split(64 << 10);
    let served = connections.plugin_service;
    tokio::spawn(async move { echo().serve_connection(served).await });
    for number in 0..100 {
        peer.send(2, &vec![1; 100_000]).await;
        let start = Instant::now();
        peer.send(1, &ping(number)).await;
        let (id, pong, _) = peer.next_frame().await.unwrap();
        assert_eq!((id, pong.message_type), (1, MessageType::PONG));
        assert!(start.elapsed() < secs(5), "{:?}", start.elapsed());
    }
    // And what has come for it is there when it is served.
    let mut late = connections.runtime_service;
    let found = timeout(secs(30), read(&mut late, 10_000_000)).await;
    assert_eq!(found.unwrap().unwrap().len(), 10_000_000);
}

// Its driver was there, and is stuck now. What comes for it goes by after a while, and then at once.
#[tokio::test(start_paused = true)]
async fn a_connection_that_is_not_read_any_more_stops_the_other_for_100_ms_and_once() {
    let (connections, mut peer) = split(64 << 10);
    let Connections {
        plugin_service,
        mut runtime_service,
        ..
    } = connections;
    peer.send(2, b"first").await;
    assert_eq!(read(&mut runtime_service, 5).await.unwrap(), b"first");
    tokio::spawn(async move { echo().serve_connection(plugin_service).await });
    let mut times = Vec::new();
    for number in 0..10 {
        let start = Instant::now();
        peer.send(2, &vec![1; 1 << 20]).await;
        peer.send(1, &ping(number)).await;
        let (id, pong, _) = peer.next_frame().await.unwrap();
        assert_eq!((id, pong.message_type), (1, MessageType::PONG));
        times.push(start.elapsed());
    }
    assert!(times[0] >= ms(100) && times[0] < ms(150), "{times:?}");
    assert!(times[1..].iter().all(|time| *time < ms(20)), "{times:?}");
    let found = read(&mut runtime_service, 10 << 20).await.unwrap();
    assert_eq!(found.len(), 10 << 20);
}

#[tokio::test(start_paused = true)]
async fn who_waits_goes_on_as_soon_as_the_other_has_taken_what_is_its() {
    let (connections, mut peer) = split(64 << 10);
    let Connections {
        plugin_service,
        mut runtime_service,
        ..
    } = connections;
    peer.send(2, b"first").await;
    assert_eq!(read(&mut runtime_service, 5).await.unwrap(), b"first");
    tokio::spawn(async move { echo().serve_connection(plugin_service).await });
    for number in 0..5 {
        let both = [piece(2, &[1; 100_000]), piece(1, &ping(number))].concat();
        let (from, mut to) = tokio::io::split(peer.stream);
        let sending = tokio::spawn(async move {
            to.write_all(&both).await.unwrap();
            to
        });
        sleep(ms(30)).await;
        assert_eq!(
            read(&mut runtime_service, 100_000).await.unwrap().len(),
            100_000
        );
        let start = Instant::now();
        peer.stream = from.unsplit(sending.await.unwrap());
        let (id, pong, _) = peer.next_frame().await.unwrap();
        assert_eq!((id, pong.message_type), (1, MessageType::PONG));
        assert!(start.elapsed() < ms(5), "{:?}", start.elapsed());
    }
}

// Its bytes stay in the stream until it takes them: it has no more than it can hold.
#[tokio::test(start_paused = true)]
async fn a_connection_that_is_read_slowly_is_waited_for() {
    let (here, there) = tokio::io::duplex(64 << 10);
    let mut peer = Peer::new(there);
    let connections = Multiplexer::new().unread_limit(200_000).split(here);
    let mut slow = connections.plugin_service;
    let client = Client::builder()
        .attach(connections.runtime_service)
        .unwrap();
    peer.send(1, b"first").await;
    assert_eq!(read(&mut slow, 5).await.unwrap(), b"first");
    tokio::spawn(async move {
        peer.send(1, &vec![1; 4 << 20]).await;
        peer
    });
    for _ in 0..64 {
        sleep(ms(60)).await;
        assert_eq!(read(&mut slow, 64 << 10).await.unwrap().len(), 64 << 10);
    }
    drop(client);
}

#[tokio::test]
async fn more_than_may_wait_closes_the_stream_with_an_error_that_names_the_connection() {
    let (here, there) = UnixStream::pair().unwrap();
    let mut peer = Peer::new(there);
    let split = Multiplexer::new().unread_limit(300_000).split(here);
    let client = Client::builder().attach(split.plugin_service).unwrap();
    let unread = split.runtime_service;
    for _ in 0..3 {
        peer.send(2, &vec![1; 100_000]).await;
    }
    peer.send(2, b"x").await;
    let end = client.closed().await;
    let MultiplexerError::Unread {
        connection,
        waiting,
        limit,
    } = reason(&end)
    else {
        panic!("{end:?}");
    };
    assert_eq!((connection, limit), (2, 300_000));
    assert_eq!(waiting, 300_001);
    assert!(
        end.to_string().contains("connection 2 is not read"),
        "{end}"
    );
    // The other one learns it behind what has come for it.
    let mut unread = unread;
    assert_eq!(read(&mut unread, 300_000).await.unwrap().len(), 300_000);
    let error = read(&mut unread, 1).await.unwrap_err();
    assert_eq!(reason(&error.into()), reason(&end));
}

// In reads of any size: a few bytes, what Go reads at a time, all of it.
#[tokio::test]
async fn an_oversized_frame_costs_its_call_and_not_the_stream() {
    for room in [500, 4096, 64 << 10, 8 << 20] {
        oversized(room).await;
    }
}

async fn oversized(room: usize) {
    let (connections, mut peer) = split(room);
    tokio::spawn(async move { echo().serve_connection(connections.plugin_service).await });
    let length = MAX_PAYLOAD + 1;
    let header = Header {
        length: u32::try_from(length).unwrap(),
        stream_id: 1,
        message_type: MessageType::REQUEST,
        flags: Flags::NONE,
    };
    let oversized = [&header.encode()[..], &vec![0; length]].concat();
    for part in oversized.chunks(1 << 20) {
        peer.send(1, part).await;
    }
    let head = RequestHead {
        service: "demo.Echo",
        method: "Say",
        timeout_nano: 0,
        metadata: &[],
    };
    let good = encode_request(3, Flags::NONE, &head, &Raw(&[][..])).unwrap();
    peer.send(1, &good).await;
    for expected in [(1, Some(Code::RESOURCE_EXHAUSTED)), (3, None)] {
        let (id, header, payload) = peer.next_frame().await.unwrap();
        assert_eq!(id, 1);
        let answer = Response::decode(&payload.into()).unwrap();
        let code = answer.status.map(|status| status.code());
        let code = code.filter(|code| *code != Code::OK);
        assert_eq!((header.stream_id, code), expected);
    }
}
