//! Answers that do not wait for a handler which keeps its thread, and handlers that end with their
//! connection. Threads are really blocked here.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use protobuf::well_known_types::wrappers::StringValue;
use support::*;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::{
    AtEnd, Client, Code, Context, Dispatch, DriverThread, MethodOptions, OnDeadline, OnDisconnect,
    Outcome, Raw, Requests, Responses, Server, ServerBuilder, Service, SoftReply, Status,
};

/// `Block` keeps its thread for three seconds, `Await` awaits first.
fn blocking(options: MethodOptions) -> ServerBuilder {
    let block = |_: Context, q: StringValue| async {
        std::thread::sleep(secs(3));
        Ok(q)
    };
    echo()
        .service(
            Service::new("demo.Echo", ())
                .unary("Block", move |(), context, request| block(context, request)),
        )
        .method("demo.Echo", "Block", options.clone())
        .service(
            Service::new("demo.Echo", ()).unary("Await", |(), _, q: StringValue| async {
                tokio::time::sleep(ms(20)).await;
                std::thread::sleep(secs(3));
                Ok(q)
            }),
        )
        .method("demo.Echo", "Await", options)
}

/// A runtime for handlers, with so many threads, and a client of this server elsewhere.
fn served_by(threads: usize, server: Server) -> (Runtime, Client) {
    let runtime = Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .unwrap();
    let (here, there) = {
        let _entered = runtime.enter();
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        here.set_nonblocking(true).unwrap();
        there.set_nonblocking(true).unwrap();
        (here, tokio::net::UnixStream::from_std(there).unwrap())
    };
    runtime.spawn(async move { server.serve_connection(there).await });
    let here = tokio::net::UnixStream::from_std(here).unwrap();
    // Its PINGs would wake the driver.
    let client = Client::builder().keepalive(Keepalive::off());
    (runtime, client.attach(here).unwrap())
}

fn soft() -> MethodOptions {
    MethodOptions::new().soft_deadline(secs(1), SoftReply::message(&text("soft")))
}

async fn call(client: &Client, method: &str) -> Result<String, Code> {
    let request = text("late");
    let call = client.call::<_, StringValue>("demo.Echo", method, &request);
    let reply = call.timeout(secs(2)).await;
    reply
        .map(|reply| reply.value)
        .map_err(|error| error.status().map_or(Code::OK, Status::code))
}

#[tokio::test]
async fn a_handler_that_keeps_its_thread_is_answered_for_in_time() {
    // With a thread of its own for the driver one thread for handlers is enough.
    for threads in [1, 4] {
        for method in ["Block", "Await"] {
            let server = blocking(soft())
                .driver_thread(DriverThread::Dedicated)
                .build()
                .unwrap();
            let (runtime, client) = served_by(threads, server.clone());
            say(&client).await.unwrap();
            let begun = Instant::now();
            let reply = call(&client, method).await;
            assert_eq!(reply, Ok("soft".to_owned()), "{threads}, {method}");
            assert!(begun.elapsed() >= ms(990), "{:?}", begun.elapsed());
            assert_eq!(server.counters().soft_answers, 1);
            // What it returns later is for nobody, once.
            tokio::time::sleep(ms(2500)).await;
            assert_eq!(server.counters().results_dropped, 1, "{threads}, {method}");
            assert_eq!(say(&client).await.unwrap().value, "hello");
            runtime.shutdown_background();
        }
    }
}

#[tokio::test]
async fn so_is_one_that_was_given_no_thread_in_time() {
    let server = blocking(soft()).driver_thread(DriverThread::Dedicated);
    let (runtime, client) = served_by(1, server.build().unwrap());
    say(&client).await.unwrap();
    // The second waits for the thread that the first one keeps.
    let (first, second) = tokio::join!(call(&client, "Block"), call(&client, "Await"));
    assert_eq!((first, second), (Ok("soft".into()), Ok("soft".into())));
    runtime.shutdown_background();
}

#[tokio::test]
async fn one_that_was_answered_for_runs_although_its_time_is_over() {
    let (told, mut seen) = mpsc::unbounded_channel();
    let begin = |told: Arc<mpsc::UnboundedSender<&'static str>>, _: Context, q: StringValue| async move {
        told.send("begun").unwrap();
        std::thread::sleep(secs(3));
        Ok(q)
    };
    let service = Service::new("demo.Echo", Arc::new(told))
        .unary("Begin", begin)
        .method("Begin", soft());
    let server = Server::builder().service(service);
    let server = server.driver_thread(DriverThread::Dedicated);
    let (runtime, client) = served_by(1, server.build().unwrap());
    // The thread is free again when the time of the second is over.
    let (first, second) = tokio::join!(call(&client, "Begin"), call(&client, "Begin"));
    assert_eq!((first, second), (Ok("soft".into()), Ok("soft".into())));
    for _ in 0..2 {
        let begun = tokio::time::timeout(secs(20), seen.recv()).await;
        assert_eq!(begun, Ok(Some("begun")));
    }
    runtime.shutdown_background();
}

#[tokio::test]
async fn a_timeout_and_a_cancelled_call_are_answered_in_time_too() {
    let timeout = MethodOptions::new().timeout(ms(200));
    let server = blocking(timeout.clone())
        .driver_thread(DriverThread::Dedicated)
        .service(Service::new("demo.Echo", ()).bidi_stream(
            "Stream",
            |(), _, _: Requests<Raw>, _: Responses<Raw>| async {
                std::thread::sleep(secs(3));
                Ok(())
            },
        ))
        .method("demo.Echo", "Stream", timeout)
        .build()
        .unwrap();
    let (runtime, client) = served_by(1, server.clone());
    say(&client).await.unwrap();
    let begun = Instant::now();
    assert_eq!(call(&client, "Block").await, Err(Code::DEADLINE_EXCEEDED));
    assert!(begun.elapsed() < ms(1500), "{:?}", begun.elapsed());
    runtime.shutdown_background();

    let (runtime, client) = served_by(1, server);
    let begun = Instant::now();
    let stream = client.bidi_stream::<Raw, Raw>("demo.Echo", "Stream");
    let (_sender, mut receiver) = stream.await.unwrap();
    let end = receiver.next().await.unwrap().unwrap_err();
    let code = end.status().map(Status::code);
    assert_eq!(code, Some(Code::DEADLINE_EXCEEDED), "{end}");
    assert!(begun.elapsed() < ms(1500), "{:?}", begun.elapsed());
    runtime.shutdown_background();
}

#[tokio::test]
async fn a_reply_that_is_made_of_the_request_may_panic_and_costs_its_call() {
    let soft = SoftReply::from_request(|q: StringValue| {
        if q.value.is_empty() {
            std::panic::panic_any(Bomb);
        }
        Ok::<StringValue, Status>(text(&format!("soft {}", q.value)))
    });
    let options = MethodOptions::new().soft_deadline(secs(1), soft);
    let server = blocking(options).driver_thread(DriverThread::Dedicated);
    let (runtime, client) = served_by(1, server.build().unwrap());
    assert_eq!(call(&client, "Block").await, Ok("soft late".to_owned()));
    let nothing = text("");
    let call = client.call::<_, StringValue>("demo.Echo", "Block", &nothing);
    let error = call.timeout(secs(2)).await.unwrap_err();
    assert_eq!(
        error.status().map(Status::code),
        Some(Code::INTERNAL),
        "{error}"
    );
    tokio::time::sleep(secs(3)).await;
    say(&client).await.unwrap();
    runtime.shutdown_background();
}

#[tokio::test]
async fn the_hook_hears_of_an_answer_that_was_given_for_a_handler() {
    let (told, mut outcomes) = mpsc::unbounded_channel();
    let server = blocking(soft())
        .driver_thread(DriverThread::Dedicated)
        .hook(move |_| {
            let told = told.clone();
            Ok(AtEnd::run(move |end| {
                let answered = matches!(end.outcome(), Outcome::Answered);
                told.send(answered).unwrap();
            }))
        });
    let (runtime, client) = served_by(1, server.build().unwrap());
    assert_eq!(call(&client, "Block").await, Ok("soft".to_owned()));
    assert_eq!(outcomes.recv().await, Some(true));
    runtime.shutdown_background();
}

#[tokio::test(start_paused = true)]
async fn a_handler_can_ask_whether_it_was_answered_for() {
    let (told, mut seen) = mpsc::unbounded_channel();
    let kept = told.clone();
    let server = echo()
        .service(
            Service::new("demo.Echo", ()).unary("Ask", move |(), context, q: StringValue| {
                let told = told.clone();
                async move {
                    for _ in 0..4 {
                        told.send(context.is_answered()).unwrap();
                        tokio::time::sleep(ms(500)).await;
                    }
                    Ok(q)
                }
            }),
        )
        .method("demo.Echo", "Ask", soft())
        .service(Service::new("demo.Stream", ()).client_stream(
            "Ask",
            move |(), context, requests: Requests<Raw>| {
                let told = kept.clone();
                async move {
                    told.send(context.is_answered()).unwrap();
                    tokio::time::sleep(secs(1)).await;
                    told.send(context.is_answered()).unwrap();
                    drop(requests);
                    Ok(Raw(""))
                }
            },
        ))
        .stream_limit(100)
        .build()
        .unwrap();
    let (client, _) = pair(server.clone(), Client::builder(), 4096);
    let request = text("");
    let call = client.call::<_, StringValue>("demo.Echo", "Ask", &request);
    assert_eq!(call.timeout(ms(1700)).await.unwrap().value, "soft");
    for answered in [false, false, true, true] {
        assert_eq!(seen.recv().await, Some(answered));
    }
    // One that has all the time it wants is not answered before its end.
    let call = client.call::<_, StringValue>("demo.Echo", "Ask", &request);
    assert_eq!(call.timeout(secs(10)).await.unwrap().value, "");
    for _ in 0..4 {
        assert_eq!(seen.recv().await, Some(false));
    }
    // A stream may be ended over its handler's head.
    let (sender, _reply) = client
        .client_stream::<Raw, Raw>("demo.Stream", "Ask")
        .await
        .unwrap();
    assert_eq!(seen.recv().await, Some(false));
    for _ in 0..3 {
        sender.send(&raw([7; 90])).await.unwrap();
    }
    assert_eq!(seen.recv().await, Some(true));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_almost_done_can_keep_its_answer() {
    let (told, mut seen) = mpsc::unbounded_channel();
    let ask = move |told: Arc<mpsc::UnboundedSender<bool>>, context: Context, q: StringValue| async move {
        tokio::time::sleep(ms(q.value.parse().unwrap())).await;
        told.send(context.leave_answer()).unwrap();
        // Beyond the soft deadline, and within that of the caller.
        tokio::time::sleep(ms(300)).await;
        Ok(text("own"))
    };
    let service = Service::new("demo.Echo", Arc::new(told))
        .unary("Ask", ask)
        .method("Ask", soft())
        .unary("Plain", ask);
    let server = Server::builder().service(service).build().unwrap();
    let (client, _) = pair(server, Client::builder(), 4096);
    for (method, millis, left, reply) in [
        ("Ask", "900", true, "own"),
        ("Ask", "1100", false, "soft"),
        ("Plain", "1100", true, "own"),
    ] {
        let request = text(millis);
        let call = client.call::<_, StringValue>("demo.Echo", method, &request);
        let answer = call.timeout(secs(2)).await.unwrap().value;
        assert_eq!(answer, reply, "{method} {millis}");
        assert_eq!(seen.recv().await, Some(left), "{method} {millis}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_soft_reply_may_be_for_some_requests_only() {
    let some = |q: StringValue| (q.value != "800").then(|| Ok(text("soft")));
    let soft = MethodOptions::new().soft_deadline(ms(1500), SoftReply::for_some_requests(some));
    let ask = |(), context: Context, q: StringValue| async move {
        tokio::time::sleep(ms(q.value.parse().unwrap())).await;
        // That there was no reply leaves it its answer.
        Ok(text(if context.leave_answer() {
            "own"
        } else {
            "late"
        }))
    };
    let service = Service::new("demo.Echo", ())
        .unary("Ask", ask)
        .method("Ask", soft);
    let server = Server::builder().service(service).build().unwrap();
    let (client, _) = pair(server, Client::builder(), 4096);
    for (millis, reply) in [("700", "soft"), ("800", "own"), ("100", "own")] {
        let request = text(millis);
        let call = client.call::<_, StringValue>("demo.Echo", "Ask", &request);
        let answer = call.timeout(secs(1)).await.unwrap().value;
        assert_eq!(answer, reply, "{millis}");
    }
}

/// How far handlers have come, and how they ended.
#[derive(Default)]
struct Seen {
    begun: AtomicUsize,
    ended: AtomicUsize,
    dropped: AtomicUsize,
}

/// Notices how a handler ends.
struct Running(Arc<Seen>, bool);

impl Drop for Running {
    fn drop(&mut self) {
        let end = if self.1 {
            &self.0.ended
        } else {
            &self.0.dropped
        };
        end.fetch_add(1, Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn handlers_end_with_their_connection_if_asked_for() {
    for (options, ended, dropped) in [
        (MethodOptions::new(), 3, 0),
        (MethodOptions::new().on_disconnect(OnDisconnect::Run), 3, 0),
        (
            MethodOptions::new().on_disconnect(OnDisconnect::Cancel),
            0,
            3,
        ),
        (
            soft()
                .on_deadline(OnDeadline::DropAnswer)
                .on_disconnect(OnDisconnect::Cancel),
            0,
            3,
        ),
    ] {
        for (dispatch, thread) in [
            (Dispatch::Spawn, DriverThread::Shared),
            (Dispatch::Inline, DriverThread::Shared),
        ] {
            let seen = Arc::<Seen>::default();
            let work = |seen: &Arc<Seen>| {
                seen.begun.fetch_add(1, Relaxed);
                let running = Running(Arc::clone(seen), false);
                async move {
                    let mut running = running;
                    tokio::time::sleep(secs(5)).await;
                    running.1 = true;
                }
            };
            let [unary, upload, download] = [(); 3].map(|()| Arc::clone(&seen));
            let server = Server::builder()
                .dispatch(dispatch)
                .driver_thread(thread)
                .service(
                    Service::new("demo.Work", ())
                        .unary("Unary", move |(), _, _: Raw| {
                            let work = work(&unary);
                            async {
                                work.await;
                                Ok(Raw(""))
                            }
                        })
                        .client_stream("Upload", move |(), _, _: Requests<Raw>| {
                            let work = work(&upload);
                            async {
                                work.await;
                                Ok(Raw(""))
                            }
                        })
                        .server_stream("Down", move |(), _, _: Raw, _: Responses<Raw>| {
                            let work = work(&download);
                            async {
                                work.await;
                                Ok(())
                            }
                        }),
                )
                .every_method(options.clone())
                .total_handler_limit(3)
                .build()
                .unwrap();
            let (client, _) = pair(server.clone(), Client::builder(), 4096);
            let unary = {
                let client = client.clone();
                tokio::spawn(
                    async move { client.call::<_, Raw>("demo.Work", "Unary", &Raw("")).await },
                )
            };
            let (_sender, _reply) = client
                .client_stream::<Raw, Raw>("demo.Work", "Upload")
                .await
                .unwrap();
            let _down = client
                .server_stream::<_, Raw>("demo.Work", "Down", &Raw(""))
                .await
                .unwrap();
            tokio::time::sleep(secs(1)).await;
            assert_eq!(seen.begun.load(Relaxed), 3);
            client.abort();
            unary.await.unwrap().unwrap_err();
            tokio::time::sleep(ms(100)).await;
            assert_eq!(seen.dropped.load(Relaxed), dropped, "{options:?}");
            let cut = server.counters().handlers_cut;
            assert_eq!(cut, u64::try_from(dropped).unwrap());
            tokio::time::sleep(secs(10)).await;
            assert_eq!(seen.ended.load(Relaxed), ended, "{options:?}");
            // Their places are free again.
            let (client, _) = pair(server, Client::builder(), 4096);
            let call = client.call::<_, Raw>("demo.Work", "Unary", &Raw(""));
            assert!(call.timeout(secs(6)).await.is_ok());
        }
    }
}
