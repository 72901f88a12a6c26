//! How frames go into pieces. The peer may be Go, whose reader loses what does not fit.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

use bytes::BytesMut;
use proptest::prelude::*;
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, sleep};
use ttrpc_keepalive::Client;
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::transport::Transport;
use ttrpc_keepalive::wire::{HEADER_LENGTH, Header, MessageType, ping};
use ttrpc_keepalive_nri::multiplexer::Connections;

use super::support::*;

/// Reads pieces as ttrpc for Go does, with its buffer of 4096 bytes. `None` if a piece does not fit into
/// the room that it has at that moment; else the payloads' lengths.
fn read_by_go(pieces: &[Vec<u8>]) -> Option<Vec<usize>> {
    let mut pieces = pieces.iter();
    let mut buffered = VecDeque::new();
    let mut lengths = Vec::new();
    loop {
        while buffered.len() < HEADER_LENGTH {
            let room = 4096;
            let Some(piece) = pieces.next() else {
                return buffered.is_empty().then_some(lengths);
            };
            // What is buffered is taken out before more is read.
            (piece.len() <= room && !piece.is_empty()).then(|| buffered.extend(piece))?;
        }
        let header: Vec<u8> = buffered.drain(..HEADER_LENGTH).collect();
        let length = u32::from_be_bytes(header[..4].try_into().unwrap());
        let length = usize::try_from(length).unwrap();
        let mut missing = length;
        while missing > 0 {
            if buffered.is_empty() {
                let piece = pieces.next()?;
                let room = if missing >= 4096 { missing } else { 4096 };
                (piece.len() <= room && !piece.is_empty()).then(|| buffered.extend(piece))?;
            }
            let part = missing.min(buffered.len());
            buffered.drain(..part);
            missing -= part;
        }
        lengths.push(length);
    }
}

/// The pieces that become of these writes.
async fn pieces_of(writes: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let (connections, mut peer) = split(16 << 20);
    let Connections {
        mut plugin_service, ..
    } = connections;
    for bytes in writes {
        write(&mut plugin_service, bytes).await.unwrap();
    }
    drop((plugin_service, connections.runtime_service));
    let mut pieces = Vec::new();
    while let Some((id, bytes)) = peer.next().await {
        assert_eq!(id, 1);
        pieces.push(bytes);
    }
    pieces
}

fn lengths(pieces: &[Vec<u8>]) -> Vec<usize> {
    pieces.iter().map(Vec::len).collect()
}

#[tokio::test]
async fn a_frame_of_up_to_4096_bytes_is_one_piece() {
    for length in [0, 1, 4085, 4086] {
        let pieces = pieces_of(&[frame(1, length)]).await;
        assert_eq!(lengths(&pieces), [length + HEADER_LENGTH]);
    }
}

#[tokio::test]
async fn a_longer_frame_is_4096_bytes_and_then_pieces_of_128_kib() {
    let pieces = pieces_of(&[frame(1, 4087)]).await;
    assert_eq!(lengths(&pieces), [4096, 1]);
    let pieces = pieces_of(&[frame(1, 200_000)]).await;
    assert_eq!(lengths(&pieces), [4096, 131_072, 200_010 - 4096 - 131_072]);
    let pieces = pieces_of(&[frame(1, 4 << 20)]).await;
    assert_eq!(pieces.len(), 1 + 32, "few enough for a queue of 256");
}

#[tokio::test]
async fn frames_written_together_share_a_piece_as_long_as_all_of_them_fit() {
    let short = [frame(1, 90), frame(3, 1990), frame(5, 90)].concat();
    let pieces = pieces_of(&[[short.clone(), frame(7, 3000), frame(9, 9000)].concat()]).await;
    assert_eq!(lengths(&pieces), [2200, 3010, 4096, 4914]);
    assert_eq!(pieces[0], short);
}

#[tokio::test]
async fn what_ends_a_long_frame_may_share_a_piece_of_4096_bytes_and_no_longer_one() {
    let pieces = pieces_of(&[[frame(1, 8000), frame(3, 172)].concat()]).await;
    assert_eq!(lengths(&pieces), [4096, 3914 + 182]);
    let pieces = pieces_of(&[[frame(1, 9000), frame(3, 10)].concat()]).await;
    assert_eq!(lengths(&pieces), [4096, 4914, 20]);
}

#[tokio::test]
async fn what_is_not_ttrpc_passes_in_short_pieces() {
    let junk = vec![0xff; 10_000];
    let pieces = pieces_of(std::slice::from_ref(&junk)).await;
    assert!(pieces.iter().all(|piece| piece.len() <= 4096));
    assert_eq!(pieces.concat(), junk);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    // Whole frames, as drivers offer them, in writes of any number of frames.
    #[test]
    fn go_can_read_all_that_is_written(
        frames in prop::collection::vec(
            prop_oneof![0_usize..200, 4000_usize..4200, 0_usize..20_000, 60_000_usize..140_000],
            1..12,
        ),
        together in 1_usize..12,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let writes: Vec<Vec<u8>> = frames.iter().map(|length| frame(1, *length)).collect();
            let writes: Vec<Vec<u8>> = writes.chunks(together).map(|some| some.concat()).collect();
            let pieces = pieces_of(&writes).await;
            assert_eq!(pieces.concat(), writes.concat());
            assert_eq!(read_by_go(&pieces), Some(frames.clone()), "{:?}", lengths(&pieces));
            assert!(pieces.iter().all(|piece| piece.len() <= 128 << 10));
        });
    }

    #[test]
    fn a_stream_that_takes_few_bytes_at_a_time_gets_all_of_them_in_order(
        lengths in prop::collection::vec(0_usize..9000, 1..6),
        room in 1_usize..5000,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let bytes = lengths.iter().map(|length| frame(1, *length)).collect::<Vec<_>>().concat();
            let (connections, mut peer) = split(room);
            let Connections { mut plugin_service, mut runtime_service, .. } = connections;
            let both = bytes.clone();
            let writing = tokio::spawn(async move {
                tokio::try_join!(
                    write(&mut plugin_service, &both),
                    write(&mut runtime_service, &both),
                ).unwrap();
            });
            let mut found = [Vec::new(), Vec::new()];
            while let Some((id, piece)) = peer.next().await {
                found[usize::try_from(id).unwrap() - 1].push(piece);
            }
            writing.await.unwrap();
            for pieces in found {
                assert_eq!(pieces.concat(), bytes);
                assert_eq!(read_by_go(&pieces), Some(lengths.clone()));
            }
        });
    }
}

// Frames of which no two fit into a piece. The stream would take all of them at one time.
#[tokio::test(start_paused = true)]
async fn a_burst_has_a_hundred_pieces_at_most() {
    let (connections, mut peer) = split(16 << 20);
    let mut connection = connections.plugin_service;
    let bytes = frame(1, 3000).repeat(1000);
    let writing = tokio::spawn(async move { write(&mut connection, &bytes).await });
    let mut bursts: Vec<(Instant, usize)> = Vec::new();
    for _ in 0..1000 {
        assert_eq!(peer.next().await.unwrap().0, 1);
        let now = Instant::now();
        match bursts.last_mut() {
            Some((at, pieces)) if *at == now => *pieces += 1,
            _ => bursts.push((now, 1)),
        }
    }
    writing.await.unwrap().unwrap();
    assert!(
        bursts.iter().all(|(_, pieces)| *pieces <= 100),
        "{bursts:?}"
    );
    // And it costs no more time than needed.
    assert!(bursts.len() <= 20, "{bursts:?}");
}

// Each has much to write, and the stream takes it slowly.
#[tokio::test]
async fn connections_take_turns_between_the_pieces() {
    let (connections, mut peer) = split(10_000);
    let Connections {
        mut plugin_service,
        mut runtime_service,
        ..
    } = connections;
    tokio::spawn(async move { write(&mut plugin_service, &frame(1, 2 << 20)).await });
    tokio::spawn(async move { write(&mut runtime_service, &frame(1, 2 << 20)).await });
    let mut ids = Vec::new();
    while let Some((id, _)) = peer.next().await {
        ids.push(id);
    }
    assert_eq!(ids.len(), 2 * (1 + 16));
    let turns = ids.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(turns >= ids.len() - 3, "{ids:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pong_waits_for_one_piece_of_the_other_connection_at_most() {
    let (connections, mut peer) = split(4096);
    let Connections {
        plugin_service,
        mut runtime_service,
        ..
    } = connections;
    tokio::spawn(async move { echo().serve_connection(plugin_service).await });
    tokio::spawn(async move { write(&mut runtime_service, &frame(1, 4 << 20)).await });
    for _ in 0..3 {
        assert_eq!(peer.next().await.unwrap().0, 2);
    }
    peer.send(1, &ping(7)).await;
    let mut before = 0;
    loop {
        match peer.next().await.unwrap() {
            (1, bytes) => break assert_eq!(frames(&bytes)[0].0.message_type, MessageType::PONG),
            (_, bytes) => before += bytes.len(),
        }
    }
    // The rest of the one that was on its way, and the one behind it if that was taken before.
    assert!(before <= 2 * (128 << 10), "{before}");
}

// A PING asks the process: it goes to one connection, and the queue of the other gets nothing.
#[tokio::test(start_paused = true)]
async fn keepalive_on_one_connection_puts_nothing_on_the_other() {
    let (connections, mut peer) = split(64 << 10);
    let watch = Keepalive::every(secs(1)).timeout(secs(1));
    let client = Client::builder().keepalive(watch);
    let client = client.attach(connections.plugin_service).unwrap();
    let other = Client::builder().attach(connections.runtime_service);
    let other = other.unwrap();
    let start = Instant::now();
    let mut pings = 0;
    while start.elapsed() < secs(60) {
        let (id, header, payload) = peer.next_frame().await.unwrap();
        assert_eq!((id, header.message_type), (1, MessageType::PING));
        pings += 1;
        let pong = Header {
            message_type: MessageType::PONG,
            ..header
        };
        peer.send(1, &[&pong.encode()[..], &payload].concat()).await;
    }
    assert!(pings >= 30, "{pings}");
    drop((client, other));
}

// The stream has called the driver of whichever connection is asleep.
#[tokio::test]
async fn a_turn_is_written_though_nobody_flushes_it_any_more() {
    let (connections, mut peer) = split(1000);
    let Connections {
        mut plugin_service,
        mut runtime_service,
        ..
    } = connections;
    let bytes = frame(1, 3000);
    let slices = [IoSlice::new(&bytes)];
    let taken = poll_fn(|cx| plugin_service.poll_write(cx, &slices)).await;
    assert_eq!(taken.unwrap(), 3010);
    // It is the other one that has something to do.
    let reading = tokio::spawn(async move { read(&mut runtime_service, 1).await });
    assert_eq!(peer.next().await, Some((1, bytes.clone())));
    peer.send(2, b"x").await;
    assert_eq!(reading.await.unwrap().unwrap(), b"x");
    sleep(ms(1)).await;
    drop(plugin_service);
}

/// Counts how often it is called.
#[derive(Default)]
struct Calls(AtomicUsize);

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

// To be called once more it would be offered to another thread.
#[tokio::test]
async fn a_driver_is_not_called_for_a_turn_that_its_own_read_has_sent() {
    let (connections, mut peer) = split(1000);
    let mut connection = connections.plugin_service;
    let calls = Arc::new(Calls::default());
    let waker = Waker::from(Arc::clone(&calls));
    let mut cx = Context::from_waker(&waker);
    let bytes = frame(1, 1200);
    let slices = [IoSlice::new(&bytes)];
    assert!(connection.poll_write(&mut cx, &slices).is_ready());
    assert!(
        connection.poll_write(&mut cx, &slices).is_pending(),
        "the turn has not left"
    );
    let mut sent = [0; 1000];
    peer.stream.read_exact(&mut sent).await.unwrap();
    assert_eq!(calls.0.swap(0, Ordering::Relaxed), 1, "there is room");
    let mut received = BytesMut::new();
    assert!(
        connection
            .poll_read(&mut cx, &mut received, 100)
            .is_pending()
    );
    assert_eq!(calls.0.load(Ordering::Relaxed), 0);
    assert!(
        connection.poll_write(&mut cx, &slices).is_ready(),
        "it has left"
    );
    // One that waits, and is not at work, is called.
    assert!(connection.poll_write(&mut cx, &slices).is_pending());
    let mut other = connections.runtime_service;
    let mut rest = [0; 218 + 782];
    peer.stream.read_exact(&mut rest).await.unwrap();
    calls.0.store(0, Ordering::Relaxed);
    let mut nobody = Context::from_waker(Waker::noop());
    assert!(
        other
            .poll_read(&mut nobody, &mut received, 100)
            .is_pending()
    );
    assert_eq!(calls.0.load(Ordering::Relaxed), 1);
}
