//! Peers that know PING, and peers that do not.

use ttrpc_keepalive::keepalive::{
    CallDeadline, Event, Keepalive, Machine, Peer, PeerSupport, Role, State, Support, Unknown,
    Verdict,
};

use super::bench::{
    WRITTEN, answer, drain, due_ping, every_second, known, look, looks, ms, write_ping,
};

// T53, T83: the machine's part
// RFC KA-27, KA-29
#[test]
fn peer_that_answers_a_request_and_not_its_ping_is_never_asked_nor_judged_again() {
    for keepalive in [Keepalive::on_demand(), every_second()] {
        let mut machine = Machine::new(&keepalive, Role::Client, 0);
        machine.handle_connected(ms(0));
        machine.handle_call_started(ms(0));
        write_ping(&mut machine, ms(0));
        machine.handle_bytes(ms(5));
        machine.handle_response(ms(5));
        machine.handle_call_ended(ms(5));
        assert_eq!(machine.support(), Support::No);
        machine.handle_call_started(ms(1000));
        machine.handle_ping_wish(ms(2750), ms(2750));
        assert_eq!(
            (due_ping(&mut machine, ms(90_000)), machine.poll_timeout()),
            (None, None)
        );
        assert_eq!(looks(&mut machine, ms(1000), |_| true), None);
        assert_eq!(machine.peer(), Peer::Alive);
    }
}

// RFC KA-23
#[test]
fn response_that_no_ping_went_before_decides_nothing() {
    for keepalive in [Keepalive::off(), Keepalive::on_demand()] {
        let mut machine = Machine::new(&keepalive, Role::Client, 0);
        machine.handle_call_started(ms(0));
        // Where there is one the PING is on its way, and not yet written.
        assert_eq!(
            due_ping(&mut machine, ms(0)).is_some(),
            !keepalive.settings().off
        );
        machine.handle_bytes(ms(5));
        machine.handle_response(ms(5));
        assert_eq!(machine.support(), Support::Unknown);
    }
}

#[test]
fn peer_that_answers_its_ping_first_is_known_and_stays_so() {
    let mut machine = Machine::new(&Keepalive::on_demand(), Role::Client, 0);
    machine.handle_call_started(ms(0));
    write_ping(&mut machine, ms(0));
    answer(&mut machine, ms(5), 1);
    machine.handle_response(ms(5));
    assert_eq!(
        (machine.support(), machine.view().rtt),
        (Support::Yes, Some(ms(5)))
    );
    assert_eq!(drain(&mut machine), [Event::SupportChanged(Support::Yes)]);
}

// RFC KA-24
#[test]
fn old_peer_that_pings_after_all_is_known_again() {
    let mut machine = Machine::new(&every_second(), Role::Client, 0);
    machine.handle_connected(ms(0));
    write_ping(&mut machine, ms(0));
    machine.handle_bytes(ms(5));
    machine.handle_response(ms(5));
    assert_eq!(machine.poll_timeout(), None);
    machine.handle_bytes(ms(50));
    machine.handle_ping(ms(50));
    assert_eq!(
        (machine.support(), machine.poll_timeout()),
        (Support::Yes, Some(ms(1050)))
    );
}

// T84
// RFC KA-26, KA-29
#[test]
fn peer_of_unknown_support_is_asked_again_with_doubling_distance_and_not_judged() {
    let mut machine = Machine::new(
        &Keepalive::every(ms(10_000)).timeout(ms(1000)),
        Role::Client,
        0,
    );
    machine.handle_connected(ms(0));
    let mut pings = Vec::new();
    for at in 0..100_000 {
        if let Some(number) = due_ping(&mut machine, ms(at)) {
            pings.push((number, at));
            machine.handle_ping_flushed(ms(at));
        }
        if machine.look_due(ms(at)) {
            look(&mut machine, ms(at));
        }
    }
    assert_eq!(pings, [(1, 0), (2, 10_000), (3, 30_000), (4, 70_000)]);
    assert_eq!(
        (machine.state(), machine.support()),
        (State::Alive, Support::Unknown)
    );
}

#[test]
fn peer_of_unknown_support_is_not_asked_again_while_nobody_waits() {
    let mut machine = Machine::new(&Keepalive::on_demand(), Role::Client, 0);
    machine.handle_call_started(ms(0));
    write_ping(&mut machine, ms(0));
    assert_eq!(machine.poll_timeout(), Some(ms(10_000)));
    machine.handle_call_late(ms(2000));
    assert_eq!(
        (machine.poll_timeout(), due_ping(&mut machine, ms(200_000))),
        (None, None)
    );
}

#[test]
fn ping_that_was_blocked_for_longer_than_the_distance_is_not_repeated_at_once() {
    let mut machine = Machine::new(&Keepalive::on_demand(), Role::Client, 0);
    machine.handle_call_started(ms(0));
    assert_eq!(due_ping(&mut machine, ms(0)), Some(1));
    machine.handle_ping_flushed(ms(60_000));
    assert_eq!(
        (
            due_ping(&mut machine, ms(69_999)),
            due_ping(&mut machine, ms(70_000))
        ),
        (None, Some(2))
    );
}

// T55, the machine's part
// RFC KA-28
#[test]
fn server_sends_no_ping_before_it_has_received_one() {
    for keepalive in [
        every_second(),
        every_second().peer_support(PeerSupport::Assume),
    ] {
        let mut machine = Machine::new(&keepalive, Role::Server, 0);
        machine.handle_connected(ms(0));
        machine.handle_call_started(ms(1));
        machine.handle_ping_wish(ms(500), ms(500));
        assert_eq!(
            (due_ping(&mut machine, ms(60_000)), machine.poll_timeout()),
            (None, None)
        );
        machine.handle_bytes(ms(60_000));
        machine.handle_ping(ms(60_000));
        assert_eq!(
            (
                due_ping(&mut machine, ms(60_999)),
                due_ping(&mut machine, ms(61_000))
            ),
            (None, Some(1))
        );
    }
}

#[test]
fn keepalive_that_is_off_sends_nothing_and_speaks_of_nothing() {
    let mut machine = known(&Keepalive::off());
    machine.handle_connected(ms(0));
    machine.handle_call_started(ms(0));
    machine.handle_ping_wish(ms(1750), ms(1750));
    assert_eq!(
        (due_ping(&mut machine, ms(1750)), machine.poll_timeout()),
        (None, None)
    );
    let call = CallDeadline::new(ms(0), ms(2000), &Keepalive::off());
    let verdict = machine.verdict(ms(2000), &call, WRITTEN);
    assert_eq!(verdict, Verdict::Unknown(Unknown::NoSupport));
    machine.handle_verdict(ms(2000), verdict);
    assert_eq!(machine.peer(), Peer::Alive);
}

#[test]
fn assumed_support_judges_a_peer_that_never_spoke() {
    let keepalive = every_second().peer_support(PeerSupport::Assume);
    let mut machine = Machine::new(&keepalive, Role::Client, 0);
    machine.handle_connected(ms(0));
    write_ping(&mut machine, ms(0));
    assert_eq!(looks(&mut machine, ms(0), |_| true), Some(ms(1000)));
}

// T56: a new connection is a new machine, and nothing is inherited
#[test]
fn new_connection_begins_without_support_round_trip_and_evidence() {
    let machine = Machine::new(&every_second(), Role::Client, 0);
    assert_eq!(
        (machine.support(), machine.state()),
        (Support::Unknown, State::Alive)
    );
    assert_eq!(
        (machine.view().rtt, machine.view().last_evidence),
        (None, ms(0))
    );
}
