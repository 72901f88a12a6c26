//! The verdict at a call's deadline.

use std::time::Duration;

use ttrpc_keepalive::keepalive::{
    CallDeadline, Keepalive, Machine, Peer, PeerSupport, Role, State, Unknown, Verdict, WriteFacts,
};
use ttrpc_keepalive::wire::Flags;

use super::bench::{WRITTEN, answer, due_ping, known, look, ms, write_ping};

/// Runs the driver from `ask_at` to the deadline as it must, with a look at the end, and returns the
/// verdict.
fn judge(machine: &mut Machine, call: &mut CallDeadline) -> Verdict {
    let (lead, mut last, mut now) = (call.lead(), ms(0), call.ask_at());
    loop {
        machine.handle_run(now, Some(lead));
        call.handle_run(last, now);
        look(machine, now);
        if now == call.ask_at() {
            machine.handle_ping_wish(now, now);
            if machine.poll_ping(now).is_some() {
                machine.handle_ping_flushed(now);
            }
        }
        if now == call.deadline() {
            break;
        }
        (last, now) = (now, call.next_run(now));
    }
    let verdict = machine.verdict(now, call, WRITTEN);
    machine.handle_verdict(now, verdict);
    verdict
}

// T66, the machine's part: a periodic PING alone would have said nothing
#[test]
fn peer_that_says_nothing_to_the_ping_before_the_deadline_is_unresponsive() {
    for keepalive in [Keepalive::on_demand(), Keepalive::every(ms(30_000))] {
        let mut machine = known(&keepalive);
        machine.handle_bytes(ms(500));
        machine.handle_call_started(ms(1000));
        let mut call = CallDeadline::new(ms(1000), ms(2000), &keepalive);
        assert_eq!(judge(&mut machine, &mut call), Verdict::Unresponsive);
        assert_eq!(
            (machine.state(), machine.peer()),
            (State::Alive, Peer::Doubtful)
        );
        assert_eq!(
            machine.evidence(ms(3000)).to_string(),
            "nothing heard for 2.50 s, PING unanswered for 0.25 s"
        );
        machine.handle_bytes(ms(4000));
        assert_eq!(machine.peer(), Peer::Alive);
    }
}

// T75
#[test]
fn evidence_just_before_p_is_enough_and_costs_no_ping() {
    let p = 1750;
    for (heard, pings) in [(p - 24, 0), (p - 20, 0), (p + 10, 0), (p - 25, 1)] {
        let mut machine = known(&Keepalive::on_demand());
        machine.handle_call_started(ms(0));
        let mut call = CallDeadline::new(ms(0), ms(2000), &Keepalive::on_demand());
        machine.handle_bytes(ms(heard));
        assert_eq!(judge(&mut machine, &mut call), Verdict::Slow, "{heard}");
        assert_eq!(machine.view().counters.pings_sent, pings, "{heard}");
    }
    let mut machine = known(&Keepalive::on_demand());
    machine.handle_call_started(ms(0));
    machine.handle_bytes(ms(p - 26));
    let mut call = CallDeadline::new(ms(0), ms(2000), &Keepalive::on_demand());
    assert_eq!(judge(&mut machine, &mut call), Verdict::Unresponsive);
}

// The beginning of a connection counts for the interval, but a peer that never spoke is not slow
#[test]
fn connection_that_has_just_begun_is_no_evidence_of_life() {
    let keepalive = Keepalive::on_demand().peer_support(PeerSupport::Assume);
    let mut machine = Machine::new(&keepalive, Role::Client, 0);
    machine.handle_connected(ms(0));
    machine.handle_call_started(ms(0));
    let mut call = CallDeadline::new(ms(0), ms(20), &keepalive);
    assert_eq!(
        judge(&mut machine, &mut call),
        Verdict::Unknown(Unknown::TooEarly)
    );
}

// T76, the machine's part
#[test]
fn a_thousand_late_calls_in_a_second_cost_forty_pings() {
    let mut machine = known(&Keepalive::on_demand());
    (0..1000).for_each(|_| machine.handle_call_started(ms(1)));
    for at in 2000..3000 {
        machine.handle_ping_wish(ms(at), ms(at));
        if let Some(number) = due_ping(&mut machine, ms(at)) {
            machine.handle_ping_flushed(ms(at));
            answer(&mut machine, ms(at) + Duration::from_micros(100), number);
        }
    }
    assert!(
        (30..=40).contains(&machine.view().counters.pings_sent),
        "{}",
        machine.view().counters.pings_sent
    );
}

// T77
#[test]
fn deadline_shorter_than_two_round_trips_is_too_early_to_tell() {
    let mut machine = known(&Keepalive::on_demand());
    let number = machine.handle_probe_started(ms(0));
    write_ping(&mut machine, ms(0));
    answer(&mut machine, ms(80), number);
    machine.handle_probe_ended(ms(80));
    machine.handle_call_started(ms(1000));
    let mut call = CallDeadline::new(ms(1000), ms(50), &Keepalive::on_demand());
    assert_eq!(
        judge(&mut machine, &mut call),
        Verdict::Unknown(Unknown::TooEarly)
    );
    assert_eq!(machine.peer(), Peer::Doubtful);

    machine.handle_call_started(ms(2000));
    let mut call = CallDeadline::new(ms(2000), ms(2000), &Keepalive::on_demand());
    assert_eq!(
        judge(&mut machine, &mut call),
        Verdict::Unresponsive,
        "its twin has the time"
    );
}

// T67, the machine's part
#[test]
fn pause_of_ours_before_the_deadline_is_a_local_stall_and_no_doubt() {
    let mut machine = known(&Keepalive::on_demand());
    machine.handle_call_started(ms(0));
    let mut call = CallDeadline::new(ms(0), ms(2000), &Keepalive::on_demand());
    machine.handle_run(ms(1750), Some(call.lead()));
    call.handle_run(ms(100), ms(1750));
    machine.handle_ping_wish(ms(1750), call.ask_at());
    write_ping(&mut machine, ms(1750));
    machine.handle_run(ms(2500), Some(call.lead()));
    call.handle_run(ms(1750), ms(2500));
    look(&mut machine, ms(2500));
    let verdict = machine.verdict(ms(2500), &call, WRITTEN);
    assert_eq!(verdict, Verdict::LocalStall);
    machine.handle_verdict(ms(2500), verdict);
    assert_eq!(machine.peer(), Peer::Alive);
    answer(&mut machine, ms(2501), 1);
    assert_eq!(machine.view().rtt, None, "it measured our pause");
}

// T18, T81: the machine's part
#[test]
fn newest_pong_that_says_so_makes_it_the_handlers() {
    let mut machine = known(&Keepalive::on_demand());
    machine.handle_call_started(ms(0));
    machine.handle_bytes(ms(1760));
    machine.handle_pong(ms(1760), Some(1), Flags::HANDLERS_STALLED);
    let mut call = CallDeadline::new(ms(0), ms(2000), &Keepalive::on_demand());
    assert_eq!(judge(&mut machine, &mut call), Verdict::HandlersStalled);
    assert_eq!(machine.peer(), Peer::Alive);

    machine.handle_call_started(ms(2000));
    machine.handle_bytes(ms(3760));
    let mut call = CallDeadline::new(ms(2000), ms(2000), &Keepalive::on_demand());
    assert_eq!(
        judge(&mut machine, &mut call),
        Verdict::Slow,
        "that PONG is too old for this call"
    );
}

// T79, the machine's part
#[test]
fn request_or_ping_that_is_not_written_speaks_of_the_writer() {
    let call = CallDeadline::new(ms(0), ms(2000), &Keepalive::on_demand());
    let unwritten = WriteFacts {
        written: false,
        offered_since_asked: true,
        taken_since_asked: false,
    };
    let mut machine = known(&Keepalive::on_demand());
    machine.handle_call_started(ms(0));
    machine.handle_write_blocked(ms(100));
    assert_eq!(
        machine.verdict(ms(2000), &call, unwritten),
        Verdict::NotReading
    );
    let bulk = WriteFacts {
        taken_since_asked: true,
        ..unwritten
    };
    assert_eq!(machine.verdict(ms(2000), &call, bulk), Verdict::NotSent);
    let never = WriteFacts {
        offered_since_asked: false,
        ..unwritten
    };
    // It ran, and had no occasion.
    assert_eq!(machine.verdict(ms(2000), &call, never), Verdict::NotReading);
    let mut paused = call.clone();
    paused.handle_run(ms(1750), ms(2000));
    assert!(paused.has_stalled());
    assert_eq!(
        machine.verdict(ms(2000), &paused, never),
        Verdict::LocalStall
    );

    machine.handle_ping_wish(ms(1750), call.ask_at());
    assert!(due_ping(&mut machine, ms(1750)).is_some());
    let small = WriteFacts {
        written: true,
        ..unwritten
    };
    assert_eq!(
        machine.verdict(ms(2000), &call, small),
        Verdict::NotReading,
        "its PING is stuck"
    );
    machine.handle_ping_flushed(ms(2000));
    assert_eq!(
        machine.verdict(ms(2000), &call, small),
        Verdict::Unknown(Unknown::TooEarly)
    );
}

#[test]
fn time_while_the_reader_is_parked_does_not_make_a_peer_unresponsive() {
    let mut machine = Machine::new(&Keepalive::on_demand(), Role::Server, 0);
    machine.handle_ping(ms(0));
    machine.handle_call_started(ms(0));
    machine.handle_parked(ms(10));
    let mut call = CallDeadline::new(ms(0), ms(2000), &Keepalive::on_demand());
    assert_eq!(
        judge(&mut machine, &mut call),
        Verdict::Unknown(Unknown::TooEarly)
    );
}

// A PING that is out when the reader parks is given its whole time anew
#[test]
fn time_waited_before_the_reader_parked_is_not_counted_afterwards() {
    for (parks, verdict) in [
        (true, Verdict::Unknown(Unknown::TooEarly)),
        (false, Verdict::Unresponsive),
    ] {
        let mut machine = Machine::new(&Keepalive::on_demand(), Role::Server, 0);
        machine.handle_ping(ms(0));
        machine.handle_call_started(ms(0));
        let call = CallDeadline::new(ms(0), ms(2000), &Keepalive::on_demand());
        let run = |machine: &mut Machine, quarters: u32| {
            let now = call.ask_at() + call.lead() / 4 * quarters;
            machine.handle_run(now, Some(call.lead()));
            now
        };
        let p = run(&mut machine, 0);
        machine.handle_ping_wish(p, p);
        write_ping(&mut machine, p);
        run(&mut machine, 1);
        run(&mut machine, 2);
        let now = run(&mut machine, 3);
        if parks {
            machine.handle_parked(now);
            machine.handle_resumed(now);
        }
        let now = run(&mut machine, 4);
        assert_eq!(machine.verdict(now, &call, WRITTEN), verdict);
    }
}

// A PING whose calls are gone is not kept for the next one
#[test]
fn ping_of_an_unwatched_connection_goes_with_the_calls_that_wait_for_it() {
    let mut machine = known(&Keepalive::on_demand());
    machine.handle_call_started(ms(0));
    let mut call = CallDeadline::new(ms(0), ms(2000), &Keepalive::on_demand());
    assert_eq!(judge(&mut machine, &mut call), Verdict::Unresponsive);
    assert!(
        machine.view().awaiting_pong_since.is_some(),
        "a verdict retires nothing"
    );
    machine.handle_call_late(ms(2000));
    assert_eq!(
        (machine.view().awaiting_pong_since, machine.peer()),
        (None, Peer::Doubtful)
    );
}

// A full socket is told from silence whether the peer knows PING or not
#[test]
fn ping_that_cannot_be_written_to_an_unknown_peer_speaks_of_the_writer() {
    let mut machine = Machine::new(&Keepalive::on_demand(), Role::Client, 0);
    machine.handle_call_started(ms(0));
    write_ping(&mut machine, ms(0));
    machine.handle_bytes(ms(1));
    machine.handle_write_blocked(ms(100));
    let call = CallDeadline::new(ms(0), ms(2000), &Keepalive::on_demand());
    machine.handle_ping_wish(call.ask_at(), call.ask_at());
    assert_eq!(due_ping(&mut machine, call.ask_at()), Some(2));
    let refused = WriteFacts {
        taken_since_asked: false,
        ..WRITTEN
    };
    assert_eq!(
        machine.verdict(ms(2000), &call, refused),
        Verdict::NotReading
    );
    machine.handle_response(ms(2000));
    assert_eq!(
        machine.verdict(ms(2000), &call, refused),
        Verdict::Unknown(Unknown::NoSupport),
        "nobody waits for a PING to a peer that does not know it"
    );
}

// Two runs half a lead apart are no stall yet, but the time between them was not all attended
#[test]
fn run_that_comes_late_counts_for_a_quarter_of_the_lead() {
    let mut machine = known(&Keepalive::on_demand());
    machine.handle_call_started(ms(0));
    machine.handle_ping_wish(ms(100), ms(100));
    let number = write_ping(&mut machine, ms(100));
    answer(&mut machine, ms(180), number);

    let mut call = CallDeadline::new(ms(0), ms(2000), &Keepalive::on_demand());
    machine.handle_ping_wish(call.ask_at(), call.ask_at());
    machine.handle_run(ms(1750), Some(call.lead()));
    write_ping(&mut machine, ms(1750));
    for (previous, now) in [(1750, 1875), (1875, 2000)] {
        machine.handle_run(ms(now), Some(call.lead()));
        call.handle_run(ms(previous), ms(now));
    }
    let verdict = machine.verdict(ms(2000), &call, WRITTEN);
    assert_eq!(
        verdict,
        Verdict::Unknown(Unknown::TooEarly),
        "125 ms of 160 attended, of 250 in all"
    );
}
