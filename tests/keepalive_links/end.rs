//! One end: a machine with a model of its driver.
//!
//! The driver here is the shortest one that keeps the order the machine asks for: run, read, write,
//! look, timers, verdicts. It has no sockets, tasks or bytes, only their counts.

use std::collections::VecDeque;
use std::time::Duration;

use ttrpc_keepalive::keepalive::{
    CallDeadline, DeadReason, Event, Keepalive, Look, Machine, Role, State, Unread, Verdict,
    WriteFacts,
};
use ttrpc_keepalive::wire::Flags;

use super::link::{Frame, Link, MS, Pattern, SMALL, STALLED, at, micros};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Answered,
    Verdict(Verdict),
    ConnectionEnded,
}

pub(crate) struct Call {
    pub(crate) started: u64,
    pub(crate) deadline: CallDeadline,
    pub(crate) outcome: Option<(u64, Outcome)>,
    pub(crate) late_answer: Option<u64>,
    wished: bool,
    facts: WriteFacts,
}

/// A call to start at a time: its timeout, its size, and how long the other end takes to answer it.
#[derive(Clone, Copy)]
pub(crate) struct Job {
    pub(crate) at: u64,
    pub(crate) timeout: u64,
    pub(crate) size: u64,
    pub(crate) answer_after: Option<u64>,
}

pub(crate) struct End {
    pub(crate) machine: Machine,
    keepalive: Keepalive,
    pub(crate) runs: Pattern,
    pub(crate) reads: Pattern,
    pub(crate) knows_ping: bool,
    pub(crate) handlers_stalled: bool,
    pub(crate) dies_at: Option<u64>,
    /// A small frame of data is sent each so often.
    pub(crate) drip: Option<u64>,
    /// After a pause the first read does not see what has arrived, as with a cached readiness.
    pub(crate) reads_are_stale: bool,
    pub(crate) jobs: VecDeque<Job>,
    pub(crate) calls: Vec<Call>,
    open: Vec<usize>,
    pub(crate) pings: Vec<u64>,
    pub(crate) states: Vec<(u64, State)>,
    pub(crate) convictions: Vec<Conviction>,
    pub(crate) late_looks: u64,
    pub(crate) pongs_sent: u64,
    out: VecDeque<(Frame, u64, u64)>,
    ping_slot: Option<u64>,
    pong_slot: Option<u64>,
    answers: Vec<(u64, usize)>,
    last_run: u64,
    next_drip: u64,
    turned_at: Option<u64>,
    trial: Trial,
}

/// What this world has seen of the trial that is on, by its own account.
#[derive(Clone, Copy, Default)]
struct Trial {
    since: Option<Duration>,
    looks: u32,
    last_look: u64,
    longest_gap: u64,
    mixed: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Conviction {
    pub(crate) at: u64,
    pub(crate) reason: DeadReason,
    /// Bytes had arrived and were not read.
    pub(crate) unread: bool,
    /// Of the trial: time since the flush, looks that were due, the longest time between two of
    /// them.
    pub(crate) after: u64,
    pub(crate) looks: u32,
    pub(crate) longest_gap: u64,
    /// A write was blocked meanwhile, and its looks cannot be told from the trial's.
    pub(crate) mixed: bool,
}

impl End {
    pub(crate) fn new(keepalive: Keepalive, role: Role) -> Self {
        let mut machine = Machine::new(&keepalive, role, 1);
        machine.handle_connected(Duration::ZERO);
        Self {
            machine,
            keepalive,
            runs: Pattern::Always,
            reads: Pattern::Always,
            knows_ping: true,
            handlers_stalled: false,
            dies_at: None,
            drip: None,
            reads_are_stale: false,
            jobs: VecDeque::new(),
            calls: Vec::new(),
            open: Vec::new(),
            pings: Vec::new(),
            states: Vec::new(),
            convictions: Vec::new(),
            late_looks: 0,
            pongs_sent: 0,
            out: VecDeque::new(),
            ping_slot: None,
            pong_slot: None,
            answers: Vec::new(),
            last_run: 0,
            next_drip: 0,
            turned_at: None,
            trial: Trial::default(),
        }
    }

    pub(crate) fn died_at(&self) -> Option<u64> {
        self.states
            .iter()
            .find(|(_, state)| matches!(state, State::Dead(_)))
            .map(|&(at, _)| at)
    }

    pub(crate) fn verdicts(&self) -> impl Iterator<Item = (&Call, Verdict)> {
        self.calls.iter().filter_map(|call| match call.outcome {
            Some((_, Outcome::Verdict(verdict))) => Some((call, verdict)),
            _ => None,
        })
    }

    pub(crate) fn send_bulk(&mut self, bytes: u64) {
        self.out.push_back((Frame::Bulk, bytes, bytes));
    }

    fn is_over(&self) -> bool {
        matches!(self.machine.state(), State::Dead(_))
    }

    fn open(&self) -> impl Iterator<Item = &Call> {
        self.open.iter().map(|&index| &self.calls[index])
    }

    fn wants_to_write(&self) -> bool {
        !self.out.is_empty() || self.ping_slot.is_some() || self.pong_slot.is_some()
    }

    /// When this end has something to do next, if it has.
    pub(crate) fn wake(&self, incoming: &Link, outgoing: &Link, now: u64) -> Option<u64> {
        if self.is_over() {
            return None;
        }
        let readable = incoming
            .chunks
            .front()
            .map(|&(arrival, ..)| self.reads.next(arrival.max(now)));
        let writable = (self.wants_to_write() && outgoing.held < outgoing.capacity).then_some(now);
        let timer = self.machine.poll_timeout().map(micros);
        let calls = self
            .open()
            .map(|call| micros(call.deadline.next_run(at(self.last_run))))
            .min();
        let answer = self.answers.iter().map(|&(due, _)| due).min();
        let job = self.jobs.front().map(|job| job.at);
        let drip = self.drip.map(|_| self.next_drip);
        let first = self.turned_at.is_none().then_some(0);
        let soonest = [readable, writable, timer, calls, answer, job, drip, first]
            .into_iter()
            .flatten()
            .min()?;
        let earliest = self.turned_at.map_or(0, |turned| turned + 1);
        let wake = self.runs.next(soonest.max(earliest).max(now));
        (self.dies_at.is_none_or(|dies| wake < dies)).then_some(wake)
    }

    pub(crate) fn turn(&mut self, incoming: &mut Link, outgoing: &mut Link, now: u64) {
        let paused = self.turned_at.is_some() && now - self.last_run > 20 * MS;
        self.turned_at = Some(now);
        let time = at(now);
        let lead = self
            .open()
            .filter(|call| call.deadline.ask_at() <= time)
            .map(|call| call.deadline.lead())
            .min();
        self.machine.handle_run(time, lead);
        for &index in &self.open {
            let call = &mut self.calls[index];
            call.deadline.handle_run(at(self.last_run), time);
        }
        self.last_run = now;

        let blind = self.reads_are_stale && paused;
        if !blind {
            self.read(incoming, now);
        }
        self.begin(now);
        self.write(outgoing, now);
        let at_deadline = self.open().any(|call| call.deadline.deadline() <= time);
        if self.machine.look_due(time) || at_deadline || lead.is_some() {
            self.look(incoming, outgoing, now);
        }
        if self.machine.poll_timeout().is_some_and(|due| due <= time) {
            self.machine.handle_timeout(time);
            assert!(
                self.machine.poll_timeout().is_none_or(|due| due > time),
                "no spin"
            );
        }
        self.wish(now);
        self.poll_ping(now);
        self.write(outgoing, now);
        self.expire(now);
        self.note_events(incoming, now);
    }

    fn read(&mut self, incoming: &mut Link, now: u64) {
        if !self.reads.holds(now) {
            return;
        }
        let time = at(now);
        let mut any = false;
        while incoming
            .chunks
            .front()
            .is_some_and(|&(arrival, ..)| arrival <= now)
        {
            let Some((_, bytes, frame)) = incoming.chunks.pop_front() else {
                return;
            };
            incoming.held -= bytes;
            if !std::mem::replace(&mut any, true) {
                self.machine.handle_bytes(time);
            }
            match frame {
                Some(Frame::Ping(number)) if self.knows_ping => {
                    self.machine.handle_ping(time);
                    self.pong_slot = Some(number);
                }
                Some(Frame::Pong(number)) => {
                    let stalled = Flags::from(u8::from(number & STALLED != 0));
                    self.machine
                        .handle_pong(time, Some(number & !STALLED), stalled);
                }
                Some(Frame::Request { call, answer_after }) => {
                    self.answers
                        .extend(answer_after.map(|after| (now + after, call)));
                }
                Some(Frame::Response { call }) => self.complete(call, now),
                Some(Frame::Ping(_) | Frame::Bulk) | None => {}
            }
        }
    }

    fn complete(&mut self, call: usize, now: u64) {
        self.machine.handle_response(at(now));
        self.open.retain(|&open| open != call);
        let call = &mut self.calls[call];
        if call.outcome.is_none() {
            call.outcome = Some((now, Outcome::Answered));
            self.machine.handle_call_ended(at(now));
        } else {
            call.late_answer = Some(now);
            self.machine.handle_late_call_ended(at(now));
        }
    }

    /// Calls that start, answers that are ready, and data sent for its own sake.
    fn begin(&mut self, now: u64) {
        while let Some(&job) = self.jobs.front().filter(|job| job.at <= now) {
            self.jobs.pop_front();
            let index = self.calls.len();
            self.open.push(index);
            self.calls.push(Call {
                started: now,
                deadline: CallDeadline::new(at(now), at(job.timeout), &self.keepalive),
                outcome: None,
                late_answer: None,
                wished: false,
                facts: WriteFacts {
                    written: false,
                    offered_since_asked: false,
                    taken_since_asked: false,
                },
            });
            self.machine.handle_call_started(at(now));
            self.poll_ping(now);
            let request = Frame::Request {
                call: index,
                answer_after: job.answer_after,
            };
            self.out.push_back((request, job.size, job.size));
        }
        self.answers.sort_unstable();
        while let Some(&(due, call)) = self.answers.first() {
            if due > now {
                break;
            }
            self.answers.remove(0);
            self.out.push_back((Frame::Response { call }, SMALL, SMALL));
        }
        if let Some(every) = self.drip.filter(|_| self.next_drip <= now) {
            self.next_drip = now + every;
            self.out.push_back((Frame::Bulk, SMALL, SMALL));
        }
    }

    fn write(&mut self, outgoing: &mut Link, now: u64) {
        let time = at(now);
        loop {
            // Between frames the control slots go first; a frame that has begun is finished.
            if self.out.front().is_none_or(|&(_, left, size)| left == size) {
                if let Some(number) = self.ping_slot.take() {
                    self.out.push_front((Frame::Ping(number), SMALL, SMALL));
                }
                if let Some(number) = self.pong_slot.take() {
                    self.pongs_sent += 1;
                    let number = if self.handlers_stalled {
                        number | STALLED
                    } else {
                        number
                    };
                    self.out.push_front((Frame::Pong(number), SMALL, SMALL));
                }
            }
            let Some((frame, left, _)) = self.out.front_mut() else {
                return;
            };
            for &index in &self.open {
                let call = &mut self.calls[index];
                let counts = call.deadline.ask_at() <= time && time <= call.deadline.deadline();
                call.facts.offered_since_asked |= counts;
            }
            let taken = (*left).min(outgoing.capacity - outgoing.held);
            if taken == 0 {
                self.machine.handle_write_blocked(time);
                return;
            }
            *left -= taken;
            outgoing.held += taken;
            for &index in &self.open {
                let call = &mut self.calls[index];
                call.facts.taken_since_asked |= call.deadline.ask_at() <= time;
            }
            let (frame, whole) = (*frame, *left == 0);
            outgoing
                .chunks
                .push_back((now + outgoing.latency, taken, whole.then_some(frame)));
            self.machine.handle_write_progress(time, !whole);
            if !whole {
                continue;
            }
            self.out.pop_front();
            match frame {
                Frame::Ping(_) => self.machine.handle_ping_flushed(time),
                Frame::Request { call, .. } => self.calls[call].facts.written = true,
                Frame::Pong(_) | Frame::Response { .. } | Frame::Bulk => {}
            }
        }
    }

    fn look(&mut self, incoming: &mut Link, outgoing: &Link, now: u64) {
        let unread = incoming
            .chunks
            .front()
            .is_some_and(|&(arrival, ..)| arrival <= now);
        let write_refused = self.wants_to_write() && outgoing.held >= outgoing.capacity;
        self.note_look(now);
        self.machine.handle_look(
            at(now),
            Look {
                drained: !unread,
                write_refused,
                unread: Unread::NotAsked,
            },
        );
        self.note_events(incoming, now);
        self.read(incoming, now);
    }

    fn note_look(&mut self, now: u64) {
        let since = self.machine.view().awaiting_pong_since;
        if since != self.trial.since {
            self.trial = Trial {
                since,
                looks: 0,
                last_look: since.map_or(0, micros),
                longest_gap: 0,
                mixed: false,
            };
        }
        self.trial.mixed |= self.machine.view().write_blocked_since.is_some();
        if self.machine.look_due(at(now)) && since.is_some() {
            self.trial.looks += 1;
            self.trial.longest_gap = self.trial.longest_gap.max(now - self.trial.last_look);
            self.trial.last_look = now;
        }
    }

    fn wish(&mut self, now: u64) {
        let time = at(now);
        for &index in &self.open {
            let call = &mut self.calls[index];
            if !call.wished && call.deadline.ask_at() <= time {
                call.wished = true;
                self.machine.handle_ping_wish(time, call.deadline.ask_at());
            }
        }
    }

    fn poll_ping(&mut self, now: u64) {
        if let Some(number) = self.machine.poll_ping(at(now)) {
            assert_eq!(self.ping_slot.replace(number), None, "one PING at a time");
            self.pings.push(now);
        }
    }

    fn expire(&mut self, now: u64) {
        let time = at(now);
        if self.is_over() {
            return;
        }
        let (calls, machine) = (&mut self.calls, &mut self.machine);
        self.open.retain(|&index| {
            let call = &mut calls[index];
            if call.deadline.deadline() > time {
                return true;
            }
            let verdict = machine.verdict(time, &call.deadline, call.facts);
            machine.handle_verdict(time, verdict);
            machine.handle_call_late(time);
            call.outcome = Some((now, Outcome::Verdict(verdict)));
            false
        });
    }

    fn note_events(&mut self, incoming: &Link, now: u64) {
        while let Some(event) = self.machine.poll_event() {
            match event {
                Event::StateChanged { to, .. } => self.states.push((now, to)),
                Event::LocalStall { .. } => self.late_looks += 1,
                Event::Convicted { reason, .. } => {
                    let unread = incoming
                        .chunks
                        .front()
                        .is_some_and(|&(arrival, ..)| arrival <= now);
                    self.convictions.push(Conviction {
                        at: now,
                        reason,
                        unread,
                        after: now - self.trial.since.map_or(now, micros),
                        looks: self.trial.looks,
                        longest_gap: self.trial.longest_gap,
                        mixed: self.trial.mixed,
                    });
                }
                _ => {}
            }
        }
        if self.is_over() {
            for index in self.open.drain(..) {
                self.calls[index].outcome = Some((now, Outcome::ConnectionEnded));
            }
        }
    }
}
