//! What the driver shall do, and what is known.

use std::time::Duration;

use super::{Life, Machine, Ping};
use crate::keepalive::verdict::FRESH;
use crate::keepalive::{
    CallDeadline, Event, Evidence, Facts, Peer, State, Support, Verdict, View, WriteFacts, judge,
};
use crate::wire::Flags;

/// Outputs.
impl Machine {
    /// The number of the PING to write next, once for each PING. Numbers start at 1 and grow by 1.
    /// One that is due of itself is wanted from [`handle_timeout`](Self::handle_timeout) on.
    pub fn poll_ping(&mut self, now: Duration) -> Option<u64> {
        self.advance(now);
        match &mut self.ping {
            Ping::Unwritten { handed } if !*handed && !self.closed => {
                *handed = true;
                Some(self.number)
            }
            _ => None,
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is wanted next; `None` if nothing is due of
    /// itself.
    ///
    /// Evidence does not move it. It is looked at again when it fires, so that a busy connection
    /// costs one wake-up for each interval and not one timer for each frame.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Duration> {
        self.armed
    }

    /// Whether a look is due: look before [`handle_timeout`](Self::handle_timeout).
    #[must_use]
    pub fn look_due(&self, now: Duration) -> bool {
        let trial_due = self.trial().is_some_and(|trial| trial.is_due(now));
        trial_due
            || self
                .write_stall
                .as_ref()
                .is_some_and(|stall| stall.is_due(now))
            || self.receipt_due(now)
    }

    /// Whether a look is to ask the kernel what the peer's process has not read: before the deadline
    /// of a call to a peer that cannot be asked otherwise, while a write is blocked, and on a
    /// connection that is watched by receipts.
    #[must_use]
    pub fn asks_unread(&self) -> bool {
        let judged = self.blocked_since.is_some() || (self.lead.is_some() && !self.can_ask());
        self.receipts.tell() && (judged || self.is_watched_by_receipts()) && !self.is_over()
    }

    /// Whether the kernel is to be asked before [`handle_ping_wish`](Self::handle_ping_wish): a PING that
    /// is to be read is of no use while something else lies unread.
    #[must_use]
    pub fn wish_needs_look(&self, now: Duration) -> bool {
        let fresh = |at: Option<Duration>| at.is_some_and(|at| now.saturating_sub(at) < FRESH);
        let spared = fresh(self.last_life()) || fresh(self.last_ping);
        self.lead.is_some() && !self.can_ask() && self.asks_unread() && !spared
    }

    /// The next event. Drain after each input; undrained ones of a kind become one.
    pub fn poll_event(&mut self) -> Option<Event> {
        if self.events.is_empty() {
            return None;
        }
        let events = &mut self.events;
        if let Some(gap) = events.local_stall.take() {
            return Some(Event::LocalStall { gap });
        }
        if std::mem::take(&mut events.support_changed) {
            return Some(Event::SupportChanged(self.support));
        }
        if std::mem::take(&mut events.flags_changed) {
            return Some(Event::FlagsChanged);
        }
        let to = self.life.state();
        if let Some(from) = events.state_from.take().filter(|&from| from != to) {
            return Some(Event::StateChanged { from, to });
        }
        let (reason, evidence) = events.convicted.take()?;
        Some(Event::Convicted {
            reason,
            evidence,
            on_silence: self.settings.on_silence,
        })
    }

    /// The verdict on the peer of a call whose deadline has passed at `now` without an answer, on a
    /// connection that is open.
    #[must_use]
    pub fn verdict(&self, now: Duration, call: &CallDeadline, write: WriteFacts) -> Verdict {
        let ask_at = call.ask_at();
        let fresh = |at: Option<Duration>| at.is_some_and(|at| ask_at.saturating_sub(at) <= FRESH);
        let unwritten_ping = matches!(self.ping, Ping::Unwritten { .. });
        // One that is due of itself at this very instant is nothing that the call has waited for.
        let asked_before = self.last_ping.is_some_and(|at| at < now);
        let may_ask = self.support != Support::No || self.receipts.tell();
        let waits_for_ping = unwritten_ping && asked_before && self.may_send && may_ask;
        judge(&Facts {
            peer_deadline_exceeded: false,
            written: write.written && !waits_for_ping,
            offered_since_asked: write.offered_since_asked,
            taken_since_asked: write.taken_since_asked,
            refused_for: self.blocked_since.map(|since| now.saturating_sub(since)),
            read_since_asked: self.receipts.read().is_some_and(|read| read >= ask_at),
            fresh_evidence: fresh(self.last_life()),
            handlers_stalled: self.pong_flags.contains(Flags::HANDLERS_STALLED)
                && fresh(self.pong_at),
            longest_gap: call.longest_gap(),
            lead: call.lead(),
            can_ask: self.can_ask(),
            attended: match &self.ping {
                Ping::Out {
                    attended,
                    trial: Some(trial),
                    ..
                } => Some(trial.attended().max(*attended)),
                Ping::Out {
                    attended,
                    trial: None,
                    ..
                } => Some(*attended),
                Ping::Rest | Ping::Unwritten { .. } => None,
            },
            unread: self.receipts.attended(),
            smoothed_rtt: self.round_trip.smoothed(),
        })
    }
}

/// Getters.
impl Machine {
    /// What is believed of the peer. Keeps its last value after
    /// [`handle_closed`](Self::handle_closed).
    #[must_use]
    pub const fn state(&self) -> State {
        self.life.state()
    }

    /// Whether the peer knows PING.
    #[must_use]
    pub const fn support(&self) -> Support {
        self.support
    }

    /// The summary to decide by.
    #[must_use]
    pub fn peer(&self) -> Peer {
        match self.life {
            _ if self.is_over() => Peer::Gone,
            Life::Alive if !self.doubted => Peer::Alive,
            _ => Peer::Doubtful,
        }
    }

    /// All that is known of the peer.
    #[must_use]
    pub fn view(&self) -> View {
        View {
            state: self.state(),
            support: self.support,
            peer: self.peer(),
            last_evidence: self.last_evidence(),
            rtt: self.round_trip.last(),
            smoothed_rtt: self.round_trip.smoothed(),
            awaiting_pong_since: match self.ping {
                Ping::Out { since, .. } if self.support != Support::No => Some(since),
                _ => None,
            },
            write_blocked_since: self.blocked_since,
            receipts: self.receipts.tell(),
            last_read: self.receipts.read(),
            unread_since: self
                .receipts
                .unread_since()
                .filter(|_| self.heard <= self.receipts.asked_at()),
            pong_flags: self.pong_flags,
            local_stall: self.local_stall,
            overdue: self.life == Life::Overdue,
            counters: self.counters,
        }
    }

    /// What speaks for and against the peer at `now`.
    #[must_use]
    pub fn evidence(&self, now: Duration) -> Evidence {
        self.view().evidence(now)
    }

    /// Whether PINGs are sent on our own initiative at this moment: `every` is set, and the
    /// connection is watched while idle, or a call or a late call is open, or a probe waits.
    #[must_use]
    pub const fn is_watched(&self) -> bool {
        self.settings.every.is_some()
            && (self.settings.while_idle || self.late > 0 || self.is_waited_for())
    }

    /// Whether the reader is parked.
    #[must_use]
    pub const fn parked(&self) -> bool {
        self.parked
    }

    /// The highest number of a PONG received, of those that were written; 0 before the first.
    #[must_use]
    pub const fn answered_number(&self) -> u64 {
        self.answered
    }

    /// Whether the peer is known to answer a PING, and this side may send one.
    #[must_use]
    pub fn can_ask(&self) -> bool {
        self.may_send && self.support == Support::Yes
    }

    /// Whether asking may bring a PONG: this side may send a PING, and the peer is not known to
    /// leave it unanswered.
    #[must_use]
    pub fn may_ask(&self) -> bool {
        self.may_send && self.support != Support::No
    }

    /// Whether asking tells something all the same: the kernel says whether a PING was read.
    #[must_use]
    pub fn may_ask_to_read(&self) -> bool {
        self.may_send && self.receipts.tell()
    }
}
