//! What a server does around its handlers: shared state, deadlines, answers ahead of them.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use protobuf::well_known_types::wrappers::StringValue;
use support::*;
use tokio::time::{Duration, Instant, sleep};
use ttrpc_keepalive::wire::Flags;
use ttrpc_keepalive::{
    Client, Code, ConfigError, Context, LateOutcome, MethodOptions, OnDeadline, Raw, Requests,
    Responses, Server, ServerBuilder, Service, SoftReply, Status,
};

/// How far handlers have come.
#[derive(Default)]
struct Seen {
    begun: AtomicU32,
    ended: AtomicU32,
}

impl Seen {
    /// Sleeps for so many milliseconds.
    async fn sleep(self: Arc<Self>, _: Context, q: StringValue) -> Result<StringValue, Status> {
        self.begun.fetch_add(1, Relaxed);
        sleep(ms(q.value.parse().unwrap())).await;
        self.ended.fetch_add(1, Relaxed);
        Ok(q)
    }

    fn counts(&self) -> (u32, u32) {
        (self.begun.load(Relaxed), self.ended.load(Relaxed))
    }
}

/// `Slow` is [`Seen::sleep`] with these options, beside the methods of [`echo`].
fn slow(options: MethodOptions) -> (ServerBuilder, Arc<Seen>) {
    let seen = Arc::<Seen>::default();
    let service = Service::new("demo.Echo", Arc::clone(&seen))
        .unary("Slow", Seen::sleep)
        .method("Slow", options);
    (echo().service(service), seen)
}

#[tokio::test(start_paused = true)]
async fn a_service_may_have_an_object_for_its_state() {
    trait Greeting: Send + Sync {
        fn words(&self) -> &'static str;
    }
    struct Polite;
    impl Greeting for Polite {
        fn words(&self) -> &'static str {
            "good day"
        }
    }
    let greeting: Arc<dyn Greeting> = Arc::new(Polite);
    let service = Service::new(SERVICE, greeting)
        .unary("Greet", |greeting, _, _: StringValue| async move {
            Ok(text(greeting.words()))
        });
    let server = Server::builder().service(service).build().unwrap();
    let client = pair(server, Client::builder(), 4096).0;
    let reply: StringValue = client.call(SERVICE, "Greet", &text("")).await.unwrap();
    assert_eq!(reply.value, "good day");
}

#[tokio::test(start_paused = true)]
async fn the_methods_of_a_service_share_its_state() {
    struct Notes(std::sync::Mutex<Vec<String>>);
    impl Notes {
        fn add(&self, note: &str) -> Result<StringValue, Status> {
            let mut notes = self.0.lock().unwrap();
            notes.push(note.to_owned());
            Ok(text(&notes.join(" ")))
        }
        async fn note(self: Arc<Self>, _: Context, q: StringValue) -> Result<StringValue, Status> {
            self.add(&q.value)
        }
    }
    let service = Service::new(SERVICE, Arc::new(Notes(std::sync::Mutex::default())))
        .unary("Unary", Notes::note)
        .unary("UnaryBytes", |notes, _, _: Raw| async move {
            Ok(Raw(notes.add("bytes")?.value))
        })
        .server_stream(
            "Count",
            |notes, _, _: StringValue, out: Responses<_>| async move {
                out.send(&notes.add("down")?).await
            },
        )
        .client_stream(
            "Join",
            |notes, _, mut requests: Requests<StringValue>| async move {
                notes.add(&requests.next().await.unwrap()?.value)
            },
        )
        .bidi_stream(
            "Echo",
            |notes, _, mut requests: Requests<StringValue>, out: Responses<_>| async move {
                let request = requests.next().await.unwrap()?;
                out.send(&notes.add(&request.value)?).await
            },
        )
        .server_stream("DownBytes", |_, _, q: Raw, out| async move {
            out.send(&q).await
        })
        .client_stream("UpBytes", |_, _, mut requests: Requests<Raw>| async move {
            requests.next().await.unwrap()
        })
        .bidi_stream(
            "BothBytes",
            |_, _, mut requests: Requests<Raw>, out| async move {
                out.send(&requests.next().await.unwrap()?).await
            },
        );
    let server = Server::builder().service(service).build().unwrap();
    let client = pair(server, Client::builder(), 4096).0;
    let one = text("unary");
    let reply: StringValue = client.call(SERVICE, "Unary", &one).await.unwrap();
    assert_eq!(reply.value, "unary");
    let reply = client
        .call::<_, Raw>(SERVICE, "UnaryBytes", &Raw(""))
        .await
        .unwrap();
    assert_eq!(*reply, "unary bytes");
    let call = client.server_stream::<_, StringValue>(SERVICE, "Count", &one);
    let reply = call.await.unwrap().next().await.unwrap().unwrap();
    assert_eq!(reply.value, "unary bytes down");
    let call = client.client_stream::<_, StringValue>(SERVICE, "Join");
    let (sender, reply) = call.await.unwrap();
    sender.send(&text("up")).await.unwrap();
    assert_eq!(reply.await.unwrap().value, "unary bytes down up");
    let call = client.bidi_stream::<_, StringValue>(SERVICE, "Echo");
    let (sender, mut receiver) = call.await.unwrap();
    sender.send(&text("both")).await.unwrap();
    let reply = receiver.next().await.unwrap().unwrap();
    assert_eq!(reply.value, "unary bytes down up both");
    let call = client.server_stream::<_, Raw>(SERVICE, "DownBytes", &Raw("down"));
    assert_eq!(*call.await.unwrap().next().await.unwrap().unwrap(), "down");
    let (sender, reply) = client
        .client_stream::<Raw, Raw>(SERVICE, "UpBytes")
        .await
        .unwrap();
    sender.send(&raw("up")).await.unwrap();
    assert_eq!(*reply.await.unwrap(), "up");
    let call = client.bidi_stream::<Raw, Raw>(SERVICE, "BothBytes");
    let (sender, mut receiver) = call.await.unwrap();
    sender.send(&raw("both")).await.unwrap();
    assert_eq!(*receiver.next().await.unwrap().unwrap(), "both");
}

#[tokio::test(start_paused = true)]
async fn a_late_handler_runs_to_its_end_and_its_answer_is_sent() {
    let (server, seen) = slow(MethodOptions::new());
    let client = pair(server.build().unwrap(), Client::builder(), 4096).0;
    let request = text("3000");
    let call = client.call::<_, StringValue>("demo.Echo", "Slow", &request);
    let error = call.timeout(secs(2)).await.unwrap_err();
    let answer = error.late_answer().unwrap().await;
    assert!(matches!(answer, LateOutcome::Answered { .. }), "{answer:?}");
    assert_eq!(seen.counts(), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_late_handler_runs_to_its_end_and_nothing_is_sent_if_late_answers_are_dropped() {
    let (server, seen) = slow(MethodOptions::new().on_deadline(OnDeadline::DropAnswer));
    let server = server.handler_limit(1).build().unwrap();
    let mut peer = served(server.clone());
    call_within(&mut peer, "Slow", 1, "3000", secs(2)).await;
    call_within(&mut peer, "Slow", 3, "1000", secs(60)).await;
    let start = Instant::now();
    assert_eq!(code(&mut peer, 3).await, Code::OK, "this one is in time");
    assert_passed(start, secs(4));
    assert_eq!(seen.counts(), (2, 2));
    assert_eq!(server.counters().results_dropped, 1);
    peer.silence(secs(60)).await;
}

// A18
#[tokio::test(start_paused = true)]
async fn a_handler_is_dropped_at_its_callers_deadline_if_asked_for() {
    let (server, seen) = slow(MethodOptions::new().on_deadline(OnDeadline::Cancel));
    let server = server.build().unwrap();
    let mut peer = served(server.clone());
    call_within(&mut peer, "Slow", 1, "3000", secs(2)).await;
    call_within(&mut peer, "Slow", 3, "1000", secs(2)).await;
    let start = Instant::now();
    assert_eq!(code(&mut peer, 3).await, Code::OK);
    assert_eq!(code(&mut peer, 1).await, Code::DEADLINE_EXCEEDED);
    assert_passed(start, secs(2));
    peer.silence(secs(60)).await;
    assert_eq!(seen.counts(), (2, 1));
    assert_eq!(server.counters().handlers_cut, 1);
}

#[tokio::test(start_paused = true)]
async fn a_handler_has_no_more_than_its_own_timeout_whatever_its_caller_says() {
    let (server, seen) = slow(MethodOptions::new().timeout(secs(5)));
    let mut peer = served(server.build().unwrap());
    let start = Instant::now();
    call_within(&mut peer, "Slow", 1, "9000", secs(60)).await;
    call_within(&mut peer, "Slow", 3, "9000", Duration::ZERO).await; // no deadline
    call_within(&mut peer, "Slow", 5, "4000", secs(2)).await; // late, and answered late
    assert_eq!(code(&mut peer, 5).await, Code::OK);
    assert_passed(start, secs(4));
    let ids = [peer.expect_response().await, peer.expect_response().await];
    for (id, response) in ids {
        let code = response.status.unwrap().code();
        assert_eq!(code, Code::DEADLINE_EXCEEDED, "{id}");
    }
    assert_passed(start, secs(5));
    assert_eq!(seen.counts(), (3, 1));
}

// C18, G19
#[tokio::test(start_paused = true)]
async fn a_handler_sees_the_earlier_of_its_callers_deadline_and_its_own() {
    let server = echo().service(Service::new("demo.Echo", ()).unary(
        "Slow",
        |(), call, _: StringValue| async move {
            let left = call.remaining().unwrap();
            let until = call.deadline().unwrap() - Instant::now();
            assert!(until.abs_diff(left) < ms(2));
            Ok(text(&left.as_millis().to_string()))
        },
    ));
    let options = MethodOptions::new().timeout(secs(5));
    let server = server.method("demo.Echo", "Slow", options);
    let client = pair(server.build().unwrap(), Client::builder(), 4096).0;
    for (timeout, left) in [(secs(2), 2000), (secs(60), 5000)] {
        let request = text("");
        let call = client.call::<_, StringValue>("demo.Echo", "Slow", &request);
        let seen: u64 = call.timeout(timeout).await.unwrap().value.parse().unwrap();
        assert!(seen <= left && seen + 5 > left, "{seen}");
    }
}

#[tokio::test(start_paused = true)]
async fn streams_are_cut_at_their_deadlines_too() {
    let options = MethodOptions::new().timeout(secs(5));
    let server = streams()
        .service(Service::new(SERVICE, ()).bidi_stream(
            "Wait",
            |(), _, mut requests: Requests<Raw>, _: Responses<Raw>| async move {
                assert!(requests.next().await.is_none(), "nothing is sent");
                Ok(())
            },
        ))
        .method(SERVICE, "Wait", options.clone())
        .method(SERVICE, "Join", options.clone())
        .method(SERVICE, "Flood", options);
    let mut peer = served(server.owed_limit(1000).build().unwrap());
    let start = Instant::now();
    for (id, method) in [(1, "Wait"), (3, "Join")] {
        let open = Flags::REMOTE_OPEN | Flags::NO_DATA;
        peer.open(id, method, open, b"").await;
        assert_eq!(code(&mut peer, id).await, Code::DEADLINE_EXCEEDED);
        peer.data(id, Flags::REMOTE_CLOSED | Flags::NO_DATA, b"")
            .await;
    }
    assert_passed(start, secs(10));
    // The pipe takes a megabyte, and its sender waits.
    peer.open(5, "Flood", Flags::REMOTE_CLOSED, b"").await;
    sleep(secs(6)).await;
    loop {
        let frame = peer.frame().await;
        assert_eq!(frame.header.stream_id, 5);
        if frame.header.message_type == ttrpc_keepalive::wire::MessageType::RESPONSE {
            break;
        }
    }
    peer.silence(secs(60)).await;
}

fn in_time(reply: SoftReply) -> MethodOptions {
    MethodOptions::new().soft_deadline(ms(150), reply)
}

#[tokio::test(start_paused = true)]
async fn a_soft_deadline_answers_in_time_and_the_handler_runs_on() {
    let (server, seen) = slow(in_time(SoftReply::message(&text("not yet"))));
    let server = server.build().unwrap();
    let mut peer = served(server.clone());
    let start = Instant::now();
    call_within(&mut peer, "Slow", 1, "3000", secs(2)).await;
    let (id, response) = peer.expect_response().await;
    assert_passed(start, ms(1850));
    assert_eq!((id, response.status), (1, None));
    assert_eq!(response.payload[2..], *b"not yet");
    assert_eq!(seen.counts(), (1, 0));
    peer.silence(secs(60)).await;
    assert_eq!(seen.counts(), (1, 1));
    let counters = server.counters();
    assert_eq!((counters.soft_answers, counters.results_dropped), (1, 1));

    // One that is in time answers by itself.
    call_within(&mut peer, "Slow", 3, "1800", secs(2)).await;
    let (_, response) = peer.expect_response().await;
    assert_eq!(response.payload[2..], *b"1800");
    assert_eq!(server.counters(), counters);
}

#[tokio::test(start_paused = true)]
async fn with_less_than_the_margin_left_a_handler_still_has_half_of_its_time() {
    let (server, seen) = slow(in_time(SoftReply::status(Status::new(Code::ABORTED, ""))));
    let mut peer = served(server.build().unwrap());
    for (id, timeout, answered) in [(1, 300, 150), (3, 200, 100), (5, 100, 50), (7, 10, 5)] {
        let start = Instant::now();
        call_within(&mut peer, "Slow", id, "400", ms(timeout)).await;
        assert_eq!(code(&mut peer, id).await, Code::ABORTED);
        assert_passed(start, ms(answered));
    }
    call_within(&mut peer, "Slow", 9, "40", ms(100)).await;
    assert_eq!(code(&mut peer, 9).await, Code::OK);
    // Nobody waits with a clock: there is nothing to be in time for.
    call_within(&mut peer, "Slow", 11, "100000", Duration::ZERO).await;
    let start = Instant::now();
    assert_eq!(code(&mut peer, 11).await, Code::OK);
    assert_passed(start, secs(100));
    assert_eq!(seen.counts(), (6, 6));
}

#[tokio::test(start_paused = true)]
async fn a_soft_reply_is_a_message_bytes_a_status_or_made_of_the_request() {
    let made = |q: StringValue| Ok(text(&format!("{} to do", q.value)));
    let refused = |q: StringValue| Err::<StringValue, _>(Status::new(Code::ABORTED, q.value));
    for (reply, expected) in [
        (SoftReply::message(&text("later")), Ok("later")),
        (SoftReply::message(&Raw(b"\x0a\x03raw")), Ok("raw")),
        (SoftReply::from_request(made), Ok("3000 to do")),
        (SoftReply::from_request(refused), Err(Code::ABORTED)),
        (SoftReply::from_request(|q: Raw| Ok(q)), Ok("3000")),
        (
            SoftReply::status(Status::new(Code::OK, "")),
            Err(Code::INTERNAL),
        ),
        (
            SoftReply::message(&Raw(vec![0; 5 << 20])),
            Err(Code::RESOURCE_EXHAUSTED),
        ),
    ] {
        let (server, seen) = slow(in_time(reply));
        let client = pair(server.build().unwrap(), Client::builder(), 4096).0;
        let request = text("3000");
        let call = client.call::<_, StringValue>("demo.Echo", "Slow", &request);
        let reply = call.timeout(secs(2)).await;
        let reply = reply.map_err(|error| error.status().unwrap().code());
        assert_eq!(
            reply.as_ref().map(|reply| &*reply.value),
            expected.as_ref().map(|ok| *ok)
        );
        sleep(secs(2)).await;
        assert_eq!(seen.counts(), (1, 1));
    }
}

// A handler that runs on takes memory too: nobody may have more of them by answering early.
#[tokio::test(start_paused = true)]
async fn a_handler_that_runs_on_behind_its_answer_counts_until_its_end() {
    let (server, seen) = slow(in_time(SoftReply::message(&text(""))).call_limit(2));
    let server = server.handler_limit(1).build().unwrap();
    let mut peer = served(server.clone());
    let start = Instant::now();
    call_within(&mut peer, "Slow", 1, "3000", secs(2)).await;
    call_within(&mut peer, "Slow", 3, "1000", secs(60)).await;
    assert_eq!(code(&mut peer, 1).await, Code::OK);
    assert_passed(start, ms(1850));
    assert_eq!(seen.counts(), (1, 0), "the next one waits");
    call_within(&mut peer, "Slow", 5, "1000", secs(60)).await;
    assert_eq!(code(&mut peer, 5).await, Code::RESOURCE_EXHAUSTED);
    let stopped = server.shutdown(secs(10)).await;
    assert!(stopped, "it waits for both");
    assert_passed(start, secs(4));
    assert_eq!(code(&mut peer, 3).await, Code::OK);
    assert_eq!(seen.counts(), (2, 2));
    // A timeout still stops one that has been answered.
    let (server, seen) =
        slow(in_time(SoftReply::message(&text(""))).on_deadline(OnDeadline::Cancel));
    let mut peer = served(server.build().unwrap());
    call_within(&mut peer, "Slow", 1, "3000", secs(2)).await;
    assert_eq!(code(&mut peer, 1).await, Code::OK);
    peer.silence(secs(60)).await;
    assert_eq!(seen.counts(), (1, 0));
}

// Tokio lets a task do so much at a turn, and then nothing in it is ready: no timer either.
#[tokio::test]
async fn a_handler_that_never_pauses_is_answered_for_and_stopped_in_time() {
    let busy = |_: Context, _: Raw| async {
        let began = std::time::Instant::now();
        while began.elapsed() < secs(5) {
            tokio::task::consume_budget().await;
        }
        Ok(Raw(""))
    };
    let (soft, timeout) = (in_time(SoftReply::message(&Raw("soon"))), ms(300));
    let server = echo()
        .service(
            Service::new("demo.Echo", ())
                .unary("Soft", move |(), context, request| busy(context, request)),
        )
        .method("demo.Echo", "Soft", soft.timeout(secs(1)))
        .service(
            Service::new("demo.Echo", ())
                .unary("Cut", move |(), context, request| busy(context, request)),
        )
        .method("demo.Echo", "Cut", MethodOptions::new().timeout(timeout));
    let client = pair(server.build().unwrap(), Client::builder(), 4096).0;
    let began = Instant::now();
    let soon = client.call::<_, Raw>("demo.Echo", "Soft", &Raw("")).await;
    assert_eq!(*soon.unwrap(), "soon");
    let cut = client.call::<_, Raw>("demo.Echo", "Cut", &Raw("")).await;
    let status = cut.unwrap_err().status().map(Status::code);
    assert_eq!(status, Some(Code::DEADLINE_EXCEEDED));
    assert!(began.elapsed() < secs(4), "before they have ended");
}

#[tokio::test(start_paused = true)]
async fn what_is_set_for_a_method_goes_before_what_is_set_for_every_one() {
    let soft = MethodOptions::new().soft_deadline(ms(500), SoftReply::message(&text("every")));
    let (server, _) =
        slow(MethodOptions::new().soft_deadline(ms(150), SoftReply::message(&Raw(""))));
    let server = server
        .every_method(soft.timeout(secs(5)))
        .method(
            "demo.Echo",
            "Slow",
            in_time(SoftReply::message(&text("slow"))),
        )
        .service(Service::new(SERVICE, ()).client_stream(
            "Up",
            |(), _, _: Requests<Raw>| async move {
                sleep(secs(60)).await;
                Ok(Raw(""))
            },
        ));
    let client = pair(server.build().unwrap(), Client::builder(), 4096).0;
    for (method, reply, at) in [("Slow", "slow", 1850), ("Sleep", "every", 1500)] {
        let start = Instant::now();
        let request = text("3000");
        let call = client.call::<_, StringValue>("demo.Echo", method, &request);
        assert_eq!(call.timeout(secs(2)).await.unwrap().value, reply);
        assert_passed(start, ms(at));
    }
    // Streams have the rest of it.
    let start = Instant::now();
    let (_sender, reply) = client
        .client_stream::<Raw, Raw>(SERVICE, "Up")
        .await
        .unwrap();
    let error = reply.await.unwrap_err();
    assert!(error.is_deadline(), "{error}");
    assert_passed(start, secs(5));
}

#[test]
fn options_for_a_method_that_cannot_have_them_are_refused() {
    let soft = || in_time(SoftReply::message(&Raw("")));
    let none = MethodOptions::new;
    for (service, method, options, named) in [
        ("demo.Echo", "Sya", none(), "demo.Echo/Sya"),
        (SERVICE, "Join", soft(), "demo.Stream/Join"),
        (SERVICE, "Join", none().call_limit(0), "call_limit"),
        (
            "demo.Echo",
            "Say",
            none().timeout(Duration::ZERO),
            "timeout",
        ),
    ] {
        let error = streams()
            .method(service, method, options)
            .build()
            .unwrap_err();
        assert!(error.to_string().contains(named), "{error}");
    }
    let error = streams().every_method(none().call_limit(0)).build();
    assert!(matches!(
        error,
        Err(ConfigError::ZeroLimit {
            setting: "call_limit"
        })
    ));
    let error = echo().total_handler_limit(0).build();
    assert!(matches!(
        error,
        Err(ConfigError::ZeroLimit {
            setting: "total_handler_limit"
        })
    ));
    let error = echo().waiting_byte_limit(0).build();
    assert!(matches!(
        error,
        Err(ConfigError::ZeroLimit {
            setting: "waiting_byte_limit"
        })
    ));
    streams().every_method(soft()).build().unwrap();
}
