//! Lists of operations on a machine, and what must hold after each of them whatever the list.

use std::time::Duration;

use ttrpc_keepalive::keepalive::{
    Counters, DeadReason, Event, Evidence, Keepalive, Look, Machine, OnSilence, Peer, PeerSupport,
    Role, State, Support, Unknown, Unread, Verdict,
};
use ttrpc_keepalive::wire::Flags;

/// One thing that a driver may tell the machine, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) when: When,
    pub(crate) operation: Operation,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    /// So long after the step before.
    Later(Duration),
    /// When the machine wants to be called next.
    Due,
    /// At an instant before the last one.
    Back(Duration),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Operation {
    Connected,
    Bytes,
    Ping,
    Pong {
        number: Option<u64>,
        handlers_stalled: bool,
    },
    Response,
    Flushed,
    Blocked,
    Progress {
        still_blocked: bool,
    },
    Withdrawn,
    CallStarted,
    CallEnded,
    CallLate,
    LateCallEnded,
    ProbeStarted,
    ProbeEnded,
    /// A call came to `ask_at` so long ago.
    Wish {
        ago: Duration,
    },
    Parked,
    Resumed,
    Run {
        lead: Option<Duration>,
    },
    Look {
        drained: bool,
        write_refused: bool,
        unread: Unread,
    },
    Timeout,
    Verdict(Verdict),
    Closed,
}

/// The settings of a run, chosen by one byte.
pub(crate) fn keepalive(choice: u8) -> (Keepalive, Role) {
    let ms = Duration::from_millis;
    let base = match choice & 7 {
        0 => Keepalive::off(),
        1 => Keepalive::on_demand(),
        2 => Keepalive::every(ms(10)).timeout(ms(400)),
        3 => Keepalive::every(ms(1000)).timeout(ms(20)),
        _ => Keepalive::every(ms(100))
            .timeout(ms(200))
            .write_stall(ms(300)),
    };
    let reported = if choice & 8 == 0 {
        OnSilence::Close
    } else {
        OnSilence::Report
    };
    let support = if choice & 16 == 0 {
        PeerSupport::Learn
    } else {
        PeerSupport::Assume
    };
    let role = if choice & 32 == 0 {
        Role::Client
    } else {
        Role::Server
    };
    (
        base.on_silence(reported)
            .peer_support(support)
            .while_idle(choice & 64 == 0)
            .watch_by_receipts(choice & 128 != 0),
        role,
    )
}

/// Reads settings and steps from bytes: the first byte chooses the settings, then three bytes make
/// a step.
pub(crate) fn decode(bytes: &[u8]) -> (u8, Vec<Step>) {
    let (&choice, rest) = bytes.split_first().unwrap_or((&4, &[]));
    (
        choice,
        rest.chunks_exact(3)
            .map(|chunk| step(chunk[0], chunk[1], chunk[2]))
            .collect(),
    )
}

fn step(kind: u8, time: u8, argument: u8) -> Step {
    let ms = |millis: u8| Duration::from_millis(u64::from(millis));
    let when = match time {
        0..=63 => When::Due,
        64..=191 => When::Later(ms(time - 64)),
        192..=223 => When::Later(ms(time - 192) * 100),
        224..=239 => When::Back(ms(time - 223)),
        240..=254 => When::Later(Duration::ZERO),
        255 => When::Later(Duration::MAX / 2),
    };
    let odd = argument & 1 == 1;
    let number = (argument & 2 == 0).then(|| u64::from(argument >> 2));
    let operation = match kind % 24 {
        0 => Operation::Connected,
        1 => Operation::Bytes,
        2 => Operation::Ping,
        3 => Operation::Pong {
            number,
            handlers_stalled: odd,
        },
        4 => Operation::Response,
        5 | 6 => Operation::Flushed,
        7 => Operation::Blocked,
        8 if argument >= 192 => Operation::Withdrawn,
        8 => Operation::Progress { still_blocked: odd },
        9 => Operation::CallStarted,
        10 => Operation::CallEnded,
        11 => Operation::CallLate,
        12 => Operation::LateCallEnded,
        13 => Operation::ProbeStarted,
        14 => Operation::ProbeEnded,
        15 => Operation::Wish { ago: ms(argument) },
        16 => Operation::Parked,
        17 => Operation::Resumed,
        18 => Operation::Run {
            lead: odd.then(|| ms(argument)),
        },
        19 | 20 => Operation::Look {
            drained: argument % 8 != 0,
            write_refused: odd,
            unread: unread(argument),
        },
        21 => Operation::Timeout,
        22 => Operation::Verdict(VERDICTS[usize::from(argument) % VERDICTS.len()]),
        // Rare, because nothing happens afterwards.
        _ if argument == 255 => Operation::Closed,
        _ => Operation::Look {
            drained: true,
            write_refused: true,
            unread: Unread::NotAsked,
        },
    };
    Step { when, operation }
}

/// An answer of the kernel: buffers of 768 and the odd one. Most say the same as the one before.
pub(crate) fn unread(argument: u8) -> Unread {
    let argument = u64::from(argument);
    let buffers = match argument % 16 {
        0 => 0,
        1 => 2,
        _ => 1,
    };
    match argument {
        0..=63 => Unread::NotAsked,
        255 => Unread::Unknown,
        _ => Unread::Known {
            held: buffers * 768 + argument % 2,
            written: (argument / 250 + 1) * 400,
            written_at: (argument >= 80).then(|| Duration::from_millis(argument * 2)),
        },
    }
}

pub(crate) const VERDICTS: [Verdict; 8] = [
    Verdict::Slow,
    Verdict::HandlersStalled,
    Verdict::Unresponsive,
    Verdict::NotReading,
    Verdict::NotSent,
    Verdict::LocalStall,
    Verdict::Unknown(Unknown::TooEarly),
    Verdict::Unknown(Unknown::NoSupport),
];

/// All that can be seen of a machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) state: State,
    pub(crate) peer: Peer,
    pub(crate) support: Support,
    pub(crate) overdue: bool,
    pub(crate) watched: bool,
    pub(crate) evidence: Evidence,
    pub(crate) counters: Counters,
    pub(crate) answered: u64,
    pub(crate) look_due: bool,
    pub(crate) asks_unread: bool,
    pub(crate) last_evidence: Duration,
}

/// A machine whose promises are checked after each step.
pub(crate) struct Checked {
    pub(crate) machine: Machine,
    keepalive: Keepalive,
    timeout_floor: Duration,
    pub(crate) now: Duration,
    /// The PING that was handed out and is not flushed.
    unflushed: bool,
    number: u64,
    last_ping: Option<Duration>,
    /// When bytes were received last.
    spoke: Option<Duration>,
    over: Option<Counters>,
    /// Whether something was ever unread, receipts that were seen, and convictions with something unread.
    was_unread: bool,
    pub(crate) receipts: u64,
    pub(crate) unread: u64,
    pub(crate) events: Vec<Event>,
}

impl Checked {
    pub(crate) fn new(choice: u8) -> Self {
        let (keepalive, role) = keepalive(choice);
        let timeout_floor = match choice & 7 {
            2 => 400,
            3 => 20,
            _ => 200,
        };
        let mut machine = Machine::new(&keepalive, role, u64::from(choice));
        machine.handle_receipts(true);
        Self {
            machine,
            keepalive,
            timeout_floor: Duration::from_millis(timeout_floor),
            now: Duration::ZERO,
            unflushed: false,
            number: 0,
            last_ping: None,
            spoke: None,
            over: None,
            was_unread: false,
            receipts: 0,
            unread: 0,
            events: Vec::new(),
        }
    }

    pub(crate) fn seen(&self) -> Seen {
        let machine = &self.machine;
        Seen {
            state: machine.state(),
            peer: machine.peer(),
            support: machine.support(),
            overdue: machine.view().overdue,
            watched: machine.is_watched(),
            evidence: machine.evidence(self.now),
            counters: machine.view().counters,
            answered: machine.answered_number(),
            look_due: machine.look_due(self.now),
            asks_unread: machine.asks_unread(),
            last_evidence: machine.view().last_evidence,
        }
    }

    /// The instant a step happens at, as the driver claims it.
    fn instant(&self, when: When) -> Duration {
        match when {
            When::Later(by) => self.now.saturating_add(by),
            When::Due => self
                .machine
                .poll_timeout()
                .unwrap_or(self.now)
                .max(self.now),
            When::Back(by) => self.now.saturating_sub(by),
        }
    }

    /// Takes one step, checks it, and returns its instant and the PING that was wanted after it.
    pub(crate) fn take(&mut self, step: Step) -> (Duration, Option<u64>) {
        let instant = self.instant(step.when);
        let before = self.seen();
        self.now = self.now.max(instant);
        let probe = self.apply(instant, step.operation);
        self.events = std::iter::from_fn(|| self.machine.poll_event()).collect();
        let after = self.seen();

        assert!(
            after.last_evidence >= before.last_evidence,
            "evidence went back"
        );
        let heard = matches!(
            step.operation,
            Operation::Bytes | Operation::Progress { .. } | Operation::Connected
        );
        assert!(
            heard || after.last_evidence == before.last_evidence,
            "evidence without a byte"
        );
        let looked = matches!(step.operation, Operation::Look { .. });
        let worse = after.state != before.state && after.state != State::Alive;
        assert!(looked || !worse, "judged without a look");
        if looked || step.operation == Operation::Timeout {
            assert!(
                self.machine.poll_timeout().is_none_or(|due| due > instant),
                "spins"
            );
            self.check_repeating(instant, step.operation, after);
        }
        let read = |seen: Seen| {
            seen.evidence
                .read_ago
                .map(|ago| self.now.saturating_sub(ago))
        };
        self.receipts += u64::from(read(after) > read(before));
        self.check_convictions();
        let ping = self.take_ping(probe);
        self.check_end(step.operation);
        (instant, ping)
    }

    fn apply(&mut self, now: Duration, operation: Operation) -> bool {
        let machine = &mut self.machine;
        match operation {
            Operation::Connected => machine.handle_connected(now),
            Operation::Bytes => {
                self.spoke = Some(self.now);
                machine.handle_bytes(now);
            }
            Operation::Ping => machine.handle_ping(now),
            Operation::Pong {
                number,
                handlers_stalled,
            } => {
                let flags = Flags::from(u8::from(handlers_stalled));
                machine.handle_pong(now, number, flags);
            }
            Operation::Response => machine.handle_response(now),
            Operation::Flushed => {
                self.unflushed = false;
                machine.handle_ping_flushed(now);
            }
            Operation::Blocked => machine.handle_write_blocked(now),
            Operation::Progress { still_blocked } => {
                machine.handle_write_progress(now, still_blocked)
            }
            Operation::Withdrawn => machine.handle_write_withdrawn(now),
            Operation::CallStarted => machine.handle_call_started(now),
            Operation::CallEnded => machine.handle_call_ended(now),
            Operation::CallLate => machine.handle_call_late(now),
            Operation::LateCallEnded => machine.handle_late_call_ended(now),
            Operation::ProbeStarted => {
                let answered_by = machine.handle_probe_started(now);
                assert!(
                    answered_by >= self.number,
                    "a probe waits for an older PING"
                );
                return true;
            }
            Operation::ProbeEnded => machine.handle_probe_ended(now),
            Operation::Wish { ago } => machine.handle_ping_wish(now, self.now.saturating_sub(ago)),
            Operation::Parked => machine.handle_parked(now),
            Operation::Resumed => machine.handle_resumed(now),
            Operation::Run { lead } => machine.handle_run(now, lead),
            Operation::Look {
                drained,
                write_refused,
                unread,
            } => {
                self.was_unread |= matches!(unread, Unread::Known { held: 256.., .. });
                machine.handle_look(
                    now,
                    Look {
                        drained,
                        write_refused,
                        unread,
                    },
                );
            }
            Operation::Timeout => machine.handle_timeout(now),
            Operation::Verdict(verdict) => machine.handle_verdict(now, verdict),
            Operation::Closed => machine.handle_closed(),
        }
        false
    }

    /// The same look or timeout once more says nothing new.
    fn check_repeating(&mut self, instant: Duration, operation: Operation, seen: Seen) {
        self.apply(instant, operation);
        assert_eq!(
            self.seen(),
            seen,
            "a repeated {operation:?} changed something"
        );
        assert_eq!(
            self.machine.poll_event(),
            None,
            "a repeated {operation:?} told something"
        );
    }

    fn check_convictions(&mut self) {
        for event in &self.events {
            let Event::Convicted {
                reason, evidence, ..
            } = event
            else {
                continue;
            };
            assert!(
                self.keepalive.settings().every.is_some(),
                "convicted and not watched"
            );
            let waited = match reason {
                DeadReason::Silent => {
                    assert_eq!(
                        evidence.support,
                        Support::Yes,
                        "an old peer was convicted by silence"
                    );
                    evidence.awaiting_pong_for
                }
                // How long it is known to lie unread is another matter, and the model's.
                _ => {
                    let unread = self.was_unread.then_some(self.timeout_floor);
                    self.unread += u64::from(evidence.unread_for.is_some());
                    evidence.write_blocked_for.max(unread)
                }
            };
            assert!(
                waited.is_some_and(|waited| waited >= self.timeout_floor),
                "convicted too early"
            );
            let explicit = self.keepalive.settings().write_stall.is_some();
            assert!(
                (explicit && *reason == DeadReason::NotReading)
                    || self
                        .spoke
                        .is_none_or(|spoke| self.now.saturating_sub(spoke) >= self.timeout_floor),
                "convicted while it spoke"
            );
        }
    }

    fn take_ping(&mut self, probe: bool) -> Option<u64> {
        let number = self.machine.poll_ping(self.now)?;
        assert_eq!(self.machine.poll_ping(self.now), None);
        assert!(
            !std::mem::replace(&mut self.unflushed, true),
            "two PINGs at a time"
        );
        assert_eq!(number, self.number + 1, "numbers grow by one");
        self.number = number;
        let shortest = self
            .keepalive
            .settings()
            .every
            .unwrap_or(Duration::MAX)
            .min(Duration::from_millis(25));
        if let Some(last) = self.last_ping.filter(|_| !probe) {
            assert!(self.now.saturating_sub(last) >= shortest, "PINGs too close");
        }
        self.last_ping = Some(self.now);
        Some(number)
    }

    fn check_end(&mut self, operation: Operation) {
        if let Some(counters) = self.over {
            assert_eq!(
                self.machine.view().counters,
                counters,
                "counted after the end"
            );
            assert_eq!(self.events, [], "told after the end");
        }
        if operation == Operation::Closed || matches!(self.machine.state(), State::Dead(_)) {
            self.over = Some(self.machine.view().counters);
        }
        if self.over.is_some() {
            assert_eq!(
                self.machine.poll_timeout(),
                None,
                "a deadline after the end"
            );
            assert_eq!(
                self.machine.poll_ping(self.now),
                None,
                "a PING after the end"
            );
        }
    }
}
