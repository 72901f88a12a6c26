//! The observer was not looking.

use std::time::Duration;

use ttrpc_keepalive::keepalive::{Event, Look, State, Unread};

use super::bench::{
    SILENT, answer, drain, due_ping, every_second, known, look, looks, ms, write_ping,
};

// T01
#[test]
fn pong_found_after_a_pause_of_ours_is_life_and_no_round_trip() {
    let mut machine = known(&every_second());
    let number = write_ping(&mut machine, ms(1000));
    answer(&mut machine, ms(6000), number);
    assert_eq!(machine.state(), State::Alive);
    assert_eq!(
        (
            machine.view().local_stall,
            machine.view().counters.local_stalls
        ),
        (Some(ms(5000)), 1)
    );
    assert_eq!(machine.view().rtt, None);
    assert_eq!(drain(&mut machine)[0], Event::LocalStall { gap: ms(5000) });
}

// T01, its twin: nothing is found after the pause, and T02
#[test]
fn pause_of_ours_counts_for_a_quarter_and_the_dead_are_found_three_looks_later() {
    let mut machine = known(&every_second());
    write_ping(&mut machine, ms(1000));
    look(&mut machine, ms(6000));
    let mut states = vec![(ms(6000), machine.state())];
    for _ in 0..3 {
        let now = machine.poll_timeout().unwrap();
        look(&mut machine, now);
        states.push((now, machine.state()));
    }
    let expected = [
        (ms(6000), State::Alive),
        (ms(6250), State::Suspect),
        (ms(6500), State::Suspect),
        (ms(6750), SILENT),
    ];
    assert_eq!(states, expected);
    assert_eq!(machine.view().counters.local_stalls, 1);
}

// T02b
#[test]
fn late_look_leaves_half_of_the_timeout_to_a_peer_that_was_paused_with_us() {
    for phase in (750..1000).step_by(5) {
        let mut machine = known(&every_second());
        let number = write_ping(&mut machine, ms(1000));
        for at in [1250, 1500, 1750] {
            look(&mut machine, ms(at));
        }
        let resumed = 1000 + phase + 5000;
        for at in resumed..resumed + 450 {
            if machine.look_due(ms(at)) {
                look(&mut machine, ms(at));
            }
        }
        assert_eq!(machine.state(), State::Suspect, "phase {phase}");
        answer(&mut machine, ms(resumed + 450), number);
        assert_eq!(machine.state(), State::Alive, "phase {phase}");
    }
}

// T02b, its twin
#[test]
fn peer_that_does_not_answer_after_the_pause_is_convicted_half_a_timeout_later() {
    let mut machine = known(&every_second());
    write_ping(&mut machine, ms(1000));
    for at in [1250, 1500, 1750] {
        look(&mut machine, ms(at));
    }
    assert_eq!(looks(&mut machine, ms(6800), |_| true), Some(ms(7300)));
}

// T02c
#[test]
fn observer_that_runs_a_tenth_of_the_time_still_convicts_after_four_late_looks() {
    for phase in (0..100).step_by(5) {
        let mut machine = known(&every_second());
        let flushed = ms(1000 + phase);
        write_ping(&mut machine, flushed);
        let dead = looks(&mut machine, flushed, |at| at % 1000 < 100).unwrap() - flushed;
        assert!(ms(5900) <= dead && dead <= ms(6000), "{dead:?}");
    }
}

// T07
#[test]
fn observer_that_is_stalled_most_of_the_time_never_suspects_a_peer_that_answers() {
    let mut machine = known(&every_second());
    let mut answers = None;
    for at in (0..60_000).filter(|at| at % 1500 >= 1200) {
        if let Some((number, _)) = answers.take_if(|(_, due)| *due <= at) {
            answer(&mut machine, ms(at), number);
        }
        if machine.look_due(ms(at)) {
            look(&mut machine, ms(at));
        }
        if machine.poll_timeout().is_some_and(|due| due <= ms(at)) {
            machine.handle_timeout(ms(at));
        }
        if let Some(number) = due_ping(&mut machine, ms(at)) {
            machine.handle_ping_flushed(ms(at));
            answers = Some((number, at + 400));
        }
    }
    assert!(machine.view().counters.pings_sent > 10 && machine.view().counters.local_stalls > 10);
    assert_eq!(
        (machine.view().counters.suspect_entries, machine.state()),
        (0, State::Alive)
    );
}

// T07, its twin
#[test]
fn observer_that_is_stalled_most_of_the_time_convicts_a_peer_that_does_not_answer() {
    let mut machine = known(&every_second());
    write_ping(&mut machine, ms(1200));
    let dead = looks(&mut machine, ms(1200), |at| at % 1500 >= 1200).unwrap();
    assert!(dead <= ms(1200 + 12 * 1200), "{dead:?}");
}

// T09
#[test]
fn clock_that_stood_still_while_the_machine_slept_changes_nothing() {
    let mut machine = known(&every_second());
    assert_eq!(machine.poll_timeout(), Some(ms(1000)));
    machine.handle_timeout(ms(999));
    assert_eq!(
        (due_ping(&mut machine, ms(999)), machine.poll_timeout()),
        (None, Some(ms(1000)))
    );
    assert!(due_ping(&mut machine, ms(1000)).is_some());
}

#[test]
fn clock_that_ran_on_while_the_machine_slept_is_a_local_stall() {
    let mut machine = known(&every_second());
    write_ping(&mut machine, ms(1000));
    look(&mut machine, Duration::from_secs(8 * 3600));
    assert_eq!(
        (machine.state(), machine.view().counters.local_stalls),
        (State::Alive, 1)
    );
    assert!(looks(&mut machine, Duration::from_secs(8 * 3600), |_| true).is_some());
}

#[test]
fn early_looks_never_convict_sooner() {
    let mut machine = known(&every_second());
    write_ping(&mut machine, ms(1000));
    let dead = (1001..10_000).map(ms).find(|&now| {
        look(&mut machine, now);
        machine.state() == SILENT
    });
    assert_eq!(dead, Some(ms(2000)));
}

#[test]
fn look_that_found_bytes_never_convicts() {
    let mut machine = known(&every_second());
    write_ping(&mut machine, ms(1000));
    for at in (1250..20_000).step_by(250) {
        machine.handle_look(
            ms(at),
            Look {
                drained: false,
                write_refused: false,
                unread: Unread::NotAsked,
            },
        );
        machine.handle_timeout(ms(at));
    }
    assert_eq!(machine.state(), State::Alive);
}

#[test]
fn timer_alone_never_judges_and_never_spins() {
    let mut machine = known(&every_second());
    write_ping(&mut machine, ms(1000));
    let mut now = ms(1000);
    for _ in 0..1000 {
        let next = machine.poll_timeout().unwrap();
        assert!(next > now);
        now = next;
        machine.handle_timeout(now);
    }
    assert!(machine.look_due(now));
    assert_eq!(machine.state(), State::Alive);
}

#[test]
fn clock_read_late_is_not_pulled_forward_by_a_look_read_early() {
    let mut machine = known(&every_second());
    write_ping(&mut machine, ms(1000));
    machine.handle_run(ms(1300), None);
    look(&mut machine, ms(1249));
    assert!(
        machine.look_due(ms(1250)),
        "the look claims nothing after its own instant"
    );
}
