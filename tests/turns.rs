//! What happens within a turn of the driver, and between two of them.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use support::*;
use tokio::net::UnixStream;
use tokio::time::{Instant, advance, sleep, timeout};
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::transport::Shortcut;
use ttrpc_keepalive::wire::{
    Flags, Raw, RequestHead, encode_data, encode_request, encode_response,
};
use ttrpc_keepalive::{Client, Code, Dispatch, Responses, Server, Service, Verdict};

type Hook = Arc<Mutex<Option<Box<dyn FnMut() + Send>>>>;

/// A client whose every read lets a test do something that no other task could do just then.
fn meddled(keepalive: Keepalive) -> (Client, Peer<UnixStream>, Hook) {
    let (here, there) = UnixStream::pair().unwrap();
    let on_read = Hook::default();
    let hook = Arc::clone(&on_read);
    let transport = Hooked::new(here).on_read(move || {
        if let Some(hook) = &mut *hook.lock().unwrap() {
            hook();
        }
        None
    });
    let client = Client::builder()
        .keepalive(keepalive)
        .attach(transport)
        .unwrap();
    (client, Peer::new(there), on_read)
}

type Running<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Begins a future at the read with this number after `from`, and keeps it.
fn begin_at_read<T: Send + 'static>(
    hook: &Hook,
    from: Instant,
    number: u32,
    future: impl Future<Output = T> + Send + 'static,
) -> Arc<Mutex<Option<Running<T>>>> {
    let kept = Arc::new(Mutex::new(None));
    let begun = Arc::clone(&kept);
    let mut future: Option<Running<T>> = Some(Box::pin(future));
    let mut reads = 0;
    *hook.lock().unwrap() = Some(Box::new(move || {
        reads += u32::from(Instant::now() >= from);
        if reads == number {
            if let Some(mut future) = future.take() {
                poll_once(future.as_mut());
                *begun.lock().unwrap() = Some(future);
            }
        }
    }));
    kept
}

// RFC KA-22. The frame is queued behind the driver's back: the rules have not seen the call.
#[tokio::test(start_paused = true)]
async fn a_first_request_made_within_a_turn_goes_behind_its_ping() {
    let (client, mut peer, hook) = meddled(Keepalive::on_demand());
    let call = begin_at_read(&hook, Instant::now(), 1, async move { say(&client).await });
    peer.first_exchange().await;
    let call = call.lock().unwrap().take().unwrap();
    call.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_without_any_time_is_not_sent() {
    let (client, mut peer, _) = meddled(Keepalive::off());
    sleep(ms(100)).await;
    let error = say_within(&client, ms(0)).await.unwrap_err();
    assert!(error.is_deadline());
    assert!(error.late_answer().is_none(), "it was never sent");
    peer.silence(secs(1)).await;
}

// The driver has taken what it was told in this turn, and the timer was said to fire in time; the
// turn had just seen it fire.
#[tokio::test(start_paused = true)]
async fn a_call_made_within_a_turn_ends_at_its_deadline() {
    let (client, mut peer, hook) = meddled(Keepalive::on_demand());
    let start = Instant::now();
    let (reply, ()) = tokio::join!(say_within(&client, secs(2)), peer.first_exchange());
    reply.unwrap();
    // The timer for that call fires all the same, and costs a turn.
    let caller = client.clone();
    let call = begin_at_read(&hook, start + ms(1750), 1, async move {
        say_within(&caller, secs(1)).await
    });
    sleep(secs(2)).await;
    let call = call.lock().unwrap().take().unwrap();
    let error = timeout(secs(10), call).await.unwrap().unwrap_err();
    assert_passed(start, ms(2750));
    assert_eq!(error.verdict(), Some(Verdict::Unresponsive));
}

// Judging J-7. What was there at the deadline was in time, however many turns it takes to come to
// it.
#[tokio::test(start_paused = true)]
async fn an_answer_that_has_come_by_the_deadline_counts_whatever_is_in_front_of_it() {
    let (client, mut peer) = scripted(Keepalive::off(), 1 << 20);
    let call = tokio::spawn(async move { say_within(&client, secs(2)).await });
    let (id, _) = peer.request().await;
    let mut burst = encode_response(999, &Raw(b"")).unwrap().repeat(5000);
    burst.extend(encode_response(id, &text("hello")).unwrap());
    peer.send(burst).await;
    advance(secs(2)).await;
    call.await.unwrap().unwrap();
}

/// A client over a socket, its peer, and the number of writes that callers did by themselves.
fn shortcuts() -> (Client, Peer<UnixStream>, Arc<AtomicU32>) {
    let (here, there) = UnixStream::pair().unwrap();
    let transport = Hooked::new(here);
    let shortcuts = transport.shortcuts();
    let client = Client::builder()
        .keepalive(Keepalive::off())
        .attach(transport)
        .unwrap();
    (client, Peer::new(there), shortcuts)
}

#[tokio::test(start_paused = true)]
async fn a_probe_asks_at_once_whatever_the_driver_waits_for() {
    let (client, mut peer) = scripted(Keepalive::every(secs(10)), 64 << 10);
    peer.answer_ping().await;
    sleep(secs(1)).await;
    let start = Instant::now();
    let (answered, ()) = tokio::join!(client.probe(secs(60)), peer.answer_ping());
    answered.unwrap();
    assert_passed(start, secs(0));
}

/// Leaves the first write to the driver, and keeps the caller of the second one for a while.
#[derive(Default)]
struct Slow(AtomicU32);

impl Shortcut for Slow {
    fn try_write(&self, _: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.0.fetch_add(1, Relaxed) == 1 {
            std::thread::sleep(ms(600));
        }
        Err(io::ErrorKind::WouldBlock.into())
    }
}

// Before the write has ended nobody knows whether there will be an answer.
#[test]
fn a_call_whose_frame_is_being_written_at_its_deadline_is_judged_behind_the_write() {
    on_threads(async {
        let (here, there) = tokio::io::duplex(64 << 10);
        let transport = Hooked::new(here).with_shortcut(Arc::new(Slow::default()));
        let client = Client::builder().keepalive(Keepalive::off());
        let client = client.attach(transport).unwrap();
        let mut peer = Peer::new(there);
        sleep(ms(20)).await;
        // The driver is to run in the middle of the write.
        let mut first = Box::pin(say_within(&client, ms(200)));
        poll_once(first.as_mut());
        assert_eq!(peer.request().await.0, 1);
        sleep(ms(20)).await;
        drop(first);
        let caller = client.clone();
        let call = tokio::spawn(async move { say_within(&caller, ms(250)).await });
        let error = call.await.unwrap().unwrap_err();
        assert!(error.is_deadline(), "{error}");
        assert!(error.late_answer().is_none(), "{error}");
        peer.silence(ms(100)).await;
    });
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_at_its_deadline_although_another_one_has_longer() {
    let (client, _peer) = scripted(Keepalive::off(), 64 << 10);
    let mut other = Box::pin(say_within(&client, secs(10)));
    poll_once(other.as_mut());
    sleep(ms(1)).await;
    let start = Instant::now();
    let late = say_within(&client, secs(1)).await;
    assert!(late.unwrap_err().is_deadline());
    assert_passed(start, secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_its_caller_wrote_ends_at_its_deadline() {
    let (client, _peer, shortcuts) = shortcuts();
    sleep(ms(1)).await;
    let start = Instant::now();
    let late = timeout(secs(60), say_within(&client, secs(1))).await;
    assert!(late.unwrap().unwrap_err().is_deadline());
    assert_passed(start, secs(1));
    assert_eq!(shortcuts.load(Relaxed), 1);
}

// It did not read because of that answer, so nobody would wake it for the request that came meanwhile.
#[tokio::test(start_paused = true)]
async fn a_server_whose_answer_was_taken_within_a_turn_reads_on() {
    for dispatch in [Dispatch::Inline, Dispatch::Spawn] {
        let server = echo().dispatch(dispatch).owed_limit(1000);
        let client = Client::builder().keepalive(Keepalive::off());
        let (client, _) = pair(server.build().unwrap(), client, 1 << 20);
        for turns in 0..12 {
            let call = || {
                let call = client.call::<_, Raw>("demo.Echo", "Large", &Raw("100000"));
                call.timeout(secs(1))
            };
            let first = tokio::spawn(call());
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            assert_eq!(call().await.unwrap().len(), 100_000);
            assert_eq!(first.await.unwrap().unwrap().len(), 100_000);
        }
    }
}

#[tokio::test]
async fn a_caller_that_is_alone_writes_by_itself() {
    let (client, mut peer, shortcuts) = shortcuts();
    tokio::spawn(async move { peer.serve().await });
    say(&client).await.unwrap();
    let before = shortcuts.load(Relaxed);
    for _ in 0..10 {
        say(&client).await.unwrap();
    }
    assert_eq!(shortcuts.load(Relaxed), before + 10);
}

// The first of them finds itself alone, and would send one frame in front of those of the others.
#[tokio::test]
async fn callers_that_are_answered_together_write_together() {
    let (client, mut peer, shortcuts) = shortcuts();
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                for _ in 0..10 {
                    say(&client).await.unwrap();
                }
            })
        })
        .collect();
    let mut by_first = None;
    for round in 0..10 {
        let mut answers = Vec::new();
        for _ in 0..8 {
            let (id, _) = peer.request().await;
            answers.extend(encode_response(id, &text("hello")).unwrap());
        }
        // In the first round nobody has been answered yet.
        let by_callers = shortcuts.load(Relaxed);
        let before = *by_first.get_or_insert(by_callers);
        assert_eq!(by_callers, before, "in round {round}");
        peer.send(answers).await;
    }
    for caller in callers {
        caller.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_come_together_are_answered_before_the_last_of_them_begins() {
    let begun = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&begun);
    let server = Server::builder()
        .service(
            Service::new("demo.Echo", ()).unary("Count", move |(), _, request: Raw| {
                count.fetch_add(1, Relaxed);
                async move { Ok(request) }
            }),
        )
        .build()
        .unwrap();
    let mut peer = served(server);
    let head = RequestHead {
        service: "demo.Echo",
        method: "Count",
        timeout_nano: 0,
        metadata: &[],
    };
    let burst: Vec<u8> = (0..1000)
        .flat_map(|call| encode_request(2 * call + 1, Flags::NONE, &head, &Raw(b"")).unwrap())
        .collect();
    peer.send(burst).await;
    assert_eq!(code(&mut peer, 1).await, Code::OK);
    let begun_by_then = begun.load(Relaxed);
    assert!(begun_by_then < 500, "{begun_by_then} of 1000");
    for call in 1..1000 {
        assert_eq!(code(&mut peer, 2 * call + 1).await, Code::OK);
    }
}

#[tokio::test(start_paused = true)]
async fn messages_are_sent_while_their_handler_has_more_without_a_pause() {
    let sent = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&sent);
    let server = Server::builder()
        .service(Service::new("demo.Stream", ()).server_stream(
            "Many",
            move |(), _, _: Raw, out: Responses<Raw>| {
                let count = Arc::clone(&count);
                async move {
                    // So large that the bytes are the limit, and not tokio's count of what a task does.
                    for _ in 0..1000 {
                        out.send(&raw([7; 1024])).await?;
                        count.fetch_add(1, Relaxed);
                    }
                    Ok(())
                }
            },
        ))
        .build()
        .unwrap();
    let mut peer = served(server);
    peer.open(1, "Many", Flags::REMOTE_CLOSED, b"").await;
    peer.expect_data().await;
    let sent_by_then = sent.load(Relaxed);
    assert!(sent_by_then < 100, "{sent_by_then} of 1,000");
    for _ in 1..1000 {
        peer.expect_data().await;
    }
}

// It is none of the tasks in the queue of such a runtime, and has its turn when that is empty, or
// after many of theirs. Messages may not pile up until then.
#[tokio::test(start_paused = true)]
async fn the_task_that_runs_a_runtime_of_one_thread_keeps_up_with_its_stream() {
    let client = Client::builder().keepalive(Keepalive::off());
    let (client, mut peer) = attached(client.stream_limit(20 << 10), 1 << 20);
    let stream = client.server_stream::<_, Raw>("demo.Stream", "Many", &Raw(""));
    let mut stream = stream.await.unwrap();
    let (id, _) = peer.request().await;
    let message = encode_data(id, Flags::NONE, &Raw(&[7; 100])).unwrap();
    peer.send(message.repeat(1000)).await;
    for _ in 0..1000 {
        stream.next().await.unwrap().unwrap();
    }
}
