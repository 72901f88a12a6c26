//! What follows from what happened.

use std::time::Duration;

use super::{BREATH, Flags, Life, Machine, Ping, RETRY};
use crate::keepalive::attended::{Attended, Waited};
use crate::keepalive::receipts::Heard;
use crate::keepalive::{DeadReason, Look, OnSilence, State, Support, Unread};

impl Machine {
    pub(super) fn advance(&mut self, now: Duration) -> Duration {
        self.now = self.now.max(now);
        self.now
    }

    /// Derives from the facts what must run: called at the end of each input that has changed some,
    /// and the only place that starts or stops a clock, and arms the timer.
    ///
    /// Time alone changes none: what is due stays armed until [`handle_due`](Self::handle_due).
    pub(super) fn settle(&mut self, now: Duration) {
        if self.is_over() {
            return;
        }
        let watched = self.is_watched();
        if !watched {
            // Nobody asked for a judgement, so none is kept. It is no recovery: the peer has not
            // spoken.
            self.set_life(Life::Alive);
            if let (Ping::Out { .. }, false) = (&self.ping, self.is_waited_for()) {
                self.ping = Ping::Rest;
            }
        }
        let judging = watched && self.life != Life::Overdue;
        let tried = judging && self.can_ask() && !self.parked;
        if let Ping::Out { trial, .. } = &mut self.ping {
            start_or_stop(trial, tried, now, self.settings.timeout);
        }
        let stalled = self.blocked_since.is_some()
            || (self.is_watched_by_receipts() && self.receipts.may_be_unread());
        start_or_stop(
            &mut self.write_stall,
            judging && stalled,
            now,
            self.settings.write_stall.unwrap_or(self.settings.timeout),
        );
        let flags = Flags {
            doubted: self.doubted,
            pong: self.pong_flags,
            overdue: self.life == Life::Overdue,
            write_blocked: self.blocked_since.is_some(),
            local_stall: self.local_stall,
        };
        self.events.flags_changed |= flags != self.told;
        self.told = flags;
        let due = self.next_due();
        // Earlier than needed is right: when it fires, the next one is found. Later than needed is
        // not.
        if self
            .armed
            .is_none_or(|armed| armed <= now || due.is_none_or(|due| due < armed))
        {
            self.armed = due;
        }
    }

    /// Does what is due, once the socket was read. If a driver left a look undone, it is asked again
    /// a little later.
    pub(super) fn handle_due(&mut self, now: Duration) {
        self.ask_if_due(now);
        self.settle(now);
        if self.armed.is_some_and(|armed| armed <= now) {
            self.armed = now.checked_add(BREATH);
        }
    }

    pub(super) fn ask_if_due(&mut self, now: Duration) {
        if !self.is_over() && self.asking_due().is_some_and(|due| due <= now) {
            self.ask(now);
        }
    }

    /// The earliest of all.
    fn next_due(&self) -> Option<Duration> {
        let trial = self.trial().and_then(Attended::due);
        let write_stall = self.write_stall.as_ref().and_then(Attended::due);
        let clocks = earlier(trial, write_stall);
        earlier(earlier(self.asking_due(), self.unread_due()), clocks)
    }

    /// When the peer is to be asked, for whichever reason.
    fn asking_due(&self) -> Option<Duration> {
        earlier(self.ping_due(), self.retry_due())
    }

    /// RFC KA-27: not where support is `No`, unless it can be seen whether it is read and nothing else
    /// lies unread. RFC KA-29: nor a trial where it is `Unknown`.
    pub(super) fn ping_due(&self) -> Option<Duration> {
        let by_receipts = self.is_watched_by_receipts() && !self.receipts.may_be_unread();
        let to_read = self.may_send && by_receipts;
        let asks = self.can_ask() || to_read;
        let wanted = self.is_watched() && asks && matches!(self.ping, Ping::Rest);
        let life = self.last_life().unwrap_or(self.connected);
        let since = life.max(self.last_ping.unwrap_or_default());
        if wanted {
            since.checked_add(self.interval.current())
        } else {
            None
        }
    }

    /// When the kernel is to be asked on a connection that is watched by receipts, whatever is heard: a
    /// peer that speaks may not read.
    pub(super) fn unread_due(&self) -> Option<Duration> {
        let since = self.receipts.asked_at().unwrap_or(self.connected);
        if self.is_watched_by_receipts() {
            since.checked_add(self.interval.current())
        } else {
            None
        }
    }

    /// Whether a look is due at which the kernel is asked, and for nothing else.
    pub(super) fn receipt_due(&self, now: Duration) -> bool {
        let near = self.lead.is_some_and(|lead| {
            let asked = self.receipts.asked_at();
            let due = asked.is_none_or(|at| is_past(at.checked_add(lead / 4), now));
            due && !self.can_ask() && self.asks_unread()
        });
        if near || !self.settings.watch_by_receipts {
            return near;
        }
        let before_ping = || self.support != Support::Yes && is_past(self.ping_due(), now);
        self.is_watched_by_receipts() && (is_past(self.unread_due(), now) || before_ping())
    }

    /// RFC KA-26. Also one distance after a PING that was sent for another reason, or that was
    /// blocked for longer than that.
    pub(super) fn retry_due(&self) -> Option<Duration> {
        let interested = self.is_watched() || self.is_waited_for();
        let unwritten = matches!(self.ping, Ping::Unwritten { .. });
        if self.support != Support::Unknown || !interested || unwritten {
            return None;
        }
        let distance = self.settings.every.unwrap_or(RETRY);
        Some(self.retry_at?.max(self.last_ping?.checked_add(distance)?))
    }

    /// The first exchange: its PING goes in front of the first request, or out at the beginning.
    pub(super) fn introduce(&mut self, now: Duration) {
        if !self.introduced && !self.is_over() {
            self.ask(now);
        }
    }

    pub(super) fn ask(&mut self, now: Duration) {
        self.number = self.number.saturating_add(1);
        self.ping = Ping::Unwritten { handed: false };
        self.introduced = true;
        self.round_trip.spoil();
        self.last_ping = Some(now);
        self.interval.draw();
        if self.retry_at.is_none_or(|at| at <= now) {
            self.retry_at = now.checked_add(self.retry_gap);
            self.retry_gap = self.retry_gap.saturating_mul(2);
        }
    }

    pub(super) fn newest_written(&self) -> u64 {
        match self.ping {
            Ping::Unwritten { .. } => self.number.saturating_sub(1),
            Ping::Rest | Ping::Out { .. } => self.number,
        }
    }

    /// A sign of life was given `at`, now or earlier.
    pub(super) fn note_evidence(&mut self, now: Duration, at: Duration) {
        if self.is_over() {
            return;
        }
        self.note_local_stall(now);
        self.heard = Some(at);
        if self.bytes_restart_stall() && self.blocked_since.is_none_or(|since| since <= at) {
            self.write_stall = None;
        }
        self.note_life(at);
    }

    /// The kernel was asked what is unread, before it was looked for bytes. Returns whether something is.
    pub(super) fn note_unread(&mut self, seen: Duration, look: Look) -> bool {
        let mut receipts = self.receipts.clone();
        match receipts.take(seen, self.now, look.unread) {
            Heard::Nothing => {}
            // A write that is refused has its own time.
            Heard::Anew if self.blocked_since.is_none() => self.write_stall = None,
            Heard::Anew => {}
            // What was found then may be the end: nobody has read what a peer leaves that closes.
            Heard::Read if !look.drained => return false,
            Heard::Read => {
                self.write_stall = None;
                // Of one that answers PING only what it says is life: somebody in between may read
                // for it.
                if self.support != Support::Yes {
                    self.note_life(receipts.read().unwrap_or(seen));
                }
            }
        }
        self.receipts = receipts;
        matches!(look.unread, Unread::Known { .. }) && self.receipts.unread_since().is_some()
    }

    fn note_life(&mut self, at: Duration) {
        self.doubted = false;
        // A PING that is not written yet stays: it was asked for a reason that these bytes may not
        // answer.
        if matches!(self.ping, Ping::Out { since, .. } if since <= at) {
            self.ping = Ping::Rest;
        }
        if self.life != Life::Alive {
            count(&mut self.counters.recoveries);
            self.set_life(Life::Alive);
        }
    }

    /// A pause is noted at the first run after it, also when bytes are found then: the peer is
    /// well, but the round trip would measure the pause. Returns whether there was one.
    pub(super) fn note_local_stall(&mut self, now: Duration) -> bool {
        let trial = self.trial_mut().and_then(|trial| trial.note_gap(now));
        let write_stall = self
            .write_stall
            .as_mut()
            .and_then(|stall| stall.note_gap(now));
        let Some(gap) = trial.max(write_stall) else {
            return false;
        };
        self.count_local_stall(now, gap);
        true
    }

    pub(super) fn count_local_stall(&mut self, now: Duration, gap: Duration) {
        count(&mut self.counters.local_stalls);
        self.stalled_until = Some(now);
        self.local_stall = Some(gap);
        self.events.local_stall = Some(gap);
        self.round_trip.spoil();
    }

    pub(super) fn judge(&mut self, now: Duration, reason: DeadReason, waited: Waited) {
        match waited {
            Waited::TooEarly | Waited::Little => {}
            Waited::Half => {
                self.round_trip.spoil();
                self.set_life(Life::Suspect);
            }
            Waited::All => self.convict(now, reason),
        }
    }

    pub(super) fn convict(&mut self, now: Duration, reason: DeadReason) {
        self.events.convicted = Some((reason, self.evidence(now)));
        count(match reason {
            DeadReason::Silent => &mut self.counters.convictions_silent,
            DeadReason::NotReading => &mut self.counters.convictions_not_reading,
        });
        self.round_trip.spoil();
        match self.settings.on_silence {
            OnSilence::Close => {
                self.set_life(Life::Dead(reason));
                self.ping = Ping::Rest;
                self.write_stall = None;
                self.armed = None;
            }
            OnSilence::Report => {
                // The trial ends here, but a verdict may still count what was attended.
                if let Ping::Out {
                    attended,
                    trial: Some(trial),
                    ..
                } = &mut self.ping
                {
                    *attended = trial.attended().max(*attended);
                }
                self.set_life(Life::Overdue);
            }
        }
    }

    pub(super) fn set_life(&mut self, life: Life) {
        let from = self.life.state();
        if from == State::Alive && life.state() == State::Suspect {
            count(&mut self.counters.suspect_entries);
        }
        self.life = life;
        if life.state() != from {
            self.events.state_from = self.events.state_from.or(Some(from));
        }
    }

    /// RFC KA-24: whatever was believed before.
    pub(super) fn learn_support(&mut self) {
        if !self.is_over() {
            self.introduced = true;
            self.set_support(Support::Yes);
        }
    }

    pub(super) fn set_support(&mut self, support: Support) {
        self.events.support_changed |= support != self.support;
        self.support = support;
    }

    /// The last byte, or write that moved again, or the connection's beginning.
    pub(super) fn last_evidence(&self) -> Duration {
        self.heard.unwrap_or(self.connected)
    }

    /// The last sign of life. Of a peer that is not known to answer PING a receipt is one.
    pub(super) fn last_life(&self) -> Option<Duration> {
        match self.support {
            Support::Yes => self.heard,
            Support::Unknown | Support::No => self.heard.max(self.receipts.read()),
        }
    }

    pub(super) fn is_watched_by_receipts(&self) -> bool {
        let asks = self.settings.watch_by_receipts && self.receipts.tell();
        asks && self.is_watched() && !self.is_over()
    }

    pub(super) const fn is_waited_for(&self) -> bool {
        self.in_flight > 0 || self.probes > 0
    }

    /// Whether anything hangs on somebody waiting: the watch, or a PING.
    pub(super) const fn depends_on_waiting(&self) -> bool {
        let watch = self.settings.every.is_some() && !self.settings.while_idle;
        let repeated = self.retry_at.is_some() && matches!(self.support, Support::Unknown);
        watch || repeated || !matches!(self.ping, Ping::Rest)
    }

    /// Nothing is judged or doubted, and no PING is out.
    pub(super) const fn is_untroubled(&self) -> bool {
        let waits = matches!(self.ping, Ping::Out { .. }) || self.write_stall.is_some();
        let alive = matches!(self.life, Life::Alive) && !self.doubted;
        alive && !waits && !self.closed
    }

    /// A peer that speaks is alive, and only does not read. A time that was set for that alone runs
    /// on.
    pub(super) const fn bytes_restart_stall(&self) -> bool {
        self.settings.write_stall.is_none()
    }

    pub(super) const fn is_over(&self) -> bool {
        self.closed || matches!(self.life, Life::Dead(_))
    }

    pub(super) const fn is_convicted(&self) -> bool {
        matches!(self.life, Life::Overdue | Life::Dead(_))
    }

    pub(super) const fn trial(&self) -> Option<&Attended> {
        match &self.ping {
            Ping::Out { trial, .. } => trial.as_ref(),
            Ping::Rest | Ping::Unwritten { .. } => None,
        }
    }

    pub(super) const fn trial_mut(&mut self) -> Option<&mut Attended> {
        match &mut self.ping {
            Ping::Out { trial, .. } => trial.as_mut(),
            Ping::Rest | Ping::Unwritten { .. } => None,
        }
    }
}

fn is_past(due: Option<Duration>, now: Duration) -> bool {
    due.is_some_and(|due| due <= now)
}

fn earlier(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

fn start_or_stop(clock: &mut Option<Attended>, run: bool, now: Duration, limit: Duration) {
    if !run {
        *clock = None;
    } else if clock.is_none() {
        *clock = Some(Attended::new(now, limit));
    }
}

pub(super) fn count(counter: &mut u64) {
    *counter = counter.saturating_add(1);
}
