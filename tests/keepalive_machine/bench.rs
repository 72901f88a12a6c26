//! A machine driven by hand, for a peer that is known from the beginning.

use std::time::Duration;

use ttrpc_keepalive::keepalive::{
    DeadReason, Event, Keepalive, Look, Machine, Role, State, Unread, WriteFacts,
};
use ttrpc_keepalive::wire::Flags;

pub(crate) const SILENT: State = State::Dead(DeadReason::Silent);

/// Of a request that went out at once.
pub(crate) const WRITTEN: WriteFacts = WriteFacts {
    written: true,
    offered_since_asked: true,
    taken_since_asked: true,
};

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Interval and timeout of one second unless a test says otherwise.
pub(crate) fn every_second() -> Keepalive {
    Keepalive::every(ms(1000)).timeout(ms(1000))
}

/// A client's machine whose peer has shown at time zero that it knows PING, before anything was
/// asked.
pub(crate) fn known(keepalive: &Keepalive) -> Machine {
    let mut machine = Machine::new(keepalive, Role::Client, 0);
    machine.handle_bytes(ms(0));
    machine.handle_ping(ms(0));
    drain(&mut machine);
    machine
}

/// The PING that is wanted at `now`, after the socket was read.
pub(crate) fn due_ping(machine: &mut Machine, now: Duration) -> Option<u64> {
    machine.handle_timeout(now);
    machine.poll_ping(now)
}

/// Takes the PING that is wanted at `now` and writes it.
pub(crate) fn write_ping(machine: &mut Machine, now: Duration) -> u64 {
    let number = due_ping(machine, now).expect("a PING is wanted");
    machine.handle_ping_flushed(now);
    number
}

/// The PING's answer arrives.
pub(crate) fn answer(machine: &mut Machine, now: Duration, number: u64) {
    machine.handle_bytes(now);
    machine.handle_pong(now, Some(number), Flags::NONE);
}

/// A look that finds nothing to read, and a blocked write still refused.
pub(crate) fn look(machine: &mut Machine, now: Duration) {
    machine.handle_look(
        now,
        Look {
            drained: true,
            write_refused: true,
            unread: Unread::NotAsked,
        },
    );
}

pub(crate) fn drain(machine: &mut Machine) -> Vec<Event> {
    std::iter::from_fn(|| machine.poll_event()).collect()
}

/// Looks at each millisecond in which we run and a look is due, from `from` on; returns when the
/// peer was convicted.
pub(crate) fn looks(
    machine: &mut Machine,
    from: Duration,
    runs: impl Fn(u64) -> bool,
) -> Option<Duration> {
    let from = u64::try_from(from.as_millis()).expect("a short test");
    (from..from + 100_000)
        .filter(|&at| runs(at))
        .map(ms)
        .find(|&now| {
            if machine.look_due(now) {
                look(machine, now);
            }
            drain(machine)
                .iter()
                .any(|event| matches!(event, Event::Convicted { .. }))
        })
}
