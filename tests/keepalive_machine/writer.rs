//! Writes that are refused.

use ttrpc_keepalive::keepalive::{DeadReason, Keepalive, Look, Machine, Peer, Role, State, Unread};

use std::time::Duration;

use super::bench::{due_ping, every_second, known, look, looks, ms, write_ping};

// T22, the machine's part
#[test]
fn write_that_is_refused_for_the_whole_write_stall_convicts_without_ping_support() {
    let mut machine = Machine::new(&every_second().write_stall(ms(2000)), Role::Client, 0);
    machine.handle_connected(ms(0));
    assert_eq!(due_ping(&mut machine, ms(0)), Some(1));
    machine.handle_write_blocked(ms(5));
    let dead = looks(&mut machine, ms(5), |_| true);
    assert_eq!(
        (dead, machine.state()),
        (Some(ms(2005)), State::Dead(DeadReason::NotReading))
    );
    assert_eq!(
        (
            machine.view().counters.pings_sent,
            machine.view().counters.convictions_not_reading
        ),
        (0, 1)
    );
}

#[test]
fn bytes_that_are_taken_back_end_the_write_stall_and_are_no_life() {
    let mut machine = known(&every_second());
    let evidence = machine.view().last_evidence;
    machine.handle_write_blocked(ms(100));
    assert!(machine.look_due(ms(400)));
    machine.handle_write_withdrawn(ms(400));
    assert!(!machine.look_due(ms(900)), "there is nothing to try");
    assert_eq!(machine.view().write_blocked_since, None);
    assert_eq!(machine.view().last_evidence, evidence);
}

// T23, the machine's part
#[test]
fn each_byte_taken_restarts_the_write_stall_and_is_life() {
    let mut machine = known(&every_second());
    machine.handle_write_blocked(ms(0));
    for at in 1..10_000 {
        if at % 900 == 0 {
            machine.handle_write_progress(ms(at), true);
        } else if machine.look_due(ms(at)) {
            look(&mut machine, ms(at));
        }
        assert_eq!(due_ping(&mut machine, ms(at)), None);
    }
    assert_eq!(machine.view().counters.convictions_not_reading, 0);
    assert!(machine.view().counters.recoveries > 5);
}

// T73, the machine's part
#[test]
fn write_taken_at_the_first_try_after_our_pause_convicts_nobody() {
    let mut machine = known(&every_second());
    machine.handle_write_blocked(ms(0));
    machine.handle_run(ms(5000), None);
    machine.handle_write_progress(ms(5000), false);
    machine.handle_look(
        ms(5000),
        Look {
            drained: true,
            write_refused: false,
            unread: Unread::NotAsked,
        },
    );
    assert_eq!(
        (machine.state(), machine.view().local_stall),
        (State::Alive, Some(ms(5000)))
    );
    assert_eq!(machine.view().write_blocked_since, None);
}

#[test]
fn write_refused_after_our_pause_leaves_half_of_the_write_stall() {
    let mut machine = known(&every_second());
    machine.handle_write_blocked(ms(0));
    assert_eq!(looks(&mut machine, ms(5000), |_| true), Some(ms(5750)));
    assert_eq!(machine.state(), State::Dead(DeadReason::NotReading));
}

// T15, the machine's part
#[test]
fn bytes_taken_by_a_writer_that_was_never_blocked_are_no_life() {
    let mut machine = known(&every_second());
    write_ping(&mut machine, ms(1000));
    for at in (1010..2000).step_by(10) {
        machine.handle_write_progress(ms(at), false);
    }
    assert!(
        machine.view().awaiting_pong_since.is_some()
            && machine.view().write_blocked_since.is_none()
    );
    assert_eq!(looks(&mut machine, ms(1000), |_| true), Some(ms(2000)));
}

/// Refuses bytes from the beginning and sends one each 300 ms for 10 s; returns when the peer was
/// convicted.
fn sends_and_does_not_read(machine: &mut Machine) -> Option<Duration> {
    machine.handle_write_blocked(ms(0));
    (1..10_000).map(ms).find(|&now| {
        if now.as_millis() % 300 == 0 {
            machine.handle_bytes(now);
        }
        if machine.look_due(now) {
            look(machine, now);
        }
        machine.peer() == Peer::Gone
    })
}

#[test]
fn peer_that_sends_and_does_not_read_is_alive_and_known_not_to_read() {
    let mut machine = known(&every_second());
    assert_eq!(sends_and_does_not_read(&mut machine), None);
    let seen = machine.view();
    assert_eq!(
        (seen.state, seen.write_blocked_since),
        (State::Alive, Some(ms(0)))
    );
    // The twin: it falls silent as well. Its last byte came at 9.9.
    assert_eq!(looks(&mut machine, ms(10_000), |_| true), Some(ms(10_900)));
    assert_eq!(machine.state(), State::Dead(DeadReason::NotReading));
}

#[test]
fn write_stall_that_was_set_goes_on_whatever_the_peer_sends() {
    let mut machine = known(&every_second().write_stall(ms(2000)));
    assert_eq!(sends_and_does_not_read(&mut machine), Some(ms(2000)));
    assert_eq!(machine.state(), State::Dead(DeadReason::NotReading));
}

#[test]
fn bytes_that_a_look_finds_and_a_read_does_not_keep_the_peer_alive() {
    for (keepalive, dead) in [
        (every_second(), None),
        (every_second().write_stall(ms(1000)), Some(ms(1000))),
    ] {
        let mut machine = known(&keepalive);
        machine.handle_write_blocked(ms(0));
        let waits = Look {
            drained: false,
            write_refused: true,
            unread: Unread::NotAsked,
        };
        let convicted = (1..5000).map(ms).find(|&now| {
            machine.handle_look(now, waits);
            machine.peer() == Peer::Gone
        });
        assert_eq!(convicted, dead);
    }
}

// A server parks because its peer does not read: it must not be kept from saying so
#[test]
fn parked_reader_does_not_stop_the_write_stall() {
    let mut machine = Machine::new(&every_second(), Role::Server, 0);
    machine.handle_bytes(ms(0));
    machine.handle_ping(ms(0));
    machine.handle_write_blocked(ms(0));
    machine.handle_parked(ms(10));
    for at in [250, 500, 750, 1000] {
        assert!(machine.look_due(ms(at)));
        machine.handle_look(
            ms(at),
            Look {
                drained: false,
                write_refused: true,
                unread: Unread::NotAsked,
            },
        );
    }
    assert_eq!(machine.state(), State::Dead(DeadReason::NotReading));
}

#[test]
fn nobody_is_convicted_for_a_blocked_write_that_nobody_watches() {
    let mut machine = known(&Keepalive::on_demand());
    machine.handle_call_started(ms(0));
    machine.handle_write_blocked(ms(0));
    assert_eq!(
        (looks(&mut machine, ms(0), |_| true), machine.poll_timeout()),
        (None, None)
    );
}

// T27
#[test]
fn ping_that_waits_to_be_written_is_shared_by_all_who_want_one() {
    let mut machine = known(&every_second());
    assert_eq!(due_ping(&mut machine, ms(1000)), Some(1));
    machine.handle_ping_wish(ms(1000), ms(1000));
    assert_eq!(machine.handle_probe_started(ms(1001)), 1);
    machine.handle_call_started(ms(5000));
    assert_eq!(due_ping(&mut machine, ms(9000)), None);
    machine.handle_ping_flushed(ms(9000));
    assert_eq!(machine.handle_probe_started(ms(9001)), 1);
    assert_eq!(due_ping(&mut machine, ms(9001)), None);
}
