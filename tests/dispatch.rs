//! Who polls a handler first.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::collections::HashSet;
use std::panic::panic_any;
use std::sync::{Arc, Mutex};

use protobuf::Message;
use protobuf::well_known_types::wrappers::StringValue;
use support::*;
use tokio::io::DuplexStream;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};
use ttrpc_keepalive::wire::{Flags, MessageType, Raw, RequestHead, encode_request, ping};
use ttrpc_keepalive::{
    Code, ConfigError, Dispatch, DriverThread, HandlerFuture, Responses, Server, Service,
};

tokio::task_local! {
    /// Set in the task that drives the server's side, and nowhere else.
    static DRIVING: ();
}

/// A scripted peer of a server whose driver polls handlers first. `Where` answers `driver` if it is
/// run by the driver, `Later` once it has waited.
fn served_inline() -> Peer<DuplexStream> {
    let polled_by = || match DRIVING.try_with(|()| ()) {
        Ok(()) => "driver",
        Err(_) => "task",
    };
    let server = echo()
        .dispatch(Dispatch::Inline)
        .service(
            Service::new("demo.Echo", ())
                .unary("Where", move |(), _, _: StringValue| async move {
                    Ok(text(polled_by()))
                })
                .unary("Later", move |(), _, q: StringValue| async move {
                    sleep(ms(10)).await;
                    assert!(q.value.is_empty(), "this handler was told to panic");
                    Ok(text(polled_by()))
                }),
        )
        .build()
        .unwrap();
    let (here, there) = tokio::io::duplex(1 << 20);
    let serving = async move { server.serve_connection(here).await };
    tokio::spawn(DRIVING.scope((), serving));
    Peer::new(there)
}

/// What the next response says.
async fn answer(peer: &mut Peer<DuplexStream>) -> Result<String, Code> {
    let (_, response) = peer.expect_response().await;
    match response.status {
        Some(status) => Err(status.code()),
        None => Ok(StringValue::parse_from_tokio_bytes(&response.payload)
            .unwrap()
            .value),
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_ready_at_once_is_run_by_an_inline_driver_and_another_by_a_task() {
    let mut peer = served_inline();
    for (id, method, by) in [(1, "Where", "driver"), (3, "Later", "task")] {
        peer.call(id, method, "").await;
        assert_eq!(answer(&mut peer).await.as_deref(), Ok(by));
    }
    // Decoding a large one takes its time, which PONGs do not have.
    peer.call(5, "Where", &"x".repeat(17 << 10)).await;
    assert_eq!(answer(&mut peer).await.as_deref(), Ok("task"));
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_a_handler_polled_by_the_driver_costs_its_call_and_nothing_else() {
    let mut peer = served_inline();
    for (id, method) in [(1, "Panic"), (3, "Later"), (5, "Panic")] {
        peer.call(id, method, "now").await;
        assert_eq!(answer(&mut peer).await, Err(Code::INTERNAL), "{method}");
    }
    peer.call(7, "Where", "").await;
    assert_eq!(answer(&mut peer).await.as_deref(), Ok("driver"));
}

// rust-lang/rust#86027: what catches the first panic has let go of the payload by then.
#[tokio::test(start_paused = true)]
async fn a_panic_whose_payload_panics_when_it_is_dropped_costs_its_call_and_nothing_else() {
    for dispatch in [Dispatch::Inline, Dispatch::Spawn] {
        let bomb = |now: bool| async move {
            if !now {
                sleep(ms(10)).await;
            }
            if true {
                panic_any(Bomb);
            }
            Ok(text(""))
        };
        let server = echo().dispatch(dispatch).service(
            Service::new("demo.Echo", ())
                .unary("Bomb", move |(), _, _: StringValue| bomb(true))
                .unary("LateBomb", move |(), _, _: StringValue| bomb(false))
                .server_stream(
                    "StreamBomb",
                    move |(), _, _: StringValue, _: Responses<StringValue>| async move {
                        bomb(true).await.map(|_| ())
                    },
                ),
        );
        let mut peer = served(server.build().unwrap());
        for (id, method) in [(1, "Bomb"), (3, "LateBomb"), (5, "StreamBomb")] {
            peer.call(id, method, "").await;
            assert_eq!(
                code(&mut peer, id).await,
                Code::INTERNAL,
                "{dispatch:?}, {method}"
            );
        }
        peer.call(7, "Say", "").await;
        assert_eq!(code(&mut peer, 7).await, Code::OK, "{dispatch:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn handlers_that_are_always_ready_do_not_keep_the_driver_from_a_ping() {
    let mut peer = served_inline();
    let head = RequestHead {
        service: "demo.Echo",
        method: "Where",
        timeout_nano: 0,
        metadata: &[],
    };
    let mut burst: Vec<u8> = (0..600)
        .flat_map(|call| encode_request(2 * call + 1, Flags::NONE, &head, &Raw(b"")).unwrap())
        .collect();
    burst.extend(ping(1));
    peer.send(burst).await;
    let pong = peer.frame().await;
    assert_eq!(pong.header.message_type, MessageType::PONG);
    let mut by_driver = 0;
    for _ in 0..600 {
        by_driver += u32::from(answer(&mut peer).await.as_deref() == Ok("driver"));
    }
    assert_eq!(by_driver, 256, "those of one turn");
}

/// `Who` answers in which task it runs; `Later` does so after it has waited.
fn served_apart() -> Peer<DuplexStream> {
    let who = || async { Ok(text(&tokio::task::id().to_string())) };
    let server = Server::builder().service(
        Service::new("demo.Echo", ())
            .unary("Who", move |(), _, _: StringValue| who())
            .unary("Later", move |(), _, _: StringValue| async move {
                sleep(ms(10)).await;
                who().await
            })
            .unary("Panic", |(), _, _: StringValue| async {
                if true {
                    panic!("told to");
                }
                Ok(text(""))
            }),
    );
    served(server.build().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_handler_has_a_task_of_its_own_and_waits_behind_no_other() {
    let mut peer = served_apart();
    let methods = ["Who", "Later", "Who", "Later", "Who", "Who"];
    let start = Instant::now();
    peer.send(requests(1, &methods)).await;
    let mut tasks = HashSet::new();
    for answered in 0..6 {
        let (_, response) = peer.expect_response().await;
        let waited = if answered < 4 { ms(0) } else { ms(10) };
        assert_eq!(start.elapsed().as_millis(), waited.as_millis());
        let task = StringValue::parse_from_tokio_bytes(&response.payload).unwrap();
        tasks.insert(task.value);
    }
    assert_eq!(tasks.len(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_panic_costs_its_call_and_none_of_those_that_came_with_it() {
    let mut peer = served_apart();
    let methods = ["Who", "Panic", "Who", "Panic", "Later", "Who"];
    peer.send(requests(1, &methods)).await;
    let mut codes = [Code::UNKNOWN; 6];
    for _ in methods {
        let (id, response) = peer.expect_response().await;
        let code = response.status.map_or(Code::OK, |status| status.code());
        codes[usize::try_from(id / 2).unwrap()] = code;
    }
    let (ok, internal) = (Code::OK, Code::INTERNAL);
    assert_eq!(codes, [ok, internal, ok, internal, ok, ok]);
}

fn on_a_thread(handler: HandlerFuture) {
    let runtime = Handle::current();
    runtime
        .clone()
        .spawn_blocking(move || runtime.block_on(handler));
}

// On the one thread of the runtime each of them would hold up the PING and the other.
#[tokio::test]
async fn handlers_that_block_have_threads_for_themselves_and_hold_up_neither_pings_nor_each_other()
{
    let (pass, wait) = std::sync::mpsc::channel::<()>();
    let wait = Arc::new(Mutex::new(wait));
    let server = echo().dispatch(Dispatch::By(on_a_thread)).service(
        Service::new("demo.Echo", wait)
            .unary("Block", |wait, _, q: StringValue| async move {
                wait.lock().unwrap().recv_timeout(ms(5000)).unwrap();
                Ok(q)
            })
            .unary("Await", |_, _, q: StringValue| async move {
                sleep(ms(1)).await;
                Ok(q)
            }),
    );
    let mut peer = served(server.build().unwrap());
    peer.call(1, "Block", "first").await;
    peer.send(ping(1)).await;
    let pong = peer.frame().await;
    assert_eq!(pong.header.message_type, MessageType::PONG);
    peer.call(3, "Await", "second").await;
    assert_eq!(answer(&mut peer).await.as_deref(), Ok("second"));
    peer.call(5, "Panic", "now").await;
    assert_eq!(answer(&mut peer).await, Err(Code::INTERNAL));
    pass.send(()).unwrap();
    assert_eq!(answer(&mut peer).await.as_deref(), Ok("first"));
}

#[test]
fn a_dedicated_thread_polls_no_handlers() {
    let server = Server::builder().dispatch(Dispatch::Inline);
    let server = server.driver_thread(DriverThread::Dedicated);
    assert_eq!(server.build().unwrap_err(), ConfigError::InlineOnDedicated);
}
