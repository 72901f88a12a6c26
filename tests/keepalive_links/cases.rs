//! The cases that take two ends.

use std::time::Duration;

use super::end::{Job, Outcome};
use super::link::{MS, Pattern, S, at, micros};
use super::world::World;
use ttrpc_keepalive::keepalive::{
    DeadReason, Keepalive, OnSilence, Peer, State, Support, Unknown, Verdict,
};

fn every_second() -> Keepalive {
    Keepalive::every(Duration::from_secs(1)).timeout(Duration::from_secs(1))
}

/// A client that watches, a server that only answers, 2 ms apart.
fn watched(keepalive: Keepalive) -> World {
    World::new(keepalive, Keepalive::off(), 2 * MS)
}

/// As [`watched`], after the first exchange.
fn known(keepalive: Keepalive) -> World {
    let mut world = watched(keepalive);
    world.call(S, Some(0));
    world.run(10 * MS);
    assert_eq!(world.client.machine.support(), Support::Yes);
    world
}

fn outcome(world: &World, call: usize) -> (u64, Outcome) {
    world.client.calls[call].outcome.expect("the call is over")
}

// T03
#[test]
fn peer_that_was_frozen_with_us_and_resumes_just_after_us_lives() {
    for later in [50, 450] {
        let mut world = watched(every_second());
        world.client.runs = Pattern::Except(vec![(S + 3 * MS, 6 * S + MS)]);
        world.server.runs = Pattern::Except(vec![(S + 2 * MS, 6 * S + MS + later * MS)]);
        world.run(9 * S);
        assert_eq!(
            world.client.machine.state(),
            State::Alive,
            "{later} ms later"
        );
        assert!(world.client.late_looks > 0);
    }
}

// T03, its twin
#[test]
fn peer_that_was_frozen_with_us_and_does_not_resume_is_convicted_soon_after() {
    let mut world = watched(every_second());
    world.client.runs = Pattern::Except(vec![(S + 3 * MS, 6 * S + MS)]);
    world.server.dies_at = Some(S + 2 * MS);
    world.run(9 * S);
    assert_eq!(world.client.died_at(), Some(6 * S + 751 * MS));
}

// T12
#[test]
fn large_frame_that_trickles_in_is_life_before_it_is_complete() {
    let mut world = known(every_second());
    world.server.drip = Some(900 * MS);
    world.run(S);
    let before = world.client.pings.len();
    world.run(60 * S);
    assert_eq!(world.client.machine.state(), State::Alive);
    assert_eq!(world.client.pings.len(), before);
}

// T12, its twin
#[test]
fn trickle_that_stops_is_found_at_interval_and_timeout_after_its_last_byte() {
    let mut world = known(every_second());
    world.server.drip = Some(900 * MS);
    world.server.dies_at = Some(5 * S);
    world.run(60 * S);
    let last = micros(world.client.machine.view().last_evidence);
    assert!(last > 4 * S && last < 5 * S + 2 * MS);
    assert_eq!(world.client.died_at(), Some(last + 2 * S));
}

// T13
#[test]
fn bulk_in_front_of_the_pong_is_life_and_its_delay_harms_nobody() {
    let mut world = known(every_second());
    // The peer's application sends on, and its reader takes our PING only three seconds later.
    world.server.drip = Some(20 * MS);
    world.server.reads = Pattern::Except(vec![(S, 4 * S)]);
    world.run(4 * S);
    world.server.drip = None;
    world.run(10 * S);
    assert_eq!(
        (world.client.machine.state(), world.client.convictions.len()),
        (State::Alive, 0)
    );
    assert_eq!(world.client.machine.view().smoothed_rtt, Some(at(2 * MS)));
}

// T14
#[test]
fn upload_that_blocks_and_moves_again_is_life_without_any_ping() {
    let mut world = known(every_second());
    world.capacity(200_000);
    world.server.reads = Pattern::Slices {
        period: 100 * MS,
        on: MS,
    };
    world.client.send_bulk(1 << 30);
    let before = world.client.pings.len();
    world.run(10 * S);
    assert_eq!(world.client.machine.state(), State::Alive);
    assert_eq!(world.client.pings.len(), before);
}

// T14, its twin, and T22: no PING is written, the write-stall clock convicts
#[test]
fn upload_that_never_moves_again_is_a_peer_that_does_not_read() {
    let mut world = known(every_second());
    world.capacity(200_000);
    world.server.reads = Pattern::Except(vec![(10 * MS, 1000 * S)]);
    world.client.send_bulk(1_200_000);
    world.run(10 * S);
    assert_eq!(world.client.died_at(), Some(S + 10 * MS));
    assert_eq!(
        world.client.machine.state(),
        State::Dead(DeadReason::NotReading)
    );
    assert_eq!(
        world.client.machine.view().counters.pings_sent,
        1,
        "the first exchange's"
    );
}

// T23
#[test]
fn peer_that_reads_a_little_in_time_is_never_convicted() {
    let mut world = known(every_second());
    world.capacity(200_000);
    world.server.reads = Pattern::Slices {
        period: 900 * MS,
        on: MS,
    };
    world.client.send_bulk(1 << 30);
    world.run(20 * S);
    assert_eq!(world.client.convictions.len(), 0);
}

// T15
#[test]
fn peer_that_reads_and_says_nothing_any_more_is_judged_by_silence() {
    let mut world = known(every_second());
    world.server.knows_ping = false;
    for n in 1..1000 {
        world.run(10 * MS * n);
        world.client.send_bulk(100);
    }
    assert_eq!(
        world.client.machine.state(),
        State::Dead(DeadReason::Silent)
    );
    assert_eq!(world.client.died_at(), Some(2 * S + 2 * MS));
}

// T21
#[test]
fn byte_that_arrives_at_the_instant_of_the_last_look_is_found() {
    for stale in [false, true] {
        let mut world = known(every_second());
        world.client.reads_are_stale = stale;
        // The PING leaves at 1.002 and is read at 1.003; its PONG arrives at 2.002.
        world.server.runs = Pattern::Except(vec![(S, 2 * S + MS)]);
        world.run(3 * S);
        assert_eq!(world.client.convictions.len(), 0, "stale reads: {stale}");
        assert_eq!(world.client.machine.view().counters.recoveries, 1);
    }
}

// T21, its twin
#[test]
fn byte_that_arrives_after_the_last_look_is_too_late() {
    let mut world = known(every_second());
    world.server.runs = Pattern::Except(vec![(S, 2 * S + MS + 1)]);
    world.run(3 * S);
    assert_eq!(world.client.died_at(), Some(2 * S + 2 * MS));
}

// T47
#[test]
fn pong_is_never_answered() {
    let mut world = World::new(every_second(), every_second(), 2 * MS);
    world.run(10 * S);
    let (client, server) = (&world.client, &world.server);
    assert_eq!(server.pongs_sent, client.machine.view().counters.pings_sent);
    assert_eq!(client.pongs_sent, server.machine.view().counters.pings_sent);
    // Both are due at the same instant, and the PING that comes in is a sign of life.
    let pings = client.pings.len() + server.pings.len();
    assert!((10..=22).contains(&pings), "one an interval: {pings}");
    assert_eq!(
        (client.machine.state(), server.machine.state()),
        (State::Alive, State::Alive)
    );
}

// T65, T80: the machines' part
#[test]
fn slow_handler_is_slow_at_the_deadline_and_its_late_answer_ends_the_watch() {
    let mut world = known(every_second().while_idle(false));
    let call = world.call(2 * S, Some(10 * S));
    world.run(3 * S);
    assert_eq!(
        outcome(&world, call),
        (2 * S + 10 * MS, Outcome::Verdict(Verdict::Slow))
    );
    assert!(world.client.machine.is_watched());
    world.run(11 * S);
    assert!(world.client.calls[call].late_answer.is_some());
    assert_eq!(
        (
            world.client.machine.peer(),
            world.client.machine.is_watched()
        ),
        (Peer::Alive, false)
    );
}

// T66: the periodic PING alone would have said nothing
#[test]
fn frozen_peer_is_unresponsive_at_the_deadline() {
    for keepalive in [
        Keepalive::on_demand(),
        Keepalive::every(Duration::from_secs(30)),
    ] {
        let mut world = known(keepalive);
        world.server.dies_at = Some(500 * MS);
        let call = world.call(2 * S, Some(10 * S));
        world.run(3 * S);
        let unresponsive = Outcome::Verdict(Verdict::Unresponsive);
        assert_eq!(outcome(&world, call), (2 * S + 10 * MS, unresponsive));
        assert_eq!(world.client.machine.peer(), Peer::Doubtful);
    }
}

// T67
#[test]
fn pause_of_ours_over_the_deadline_is_ours() {
    let mut world = known(every_second());
    world.client.runs = Pattern::Except(vec![(S, 2500 * MS)]);
    let call = world.call(2 * S, Some(10 * S));
    world.run(4 * S);
    assert_eq!(
        outcome(&world, call),
        (2500 * MS, Outcome::Verdict(Verdict::LocalStall))
    );
    assert_eq!(world.client.machine.state(), State::Alive);
}

// T68
#[test]
fn reported_silence_is_one_count_and_one_ping_until_the_next_byte() {
    let mut world = known(every_second().on_silence(OnSilence::Report));
    world.server.runs = Pattern::Except(vec![(500 * MS, 5 * S)]);
    world.run(4900 * MS);
    assert_eq!(
        (
            world.client.machine.state(),
            world.client.machine.view().overdue
        ),
        (State::Suspect, true)
    );
    assert_eq!(
        (world.client.convictions.len(), world.client.pings.len()),
        (1, 2)
    );
    world.run(6 * S);
    assert_eq!(
        (world.client.machine.state(), world.client.convictions.len()),
        (State::Alive, 1)
    );
}

// T71
#[test]
fn busy_peer_that_freezes_is_unresponsive_at_the_next_deadline_and_dead_one_timeout_after_its_ping()
{
    let keepalive = Keepalive::every(Duration::from_secs(10)).timeout(Duration::from_secs(2));
    let mut world = watched(keepalive);
    world.server.dies_at = Some(30 * S);
    let call = |n: u64| Job {
        at: n * 100 * MS,
        timeout: 2 * S,
        size: 100,
        answer_after: Some(20 * MS),
    };
    world.client.jobs = (1..400).map(call).collect();
    world.run(40 * S);
    let (first, verdict) = world.client.verdicts().next().unwrap();
    assert_eq!((first.started, verdict), (30 * S, Verdict::Unresponsive));
    assert_eq!(first.outcome.unwrap().0, 32 * S);
    assert_eq!(world.client.died_at(), Some(33_750 * MS));
    assert_eq!(
        world.client.pings.len(),
        2,
        "the first exchange's and the deadline's"
    );
}

// T73
#[test]
fn peer_that_read_while_we_were_stopped_is_not_accused_of_not_reading() {
    let mut world = known(every_second());
    world.capacity(100_000);
    world.client.runs = Pattern::Except(vec![(100 * MS, 5 * S)]);
    world.server.reads = Pattern::Except(vec![(10 * MS, 200 * MS)]);
    world.client.send_bulk(400_000);
    world.run(8 * S);
    assert_eq!(
        (world.client.machine.state(), world.client.convictions.len()),
        (State::Alive, 0)
    );
}

// T76
#[test]
fn thousand_late_calls_on_a_healthy_peer_are_all_slow_and_cost_forty_pings() {
    let mut world = World::new(Keepalive::on_demand(), Keepalive::off(), 100);
    world.call(S, Some(0));
    world.run(MS);
    let before = world.client.pings.len();
    let call = |n: u64| Job {
        at: 2 * MS + n * MS,
        timeout: 2 * S,
        size: 100,
        answer_after: None,
    };
    world.client.jobs = (0..1000).map(call).collect();
    world.run(4 * S);
    assert!((30..=40).contains(&(world.client.pings.len() - before)));
    assert_eq!(
        world
            .client
            .verdicts()
            .filter(|(_, verdict)| *verdict == Verdict::Slow)
            .count(),
        1000
    );
}

// T79
#[test]
fn unwritten_request_is_told_apart_by_whose_fault_it_is() {
    let bulk = |runs: Pattern, reads: Pattern| {
        let mut world =
            known(Keepalive::every(Duration::from_secs(30)).timeout(Duration::from_secs(30)));
        world.capacity(100_000);
        (world.client.runs, world.server.reads) = (runs, reads);
        world.client.send_bulk(30_000_000);
        world.run(11 * MS);
        let call = world.call(2 * S, None);
        world.run(3 * S);
        outcome(&world, call).1
    };
    let sips = Pattern::Slices {
        period: 100 * MS,
        on: MS,
    };
    let stopped = Pattern::Except(vec![(1700 * MS, 2100 * MS)]);
    let shut = Pattern::Except(vec![(11 * MS, 1000 * S)]);
    assert_eq!(
        bulk(Pattern::Always, sips.clone()),
        Outcome::Verdict(Verdict::NotSent)
    );
    assert_eq!(bulk(stopped, sips), Outcome::Verdict(Verdict::LocalStall));
    assert_eq!(
        bulk(Pattern::Always, shut),
        Outcome::Verdict(Verdict::NotReading)
    );
}

// T18, T81
#[test]
fn late_calls_on_a_peer_with_stalled_handlers_all_say_so() {
    let mut world = World::new(Keepalive::on_demand(), Keepalive::off(), 200);
    world.server.handlers_stalled = true;
    let call = |n: u64| Job {
        at: MS + n * 10 * MS,
        timeout: 2 * S,
        size: 100,
        answer_after: None,
    };
    world.client.jobs = (0..20).map(call).collect();
    world.run(3 * S);
    assert_eq!(
        world
            .client
            .verdicts()
            .filter(|(_, verdict)| *verdict == Verdict::HandlersStalled)
            .count(),
        20
    );
}

// T53, T83
#[test]
fn old_peer_is_asked_once_and_lives_through_calls_that_take_for_ever() {
    let mut world = watched(every_second());
    world.server.knows_ping = false;
    world.call(2 * S, Some(10 * MS));
    world.run(S);
    assert_eq!(world.client.machine.support(), Support::No);
    let call = world.call(2 * S, Some(20 * S));
    world.run(60 * S);
    assert_eq!(
        outcome(&world, call).1,
        Outcome::Verdict(Verdict::Unknown(Unknown::NoSupport))
    );
    assert_eq!(
        (world.client.pings.len(), world.client.machine.state()),
        (1, State::Alive)
    );
    assert_eq!(world.client.machine.peer(), Peer::Alive);
}

// T84
#[test]
fn peer_that_takes_half_a_minute_to_boot_is_known_from_its_first_pong_on() {
    let mut world =
        watched(Keepalive::every(Duration::from_secs(10)).timeout(Duration::from_secs(1)));
    world.server.runs = Pattern::Except(vec![(0, 30 * S)]);
    world.call(60 * S, Some(0));
    world.run(60 * S);
    assert_eq!(world.client.pings[..3], [0, 10 * S, 30 * S]);
    assert_eq!(
        (world.client.machine.support(), world.client.machine.state()),
        (Support::Yes, State::Alive)
    );
}

// T89
#[test]
fn call_without_a_deadline_on_a_frozen_peer_ends_with_the_connection() {
    let mut world = known(every_second());
    world.server.dies_at = Some(5 * S);
    let call = world.call(100_000 * S, None);
    world.run(60 * S);
    let last = micros(world.client.machine.view().last_evidence);
    assert_eq!(
        outcome(&world, call),
        (last + 2 * S, Outcome::ConnectionEnded)
    );
}

// The default configuration asks once and then lets a silent peer be
#[test]
fn connection_on_demand_asks_a_silent_peer_once_and_leaves_it_alone_afterwards() {
    let mut world = watched(Keepalive::on_demand());
    world.server.dies_at = Some(0);
    world.call(2 * S, None);
    world.run(200 * S);
    assert_eq!(world.client.pings, [0]);
}

// A call that ran out of time keeps the watch, so the peer that swallowed it is found
#[test]
fn late_call_on_a_frozen_peer_leads_to_its_conviction() {
    let keepalive = Keepalive::every(Duration::from_secs(10)).while_idle(false);
    let mut world = known(keepalive);
    world.run(S);
    world.server.dies_at = Some(S);
    world.run(2 * S);
    world.call(2 * S, None);
    world.run(60 * S);
    assert_eq!(world.client.died_at(), Some(13_750 * MS));
}

// 2,000 calls a second that all run out of time after 4 ms
#[test]
fn storm_of_short_deadlines_on_a_healthy_peer_costs_forty_pings_a_second() {
    let mut world = World::new(Keepalive::on_demand(), Keepalive::off(), 200);
    world.call(S, Some(0));
    world.run(10 * MS);
    let call = |n: u64| Job {
        at: 10 * MS + n * 500,
        timeout: 4 * MS,
        size: 100,
        answer_after: None,
    };
    world.client.jobs = (0..2000).map(call).collect();
    let before = world.client.pings.len();
    world.run(2 * S);
    assert!(
        (30..=41).contains(&(world.client.pings.len() - before)),
        "{}",
        world.client.pings.len()
    );
    assert_eq!(world.client.machine.peer(), Peer::Alive);
}

// The call is written, but the PING that asks for it is not
#[test]
fn written_call_on_a_frozen_peer_behind_our_own_bulk_is_not_reading() {
    let mut world = known(Keepalive::on_demand());
    world.capacity(200_000);
    world.server.dies_at = Some(11 * MS);
    world.run(20 * MS);
    let call = world.call(2 * S, None);
    world.run(30 * MS);
    world.client.send_bulk(3_000_000);
    world.run(4 * S);
    assert_eq!(
        outcome(&world, call).1,
        Outcome::Verdict(Verdict::NotReading)
    );
}
