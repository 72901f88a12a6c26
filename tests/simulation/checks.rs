//! What must hold: at each step, of each end of a call or connection, and when all is over.

use ttrpc_keepalive::{ConnectionError, State, Support};

use super::link::End;
use super::plan::{Answer, Ask, Mode, Watch};
use super::record::{Kind, Outcome};
use super::world::World;

impl World {
    /// By how much a time may be off that is measured in steps.
    pub(crate) fn slack(&self) -> u64 {
        // A timer of tokio's fires up to a millisecond late.
        3 * self.plan.quantum + 3
    }

    pub(crate) fn watch(&self, end: End) -> Watch {
        match end {
            End::Client => self.plan.client,
            End::Server => self.plan.server,
        }
    }

    pub(crate) fn was_stopped(&self, end: End, from: u64, until: u64) -> bool {
        let mut troubles = self.troubles.iter();
        troubles.any(|trouble| {
            trouble.of == Some(end) && trouble.from <= until && trouble.until >= from
        })
    }

    /// Whether anything kept the peer of this end from being heard, or from hearing.
    pub(crate) fn had_trouble(&self, end: End, from: u64, until: u64) -> bool {
        // What was under way is read by the one and answered by the other.
        let from = from.saturating_sub(2 * self.plan.traits.delay + self.slack());
        let mut troubles = self.troubles.iter();
        troubles.any(|trouble| {
            trouble.of != Some(end) && trouble.from <= until && trouble.until >= from
        }) || self.plan.traits.refusals > 0
            || self.nonsense
    }

    /// After each step.
    pub(crate) fn check(&mut self) {
        let mut faults = self.link.lock().wire.take_faults();
        let disorder = self.log.take_faults();
        // Whoever hears nonsense may have been told it instead.
        if !self.nonsense {
            faults.extend(disorder);
        }
        for fault in faults {
            self.fault(fault);
        }
        let log = std::sync::Arc::clone(&self.log);
        log.judge(|call, entry| self.judge(call, entry));
        for end in [End::Client, End::Server] {
            self.check_awake(end);
        }
        self.check_conviction();
        self.check_unread();
        let since = self.now.saturating_sub(self.slack());
        if self.outlasts(since) && !self.is_absent(End::Server) {
            self.fault("a shutdown outlasts its limit");
        }
        let aborted = self.aborted_at.is_some_and(|at| at < since);
        let ran = !self.was_stopped(End::Client, since, self.now) && !self.is_absent(End::Client);
        if aborted && ran && self.client_ended_at.is_none() {
            self.fault("an abort is lost");
        }
    }

    fn has_ended(&self, end: End) -> bool {
        match end {
            End::Client => self.liveness.snapshot().state().is_final(),
            End::Server => self.server_end.is_some(),
        }
    }

    /// Whenever something was to be done, somebody was awake.
    fn check_awake(&mut self, end: End) {
        let since = self.now.saturating_sub(self.slack());
        let parks = end == End::Server && self.plan.limits.owed.is_some();
        if self.has_ended(end)
            || self.is_absent(end)
            || parks
            || self.was_stopped(end, since, self.now)
        {
            return;
        }
        let (unread, owes, free) = {
            let link = self.link.lock();
            let owes = link.wire.owes_since(end);
            (link.unread_since(end), owes, link.free_since(end))
        };
        if unread.is_some_and(|unread| unread < since) {
            self.fault(format_args!("KA-50: the {end:?} leaves bytes unread"));
        }
        let free = free.is_some_and(|free| free < since);
        if free && owes.is_some_and(|owes| owes < since) {
            self.fault(format_args!("KA-19: the {end:?} owes a PONG"));
        }
    }

    /// No peer that is silent for too long is missed (judging J-6).
    fn check_conviction(&mut self) {
        let watch = self.plan.client;
        let Mode::Every(interval) = watch.mode else {
            return;
        };
        let snapshot = self.liveness.snapshot();
        let here = !self.is_absent(End::Client);
        let watched =
            here && watch.while_idle && !watch.reports && snapshot.support() == Support::Yes;
        if !watched || snapshot.state().is_final() {
            return;
        }
        let (taken, read) = self.link.lock().last_moved(End::Client);
        // Where writes may be refused, taken bytes are a sign of life, and the write-stall clock may
        // begin before the PING's.
        let blocks = self.plan.traits.capacity < 200_000 || self.blocks;
        let (silent, patience) = match blocks || self.plan.traits.refusals > 0 {
            true => (taken.max(read), 2 * watch.timeout),
            false => (read, watch.timeout),
        };
        let bound = interval + patience.max(watch.write_stall.unwrap_or(0)) + self.slack();
        let late = self.now > silent + bound;
        if late && !self.was_stopped(End::Client, silent, self.now) {
            self.fault(format_args!(
                "silent since {silent}, not convicted within {bound} ms: {snapshot:?}"
            ));
        }
    }

    /// No peer that leaves something unread for too long is missed, on a connection watched by receipts.
    pub(crate) fn check_unread(&mut self) {
        let watch = self.plan.client;
        let (Mode::Every(interval), true) = (watch.mode, watch.while_idle && !watch.reports) else {
            return;
        };
        let tells = watch.by_receipts && self.plan.traits.receipts && !self.nonsense;
        let snapshot = self.liveness.snapshot();
        if !tells || snapshot.state().is_final() {
            return;
        }
        let (_, Some(unread)) = self.link.lock().last_read_of(End::Client) else {
            return;
        };
        let (taken, read) = self.link.lock().last_moved(End::Client);
        let since = match watch.write_stall {
            Some(_) => unread,
            None => unread.max(read),
        };
        // Behind what is written now and then nobody can say how long something is unread, and what is
        // taken after it was refused is a sign of life.
        let since = since.max(taken);
        // It is asked each interval, and then at each quarter.
        let patience = watch.write_stall.unwrap_or(watch.timeout);
        let bound = interval + patience + patience / 4 + self.slack();
        if self.now > since + bound && !self.was_stopped(End::Client, since, self.now) {
            self.fault(format_args!(
                "unread since {since}, not convicted within {bound} ms: {snapshot:?}"
            ));
        }
    }

    /// Nothing has hindered anything for a while.
    pub(crate) fn check_healed(&mut self) {
        if !self.faults.is_empty() || self.nonsense || self.has_ended(End::Client) {
            return;
        }
        let snapshot = self.liveness.snapshot();
        let mut endless = false;
        let mut late = 0;
        let mut faults = Vec::new();
        self.log.each(|call, entry| {
            let Kind::Call(ask) = entry.kind else {
                return;
            };
            late += usize::from(entry.dropped);
            endless |= ask.answer == Answer::Never || longest(ask) > 2000;
            let outcome = entry.ended.as_ref().map(|(_, outcome)| outcome);
            if let Some(Outcome::Failed(error)) = outcome {
                late += usize::from(error.is_deadline() && error.status().is_none());
            }
            if outcome.is_none() && !entry.dropped && ask.timeout.is_some() {
                faults.push(format!("call {call} has not ended: {entry:?}"));
            }
        });
        let open = self.open_calls();
        if snapshot.calls_in_flight() > open {
            faults.push(format!("{open} calls are open: {snapshot:?}"));
        }
        if snapshot.late_calls_unanswered() > late {
            faults.push(format!("{late} calls were late: {snapshot:?}"));
        }
        if snapshot.support() == Support::No && !self.plan.traits.old {
            faults.push("KA-23: its peer answers PINGs".to_owned());
        }
        if !endless {
            self.log.each(|call, entry| {
                let is_call = matches!(entry.kind, Kind::Call(_));
                if is_call && entry.ended.is_none() && !entry.dropped {
                    faults.push(format!("call {call} hangs: {entry:?}"));
                }
            });
            let late = snapshot.late_calls_unanswered();
            if late > 0 && !self.is_stopped(End::Server) {
                faults.push(format!("{late} late calls without an answer: {snapshot:?}"));
            }
        }
        let left = self.link.lock().wire.left_open();
        if left > open {
            faults.push(format!(
                "KA-43: {left} streams are left open, {open} calls run"
            ));
        }
        faults.into_iter().for_each(|fault| self.fault(fault));
    }

    /// Both connections are over.
    pub(crate) fn check_finished(&mut self, tasks: usize) {
        let mut faults = Vec::new();
        self.log.each(|call, entry| {
            if entry.ended.is_none() && !entry.dropped {
                faults.push(format!("call {call} has not ended at all: {entry:?}"));
            }
        });
        let snapshot = self.liveness.snapshot();
        match snapshot.state() {
            _ if self.is_absent(End::Client) => {}
            State::Dead(_) => self.count("client convicted its peer"),
            State::Closed(end) => {
                self.count(format!("client ended by {}", name(&end)));
                faults.extend(self.judge_end(End::Client, &end).err());
            }
            state => faults.push(format!("the client's connection is {state}")),
        }
        if self.server_end.is_none() && !self.is_absent(End::Server) {
            faults.push("the server's connection goes on".to_owned());
        }
        if snapshot.calls_in_flight() > 0 {
            faults.push(format!("left at the end: {snapshot:?}"));
        }
        if tasks > 0 && !self.is_absent(End::Client) {
            faults.push(format!("{tasks} tasks of the client are left"));
        }
        faults.into_iter().for_each(|fault| self.fault(fault));
    }
}

/// How long a call lasts at most when nothing hinders it.
fn longest(ask: Ask) -> u64 {
    let answer = match ask.answer {
        Answer::After(time) => time,
        _ => 0,
    };
    (ask.messages + 1) * (ask.gap + answer)
}

pub(crate) fn name(end: &ConnectionError) -> String {
    let name = format!("{end:?}");
    name.split(['(', ' ']).next().unwrap_or_default().to_owned()
}
