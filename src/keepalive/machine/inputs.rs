//! What happened, as the driver tells it.

use std::time::Duration;

use super::rules::count;
use super::{Machine, Ping};
use crate::keepalive::events::Events;
use crate::keepalive::verdict::{FRESH, is_stall};
use crate::keepalive::{DeadReason, Look, Support, Verdict};
use crate::wire::Flags;

impl Machine {
    /// The connection begins. A client that is watched while idle asks at once whether the peer
    /// knows PING.
    pub fn handle_connected(&mut self, now: Duration) {
        let now = self.advance(now);
        self.connected = now;
        self.last_run = now;
        if self.settings.every.is_some() && self.settings.while_idle {
            self.introduce(now);
        }
        self.settle(now);
    }

    /// The transport can tell what the peer has not read, or cannot, as is believed before this. To be
    /// said before anything else, unless receipts are
    /// [turned off](crate::keepalive::Keepalive::read_receipts).
    pub fn handle_receipts(&mut self, tells: bool) {
        self.receipts.set(tells && self.settings.read_receipts);
        self.settle(self.now);
    }

    /// Bytes were received, of whatever frame, complete or not. The only evidence of life besides
    /// write progress: a frame's own input adds what the frame says, and comes after this one.
    pub fn handle_bytes(&mut self, now: Duration) {
        let now = self.advance(now);
        if self.is_untroubled() {
            // It only moves later what is due, and what is armed earlier than needed is right.
            self.heard = Some(now);
        } else {
            self.note_evidence(now, now);
            self.settle(now);
        }
    }

    /// The process at the other end gave a sign of life at `at`, on another connection of a stream that
    /// several share (RFC KA-21). What is older than the PING that is out, or than the write that is
    /// blocked, is no answer to it.
    pub fn handle_heard(&mut self, now: Duration, at: Duration) {
        let now = self.advance(now);
        let at = at.min(now);
        if at <= self.last_evidence() || self.is_over() {
            return;
        }
        let asked = match self.ping {
            Ping::Out { since, .. } => Some(since),
            Ping::Rest | Ping::Unwritten { .. } => None,
        };
        // The earlier of what is held against the peer: both began at one of the two.
        let held = [asked, self.blocked_since].into_iter().flatten().min();
        if held.is_none_or(|held| held <= at) {
            self.note_evidence(now, at);
        } else {
            self.heard = Some(at);
        }
        self.settle(now);
    }

    /// A PING was received: the peer knows it, and expects that it is asked as well.
    pub fn handle_ping(&mut self, now: Duration) {
        let now = self.advance(now);
        self.may_send = !self.settings.off;
        self.learn_support();
        self.settle(now);
    }

    /// A PONG was received. `number` is its payload, `None` if that was not 8 bytes. It asks for no
    /// answer (RFC KA-17), and one that nobody waits for changes no state (RFC KA-18).
    ///
    /// Only the PONG of the newest PING gives a round trip, and only if this side looked all the
    /// time and nothing has judged the PING: else the number would measure our pause, or the
    /// failure that was just reported. Returns it if there is one.
    pub fn handle_pong(
        &mut self,
        now: Duration,
        number: Option<u64>,
        flags: Flags,
    ) -> Option<Duration> {
        let now = self.advance(now);
        if self.is_over() {
            return None;
        }
        count(&mut self.counters.pongs_received);
        self.learn_support();
        self.pong_at = Some(now);
        self.pong_flags = flags.of_pong();
        // A number that was never written is a guess and answers nothing.
        let number = number.filter(|&number| number <= self.newest_written());
        self.answered = self.answered.max(number.unwrap_or_default());
        let round_trip = if number == Some(self.number) {
            self.round_trip.end(now)
        } else {
            None
        };
        self.settle(now);
        round_trip
    }

    /// A Response or data of an open stream was received, or an answer with an error on the PING's
    /// own stream id. The first one decides whether the peer knows PING: whoever does writes the
    /// PONG before it (RFC KA-23).
    pub fn handle_response(&mut self, now: Duration) {
        let now = self.advance(now);
        if self.support == Support::Unknown && self.newest_written() > 0 && !self.is_over() {
            self.set_support(Support::No);
            if let Ping::Out { .. } = self.ping {
                self.ping = Ping::Rest;
            }
            self.settle(now);
        }
    }

    /// The kernel took the last byte of the PING. From here on the peer's time runs.
    pub fn handle_ping_flushed(&mut self, now: Duration) {
        let now = self.advance(now);
        if let Ping::Unwritten { handed: true } = self.ping {
            count(&mut self.counters.pings_sent);
            self.last_ping = Some(now);
            self.round_trip.begin(now);
            if self.support != Support::Yes {
                self.receipts.expect(now);
            }
            // A PING that nobody waits for any more was written all the same: its slot had been
            // promised.
            self.ping = if self.is_watched() || self.is_waited_for() {
                Ping::Out {
                    since: now,
                    attended: Duration::ZERO,
                    trial: None,
                }
            } else {
                Ping::Rest
            };
        }
        self.settle(now);
    }

    /// The kernel took nothing of what was offered.
    pub fn handle_write_blocked(&mut self, now: Duration) {
        let now = self.advance(now);
        if self.blocked_since.is_none() {
            // A refused write has its own time: a look for what lies unread may have counted some of
            // before it.
            self.write_stall = None;
            self.blocked_since = Some(now);
        }
        self.settle(now);
    }

    /// The kernel took bytes. After a write was blocked this is evidence of life; if it never was,
    /// the bytes only filled a buffer and say nothing of the peer.
    pub fn handle_write_progress(&mut self, now: Duration, still_blocked: bool) {
        let now = self.advance(now);
        if self.blocked_since.is_some() {
            self.note_evidence(now, now);
        }
        self.write_stall = None;
        self.blocked_since = still_blocked.then_some(now);
        self.settle(now);
    }

    /// What the kernel refused was taken back before it was taken: no write is blocked any more,
    /// and nothing is learnt of the peer.
    pub fn handle_write_withdrawn(&mut self, now: Duration) {
        let now = self.advance(now);
        self.write_stall = None;
        self.blocked_since = None;
        self.settle(now);
    }

    /// A call starts. A PING goes in front of its request if the peer was never asked (RFC KA-22), or
    /// if nobody has watched until now and it has been silent for long: poll before writing that.
    /// One that is due without the call waits for the turn's read.
    pub fn handle_call_started(&mut self, now: Duration) {
        let now = self.advance(now);
        let watched = self.is_watched();
        self.in_flight = self.in_flight.saturating_add(1);
        self.introduce(now);
        if self.in_flight == 1 && self.depends_on_waiting() {
            if !watched {
                self.ask_if_due(now);
            }
            self.settle(now);
        }
    }

    /// A call ended before its deadline, answered or dropped.
    pub fn handle_call_ended(&mut self, now: Duration) {
        let now = self.advance(now);
        self.in_flight = self.in_flight.saturating_sub(1);
        if self.in_flight == 0 && self.depends_on_waiting() {
            self.settle(now);
        }
    }

    /// A call's deadline passed. Its record keeps the watch, because the peer may still be at work
    /// for it.
    pub fn handle_call_late(&mut self, now: Duration) {
        let now = self.advance(now);
        self.in_flight = self.in_flight.saturating_sub(1);
        self.late = self.late.saturating_add(1);
        self.settle(now);
    }

    /// A late call's answer came, or its record was dropped.
    pub fn handle_late_call_ended(&mut self, now: Duration) {
        let now = self.advance(now);
        self.late = self.late.saturating_sub(1);
        self.settle(now);
    }

    /// A probe begins to wait. Returns the number that answers it: it is over when
    /// [`answered_number`](Self::answered_number) reaches it. A PING that is queued or out is
    /// shared.
    ///
    /// Where no PING may be sent ([`Keepalive::off`](crate::keepalive::Keepalive::off), a server
    /// that was never asked, after the end) the number is one that no PONG can carry yet; see
    /// [`can_ask`](Self::can_ask).
    pub fn handle_probe_started(&mut self, now: Duration) -> u64 {
        let now = self.advance(now);
        self.probes = self.probes.saturating_add(1);
        let unsent = self.number.saturating_add(1);
        // One that will only be read is asked before the deadline, as for a call.
        if matches!(self.ping, Ping::Rest) && self.may_ask() && !self.is_over() {
            self.ask(now);
        }
        self.settle(now);
        if let Ping::Rest = self.ping {
            unsent
        } else {
            self.number
        }
    }

    /// A probe no longer waits.
    pub fn handle_probe_ended(&mut self, now: Duration) {
        let now = self.advance(now);
        self.probes = self.probes.saturating_sub(1);
        self.settle(now);
    }

    /// An unanswered call has come to its
    /// [`ask_at`](crate::keepalive::CallDeadline::ask_at) and wants a PING.
    ///
    /// It gets none if one is queued or out, or if evidence came or a PING was sent less than 25 ms
    /// before that: so 1,000 late calls in a second cause 40 PINGs, not 1,000.
    ///
    /// A peer that is not known to answer PING gets one to read (RFC KA-27) where the kernel tells
    /// whether it does, unless something else lies unread: that asks the same. Where the kernel does
    /// not tell, one that is known not to answer gets none.
    pub fn handle_ping_wish(&mut self, now: Duration, ask_at: Duration) {
        let now = self.advance(now);
        let fresh = |at: Option<Duration>| at.is_some_and(|at| ask_at.saturating_sub(at) < FRESH);
        let wanted = match self.ping {
            Ping::Unwritten { .. } => false,
            // An earlier one that is out will not be answered: whether this one is read is the question.
            _ if self.support != Support::Yes && self.receipts.tell() => {
                !self.receipts.may_be_unread()
            }
            Ping::Out { .. } => false,
            Ping::Rest => self.support != Support::No,
        };
        let spared = self.is_over() || fresh(self.last_life()) || fresh(self.last_ping);
        if wanted && self.may_send && !spared {
            self.ask(now);
        }
        self.settle(now);
    }

    /// The reader is parked: answers may lie unread, so no time counts against the peer's silence.
    pub fn handle_parked(&mut self, now: Duration) {
        let now = self.advance(now);
        self.parked = true;
        if let Ping::Out { attended, .. } = &mut self.ping {
            *attended = Duration::ZERO;
        }
        self.settle(now);
    }

    /// The reader runs again. A PING that is out is given its whole time anew.
    pub fn handle_resumed(&mut self, now: Duration) {
        let now = self.advance(now);
        if self.parked {
            self.parked = false;
            self.round_trip.spoil();
        }
        self.settle(now);
    }

    /// A turn of the driver begins. Nothing is asked yet: bytes that came meanwhile lie unread.
    /// `lead` is the smallest [`CallDeadline::lead`](crate::keepalive::CallDeadline::lead) of the
    /// calls between `ask_at` and their deadline, if there is one.
    ///
    /// With a lead the run adds the time since the last one to what the PING that is out was waited
    /// for, a quarter of the lead at most; two runs more than half of it apart, and more than timers
    /// differ by, were our pause and take its round trip.
    pub fn handle_run(&mut self, now: Duration, lead: Option<Duration>) {
        let now = self.advance(now);
        if self.note_local_stall(now) {
            self.settle(now);
        }
        self.lead = lead;
        if let Some(lead) = lead {
            self.receipts.attend(self.last_run, now, lead);
        }
        if let (
            Some(lead),
            Ping::Out {
                since, attended, ..
            },
            false,
        ) = (lead, &mut self.ping, self.parked)
        {
            let gap = now.saturating_sub(self.last_run.max(*since));
            *attended = attended.saturating_add(gap.min(lead / 4));
            if is_stall(gap, lead) {
                self.round_trip.spoil();
            }
        }
        self.last_run = now;
    }

    /// The socket was looked at. `now` must be read before the kernel is asked: a look claims that
    /// nothing had come until then, and may not claim more.
    ///
    /// Only here is a peer suspected or convicted.
    pub fn handle_look(&mut self, now: Duration, look: Look) {
        if self.is_over() {
            return;
        }
        // Not `advance`: an older instant must not be taken for a later one, which would count time
        // not looked at.
        let seen = now;
        let now = self.advance(now);
        self.note_local_stall(seen);
        let unread = self.note_unread(seen, look);
        if let (true, Some(trial)) = (look.drained, self.trial_mut()) {
            let waited = trial.look(seen);
            self.judge(now, DeadReason::Silent, waited);
        }
        // Bytes that wait are life. A parked reader cannot tell old ones from new.
        let unheard = look.drained || self.parked || !self.bytes_restart_stall();
        // Convicted just now: one death is enough.
        let blocked = look.write_refused && self.blocked_since.is_some();
        let stands = blocked || (unread && self.is_watched_by_receipts());
        let refused = stands && unheard && !self.is_convicted();
        if let (true, Some(stall)) = (refused, &mut self.write_stall) {
            let waited = stall.look(seen);
            self.judge(now, DeadReason::NotReading, waited);
        }
        self.handle_due(now);
    }

    /// The socket was read. If the time of [`poll_timeout`](Self::poll_timeout) has come and a PING
    /// still is due, it is wanted from here on. Never judges: that takes a look.
    pub fn handle_timeout(&mut self, now: Duration) {
        let now = self.advance(now);
        if self.armed.is_some_and(|armed| armed <= now) {
            self.handle_due(now);
        }
    }

    /// This side did not run for so long before a call's deadline that nothing can be said of the peer:
    /// the verdict is [`LocalStall`](Verdict::LocalStall). Of one pause it is told once, however many
    /// calls it made late.
    pub fn handle_local_stall(&mut self, now: Duration, gap: Duration) {
        let now = self.advance(now);
        if self.stalled_until != Some(now) && !self.is_over() {
            self.count_local_stall(now, gap);
        }
    }

    /// A call was given this verdict.
    pub fn handle_verdict(&mut self, now: Duration, verdict: Verdict) {
        let now = self.advance(now);
        self.doubted |= verdict.is_doubtful();
        if verdict.is_doubtful() || matches!(verdict, Verdict::Unknown(_)) {
            self.round_trip.spoil();
        }
        self.settle(now);
    }

    /// The connection ended for a reason of its own. No deadline, PING or event afterwards.
    pub fn handle_closed(&mut self) {
        self.closed = true;
        self.ping = Ping::Rest;
        self.write_stall = None;
        self.armed = None;
        self.events = Events::default();
    }
}
