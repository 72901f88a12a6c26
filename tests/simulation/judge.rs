//! Whether a call or a connection has ended for a reason that fits what has happened.

use ttrpc_keepalive::{
    Code, ConnectionError, DeadReason, Error, Status, Support, Unknown, Verdict,
};

use super::checks::name;
use super::link::{End, Told};
use super::plan::{Answer, Ask, Method, Mode};
use super::record::{Entry, Kind, Outcome};
use super::world::World;

/// Before `p`, and counts for a verdict all the same (judging J-7).
const JUST_BEFORE: u64 = 25;

impl World {
    pub(crate) fn judge(&mut self, call: usize, entry: &Entry) {
        let Some((at, outcome)) = &entry.ended else {
            return;
        };
        let right = match (outcome, entry.kind) {
            (Outcome::Closed(end), _) => {
                self.count(format!("closed {}", name(end)));
                self.judge_end(End::Client, end)
            }
            (Outcome::Probed, _) => {
                self.count("probe answered");
                Ok(())
            }
            (Outcome::Wrong(_), _) if self.nonsense => Ok(()),
            (Outcome::Wrong(what), _) => Err(what.clone()),
            (Outcome::Answered, Kind::Call(ask)) => self.judge_answer(entry, ask),
            (Outcome::Failed(error), Kind::Call(ask)) => {
                let right = self.judge_error(entry, error, ask.timeout, *at);
                right.and_then(|()| self.judge_status(error, ask))
            }
            (Outcome::Failed(error), Kind::Probe(budget)) => {
                self.judge_error(entry, error, Some(budget), *at)
            }
            _ => Err("an end of another kind".to_owned()),
        };
        // A sender that waits between two messages ends later than its stream.
        let timeout = match entry.kind {
            Kind::Call(ask) => ask.timeout.map(|timeout| timeout + ask.gap),
            Kind::Probe(budget) => Some(budget),
            Kind::Closed => None,
        };
        if let Err(what) = right {
            self.fault(format_args!("call {call}, {what}: {entry:?}"));
        }
        let due = timeout.map(|timeout| (entry.started + timeout).max(entry.held_until));
        let late = due.is_some_and(|due| *at > due + self.slack());
        if late && !self.was_stopped(End::Client, due.unwrap_or(0), *at) {
            self.fault(format_args!("call {call} ended late: {entry:?}"));
        }
    }

    fn judge_answer(&mut self, entry: &Entry, ask: Ask) -> Result<(), String> {
        self.count(format!("answered {:?}", ask.method));
        let early = ask.method == Method::Soft && ask.timeout.is_some();
        let asked = ask.method.is_unary() || ask.method == Method::Down || ask.messages > 0;
        if asked && entry.answered == 0 && !early && !self.nonsense {
            return Err("nobody has answered".to_owned());
        }
        match entry.began {
            0 if asked && !self.nonsense => Err("no handler has run".to_owned()),
            0 | 1 => Ok(()),
            _ if self.nonsense => Ok(()),
            _ => Err("its handler has run twice".to_owned()),
        }
    }

    fn judge_error(
        &mut self,
        entry: &Entry,
        error: &Error,
        timeout: Option<u64>,
        at: u64,
    ) -> Result<(), String> {
        if let Error::Connection(end, ..) = error {
            self.count(format!("failed by {}", name(end)));
            return self.judge_end(End::Client, end);
        }
        let (true, Some(verdict)) = (error.is_deadline(), error.verdict()) else {
            return Ok(());
        };
        self.count(format!("verdict {verdict:?}"));
        let Some(timeout) = timeout else {
            return Err("a deadline of a call without one".to_owned());
        };
        let deadline = entry.started + timeout;
        // Who cannot ask says so at once.
        let is_probe = matches!(entry.kind, Kind::Probe(_));
        let cannot = is_probe && verdict == Verdict::Unknown(Unknown::NoSupport);
        if at < deadline && !self.nonsense && !cannot {
            return Err(format!("a deadline error {} ms early", deadline - at));
        }
        let evidence = error.evidence();
        let counted = evidence.is_some_and(|evidence| evidence.local_stall.is_some());
        if verdict == Verdict::LocalStall && !counted {
            return Err("a pause of this side that nobody counted".to_owned());
        }
        match error.status() {
            None if !self.nonsense => self.judge_verdict(entry, verdict, timeout),
            _ => Ok(()),
        }
    }

    fn judge_verdict(&self, entry: &Entry, verdict: Verdict, timeout: u64) -> Result<(), String> {
        let lead = (timeout / 4).min(250);
        let deadline = entry.started + timeout;
        let from = deadline.saturating_sub(lead + JUST_BEFORE + self.slack());
        let limits = self.plan.limits;
        let queues = limits.calls.is_some() || limits.outbox.is_some();
        let narrow = self.plan.traits.capacity < 200_000 || limits.owed.is_some();
        let trouble = self.had_trouble(End::Client, from, deadline);
        let stalled = self.was_stopped(End::Client, entry.started, self.now);
        let (taken, read) = self.link.lock().last_moved(End::Client);
        let (seen_to_read, _) = self.link.lock().last_read_of(End::Client);
        let traits = &self.plan.traits;
        // By what is taken the peer lives only where it was refused before.
        let refused = self.link.lock().was_refused(End::Client);
        let moved = if refused { taken.max(read) } else { read };
        let alive = if traits.receipts {
            moved.max(seen_to_read)
        } else {
            moved
        };
        // A probe asks for a PONG and for nothing else.
        let is_call = matches!(entry.kind, Kind::Call(_));
        let can_ask = !traits.old || (traits.receipts && is_call);
        // A timer may be a step and a millisecond late, and two runs be so far apart.
        let coarse = lead / 4 < 2 * self.slack();
        let right = match verdict {
            Verdict::Slow => alive >= from,
            Verdict::HandlersStalled => self.was_stopped(End::Server, 0, self.now),
            Verdict::Unresponsive => trouble,
            Verdict::NotReading => trouble || narrow,
            Verdict::NotSent => trouble || narrow || queues || stalled,
            Verdict::LocalStall => stalled || coarse || entry.held_until > 0,
            Verdict::Unknown(Unknown::NoSupport) => {
                self.plan.client.mode == Mode::Off
                    || !can_ask
                    || trouble
                    || narrow
                    || stalled
                    || self.liveness.snapshot().support() == Support::Unknown
            }
            _ => true,
        };
        right
            .then_some(())
            .ok_or_else(|| format!("the verdict {verdict:?} without a cause"))
    }

    fn judge_status(&mut self, error: &Error, ask: Ask) -> Result<(), String> {
        let limits = self.plan.limits;
        let refuses = [limits.handlers, limits.waiting, limits.server_stream];
        let right = match error {
            Error::Status(status) => {
                self.count(format!("status {:?}", status.code()));
                match status.code() {
                    Code::INTERNAL => ask.answer == Answer::Panic,
                    Code::ABORTED => ask.answer == Answer::Refuse,
                    Code::RESOURCE_EXHAUSTED => refuses.iter().any(Option::is_some),
                    Code::UNAVAILABLE => self.closes[1],
                    _ => false,
                }
            }
            Error::Deadline(_) => error.status().is_none_or(is_deadline),
            Error::Connection(..) => true,
            Error::StreamOverflow { .. } => limits.client_stream.is_some(),
            _ => false,
        };
        let right = right || self.nonsense;
        right
            .then_some(())
            .ok_or_else(|| format!("an error without a cause: {error}"))
    }

    pub(crate) fn judge_server_end(&mut self) {
        let Some(end) = self.server_end.clone() else {
            return;
        };
        self.count(format!("served until {}", name(&end)));
        if let Err(what) = self.judge_end(End::Server, &end) {
            self.fault(format_args!("the server's connection: {what}"));
        }
    }

    pub(crate) fn judge_end(&self, end: End, error: &ConnectionError) -> Result<(), String> {
        let (told, left_unread) = {
            let link = self.link.lock();
            (link.told(end).to_vec(), link.left_unread(end))
        };
        let right = match error {
            ConnectionError::LocalClose => self.closes[end.index()],
            ConnectionError::PeerClosed => told.contains(&Told::Closed { mid_frame: false }),
            ConnectionError::Torn => told.contains(&Told::Closed { mid_frame: true }),
            ConnectionError::Announced(_) => self.closes[end.other().index()] && !told.is_empty(),
            ConnectionError::Reset(_) => told.contains(&Told::Reset),
            // What has come is delivered before the end.
            ConnectionError::BrokenPipe(_) => told.contains(&Told::BrokenPipe) && !left_unread,
            ConnectionError::Dead { reason, .. } => return self.judge_conviction(end, *reason),
            ConnectionError::Protocol(_) => self.nonsense,
            _ => false,
        };
        let right = right || self.nonsense && !matches!(error, ConnectionError::Abandoned);
        right.then_some(()).ok_or_else(|| {
            format!("{end:?} ended by {error}, told {told:?}, bytes unread: {left_unread}")
        })
    }

    /// No conviction is a false one.
    fn judge_conviction(&self, end: End, reason: DeadReason) -> Result<(), String> {
        let watch = self.watch(end);
        // Calls learn of it when they are polled again.
        let now = match end {
            End::Client => self.client_ended_at.unwrap_or(self.now),
            End::Server => self.now,
        };
        let (taken, read) = self.link.lock().last_moved(end);
        let explicit = watch
            .write_stall
            .filter(|_| reason == DeadReason::NotReading);
        let allowed = explicit.unwrap_or(watch.timeout);
        let slack = self.slack();
        let moved = match (reason, explicit) {
            (DeadReason::NotReading, Some(_)) => taken,
            // Bytes received are life, whatever is not taken.
            (DeadReason::NotReading, None) => taken.max(read),
            _ => read,
        };
        let watched = matches!(watch.mode, Mode::Every(_));
        let may = watched && (!watch.reports || explicit.is_some());
        let (_, waits_since) = self.link.lock().last_read_of(end);
        let unread = waits_since.filter(|_| {
            watch.by_receipts && self.plan.traits.receipts && reason == DeadReason::NotReading
        });
        let unread = unread.map(|since| {
            if explicit.is_some() {
                since
            } else {
                since.max(read)
            }
        });
        let silent = unread.is_some_and(|since| since + allowed <= now + slack)
            || moved + allowed <= now + slack;
        let parks = self.plan.limits.owed.is_some();
        let cause = parks || self.had_trouble(end, now.saturating_sub(allowed), now);
        (may && silent && cause).then_some(()).ok_or_else(|| {
            format!(
                "a false conviction at {now} ({reason}): watched and closing {may}, \
                 silent since {moved}, a cause {cause}"
            )
        })
    }
}

fn is_deadline(status: &Status) -> bool {
    status.code() == Code::DEADLINE_EXCEEDED
}
