//! A PING on trial, its answers, and the end.

use ttrpc_keepalive::keepalive::{Keepalive, Look, Machine, Peer, Role, State, Unread, Verdict};
use ttrpc_keepalive::wire::Flags;

use super::bench::{SILENT, answer, due_ping, every_second, known, look, looks, ms, write_ping};

// T30: swapping interval and timeout gives 10.75 for the first look
#[test]
fn peer_that_dies_after_a_byte_is_found_at_interval_and_timeout_exactly() {
    let mut machine = known(&Keepalive::every(ms(10_000)).timeout(ms(3000)));
    assert_eq!(due_ping(&mut machine, ms(9999)), None);
    write_ping(&mut machine, ms(10_000));
    let mut instants = Vec::new();
    for _ in 0..4 {
        let now = machine.poll_timeout().unwrap();
        look(&mut machine, now);
        instants.push(now);
    }
    assert_eq!(instants, [ms(10_750), ms(11_500), ms(12_250), ms(13_000)]);
}

// Judging J-5: interval and timeout are the latest that a death is found, not the only time.
#[test]
fn the_ping_of_a_late_call_begins_a_trial_like_any_other() {
    let mut machine = known(&every_second());
    machine.handle_ping_wish(ms(780), ms(780));
    machine.poll_ping(ms(780)).expect("a PING is wanted");
    machine.handle_ping_flushed(ms(780));
    assert_eq!(looks(&mut machine, ms(780), |_| true), Some(ms(1780)));
}

// T34
#[test]
fn timeout_longer_than_the_interval_means_one_ping_and_the_sum_of_both() {
    let mut machine = known(&Keepalive::every(ms(1000)).timeout(ms(3000)));
    write_ping(&mut machine, ms(1000));
    for at in 1001..4000 {
        assert_eq!(due_ping(&mut machine, ms(at)), None);
        if machine.look_due(ms(at)) {
            look(&mut machine, ms(at));
        }
    }
    look(&mut machine, ms(4000));
    assert_eq!(machine.state(), SILENT);
}

// T72: a PING that only a PONG can retire blinds the watch for ever
// RFC KA-21
#[test]
fn any_byte_retires_the_ping_and_the_next_one_follows() {
    let mut machine = known(&every_second());
    write_ping(&mut machine, ms(1000));
    machine.handle_bytes(ms(1500));
    assert_eq!(machine.view().awaiting_pong_since, None);
    let mut now = ms(2500);
    while now < ms(5000) {
        let number = write_ping(&mut machine, now);
        answer(&mut machine, now, number);
        now += ms(1000);
    }
    assert_eq!(machine.view().last_evidence, ms(4500));
    write_ping(&mut machine, ms(5500));
    assert_eq!(looks(&mut machine, ms(5500), |_| true), Some(ms(6500)));
}

// The trial begins when the kernel has the PING, not when it was queued
#[test]
fn time_in_our_own_queue_is_not_held_against_the_peer() {
    let mut machine = known(&every_second());
    assert_eq!(due_ping(&mut machine, ms(1000)), Some(1));
    assert!(!machine.look_due(ms(9000)));
    machine.handle_ping_flushed(ms(9000));
    assert_eq!(looks(&mut machine, ms(9000), |_| true), Some(ms(10_000)));
}

// T21, both orders at the machine: the driver reads before it reports the look
#[test]
fn byte_at_the_instant_of_the_last_look_saves_the_peer() {
    let mut machine = known(&every_second());
    write_ping(&mut machine, ms(1000));
    for at in [1250, 1500, 1750] {
        look(&mut machine, ms(at));
    }
    machine.handle_look(
        ms(2000),
        Look {
            drained: false,
            write_refused: false,
            unread: Unread::NotAsked,
        },
    );
    machine.handle_bytes(ms(2000));
    look(&mut machine, ms(2000));
    assert_eq!(
        (machine.state(), machine.view().counters.recoveries),
        (State::Alive, 1)
    );
}

// T35
#[test]
fn nothing_happens_after_death() {
    let mut machine = known(&every_second());
    write_ping(&mut machine, ms(1000));
    assert!(looks(&mut machine, ms(1000), |_| true).is_some());
    let counters = machine.view().counters;
    machine.handle_timeout(ms(3000));
    look(&mut machine, ms(4000));
    answer(&mut machine, ms(5000), 1);
    machine.handle_call_started(ms(6000));
    assert_eq!(
        (due_ping(&mut machine, ms(7000)), machine.poll_timeout()),
        (None, None)
    );
    assert_eq!(
        (machine.poll_event(), machine.view().counters),
        (None, counters)
    );
    assert_eq!((machine.state(), machine.peer()), (SILENT, Peer::Gone));
}

#[test]
fn nothing_happens_after_the_connection_ended() {
    let mut machine = known(&every_second());
    write_ping(&mut machine, ms(1000));
    machine.handle_closed();
    assert_eq!((machine.poll_timeout(), machine.peer()), (None, Peer::Gone));
    for at in [1250, 1500, 1750, 2000, 2250] {
        look(&mut machine, ms(at));
        machine.handle_timeout(ms(at));
        machine.handle_bytes(ms(at));
    }
    assert_eq!(
        (due_ping(&mut machine, ms(9000)), machine.poll_event()),
        (None, None)
    );
    assert_eq!(
        (machine.state(), machine.poll_timeout()),
        (State::Alive, None)
    );
}

// K9
#[test]
fn stale_and_invented_pongs_answer_nothing_and_still_are_life() {
    let mut machine = known(&every_second());
    write_ping(&mut machine, ms(1000));
    machine.handle_bytes(ms(1100));
    assert_eq!(due_ping(&mut machine, ms(2100)), Some(2));
    machine.handle_bytes(ms(2200));
    for number in [Some(2), Some(77), Some(0), None] {
        machine.handle_pong(ms(2200), number, Flags::NONE);
    }
    assert_eq!(
        (machine.answered_number(), machine.view().rtt),
        (0, None),
        "2 is not written yet"
    );
    machine.handle_ping_flushed(ms(2300));
    answer(&mut machine, ms(2400), 1);
    assert_eq!(
        (machine.answered_number(), machine.view().rtt),
        (1, None),
        "1 is not the newest"
    );
    answer(&mut machine, ms(2450), 2);
    assert_eq!(
        (machine.answered_number(), machine.view().rtt),
        (2, Some(ms(150)))
    );
    answer(&mut machine, ms(2900), 2);
    assert_eq!(
        machine.view().rtt,
        Some(ms(150)),
        "a second answer is no sample"
    );
}

#[test]
fn ping_that_was_judged_gives_no_round_trip() {
    let mut machine = known(&every_second().timeout(ms(10_000)));
    let number = write_ping(&mut machine, ms(1000));
    machine.handle_verdict(ms(1500), Verdict::Unresponsive);
    answer(&mut machine, ms(2500), number);
    assert_eq!(machine.view().rtt, None);
    let number = write_ping(&mut machine, ms(3500));
    looks(&mut machine, ms(3500), |at| at < 8600);
    assert_eq!(machine.state(), State::Suspect);
    answer(&mut machine, ms(8700), number);
    assert_eq!((machine.view().rtt, machine.state()), (None, State::Alive));
}

#[test]
fn each_round_trip_counts_for_an_eighth() {
    let mut machine = known(&every_second());
    for (at, rtt) in [(1000, 80), (2080, 80), (3160, 160)] {
        let number = write_ping(&mut machine, ms(at));
        answer(&mut machine, ms(at + rtt), number);
    }
    assert_eq!(
        (machine.view().rtt, machine.view().smoothed_rtt),
        (Some(ms(160)), Some(ms(90)))
    );
}

#[test]
fn parked_reader_holds_nothing_against_the_peer() {
    let mut machine = Machine::new(&every_second(), Role::Server, 0);
    machine.handle_bytes(ms(0));
    machine.handle_ping(ms(0));
    let number = write_ping(&mut machine, ms(1000));
    looks(&mut machine, ms(1000), |at| at < 1800);
    assert_eq!(machine.state(), State::Suspect);
    machine.handle_parked(ms(1800));
    assert_eq!(looks(&mut machine, ms(1800), |at| at < 60_000), None);
    machine.handle_resumed(ms(60_000));
    assert_eq!(looks(&mut machine, ms(60_000), |at| at < 61_000), None);
    answer(&mut machine, ms(60_999), number);
    assert_eq!((machine.state(), machine.view().rtt), (State::Alive, None));
}

#[test]
fn trial_after_parking_has_its_whole_timeout_and_then_convicts() {
    let mut machine = Machine::new(&every_second(), Role::Server, 0);
    machine.handle_bytes(ms(0));
    machine.handle_ping(ms(0));
    write_ping(&mut machine, ms(1000));
    looks(&mut machine, ms(1000), |at| at < 1800);
    machine.handle_parked(ms(1800));
    machine.handle_resumed(ms(60_000));
    assert_eq!(looks(&mut machine, ms(60_000), |_| true), Some(ms(61_000)));
}
