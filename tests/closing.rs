//! How a connection ends, what is told of it, and how an application goes on.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::error::Error as _;
use std::future::Future;
use std::io::{ErrorKind, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use protobuf::well_known_types::wrappers::StringValue;
use support::*;
use tokio::time::{Instant, sleep, timeout};
use tracing::Level;
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::wire::{encode_status, ping};
use ttrpc_keepalive::{
    Backoff, Client, Code, ConnectionError, DeadReason, Error, Liveness, Peer as Summary, Server,
    Service, State, Status, Support,
};

/// A client, and the bare socket of its peer.
fn sockets(keepalive: Keepalive) -> (Client, UnixStream) {
    let (here, there) = UnixStream::pair().unwrap();
    let client = Client::builder().keepalive(keepalive).attach(tokio(here));
    (client.unwrap(), there)
}

fn tokio(socket: UnixStream) -> tokio::net::UnixStream {
    socket.set_nonblocking(true).unwrap();
    tokio::net::UnixStream::from_std(socket).unwrap()
}

/// A call in a task of its own, which has been sent.
async fn call(client: &Client) -> tokio::task::JoinHandle<Result<StringValue, Error>> {
    let client = client.clone();
    let call = tokio::spawn(async move { say(&client).await });
    sleep(ms(1)).await;
    call
}

type Case = (&'static str, Client, Box<dyn Send>);

/// Connections that end for each of the reasons there are, with what must be kept until then.
async fn endings(announced: bool) -> Vec<Case> {
    let sockets = |keepalive| {
        let (client, peer) = sockets(keepalive);
        if announced {
            client.expect_close();
        }
        (client, peer)
    };
    let mut cases: Vec<Case> = Vec::new();

    let (client, peer) = sockets(Keepalive::off());
    drop(peer);
    cases.push(("the peer's end", client, Box::new(())));

    let (client, mut peer) = sockets(Keepalive::off());
    peer.write_all(&[0, 0]).unwrap();
    drop(peer);
    cases.push(("the peer's end within a frame", client, Box::new(())));

    // Closed with our request unread.
    let (client, peer) = sockets(Keepalive::off());
    let sent = call(&client).await;
    drop(peer);
    cases.push(("a reset", client, Box::new(sent)));

    // It takes nothing any more and may still send.
    let (client, peer) = sockets(Keepalive::off());
    peer.shutdown(Shutdown::Read).unwrap();
    let sent = call(&client).await;
    cases.push(("a broken pipe", client, Box::new((sent, peer))));

    let (client, mut peer) = sockets(Keepalive::off());
    peer.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    cases.push(("another protocol", client, Box::new(peer)));

    let watch = Keepalive::every(secs(1)).timeout(secs(1));
    let (client, peer) = sockets(watch.clone());
    let mut peer = Peer::new(tokio(peer));
    peer.answer_ping().await;
    cases.push(("silence", client, Box::new(peer)));

    let (client, peer) = sockets(watch);
    let mut peer = Peer::new(tokio(peer));
    peer.answer_ping().await;
    let bulk = {
        let client = client.clone();
        tokio::spawn(async move { say_large(&client, 3 << 20).await })
    };
    cases.push(("a peer that does not read", client, Box::new((bulk, peer))));

    let (client, peer) = sockets(Keepalive::off());
    client.abort();
    cases.push(("our own will", client, Box::new(peer)));

    let (client, peer) = sockets(Keepalive::off());
    client.expect_close();
    drop(peer);
    cases.push(("an announced end", client, Box::new(())));
    cases
}

// B10
#[tokio::test(start_paused = true)]
async fn each_reason_for_an_end_is_told_apart_and_keeps_its_source() {
    let mut seen: Vec<(String, String)> = Vec::new();
    for (name, client, kept) in endings(false).await {
        let end = timeout(secs(60), client.closed()).await.expect(name);
        let io = end.io_error().map(std::io::Error::kind);
        let dead = end.dead_reason();
        let as_expected = match (name, &end) {
            ("the peer's end", ConnectionError::PeerClosed)
            | ("the peer's end within a frame", ConnectionError::Torn) => end.source().is_none(),
            ("a reset", ConnectionError::Reset(_)) => io == Some(ErrorKind::ConnectionReset),
            ("a broken pipe", ConnectionError::BrokenPipe(_)) => io == Some(ErrorKind::BrokenPipe),
            ("another protocol", ConnectionError::Protocol(_)) => end.source().is_some(),
            ("silence", ConnectionError::Dead { .. }) => dead == Some(DeadReason::Silent),
            ("a peer that does not read", ConnectionError::Dead { .. }) => {
                dead == Some(DeadReason::NotReading)
            }
            ("our own will", ConnectionError::LocalClose) => end.is_local_close(),
            ("an announced end", ConnectionError::Announced(None)) => end.is_announced(),
            _ => false,
        };
        assert!(as_expected, "{name}: {end:?}");
        assert_eq!(
            end.source().is_some(),
            io.is_some() || name == "another protocol"
        );

        // A later call fails with the same reason, as the source of its error.
        let error = say(&client).await.unwrap_err();
        let source = error.source().unwrap();
        let source = source.downcast_ref::<ConnectionError>().unwrap();
        assert_eq!(source.to_string(), end.to_string(), "{name}");
        let last = client.snapshot();
        assert!(last.state().is_final());
        assert_eq!(last.end().unwrap().to_string(), end.to_string());
        seen.push((end.to_string(), name.to_owned()));
        drop(kept);
    }
    let count = seen.len();
    seen.sort();
    seen.dedup_by(|one, other| one.0 == other.0);
    assert_eq!(seen.len(), count, "two of them read the same");
}

// G13: a client that calls a server which shuts down is told so, and the end is then no surprise.
#[tokio::test(start_paused = true)]
async fn a_server_that_shuts_down_announces_it_to_who_calls_it() {
    for calls in [true, false] {
        let server = echo().build().unwrap();
        let (client, _) = pair(server.clone(), Client::builder(), 64 << 10);
        let running = {
            let client = client.clone();
            tokio::spawn(async move { sleep_within(&client, secs(2), secs(60)).await })
        };
        sleep(ms(1)).await;
        tokio::spawn(async move { server.shutdown(secs(10)).await });
        sleep(ms(1)).await;
        if calls {
            let error = say(&client).await.unwrap_err();
            assert!(error.status().unwrap().announces_shutdown(), "{error:?}");
        }
        running.await.unwrap().unwrap();
        let end = client.closed().await;
        assert_eq!(end.is_announced(), calls, "{end:?}");
        assert_eq!(matches!(end, ConnectionError::PeerClosed), !calls);
    }
}

// The refusal and the end may be read in one turn, before who waits for the former has run.
#[tokio::test(start_paused = true)]
async fn an_announcement_counts_although_the_end_is_right_behind_it() {
    let (client, mut peer, call) = waiting().await;
    peer.send(encode_status(1, &Status::shutting_down())).await;
    drop(peer);
    assert!(client.closed().await.is_announced());
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.status().unwrap().code(), Code::UNAVAILABLE);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_unavailable_announces_nothing() {
    let (client, mut peer, call) = waiting().await;
    let status = Status::new(Code::UNAVAILABLE, "the server is shutting down");
    peer.send(encode_status(1, &status)).await;
    assert!(
        !call
            .await
            .unwrap()
            .unwrap_err()
            .status()
            .unwrap()
            .announces_shutdown()
    );
    drop(peer);
    assert!(matches!(client.closed().await, ConnectionError::PeerClosed));
}

// What was announced is that the peer closes: a peer that breaks off or falls silent has not.
#[tokio::test(start_paused = true)]
async fn an_announcement_excuses_a_close_and_nothing_else() {
    for (name, client, kept) in endings(true).await {
        let end = timeout(secs(60), client.closed()).await.expect(name);
        let closed = [
            "the peer's end",
            "a reset",
            "a broken pipe",
            "an announced end",
        ];
        assert_eq!(
            end.is_announced(),
            closed.contains(&name),
            "{name}: {end:?}"
        );
        let failed = ["a reset", "a broken pipe"].contains(&name);
        assert_eq!(end.io_error().is_some(), failed, "{name}: {end:?}");
        drop(kept);
    }
}

// G13 on the other side: a runtime says by a call of its own that it goes.
#[tokio::test(start_paused = true)]
async fn a_handler_may_know_that_its_client_is_about_to_go() {
    for announced in [true, false] {
        let server = Server::builder()
            .service(Service::new("demo.Plugin", ()).unary(
                "Shutdown",
                move |(), context: ttrpc_keepalive::Context, q: StringValue| {
                    if announced {
                        context.expect_close();
                    }
                    async move { Ok(q) }
                },
            ))
            .build()
            .unwrap();
        let (here, there) = tokio::io::duplex(4096);
        let end = tokio::spawn(async move { server.serve_connection(there).await });
        let client = Client::builder().attach(here).unwrap();
        let request = text("");
        let call = client.call::<_, StringValue>("demo.Plugin", "Shutdown", &request);
        call.await.unwrap();
        drop(client);
        let end = end.await.unwrap();
        assert_eq!(end.is_announced(), announced, "{end:?}");
    }
}

// B5
#[tokio::test(start_paused = true)]
async fn fifty_calls_fail_with_the_one_reset() {
    let (client, peer) = sockets(Keepalive::on_demand());
    let mut calls = Vec::new();
    for _ in 0..50 {
        calls.push(call(&client).await);
    }
    assert_eq!(client.snapshot().calls_in_flight(), 50);
    drop(peer);
    for call in calls {
        let error = timeout(secs(1), call).await.unwrap().unwrap().unwrap_err();
        assert!(
            matches!(&error, Error::Connection(ConnectionError::Reset(_), _)),
            "{error:?}"
        );
        assert_eq!(error.peer(), Summary::Gone);
    }
    assert_eq!(client.snapshot().calls_in_flight(), 0);
}

type Task<T> = Mutex<Pin<Box<dyn Future<Output = T> + Send>>>;

/// Waits for the end, and looks in the moment in which it learns of it whether the call has ended.
struct Witness {
    closed: Task<ConnectionError>,
    call: Task<bool>,
    found: Mutex<Vec<bool>>,
}

impl Wake for Witness {
    fn wake(self: Arc<Self>) {
        let waker = Waker::from(Arc::clone(&self));
        let mut cx = Context::from_waker(&waker);
        if self
            .closed
            .lock()
            .unwrap()
            .as_mut()
            .poll(&mut cx)
            .is_ready()
        {
            let mut cx = Context::from_waker(Waker::noop());
            let call = self.call.lock().unwrap().as_mut().poll(&mut cx);
            self.found.lock().unwrap().push(call.is_ready());
        }
    }
}

// B11: whoever acts on the end finds no call half ended, on whatever thread it runs.
#[tokio::test(start_paused = true)]
async fn closed_resolves_after_the_calls_have_failed() {
    let watch = Keepalive::every(secs(1)).timeout(secs(1));
    for goes in [false, true] {
        let (client, mut peer) = scripted(watch.clone(), 64 << 10);
        peer.answer_ping().await;
        let mut call = {
            let client = client.clone();
            Box::pin(async move { say(&client).await.is_ok() })
        };
        poll_once(call.as_mut());
        let closed = {
            let client = client.clone();
            Box::pin(async move { client.closed().await })
        };
        let witness = Arc::new(Witness {
            closed: Mutex::new(closed),
            call: Mutex::new(call),
            found: Mutex::default(),
        });
        Arc::clone(&witness).wake();
        // Otherwise it is convicted.
        let peer = Some(peer).filter(|_| !goes);
        sleep(secs(3)).await;
        assert_eq!(*witness.found.lock().unwrap(), [true], "the call has ended");
        drop(peer);
    }
}

async fn last(liveness: &mut Liveness) -> State {
    let mut last = None;
    while let Some(seen) = liveness.next().await {
        last = Some(seen.state());
    }
    last.unwrap()
}

// A21, H16: both ends follow each other in the same way, and see the same end.
#[tokio::test(start_paused = true)]
async fn a_handler_follows_its_client_as_the_client_its_server() {
    for goes in [true, false] {
        let (told, mut states) = tokio::sync::mpsc::unbounded_channel();
        let server = Server::builder()
            .keepalive(Keepalive::every(secs(1)).timeout(secs(1)))
            .service(Service::new("demo.Echo", ()).unary(
                "Say",
                move |(), context: ttrpc_keepalive::Context, q: StringValue| {
                    let told = told.clone();
                    async move {
                        let state = last(&mut context.liveness()).await;
                        let end = context.cancelled().await;
                        told.send((state, end)).unwrap();
                        Ok(q)
                    }
                },
            ))
            .build()
            .unwrap();
        let mut peer = served(server);
        peer.send(ping(1)).await;
        peer.call(1, "Say", "hello").await;
        sleep(ms(1)).await;
        let start = Instant::now();
        let kept = (!goes).then_some(peer);
        let (state, end) = states.recv().await.unwrap();
        if goes {
            assert!(matches!(state, State::Closed(ConnectionError::PeerClosed)));
            assert!(matches!(end, ConnectionError::PeerClosed), "{end:?}");
            assert_passed(start, ms(0));
        } else {
            assert!(matches!(state, State::Dead(DeadReason::Silent)));
            assert_eq!(end.dead_reason(), Some(DeadReason::Silent));
            assert_passed(start, secs(2));
        }
        drop(kept);
    }
}

// H11, C21: an ordinary end is one line, and no complaint of keepalive.
#[tokio::test(start_paused = true)]
async fn an_ordinary_end_is_logged_once_and_as_nothing_bad() {
    for local in [true, false] {
        let (log, _guard) = Log::begin();
        let (client, mut peer) = scripted(Keepalive::every(secs(1)), 64 << 10);
        peer.ping().await;
        if local {
            drop(client);
        } else {
            drop(peer);
        }
        sleep(secs(60)).await;
        assert_eq!(log.at_least(Level::WARN), [""; 0]);
        assert_eq!(log.count("the connection has ended"), 1);
    }
    let (log, _guard) = Log::begin();
    let (client, peer) = sockets(Keepalive::off());
    peer.shutdown(Shutdown::Read).unwrap();
    assert!(say(&client).await.unwrap_err().is_connection());
    assert!(say(&client).await.unwrap_err().is_connection());
    assert_eq!(log.at_least(Level::WARN), [""; 0]);
    assert_eq!(log.count("the connection has ended"), 1);
}

// B17, G12, B18: three restarts, and nothing of the old connection is in the new one.
#[tokio::test(start_paused = true)]
async fn a_loop_of_the_application_registers_anew_after_each_restart() {
    let registered = Arc::new(AtomicU32::new(0));
    let (offer, mut accept) = tokio::sync::mpsc::unbounded_channel();
    let application = {
        let registered = Arc::clone(&registered);
        tokio::spawn(async move {
            let mut backoff = Backoff::new(ms(100), secs(1)).jitter(0).attempts(4);
            let mut ends = Vec::new();
            loop {
                let began = Instant::now();
                // The first two attempts after a restart find nobody.
                if ends.len() % 3 == 0 {
                    let (here, there) = tokio::io::duplex(4096);
                    if offer.send(there).is_err() {
                        return ends;
                    }
                    let client = Client::builder().call_timeout(secs(2)).attach(here);
                    let client = client.unwrap();
                    let seen = client.snapshot();
                    assert_eq!((seen.support(), seen.rtt()), (Support::Unknown, None));
                    say(&client).await.unwrap();
                    registered.fetch_add(1, Ordering::Relaxed);
                    let end = client.closed().await;
                    // A call on the old connection fails at once, and with its reason.
                    let now = Instant::now();
                    assert!(say(&client).await.unwrap_err().is_connection());
                    assert_passed(now, ms(0));
                    ends.push(end.to_string());
                } else {
                    ends.push("nobody is there".to_owned());
                }
                match backoff.delay_after(began.elapsed()) {
                    Some(wait) => sleep(wait).await,
                    None => return ends,
                }
            }
        })
    };
    for restart in 0..4 {
        let stream = accept.recv().await.unwrap();
        let server = echo().build().unwrap();
        let serving = {
            let server = server.clone();
            tokio::spawn(async move { server.serve_connection(stream).await })
        };
        sleep(secs(10)).await;
        assert_eq!(registered.load(Ordering::Relaxed), restart + 1);
        serving.abort();
    }
    drop(accept);
    let ends = timeout(secs(60), application).await.unwrap().unwrap();
    assert_eq!(registered.load(Ordering::Relaxed), 4);
    assert_eq!(ends.len(), 12);
}

// B18: a call that is made again has its whole time again, whatever the first attempt took.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_made_again_has_its_whole_time_again() {
    let (client, mut peer) = scripted(Keepalive::off(), 64 << 10);
    for attempt in 0..3 {
        let start = Instant::now();
        let script = async {
            let (_, request) = peer.request().await;
            assert_eq!(request.timeout_nano, 2_000_000_000, "attempt {attempt}");
        };
        let (late, ()) = tokio::join!(say_within(&client, secs(2)), script);
        assert!(late.unwrap_err().is_deadline());
        assert_passed(start, secs(2));
    }
}
