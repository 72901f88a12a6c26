//! When something is due, and what time may do.

use std::time::Duration;

use ttrpc_keepalive::keepalive::{Keepalive, Machine, Role, State, Support};

use super::bench::{SILENT, answer, due_ping, every_second, known, look, looks, ms, write_ping};

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
        if let Some(number) = due_ping(&mut machine, now) {
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
        (machine.support(), due_ping(&mut machine, ms(1001))),
        (Support::Yes, None)
    );
    assert_eq!(due_ping(&mut machine, ms(1002)), Some(2));
}

// T29, not watched
#[test]
fn connection_not_watched_asks_in_front_of_its_first_request_only() {
    for keepalive in [Keepalive::on_demand(), every_second().while_idle(false)] {
        let mut machine = Machine::new(&keepalive, Role::Client, 0);
        machine.handle_connected(ms(0));
        assert_eq!(
            (due_ping(&mut machine, ms(3000)), machine.poll_timeout()),
            (None, None)
        );
        machine.handle_call_started(ms(3000));
        assert_eq!(due_ping(&mut machine, ms(3000)), Some(1));
        assert_eq!(due_ping(&mut machine, ms(3000)), None);
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
    assert_eq!(machine.view().counters.pings_sent, 0);
}

// N38: a timer that fired while bytes lay in the socket
#[test]
fn ping_that_was_due_is_not_sent_if_the_turn_reads_bytes() {
    let mut machine = known(&every_second());
    for at in (5..100).map(|turn| ms(1000 * turn)) {
        machine.handle_run(at, None);
        machine.handle_call_started(at);
        assert_eq!(
            machine.poll_ping(at),
            None,
            "a call does not wait for the read"
        );
        machine.handle_bytes(at);
        machine.handle_timeout(at);
        assert_eq!(machine.poll_ping(at), None);
    }

    // The twin: there were none.
    let at = ms(100_000);
    machine.handle_run(at, None);
    assert_eq!(machine.poll_ping(at), None);
    machine.handle_timeout(at);
    assert_eq!(machine.poll_ping(at), Some(1));
}

// The call begins the watch, and nothing was due before it
#[test]
fn first_call_after_a_silence_that_nobody_watched_asks_in_front_of_its_request() {
    let mut machine = known(&every_second().while_idle(false));
    machine.handle_call_started(ms(5000));
    assert_eq!(machine.poll_ping(ms(5000)), Some(1));
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
                if due_ping(&mut machine, now).is_some() {
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
    assert_eq!(machine.view().last_evidence, ms(5000));
    write_ping(&mut machine, ms(6000));
    for at in [6250, 10, 6500, 20, 6750, 30] {
        look(&mut machine, ms(at));
    }
    assert_eq!(
        (machine.state(), machine.view().counters.local_stalls),
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
        (
            machine.poll_timeout(),
            due_ping(&mut machine, Duration::MAX)
        ),
        (None, None)
    );
}
