//! Each state of the machine against each input that could move it, as one table.

use std::time::Duration;

use super::bench::{answer, due_ping, every_second, known, looks, ms, write_ping};
use ttrpc_keepalive::keepalive::{
    DeadReason, Look, Machine, OnSilence, Peer, State, Unread, Verdict,
};

/// The states, as far as they can be told from outside. The connection is watched by its one call,
/// and the peer known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// No call, no watch.
    Dormant,
    /// Watched, no PING out.
    Waiting,
    /// A PING is in the driver's slot.
    Queued,
    /// A PING is out, a quarter of the timeout attended.
    Trial,
    /// Three quarters attended.
    Suspect,
    /// All of it, reported.
    Overdue,
    /// All of it.
    Dead,
    /// Ended for another reason.
    Closed,
}
use At::*;

const NOW: Duration = ms(20_000);

/// A machine in that state, in which the next look is due at `NOW`.
fn machine(at: At) -> Machine {
    let keepalive = every_second().while_idle(false);
    let keepalive = if at == Overdue {
        keepalive.on_silence(OnSilence::Report)
    } else {
        keepalive
    };
    let mut machine = known(&keepalive);
    machine.handle_bytes(ms(18_000));
    if at != Dormant {
        machine.handle_call_started(ms(18_000));
    }
    let flushed = match at {
        Dormant | Closed => None,
        Waiting => {
            machine.handle_bytes(ms(19_500));
            None
        }
        Queued => {
            assert!(due_ping(&mut machine, ms(19_250)).is_some());
            None
        }
        Trial => Some(19_500),
        Suspect => Some(19_000),
        Overdue | Dead => Some(18_900 + 100),
    };
    if let Some(flushed) = flushed {
        write_ping(&mut machine, ms(flushed));
        let until = if matches!(at, Overdue | Dead) {
            20_001
        } else {
            20_000
        };
        looks(&mut machine, ms(flushed), |time| time < until);
    }
    if at == Closed {
        machine.handle_closed();
    }
    machine
}

fn place(machine: &mut Machine) -> At {
    match machine.state() {
        State::Dead(DeadReason::Silent) => Dead,
        _ if machine.peer() == Peer::Gone => Closed,
        State::Suspect if machine.view().overdue => Overdue,
        State::Suspect => Suspect,
        State::Alive if machine.view().awaiting_pong_since.is_some() => Trial,
        State::Alive if !machine.is_watched() => Dormant,
        // A PING in the slot shows by the number that the next probe shares.
        State::Alive => {
            let number = machine.handle_probe_started(NOW);
            let queued = machine.poll_ping(NOW).is_none();
            machine.handle_probe_ended(NOW);
            assert!(number > 0);
            if queued { Queued } else { Waiting }
        }
        state => panic!("{state:?}"),
    }
}

type Input = fn(&mut Machine);

#[test]
fn every_state_meets_every_input() {
    const QUIET: Look = Look {
        drained: true,
        write_refused: false,
        unread: Unread::NotAsked,
    };
    let columns = [
        Dormant, Waiting, Queued, Trial, Suspect, Overdue, Dead, Closed,
    ];
    #[rustfmt::skip]
    let table: [(&str, Input, [At; 8]); 18] = [
        ("nothing", |_| {}, columns),
        ("bytes",            |m| m.handle_bytes(NOW),
            [Dormant, Waiting, Queued, Waiting, Waiting, Waiting, Dead, Closed]),
        ("write progress",   |m| { m.handle_write_blocked(NOW); m.handle_write_progress(NOW, false) },
            [Dormant, Waiting, Queued, Waiting, Waiting, Waiting, Dead, Closed]),
        ("progress, never blocked", |m| m.handle_write_progress(NOW, false),
            [Dormant, Waiting, Queued, Trial, Suspect, Overdue, Dead, Closed]),
        ("a look that is due and finds nothing", |m| m.handle_look(NOW, QUIET),
            [Dormant, Waiting, Queued, Suspect, Dead, Overdue, Dead, Closed]),
        ("a look that is early", |m| m.handle_look(NOW - ms(1), QUIET),
            [Dormant, Waiting, Queued, Trial, Suspect, Overdue, Dead, Closed]),
        ("a look that found bytes", |m| m.handle_look(NOW, Look { drained: false, ..QUIET }),
            [Dormant, Waiting, Queued, Trial, Suspect, Overdue, Dead, Closed]),
        ("the timer",        |m| m.handle_timeout(NOW),
            [Dormant, Waiting, Queued, Trial, Suspect, Overdue, Dead, Closed]),
        ("the interval passes", |m| { m.handle_timeout(ms(20_500)); m.poll_ping(ms(20_500)); },
            [Dormant, Queued, Queued, Trial, Suspect, Overdue, Dead, Closed]),
        ("the PING is flushed", |m| m.handle_ping_flushed(NOW),
            [Dormant, Waiting, Trial, Trial, Suspect, Overdue, Dead, Closed]),
        ("the last call ends", |m| m.handle_call_ended(NOW),
            [Dormant, Dormant, Dormant, Dormant, Dormant, Dormant, Dead, Closed]),
        ("the last call is late", |m| m.handle_call_late(NOW),
            [Waiting, Waiting, Queued, Trial, Suspect, Overdue, Dead, Closed]),
        ("a pause is told",  |m| m.handle_local_stall(NOW, ms(400)),
            [Dormant, Waiting, Queued, Trial, Suspect, Overdue, Dead, Closed]),
        ("a verdict",        |m| m.handle_verdict(NOW, Verdict::Unresponsive),
            [Dormant, Waiting, Queued, Trial, Suspect, Overdue, Dead, Closed]),
        ("the reader parks and resumes", |m| { m.handle_parked(NOW); m.handle_resumed(NOW) },
            [Dormant, Waiting, Queued, Trial, Suspect, Overdue, Dead, Closed]),
        ("a PONG, after its bytes", |m| answer(m, NOW, 1),
            [Dormant, Waiting, Queued, Waiting, Waiting, Waiting, Dead, Closed]),
        ("a late call's wish", |m| { m.handle_ping_wish(NOW, NOW); m.poll_ping(NOW); },
            [Dormant, Queued, Queued, Trial, Suspect, Overdue, Dead, Closed]),
        ("the connection ends", |m| m.handle_closed(),
            [Closed, Closed, Closed, Closed, Closed, Closed, Dead, Closed]),
    ];
    for (input, apply, results) in table {
        for (from, to) in columns.into_iter().zip(results) {
            let mut machine = machine(from);
            apply(&mut machine);
            assert_eq!(place(&mut machine), to, "{input}, from {from:?}");
        }
    }
}
