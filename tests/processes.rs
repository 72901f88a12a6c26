//! Processes that are really stopped and continued. The children are this test program again.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::collections::VecDeque;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use support::*;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{sleep, sleep_until, timeout};
use ttrpc_keepalive::keepalive::{Keepalive, OnSilence};
use ttrpc_keepalive::wire::{MessageType, Request};
use ttrpc_keepalive::{
    Client, Code, ConnectionError, DeadReason, DriverThread, Error, Listener, MethodOptions, Raw,
    Server, Service, State, Status, Support, Verdict,
};

#[test]
fn child_server() {
    let Some(address) = plays("child_server") else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let listener = Listener::bind(&address).await.unwrap();
        println!("\nready");
        let server = echo().build().unwrap();
        tokio::spawn(async move { server.serve(listener).await });
        // Until the parent is gone.
        let wait = || std::io::stdin().read_to_end(&mut Vec::new());
        tokio::task::spawn_blocking(wait).await.unwrap().unwrap();
    });
}

/// `Ask` tells in milliseconds how long its request may have waited, `Refuse` is not run if that is long,
/// and `Count` tells how often it has run.
#[test]
fn child_asked_server() {
    let Some(address) = plays("child_asked_server") else {
        return;
    };
    let dedicated = address.contains("dedicated");
    let mut runtime = if address.contains("one") {
        tokio::runtime::Builder::new_current_thread()
    } else {
        tokio::runtime::Builder::new_multi_thread()
    };
    let runtime = runtime.enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = Listener::bind(&address).await.unwrap();
        println!("\nready");
        let counted = Arc::new(AtomicU32::new(0));
        let server = Server::builder()
            .driver_thread(if dedicated {
                DriverThread::Dedicated
            } else {
                DriverThread::Shared
            })
            .service(
                Service::new("demo.Asked", ())
                    .unary("Ask", |(), context, _: Raw| async move {
                        let waited = context.may_have_waited().as_millis();
                        Ok(Raw(waited.to_string()))
                    })
                    .unary("Refuse", |(), _, q: Raw| async { Ok(q) }),
            )
            .method(
                "demo.Asked",
                "Refuse",
                MethodOptions::new().refuse_waited(secs(1)),
            )
            .service(
                Service::new("demo.Asked", ()).unary("Count", move |(), _, _: Raw| {
                    let count = counted.fetch_add(1, Ordering::Relaxed) + 1;
                    async move { Ok(Raw(count.to_string())) }
                }),
            )
            .build()
            .unwrap();
        tokio::spawn(async move { server.serve(listener).await });
        let wait = || std::io::stdin().read_to_end(&mut Vec::new());
        tokio::task::spawn_blocking(wait).await.unwrap().unwrap();
    });
}

/// Calls a method of it, and yields what it tells.
async fn asked(client: &Client, method: &str) -> Result<u64, Error> {
    let call = client.call::<_, Raw>("demo.Asked", method, &Raw(""));
    let reply = call.timeout(secs(20)).await?;
    let reply = std::str::from_utf8(&reply).unwrap();
    Ok(reply.parse().unwrap_or(0))
}

// Whatever drives its connections: the runtime with many threads or with one, or the thread for it.
#[tokio::test]
async fn a_server_that_was_stopped_knows_that_its_requests_may_have_waited() {
    for kind in ["many", "one", "dedicated"] {
        let address = format!("unix://@{}", address(&format!("asked-{kind}")));
        let server = Process::start("child_asked_server", &address);
        let client = Client::builder().connect(&address).await.unwrap();
        for _ in 0..5 {
            assert_eq!(asked(&client, "Ask").await.unwrap(), 0, "{kind}");
            sleep(ms(150)).await;
        }
        server.signal("-STOP");
        let stopped = Instant::now();
        let calls = async { tokio::join!(asked(&client, "Ask"), asked(&client, "Refuse")) };
        let goes_on = async {
            sleep(secs(2)).await;
            server.signal("-CONT");
        };
        let ((waited, refused), ()) = tokio::join!(calls, goes_on);
        let (waited, most) = (waited.unwrap(), stopped.elapsed() + ms(1000));
        assert!(
            waited >= 1900 && u128::from(waited) <= most.as_millis(),
            "{kind}: {waited}"
        );
        let status = refused.unwrap_err();
        let code = status.status().map(Status::code);
        assert_eq!(code, Some(Code::UNAVAILABLE), "{kind}: {status}");
        sleep(secs(1)).await;
        assert_eq!(asked(&client, "Ask").await.unwrap(), 0, "{kind}");

        // Behind an end nothing is run.
        let gone = Client::builder().connect(&address).await.unwrap();
        let before = asked(&client, "Count").await.unwrap();
        server.signal("-STOP");
        let calls: Vec<_> = (0..200)
            .map(|_| {
                let gone = gone.clone();
                tokio::spawn(async move { asked(&gone, "Count").await })
            })
            .collect();
        sleep(ms(500)).await;
        gone.abort();
        for call in calls {
            call.await.unwrap().unwrap_err();
        }
        server.signal("-CONT");
        assert_eq!(asked(&client, "Count").await.unwrap(), before + 1, "{kind}");
    }
}

/// Knows no PING, as servers of today: `Say` is answered at once, everything else after a while.
#[test]
fn child_old_server() {
    let Some(address) = plays("child_old_server") else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let name = address.trim_start_matches("unix://@");
        let listener = UnixListener::bind(format!("\0{name}")).unwrap();
        println!("\nready");
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve_as_of_old(Peer::new(stream)));
            }
        });
        let wait = || std::io::stdin().read_to_end(&mut Vec::new());
        tokio::task::spawn_blocking(wait).await.unwrap().unwrap();
    });
}

async fn serve_as_of_old(mut peer: Peer<UnixStream>) {
    let mut asleep = VecDeque::new();
    loop {
        let first = asleep.front().map(|(until, _)| *until);
        let wake = async {
            match first {
                Some(until) => sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            frame = peer.next() => match frame {
                Some(frame) if frame.header.message_type == MessageType::REQUEST => {
                    let id = frame.header.stream_id;
                    let request = Request::decode(&frame.payload).unwrap();
                    if &*request.method == "Say" {
                        peer.respond(id).await;
                    } else {
                        asleep.push_back((tokio::time::Instant::now() + ms(2500), id));
                    }
                }
                Some(_) => {}
                None => return,
            },
            () = wake => {
                if let Some((_, id)) = asleep.pop_front() {
                    peer.respond(id).await;
                }
            }
        }
    }
}

const CONNECTIONS: usize = 100;
const TIMEOUT: Duration = ms(800);

/// Watches many peers, and says how many of them it has convicted.
#[test]
fn child_observer() {
    let Some(address) = plays("child_observer") else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let keepalive = Keepalive::every(ms(100)).timeout(TIMEOUT);
        let mut clients = Vec::new();
        for _ in 0..CONNECTIONS {
            let client = Client::builder().keepalive(keepalive.clone());
            clients.push(client.connect(&address).await.unwrap());
        }
        println!("\nready");
        tokio::task::spawn_blocking(wait_for_parent).await.unwrap();
        let ended = clients
            .iter()
            .filter(|client| client.snapshot().state().is_final());
        println!("\nended {}", ended.count());
        let stalls: u64 = clients
            .iter()
            .map(|client| client.snapshot().counters().keepalive.local_stalls)
            .sum();
        println!("\nstalls {stalls}");

        // The peers are silent from now on.
        let start = Instant::now();
        for client in &clients {
            let end = client.closed().await;
            assert_eq!(end.dead_reason(), Some(DeadReason::Silent));
        }
        println!("\nfound {}", start.elapsed().as_millis());
    });
}

// T04, and its twin at the end: the same observer finds peers that are dead.
#[test]
fn an_observer_that_is_stopped_convicts_nobody_who_answered() {
    let name = address("observed");
    let silent = Arc::new(AtomicBool::new(false));
    let stopped = Arc::new(AtomicBool::new(false));
    let answered_meanwhile = Arc::new(AtomicU32::new(0));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let listener = {
        let _entered = runtime.enter();
        let path = format!("\0{name}");
        UnixListener::bind(path).unwrap()
    };
    runtime.spawn({
        let (silent, stopped) = (Arc::clone(&silent), Arc::clone(&stopped));
        let answered_meanwhile = Arc::clone(&answered_meanwhile);
        async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (silent, stopped) = (Arc::clone(&silent), Arc::clone(&stopped));
                let answered_meanwhile = Arc::clone(&answered_meanwhile);
                tokio::spawn(async move {
                    let mut peer = Peer::new(stream);
                    while let Some(frame) = peer.next().await {
                        assert_eq!(frame.header.message_type, MessageType::PING);
                        // Late, so that a PING is out most of the time.
                        sleep(ms(200)).await;
                        if !silent.load(Ordering::Relaxed) {
                            if stopped.load(Ordering::Relaxed) {
                                answered_meanwhile.fetch_add(1, Ordering::Relaxed);
                            }
                            peer.pong(&frame).await;
                        }
                    }
                });
            }
        }
    });

    let mut observer = Process::start("child_observer", &format!("unix://@{name}"));
    std::thread::sleep(ms(500));
    for round in 0..5 {
        observer.signal("-STOP");
        stopped.store(true, Ordering::Relaxed);
        std::thread::sleep(TIMEOUT + ms(300));
        stopped.store(false, Ordering::Relaxed);
        observer.signal("-CONT");
        std::thread::sleep(ms(350 + 30 * round));
    }
    let repetitions = answered_meanwhile.load(Ordering::Relaxed);
    assert!(
        repetitions >= 200,
        "only {repetitions} PINGs were out in a stop"
    );
    silent.store(true, Ordering::Relaxed);
    observer.tell();
    assert_eq!(
        observer.told("ended"),
        "0",
        "of {CONNECTIONS} peers, all alive"
    );
    assert_ne!(observer.told("stalls"), "0", "the stops were seen");
    let found: u64 = observer.told("found").parse().unwrap();
    // 100 ms for the PING and the timeout; the rest is for a machine with other work.
    assert!(found < 4000, "found after {found} ms");
    drop(observer);
    runtime.shutdown_background();
}

// T20
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_process_that_is_only_reported_comes_back_with_its_first_byte() {
    let address = format!("unix://@{}", address("reported"));
    let server = Process::start("child_server", &address);
    let keepalive = Keepalive::every(ms(200))
        .timeout(ms(600))
        .on_silence(OnSilence::Report);
    let client = Client::builder().keepalive(keepalive);
    let client = client.connect(&address).await.unwrap();
    say(&client).await.unwrap();
    let mut liveness = client.liveness();
    let watcher = tokio::spawn(async move {
        let mut seen: Vec<String> = Vec::new();
        loop {
            let snapshot = liveness.next().await.unwrap();
            let name = format!("{} {}", snapshot.state(), snapshot.overdue());
            let back = seen.len() > 2 && matches!(snapshot.state(), State::Alive);
            if seen.last() != Some(&name) {
                seen.push(name);
            }
            if back {
                return seen;
            }
        }
    });
    server.signal("-STOP");
    sleep(ms(1800)).await;
    assert!(client.snapshot().overdue());
    server.signal("-CONT");
    let seen = timeout(secs(20), watcher).await.unwrap().unwrap();
    assert_eq!(
        seen,
        [
            "alive false",
            "suspect false",
            "suspect true",
            "alive false"
        ]
    );
    say(&client).await.unwrap();
    assert_eq!(client.snapshot().counters().keepalive.convictions_silent, 1);
}

// T20 with Close, part 2 number 3
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_process_fails_its_calls_with_one_reason() {
    let address = format!("unix://@{}", address("stopped"));
    let server = Process::start("child_server", &address);
    let client = Client::builder().keepalive(Keepalive::every(ms(200)).timeout(ms(600)));
    let client = client.connect(&address).await.unwrap();
    say(&client).await.unwrap();
    let calls: Vec<_> = (0..10)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { sleep_within(&client, secs(600), secs(900)).await })
        })
        .collect();
    sleep(ms(100)).await;
    server.signal("-STOP");
    let start = Instant::now();
    for call in calls {
        let error = timeout(secs(20), call).await.unwrap().unwrap().unwrap_err();
        let Error::Connection(end, _) = &error else {
            panic!("{error:?}");
        };
        assert_eq!(end.dead_reason(), Some(DeadReason::Silent));
    }
    assert!(start.elapsed() >= ms(600), "{:?}", start.elapsed());
}

// T66 with a real process
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_process_is_unresponsive_at_a_calls_deadline() {
    let address = format!("unix://@{}", address("late"));
    let server = Process::start("child_server", &address);
    let client = Client::builder().connect(&address).await.unwrap();
    say(&client).await.unwrap();
    server.signal("-STOP");
    let start = Instant::now();
    let error = say_within(&client, secs(1)).await.unwrap_err();
    // On a machine with other work this side may have been held up itself, and says so.
    let verdict = error.verdict();
    assert!(
        matches!(verdict, Some(Verdict::Unresponsive | Verdict::LocalStall)),
        "{error}"
    );
    assert!(start.elapsed() >= secs(1));
    server.signal("-CONT");
    timeout(secs(20), error.late_answer().unwrap())
        .await
        .unwrap();
    say(&client).await.unwrap();
}

/// The verdict on a late call, or `None` if this side was held up itself on a machine with other work.
fn verdict_of(error: &Error) -> Option<Verdict> {
    error
        .verdict()
        .filter(|verdict| *verdict != Verdict::LocalStall)
}

// A process that knows no PING, at work and then really stopped.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_knows_no_ping_is_slow_while_it_runs_and_not_reading_while_it_is_stopped() {
    let address = format!("unix://@{}", address("old"));
    let server = Process::start("child_old_server", &address);
    let client = Client::builder().connect(&address).await.unwrap();
    say(&client).await.unwrap();
    assert_eq!(client.snapshot().support(), Support::No);

    let error = sleep_within(&client, secs(3), secs(1)).await.unwrap_err();
    assert!(
        matches!(verdict_of(&error), Some(Verdict::Slow) | None),
        "{error}"
    );
    timeout(secs(20), error.late_answer().unwrap())
        .await
        .unwrap();

    server.signal("-STOP");
    let error = say_within(&client, secs(1)).await.unwrap_err();
    assert!(
        matches!(verdict_of(&error), Some(Verdict::NotReading) | None),
        "{error}"
    );
    server.signal("-CONT");
    timeout(secs(20), error.late_answer().unwrap())
        .await
        .unwrap();
    say(&client).await.unwrap();
    assert_eq!(client.peer(), ttrpc_keepalive::Peer::Alive);
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_process_that_knows_no_ping_is_convicted_when_it_is_stopped() {
    let address = format!("unix://@{}", address("old-idle"));
    let server = Process::start("child_old_server", &address);
    let keepalive = Keepalive::every(ms(200)).timeout(secs(2));
    let client = Client::builder().keepalive(keepalive.watch_by_receipts(true));
    let client = client.connect(&address).await.unwrap();
    say(&client).await.unwrap();
    sleep(secs(1)).await;
    assert!(matches!(client.snapshot().state(), State::Alive));
    server.signal("-STOP");
    let end = timeout(secs(20), client.closed()).await.unwrap();
    assert_eq!(end.dead_reason(), Some(DeadReason::NotReading));
}

// A7, A14, A15, A22: nobody calls, and the end is known all the same, to all who hold the client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_killed_is_noticed_without_a_call_and_told_once_to_each() {
    for idle in [true, false] {
        let address = format!("unix://@{}", address(&format!("killed-{idle}")));
        let server = Process::start("child_server", &address);
        let client = Client::builder().keepalive(Keepalive::every(secs(5)).timeout(secs(5)));
        let client = client.connect(&address).await.unwrap();
        say(&client).await.unwrap();
        let holders: Vec<_> = (0..10)
            .map(|_| {
                let (client, mut liveness) = (client.clone(), client.liveness());
                tokio::spawn(async move {
                    let mut ends = 0;
                    while let Some(seen) = liveness.next().await {
                        ends += u32::from(seen.state().is_final());
                    }
                    (client.closed().await, ends)
                })
            })
            .collect();
        let call = (!idle).then(|| {
            let client = client.clone();
            tokio::spawn(async move { sleep_within(&client, secs(600), secs(900)).await })
        });
        sleep(ms(50)).await;
        let start = Instant::now();
        server.signal("-KILL");
        for holder in holders {
            let (end, ends) = timeout(secs(20), holder).await.unwrap().unwrap();
            assert!(
                matches!(end, ConnectionError::PeerClosed | ConnectionError::Reset(_)),
                "{end:?}"
            );
            assert_eq!(ends, 1);
        }
        assert!(start.elapsed() < secs(4), "{:?}", start.elapsed());
        if let Some(call) = call {
            let error = timeout(secs(20), call).await.unwrap().unwrap().unwrap_err();
            assert!(error.is_connection(), "{error:?}");
        }
        let last = client.snapshot();
        assert!(last.end().is_some() && last.silent_for() >= ms(1));
    }
}
