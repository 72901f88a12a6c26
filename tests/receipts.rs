//! Peers that know no PING, on real sockets, judged by what they read.

#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::io::{self, IoSlice};
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use bytes::BytesMut;
use support::*;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::transport::{Look, Transport};
use ttrpc_keepalive::wire::MessageType;
use ttrpc_keepalive::{
    Client, DeadReason, Peer as Summary, Socket, State, Support, Unknown, Verdict,
};

/// A client and its peer, which has answered a request and ignored the PING in front of it.
async fn old_peer(keepalive: Keepalive) -> (Client, Peer<UnixStream>) {
    let (here, there) = UnixStream::pair().unwrap();
    let client = Client::builder().keepalive(keepalive).attach(here).unwrap();
    let mut peer = Peer::new(there);
    introduce(&client, &mut peer).await;
    assert_eq!(client.snapshot().support(), Support::No);
    assert!(client.snapshot().receipts());
    (client, peer)
}

async fn introduce<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin>(
    client: &Client,
    peer: &mut Peer<S>,
) {
    let (reply, ()) = tokio::join!(say(client), async {
        peer.ping().await;
        let (id, _) = peer.request().await;
        peer.respond(id).await;
    });
    reply.unwrap();
}

/// Reads all that comes, answers nothing, and yields how many PINGs were among it.
fn read_on(mut peer: Peer<UnixStream>) -> JoinHandle<u32> {
    tokio::spawn(async move {
        let mut pings = 0;
        while let Some(frame) = peer.next().await {
            pings += u32::from(frame.header.message_type == MessageType::PING);
        }
        pings
    })
}

fn call(client: &Client, seconds: u64) -> JoinHandle<ttrpc_keepalive::Error> {
    let client = client.clone();
    tokio::spawn(async move { say_within(&client, secs(seconds)).await.unwrap_err() })
}

#[tokio::test(start_paused = true)]
async fn a_late_call_to_an_old_peer_that_reads_is_slow_and_costs_one_ping() {
    let (client, peer) = old_peer(Keepalive::on_demand()).await;
    let reader = read_on(peer);
    let error = call(&client, 2).await.unwrap();
    assert_eq!(error.verdict(), Some(Verdict::Slow));
    assert_eq!(
        (error.peer(), client.peer()),
        (Summary::Alive, Summary::Alive)
    );
    let told = "deadline exceeded: the peer's process reads, its answer is late; it cannot be asked \
        for more (nothing heard for 2.00 s, read what was sent 0.25 s ago, its process is ";
    assert!(error.to_string().starts_with(told), "{error}");
    let seen = client.snapshot();
    assert_eq!((seen.receipts(), seen.support()), (true, Support::No));
    assert!(seen.read_ago().unwrap() <= ms(255) && seen.silent_for() >= ms(1990));
    assert_eq!((seen.unread_for(), seen.awaiting_pong_for()), (None, None));
    drop(client);
    assert_eq!(reader.await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_old_peer_that_stopped_before_the_request_is_not_reading_until_it_does() {
    let (client, mut peer) = old_peer(Keepalive::on_demand()).await;
    sleep(secs(5)).await;
    let error = call(&client, 2).await.unwrap();
    assert_eq!(error.verdict(), Some(Verdict::NotReading));
    assert_eq!(
        (error.peer(), client.peer()),
        (Summary::Doubtful, Summary::Doubtful)
    );
    assert!(
        error
            .to_string()
            .contains("nobody has read what was sent for 2.00 s, its process is "),
        "{error}"
    );
    assert!(client.snapshot().unread_for().unwrap() >= secs(2));
    assert_eq!(client.snapshot().counters().keepalive.pings_sent, 1);

    // It goes on with what it finds, and nothing else is there.
    sleep(ms(1)).await;
    let (id, _) = peer.request().await;
    peer.respond(id).await;
    error.late_answer().unwrap().await;
    assert_eq!(client.peer(), Summary::Alive);
    assert_eq!(client.snapshot().unread_for(), None);
    goes_on_over(&client, &mut peer).await;
}

async fn goes_on_over(client: &Client, peer: &mut Peer<UnixStream>) {
    let (reply, ()) = tokio::join!(say(client), async {
        let (id, _) = peer.request().await;
        peer.respond(id).await;
    });
    reply.unwrap();
}

// What it read once says nothing of now.
#[tokio::test(start_paused = true)]
async fn an_old_peer_that_has_read_the_request_and_stopped_leaves_the_ping_unread() {
    let (client, mut peer) = old_peer(Keepalive::on_demand()).await;
    let late = call(&client, 2);
    peer.request().await;
    let error = late.await.unwrap();
    assert_eq!(error.verdict(), Some(Verdict::NotReading));
    let unread = error.evidence().unwrap().unread_for.unwrap();
    assert!(unread <= ms(255), "{unread:?}: its PING");
    // The next call finds that lying there, and asks no more.
    let error = call(&client, 2).await.unwrap();
    assert_eq!(error.verdict(), Some(Verdict::NotReading));
    assert_eq!(client.snapshot().counters().keepalive.pings_sent, 2);
}

#[tokio::test(start_paused = true)]
async fn an_old_peer_that_reads_only_a_little_of_much_is_slow() {
    let (client, mut peer) = old_peer(Keepalive::on_demand()).await;
    // More than it takes until the end, in pieces as the kernel cuts them.
    let large = {
        let client = client.clone();
        tokio::spawn(async move { say_large(&client, 150_000).await })
    };
    let slow_reader = tokio::spawn(async move {
        let mut chunk = vec![0; 2000];
        sleep(ms(1700)).await;
        loop {
            sleep(ms(4)).await;
            peer.stream.read_exact(&mut chunk).await.unwrap();
        }
    });
    let error = call(&client, 2).await.unwrap();
    assert_eq!(error.verdict(), Some(Verdict::Slow), "{error}");
    assert!(client.snapshot().unread_for().is_some());
    slow_reader.abort();
    large.abort();
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_boots_is_slow_if_it_reads_and_not_reading_if_nobody_accepts_it() {
    for (reads, verdict) in [(true, Verdict::Slow), (false, Verdict::NotReading)] {
        let (here, there) = UnixStream::pair().unwrap();
        let client = Client::builder().attach(here).unwrap();
        let peer = Peer::new(there);
        let mut unread = None;
        let mut reader = None;
        match reads {
            true => reader = Some(read_on(peer)),
            false => unread = Some(peer),
        }
        let error = call(&client, 2).await.unwrap();
        assert_eq!(error.verdict(), Some(verdict));
        assert_eq!(client.snapshot().support(), Support::Unknown);
        drop((client, unread));
        if let Some(reader) = reader {
            assert_eq!(reader.await.unwrap(), 2, "that of the first exchange, too");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn receipts_that_are_turned_off_leave_it_unknown_and_send_no_ping() {
    let (client, peer) = {
        let (here, there) = UnixStream::pair().unwrap();
        let keepalive = Keepalive::on_demand().read_receipts(false);
        let client = Client::builder().keepalive(keepalive).attach(here).unwrap();
        let mut peer = Peer::new(there);
        introduce(&client, &mut peer).await;
        (client, peer)
    };
    assert!(!client.snapshot().receipts());
    let reader = read_on(peer);
    let error = call(&client, 2).await.unwrap();
    assert_eq!(error.verdict(), Some(Verdict::Unknown(Unknown::NoSupport)));
    drop(client);
    assert_eq!(reader.await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_probe_of_an_old_peer_says_whether_it_reads_and_costs_one_ping() {
    let (client, peer) = old_peer(Keepalive::on_demand()).await;
    let reader = read_on(peer);
    let start = Instant::now();
    let error = client.probe(secs(1)).await.unwrap_err();
    assert_passed(start, secs(1));
    assert_eq!(error.verdict(), Some(Verdict::Slow), "{error}");
    assert!(error.evidence().unwrap().only_reads());
    assert_eq!(client.peer(), Summary::Alive);
    drop(client);
    assert_eq!(reader.await.unwrap(), 1);

    let (client, peer) = old_peer(Keepalive::on_demand()).await;
    let error = client.probe(secs(1)).await.unwrap_err();
    assert_eq!(error.verdict(), Some(Verdict::NotReading), "{error}");
    assert_eq!(client.peer(), Summary::Doubtful);
    drop((client, peer));
}

#[tokio::test]
async fn on_tcp_an_old_peer_stays_unknown_and_is_sent_no_ping() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = TcpStream::connect(listener.local_addr().unwrap()).await;
    let (there, _) = listener.accept().await.unwrap();
    let client = Client::builder().attach(here.unwrap()).unwrap();
    let mut peer = Peer::new(there);
    introduce(&client, &mut peer).await;
    assert!(!client.snapshot().receipts());
    let error = say_within(&client, ms(800)).await.unwrap_err();
    assert_eq!(error.verdict(), Some(Verdict::Unknown(Unknown::NoSupport)));
    assert_eq!(client.snapshot().counters().keepalive.pings_sent, 1);
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_late_calls_to_an_old_peer_costs_one_ping() {
    let (client, peer) = old_peer(Keepalive::on_demand()).await;
    let reader = read_on(peer);
    let calls: Vec<_> = (0..64).map(|_| call(&client, 1)).collect();
    for late in calls {
        assert_eq!(late.await.unwrap().verdict(), Some(Verdict::Slow));
    }
    drop(client);
    assert_eq!(reader.await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_old_peer_that_closes_has_read_nothing_and_is_gone() {
    let (client, peer) = old_peer(Keepalive::on_demand()).await;
    let late = call(&client, 2);
    // Between two looks.
    sleep(ms(1780)).await;
    drop(peer);
    let error = late.await.unwrap();
    assert!(error.is_connection(), "{error}");
    assert_eq!(client.snapshot().read_ago(), None);
}

fn by_receipts() -> Keepalive {
    Keepalive::every(secs(10))
        .timeout(secs(4))
        .watch_by_receipts(true)
}

#[tokio::test(start_paused = true)]
async fn an_idle_old_peer_watched_by_receipts_is_convicted_with_one_small_frame_unread() {
    let (client, peer) = old_peer(by_receipts()).await;
    let start = Instant::now();
    let end = client.closed().await;
    assert_eq!(end.dead_reason(), Some(DeadReason::NotReading));
    assert_passed(start, secs(14));
    assert!(
        end.to_string()
            .contains("nobody has read what was sent for 4.00 s"),
        "{end}"
    );
    drop(peer);
}

#[tokio::test(start_paused = true)]
async fn an_idle_old_peer_watched_by_receipts_lives_as_long_as_it_reads() {
    let (client, peer) = old_peer(by_receipts()).await;
    let reader = read_on(peer);
    sleep(secs(3601)).await;
    assert!(matches!(client.snapshot().state(), State::Alive));
    assert_eq!(client.snapshot().counters().keepalive.suspect_entries, 0);
    drop(client);
    let pings = reader.await.unwrap();
    assert!((355..=361).contains(&pings), "{pings} in an hour");
}

#[tokio::test(start_paused = true)]
async fn an_old_peer_that_is_not_watched_by_receipts_is_left_alone() {
    let (client, mut peer) = old_peer(Keepalive::every(secs(1)).timeout(secs(1))).await;
    peer.silence(secs(600)).await;
    assert!(matches!(client.snapshot().state(), State::Alive));
}

#[tokio::test(start_paused = true)]
async fn a_server_watching_by_receipts_ends_a_client_that_reads_no_answer() {
    let (here, there) = UnixStream::pair().unwrap();
    let server = echo().keepalive(by_receipts()).build().unwrap();
    let served = tokio::spawn(async move { server.serve_connection(here).await });
    let mut peer = Peer::new(there);
    let start = Instant::now();
    // It knows no PING, so it is sent none.
    peer.call(1, "Say", "hello").await;
    peer.expect_response().await;
    sleep_until(start + secs(100)).await;
    assert!(!served.is_finished());
    peer.call(3, "Say", "hello").await;
    let end = served.await.unwrap();
    assert_eq!(end.dead_reason(), Some(DeadReason::NotReading));
    assert_passed(start, secs(114));
}

/// A unix socket that counts how often the kernel was asked.
struct Counting {
    socket: Socket,
    asked: Arc<AtomicU32>,
}

impl Transport for Counting {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        self.socket.poll_read(cx, buffer, limit)
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.socket.poll_write(cx, slices)
    }

    fn poll_look(&mut self, cx: &mut Context<'_>) -> Poll<Look> {
        self.socket.poll_look(cx)
    }

    fn unread(&self) -> Option<usize> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.socket.unread()
    }
}

#[tokio::test(start_paused = true)]
async fn the_kernel_is_asked_only_before_a_deadline_and_only_of_who_cannot_be_asked() {
    for knows_ping in [true, false] {
        let (here, there) = StdStream::pair().unwrap();
        let asked = Arc::new(AtomicU32::new(0));
        let transport = Counting {
            socket: Socket::from_fd(here).unwrap(),
            asked: Arc::clone(&asked),
        };
        let watch = Keepalive::every(secs(1)).timeout(secs(10));
        let client = Client::builder().keepalive(watch).attach(transport);
        let client = client.unwrap();
        there.set_nonblocking(true).unwrap();
        let mut peer = Peer::new(UnixStream::from_std(there).unwrap());
        let serving = tokio::spawn(async move {
            let mut answers = 0;
            while let Some(frame) = peer.next().await {
                match frame.header.message_type {
                    MessageType::PING if knows_ping => peer.pong(&frame).await,
                    MessageType::REQUEST if answers < 200 => {
                        answers += 1;
                        peer.respond(frame.header.stream_id).await;
                    }
                    _ => {}
                }
            }
        });
        for _ in 0..200 {
            say_within(&client, secs(2)).await.unwrap();
        }
        sleep(secs(60)).await;
        let asked = || asked.load(Ordering::Relaxed);
        assert_eq!(asked(), 1, "once, when the connection began");
        let error = say_within(&client, secs(2)).await.unwrap_err();
        assert_eq!(error.verdict(), Some(Verdict::Slow));
        if knows_ping {
            assert_eq!(asked(), 1);
        } else {
            assert!((4..=8).contains(&asked()), "{}", asked());
        }
        serving.abort();
    }
}
