//! Watching, and who asks for it.

use std::time::Duration;

use ttrpc_keepalive::keepalive::{Keepalive, Machine, Role, State};

use super::bench::{answer, due_ping, every_second, known, looks, ms, write_ping};

// T37, the machine's part
#[test]
fn connection_that_nobody_watches_is_left_alone() {
    for keepalive in [
        Keepalive::default(),
        every_second().while_idle(false),
        Keepalive::off(),
    ] {
        let mut machine = known(&keepalive);
        assert_eq!(
            (machine.poll_timeout(), machine.is_watched()),
            (None, false)
        );
        machine.handle_call_started(ms(10));
        machine.handle_call_ended(ms(20));
        let day = Duration::from_secs(86_400);
        assert_eq!(
            (machine.poll_timeout(), due_ping(&mut machine, day)),
            (None, None)
        );
    }
}

// T38
#[test]
fn call_after_a_long_silence_finds_the_dead_in_one_timeout() {
    let mut machine = known(
        &Keepalive::every(ms(1000))
            .timeout(ms(2000))
            .while_idle(false),
    );
    let hour = ms(3_600_000);
    machine.handle_call_started(hour);
    write_ping(&mut machine, hour);
    assert_eq!(looks(&mut machine, hour, |_| true), Some(hour + ms(2000)));
}

// T39
#[test]
fn ping_of_a_watch_that_ended_is_not_held_against_the_peer() {
    let mut machine = known(&every_second().while_idle(false));
    machine.handle_call_started(ms(1001));
    assert_eq!(write_ping(&mut machine, ms(1001)), 1);
    looks(&mut machine, ms(1001), |at| at < 1900);
    assert_eq!(machine.state(), State::Suspect);
    machine.handle_call_ended(ms(1900));
    assert_eq!(
        (machine.state(), machine.view().counters.recoveries),
        (State::Alive, 0)
    );
    assert_eq!(
        (machine.poll_timeout(), machine.view().awaiting_pong_since),
        (None, None)
    );
    machine.handle_call_started(ms(11_000));
    assert_eq!(write_ping(&mut machine, ms(11_000)), 2);
    assert_eq!(machine.state(), State::Alive);
    assert_eq!(looks(&mut machine, ms(11_000), |_| true), Some(ms(12_000)));
}

// A wedged handler keeps the watch on
#[test]
fn late_call_keeps_the_watch_until_its_record_goes() {
    let mut machine = known(&every_second().while_idle(false));
    machine.handle_call_started(ms(0));
    machine.handle_call_late(ms(500));
    assert!(machine.is_watched());
    write_ping(&mut machine, ms(1000));
    let mut dropped = known(&every_second().while_idle(false));
    dropped.handle_call_started(ms(0));
    dropped.handle_call_late(ms(500));
    dropped.handle_late_call_ended(ms(600));
    assert_eq!(
        (dropped.is_watched(), dropped.poll_ping(ms(1000))),
        (false, None)
    );
    assert_eq!(looks(&mut machine, ms(1000), |_| true), Some(ms(2000)));
}

#[test]
fn probe_that_waits_watches_only_with_an_interval() {
    let mut machine = known(&every_second().while_idle(false));
    let number = machine.handle_probe_started(ms(100));
    assert!(machine.is_watched());
    assert_eq!(write_ping(&mut machine, ms(100)), number);
    answer(&mut machine, ms(150), number);
    assert_eq!(machine.answered_number(), number);
    machine.handle_probe_ended(ms(150));
    assert!(!machine.is_watched());

    let mut machine = known(&Keepalive::on_demand());
    machine.handle_probe_started(ms(100));
    write_ping(&mut machine, ms(100));
    assert!(!machine.is_watched() && machine.poll_timeout().is_none());
}

#[test]
fn probe_where_nothing_may_be_sent_gets_a_number_and_no_ping() {
    let mut off = known(&Keepalive::off());
    assert_eq!(
        (off.handle_probe_started(ms(1)), off.poll_ping(ms(1))),
        (1, None)
    );
    let mut server = Machine::new(&every_second(), Role::Server, 0);
    assert_eq!(
        (server.handle_probe_started(ms(1)), server.poll_ping(ms(1))),
        (1, None)
    );
    assert!(!off.can_ask() && !server.can_ask());
    server.handle_ping(ms(2));
    assert!(server.can_ask());
}

// A watch that begins and ends a thousand times a second is no reason to ask as often
#[test]
fn storm_of_dropped_calls_on_a_silent_peer_costs_one_ping_an_interval() {
    let mut machine = known(&Keepalive::every(ms(100)).while_idle(false));
    for at in 1000..4000 {
        machine.handle_call_started(ms(at));
        if due_ping(&mut machine, ms(at)).is_some() {
            machine.handle_ping_flushed(ms(at));
        }
        machine.handle_call_ended(ms(at));
    }
    assert_eq!(machine.view().counters.pings_sent, 30);
}
