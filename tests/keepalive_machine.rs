//! What the keepalive machine does, case by case, with every instant given.

#[path = "support/keepalive/bench.rs"]
mod bench;

use std::time::Duration;

use bench::{answer, drain, every_second, known, look, looks, ms, write_ping};
use ttrpc_keepalive::keepalive::{
    CallDeadline, DeadReason, Event, Keepalive, Look, Machine, OnSilence, Peer, PeerSupport, Role,
    State, Support, Unknown, Verdict, WriteFacts,
};

const SILENT: State = State::Dead(DeadReason::Silent);
const WRITTEN: WriteFacts = WriteFacts {
    written: true,
    offered_since_p: true,
    taken_since_p: true,
};

mod observer {
    use super::*;

    // T01
    #[test]
    fn pong_found_after_a_pause_of_ours_is_life_and_no_round_trip() {
        let mut machine = known(&every_second());
        let number = write_ping(&mut machine, ms(1000));
        answer(&mut machine, ms(6000), number);
        assert_eq!(machine.state(), State::Alive);
        assert_eq!(
            (machine.local_stall(), machine.counters().local_stalls),
            (Some(ms(5000)), 1)
        );
        assert_eq!(machine.rtt(), None);
        assert_eq!(drain(&mut machine)[0], Event::LocalStall { gap: ms(5000) });
    }

    // T01, its twin: nothing is found after the pause, and T02
    #[test]
    fn pause_of_ours_counts_for_a_quarter_and_the_dead_are_found_three_looks_later() {
        let mut machine = known(&every_second());
        write_ping(&mut machine, ms(1000));
        look(&mut machine, ms(6000));
        let mut states = vec![(ms(6000), machine.state())];
        while machine.state() != SILENT {
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
        assert_eq!(machine.counters().local_stalls, 1);
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
            if let Some(number) = machine.poll_ping(ms(at)) {
                machine.handle_ping_flushed(ms(at));
                answers = Some((number, at + 400));
            }
        }
        assert!(machine.counters().pings_sent > 10 && machine.counters().local_stalls > 10);
        assert_eq!(
            (machine.counters().suspect_entries, machine.state()),
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
            (machine.poll_ping(ms(999)), machine.poll_timeout()),
            (None, Some(ms(1000)))
        );
        assert!(machine.poll_ping(ms(1000)).is_some());
    }

    #[test]
    fn clock_that_ran_on_while_the_machine_slept_is_a_local_stall() {
        let mut machine = known(&every_second());
        write_ping(&mut machine, ms(1000));
        look(&mut machine, Duration::from_secs(8 * 3600));
        assert_eq!(
            (machine.state(), machine.counters().local_stalls),
            (State::Alive, 1)
        );
        assert!(looks(&mut machine, Duration::from_secs(8 * 3600), |_| true).is_some());
    }

    #[test]
    fn early_looks_never_convict_sooner() {
        let mut machine = known(&every_second());
        write_ping(&mut machine, ms(1000));
        let dead = (1001..).map(ms).find(|&now| {
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
}

mod trial {
    use super::*;

    // T30: swapping interval and timeout gives 10.75 for the first look
    #[test]
    fn peer_that_dies_after_a_byte_is_found_at_interval_and_timeout_exactly() {
        let mut machine = known(&Keepalive::every(ms(10_000)).timeout(ms(3000)));
        assert_eq!(machine.poll_ping(ms(9999)), None);
        write_ping(&mut machine, ms(10_000));
        let mut instants = Vec::new();
        while machine.state() != SILENT {
            let now = machine.poll_timeout().unwrap();
            look(&mut machine, now);
            instants.push(now);
        }
        assert_eq!(instants, [ms(10_750), ms(11_500), ms(12_250), ms(13_000)]);
    }

    // T34
    #[test]
    fn timeout_longer_than_the_interval_means_one_ping_and_the_sum_of_both() {
        let mut machine = known(&Keepalive::every(ms(1000)).timeout(ms(3000)));
        write_ping(&mut machine, ms(1000));
        for at in 1001..4000 {
            assert_eq!(machine.poll_ping(ms(at)), None);
            if machine.look_due(ms(at)) {
                look(&mut machine, ms(at));
            }
        }
        look(&mut machine, ms(4000));
        assert_eq!(machine.state(), SILENT);
    }

    // T72: a PING that only a PONG can retire blinds the watch for ever
    #[test]
    fn any_byte_retires_the_ping_and_the_next_one_follows() {
        let mut machine = known(&every_second());
        write_ping(&mut machine, ms(1000));
        machine.handle_bytes(ms(1500));
        assert_eq!(machine.awaiting_pong_since(), None);
        let mut now = ms(2500);
        while now < ms(5000) {
            let number = write_ping(&mut machine, now);
            answer(&mut machine, now, number);
            now += ms(1000);
        }
        assert_eq!(machine.last_evidence(), ms(4500));
        write_ping(&mut machine, ms(5500));
        assert_eq!(looks(&mut machine, ms(5500), |_| true), Some(ms(6500)));
    }

    // The trial begins when the kernel has the PING, not when it was queued
    #[test]
    fn time_in_our_own_queue_is_not_held_against_the_peer() {
        let mut machine = known(&every_second());
        assert_eq!(machine.poll_ping(ms(1000)), Some(1));
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
            },
        );
        machine.handle_bytes(ms(2000));
        look(&mut machine, ms(2000));
        assert_eq!(
            (machine.state(), machine.counters().recoveries),
            (State::Alive, 1)
        );
    }

    // T35
    #[test]
    fn nothing_happens_after_death() {
        let mut machine = known(&every_second());
        write_ping(&mut machine, ms(1000));
        assert!(looks(&mut machine, ms(1000), |_| true).is_some());
        let counters = machine.counters();
        machine.handle_timeout(ms(3000));
        look(&mut machine, ms(4000));
        answer(&mut machine, ms(5000), 1);
        machine.handle_call_started(ms(6000));
        assert_eq!(
            (machine.poll_ping(ms(7000)), machine.poll_timeout()),
            (None, None)
        );
        assert_eq!((machine.poll_event(), machine.counters()), (None, counters));
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
            (machine.poll_ping(ms(9000)), machine.poll_event()),
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
        assert_eq!(machine.poll_ping(ms(2100)), Some(2));
        machine.handle_bytes(ms(2200));
        for number in [Some(2), Some(77), Some(0), None] {
            machine.handle_pong(ms(2200), number, false);
        }
        assert_eq!(
            (machine.answered_number(), machine.rtt()),
            (0, None),
            "2 is not written yet"
        );
        machine.handle_ping_flushed(ms(2300));
        answer(&mut machine, ms(2400), 1);
        assert_eq!(
            (machine.answered_number(), machine.rtt()),
            (1, None),
            "1 is not the newest"
        );
        answer(&mut machine, ms(2450), 2);
        assert_eq!(
            (machine.answered_number(), machine.rtt()),
            (2, Some(ms(150)))
        );
        answer(&mut machine, ms(2900), 2);
        assert_eq!(machine.rtt(), Some(ms(150)), "a second answer is no sample");
    }

    #[test]
    fn ping_that_was_judged_gives_no_round_trip() {
        let mut machine = known(&every_second().timeout(ms(10_000)));
        let number = write_ping(&mut machine, ms(1000));
        machine.handle_verdict(ms(1500), Verdict::Unresponsive);
        answer(&mut machine, ms(2500), number);
        assert_eq!(machine.rtt(), None);
        let number = write_ping(&mut machine, ms(3500));
        looks(&mut machine, ms(3500), |at| at < 8600);
        assert_eq!(machine.state(), State::Suspect);
        answer(&mut machine, ms(8700), number);
        assert_eq!((machine.rtt(), machine.state()), (None, State::Alive));
    }

    #[test]
    fn each_round_trip_counts_for_an_eighth() {
        let mut machine = known(&every_second());
        for (at, rtt) in [(1000, 80), (2080, 80), (3160, 160)] {
            let number = write_ping(&mut machine, ms(at));
            answer(&mut machine, ms(at + rtt), number);
        }
        assert_eq!(
            (machine.rtt(), machine.smoothed_rtt()),
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
        assert_eq!((machine.state(), machine.rtt()), (State::Alive, None));
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
}

mod timers {
    use super::*;

    // T28
    #[test]
    fn periodic_pings_come_one_interval_after_each_answer() {
        let rtt = ms(2);
        let mut machine = Machine::new(
            &Keepalive::every(ms(10_000)).timeout(ms(3000)),
            Role::Client,
            0,
        );
        machine.handle_connected(ms(0));
        let mut pings = Vec::new();
        let mut now = ms(0);
        while now < ms(100_000) {
            if let Some(number) = machine.poll_ping(now) {
                pings.push(now);
                machine.handle_ping_flushed(now);
                answer(&mut machine, now + rtt, number);
            }
            now = machine.poll_timeout().unwrap();
            machine.handle_timeout(now);
        }
        let expected: Vec<_> = (0..10).map(|n| ms(10_002 * n)).collect();
        assert_eq!(pings, expected);
    }

    // T29
    #[test]
    fn connection_watched_while_idle_asks_at_once_and_after_the_interval() {
        let mut machine = Machine::new(&every_second(), Role::Client, 0);
        machine.handle_connected(ms(0));
        let number = write_ping(&mut machine, ms(0));
        answer(&mut machine, ms(2), number);
        assert_eq!(
            (machine.support(), machine.poll_ping(ms(1001))),
            (Support::Yes, None)
        );
        assert_eq!(machine.poll_ping(ms(1002)), Some(2));
    }

    // T29, not watched
    #[test]
    fn connection_not_watched_asks_in_front_of_its_first_request_only() {
        for keepalive in [Keepalive::on_demand(), every_second().while_idle(false)] {
            let mut machine = Machine::new(&keepalive, Role::Client, 0);
            machine.handle_connected(ms(0));
            assert_eq!(
                (machine.poll_ping(ms(3000)), machine.poll_timeout()),
                (None, None)
            );
            assert!(!machine.call_start_is_quiet());
            machine.handle_call_started(ms(3000));
            assert_eq!(machine.poll_ping(ms(3000)), Some(1));
            assert_eq!(machine.poll_ping(ms(3000)), None);
        }
    }

    // T32
    #[test]
    fn busy_connection_arms_one_timer_for_each_interval_and_not_for_each_byte() {
        let mut machine = known(&every_second());
        let mut armed = machine.poll_timeout();
        let mut changes = 1;
        for now in (1..=3_600_000).map(ms) {
            machine.handle_bytes(now);
            if machine.poll_timeout().is_some_and(|due| due <= now) {
                machine.handle_timeout(now);
            }
            changes += u32::from(machine.poll_timeout() != armed);
            armed = machine.poll_timeout();
        }
        assert!((3500..=3604).contains(&changes), "{changes}");
        assert_eq!(machine.counters().pings_sent, 0);
    }

    // T36
    #[test]
    fn jitter_spreads_connections_that_were_opened_together_and_never_shortens() {
        let mut first_periodic: Vec<_> = (0..10_000)
            .map(|seed| {
                let mut machine = Machine::new(&every_second().jitter(10), Role::Client, seed);
                machine.handle_connected(ms(0));
                let number = write_ping(&mut machine, ms(0));
                answer(&mut machine, ms(0), number);
                loop {
                    let now = machine.poll_timeout().unwrap();
                    if machine.poll_ping(now).is_some() {
                        break now;
                    }
                }
            })
            .collect();
        first_periodic.sort_unstable();
        assert!(first_periodic[0] >= ms(1000) && first_periodic[9999] <= ms(1100));
        for (tenth, &at) in first_periodic.iter().step_by(1000).enumerate() {
            let even = ms(1000 + 10 * u64::try_from(tenth).unwrap());
            assert!(
                at.abs_diff(even) < ms(3),
                "a tenth of them in each tenth: {at:?} for {even:?}"
            );
        }
    }

    // K1, K5: one clock, and a peer that answers lives for ever
    #[test]
    fn after_each_pong_a_further_ping_follows() {
        let mut machine = known(&every_second());
        for n in 1..=1000 {
            assert_eq!(write_ping(&mut machine, ms(1000 * n)), n);
            answer(&mut machine, ms(1000 * n), n);
        }
        assert_eq!(machine.state(), State::Alive);
    }

    // K10
    #[test]
    fn time_that_goes_backwards_changes_nothing() {
        let mut machine = known(&every_second());
        machine.handle_bytes(ms(5000));
        machine.handle_bytes(ms(10));
        assert_eq!(machine.last_evidence(), ms(5000));
        write_ping(&mut machine, ms(6000));
        for at in [6250, 10, 6500, 20, 6750, 30] {
            look(&mut machine, ms(at));
        }
        assert_eq!(
            (machine.state(), machine.counters().local_stalls),
            (State::Suspect, 0)
        );
        look(&mut machine, ms(7000));
        assert_eq!(machine.state(), SILENT);
    }

    #[test]
    fn values_out_of_range_are_brought_into_it_and_extreme_ones_are_never_due() {
        let mut machine = known(&Keepalive::every(ms(0)).timeout(ms(0)));
        write_ping(&mut machine, ms(10));
        assert_eq!(looks(&mut machine, ms(10), |_| true), Some(ms(30)));

        let mut machine = known(
            &Keepalive::every(Duration::MAX)
                .timeout(Duration::MAX)
                .jitter(255),
        );
        machine.handle_bytes(ms(1));
        machine.handle_timeout(Duration::MAX);
        assert_eq!(
            (machine.poll_timeout(), machine.poll_ping(Duration::MAX)),
            (None, None)
        );
    }
}

mod writer {
    use super::*;

    // T22, the machine's part
    #[test]
    fn write_that_is_refused_for_the_whole_write_stall_convicts_without_ping_support() {
        let mut machine = Machine::new(&every_second().write_stall(ms(2000)), Role::Client, 0);
        machine.handle_connected(ms(0));
        assert_eq!(machine.poll_ping(ms(0)), Some(1));
        machine.handle_write_blocked(ms(5));
        let dead = looks(&mut machine, ms(5), |_| true);
        assert_eq!(
            (dead, machine.state()),
            (Some(ms(2005)), State::Dead(DeadReason::NotReading))
        );
        assert_eq!(
            (
                machine.counters().pings_sent,
                machine.counters().convictions_not_reading
            ),
            (0, 1)
        );
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
            assert_eq!(machine.poll_ping(ms(at)), None);
        }
        assert_eq!(machine.counters().convictions_not_reading, 0);
        assert!(machine.counters().recoveries > 5);
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
            },
        );
        assert_eq!(
            (machine.state(), machine.local_stall()),
            (State::Alive, Some(ms(5000)))
        );
        assert_eq!(machine.write_blocked_since(), None);
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
        assert!(machine.awaiting_pong_since().is_some() && machine.write_blocked_since().is_none());
        assert_eq!(looks(&mut machine, ms(1000), |_| true), Some(ms(2000)));
    }

    // Without bytes taken the clock goes on, whatever the peer sends meanwhile
    #[test]
    fn peer_that_sends_and_does_not_read_is_convicted_all_the_same() {
        let mut machine = known(&every_second());
        machine.handle_write_blocked(ms(0));
        let dead = (1..).map(ms).find(|&now| {
            machine.handle_bytes(now);
            if machine.look_due(now) {
                look(&mut machine, now);
            }
            machine.peer() == Peer::Gone
        });
        assert_eq!(
            (dead, machine.state()),
            (Some(ms(1000)), State::Dead(DeadReason::NotReading))
        );
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
        assert_eq!(machine.poll_ping(ms(1000)), Some(1));
        machine.handle_ping_wish(ms(1000), ms(1000));
        assert_eq!(machine.handle_probe_started(ms(1001)), 1);
        machine.handle_call_started(ms(5000));
        assert_eq!(machine.poll_ping(ms(9000)), None);
        machine.handle_ping_flushed(ms(9000));
        assert_eq!(machine.handle_probe_started(ms(9001)), 1);
        assert_eq!(machine.poll_ping(ms(9001)), None);
    }
}

mod idle {
    use super::*;

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
                (machine.poll_timeout(), machine.poll_ping(day)),
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
            (machine.state(), machine.counters().recoveries),
            (State::Alive, 0)
        );
        assert_eq!(
            (machine.poll_timeout(), machine.awaiting_pong_since()),
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

    #[test]
    fn quiet_call_starts_cause_no_ping_and_no_clock() {
        let mut first = Machine::new(&every_second(), Role::Client, 0);
        assert!(
            !first.call_start_is_quiet(),
            "the first exchange comes with a PING"
        );
        first.handle_connected(ms(0));
        write_ping(&mut first, ms(0));
        assert!(
            !first.call_start_is_quiet(),
            "an unknown peer may be asked again"
        );
        answer(&mut first, ms(1), 1);
        assert!(first.call_start_is_quiet());
        first.handle_write_blocked(ms(2));
        assert!(!first.call_start_is_quiet());
        assert!(known(&Keepalive::on_demand()).call_start_is_quiet());
        assert!(Machine::new(&Keepalive::off(), Role::Client, 0).call_start_is_quiet());

        let mut calls_only = known(&every_second().while_idle(false));
        assert!(!calls_only.call_start_is_quiet(), "the watch begins");
        calls_only.handle_call_started(ms(1));
        assert!(calls_only.call_start_is_quiet());
    }
}

mod support {
    use super::*;

    // T53, T83: the machine's part
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
                (machine.poll_ping(ms(90_000)), machine.poll_timeout()),
                (None, None)
            );
            assert_eq!(looks(&mut machine, ms(1000), |_| true), None);
            assert_eq!(machine.peer(), Peer::Alive);
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
            (machine.support(), machine.rtt()),
            (Support::Yes, Some(ms(5)))
        );
        assert_eq!(drain(&mut machine), [Event::SupportChanged(Support::Yes)]);
    }

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
            if let Some(number) = machine.poll_ping(ms(at)) {
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
            (machine.poll_timeout(), machine.poll_ping(ms(200_000))),
            (None, None)
        );
    }

    #[test]
    fn ping_that_was_blocked_for_longer_than_the_distance_is_not_repeated_at_once() {
        let mut machine = Machine::new(&Keepalive::on_demand(), Role::Client, 0);
        machine.handle_call_started(ms(0));
        assert_eq!(machine.poll_ping(ms(0)), Some(1));
        machine.handle_ping_flushed(ms(60_000));
        assert_eq!(
            (machine.poll_ping(ms(69_999)), machine.poll_ping(ms(70_000))),
            (None, Some(2))
        );
    }

    // T55, the machine's part
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
                (machine.poll_ping(ms(60_000)), machine.poll_timeout()),
                (None, None)
            );
            machine.handle_bytes(ms(60_000));
            machine.handle_ping(ms(60_000));
            assert_eq!(
                (machine.poll_ping(ms(60_999)), machine.poll_ping(ms(61_000))),
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
            (machine.poll_ping(ms(1750)), machine.poll_timeout()),
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
        assert_eq!((machine.rtt(), machine.last_evidence()), (None, ms(0)));
    }
}

mod report {
    use super::*;

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
            (machine.state(), machine.overdue(), machine.peer()),
            (State::Suspect, true, Peer::Doubtful)
        );
        assert_eq!(machine.poll_timeout(), None);
        assert_eq!(looks(&mut machine, ms(2000), |at| at < 5000), None);
        assert_eq!(machine.poll_ping(ms(5000)), None);
        machine.handle_bytes(ms(5000));
        assert_eq!(
            (machine.state(), machine.overdue(), machine.peer()),
            (State::Alive, false, Peer::Alive)
        );
        assert_eq!(
            (
                machine.counters().convictions_silent,
                machine.counters().recoveries
            ),
            (1, 1)
        );
        machine.handle_pong(ms(5000), Some(number), false);
        assert_eq!(machine.rtt(), None, "the PING was judged");
        write_ping(&mut machine, ms(6000));
        assert_eq!(looks(&mut machine, ms(6000), |_| true), Some(ms(7000)));
        assert_eq!(machine.counters().convictions_silent, 2);
    }

    #[test]
    fn reported_write_stall_counts_once_until_bytes_are_taken() {
        let mut machine = reporting();
        machine.handle_write_blocked(ms(0));
        assert_eq!(looks(&mut machine, ms(0), |_| true), Some(ms(1000)));
        assert_eq!(looks(&mut machine, ms(1000), |_| true), None);
        machine.handle_write_progress(ms(200_000), true);
        assert_eq!(
            (machine.state(), machine.counters().convictions_not_reading),
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
            "silent for 2.00 s, PING unanswered for 1.00 s"
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
        machine.handle_pong(ms(1003), None, true);
        machine.handle_verdict(ms(1003), Verdict::Unresponsive);
        assert_eq!(drain(&mut machine), [Event::FlagsChanged]);
        machine.handle_bytes(ms(1004));
        assert_eq!(drain(&mut machine), [Event::FlagsChanged]);
        assert!(machine.handlers_stalled(), "until a PONG says otherwise");
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
                machine.counters().suspect_entries,
                machine.counters().recoveries
            ),
            (1, 1)
        );
    }
}

mod verdict {
    use super::*;

    /// Runs the driver from `p` to the deadline as it must, with a look at the end, and returns the verdict.
    fn judge(machine: &mut Machine, call: &mut CallDeadline) -> Verdict {
        let (lead, mut last, mut now) = (call.lead(), ms(0), call.p());
        loop {
            machine.handle_run(now, Some(lead));
            call.handle_run(last, now);
            look(machine, now);
            if now == call.p() {
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
                "silent for 2.50 s, PING unanswered for 0.25 s"
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
            assert_eq!(machine.counters().pings_sent, pings, "{heard}");
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
            if let Some(number) = machine.poll_ping(ms(at)) {
                machine.handle_ping_flushed(ms(at));
                answer(&mut machine, ms(at) + Duration::from_micros(100), number);
            }
        }
        assert!(
            (30..=40).contains(&machine.counters().pings_sent),
            "{}",
            machine.counters().pings_sent
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
        machine.handle_ping_wish(ms(1750), call.p());
        write_ping(&mut machine, ms(1750));
        machine.handle_run(ms(2500), Some(call.lead()));
        call.handle_run(ms(1750), ms(2500));
        look(&mut machine, ms(2500));
        let verdict = machine.verdict(ms(2500), &call, WRITTEN);
        assert_eq!(verdict, Verdict::LocalStall);
        machine.handle_verdict(ms(2500), verdict);
        assert_eq!(machine.peer(), Peer::Alive);
        answer(&mut machine, ms(2501), 1);
        assert_eq!(machine.rtt(), None, "it measured our pause");
    }

    // T18, T81: the machine's part
    #[test]
    fn newest_pong_that_says_so_makes_it_the_handlers() {
        let mut machine = known(&Keepalive::on_demand());
        machine.handle_call_started(ms(0));
        machine.handle_bytes(ms(1760));
        machine.handle_pong(ms(1760), Some(1), true);
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
            offered_since_p: true,
            taken_since_p: false,
        };
        let mut machine = known(&Keepalive::on_demand());
        machine.handle_call_started(ms(0));
        machine.handle_write_blocked(ms(100));
        assert_eq!(
            machine.verdict(ms(2000), &call, unwritten),
            Verdict::NotReading
        );
        let bulk = WriteFacts {
            taken_since_p: true,
            ..unwritten
        };
        assert_eq!(machine.verdict(ms(2000), &call, bulk), Verdict::NotSent);
        let never = WriteFacts {
            offered_since_p: false,
            ..unwritten
        };
        assert_eq!(machine.verdict(ms(2000), &call, never), Verdict::LocalStall);

        machine.handle_ping_wish(ms(1750), call.p());
        assert!(machine.poll_ping(ms(1750)).is_some());
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

    // A PING whose calls are gone is not kept for the next one
    #[test]
    fn ping_of_an_unwatched_connection_goes_with_the_calls_that_wait_for_it() {
        let mut machine = known(&Keepalive::on_demand());
        machine.handle_call_started(ms(0));
        let mut call = CallDeadline::new(ms(0), ms(2000), &Keepalive::on_demand());
        assert_eq!(judge(&mut machine, &mut call), Verdict::Unresponsive);
        assert!(
            machine.awaiting_pong_since().is_some(),
            "a verdict retires nothing"
        );
        machine.handle_call_late(ms(2000));
        assert_eq!(
            (machine.awaiting_pong_since(), machine.peer()),
            (None, Peer::Doubtful)
        );
    }
}
