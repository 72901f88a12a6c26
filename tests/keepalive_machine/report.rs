//! What is told, and `OnSilence::Report`.

use ttrpc_keepalive::keepalive::{
    CallDeadline, DeadReason, Event, Machine, OnSilence, Peer, State, Verdict,
};
use ttrpc_keepalive::wire::Flags;

use super::bench::{
    SILENT, WRITTEN, drain, due_ping, every_second, known, look, looks, ms, write_ping,
};

fn reporting() -> Machine {
    known(&every_second().on_silence(OnSilence::Report))
}

// T20, T68
#[test]
fn reported_peer_is_overdue_once_until_its_next_byte() {
    let mut machine = reporting();
    let number = write_ping(&mut machine, ms(1000));
    assert_eq!(looks(&mut machine, ms(1000), |_| true), Some(ms(2000)));
    assert_eq!(
        (machine.state(), machine.view().overdue, machine.peer()),
        (State::Suspect, true, Peer::Doubtful)
    );
    assert_eq!(machine.poll_timeout(), None);
    assert_eq!(looks(&mut machine, ms(2000), |at| at < 5000), None);
    assert_eq!(due_ping(&mut machine, ms(5000)), None);
    machine.handle_bytes(ms(5000));
    assert_eq!(
        (machine.state(), machine.view().overdue, machine.peer()),
        (State::Alive, false, Peer::Alive)
    );
    assert_eq!(
        (
            machine.view().counters.convictions_silent,
            machine.view().counters.recoveries
        ),
        (1, 1)
    );
    machine.handle_pong(ms(5000), Some(number), Flags::NONE);
    assert_eq!(machine.view().rtt, None, "the PING was judged");
    write_ping(&mut machine, ms(6000));
    assert_eq!(looks(&mut machine, ms(6000), |_| true), Some(ms(7000)));
    assert_eq!(machine.view().counters.convictions_silent, 2);
}

#[test]
fn reported_write_stall_counts_once_until_bytes_are_taken() {
    let mut machine = reporting();
    machine.handle_write_blocked(ms(0));
    assert_eq!(looks(&mut machine, ms(0), |_| true), Some(ms(1000)));
    assert_eq!(looks(&mut machine, ms(1000), |_| true), None);
    machine.handle_write_progress(ms(200_000), true);
    assert_eq!(
        (
            machine.state(),
            machine.view().counters.convictions_not_reading
        ),
        (State::Alive, 1)
    );
    assert_eq!(
        looks(&mut machine, ms(200_000), |_| true),
        Some(ms(201_000))
    );
}

#[test]
fn verdict_on_a_reported_peer_still_counts_what_its_trial_waited() {
    let keepalive = every_second().on_silence(OnSilence::Report);
    let mut machine = known(&keepalive);
    machine.handle_call_started(ms(900));
    write_ping(&mut machine, ms(1000));
    looks(&mut machine, ms(1000), |_| true);
    let mut call = CallDeadline::new(ms(900), ms(2000), &keepalive);
    call.handle_run(ms(2840), ms(2900));
    assert_eq!(
        machine.verdict(ms(2900), &call, WRITTEN),
        Verdict::Unresponsive
    );
}

#[test]
fn conviction_tells_reason_evidence_and_consequence_last() {
    let mut machine = known(&every_second());
    write_ping(&mut machine, ms(1000));
    for at in [1250, 1500, 1750] {
        look(&mut machine, ms(at));
    }
    let suspected = Event::StateChanged {
        from: State::Alive,
        to: State::Suspect,
    };
    assert_eq!(drain(&mut machine), [suspected]);
    look(&mut machine, ms(2000));
    let events = drain(&mut machine);
    assert_eq!(
        events[0],
        Event::StateChanged {
            from: State::Suspect,
            to: SILENT
        }
    );
    let Event::Convicted {
        reason,
        evidence,
        on_silence,
    } = events[1]
    else {
        panic!("{events:?}")
    };
    assert_eq!(
        (reason, on_silence, events.len()),
        (DeadReason::Silent, OnSilence::Close, 2)
    );
    assert_eq!(
        evidence.to_string(),
        "nothing heard for 2.00 s, PING unanswered for 1.00 s"
    );
}

// T61, T86: the machine's part
#[test]
fn flags_and_states_are_told_when_they_change_and_never_for_a_byte() {
    let mut machine = known(&every_second());
    for at in 1..1000 {
        machine.handle_bytes(ms(at));
        assert_eq!(machine.poll_event(), None);
    }
    machine.handle_write_blocked(ms(1000));
    assert_eq!(drain(&mut machine), [Event::FlagsChanged]);
    machine.handle_write_blocked(ms(1001));
    machine.handle_write_progress(ms(1002), true);
    assert_eq!(drain(&mut machine), []);
    machine.handle_write_progress(ms(1003), false);
    machine.handle_pong(ms(1003), None, Flags::HANDLERS_STALLED);
    machine.handle_verdict(ms(1003), Verdict::Unresponsive);
    assert_eq!(drain(&mut machine), [Event::FlagsChanged]);
    machine.handle_bytes(ms(1004));
    assert_eq!(drain(&mut machine), [Event::FlagsChanged]);
    assert!(
        machine.evidence(ms(1004)).handlers_stalled,
        "until a PONG says otherwise"
    );
}

#[test]
fn state_that_came_and_went_undrained_is_not_told() {
    let mut machine = known(&every_second());
    write_ping(&mut machine, ms(1000));
    look(&mut machine, ms(1250));
    look(&mut machine, ms(1500));
    assert_eq!(machine.state(), State::Suspect);
    machine.handle_bytes(ms(1600));
    assert_eq!(drain(&mut machine), []);
    assert_eq!(
        (
            machine.view().counters.suspect_entries,
            machine.view().counters.recoveries
        ),
        (1, 1)
    );
}
