//! What a late call is told about its peer.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::sync::Arc;

use support::*;
use tokio::time::{Instant, sleep, sleep_until};
use ttrpc_keepalive::keepalive::{Keepalive, OnSilence};
use ttrpc_keepalive::wire::{Flags, MessageType, encode_status, pong};
use ttrpc_keepalive::{
    Client, Code, ConnectionError, DeadReason, LateOutcome, Peer as Summary, State, Status,
    Support, Unknown, Verdict,
};

/// A watch so slow that it plays no part.
fn slow_watch() -> Keepalive {
    Keepalive::every(secs(30))
}

// T65, part 2 number 1
#[tokio::test(start_paused = true)]
async fn a_healthy_peer_with_a_slow_handler_is_slow_at_the_deadline_and_not_later() {
    let (client, _) = echo_pair(Keepalive::every(ms(200)).timeout(secs(1)));
    let start = Instant::now();
    let error = sleep_within(&client, secs(10), secs(2)).await.unwrap_err();
    assert_passed(start, secs(2));
    assert!(error.is_deadline());
    assert_eq!(error.verdict(), Some(Verdict::Slow));
    assert_eq!(error.peer(), Summary::Alive);

    assert!(say(&client).await.is_ok(), "the connection goes on");
    assert!(matches!(client.snapshot().state(), State::Alive));
    assert_eq!(client.snapshot().late_calls_unanswered(), 1);

    // Part 2 number 2: the late Response is dropped, and nothing of the call is left.
    let outcome = error.late_answer().unwrap().await;
    assert_passed(start, secs(10));
    assert!(matches!(outcome, LateOutcome::Answered { .. }));
    assert!(say(&client).await.is_ok());
    assert_eq!(client.snapshot().late_calls_unanswered(), 0);
    assert_eq!(client.snapshot().counters().late_responses, 1);
    assert_eq!(client.snapshot().counters().keepalive.suspect_entries, 0);
}

// T66. It also shows that the driver runs between `ask_at` and the deadline: had it slept, it could
// only say that it did not look.
#[tokio::test(start_paused = true)]
async fn a_stopped_peer_is_unresponsive_at_the_deadline_although_no_periodic_ping_is_due() {
    let (client, freezer) = echo_pair(slow_watch());
    let start = Instant::now();
    tokio::spawn(async move {
        sleep(ms(500)).await;
        freezer.freeze();
    });
    let error = sleep_within(&client, secs(10), secs(2)).await.unwrap_err();
    assert_passed(start, secs(2));
    assert_eq!(error.verdict(), Some(Verdict::Unresponsive));
    assert_eq!(error.peer(), Summary::Doubtful);
    assert_eq!(client.peer(), Summary::Doubtful);
    let evidence = error.evidence().unwrap();
    assert!(evidence.silent_for >= ms(1990), "{evidence}");
    assert!(evidence.awaiting_pong_for.unwrap() >= ms(249), "{evidence}");
}

// The same with the default, which watches nothing.
#[tokio::test(start_paused = true)]
async fn on_demand_says_unresponsive_and_closes_nothing() {
    let (client, freezer) = echo_pair(Keepalive::on_demand());
    say(&client).await.unwrap();
    freezer.freeze();
    let error = say_within(&client, secs(2)).await.unwrap_err();
    assert_eq!(error.verdict(), Some(Verdict::Unresponsive));
    sleep(secs(3600)).await;
    freezer.thaw();
    assert!(say(&client).await.is_ok());
    assert_eq!(client.peer(), Summary::Alive);
}

// T67
#[tokio::test(start_paused = true)]
async fn an_answer_that_came_while_this_side_was_blocked_is_taken_at_the_deadline() {
    for stale in [false, true] {
        let (stream, mut peer) = BarePeer::pair();
        let client = Client::builder()
            .keepalive(slow_watch())
            .attach(stream)
            .unwrap();
        first_exchange(&client, &mut peer).await;

        let mut call = Box::pin(say_within(&client, secs(2)));
        poll_once(call.as_mut());
        sleep(secs(1)).await;
        pause(ms(1500));
        peer.answer();
        if stale {
            // The driver runs before the reactor has seen the socket.
            let other = Box::pin(say_within(&client, secs(2)));
            tokio::select! {
                biased;
                _ = other => {}
                reply = &mut call => assert!(reply.is_ok(), "{reply:?}"),
            }
        } else {
            assert!(call.await.is_ok());
        }
        assert!(matches!(client.snapshot().state(), State::Alive));
    }
}

async fn first_exchange(client: &Client, peer: &mut BarePeer) {
    let mut call = Box::pin(say(client));
    poll_once(call.as_mut());
    sleep(ms(1)).await;
    peer.answer();
    call.await.unwrap();
    assert_eq!(client.snapshot().support(), Support::Yes);
}

// T67, without an answer
#[tokio::test(start_paused = true)]
async fn a_call_whose_deadline_passed_while_this_side_was_blocked_is_a_local_stall() {
    let (client, freezer) = echo_pair(Keepalive::every(secs(1)).timeout(secs(1)));
    say(&client).await.unwrap();
    let mut call = Box::pin(sleep_within(&client, secs(10), secs(2)));
    poll_once(call.as_mut());
    sleep(ms(900)).await;
    // The peer answers nothing of what is asked after the pause: nothing it could be held to.
    freezer.freeze();
    pause(ms(1500));
    let error = call.await.unwrap_err();
    assert_eq!(error.verdict(), Some(Verdict::LocalStall), "{error}");
    assert_eq!(error.peer(), Summary::Alive);
    freezer.thaw();
    assert!(say(&client).await.is_ok());
}

// T71
#[tokio::test(start_paused = true)]
async fn a_peer_that_freezes_on_a_busy_connection_is_found_by_the_next_deadline() {
    let (client, freezer) = echo_pair(Keepalive::every(secs(10)).timeout(secs(2)));
    let client = Arc::new(client);
    let start = Instant::now();
    let freeze = {
        let freezer = freezer.clone();
        tokio::spawn(async move {
            sleep_until(start + ms(29_950)).await;
            freezer.freeze();
        })
    };
    let mut calls = Vec::new();
    for number in 0..310u32 {
        sleep_until(start + ms(100) * number).await;
        let client = Arc::clone(&client);
        calls.push(tokio::spawn(async move {
            let result = say_within(&client, secs(2)).await;
            (result, start.elapsed())
        }));
    }
    freeze.await.unwrap();
    for call in calls.drain(..300) {
        assert!(call.await.unwrap().0.is_ok());
    }
    let (result, at) = calls.remove(0).await.unwrap();
    assert_eq!(result.unwrap_err().verdict(), Some(Verdict::Unresponsive));
    assert!(at >= secs(32) && at < ms(32_003), "{at:?}");

    let end = client.closed().await;
    assert_eq!(end.dead_reason(), Some(DeadReason::Silent));
    assert_passed(start, ms(33_750));
}

// T77
#[tokio::test(start_paused = true)]
async fn a_deadline_shorter_than_the_round_trip_says_too_early() {
    let (client, mut peer) = scripted(Keepalive::on_demand(), 64 << 10);
    let far = tokio::spawn(async move {
        while let Some(frame) = peer.next().await {
            sleep(ms(80)).await;
            match frame.header.message_type {
                MessageType::PING => peer.pong(&frame).await,
                _ => peer.respond(frame.header.stream_id).await,
            }
        }
    });
    say(&client).await.unwrap();
    assert!(client.snapshot().smoothed_rtt().unwrap() >= ms(80));
    sleep(secs(1)).await;
    let error = say_within(&client, ms(50)).await.unwrap_err();
    assert_eq!(error.verdict(), Some(Verdict::Unknown(Unknown::TooEarly)));
    assert_eq!(error.peer(), Summary::Doubtful, "until the next evidence");
    sleep(secs(1)).await;
    assert_eq!(client.peer(), Summary::Alive);
    far.abort();
}

// T78
#[tokio::test(start_paused = true)]
async fn the_peers_own_deadline_exceeded_is_a_late_call_of_a_slow_peer() {
    let (client, mut peer) = scripted(Keepalive::on_demand(), 64 << 10);
    let script = async {
        peer.answer_ping().await;
        let (id, _) = peer.request().await;
        let status = Status::new(Code::DEADLINE_EXCEEDED, "too slow");
        peer.send(encode_status(id, &status)).await;
    };
    let (result, ()) = tokio::join!(say_within(&client, secs(2)), script);
    let error = result.unwrap_err();
    assert!(error.is_deadline());
    assert_eq!(error.verdict(), Some(Verdict::Slow));
    assert_eq!(error.peer(), Summary::Alive);
    assert_eq!(error.status().unwrap().code(), Code::DEADLINE_EXCEEDED);
    assert!(error.late_answer().is_none(), "it is answered");
}

// T79
#[tokio::test(start_paused = true)]
async fn a_request_behind_our_own_bulk_is_not_sent_and_never_will_be() {
    let (client, mut peer) = scripted(Keepalive::off(), 4096);
    let bulk = client.clone();
    let bulk = tokio::spawn(async move { say_large(&bulk, 3 << 20).await });
    tokio::task::yield_now().await;
    let start = Instant::now();
    let slow_reader = tokio::spawn(async move {
        // 4 KiB every 5 ms: the bulk takes almost 4 s.
        let mut ids = Vec::new();
        loop {
            sleep(ms(5)).await;
            match tokio::time::timeout(ms(0), peer.next()).await {
                Ok(Some(frame)) => {
                    let id = frame.header.stream_id;
                    ids.push(id);
                    peer.respond(id).await;
                }
                Ok(None) => return ids,
                Err(_) => {}
            }
        }
    });
    let error = say_within(&client, secs(2)).await.unwrap_err();
    assert_passed(start, secs(2));
    assert_eq!(error.verdict(), Some(Verdict::NotSent));
    assert_eq!(error.peer(), Summary::Alive, "it reads what we send");
    assert!(error.late_answer().is_none(), "no answer can come");
    bulk.await.unwrap().unwrap();
    say(&client).await.unwrap();
    drop(client);
    assert_eq!(slow_reader.await.unwrap(), [1, 5], "call 3 was never sent");
}

// T79, part 2 number 4
#[tokio::test(start_paused = true)]
async fn a_request_that_the_kernel_does_not_take_is_not_read() {
    let (client, mut peer) = scripted(Keepalive::on_demand(), 64 << 10);
    let (first, ()) = tokio::join!(say(&client), peer.first_exchange());
    first.unwrap();
    let bulk = client.clone();
    tokio::spawn(async move { say_large(&bulk, 3 << 20).await });
    tokio::task::yield_now().await;
    let start = Instant::now();
    let error = say_within(&client, secs(1)).await.unwrap_err();
    assert_passed(start, secs(1));
    assert_eq!(error.verdict(), Some(Verdict::NotReading));
    assert_eq!(error.peer(), Summary::Doubtful);
}

// T79
#[tokio::test(start_paused = true)]
async fn a_request_that_waited_behind_our_own_pause_is_a_local_stall() {
    let (client, mut peer) = scripted(Keepalive::on_demand(), 64 << 10);
    let (first, ()) = tokio::join!(say(&client), peer.first_exchange());
    first.unwrap();
    let bulk = client.clone();
    tokio::spawn(async move { say_large(&bulk, 3 << 20).await });
    tokio::task::yield_now().await;
    let mut call = Box::pin(say_within(&client, secs(1)));
    poll_once(call.as_mut());
    sleep(ms(700)).await;
    pause(secs(2));
    let error = call.await.unwrap_err();
    assert_eq!(error.verdict(), Some(Verdict::LocalStall));
}

// T80
#[tokio::test(start_paused = true)]
async fn a_late_answer_is_told_when_it_comes() {
    let (client, _) = echo_pair(Keepalive::on_demand());
    let start = Instant::now();
    let error = sleep_within(&client, secs(4), secs(1)).await.unwrap_err();
    assert_eq!(client.snapshot().late_calls_unanswered(), 1);
    let answer = error.late_answer().unwrap();
    drop(error);
    let LateOutcome::Answered { after } = answer.clone().await else {
        panic!("{answer:?}");
    };
    assert_passed(start, secs(4));
    assert!(after >= secs(4) && after < ms(4010), "{after:?}");
    tokio::task::yield_now().await;
    assert_eq!(client.snapshot().late_calls_unanswered(), 0);
}

// T80
#[tokio::test(start_paused = true)]
async fn late_records_are_bounded_and_the_oldest_is_forgotten() {
    let server = echo().handler_limit(4096).build().unwrap();
    let (client, _) = pair(server, Client::builder(), 1 << 20);
    let start = Instant::now();
    let calls: Vec<_> = (0..2000)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { sleep_within(&client, secs(60), secs(1)).await })
        })
        .collect();
    let mut errors = Vec::new();
    for call in calls {
        errors.push(call.await.unwrap().unwrap_err());
    }
    assert_passed(start, secs(1));
    for error in &errors {
        assert_eq!(error.verdict(), Some(Verdict::Slow), "{error}");
    }
    tokio::task::yield_now().await;
    assert_eq!(client.snapshot().late_calls_unanswered(), 1024);
    let pings = client.snapshot().counters().keepalive.pings_sent;
    assert!(pings <= 3, "T76: {pings} PINGs for 2,000 late calls");

    let (mut answered, mut forgotten) = (0, 0);
    for error in errors {
        match error.late_answer().unwrap().await {
            LateOutcome::Answered { .. } => answered += 1,
            LateOutcome::Forgotten => forgotten += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((answered, forgotten), (1024, 976));
    say(&client).await.unwrap();
    assert_eq!(client.snapshot().late_calls_unanswered(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_late_call_ends_with_the_connection() {
    let (client, mut peer) = scripted(Keepalive::on_demand(), 64 << 10);
    let error = say_within(&client, secs(1)).await.unwrap_err();
    peer.ping().await;
    drop(peer);
    let outcome = error.late_answer().unwrap().await;
    assert!(
        matches!(&outcome, LateOutcome::Ended(ConnectionError::PeerClosed)),
        "{outcome:?}"
    );
}

// T68, T20 without processes
#[tokio::test(start_paused = true)]
async fn a_peer_that_is_only_reported_comes_back_with_its_first_byte() {
    let keepalive = Keepalive::every(secs(1))
        .timeout(secs(1))
        .on_silence(OnSilence::Report);
    let (client, mut peer) = scripted(keepalive, 64 << 10);
    peer.answer_ping().await;
    let start = Instant::now();
    peer.ping().await;
    assert_passed(start, secs(1));
    sleep_until(start + ms(5500)).await;
    let seen = client.snapshot();
    assert!(matches!(seen.state(), State::Suspect), "{:?}", seen.state());
    assert!(seen.overdue());
    assert_eq!(seen.counters().keepalive.convictions_silent, 1);
    peer.silence(ms(1)).await;
    peer.send(junk(9, 0, Default::default(), b"x")).await;
    sleep(ms(1)).await;
    let seen = client.snapshot();
    assert!(matches!(seen.state(), State::Alive) && !seen.overdue());
    assert_eq!(client.peer(), Summary::Alive);
    peer.ping().await;
}

// T89
#[tokio::test(start_paused = true)]
async fn a_call_without_a_timeout_fails_with_the_conviction() {
    let (client, freezer) = echo_pair(Keepalive::every(secs(10)).timeout(secs(3)));
    say(&client).await.unwrap();
    let start = Instant::now();
    freezer.freeze();
    let error = say(&client).await.unwrap_err();
    assert_passed(start, secs(13));
    assert!(error.is_connection());
    assert_eq!(error.peer(), Summary::Gone);
    assert!(error.evidence().unwrap().silent_for >= secs(13) - ms(1));
    let State::Dead(reason) = client.snapshot().state() else {
        panic!("{:?}", client.snapshot().state());
    };
    assert_eq!(reason, DeadReason::Silent);
    assert!(
        say(&client).await.unwrap_err().is_connection(),
        "dead is final"
    );
}

#[tokio::test(start_paused = true)]
async fn a_probe_yields_the_round_trip_or_the_verdict() {
    let (client, freezer) = echo_pair(Keepalive::on_demand());
    say(&client).await.unwrap();
    assert!(client.probe(secs(1)).await.unwrap() < ms(5));
    freezer.freeze();
    let start = Instant::now();
    let error = client.probe(secs(1)).await.unwrap_err();
    assert_passed(start, secs(1));
    assert_eq!(error.verdict(), Some(Verdict::Unresponsive));
    freezer.thaw();
    assert!(client.probe(secs(1)).await.is_ok());
    assert_eq!(client.peer(), Summary::Alive);
}

#[tokio::test(start_paused = true)]
async fn a_probe_may_be_the_first_that_a_peer_hears() {
    let (client, _) = echo_pair(Keepalive::on_demand());
    client.probe(secs(1)).await.unwrap();
    assert_eq!(client.snapshot().support(), Support::Yes);

    // One that says nothing may be an old one.
    let (client, mut peer) = scripted(Keepalive::on_demand(), 64 << 10);
    let start = Instant::now();
    let error = client.probe(secs(1)).await.unwrap_err();
    assert_passed(start, secs(1));
    assert_eq!(error.verdict(), Some(Verdict::Unknown(Unknown::NoSupport)));
    assert_eq!(error.peer(), Summary::Alive);
    peer.ping().await;
    peer.silence(secs(60)).await;
}

#[tokio::test(start_paused = true)]
async fn a_probe_of_a_peer_that_cannot_be_asked_says_so_at_once() {
    let (client, mut peer) = scripted(Keepalive::on_demand(), 64 << 10);
    let script = async {
        peer.ping().await;
        let (id, _) = peer.request().await;
        peer.respond(id).await;
    };
    let (reply, ()) = tokio::join!(say(&client), script);
    reply.unwrap();
    let start = Instant::now();
    let error = client.probe(secs(1)).await.unwrap_err();
    assert_passed(start, secs(0));
    assert_eq!(error.verdict(), Some(Verdict::Unknown(Unknown::NoSupport)));
    assert_eq!(
        client.peer(),
        Summary::Alive,
        "it says nothing against the peer"
    );

    let (off, _) = echo_pair(Keepalive::off());
    say(&off).await.unwrap();
    let error = off.probe(secs(1)).await.unwrap_err();
    assert_eq!(error.verdict(), Some(Verdict::Unknown(Unknown::NoSupport)));
}

// The PING goes in front of more frames than one turn writes, so its PONG is read before the
// write is over.
#[tokio::test(start_paused = true)]
async fn a_ping_answered_while_a_burst_is_still_being_written_is_answered() {
    let watch = Keepalive::every(secs(1)).timeout(secs(1)).while_idle(false);
    let server = echo().handler_limit(4096).build().unwrap();
    let (client, _) = pair(server, Client::builder().keepalive(watch), 1 << 20);
    let calls: Vec<_> = (0..2000)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { sleep_within(&client, secs(20), secs(60)).await })
        })
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let counters = client.snapshot().counters().keepalive;
    assert_eq!(counters.suspect_entries, 0);
    assert!(counters.pongs_received >= 19, "{counters:?}");
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_is_answered_late_returns_no_older_round_trip() {
    let watch = Keepalive::every(secs(1)).timeout(secs(1));
    let (client, mut peer) = scripted(watch, 64 << 10);
    peer.answer_ping().await;
    let probe = tokio::spawn({
        let client = client.clone();
        async move { client.probe(secs(5)).await }
    });
    let number = peer.ping().await;
    // Long enough to be suspect: this PONG measures nothing.
    sleep(ms(700)).await;
    peer.send(pong(u32::MAX, Flags::NONE, &number.to_be_bytes()))
        .await;
    let round_trip = probe.await.unwrap().unwrap();
    assert!(round_trip >= ms(700), "{round_trip:?}");
}
