//! Times at the ends of what a clock can say: limits that never come, limits of nothing, and a clock that
//! jumps by years.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::time::Duration;

use protobuf::well_known_types::wrappers::StringValue;
use support::*;
use tokio::time::{sleep, timeout};
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::wire::{Flags, RequestHead, encode_request};
use ttrpc_keepalive::{
    Backoff, Client, Code, DriverThread, Listener, MethodOptions, OnDeadline, Server, SoftReply,
};

/// From what no sum can hold to what tokio's timers, the wire and an `Instant` just can.
const NEVER: [Duration; 6] = [
    Duration::MAX,
    Duration::from_secs(u64::MAX),
    Duration::from_millis(u64::MAX),
    Duration::from_nanos(u64::MAX),
    Duration::from_nanos(1 << 63),
    Duration::from_secs(100 * 365 * 86_400),
];

fn patient(limit: Duration, thread: DriverThread) -> Server {
    let endless = MethodOptions::new()
        .timeout(limit)
        .on_deadline(OnDeadline::Cancel)
        .soft_deadline(limit, SoftReply::message(&text("early")))
        .refuse_waited(limit);
    streams()
        .driver_thread(thread)
        .keepalive(Keepalive::every(limit).timeout(limit).write_stall(limit))
        .first_request_timeout(limit)
        .header_timeout(limit)
        .every_method(endless)
        .build()
        .unwrap()
}

async fn all_is_well(client: &Client, limit: Duration) {
    say(client).await.unwrap();
    assert_eq!(say_within(client, limit).await.unwrap().value, "hello");
    let slept = sleep_within(client, ms(20), limit).await.unwrap();
    assert_eq!(slept.value, "20", "{limit:?}");
    let call = client.bidi_stream::<StringValue, StringValue>(SERVICE, "Echo");
    let (sender, mut receiver) = call.timeout(limit).await.unwrap();
    sender.send(&text("a")).await.unwrap();
    assert_eq!(receiver.next().await.unwrap().unwrap().value, "a");
    sender.finish();
    assert!(receiver.next().await.is_none());
    client.probe(limit).await.unwrap();
    assert!(!client.snapshot().state().is_final());
}

#[tokio::test]
async fn a_limit_that_never_comes_is_none() {
    let folder = tempfile::tempdir().unwrap();
    for limit in NEVER {
        for thread in [DriverThread::Shared, DriverThread::Dedicated] {
            let server = patient(limit, thread);
            let path = folder.path().join("s").display().to_string();
            let listener = Listener::bind(&path).await.unwrap();
            let serving = tokio::spawn({
                let server = server.clone();
                async move { server.serve(listener).await }
            });
            let builder = Client::builder()
                .driver_thread(thread)
                .keepalive(Keepalive::every(limit).timeout(limit).write_stall(limit))
                .connect_timeout(limit)
                .connect_retry(limit)
                .call_timeout(limit)
                .header_timeout(limit);
            let client = builder.connect(&path).await.unwrap();
            all_is_well(&client, limit).await;
            let mut backoff = Backoff::new(limit, limit).settled_after(limit);
            for _ in 0..5 {
                assert!(backoff.delay_after(ms(1)).unwrap() <= limit);
            }
            client.close().timeout(limit).await.unwrap();
            assert!(server.shutdown(limit).await);
            serving.await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_nothing_is_over_at_once() {
    let server = patient(secs(60), DriverThread::Shared);
    let (client, _) = pair(server.clone(), Client::builder(), 64 << 10);
    say(&client).await.unwrap();
    for limit in [Duration::ZERO, Duration::from_nanos(1)] {
        let at_once = async {
            // A clock that stands still is not behind a nanosecond.
            let said = say_within(&client, limit).await;
            match said {
                Ok(_) => assert!(!limit.is_zero()),
                Err(error) => assert!(error.is_deadline()),
            }
            let call = client.bidi_stream::<StringValue, StringValue>(SERVICE, "Echo");
            if let Ok((_sender, mut receiver)) = call.timeout(limit).await {
                let ended = receiver.next().await.unwrap();
                assert!(ended.unwrap_err().is_deadline());
            }
            let probed = client.probe(limit).await;
            assert!(probed.is_ok() || probed.unwrap_err().is_deadline());
            let (other, _) = pair(server.clone(), Client::builder(), 64 << 10);
            let _ = other.close().timeout(limit).await;
            other.closed().await;
        };
        timeout(secs(5), at_once).await.unwrap();
        assert!(!client.snapshot().state().is_final());
    }
    server.shutdown(Duration::ZERO).await;
    client.closed().await;
}

fn request(id: u32, timeout_nano: i64) -> Vec<u8> {
    let head = RequestHead {
        service: "demo.Echo",
        method: "Say",
        timeout_nano,
        metadata: &[],
    };
    encode_request(id, Flags::NONE, &head, &text("hello")).unwrap()
}

// What a peer says of its own time.
#[tokio::test(start_paused = true)]
async fn a_peer_may_say_any_time_that_a_frame_can_hold() {
    let mut peer = served(patient(secs(60), DriverThread::Shared));
    for (id, timeout_nano) in (1..).step_by(2).zip([i64::MAX, i64::MAX - 1, 1 << 62, 0]) {
        peer.send(request(id, timeout_nano)).await;
        assert_eq!(code(&mut peer, id).await, Code::OK, "{timeout_nano}");
    }
    for (id, timeout_nano) in (101..).step_by(2).zip([-1, i64::MIN, i64::MIN + 1]) {
        peer.send(request(id, timeout_nano)).await;
        let code = code(&mut peer, id).await;
        assert_eq!(code, Code::DEADLINE_EXCEEDED, "{timeout_nano}");
    }
}

// A suspended machine, or a clock that was set wrong: a pause of this side, and nobody's fault.
#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_by_years_convicts_nobody_and_ends_what_had_a_limit() {
    let keepalive = Keepalive::every(secs(10)).timeout(secs(10));
    let (client, _) = echo_pair(keepalive);
    say(&client).await.unwrap();
    for years in [1, 10, 20] {
        let endless = tokio::spawn({
            let client = client.clone();
            async move { sleep_within(&client, ms(1), Duration::MAX).await }
        });
        let limited = tokio::spawn({
            let client = client.clone();
            // Asleep for longer than the clock will jump.
            async move { sleep_within(&client, secs(1 << 32), secs(5)).await }
        });
        sleep(Duration::from_micros(100)).await;
        pause(secs(years * 365 * 86_400));
        endless.await.unwrap().unwrap();
        assert!(limited.await.unwrap().unwrap_err().is_deadline());
        say(&client).await.unwrap();
        let seen = client.snapshot();
        assert!(!seen.state().is_final(), "{years}: {:?}", seen.end());
        sleep(secs(60)).await;
        assert!(!client.snapshot().state().is_final());
    }
    assert_eq!(client.snapshot().counters().keepalive.convictions_silent, 0);
}
