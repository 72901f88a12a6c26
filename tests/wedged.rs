//! Answering does not depend on handlers: what a handler that keeps its thread does to PINGs, by
//! which thread drives the connection. Real threads and real time, with margins that are wide.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::task::{Context as TaskContext, Poll};
use std::thread;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use protobuf::well_known_types::wrappers::StringValue;
use support::*;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};
use ttrpc_keepalive::keepalive::{Keepalive, OnSilence};
use ttrpc_keepalive::transport::{Look, Transport};
use ttrpc_keepalive::wire::{Flags, MessageType, ping, ping_number};
use ttrpc_keepalive::{
    ByteStream, Client, ClientBuilder, ConnectionError, Context, DeadReason, DriverThread, Error,
    LateOutcome, Listener, Peer as Summary, Requests, Responses, ServerBuilder, Service, State,
    Status, Verdict,
};

/// How long a blocked handler keeps its thread: far more than a loaded machine delays one.
const BLOCK: Duration = secs(5);

// T16
#[tokio::test]
async fn pongs_of_a_dedicated_driver_come_while_a_handler_blocks_and_tell_of_it() {
    let mut peer = Peer::new(serve(one_thread(), blocking(DriverThread::Dedicated)));
    // The canary of this PING runs before this call is answered.
    assert!(!ask(&mut peer, 1).await.1);
    peer.call(1, "Say", "hello").await;
    assert_eq!(peer.frame().await.header.stream_id, 1);

    let begun = Instant::now();
    peer.call(3, "Block", &BLOCK.as_millis().to_string()).await;
    let mut waits = Vec::new();
    while begun.elapsed() < BLOCK - secs(1) {
        let asked = begun.elapsed();
        let (waited, stalled) = ask(&mut peer, 2).await;
        waits.push(waited);
        if begun.elapsed() < ms(100) {
            assert!(!stalled, "it has not been stuck for that long");
        }
        if asked > secs(1) {
            assert!(stalled, "after {asked:?}");
        }
        sleep(ms(20)).await;
    }
    waits.sort_unstable();
    let (median, longest) = (waits[waits.len() / 2], waits[waits.len() - 1]);
    println!("{} PONGs, {median:?}, at most {longest:?}", waits.len());
    assert!(waits.len() > 10 && median < ms(100) && longest < secs(1));

    assert_eq!(peer.frame().await.header.stream_id, 3, "the answer");
    let cleared = async { while ask(&mut peer, 3).await.1 {} };
    timeout(secs(10), cleared).await.expect("it has run since");
}

// T17
#[tokio::test]
async fn a_blocked_handler_makes_a_process_with_a_shared_driver_look_dead() {
    let client = Client::builder().keepalive(watch());
    let client = called(client, one_thread(), blocking(DriverThread::Shared));
    assert!(say(&client).await.is_ok());
    let begun = Instant::now();
    let error = block(&client, BLOCK, secs(60)).await.unwrap_err();
    assert!(begun.elapsed() < BLOCK, "it has not ended yet");
    let end = client.closed().await;
    assert_eq!(end.dead_reason(), Some(DeadReason::Silent), "{error}");
    let counters = client.snapshot().counters().keepalive;
    assert_eq!(counters.suspect_entries, 1);
}

// A8: told with how long it lasts, and over without a new connection.
#[tokio::test]
async fn a_blocked_process_that_is_only_reported_is_suspect_for_that_time_and_then_alive() {
    let client = Client::builder().keepalive(watch().on_silence(OnSilence::Report));
    let client = called(client, one_thread(), blocking(DriverThread::Shared));
    assert!(say(&client).await.is_ok());
    let mut liveness = client.liveness();
    let blocked = block(&client, BLOCK, secs(60));
    let suspected = async {
        while !matches!(liveness.next().await.unwrap().state(), State::Suspect) {}
        let seen = client.snapshot();
        assert!(seen.silent_for() >= ms(500) && seen.in_state_for() < BLOCK);
    };
    let (answer, ()) = tokio::join!(blocked, suspected);
    assert!(answer.is_ok());
    assert!(say(&client).await.is_ok());
    assert!(matches!(client.snapshot().state(), State::Alive));
}

// RFC KA-19
#[tokio::test]
async fn the_same_with_a_dedicated_driver_is_never_doubted() {
    let client = Client::builder().keepalive(watch());
    let client = called(client, one_thread(), blocking(DriverThread::Dedicated));
    assert!(say(&client).await.is_ok());
    assert!(block(&client, BLOCK, secs(60)).await.is_ok());
    let counters = client.snapshot().counters().keepalive;
    assert_eq!(counters.suspect_entries, 0);
}

// T18
#[tokio::test]
async fn handlers_that_block_each_others_threads_are_stalled_and_not_slow() {
    let locks = [Arc::new(Mutex::new(())), Arc::new(Mutex::new(()))];
    let both = Arc::new(Barrier::new(2));
    let takes = |first: usize| {
        let (locks, both) = (locks.clone(), Arc::clone(&both));
        move |(), _: Context, q: StringValue| {
            let (locks, both) = (locks.clone(), Arc::clone(&both));
            async move {
                let _first = locks[first].lock();
                both.wait();
                // For ever: the other handler has it, and waits for the first.
                let _second = locks[1 - first].lock();
                Ok::<_, Status>(q)
            }
        }
    };
    let server = blocking(DriverThread::Dedicated).service(
        Service::new("demo.Echo", ())
            .unary("Left", takes(0))
            .unary("Right", takes(1)),
    );
    let client = called(asking(), two_threads(), server);
    let request = text("hello");
    let call = |method| {
        let call = client.call::<_, StringValue>("demo.Echo", method, &request);
        call.timeout(secs(2)).into_future()
    };
    let (left, right) = tokio::join!(call("Left"), call("Right"));
    for error in [left.unwrap_err(), right.unwrap_err()] {
        assert_eq!(error.verdict(), Some(Verdict::HandlersStalled), "{error}");
    }
}

/// The limit of what a canary sees.
#[tokio::test]
async fn a_task_that_waits_without_a_thread_is_only_slow() {
    let client = called(asking(), one_thread(), blocking(DriverThread::Dedicated));
    let error = sleep_within(&client, BLOCK, secs(2)).await.unwrap_err();
    assert_eq!(error.verdict(), Some(Verdict::Slow), "{error}");
}

// T81
#[tokio::test]
async fn a_wedged_handler_is_found_at_the_first_deadline_and_well_again_after_its_answer() {
    let client = called(asking(), one_thread(), blocking(DriverThread::Dedicated));
    let error = block(&client, BLOCK, secs(2)).await.unwrap_err();
    assert_eq!(error.verdict(), Some(Verdict::HandlersStalled), "{error}");
    assert_eq!(error.peer(), Summary::Alive);
    assert!(client.snapshot().handlers_stalled());

    let answer = error.late_answer().unwrap().await;
    assert!(matches!(answer, LateOutcome::Answered { .. }), "{answer:?}");
    assert!(say_within(&client, secs(10)).await.is_ok());
    let cleared = async {
        while client.snapshot().handlers_stalled() {
            client.probe(secs(10)).await.unwrap();
        }
    };
    timeout(secs(10), cleared).await.unwrap();
}

// T81
#[tokio::test]
async fn two_pings_a_millisecond_apart_do_not_set_the_flag_on_a_busy_runtime() {
    let runtime = one_thread();
    let done = Arc::new(AtomicBool::new(false));
    let turns = Arc::new(Mutex::new((Instant::now(), Duration::ZERO)));
    let longest_pause = |turns: &Mutex<(Instant, Duration)>| {
        let mut turns = turns.lock().unwrap();
        turns.1 = turns.1.max(turns.0.elapsed());
        turns.1
    };
    for _ in 0..4 {
        let (done, turns) = (Arc::clone(&done), Arc::clone(&turns));
        runtime.spawn(async move {
            while !done.load(Ordering::Relaxed) {
                longest_pause(&turns);
                turns.lock().unwrap().0 = Instant::now();
                while turns.lock().unwrap().0.elapsed() < ms(1) {
                    std::hint::spin_loop();
                }
                tokio::task::yield_now().await;
            }
        });
    }
    let mut peer = Peer::new(serve(runtime, blocking(DriverThread::Dedicated)));
    for pair in 0..50 {
        peer.send(ping(2 * pair)).await;
        sleep(ms(1)).await;
        let (_, stalled) = ask(&mut peer, 2 * pair + 1).await;
        // Unless the machine really did not let it run.
        let healthy = longest_pause(&turns) < ms(30);
        assert!(!(stalled && healthy), "pair {pair}");
        sleep(ms(20)).await;
    }
    done.store(true, Ordering::Relaxed);
}

// T82
#[tokio::test]
async fn a_handler_that_wakes_the_driver_and_then_blocks_holds_up_no_dedicated_one() {
    let shared = woken_and_blocked(DriverThread::Shared).await;
    let dedicated = woken_and_blocked(DriverThread::Dedicated).await;
    // The scheduler may leave a shared one where it was woken, or may not.
    println!("PONG after {dedicated:?} with a thread of its own, {shared:?} without");
    assert!(dedicated < secs(1), "{dedicated:?}");
}

/// A handler on a runtime with two threads sends a PING to its own server and blocks for 2 s. How
/// long the PONG took.
async fn woken_and_blocked(thread: DriverThread) -> Duration {
    let (here, there) = tokio::io::duplex(4096);
    let peer = Arc::new(tokio::sync::Mutex::new(Peer::new(here)));
    let (asked, asking) = mpsc::channel();
    let server = {
        let peer = Arc::clone(&peer);
        blocking(thread).service(Service::new("demo.Echo", ()).unary(
            "Wake",
            move |(), _, q: StringValue| {
                let (peer, asked) = (Arc::clone(&peer), asked.clone());
                async move {
                    peer.lock().await.send(ping(1)).await;
                    asked.send(Instant::now()).unwrap();
                    thread::sleep(secs(2));
                    Ok(q)
                }
            },
        ))
    };
    let server = server.build().unwrap();
    let runtime = two_threads();
    runtime.spawn(async move { server.serve_connection(there).await });
    peer.lock().await.call(1, "Wake", "hello").await;
    let asked = asking.recv_timeout(secs(10)).unwrap();
    let pong = peer.lock().await.frame().await;
    let took = asked.elapsed();
    assert_eq!(pong.header.message_type, MessageType::PONG);
    runtime.shutdown_background();
    took
}

#[tokio::test]
async fn handlers_run_on_the_runtime_that_serves_whichever_thread_drives() {
    for thread in [DriverThread::Shared, DriverThread::Dedicated] {
        let client = called(Client::builder(), one_thread(), blocking(thread));
        let request = text("");
        let call = client.call::<_, StringValue>("demo.Echo", "Thread", &request);
        assert_eq!(call.await.unwrap().value, "serving", "{thread:?}");

        let call = client.server_stream::<_, StringValue>("demo.Stream", "Down", &request);
        let message = call.await.unwrap().next().await.unwrap();
        assert_eq!(message.unwrap().value, "serving", "{thread:?}");

        let call = client.client_stream::<StringValue, StringValue>("demo.Stream", "Up");
        let (_requests, reply) = call.await.unwrap();
        assert_eq!(reply.await.unwrap().value, "serving", "{thread:?}");
    }
}

#[tokio::test]
async fn a_client_with_a_dedicated_driver_outlives_the_runtime_it_was_made_on() {
    for thread in [DriverThread::Shared, DriverThread::Dedicated] {
        let stream = serve(one_thread(), blocking(DriverThread::Shared));
        let stream = stream.into_std().unwrap();
        let maker = one_thread();
        let client = {
            let _entered = maker.enter();
            let stream = UnixStream::from_std(stream).unwrap();
            let client = Client::builder().driver_thread(thread);
            client.attach(stream).unwrap()
        };
        maker.shutdown_background();
        let said = say(&client).await;
        match thread {
            DriverThread::Dedicated => assert!(said.is_ok(), "{said:?}"),
            _ => assert!(
                matches!(said, Err(Error::Connection(ConnectionError::Abandoned, ..))),
                "{said:?}"
            ),
        }
    }
}

#[tokio::test]
async fn the_last_handle_of_a_client_with_a_dedicated_driver_closes_it() {
    let (here, there) = UnixStream::pair().unwrap();
    let client = Client::builder().driver_thread(DriverThread::Dedicated);
    let client = client.attach(here).unwrap();
    let mut peer = Peer::new(there);
    let clone = client.clone();
    drop(client);
    let answering = async {
        peer.first_exchange().await;
        peer
    };
    let (said, mut peer) = tokio::join!(say(&clone), answering);
    assert!(said.is_ok());
    drop(clone);
    let ended = timeout(secs(10), peer.next()).await;
    assert!(ended.expect("it is closed").is_none());
}

#[tokio::test]
async fn dropping_the_future_that_serves_ends_a_connection_that_is_driven_elsewhere() {
    let (here, there) = UnixStream::pair().unwrap();
    let server = blocking(DriverThread::Dedicated).build().unwrap();
    let serving = tokio::spawn(async move { server.serve_connection(there).await });
    let client = Client::builder().attach(here).unwrap();
    assert!(say(&client).await.is_ok());
    serving.abort();
    let end = timeout(secs(10), client.closed()).await;
    assert!(matches!(end, Ok(ConnectionError::PeerClosed)), "{end:?}");
}

#[tokio::test]
async fn a_shutdown_drains_connections_that_are_driven_elsewhere() {
    let name = format!("unix://@ttrpc-keepalive-wedged-{}", std::process::id());
    let listener = Listener::bind(&name).await.unwrap();
    let server = blocking(DriverThread::Dedicated).build().unwrap();
    let serving = {
        let server = server.clone();
        tokio::spawn(async move { server.serve(listener).await })
    };
    let client = Client::builder().connect(&name).await.unwrap();
    assert!(say(&client).await.is_ok());
    let running = {
        let client = client.clone();
        tokio::spawn(async move { sleep_within(&client, secs(1), secs(60)).await })
    };
    sleep(ms(200)).await;
    assert!(server.shutdown(secs(30)).await, "all ended in time");
    assert!(running.await.unwrap().is_ok(), "the call was answered");
    serving.await.unwrap();
    assert!(matches!(client.closed().await, ConnectionError::PeerClosed));
}

#[tokio::test]
async fn a_stream_that_cannot_move_to_the_dedicated_thread_ends_its_connection_with_the_error() {
    for thread in [DriverThread::Shared, DriverThread::Dedicated] {
        let (here, there) = tokio::io::duplex(4096);
        let server = blocking(thread).build().unwrap();
        let serving = server.serve_connection(Rooted(ByteStream::new(here)));
        let client = Client::builder().driver_thread(DriverThread::Dedicated);
        let client = client.attach(there).unwrap();
        let calling = async {
            let said = say(&client).await;
            drop(client);
            said
        };
        let (end, said) = tokio::join!(serving, calling);
        let moves = thread == DriverThread::Dedicated;
        assert_eq!(matches!(end, ConnectionError::Io(_)), moves, "{end}");
        assert_eq!(said.is_err(), moves);
    }
}

/// A stream that stays where it is.
struct Rooted(ByteStream<DuplexStream>);

impl Transport for Rooted {
    fn poll_read(
        &mut self,
        cx: &mut TaskContext<'_>,
        buffer: &mut BytesMut,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        self.0.poll_read(cx, buffer, limit)
    }

    fn poll_write(
        &mut self,
        cx: &mut TaskContext<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_write(cx, slices)
    }

    fn enter(&mut self) -> io::Result<()> {
        Err(io::Error::other("rooted"))
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_takes_no_turn_for_the_canary() {
    for has_asked in [true, false] {
        let (here, there) = tokio::io::duplex(4096);
        let there = Hooked::new(there).on_look(|_| Look::Empty);
        let reads = there.reads();
        let server = blocking(DriverThread::Shared).build().unwrap();
        tokio::spawn(async move { server.serve_connection(there).await });
        let mut peer = Peer::new(here);
        if has_asked {
            assert!(!ask(&mut peer, 1).await.1);
        }
        peer.call(1, "Say", "hello").await;
        assert_eq!(peer.frame().await.header.stream_id, 1);
        // Who has asked may ask again while the request waits; nobody else would see the flag.
        sleep(ms(1)).await;
        let before = reads.load(Ordering::Relaxed);
        sleep(ms(200)).await;
        assert_eq!(reads.load(Ordering::Relaxed) > before, has_asked);

        let before = reads.load(Ordering::Relaxed);
        sleep(secs(3600)).await;
        assert_eq!(reads.load(Ordering::Relaxed), before, "{has_asked}");
    }
}

/// Serves one connection on a thread of its own, in which that runtime is entered.
fn serve(runtime: Runtime, server: ServerBuilder) -> UnixStream {
    let (here, there) = UnixStream::pair().unwrap();
    let there = there.into_std().unwrap();
    let server = server.build().unwrap();
    let serving = move || {
        runtime.block_on(async {
            let there = UnixStream::from_std(there).unwrap();
            server.serve_connection(there).await
        })
    };
    let named = thread::Builder::new().name("serving".to_owned());
    named.spawn(serving).unwrap();
    here
}

fn called(client: ClientBuilder, runtime: Runtime, server: ServerBuilder) -> Client {
    client.attach(serve(runtime, server)).unwrap()
}

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn two_threads() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

/// The methods of the echo server; `Block`, which keeps its thread for so many milliseconds; and
/// `Thread`, which tells the name of the one it runs on, as `Down` and `Up` do.
fn blocking(thread: DriverThread) -> ServerBuilder {
    echo()
        .driver_thread(thread)
        .service(
            Service::new("demo.Echo", ())
                .unary("Block", |(), _, q: StringValue| async move {
                    thread::sleep(ms(q.value.parse().unwrap()));
                    Ok(q)
                })
                .unary("Thread", |(), _, _: StringValue| async {
                    Ok(thread_name())
                }),
        )
        .service(
            Service::new("demo.Stream", ())
                .server_stream(
                    "Down",
                    |(), _, _: StringValue, out: Responses<StringValue>| async move {
                        out.send(&thread_name()).await
                    },
                )
                .client_stream("Up", |(), _, _: Requests<StringValue>| async {
                    Ok(thread_name())
                }),
        )
}

fn thread_name() -> StringValue {
    text(thread::current().name().unwrap_or_default())
}

/// Asks 1 s before a deadline. Its driver may be late by half of that before a verdict says so.
fn asking() -> ClientBuilder {
    let keepalive = Keepalive::on_demand().probe_before_deadline(secs(1));
    Client::builder().keepalive(keepalive)
}

/// Convicts within half of the time for which a handler blocks.
fn watch() -> Keepalive {
    Keepalive::every(ms(200)).timeout(secs(1))
}

async fn block(client: &Client, time: Duration, limit: Duration) -> Result<StringValue, Error> {
    let request = text(&time.as_millis().to_string());
    let call = client.call("demo.Echo", "Block", &request);
    call.timeout(limit).await
}

/// Sends a PING and waits for its PONG: how long that took, and whether handlers are stalled
/// (RFC KA-12).
async fn ask<S: AsyncRead + AsyncWrite + Unpin>(
    peer: &mut Peer<S>,
    number: u64,
) -> (Duration, bool) {
    let begun = Instant::now();
    peer.send(ping(number)).await;
    loop {
        let pong = peer.frame().await;
        assert_eq!(pong.header.message_type, MessageType::PONG, "{pong:?}");
        if ping_number(&pong.payload) == Some(number) {
            let stalled = pong.header.flags.contains(Flags::HANDLERS_STALLED);
            return (begun.elapsed(), stalled);
        }
    }
}
