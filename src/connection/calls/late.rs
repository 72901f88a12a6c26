//! Calls end by deadlines: verdicts, and records of late calls.

use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;

use super::{Call, Calls, Key, Looked, Probe, StreamEnd, Waiting};
use crate::connection::effects::{Effects, Note};
use crate::connection::outbox::Progress;
use crate::connection::state::{Side, State};
use crate::connection::stream::Table;
use crate::error::{DeadlineError, Error, LateOutcome, LateRecord, RequestProgress, Room};
use crate::keepalive::{Deadlines, Expired, Unknown, Verdict};

impl State<Calls> {
    /// Ends what has run out of time with the verdict on its peer, if that can be told now.
    pub(super) fn expire(
        &mut self,
        now: Duration,
        expired: Expired<Key>,
        looked: Looked,
        effects: &mut Effects,
    ) {
        let progress = match expired.key {
            Key::Stream(id) => match self.open_stream(id) {
                Some(stream) => {
                    let request = stream.own.request;
                    self.outbox.progress(request)
                }
                None => return,
            },
            Key::Ticket(_) => Progress::Unsent,
            Key::Probe(_) => Progress::Written,
        };
        match progress {
            Progress::Out => self.side.undecided.push(expired),
            Progress::Begun | Progress::Written if looked == Looked::No => {
                self.side.deadlines.defer(expired);
            }
            _ => self.judge(now, &expired, progress, looked, effects),
        }
    }

    fn judge(
        &mut self,
        now: Duration,
        expired: &Expired<Key>,
        progress: Progress,
        looked: Looked,
        effects: &mut Effects,
    ) {
        let mut facts = expired.write_facts(progress == Progress::Written);
        let room = match expired.key {
            Key::Ticket(_) => Some(self.missing_room()),
            Key::Stream(_) | Key::Probe(_) => None,
        };
        if let Some(Room::Call { .. } | Room::Turn) = room {
            // There was nothing of it to offer. What it lacked was not the peer's reading.
            facts.taken_since_asked |= !expired.deadline.has_stalled();
        }
        let verdict = match self.machine.verdict(now, &expired.deadline, facts) {
            Verdict::Unresponsive if looked == Looked::Unanswered => {
                Verdict::Unknown(Unknown::NotSeen)
            }
            verdict => verdict,
        };
        if verdict == Verdict::LocalStall {
            let gap = expired.deadline.longest_gap();
            self.machine.handle_local_stall(now, gap);
        }
        self.machine.handle_verdict(now, verdict);
        let mut late = self.late(now, verdict, None);
        late.room = room;
        let stream_id = match expired.key {
            Key::Stream(id) => {
                late.timeout = self.streams.get(&id).and_then(|stream| stream.own.timeout);
                Some(id)
            }
            Key::Ticket(ticket) => {
                late.timeout = self
                    .side
                    .waiting
                    .get(&ticket)
                    .and_then(|waiting| waiting.call.timeout);
                None
            }
            Key::Probe(ticket) => {
                if let Some(probe) = self.close_probe(now, ticket) {
                    late.timeout = Some(probe.budget);
                    self.end_probe(ticket, probe, Err(Error::Deadline(Box::new(late))), effects);
                }
                return;
            }
        };
        effects.log(Note::Late {
            stream_id,
            timeout: late.timeout,
            verdict,
            evidence: late.evidence,
        });
        match expired.key {
            Key::Stream(id) => self.end_late_call(now, id, progress, late, effects),
            Key::Ticket(ticket) | Key::Probe(ticket) => {
                if let Some(waiting) = self.side.waiting.remove(&ticket) {
                    let error = Error::Deadline(Box::new(late));
                    self.side.results.insert(ticket, Err(error));
                    self.machine.handle_call_ended(now);
                    effects.wake(waiting.waker);
                    // It does not keep its place.
                    self.call_ended(effects);
                }
            }
        }
    }

    /// What a call lacks that waits for room.
    fn missing_room(&self) -> Room {
        let limits = &self.side.limits;
        if self.side.open >= limits.calls {
            Room::Call {
                limit: limits.calls,
            }
        } else if self.outbox.bytes() >= limits.outbox_bytes {
            Room::Outbox {
                limit: limits.outbox_bytes,
            }
        } else {
            Room::Turn
        }
    }

    fn end_late_call(
        &mut self,
        now: Duration,
        id: u32,
        progress: Progress,
        mut late: DeadlineError,
        effects: &mut Effects,
    ) {
        let Some(stream) = self.close_call(id) else {
            return;
        };
        let request = stream.own.request;
        // Of one that was not sent no answer will come.
        let record = (progress != Progress::Unsent).then(|| LateRecord::new(stream.own.started));
        late.late_answer = record.as_ref().map(LateRecord::answer);
        let is_late = record.is_some();
        late.request = match progress {
            Progress::Unsent => RequestProgress::NotSent,
            _ if stream.own.answered => RequestProgress::Answered,
            // The connection goes on, so what has begun is finished.
            Progress::Out | Progress::Begun | Progress::Written => RequestProgress::Sent,
        };
        stream.own.late = record;
        effects.wake(
            stream
                .inbox
                .fail(StreamEnd::Failed(Box::new(Error::Deadline(Box::new(late))))),
        );
        if is_late {
            self.machine.handle_call_late(now);
            self.side.late.insert(id);
            if self.side.late.len() > self.side.limits.late_records {
                self.forget_oldest_late(now, effects);
            }
        } else {
            self.machine.handle_call_ended(now);
        }
        self.give_up_call(id, request, effects);
        self.forget(id, effects);
    }

    /// A peer that never answers must not make the table grow.
    fn forget_oldest_late(&mut self, now: Duration, effects: &mut Effects) {
        let Some(id) = self.side.late.first().copied() else {
            return;
        };
        if let Some(record) = self.take_late(id) {
            self.machine.handle_late_call_ended(now);
            effects.late(record, LateOutcome::Forgotten);
        }
        self.forget(id, effects);
    }

    /// The error of a call that has run out of time, with all that is known about the peer.
    pub(super) fn late(
        &self,
        now: Duration,
        verdict: Verdict,
        timeout: Option<Duration>,
    ) -> DeadlineError {
        DeadlineError {
            timeout,
            verdict,
            evidence: self.machine.evidence(now),
            peer: self.machine.peer(),
            request: RequestProgress::NotSent,
            room: None,
            status: None,
            late_answer: None,
        }
    }

    /// The driver has not come in time, and a caller's own clock ends its call (law 9): the caller is
    /// the driver's deputy for what has run out of time. That nobody looked at the socket is part of the
    /// verdict.
    pub(in crate::connection) fn run_for_driver(&mut self, now: Duration, effects: &mut Effects) {
        Calls::handle_run(self, now);
        Calls::end_unsent(self, now, effects);
        // Whoever writes may not come back in time either.
        for expired in mem::take(&mut self.side.undecided) {
            self.judge(now, &expired, Progress::Out, Looked::No, effects);
        }
        Calls::end_late(self, now, true, effects);
    }
}

/// Which calls with a deadline are open.
pub(super) struct OpenKeys<'a> {
    oldest: u32,
    streams: &'a Table<Call>,
    waiting: &'a BTreeMap<u64, Waiting>,
    probes: &'a BTreeMap<u64, Probe>,
}

impl OpenKeys<'_> {
    pub(super) fn contains(&self, key: Key) -> bool {
        match key {
            Key::Stream(id) if id < self.oldest => false,
            Key::Stream(id) => self.streams.get(&id).is_some_and(|stream| stream.open),
            Key::Ticket(ticket) => self.waiting.contains_key(&ticket),
            Key::Probe(ticket) => self.probes.contains_key(&ticket),
        }
    }
}

impl State<Calls> {
    pub(super) fn deadlines(&mut self) -> (&mut Deadlines<Key>, OpenKeys<'_>) {
        let Calls {
            oldest,
            waiting,
            probes,
            deadlines,
            ..
        } = &mut self.side;
        let open = OpenKeys {
            oldest: *oldest,
            streams: &self.streams,
            waiting,
            probes,
        };
        (deadlines, open)
    }
}
