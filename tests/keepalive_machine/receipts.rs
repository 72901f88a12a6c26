//! What the kernel says of written bytes that the peer has read, or has not.

use std::time::Duration;

use ttrpc_keepalive::keepalive::{
    CallDeadline, DeadReason, Event, Keepalive, Look, Machine, OnSilence, Peer, Role, State,
    Support, Unknown, Unread, Verdict,
};

use super::bench::{WRITTEN, drain, due_ping, every_second, known, ms};

/// The queue of the kernel between a machine and a peer that knows no PING.
struct Queue {
    held: u64,
    written: u64,
    written_at: Option<Duration>,
    reads: bool,
}

impl Queue {
    fn new() -> Self {
        Self {
            held: 0,
            written: 0,
            written_at: None,
            reads: true,
        }
    }

    fn write(&mut self, now: Duration) {
        self.held = if self.reads { 0 } else { self.held + 768 };
        self.written += 18;
        self.written_at = Some(now);
    }

    fn answer(&self) -> Unread {
        Unread::Known {
            held: self.held,
            written: self.written,
            written_at: self.written_at,
        }
    }

    /// Looks at the socket as a driver does. It holds nothing, and no write is refused.
    fn look(&self, machine: &mut Machine, now: Duration) {
        let unread = if machine.asks_unread() {
            self.answer()
        } else {
            Unread::NotAsked
        };
        machine.handle_look(now, found(true, unread));
    }

    /// Writes the PING that is wanted.
    fn ping(&mut self, machine: &mut Machine, now: Duration) -> bool {
        let wanted = machine.poll_ping(now).is_some();
        if wanted {
            self.write(now);
            machine.handle_ping_flushed(now);
        }
        wanted
    }
}

const fn found(drained: bool, unread: Unread) -> Look {
    Look {
        drained,
        write_refused: false,
        unread,
    }
}

/// A client's machine whose peer has answered a request and not the PING before it, at time zero.
fn old(keepalive: &Keepalive, queue: &mut Queue) -> Machine {
    let mut machine = Machine::new(keepalive, Role::Client, 0);
    machine.handle_receipts(true);
    machine.handle_connected(ms(0));
    machine.handle_call_started(ms(0));
    assert!(queue.ping(&mut machine, ms(0)));
    queue.write(ms(0));
    machine.handle_bytes(ms(0));
    machine.handle_response(ms(0));
    machine.handle_call_ended(ms(0));
    assert_eq!(machine.support(), Support::No);
    drain(&mut machine);
    machine
}

/// Begins a call at `start`.
fn begin(machine: &mut Machine, queue: &mut Queue, start: u64) -> CallDeadline {
    machine.handle_call_started(ms(start));
    queue.write(ms(start));
    CallDeadline::new(ms(start), ms(2000), &Keepalive::on_demand())
}

/// Runs the driver before the deadline as it must, but for the runs that are `missed`, and returns
/// the verdict.
fn judge(
    machine: &mut Machine,
    queue: &mut Queue,
    call: &mut CallDeadline,
    missed: impl Fn(u64) -> bool,
) -> Verdict {
    let (mut last, mut now) = (ms(0), call.ask_at());
    loop {
        let is_last = now == call.deadline();
        if is_last || !missed(u64::try_from((now - call.ask_at()).as_millis()).unwrap()) {
            machine.handle_run(now, Some(call.lead()));
            call.handle_run(last, now);
            if is_last || machine.look_due(now) {
                queue.look(machine, now);
            }
            if !is_last && last < call.ask_at() {
                machine.handle_ping_wish(now, call.ask_at());
                queue.ping(machine, now);
            }
            last = now;
        }
        if is_last {
            break;
        }
        now = call.next_run(now);
    }
    let verdict = machine.verdict(now, call, WRITTEN);
    machine.handle_verdict(now, verdict);
    verdict
}

fn always(_: u64) -> bool {
    false
}

fn pings(machine: &Machine) -> u64 {
    machine.view().counters.pings_sent
}

const EARLY: Verdict = Verdict::Unknown(Unknown::TooEarly);
const NO_SUPPORT: Verdict = Verdict::Unknown(Unknown::NoSupport);

#[test]
fn old_peer_that_reads_the_ping_before_the_deadline_is_slow() {
    let mut queue = Queue::new();
    let mut machine = old(&Keepalive::on_demand(), &mut queue);
    let mut call = begin(&mut machine, &mut queue, 1000);
    let verdict = judge(&mut machine, &mut queue, &mut call, always);
    assert_eq!((verdict, machine.peer()), (Verdict::Slow, Peer::Alive));
    assert_eq!(pings(&machine), 2, "that of the first exchange, and one");
    let evidence = machine.evidence(ms(3000));
    assert!(evidence.only_reads() && evidence.receipts);
    assert_eq!(evidence.support, Support::No);
    assert_eq!(evidence.awaiting_pong_for, None, "nobody waits for a PONG");
    assert_eq!(
        evidence.to_string(),
        "nothing heard for 3.00 s, read what was sent 0.25 s ago"
    );
}

#[test]
fn old_peer_that_leaves_its_request_unread_is_not_reading_and_gets_no_ping() {
    let mut queue = Queue::new();
    let mut machine = old(&Keepalive::on_demand(), &mut queue);
    queue.reads = false;
    let mut call = begin(&mut machine, &mut queue, 1200);
    let verdict = judge(&mut machine, &mut queue, &mut call, always);
    assert_eq!(verdict, Verdict::NotReading);
    assert_eq!((machine.peer(), pings(&machine)), (Peer::Doubtful, 1));
    assert_eq!(
        machine.evidence(ms(3200)).to_string(),
        "nothing heard for 3.20 s, nobody has read what was sent for 2.00 s"
    );
    // It runs again.
    queue.held = 0;
    machine.handle_run(ms(3250), Some(ms(250)));
    queue.look(&mut machine, ms(3250));
    assert_eq!(machine.peer(), Peer::Alive);
}

// That it has read its request says nothing of now.
#[test]
fn old_peer_that_has_read_its_request_and_stopped_then_leaves_the_ping_unread() {
    let mut queue = Queue::new();
    let mut machine = old(&Keepalive::on_demand(), &mut queue);
    let mut call = begin(&mut machine, &mut queue, 1000);
    queue.reads = false;
    let verdict = judge(&mut machine, &mut queue, &mut call, always);
    assert_eq!(verdict, Verdict::NotReading);
    assert_eq!(pings(&machine), 2);
}

#[test]
fn old_peer_that_reads_a_part_of_what_it_has_been_sent_is_slow() {
    let mut queue = Queue::new();
    let mut machine = old(&Keepalive::on_demand(), &mut queue);
    queue.reads = false;
    (0..4).for_each(|_| queue.write(ms(900)));
    let mut call = begin(&mut machine, &mut queue, 1000);
    machine.handle_run(call.ask_at(), Some(call.lead()));
    queue.look(&mut machine, call.ask_at());
    queue.held -= 768;
    let verdict = judge(&mut machine, &mut queue, &mut call, always);
    assert_eq!(verdict, Verdict::Slow);
    assert_eq!(pings(&machine), 1, "something lies unread anyway");
}

#[test]
fn peer_of_which_nothing_is_known_is_asked_anew_and_judged_by_what_it_reads() {
    for (reads, verdict, pings) in [(true, Verdict::Slow, 2), (false, Verdict::NotReading, 1)] {
        let mut queue = Queue::new();
        queue.reads = reads;
        let mut machine = Machine::new(&Keepalive::on_demand(), Role::Client, 0);
        machine.handle_receipts(true);
        machine.handle_call_started(ms(5));
        assert!(queue.ping(&mut machine, ms(5)));
        queue.write(ms(5));
        let mut call = CallDeadline::new(ms(5), ms(2000), &Keepalive::on_demand());
        assert_eq!(
            judge(&mut machine, &mut queue, &mut call, always),
            verdict,
            "it boots, or nobody accepts"
        );
        let counters = machine.view().counters;
        assert_eq!(counters.pings_sent, pings);
    }
}

#[test]
fn transport_that_cannot_tell_is_not_asked_and_leaves_it_unknown() {
    let mut queue = Queue::new();
    let mut machine = old(&Keepalive::on_demand(), &mut queue);
    machine.handle_receipts(false);
    let mut call = begin(&mut machine, &mut queue, 500);
    let verdict = judge(&mut machine, &mut queue, &mut call, always);
    assert_eq!((verdict, pings(&machine)), (NO_SUPPORT, 1), "RFC KA-27");

    // Nor any more once it could not.
    let mut queue = Queue::new();
    let mut machine = old(&Keepalive::on_demand(), &mut queue);
    let mut call = begin(&mut machine, &mut queue, 1000);
    machine.handle_run(call.ask_at(), Some(call.lead()));
    assert!(machine.look_due(call.ask_at()) && machine.asks_unread());
    machine.handle_look(call.ask_at(), found(true, Unread::Unknown));
    assert!(!machine.look_due(call.ask_at()) && !machine.asks_unread());
    let verdict = judge(&mut machine, &mut queue, &mut call, always);
    assert_eq!((verdict, machine.peer()), (NO_SUPPORT, Peer::Alive));
    assert_eq!(pings(&machine), 1, "RFC KA-27");
    assert!(!machine.view().receipts);
}

#[test]
fn receipts_that_are_turned_off_cost_nothing_and_tell_nothing() {
    let mut queue = Queue::new();
    let keepalive = Keepalive::every(ms(1000))
        .read_receipts(false)
        .watch_by_receipts(true);
    let mut machine = old(&keepalive, &mut queue);
    queue.reads = false;
    let mut call = begin(&mut machine, &mut queue, 1000);
    let verdict = judge(&mut machine, &mut queue, &mut call, always);
    assert_eq!((verdict, pings(&machine)), (NO_SUPPORT, 1));
    assert!(!machine.asks_unread() && !machine.look_due(ms(9000)));
}

// `off` asks the peer nothing, and sees what lies there all the same.
#[test]
fn peer_of_a_side_that_sends_no_pings_is_judged_by_its_request() {
    for (reads, verdict) in [(true, NO_SUPPORT), (false, Verdict::NotReading)] {
        let mut queue = Queue::new();
        queue.reads = reads;
        let mut machine = Machine::new(&Keepalive::off(), Role::Client, 0);
        machine.handle_receipts(true);
        let mut call = begin(&mut machine, &mut queue, 1000);
        assert_eq!(judge(&mut machine, &mut queue, &mut call, always), verdict);
        assert_eq!(pings(&machine), 0);
    }
}

// Somebody in between may read for it.
#[test]
fn peer_that_answers_pings_is_not_alive_because_something_reads() {
    let mut queue = Queue::new();
    let mut machine = known(&Keepalive::every(ms(30_000)).watch_by_receipts(true));
    machine.handle_receipts(true);
    let mut call = begin(&mut machine, &mut queue, 1000);
    let verdict = judge(&mut machine, &mut queue, &mut call, always);
    assert_eq!(verdict, Verdict::Unresponsive);
    let evidence = machine.evidence(ms(3000));
    assert_eq!(evidence.read_ago, Some(ms(250)), "its PING was read");
    assert!(!evidence.only_reads());
}

#[test]
fn peer_that_is_closing_gives_no_receipt() {
    let mut queue = Queue::new();
    let mut machine = old(&Keepalive::on_demand(), &mut queue);
    queue.reads = false;
    let call = begin(&mut machine, &mut queue, 1000);
    machine.handle_run(ms(2750), Some(call.lead()));
    queue.look(&mut machine, ms(2750));
    queue.held = 0;
    let end_is_there = found(false, queue.answer());
    machine.handle_look(ms(2800), end_is_there);
    assert_eq!(machine.view().last_read, None);
}

#[test]
fn receipt_is_not_missed_by_a_pause_of_ours_and_a_pause_holds_nothing_against_the_peer() {
    let paused = |after: u64| after > 0;
    for (reads, verdict) in [(true, Verdict::Slow), (false, Verdict::LocalStall)] {
        let mut queue = Queue::new();
        let mut machine = old(&Keepalive::on_demand(), &mut queue);
        let mut call = begin(&mut machine, &mut queue, 1000);
        queue.reads = reads;
        assert_eq!(judge(&mut machine, &mut queue, &mut call, paused), verdict);
        assert_eq!(machine.peer(), Peer::Alive);
    }
    // Two runs half a lead apart are no pause yet, and what was attended of it is not enough.
    let mut queue = Queue::new();
    let mut machine = old(&Keepalive::on_demand(), &mut queue);
    let mut call = begin(&mut machine, &mut queue, 1000);
    queue.reads = false;
    let runs_once = |after: u64| after > 0 && after != 124;
    let verdict = judge(&mut machine, &mut queue, &mut call, runs_once);
    assert_ne!(verdict, Verdict::NotReading);
}

#[test]
fn deadline_too_short_to_expect_a_reader_is_too_early_to_tell() {
    let mut queue = Queue::new();
    let mut machine = old(&Keepalive::on_demand(), &mut queue);
    queue.reads = false;
    machine.handle_call_started(ms(1000));
    queue.write(ms(1000));
    let mut call = CallDeadline::new(ms(1000), ms(200), &Keepalive::on_demand());
    assert_eq!(judge(&mut machine, &mut queue, &mut call, always), EARLY);
    assert_eq!(machine.peer(), Peer::Doubtful);
}

#[test]
fn a_thousand_late_calls_of_an_old_peer_in_a_second_cost_forty_pings() {
    let mut queue = Queue::new();
    let mut machine = old(&Keepalive::on_demand(), &mut queue);
    (0..1000).for_each(|_| machine.handle_call_started(ms(1)));
    for at in 2000..3000 {
        machine.handle_run(ms(at), Some(ms(250)));
        queue.look(&mut machine, ms(at));
        machine.handle_ping_wish(ms(at), ms(at));
        queue.ping(&mut machine, ms(at));
    }
    assert!((31..=41).contains(&pings(&machine)), "{}", pings(&machine));

    // And one that nobody reads is the only one.
    let before = pings(&machine);
    queue.reads = false;
    for at in 3000..4000 {
        machine.handle_run(ms(at), Some(ms(250)));
        queue.look(&mut machine, ms(at));
        machine.handle_ping_wish(ms(at), ms(at));
        queue.ping(&mut machine, ms(at));
    }
    assert_eq!(pings(&machine), before + 1);
}

/// Plays a connection watched by receipts from `from` for 100 s, each millisecond in which this side
/// runs, and says when the peer was convicted and why.
fn watch(
    machine: &mut Machine,
    queue: &mut Queue,
    from: u64,
    runs: impl Fn(u64) -> bool,
) -> Option<(Duration, DeadReason)> {
    for now in (from..from + 100_000).filter(|&at| runs(at)).map(ms) {
        machine.handle_run(now, None);
        if machine.look_due(now) {
            queue.look(machine, now);
        }
        machine.handle_timeout(now);
        queue.ping(machine, now);
        for event in drain(machine) {
            if let Event::Convicted { reason, .. } = event {
                return Some((now, reason));
            }
        }
    }
    None
}

fn by_receipts() -> Keepalive {
    every_second().watch_by_receipts(true)
}

#[test]
fn idle_old_peer_that_reads_lives_and_is_asked_each_interval() {
    let mut queue = Queue::new();
    let mut machine = old(&by_receipts(), &mut queue);
    assert_eq!(watch(&mut machine, &mut queue, 1, |_| true), None);
    assert_eq!((machine.state(), pings(&machine)), (State::Alive, 101));
    assert_eq!(machine.view().counters.suspect_entries, 0);
}

#[test]
fn idle_old_peer_that_stops_is_found_at_interval_and_timeout_by_one_small_frame() {
    let mut queue = Queue::new();
    let mut machine = old(&by_receipts(), &mut queue);
    queue.reads = false;
    let dead = watch(&mut machine, &mut queue, 1, |_| true);
    assert_eq!(dead, Some((ms(2000), DeadReason::NotReading)));
    assert_eq!(pings(&machine), 2, "the one that lies unread is enough");
    assert_eq!(queue.held, 768);

    // Twins: nobody wanted to know, or nobody can tell.
    let mut queue = Queue::new();
    let mut machine = old(&every_second(), &mut queue);
    queue.reads = false;
    assert_eq!(watch(&mut machine, &mut queue, 1, |_| true), None);
    assert_eq!((machine.state(), pings(&machine)), (State::Alive, 1));
    let mut queue = Queue::new();
    let mut machine = old(&by_receipts(), &mut queue);
    machine.handle_look(ms(1), found(true, Unread::Unknown));
    queue.reads = false;
    assert_eq!(watch(&mut machine, &mut queue, 1, |_| true), None);
    assert_eq!(pings(&machine), 1);
}

#[test]
fn request_that_lies_unread_convicts_without_a_ping() {
    let mut queue = Queue::new();
    let mut machine = old(&by_receipts(), &mut queue);
    watch(&mut machine, &mut queue, 1, |at| at < 500);
    queue.reads = false;
    machine.handle_call_started(ms(500));
    queue.write(ms(500));
    let dead = watch(&mut machine, &mut queue, 501, |_| true);
    assert_eq!(dead, Some((ms(2000), DeadReason::NotReading)));
    assert_eq!(pings(&machine), 1);
}

#[test]
fn pause_of_ours_leaves_half_of_the_time_to_a_peer_that_is_to_read() {
    let mut queue = Queue::new();
    let mut machine = old(&by_receipts(), &mut queue);
    queue.reads = false;
    let dead = watch(&mut machine, &mut queue, 1, |at| {
        !(1600..7000).contains(&at)
    });
    assert_eq!(dead, Some((ms(7500), DeadReason::NotReading)));
    assert_eq!(machine.view().counters.local_stalls, 1);
}

#[test]
fn peer_that_reads_at_last_is_alive_again() {
    for on_silence in [OnSilence::Close, OnSilence::Report] {
        let mut queue = Queue::new();
        let mut machine = old(&by_receipts().on_silence(on_silence), &mut queue);
        queue.reads = false;
        let until = if on_silence == OnSilence::Close {
            1700
        } else {
            2500
        };
        for now in (1..until).map(ms) {
            if machine.look_due(now) {
                queue.look(&mut machine, now);
            }
            machine.handle_timeout(now);
            queue.ping(&mut machine, now);
        }
        assert_eq!(machine.state(), State::Suspect);
        (queue.reads, queue.held) = (true, 0);
        drain(&mut machine);
        assert_eq!(watch(&mut machine, &mut queue, until, |_| true), None);
        assert_eq!(machine.state(), State::Alive);
        assert_eq!(machine.view().counters.recoveries, 1);
    }
}

// A byte restarts the time of what lies unread, unless it was set for itself
#[test]
fn peer_that_speaks_and_leaves_a_frame_unread_is_ended_only_by_a_write_stall_that_was_set() {
    for (keepalive, dead) in [
        (by_receipts(), None),
        (by_receipts().write_stall(ms(3000)), Some(ms(3750))),
    ] {
        let mut queue = Queue::new();
        let mut machine = old(&keepalive, &mut queue);
        queue.reads = false;
        queue.write(ms(1));
        let convicted = (1..20_000).map(ms).find(|&now| {
            if now.as_millis() % 300 == 0 {
                machine.handle_bytes(now);
            }
            if machine.look_due(now) {
                queue.look(&mut machine, now);
            }
            machine.handle_timeout(now);
            queue.ping(&mut machine, now);
            machine.peer() == Peer::Gone
        });
        assert_eq!(convicted, dead);
        assert_eq!(pings(&machine), 1, "it is known to live");
    }
}

#[test]
fn server_finds_a_client_that_reads_no_answer_without_a_ping() {
    let mut queue = Queue::new();
    let mut machine = Machine::new(&by_receipts(), Role::Server, 0);
    machine.handle_receipts(true);
    machine.handle_connected(ms(0));
    assert_eq!(watch(&mut machine, &mut queue, 0, |at| at < 10_000), None);
    queue.reads = false;
    queue.write(ms(10_100));
    let dead = watch(&mut machine, &mut queue, 10_100, |_| true);
    assert_eq!(dead, Some((ms(11_100), DeadReason::NotReading)));
    assert_eq!(pings(&machine), 0, "RFC KA-28");
}

#[test]
fn peer_that_reads_while_writes_are_refused_is_not_convicted() {
    for reads in [true, false] {
        let mut machine = known(&every_second());
        machine.handle_receipts(true);
        machine.handle_write_blocked(ms(0));
        assert!(machine.asks_unread());
        let mut held = 1_000_000;
        let convicted = (1..3000).map(ms).find(|&now| {
            if machine.look_due(now) {
                held -= if reads { 33_000 } else { 0 };
                let unread = Unread::Known {
                    held,
                    written: 900_000,
                    written_at: Some(ms(0)),
                };
                let look = Look {
                    write_refused: true,
                    ..found(true, unread)
                };
                machine.handle_look(now, look);
            }
            machine.peer() == Peer::Gone
        });
        let dead = (!reads).then_some(ms(1000));
        assert_eq!(convicted, dead);
    }
}

#[test]
fn ping_to_be_read_that_cannot_be_written_speaks_of_the_writer() {
    let mut queue = Queue::new();
    let mut machine = old(&Keepalive::on_demand(), &mut queue);
    let call = begin(&mut machine, &mut queue, 1000);
    machine.handle_run(call.ask_at(), Some(call.lead()));
    queue.look(&mut machine, call.ask_at());
    machine.handle_ping_wish(call.ask_at(), call.ask_at());
    assert!(due_ping(&mut machine, call.ask_at()).is_some());
    machine.handle_write_blocked(call.ask_at());
    let facts = ttrpc_keepalive::keepalive::WriteFacts {
        taken_since_asked: false,
        ..WRITTEN
    };
    assert_eq!(machine.verdict(ms(3000), &call, facts), Verdict::NotReading);
}
