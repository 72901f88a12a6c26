//! Handlers that keep their threads, on a runtime with several, beside others that came with them.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use protobuf::well_known_types::wrappers::StringValue;
use support::*;
use tokio::io::DuplexStream;
use ttrpc_keepalive::wire::{Flags, Header, MessageType, ping};
use ttrpc_keepalive::{Code, DriverThread, Server, Service, Status};

/// Lets handlers go on that block.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    /// Keeps the thread until then; not for ever, or a test that fails could not end.
    fn block(&self) -> Result<(), Status> {
        let open = self.0.0.lock().unwrap();
        let waited = self.0.1.wait_timeout_while(open, secs(20), |open| !*open);
        if waited.unwrap().1.timed_out() {
            return Err(Status::new(Code::ABORTED, "nobody has opened the gate"));
        }
        Ok(())
    }
}

/// `Block` keeps its thread until the gate is open, `PauseAndBlock` after a pause, `Open` opens it;
/// `Compute` takes longer than most, and `Say` no time.
fn server(thread: DriverThread) -> Server {
    let gate = Gate::default();
    let (block, pause, open) = (gate.clone(), gate.clone(), gate);
    echo()
        .driver_thread(thread)
        .service(
            Service::new("demo.Echo", ())
                .unary("Compute", |(), _, q: StringValue| async {
                    let begun = Instant::now();
                    while begun.elapsed() < Duration::from_micros(300) {}
                    Ok(q)
                })
                .unary("Block", move |(), _, q: StringValue| {
                    let gate = block.clone();
                    async move { gate.block().map(|()| q) }
                })
                .unary("PauseAndBlock", move |(), _, q: StringValue| {
                    let gate = pause.clone();
                    async move {
                        tokio::task::yield_now().await;
                        gate.block().map(|()| q)
                    }
                })
                .unary("Open", move |(), _, q: StringValue| {
                    open.open();
                    async { Ok(q) }
                }),
        )
        .build()
        .unwrap()
}

/// The requests are read together.
fn served_with(server: Server, requests: &[u8]) -> impl Future<Output = Peer<DuplexStream>> {
    let (here, there) = tokio::io::duplex(1 << 20);
    let mut peer = Peer::new(there);
    async move {
        peer.send(requests).await;
        tokio::spawn(async move { server.serve_connection(here).await });
        peer
    }
}

async fn all_are_answered(thread: DriverThread, methods: &[&str]) {
    let mut peer = served_with(server(thread), &requests(1, methods)).await;
    for _ in methods {
        let (id, response) = peer.expect_response().await;
        assert_eq!(
            response.status, None,
            "{thread:?}, call {id} of {methods:?}"
        );
    }
}

/// Both kinds of drivers, again and again: which thread takes what is a matter of chance.
fn threads() -> impl Iterator<Item = DriverThread> {
    [DriverThread::Shared, DriverThread::Dedicated]
        .into_iter()
        .cycle()
        .take(24)
}

#[test]
fn a_handler_that_blocks_does_not_hold_up_those_that_came_with_it() {
    on_threads(async {
        for thread in threads() {
            all_are_answered(thread, &["Block", "Open"]).await;
            all_are_answered(thread, &["Block", "Block", "Block", "Open"]).await;
            all_are_answered(thread, &["Say", "Block", "Say", "Open", "Say"]).await;
        }
    });
}

#[test]
fn nor_behind_one_that_took_long() {
    on_threads(async {
        for thread in threads() {
            all_are_answered(thread, &["Compute", "Block", "Open"]).await;
            all_are_answered(thread, &["Compute", "Block", "Say", "Open"]).await;
        }
    });
}

#[test]
fn nor_if_it_waits_for_something_before_it_blocks() {
    on_threads(async {
        for thread in threads() {
            all_are_answered(thread, &["PauseAndBlock", "Open"]).await;
            all_are_answered(thread, &["PauseAndBlock", "PauseAndBlock", "Open"]).await;
        }
    });
}

// RFC KA-19. It was the answer that would have woken the driver, on a thread that is blocked next.
#[test]
fn answers_and_pongs_do_not_wait_for_a_handler_that_blocks_behind_them() {
    on_threads(async {
        for thread in threads() {
            let both = requests(1, &["Say", "Block"]);
            let mut peer = served_with(server(thread), &both).await;
            assert_eq!(code(&mut peer, 1).await, Code::OK, "{thread:?}");
            peer.send(ping(7)).await;
            let pong = peer.frame().await;
            assert_eq!(pong.header.message_type, MessageType::PONG, "{thread:?}");
            peer.send(requests(5, &["Open"])).await;
            for _ in 0..2 {
                let (_, response) = peer.expect_response().await;
                assert_eq!(response.status, None, "{thread:?}");
            }
        }
    });
}

#[test]
fn a_handler_that_blocks_and_whose_client_has_gone_holds_up_no_other() {
    on_threads(async {
        for thread in threads() {
            let server = server(thread);
            let mut gone = served_with(server.clone(), &requests(1, &["Block", "Say"])).await;
            assert_eq!(code(&mut gone, 3).await, Code::OK, "{thread:?}");
            drop(gone);
            let mut peer = served_with(server, &requests(1, &["Block", "Open"])).await;
            for _ in 0..2 {
                let (_, response) = peer.expect_response().await;
                assert_eq!(response.status, None, "{thread:?}");
            }
        }
    });
}

// The driver gives way in between, on the very thread that the first handler takes next.
#[test]
fn handlers_run_while_a_client_sends_without_a_pause_and_one_in_front_of_them_blocks() {
    on_threads(async {
        let for_nobody = Header {
            length: 0,
            stream_id: 99,
            message_type: MessageType::DATA,
            flags: Flags::NONE,
        };
        let flood = for_nobody.encode().repeat(10_000);
        let mut sent = requests(1, &["Block"]);
        sent.extend(&flood);
        sent.extend(requests(3, &["Open"]));
        for thread in threads() {
            let mut peer = served_with(server(thread), &sent).await;
            let mut answers = 0;
            while answers < 2 {
                tokio::select! {
                    biased;
                    (_, response) = peer.expect_response() => {
                        assert_eq!(response.status, None, "{thread:?}");
                        answers += 1;
                    }
                    () = std::future::ready(()) => peer.send(&flood).await,
                }
            }
        }
    });
}
