//! The machine: what is believed of one peer, and when to ask it.

use std::time::Duration;

use super::attended::Attended;
use super::state::Events;
use super::verdict::FRESH;
use super::{
    CallDeadline, Counters, DeadReason, Event, Evidence, Facts, Keepalive, Look, OnSilence, Peer,
    Role, State, Support, Verdict, WriteFacts, judge,
};

/// A peer of which it is unknown whether it knows PING is asked again after this, if nothing is sent periodically.
const RETRY: Duration = Duration::from_secs(10);

/// Put between `now` and a wake-up for something that was already due and not done, so that a driver cannot spin.
const BREATH: Duration = Duration::from_millis(1);

/// The keepalive rules of one connection, without I/O, clock, lock or allocation.
///
/// Inputs are the `handle_*` methods, outputs the `poll_*` methods, and bare nouns are getters. All inputs accept
/// any value at any moment: time that goes backwards changes nothing, arithmetic saturates, and what happens after
/// the end is ignored.
///
/// One turn of a driver:
///
/// 1. Read the clock once and call [`handle_run`](Self::handle_run).
/// 2. Read from the socket; report [`handle_bytes`](Self::handle_bytes) for each read that returned some, before the
///    frames in them.
/// 3. Write; report blocked writes, progress and the PING's last byte.
/// 4. If [`look_due`](Self::look_due), ask the kernel and report [`handle_look`](Self::handle_look). Then
///    [`handle_timeout`](Self::handle_timeout) if [`poll_timeout`](Self::poll_timeout) has passed.
/// 5. Drain [`poll_event`](Self::poll_event) after each input, put the PING of [`poll_ping`](Self::poll_ping) ahead
///    of data, and sleep until [`poll_timeout`](Self::poll_timeout) at the latest.
///
/// Four deadlines hide behind [`poll_timeout`](Self::poll_timeout):
///
/// | deadline | how long | set when | fired means | cleared when |
/// |---|---|---|---|---|
/// | PING due | the interval, lengthened by the jitter | evidence, or a PING, on a watched connection | a PING is wanted | it is wanted, or nobody watches |
/// | ask again | the interval (10 s without one), doubled each time | a PING to a peer of unknown support | the same PING is wanted again | support is known |
/// | look at the trial | a quarter of the timeout | the PING is flushed, or a look before | look for bytes | evidence, conviction, nobody watches |
/// | look at the blocked write | a quarter of the write stall | a write is blocked, or a look before | try to write | bytes are taken, conviction, nobody watches |
#[derive(Debug)]
pub struct Machine {
    settings: Settings,
    /// The latest time reported: inputs that claim an earlier one are taken as simultaneous with it.
    now: Duration,
    last_run: Duration,

    life: Life,
    closed: bool,
    support: Support,
    /// False for `off`, and for a server that has not received a PING.
    may_send: bool,
    /// The PING of the first exchange was asked for, or is not needed.
    introduced: bool,

    /// Counts as evidence for the interval: the last sign of life, or the connection's beginning.
    evidence: Duration,
    heard: Option<Duration>,
    in_flight: u32,
    late: u32,
    probes: u32,
    parked: bool,

    ping: Ping,
    /// The number of the newest PING; 0 before the first.
    number: u64,
    last_ping: Option<Duration>,
    /// The interval to the next PING, with its jitter.
    interval: Duration,
    retry_at: Option<Duration>,
    retry_gap: Duration,

    answered: u64,
    pong_at: Option<Duration>,
    handlers_stalled: bool,
    /// When the newest PING was flushed, as long as its PONG would give a true round trip.
    timing: Option<Duration>,
    rtt: Option<Duration>,
    smoothed_rtt: Option<Duration>,

    blocked_since: Option<Duration>,
    write_stall: Option<Attended>,

    doubted: bool,
    local_stall: Option<Duration>,
    counters: Counters,
    told: Flags,
    events: Events,
    armed: Option<Duration>,
    random: u64,
}

#[derive(Debug)]
struct Settings {
    /// `None`: nothing periodic, no trial, no write-stall conviction.
    period: Option<Duration>,
    timeout: Duration,
    write_stall: Duration,
    while_idle: bool,
    on_silence: OnSilence,
    jitter: u8,
    off: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Life {
    Alive,
    Suspect,
    /// Convicted with [`OnSilence::Report`]: counted once, and no clock runs until the peer speaks.
    Overdue,
    Dead(DeadReason),
}

/// Where the newest PING is.
#[derive(Debug)]
enum Ping {
    /// None is waited for.
    Rest,
    /// It has its number and is not fully written; `handed` to the driver or not.
    Unwritten { handed: bool },
    /// It is written and nothing came since.
    Out {
        since: Duration,
        /// Time waited for it by the runs before call deadlines, which count watched or not.
        attended: Duration,
        /// On while the connection is watched, the peer known to answer and the reader not parked.
        trial: Option<Attended>,
    },
}

/// What a change of is told as [`Event::FlagsChanged`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Flags {
    doubted: bool,
    handlers_stalled: bool,
    overdue: bool,
    write_blocked: bool,
    local_stall: Option<Duration>,
}

impl Machine {
    /// The rules of a connection that begins at time zero. Settings out of range are brought into it. The `seed`
    /// chooses the jitter; the same seed and the same inputs give the same outputs.
    #[must_use]
    pub fn new(keepalive: &Keepalive, role: Role, seed: u64) -> Self {
        let period = keepalive.period();
        let may_send = !keepalive.is_off() && role == Role::Client;
        let mut machine = Self {
            settings: Settings {
                period,
                timeout: keepalive.timeout_in_use(),
                write_stall: keepalive.write_stall_in_use(),
                while_idle: keepalive.watches_while_idle(),
                on_silence: keepalive.reports_silence(),
                jitter: keepalive.jitter_in_use(),
                off: keepalive.is_off(),
            },
            now: Duration::ZERO,
            last_run: Duration::ZERO,
            life: Life::Alive,
            closed: false,
            support: if keepalive.assumes_support() {
                Support::Yes
            } else {
                Support::Unknown
            },
            may_send,
            introduced: !may_send,
            evidence: Duration::ZERO,
            heard: None,
            in_flight: 0,
            late: 0,
            probes: 0,
            parked: false,
            ping: Ping::Rest,
            number: 0,
            last_ping: None,
            interval: Duration::ZERO,
            retry_at: None,
            retry_gap: period.unwrap_or(RETRY),
            answered: 0,
            pong_at: None,
            handlers_stalled: false,
            timing: None,
            rtt: None,
            smoothed_rtt: None,
            blocked_since: None,
            write_stall: None,
            doubted: false,
            local_stall: None,
            counters: Counters::default(),
            told: Flags::default(),
            events: Events::default(),
            armed: None,
            random: seed,
        };
        machine.interval = machine.next_interval();
        machine
    }
}

/// Inputs.
impl Machine {
    /// The connection begins. A client that is watched while idle asks at once whether the peer knows PING.
    pub fn handle_connected(&mut self, now: Duration) {
        let now = self.advance(now);
        self.evidence = self.evidence.max(now);
        self.last_run = self.last_run.max(now);
        if self.settings.period.is_some() && self.settings.while_idle {
            self.introduce(now);
        }
        self.settle(now);
    }

    /// Bytes were received, of whatever frame, complete or not. The only evidence of life besides write progress:
    /// a frame's own input adds what the frame says, and comes after this one.
    pub fn handle_bytes(&mut self, now: Duration) {
        let now = self.advance(now);
        self.note_evidence(now);
        self.settle(now);
    }

    /// A PING was received: the peer knows it, and expects that it is asked as well.
    pub fn handle_ping(&mut self, now: Duration) {
        let now = self.advance(now);
        self.may_send = !self.settings.off;
        self.learn_support();
        self.settle(now);
    }

    /// A PONG was received. `number` is its payload, `None` if that was not 8 bytes.
    ///
    /// Only the PONG of the newest PING gives a round trip, and only if this side looked all the time and nothing
    /// has judged the PING: else the number would measure our pause, or the failure that was just reported.
    pub fn handle_pong(&mut self, now: Duration, number: Option<u64>, handlers_stalled: bool) {
        let now = self.advance(now);
        if self.is_over() {
            return;
        }
        self.counters.pongs_received = self.counters.pongs_received.saturating_add(1);
        self.learn_support();
        self.pong_at = Some(now);
        self.handlers_stalled = handlers_stalled;
        // A number that was never written is a guess and answers nothing.
        if let Some(number) = number.filter(|&number| number <= self.newest_written()) {
            self.answered = self.answered.max(number);
            if number == self.number {
                self.sample(now);
            }
        }
        self.settle(now);
    }

    /// A Response was received, or an answer with an error on the PING's own stream id. The first one decides
    /// whether the peer knows PING: whoever does writes the PONG before it.
    pub fn handle_response(&mut self, now: Duration) {
        let now = self.advance(now);
        if self.support == Support::Unknown && self.newest_written() > 0 && !self.is_over() {
            self.set_support(Support::No);
            if let Ping::Out { .. } = self.ping {
                self.ping = Ping::Rest;
            }
        }
        self.settle(now);
    }

    /// The kernel took the last byte of the PING. From here on the peer's time runs.
    pub fn handle_ping_flushed(&mut self, now: Duration) {
        let now = self.advance(now);
        if let Ping::Unwritten { handed: true } = self.ping {
            self.counters.pings_sent = self.counters.pings_sent.saturating_add(1);
            self.last_ping = Some(now);
            self.timing = Some(now);
            // A PING that nobody waits for any more was written all the same: its slot had been promised.
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
        self.blocked_since = self.blocked_since.or(Some(now));
        self.settle(now);
    }

    /// The kernel took bytes. After a write was blocked this is evidence of life; if it never was, the bytes only
    /// filled a buffer and say nothing of the peer.
    pub fn handle_write_progress(&mut self, now: Duration, still_blocked: bool) {
        let now = self.advance(now);
        if self.blocked_since.is_some() {
            self.note_evidence(now);
        }
        self.write_stall = None;
        self.blocked_since = still_blocked.then_some(now);
        self.settle(now);
    }

    /// What the kernel refused was taken back before it was taken: no write is blocked any more, and
    /// nothing is learnt of the peer.
    pub fn handle_write_withdrawn(&mut self, now: Duration) {
        let now = self.advance(now);
        self.write_stall = None;
        self.blocked_since = None;
        self.settle(now);
    }

    /// A call starts. Its PING, if one is wanted, goes in front of its request: poll before writing that.
    pub fn handle_call_started(&mut self, now: Duration) {
        let now = self.advance(now);
        self.in_flight = self.in_flight.saturating_add(1);
        self.introduce(now);
        self.settle(now);
    }

    /// A call ended before its deadline, answered or dropped.
    pub fn handle_call_ended(&mut self, now: Duration) {
        let now = self.advance(now);
        self.in_flight = self.in_flight.saturating_sub(1);
        self.settle(now);
    }

    /// A call's deadline passed. Its record keeps the watch, because the peer may still be at work for it.
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
    /// [`answered_number`](Self::answered_number) reaches it. A PING that is queued or out is shared.
    ///
    /// Where no PING may be sent ([`Keepalive::off`], a server that was never asked, after the end) the number is one
    /// that no PONG can carry yet; see [`can_ask`](Self::can_ask).
    pub fn handle_probe_started(&mut self, now: Duration) -> u64 {
        let now = self.advance(now);
        self.probes = self.probes.saturating_add(1);
        let unsent = self.number.saturating_add(1);
        if matches!(self.ping, Ping::Rest) && self.may_send && !self.is_over() {
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

    /// An unanswered call has reached `p`, see [`CallDeadline::p`], and wants a PING.
    ///
    /// It gets none if the peer does not know PING, if one is queued or out, or if evidence came or a PING was sent
    /// less than 25 ms before `p`: so 1,000 late calls in a second cause 40 PINGs, not 1,000.
    pub fn handle_ping_wish(&mut self, now: Duration, p: Duration) {
        let now = self.advance(now);
        let fresh = |at: Option<Duration>| at.is_some_and(|at| at.saturating_add(FRESH) > p);
        let wanted =
            self.may_send && self.support != Support::No && matches!(self.ping, Ping::Rest);
        if wanted && !self.is_over() && !fresh(self.heard) && !fresh(self.last_ping) {
            self.ask(now);
        }
        self.settle(now);
    }

    /// The reader is parked: answers may lie unread, so no clock runs against the peer's silence.
    pub fn handle_parked(&mut self, now: Duration) {
        let now = self.advance(now);
        self.parked = true;
        self.settle(now);
    }

    /// The reader runs again. A PING that is out is given its whole time anew.
    pub fn handle_resumed(&mut self, now: Duration) {
        let now = self.advance(now);
        if self.parked {
            self.parked = false;
            self.timing = None;
            if let Ping::Out {
                attended, trial, ..
            } = &mut self.ping
            {
                (*attended, *trial) = (Duration::ZERO, None);
            }
            self.last_run = self.last_run.max(now);
        }
        self.settle(now);
    }

    /// A turn of the driver begins. `lead` is the smallest [`CallDeadline::lead`] of the calls between `p` and their
    /// deadline, if there is one.
    ///
    /// With a lead the run adds the time since the last one to what the PING that is out was waited for, a quarter
    /// of the lead at most; two runs more than half of it apart were our pause and take its round trip.
    pub fn handle_run(&mut self, now: Duration, lead: Option<Duration>) {
        let now = self.advance(now);
        self.note_local_stall(now);
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
            if gap > lead / 2 {
                self.timing = None;
            }
        }
        self.last_run = now;
        self.settle(now);
    }

    /// The socket was looked at. `now` must be read before the kernel is asked: a look claims that nothing had come
    /// until then, and may not claim more.
    ///
    /// Only here is a peer suspected or convicted.
    pub fn handle_look(&mut self, now: Duration, look: Look) {
        if self.is_over() {
            return;
        }
        // Not `advance`: an older instant must not be taken for a later one, which would count time not looked at.
        let seen = now;
        let now = self.advance(now);
        self.note_local_stall(seen);
        if look.drained {
            if let Ping::Out {
                trial: Some(trial), ..
            } = &mut self.ping
            {
                trial.look(seen);
                let (half, over) = (trial.is_half_over(), trial.is_over());
                self.judge(now, DeadReason::Silent, half, over);
            }
        }
        if look.write_refused && !self.is_convicted() {
            if let Some(stall) = &mut self.write_stall {
                stall.look(seen);
                let (half, over) = (stall.is_half_over(), stall.is_over());
                self.judge(now, DeadReason::NotReading, half, over);
            }
        }
        self.settle(now);
        self.rearm_after(now);
    }

    /// The time of [`poll_timeout`](Self::poll_timeout) has come. Never judges: that takes a look.
    pub fn handle_timeout(&mut self, now: Duration) {
        let now = self.advance(now);
        self.settle(now);
        self.rearm_after(now);
    }

    /// A call was given this verdict.
    pub fn handle_verdict(&mut self, now: Duration, verdict: Verdict) {
        let now = self.advance(now);
        self.doubted |= verdict.is_doubtful();
        if verdict.is_doubtful() || matches!(verdict, Verdict::Unknown(_)) {
            self.timing = None;
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

/// Outputs.
impl Machine {
    /// The number of the PING to write next, once for each PING. Numbers start at 1 and grow by 1.
    pub fn poll_ping(&mut self, now: Duration) -> Option<u64> {
        let now = self.advance(now);
        self.settle(now);
        match &mut self.ping {
            Ping::Unwritten { handed } if !*handed && !self.closed => {
                *handed = true;
                Some(self.number)
            }
            _ => None,
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is wanted next; `None` if nothing is due of itself.
    ///
    /// Evidence does not move it. It is looked at again when it fires, so that a busy connection costs one wake-up
    /// for each interval and not one timer for each frame.
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
    }

    /// The next event. Drain after each input; undrained ones of a kind become one.
    pub fn poll_event(&mut self) -> Option<Event> {
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

    /// The verdict on the peer of a call whose deadline has passed at `now` without an answer, on a connection that
    /// is open.
    #[must_use]
    pub fn verdict(&self, now: Duration, call: &CallDeadline, write: WriteFacts) -> Verdict {
        let fresh =
            |at: Option<Duration>| at.is_some_and(|at| at.saturating_add(FRESH) >= call.p());
        let waits_for_ping = self.can_ask() && matches!(self.ping, Ping::Unwritten { .. });
        judge(&Facts {
            peer_deadline_exceeded: false,
            written: write.written && !waits_for_ping,
            offered_since_p: write.offered_since_p,
            taken_since_p: write.taken_since_p,
            refused_for: self.blocked_since.map(|since| now.saturating_sub(since)),
            fresh_evidence: fresh(self.heard),
            handlers_stalled: self.handlers_stalled && fresh(self.pong_at),
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
            smoothed_rtt: self.smoothed_rtt,
        })
    }
}

/// Getters.
impl Machine {
    /// What is believed of the peer. Keeps its last value after [`handle_closed`](Self::handle_closed).
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

    /// What speaks for and against the peer at `now`.
    #[must_use]
    pub fn evidence(&self, now: Duration) -> Evidence {
        let age = |since: Duration| now.saturating_sub(since);
        Evidence {
            silent_for: age(self.evidence),
            rtt: self.rtt,
            smoothed_rtt: self.smoothed_rtt,
            awaiting_pong_for: self.awaiting_pong_since().map(age),
            write_blocked_for: self.blocked_since.map(age),
            handlers_stalled: self.handlers_stalled,
            local_stall: self.local_stall,
            support: self.support,
        }
    }

    /// How often things happened.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// The newest round trip that was measured.
    #[must_use]
    pub const fn rtt(&self) -> Option<Duration> {
        self.rtt
    }

    /// The smoothed round trip: each new one counts for an eighth.
    #[must_use]
    pub const fn smoothed_rtt(&self) -> Option<Duration> {
        self.smoothed_rtt
    }

    /// The last sign of life, or the connection's beginning if there was none.
    #[must_use]
    pub const fn last_evidence(&self) -> Duration {
        self.evidence
    }

    /// Convicted with [`OnSilence::Report`], and silent since.
    #[must_use]
    pub const fn overdue(&self) -> bool {
        matches!(self.life, Life::Overdue)
    }

    /// The newest PONG said that the peer's handlers are stalled.
    #[must_use]
    pub const fn handlers_stalled(&self) -> bool {
        self.handlers_stalled
    }

    /// Whether PINGs are sent on our own initiative at this moment: `every` is set, and the connection is watched
    /// while idle, or a call or a late call is open, or a probe waits.
    #[must_use]
    pub const fn is_watched(&self) -> bool {
        self.settings.period.is_some()
            && (self.settings.while_idle || self.late > 0 || self.is_waited_for())
    }

    /// Whether the reader is parked.
    #[must_use]
    pub const fn parked(&self) -> bool {
        self.parked
    }

    /// The newest pause of this side that was noticed.
    #[must_use]
    pub const fn local_stall(&self) -> Option<Duration> {
        self.local_stall
    }

    /// Since when a PING has been written and unanswered, with no other sign of life either.
    #[must_use]
    pub const fn awaiting_pong_since(&self) -> Option<Duration> {
        match self.ping {
            Ping::Out { since, .. } => Some(since),
            Ping::Rest | Ping::Unwritten { .. } => None,
        }
    }

    /// Since when the kernel has taken nothing of what we want to write.
    #[must_use]
    pub const fn write_blocked_since(&self) -> Option<Duration> {
        self.blocked_since
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

    /// Whether a call that starts now or later needs nothing of the machine at its start: no PING in front of its
    /// request, no clock. Its caller may then write the request directly and report the call afterwards.
    #[must_use]
    pub fn call_start_is_quiet(&self) -> bool {
        let exchanged = !self.may_send || (self.introduced && self.support != Support::Unknown);
        let begins_watch = self.settings.period.is_some() && !self.is_watched();
        exchanged && self.blocked_since.is_none() && !begins_watch
    }
}

/// Rules.
impl Machine {
    fn advance(&mut self, now: Duration) -> Duration {
        self.now = self.now.max(now);
        self.now
    }

    /// Derives from the facts what must run: called at the end of each input, and the only place that starts a PING
    /// of its own accord, starts or stops a clock, and arms the timer.
    fn settle(&mut self, now: Duration) {
        if self.is_over() {
            return;
        }
        let watched = self.is_watched();
        if !watched {
            // Nobody asked for a judgement, so none is kept. It is no recovery: the peer has not spoken.
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
        start_or_stop(
            &mut self.write_stall,
            judging && self.blocked_since.is_some(),
            now,
            self.settings.write_stall,
        );
        if [self.ping_due(), self.retry_due()]
            .into_iter()
            .flatten()
            .any(|due| due <= now)
        {
            self.ask(now);
        }
        let flags = Flags {
            doubted: self.doubted,
            handlers_stalled: self.handlers_stalled,
            overdue: self.overdue(),
            write_blocked: self.blocked_since.is_some(),
            local_stall: self.local_stall,
        };
        self.events.flags_changed |= flags != self.told;
        self.told = flags;
        let due = self.next_due();
        // Earlier than needed is right: when it fires, the next one is found. Later than needed is not.
        if self
            .armed
            .is_none_or(|armed| armed <= now || due.is_none_or(|due| due < armed))
        {
            self.armed = due;
        }
    }

    /// After an input that does what was due, nothing is due any more; if a driver left it undone, it is asked again
    /// a little later.
    fn rearm_after(&mut self, now: Duration) {
        if self.armed.is_some_and(|armed| armed <= now) {
            self.armed = now.checked_add(BREATH);
        }
    }

    fn next_due(&self) -> Option<Duration> {
        let trial = self.trial().and_then(Attended::due);
        let write_stall = self.write_stall.as_ref().and_then(Attended::due);
        [self.ping_due(), self.retry_due(), trial, write_stall]
            .into_iter()
            .flatten()
            .min()
    }

    fn ping_due(&self) -> Option<Duration> {
        let wanted = self.is_watched() && self.can_ask() && matches!(self.ping, Ping::Rest);
        let since = self.evidence.max(self.last_ping.unwrap_or_default());
        if wanted {
            since.checked_add(self.interval)
        } else {
            None
        }
    }

    fn retry_due(&self) -> Option<Duration> {
        let wanted =
            self.support == Support::Unknown && (self.is_watched() || self.is_waited_for());
        if wanted && !matches!(self.ping, Ping::Unwritten { .. }) {
            self.retry_at
        } else {
            None
        }
    }

    /// The first exchange: its PING goes in front of the first request, or out at the beginning.
    fn introduce(&mut self, now: Duration) {
        if !self.introduced && !self.is_over() {
            self.ask(now);
        }
    }

    fn ask(&mut self, now: Duration) {
        self.number = self.number.saturating_add(1);
        self.ping = Ping::Unwritten { handed: false };
        self.introduced = true;
        self.timing = None;
        self.last_ping = Some(now);
        self.interval = self.next_interval();
        if self.retry_at.is_none_or(|at| at <= now) {
            self.retry_at = now.checked_add(self.retry_gap);
            self.retry_gap = self.retry_gap.saturating_mul(2);
        }
    }

    fn newest_written(&self) -> u64 {
        match self.ping {
            Ping::Unwritten { .. } => self.number.saturating_sub(1),
            Ping::Rest | Ping::Out { .. } => self.number,
        }
    }

    fn note_evidence(&mut self, now: Duration) {
        if self.is_over() {
            return;
        }
        self.note_local_stall(now);
        self.heard = Some(now);
        self.evidence = now;
        self.doubted = false;
        // A PING that is not written yet stays: it was asked for a reason that these bytes may not answer.
        if let Ping::Out { .. } = self.ping {
            self.ping = Ping::Rest;
        }
        if self.life != Life::Alive {
            self.counters.recoveries = self.counters.recoveries.saturating_add(1);
            self.set_life(Life::Alive);
        }
    }

    /// A pause is noted at the first run after it, also when bytes are found then: the peer is well, but the round
    /// trip would measure the pause.
    fn note_local_stall(&mut self, now: Duration) {
        let trial = match &mut self.ping {
            Ping::Out {
                trial: Some(trial), ..
            } => trial.note_gap(now),
            _ => None,
        };
        let write_stall = self
            .write_stall
            .as_mut()
            .and_then(|stall| stall.note_gap(now));
        if let Some(gap) = trial.max(write_stall) {
            self.counters.local_stalls = self.counters.local_stalls.saturating_add(1);
            self.local_stall = Some(gap);
            self.events.local_stall = Some(gap);
            self.timing = None;
        }
    }

    fn judge(&mut self, now: Duration, reason: DeadReason, half: bool, over: bool) {
        if over {
            self.convict(now, reason);
        } else if half {
            self.timing = None;
            self.set_life(Life::Suspect);
        }
    }

    fn convict(&mut self, now: Duration, reason: DeadReason) {
        self.events.convicted = Some((reason, self.evidence(now)));
        let count = match reason {
            DeadReason::Silent => &mut self.counters.convictions_silent,
            DeadReason::NotReading => &mut self.counters.convictions_not_reading,
        };
        *count = count.saturating_add(1);
        self.timing = None;
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

    fn set_life(&mut self, life: Life) {
        let from = self.life.state();
        if from == State::Alive && life.state() == State::Suspect {
            self.counters.suspect_entries = self.counters.suspect_entries.saturating_add(1);
        }
        self.life = life;
        if life.state() != from {
            self.events.state_from = self.events.state_from.or(Some(from));
        }
    }

    fn learn_support(&mut self) {
        if !self.is_over() {
            self.introduced = true;
            self.set_support(Support::Yes);
        }
    }

    fn set_support(&mut self, support: Support) {
        self.events.support_changed |= support != self.support;
        self.support = support;
    }

    fn sample(&mut self, now: Duration) {
        if let Some(flushed) = self.timing.take() {
            let rtt = now.saturating_sub(flushed);
            self.rtt = Some(rtt);
            let smoothed = self.smoothed_rtt.map_or(rtt, |smoothed| {
                smoothed.saturating_mul(7).saturating_add(rtt) / 8
            });
            self.smoothed_rtt = Some(smoothed);
        }
    }

    /// Jitter only lengthens: a peer may rely on the interval as the shortest distance.
    fn next_interval(&mut self) -> Duration {
        let interval = self.settings.period.unwrap_or(Duration::MAX);
        if self.settings.jitter == 0 {
            return interval;
        }
        let span = (interval / 100).saturating_mul(u32::from(self.settings.jitter));
        let span = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX - 1);
        // SplitMix64: one addition of state, so that any seed will do.
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        interval.saturating_add(Duration::from_nanos(mixed % (span + 1)))
    }

    const fn is_waited_for(&self) -> bool {
        self.in_flight > 0 || self.probes > 0
    }

    const fn is_over(&self) -> bool {
        self.closed || matches!(self.life, Life::Dead(_))
    }

    const fn is_convicted(&self) -> bool {
        matches!(self.life, Life::Overdue | Life::Dead(_))
    }

    const fn trial(&self) -> Option<&Attended> {
        match &self.ping {
            Ping::Out { trial, .. } => trial.as_ref(),
            Ping::Rest | Ping::Unwritten { .. } => None,
        }
    }
}

impl Life {
    const fn state(self) -> State {
        match self {
            Self::Alive => State::Alive,
            Self::Suspect | Self::Overdue => State::Suspect,
            Self::Dead(reason) => State::Dead(reason),
        }
    }
}

fn start_or_stop(clock: &mut Option<Attended>, run: bool, now: Duration, limit: Duration) {
    if !run {
        *clock = None;
    } else if clock.is_none() {
        *clock = Some(Attended::new(now, limit));
    }
}
