//! A runtime that is dropped: behind any poll of any of its tasks, whatever they were waiting for then.
//! Nothing hangs and nothing panics, whoever holds a future of it learns the end, and so does the peer.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use protobuf::well_known_types::wrappers::StringValue;
use support::*;
use tokio::io::DuplexStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::timeout;
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::wire::{Flags, PING_STREAM_ID, pong};
use ttrpc_keepalive::{
    Client, ConnectionError, DriverThread, Error, Listener, Server, ServerBuilder,
};

/// Nothing here takes as long.
const LONG: std::time::Duration = secs(30);

/// Polls one task, and then its root again.
fn runtime() -> Runtime {
    Builder::new_current_thread()
        .enable_all()
        .event_interval(1)
        .build()
        .unwrap()
}

/// Lets a runtime poll so many tasks, or its one several times.
fn run(runtime: &Runtime, polls: usize) {
    runtime.block_on(async {
        for _ in 0..polls {
            yield_now().await;
        }
    });
}

/// What somebody waits for, who polls it by himself.
type Held<T> = Pin<Box<dyn Future<Output = T>>>;

/// Polls a task, and then this as one.
fn step<T>(runtime: &Runtime, held: &mut Held<T>) -> Option<T> {
    run(runtime, 1);
    runtime.block_on(poll_fn(|cx| match held.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => Poll::Ready(None),
    }))
}

/// Waits for it on another runtime: the one it began on is gone.
fn on_another<T>(held: impl Future<Output = T>, of: &str) -> T {
    let ended = runtime().block_on(async { timeout(LONG, held).await });
    ended.unwrap_or_else(|_| panic!("{of} hangs"))
}

/// Calls and streams of each kind, one after the other. The last one is late.
async fn calls(client: Client) -> Result<(), Error> {
    say(&client).await?;
    say_within(&client, LONG).await?;
    // In several pieces.
    say_large(&client, 3000).await?;
    let mut lines = client
        .server_stream::<_, StringValue>(SERVICE, "Count", &text("3"))
        .timeout(LONG)
        .await?;
    while let Some(line) = lines.next().await {
        line?;
    }
    let (sender, reply) = client
        .client_stream::<_, StringValue>(SERVICE, "Join")
        .timeout(LONG)
        .await?;
    sender.send(&text("a")).await?;
    sender.send(&text(&"b".repeat(3000))).await?;
    sender.finish();
    reply.await?;
    let (sender, mut receiver) = client.bidi_stream(SERVICE, "Echo").await?;
    for _ in 0..2 {
        sender.send(&text("a")).await?;
        let back: StringValue = receiver.next().await.expect("it goes on")?;
        assert_eq!(back.value, "a");
    }
    sender.finish();
    assert!(receiver.next().await.transpose()?.is_none());
    client.probe(LONG).await?;
    let late = sleep_within(&client, ms(2), ms(1)).await;
    if let Some(answer) = late.err().and_then(|error| error.late_answer()) {
        answer.await;
    }
    Ok(())
}

/// The same, in a task, and one that waits for the end.
fn in_tasks(client: &Client) -> [JoinHandle<()>; 2] {
    let (calling, waiting) = (client.clone(), client.clone());
    [
        tokio::spawn(async move {
            let _ = calls(calling).await;
        }),
        tokio::spawn(async move {
            waiting.closed().await;
        }),
    ]
}

/// Both ends of a connection, each on its own runtime. Less goes into the pipe than is sent at once.
struct Ends {
    clients: Option<Runtime>,
    servers: Option<Runtime>,
    client: Client,
    server: Server,
    serving: JoinHandle<ConnectionError>,
}

impl Ends {
    fn new(client: DriverThread, server: ServerBuilder) -> Self {
        let (clients, servers) = (runtime(), runtime());
        let (here, there) = tokio::io::duplex(1024);
        let server = server.build().unwrap();
        let serving = {
            let server = server.clone();
            servers.spawn(async move { server.serve_connection(there).await })
        };
        let client = {
            let _entered = clients.enter();
            Client::builder()
                .driver_thread(client)
                .keepalive(Keepalive::every(secs(10)).timeout(secs(10)))
                .attach(here)
                .unwrap()
        };
        Self {
            clients: Some(clients),
            servers: Some(servers),
            client,
            server,
            serving,
        }
    }

    /// Lets each side poll a task and this, until it is done, or so often.
    fn play<T>(&self, held: &mut Held<T>, steps: usize) -> Option<T> {
        let (clients, servers) = (
            self.clients.as_ref().unwrap(),
            self.servers.as_ref().unwrap(),
        );
        for _ in 0..steps {
            let done = step(clients, held);
            if done.is_some() {
                return done;
            }
            run(servers, 1);
        }
        None
    }
}

/// Calls this with 0, 1, 2 and so on, until it says that nothing was cut off any more.
fn at_each_step(play: impl Fn(usize) -> bool) {
    let mut steps = 0;
    while !play(steps) {
        steps += 1;
        assert!(steps < 5000, "it never comes to its end");
    }
    assert!(
        steps > 20,
        "only {steps} steps: it was over too soon to be cut off"
    );
}

#[test]
fn whoever_holds_something_of_a_client_whose_runtime_is_dropped_learns_the_end() {
    at_each_step(|steps| {
        let mut ends = Ends::new(DriverThread::Shared, streams());
        let tasks = {
            let _entered = ends.clients.as_ref().unwrap().enter();
            in_tasks(&ends.client)
        };
        let mut held: Held<_> = Box::pin(calls(ends.client.clone()));
        let done = ends.play(&mut held, steps);
        drop(ends.clients.take());

        assert!(tasks.iter().all(JoinHandle::is_finished));
        match done {
            Some(Ok(())) => return true,
            Some(Err(error)) => panic!("at {steps}: {error}"),
            None => {}
        }
        let at = format!("what is held at {steps}");
        // Only one that waits for a late answer has nothing more to fail.
        if let Err(error) = on_another(held, &at) {
            assert!(error.is_connection(), "{at}: {error}");
        }
        let end = on_another(ends.client.closed(), "the end");
        assert!(matches!(end, ConnectionError::Abandoned), "{at}: {end}");
        // It says what was not sent, if there is something.
        let _ = on_another(ends.client.close(), "closing");
        let later = on_another(say(&ends.client), "a later call").unwrap_err();
        assert!(later.is_connection(), "{at}: {later}");
        assert!(ends.client.snapshot().state().is_final());

        // Its peer learns it by the end of the stream.
        let servers = ends.servers.take().unwrap();
        let told = servers.block_on(async { timeout(LONG, ends.serving).await });
        let told = told.expect("the server is told").unwrap();
        assert!(
            matches!(told, ConnectionError::PeerClosed | ConnectionError::Torn),
            "{at}: {told}"
        );
        let server = ends.server;
        assert!(
            servers.block_on(async { server.shutdown(LONG).await }),
            "{at}"
        );
        false
    });
}

#[test]
fn the_clients_of_a_server_whose_runtime_is_dropped_learn_the_end() {
    at_each_step(|steps| {
        let mut ends = Ends::new(DriverThread::Shared, streams());
        let mut held: Held<_> = Box::pin(calls(ends.client.clone()));
        let done = ends.play(&mut held, steps);
        drop(ends.servers.take());

        assert!(ends.serving.is_finished());
        if done.is_some() {
            return true;
        }
        let at = format!("at {steps}");
        let clients = ends.clients.take().unwrap();
        let told = clients.block_on(async { timeout(LONG, held).await });
        // The last answer may have been on its way.
        if let Err(error) = told.expect("the calls are told") {
            assert!(error.is_connection(), "{at}: {error}");
        }
        let end = clients.block_on(async { timeout(LONG, ends.client.closed()).await });
        let end = end.expect("the client is told");
        assert!(
            matches!(
                end,
                ConnectionError::PeerClosed
                    | ConnectionError::Torn
                    | ConnectionError::BrokenPipe(_)
            ),
            "{at}: {end}"
        );
        on_another(
            ends.server.shutdown(secs(1)),
            "a shutdown that comes too late",
        );
        false
    });
}

#[test]
fn a_client_that_is_being_closed_as_its_runtime_is_dropped_is_closed() {
    at_each_step(|steps| {
        let mut ends = Ends::new(DriverThread::Shared, streams());
        let client = ends.client.clone();
        let mut held: Held<_> = Box::pin(async move {
            let call = client.client_stream::<StringValue, StringValue>(SERVICE, "Join");
            let (sender, reply) = call.await?;
            for _ in 0..20 {
                sender.send(&text(&"x".repeat(1000))).await?;
            }
            sender.finish();
            drop(reply);
            // It says what was not sent.
            let _ = client.close().await;
            Ok::<_, Error>(())
        });
        let done = ends.play(&mut held, steps);
        drop(ends.clients.take());

        if done.is_none() {
            let _ = on_another(held, &format!("closing at {steps}"));
        }
        let end = on_another(ends.client.closed(), "the end");
        assert!(
            matches!(
                end,
                ConnectionError::Abandoned | ConnectionError::LocalClose
            ),
            "at {steps}: {end}"
        );
        let servers = ends.servers.take().unwrap();
        let told = servers.block_on(async { timeout(LONG, ends.serving).await });
        told.expect("the server is told").unwrap();
        done.is_some()
    });
}

#[test]
fn a_shutdown_whose_runtime_is_dropped_ends_in_its_time_and_the_client_is_told() {
    // Time passes as it likes: with the last of them it has ended by itself.
    for steps in 0..45 {
        let mut ends = Ends::new(DriverThread::Shared, streams());
        let client = ends.client.clone();
        // Longer than the shutdown waits.
        let mut held: Held<_> =
            Box::pin(async move { sleep_within(&client, secs(600), LONG).await });
        assert!(ends.play(&mut held, 15).is_none());
        let stopping = ends.server.clone();
        let mut shutdown: Held<_> = Box::pin(async move { stopping.shutdown(ms(20)).await });
        let servers = ends.servers.take().unwrap();
        let clients = ends.clients.take().unwrap();
        let (mut drained, mut called) = (None, None);
        for _ in 0..steps {
            std::thread::sleep(std::time::Duration::from_micros(500));
            drained = step(&servers, &mut shutdown);
            if drained.is_some() {
                break;
            }
            called = called.or_else(|| step(&clients, &mut held));
        }
        drop(servers);

        if drained.is_none() {
            on_another(shutdown, "a shutdown");
        }
        let end = clients.block_on(async { timeout(LONG, ends.client.closed()).await });
        end.expect("the client is told");
        if called.is_none() {
            let told = clients.block_on(async { timeout(LONG, held).await });
            told.expect("the call is told").unwrap_err();
        }
    }
}

#[test]
fn a_server_of_a_listener_whose_runtime_is_dropped_lets_all_of_its_clients_go() {
    at_each_step(|steps| {
        let (clients, servers) = (runtime(), runtime());
        let (connect, connections) = mpsc::channel::<DuplexStream>(4);
        let server = streams().build().unwrap();
        servers.spawn({
            let server = server.clone();
            async move { server.serve(connections).await }
        });
        let held: Vec<Client> = (0..3)
            .map(|_| {
                let (here, there) = tokio::io::duplex(1024);
                connect.try_send(there).unwrap();
                let _entered = clients.enter();
                Client::builder().attach(here).unwrap()
            })
            .collect();
        let mut all: Vec<Held<_>> = held
            .iter()
            .map(|client| -> Held<_> { Box::pin(calls(client.clone())) })
            .collect();
        let mut done = 0;
        for _ in 0..steps {
            all.retain_mut(|calls| {
                let ended = step(&clients, calls);
                done += usize::from(ended.is_some());
                ended.is_none()
            });
            run(&servers, 3);
        }
        drop(servers);
        for calls in all {
            let told = clients.block_on(async { timeout(LONG, calls).await });
            let _ = told.expect("the calls are told");
        }
        for client in held {
            let end = clients.block_on(async { timeout(LONG, client.closed()).await });
            end.expect("the client is told");
        }
        assert!(connect.is_closed());
        done == 3
    });
}

// With a thread of its own the connection goes on, whichever runtime its callers are on.
#[test]
fn a_client_with_a_thread_of_its_own_goes_on_when_its_runtime_is_dropped() {
    for steps in (0..200).step_by(7) {
        let mut ends = Ends::new(DriverThread::Dedicated, streams());
        let mut held: Held<_> = Box::pin(calls(ends.client.clone()));
        let done = ends.play(&mut held, steps);
        drop(ends.clients.take());
        let servers = ends.servers.take().unwrap();
        std::thread::scope(|scope| {
            let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
            scope.spawn(move || {
                servers.block_on(async {
                    let _ = stopped.await;
                });
            });
            if done.is_none() {
                on_another(held, "what is held").unwrap();
            }
            on_another(say(&ends.client), "a later call").unwrap();
            on_another(ends.client.close(), "closing").unwrap();
            drop(stop);
        });
    }
}

#[test]
fn who_is_connecting_as_the_runtime_is_dropped_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("unix://{}", folder.path().join("s").display());
    let servers = runtime();
    let _listener = servers.block_on(Listener::bind(&address)).unwrap();
    for (address, retry) in [
        (address.clone(), false),
        (address.clone(), true),
        (format!("{address}-not-there"), true),
        ("tcp://localhost:1".to_owned(), true),
    ] {
        for steps in 0..12 {
            let clients = runtime();
            let mut builder = Client::builder().connect_timeout(ms(50));
            if retry {
                builder = builder.connect_retry(ms(1));
            }
            let to = address.clone();
            let mut held: Held<_> = Box::pin(async move { builder.connect(&to).await });
            let mut done = None;
            for _ in 0..steps {
                done = step(&clients, &mut held);
                if done.is_some() {
                    break;
                }
            }
            clients.shutdown_timeout(secs(5));
            match done {
                Some(connected) => {
                    if let Ok(client) = connected {
                        on_another(client.closed(), "the end");
                    }
                }
                None => drop(on_another(
                    held,
                    &format!("connecting to {address} at {steps}"),
                )),
            }
        }
    }
}

/// Answers the next PING, with a remark on its handlers.
async fn answers(client: &Client, peer: &mut Peer<DuplexStream>, flags: Flags) {
    let (probed, ()) = tokio::join!(client.probe(LONG), async {
        let ping = peer.frame().await;
        peer.send(pong(PING_STREAM_ID, flags, &ping.payload)).await;
    });
    probed.unwrap();
}

// What changes back at once is held back for 100 ms, by a timer.
#[test]
fn a_watcher_goes_on_when_the_runtime_on_which_it_waited_is_dropped() {
    let here = runtime();
    let client = Client::builder().driver_thread(DriverThread::Dedicated);
    let (client, mut peer) = attached(client, 1 << 16);
    here.block_on(async {
        let (said, ()) = tokio::join!(say(&client), peer.first_exchange());
        said.unwrap();
    });
    // On a machine with other work it may take longer, and nothing is held back.
    let waits = (0..50).any(|_| {
        here.block_on(answers(&client, &mut peer, Flags::NONE));
        std::thread::sleep(ms(150));
        let mut liveness = client.liveness();
        let there = runtime();
        let next = there.block_on(liveness.next()).unwrap();
        assert!(!next.handlers_stalled());
        here.block_on(answers(&client, &mut peer, Flags::HANDLERS_STALLED));
        let next = there.block_on(async { timeout(LONG, liveness.next()).await });
        assert!(next.unwrap().unwrap().handlers_stalled());
        here.block_on(answers(&client, &mut peer, Flags::NONE));
        let mut next: Held<_> = Box::pin(async move { liveness.next().await });
        let at_once = step(&there, &mut next);
        drop(there);
        if at_once.is_some() {
            return false;
        }
        let told = here.block_on(async { timeout(LONG, next).await });
        assert!(!told.expect("it is told").unwrap().handlers_stalled());
        true
    });
    assert!(waits, "nothing was held back");
}
