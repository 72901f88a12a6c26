//! Timeouts that are no longer than the timers of a runtime are fine, and calls that were never offered:
//! a pause of this side is claimed only where there was one, and then it is counted.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::time::Duration;

use protobuf::well_known_types::wrappers::StringValue;
use support::*;
use tokio::io::DuplexStream;
use tokio::time::sleep;
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::wire::{Flags, encode_data};
use ttrpc_keepalive::{Client, Error, Raw, Unknown, Verdict};

const EARLY: Verdict = Verdict::Unknown(Unknown::TooEarly);

/// A client that knows its peer, which is frozen and takes so many bytes.
async fn frozen(capacity: usize) -> (Client, Peer<DuplexStream>) {
    let (client, mut peer) = scripted(Keepalive::on_demand(), capacity);
    let (reply, ()) = tokio::join!(say(&client), peer.first_exchange());
    reply.unwrap();
    sleep(ms(60)).await;
    (client, peer)
}

/// Of 0 to 20 ms, most of them no multiple of one.
fn timeouts() -> impl Iterator<Item = Duration> {
    (0..=80).map(|quarters| Duration::from_micros(quarters * 250))
}

fn stalls(client: &Client) -> u64 {
    client.snapshot().counters().keepalive.local_stalls
}

fn verdict(error: &Error) -> Verdict {
    error.verdict().unwrap_or_else(|| panic!("{error}"))
}

async fn late_in_each_way(client: &Client, timeout: Duration) -> [(&'static str, Error); 4] {
    let stream = client.client_stream::<StringValue, StringValue>(SERVICE, "Join");
    let stream = async {
        let (_sender, reply) = stream.timeout(timeout).await?;
        reply.await
    };
    [
        ("a call", say_within(client, timeout).await.unwrap_err()),
        ("a large call", {
            let large = text(&"x".repeat(10_000));
            let call = client.call::<_, StringValue>("demo.Echo", "Say", &large);
            call.timeout(timeout).await.unwrap_err()
        }),
        ("a stream", stream.await.unwrap_err()),
        ("a probe", client.probe(timeout).await.unwrap_err()),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_short_timeout_of_a_frozen_peer_is_no_pause_of_this_side() {
    for capacity in [1 << 20, 4096] {
        let mut seen = Vec::new();
        for timeout in timeouts() {
            let (client, _peer) = frozen(capacity).await;
            for (name, error) in late_in_each_way(&client, timeout).await {
                let verdict = verdict(&error);
                // Of what lies behind a frame that the peer does not take.
                let behind = capacity == 4096 && verdict == Verdict::NotReading;
                assert!(
                    behind || [EARLY, Verdict::Unresponsive].contains(&verdict),
                    "{name} within {timeout:?}: {error}"
                );
                seen.push(verdict);
            }
            assert_eq!(stalls(&client), 0, "within {timeout:?}");
        }
        // The PING had its time in some, and had none in others.
        assert!(seen.contains(&EARLY) && seen.contains(&Verdict::Unresponsive));
    }
}

// On a machine that is busy this side may pause in fact.
#[tokio::test]
async fn a_pause_that_a_verdict_claims_is_counted() {
    let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
    for socket in [&here, &there] {
        socket.set_nonblocking(true).unwrap();
    }
    let client = Client::builder();
    let client = client.attach(tokio::net::UnixStream::from_std(here).unwrap());
    let client = client.unwrap();
    let mut peer = Peer::new(tokio::net::UnixStream::from_std(there).unwrap());
    let (reply, ()) = tokio::join!(say(&client), peer.first_exchange());
    reply.unwrap();
    let (mut runs, mut claimed) = (0, 0);
    for timeout in timeouts().filter(|timeout| timeout.subsec_micros() % 1000 == 0) {
        let before = stalls(&client);
        let error = say_within(&client, timeout).await.unwrap_err();
        runs += 1;
        if verdict(&error) == Verdict::LocalStall {
            claimed += 1;
            assert_eq!(stalls(&client), before + 1, "{error}");
            let stall = error.evidence().unwrap().local_stall.unwrap();
            assert!(stall > ms(5), "{error}");
        }
    }
    assert!(claimed < runs, "all of {runs} were pauses");
}

#[tokio::test(start_paused = true)]
async fn one_pause_is_counted_once_however_many_calls_it_makes_late() {
    let (client, _peer) = frozen(1 << 20).await;
    let calls: Vec<_> = (0..100)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { say_within(&client, secs(1)).await })
        })
        .collect();
    sleep(ms(800)).await;
    pause(secs(5));
    for call in calls {
        let error = call.await.unwrap().unwrap_err();
        assert_eq!(verdict(&error), Verdict::LocalStall, "{error}");
        assert!(
            error.evidence().unwrap().local_stall > Some(secs(4)),
            "{error}"
        );
    }
    assert_eq!(stalls(&client), 1);
}

/// The peer sends a message of this stream every millisecond.
async fn chatters(peer: &mut Peer<DuplexStream>, id: u32) {
    let message = encode_data(id, Flags::NONE, &text("x")).unwrap();
    loop {
        peer.send(&message).await;
        sleep(ms(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_another_to_end_was_not_sent_and_says_what_it_waited_for() {
    for keepalive in [Keepalive::off(), Keepalive::on_demand()] {
        for streams in [false, true] {
            let builder = Client::builder().keepalive(keepalive.clone());
            let (client, mut peer) = attached(builder.call_limit(1), 64 << 10);
            let call = client.server_stream::<_, StringValue>(SERVICE, "Count", &text(""));
            let mut stream = call.await.unwrap();
            let mut frame = peer.frame().await;
            if frame.header.message_type == ttrpc_keepalive::wire::MessageType::PING {
                peer.pong(&frame).await;
                frame = peer.frame().await;
            }
            let id = frame.header.stream_id;
            tokio::spawn(async move { while let Some(Ok(_)) = stream.next().await {} });
            tokio::spawn(async move {
                if streams {
                    chatters(&mut peer, id).await;
                }
                peer.serve().await;
            });
            for timeout in [ms(2), ms(20), secs(2)] {
                let error = say_within(&client, timeout).await.unwrap_err();
                assert_eq!(verdict(&error), Verdict::NotSent, "{error}");
                assert_eq!(error.request(), ttrpc_keepalive::RequestProgress::NotSent);
                let line = error.to_string();
                assert!(
                    line.contains("it waited for a call to end, of 1 (`call_limit`)"),
                    "{line}"
                );
                let opened = client.client_stream::<StringValue, StringValue>(SERVICE, "Join");
                let error = opened.timeout(timeout).await.unwrap_err();
                assert_eq!(verdict(&error), Verdict::NotSent, "{error}");
            }
            assert_eq!(stalls(&client), 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_bytes_to_be_written_says_so() {
    let builder = Client::builder().keepalive(Keepalive::off());
    let (client, _peer) = attached(builder.outbox_limit(20_000), 4096);
    let large = text(&"x".repeat(30_000));
    let mut first = client.call::<_, StringValue>("demo.Echo", "Say", &large);
    poll_once(std::pin::Pin::new(&mut first));
    let error = say_within(&client, secs(1)).await.unwrap_err();
    assert_eq!(verdict(&error), Verdict::NotReading, "{error}");
    let line = error.to_string();
    assert!(
        line.contains("it waited for bytes to be written, of 20000 (`outbox_limit`)"),
        "{line}"
    );
}

// The pause was in the time in which the other call may have ended.
#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_another_in_a_pause_of_this_side_says_that() {
    let builder = Client::builder().keepalive(Keepalive::off());
    let (client, _peer) = attached(builder.call_limit(1), 4096);
    let mut first = client.call::<_, Raw>("demo.Echo", "Say", &Raw(""));
    poll_once(std::pin::Pin::new(&mut first));
    let mut second = Box::pin(say_within(&client, secs(1)));
    poll_once(second.as_mut());
    sleep(ms(800)).await;
    pause(secs(2));
    let error = second.await.unwrap_err();
    assert_eq!(verdict(&error), Verdict::LocalStall, "{error}");
    assert_eq!(stalls(&client), 1);
}
