//! A second machine, written from the rules and for nothing but comparison: each rule is spelled
//! out where its input comes in, times are nanoseconds, and no thought is given to cost.

use std::time::Duration;

use ttrpc_keepalive::keepalive::{
    DeadReason, Peer, Role, State, Support, Unknown, Unread, Verdict,
};

use super::operations::{Operation, keepalive};

const FRESH: u128 = 25_000_000;

#[derive(Clone, Copy, Debug)]
struct Clock {
    limit: u128,
    attended: u128,
    last: u128,
    late: u32,
    told: bool,
}

impl Clock {
    const fn new(now: u128, limit: u128) -> Self {
        Self {
            limit,
            attended: 0,
            last: now,
            late: 0,
            told: false,
        }
    }

    fn due(&self) -> u128 {
        self.last
            .saturating_add(self.limit.div_ceil(4).min(self.limit - self.attended))
    }

    const fn is_late(&self, now: u128) -> bool {
        now.saturating_sub(self.last).saturating_mul(2) > self.limit
    }

    /// Returns whether the look counts.
    fn look(&mut self, now: u128) -> bool {
        if now < self.due() {
            return false;
        }
        self.attended += (now - self.last).min(self.limit.div_ceil(4));
        if self.is_late(now) {
            self.late += 1;
            if self.late <= 4 {
                self.attended = self.attended.min(self.limit / 2);
            }
        }
        (self.last, self.told) = (now, false);
        true
    }
}

pub(crate) struct Model {
    interval: Option<u128>,
    timeout: u128,
    write_stall: u128,
    /// The write stall was set for itself, and bytes received do not restart it.
    deaf: bool,
    while_idle: bool,
    report: bool,
    off: bool,
    client: bool,

    now: u128,
    begun: u128,
    heard: Option<u128>,
    pub(crate) support: Support,
    may_send: bool,
    first_exchange: bool,
    in_flight: u64,
    late: u64,
    probes: u64,
    parked: bool,
    blocked: Option<u128>,

    by_receipts: bool,
    near: Option<u128>,
    /// Whether the kernel tells what is unread.
    tells: bool,
    /// When it was asked last, what it held, and what was written until then.
    kernel: Option<(u128, u64, u64)>,
    pub(crate) read: Option<u128>,
    /// When it was asked last, in time that does not go back.
    asked: Option<u128>,
    /// When the newest of what was unread was written.
    unread: Option<u128>,
    /// A PING was written then that may be unread, and nothing else is known to be.
    to_be_read: Option<u128>,

    number: u64,
    queued: bool,
    handed: bool,
    flushed: Option<u128>,
    trial: Option<Clock>,
    stall: Option<Clock>,
    last_ping: Option<u128>,
    retry_at: Option<u128>,
    retry_gap: u128,
    measured_from: Option<u128>,
    last_run: u128,

    pub(crate) state: State,
    pub(crate) overdue: bool,
    closed: bool,
    doubted: bool,
    pub(crate) rtt: Option<u128>,
    pub(crate) smoothed: Option<u128>,
    pub(crate) handlers_stalled: bool,
    pub(crate) local_stall: Option<u128>,
    pub(crate) answered: u64,
    pub(crate) counts: Counts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    pub(crate) sent: u64,
    pub(crate) pongs: u64,
    pub(crate) suspects: u64,
    pub(crate) recoveries: u64,
    pub(crate) stalls: u64,
    pub(crate) silent: u64,
    pub(crate) not_reading: u64,
}

impl Model {
    /// The same settings as [`keepalive`] chooses, in the model's own terms.
    pub(crate) fn new(choice: u8) -> Self {
        const MS: u128 = 1_000_000;
        let (interval, timeout, write_stall) = match choice & 7 {
            0 | 1 => (None, 10_000 * MS, 10_000 * MS),
            2 => (Some(10 * MS), 400 * MS, 400 * MS),
            3 => (Some(1000 * MS), 20 * MS, 20 * MS),
            _ => (Some(100 * MS), 200 * MS, 300 * MS),
        };
        let (_, role) = keepalive(choice);
        let (off, client) = (choice & 7 == 0, role == Role::Client);
        Self {
            interval,
            timeout,
            write_stall,
            deaf: choice & 7 >= 4,
            while_idle: choice & 64 == 0,
            report: choice & 8 != 0,
            off,
            client,
            now: 0,
            begun: 0,
            heard: None,
            support: if choice & 16 == 0 {
                Support::Unknown
            } else {
                Support::Yes
            },
            may_send: client && !off,
            first_exchange: false,
            in_flight: 0,
            late: 0,
            probes: 0,
            parked: false,
            blocked: None,
            by_receipts: choice & 128 != 0,
            near: None,
            tells: true,
            kernel: None,
            read: None,
            asked: None,
            unread: None,
            to_be_read: None,
            number: 0,
            queued: false,
            handed: false,
            flushed: None,
            trial: None,
            stall: None,
            last_ping: None,
            retry_at: None,
            retry_gap: interval.unwrap_or(10_000 * MS),
            measured_from: None,
            last_run: 0,
            state: State::Alive,
            overdue: false,
            closed: false,
            doubted: false,
            rtt: None,
            smoothed: None,
            handlers_stalled: false,
            local_stall: None,
            answered: 0,
            counts: Counts::default(),
        }
    }

    pub(crate) fn peer(&self) -> Peer {
        if self.over() {
            Peer::Gone
        } else if self.doubted || self.state == State::Suspect {
            Peer::Doubtful
        } else {
            Peer::Alive
        }
    }

    pub(crate) fn watched(&self) -> bool {
        self.interval.is_some() && (self.while_idle || self.in_flight + self.late + self.probes > 0)
    }

    pub(crate) fn last_evidence(&self) -> u128 {
        self.heard.unwrap_or(self.begun)
    }

    /// Nobody waits for an answer of a peer that gives none.
    pub(crate) fn awaiting(&self) -> Option<u128> {
        self.flushed.filter(|_| self.support != Support::No)
    }

    pub(crate) const fn blocked(&self) -> Option<u128> {
        self.blocked
    }

    pub(crate) fn look_due(&self, now: u128) -> bool {
        let mut clocks = [self.trial, self.stall].into_iter().flatten();
        let near = self.near.is_some_and(|lead| {
            let most = nanos(Duration::MAX);
            let due = |at: u128| now >= at + lead / 4 && at + lead / 4 <= most;
            let asked = self.asked.is_none_or(due);
            asked && !self.can_ask() && self.asks_unread()
        });
        let each_interval = self.watched_by_receipts() && {
            let asked = self.asked.unwrap_or(self.begun);
            let before_ping = self.support != Support::Yes && self.periodic(now);
            before_ping || self.interval.is_some_and(|gap| asked + gap <= now)
        };
        clocks.any(|clock| clock.due() <= now) || near || each_interval
    }

    pub(crate) fn asks_unread(&self) -> bool {
        let judged = self.blocked.is_some() || (self.near.is_some() && !self.can_ask());
        !self.over() && self.tells && (judged || self.watched_by_receipts())
    }

    pub(crate) fn receipts(&self) -> bool {
        self.tells
    }

    /// What is told of what lies unread, which bytes that came later take back.
    pub(crate) fn unread(&self) -> Option<u128> {
        self.unread.filter(|_| self.heard <= self.asked)
    }

    fn can_ask(&self) -> bool {
        self.support == Support::Yes && self.may_send
    }

    fn watched_by_receipts(&self) -> bool {
        self.by_receipts && self.watched() && self.tells && !self.over()
    }

    /// The kernel's answer, receipts 1 and 2. Returns whether something is unread by it.
    fn hear_kernel(&mut self, at: u128, drained: bool, answer: Unread) -> bool {
        let (held, written, written_at) = match answer {
            Unread::NotAsked => return false,
            Unread::Unknown => {
                (self.tells, self.kernel) = (false, None);
                (self.unread, self.to_be_read) = (None, None);
                return false;
            }
            Unread::Known {
                held,
                written,
                written_at,
            } => (held, written, written_at.map_or(0, nanos)),
        };
        let empty = held < 256;
        let mut since = None;
        let before = self.kernel.map_or(0, |(_, _, written)| written);
        let added = written.saturating_sub(before);
        match self.kernel {
            None if empty && written > 0 => since = Some(written_at),
            None => {}
            Some((asked, before, _)) if empty && before >= 256 => {
                since = Some(written_at.max(asked));
            }
            Some((_, _, before)) if empty && written > before => since = Some(written_at),
            Some((asked, before, _)) if !empty && held + 256 <= before + added => {
                since = Some(asked);
            }
            Some(_) => {}
        }
        if since.is_some() && !drained {
            return false;
        }
        self.asked = Some(self.now);
        self.kernel = Some((at, held, written));
        // Whether it is the same that was unread before, and nothing newer.
        let same = match (self.unread, self.to_be_read) {
            (Some(_), _) => held > 5 * added,
            (None, Some(ping)) => written_at <= ping,
            (None, None) => false,
        };
        let known = same && since.is_none();
        if empty {
            self.unread = None;
        } else if known {
            self.unread = self.unread.or(self.to_be_read);
        } else {
            self.unread = Some(written_at);
            if self.blocked.is_none() {
                self.stall = None;
            }
        }
        self.to_be_read = None;
        if since.is_some() {
            self.read = self.read.max(since);
            self.stall = None;
            if self.support != Support::Yes {
                self.life(self.read.unwrap_or(at));
            }
        }
        !empty
    }

    /// The last sign of life, receipts among them for a peer that cannot be asked.
    fn last_life(&self) -> u128 {
        let read = self.read.filter(|_| self.support != Support::Yes);
        self.heard.max(read).unwrap_or(self.begun)
    }

    const fn over(&self) -> bool {
        self.closed || matches!(self.state, State::Dead(_))
    }

    /// Applies what the driver says happened at `instant`.
    pub(crate) fn apply(&mut self, instant: Duration, operation: Operation) {
        let claimed = nanos(instant);
        self.now = self.now.max(claimed);
        let now = self.now;
        let over = self.over();
        match operation {
            Operation::Closed => self.close(),
            Operation::Connected => {
                (self.begun, self.last_run) = (now, now);
                if self.interval.is_some() && self.while_idle {
                    self.exchange_first(now);
                }
            }
            Operation::Bytes if !over => self.evidence(now),
            Operation::Ping if !over => {
                self.may_send = !self.off;
                (self.support, self.first_exchange) = (Support::Yes, true);
            }
            Operation::Pong {
                number,
                handlers_stalled,
            } if !over => self.pong(now, number, handlers_stalled),
            Operation::Response if !over => {
                let written = self.number > u64::from(self.queued);
                if self.support == Support::Unknown && written {
                    self.support = Support::No;
                    (self.flushed, self.trial) = (None, None);
                }
            }
            Operation::Flushed if !over && self.handed => {
                (self.queued, self.handed) = (false, false);
                self.counts.sent += 1;
                (self.last_ping, self.measured_from) = (Some(now), Some(now));
                if self.watched() || self.in_flight + self.probes > 0 {
                    self.flushed = Some(now);
                }
                let new = self.unread.is_none() && self.to_be_read.is_none();
                if self.support != Support::Yes && self.tells && new {
                    self.to_be_read = Some(now);
                }
            }
            Operation::Blocked if self.blocked.is_none() => {
                self.stall = None;
                self.blocked = Some(now);
            }
            Operation::Blocked => {}
            Operation::Withdrawn => {
                self.stall = None;
                self.blocked = None;
            }
            Operation::Progress { still_blocked } => {
                if self.blocked.is_some() && !over {
                    self.evidence(now);
                }
                self.stall = None;
                self.blocked = still_blocked.then_some(now);
            }
            Operation::CallStarted => {
                let watched = self.watched();
                self.in_flight += 1;
                self.exchange_first(now);
                if self.in_flight == 1 && !watched {
                    self.ask(now);
                }
            }
            Operation::CallEnded => self.in_flight = self.in_flight.saturating_sub(1),
            Operation::CallLate => {
                self.in_flight = self.in_flight.saturating_sub(1);
                self.late += 1;
            }
            Operation::LateCallEnded => self.late = self.late.saturating_sub(1),
            Operation::ProbeStarted => {
                self.probes += 1;
                let asks = self.may_send && self.support != Support::No;
                if !over && asks && !self.queued && self.flushed.is_none() {
                    self.send(now);
                }
            }
            Operation::ProbeEnded => self.probes = self.probes.saturating_sub(1),
            Operation::Wish { ago } => self.wish(now, now.saturating_sub(nanos(ago))),
            Operation::Parked => self.parked = true,
            Operation::Resumed => {
                if self.parked {
                    self.measured_from = None;
                }
                self.parked = false;
            }
            Operation::Run { lead } => {
                self.note_gap(now);
                self.near = lead.map(nanos);
                if let (Some(lead), Some(flushed), false) = (lead, self.flushed, self.parked) {
                    if now.saturating_sub(self.last_run.max(flushed)) > nanos(lead) / 2 {
                        self.measured_from = None;
                    }
                }
                self.last_run = now;
            }
            Operation::Look {
                drained,
                write_refused,
                unread,
            } if !over => {
                self.look(claimed, drained, write_refused, unread);
                self.ask(now);
            }
            Operation::Timeout => self.ask(now),
            Operation::Verdict(verdict) => {
                let early = Verdict::Unknown(Unknown::TooEarly);
                self.doubted |=
                    [Verdict::Unresponsive, Verdict::NotReading, early].contains(&verdict);
                if !matches!(
                    verdict,
                    Verdict::Slow
                        | Verdict::HandlersStalled
                        | Verdict::NotSent
                        | Verdict::LocalStall
                ) {
                    self.measured_from = None;
                }
            }
            _ => {}
        }
        self.follow(now);
    }

    fn close(&mut self) {
        self.closed = true;
        self.queued = false;
        (self.flushed, self.trial, self.stall) = (None, None, None);
    }

    /// Evidence of life, rule 1: it retires the PING that is out.
    fn evidence(&mut self, now: u128) {
        self.note_gap(now);
        self.heard = Some(now);
        if !self.deaf {
            self.stall = None;
        }
        self.life(now);
    }

    /// A sign of life of `at` answers no PING that was written later.
    fn life(&mut self, at: u128) {
        self.doubted = false;
        if self.flushed.is_some_and(|flushed| flushed <= at) {
            (self.flushed, self.trial) = (None, None);
        }
        if self.state == State::Suspect {
            self.counts.recoveries += 1;
            (self.state, self.overdue) = (State::Alive, false);
        }
    }

    fn pong(&mut self, now: u128, number: Option<u64>, stalled: bool) {
        self.counts.pongs += 1;
        (self.support, self.first_exchange) = (Support::Yes, true);
        self.handlers_stalled = stalled;
        let written = self.number - u64::from(self.queued);
        let Some(number) = number.filter(|&number| number <= written) else {
            return;
        };
        self.answered = self.answered.max(number);
        if number == self.number {
            if let Some(from) = self.measured_from.take() {
                let rtt = now - from;
                self.rtt = Some(rtt);
                let most = nanos(Duration::MAX);
                let smoothed = self.smoothed.map_or(rtt, |smoothed| {
                    ((smoothed * 7).min(most) + rtt).min(most) / 8
                });
                self.smoothed = Some(smoothed);
            }
        }
    }

    fn note_gap(&mut self, now: u128) {
        let mut gap = None;
        for clock in [&mut self.trial, &mut self.stall].into_iter().flatten() {
            if clock.is_late(now) && !clock.told {
                clock.told = true;
                gap = gap.max(Some(now - clock.last));
            }
        }
        if gap.is_some() && !self.over() {
            self.counts.stalls += 1;
            (self.local_stall, self.measured_from) = (gap, None);
        }
    }

    fn exchange_first(&mut self, now: u128) {
        if self.client && !self.off && !self.first_exchange && !self.over() && !self.queued {
            self.send(now);
        }
    }

    fn wish(&mut self, now: u128, p: u128) {
        let fresh = |at: Option<u128>| at.is_some_and(|at| at.saturating_add(FRESH) > p);
        let to_be_read = self.support != Support::Yes && self.receipts();
        let useless = if to_be_read {
            self.unread.or(self.to_be_read).is_some()
        } else {
            self.support == Support::No || self.flushed.is_some()
        };
        let read = self.read.filter(|_| self.support != Support::Yes);
        if !self.over()
            && self.may_send
            && !useless
            && !self.queued
            && !fresh(self.heard.max(read))
            && !fresh(self.last_ping)
        {
            self.send(now);
        }
    }

    fn send(&mut self, now: u128) {
        self.number += 1;
        (self.queued, self.handed, self.first_exchange) = (true, false, true);
        (self.flushed, self.trial, self.measured_from) = (None, None, None);
        self.last_ping = Some(now);
        if self.retry_at.is_none_or(|at| at <= now) {
            self.retry_at = now.checked_add(self.retry_gap);
            self.retry_gap = self.retry_gap.saturating_mul(2);
        }
    }

    fn look(&mut self, claimed: u128, drained: bool, refused: bool, unread: Unread) {
        self.note_gap(claimed);
        let unread = self.hear_kernel(claimed, drained, unread);
        let blocked = refused && self.blocked.is_some();
        let refused = blocked || (unread && self.watched_by_receipts());
        if drained && self.trial.as_mut().is_some_and(|trial| trial.look(claimed)) {
            self.judge(self.trial, DeadReason::Silent);
        }
        let convicted = self.over() || self.overdue;
        let unheard = drained || self.parked || self.deaf;
        if refused
            && unheard
            && !convicted
            && self.stall.as_mut().is_some_and(|stall| stall.look(claimed))
        {
            self.judge(self.stall, DeadReason::NotReading);
        }
    }

    fn judge(&mut self, clock: Option<Clock>, reason: DeadReason) {
        let Some(clock) = clock.filter(|clock| clock.attended * 2 >= clock.limit) else {
            return;
        };
        self.measured_from = None;
        let convicted = clock.attended >= clock.limit;
        if self.state == State::Alive && (self.report || !convicted) {
            self.state = State::Suspect;
            self.counts.suspects += 1;
        }
        if convicted {
            match reason {
                DeadReason::Silent => self.counts.silent += 1,
                _ => self.counts.not_reading += 1,
            }
            (self.trial, self.stall) = (None, None);
            if self.report {
                self.overdue = true;
            } else {
                self.state = State::Dead(reason);
                (self.queued, self.flushed) = (false, None);
            }
        }
    }

    /// What follows from a change of anything: rules 3, 6, 7, 9.
    fn follow(&mut self, now: u128) {
        if self.over() {
            return;
        }
        if !self.watched() {
            (self.trial, self.stall, self.state, self.overdue) = (None, None, State::Alive, false);
            if self.in_flight + self.probes == 0 {
                self.flushed = None;
            }
        }
        let known = self.support == Support::Yes && self.may_send;
        let clocks = self.watched() && !self.overdue;
        if !(clocks && known && !self.parked) {
            self.trial = None;
        } else if self.flushed.is_some() && self.trial.is_none() {
            self.trial = Some(Clock::new(now, self.timeout));
        }
        let unread = self.unread.or(self.to_be_read).is_some() && self.watched_by_receipts();
        if clocks && (self.blocked.is_some() || unread) && self.stall.is_none() {
            self.stall = Some(Clock::new(now, self.write_stall));
        }
        if self.blocked.is_none() && !unread {
            self.stall = None;
        }
    }

    /// Rule 2: a PING that is due after the turn's read, or for the first call that somebody waits
    /// for.
    fn ask(&mut self, now: u128) {
        if self.queued || self.over() {
            return;
        }
        let quiet = |gap: u128| {
            self.last_ping
                .is_none_or(|ping| ping.checked_add(gap).is_some_and(|due| due <= now))
        };
        let periodic = self.periodic(now);
        let interested = self.watched() || self.in_flight + self.probes > 0;
        let again = self.support == Support::Unknown
            && interested
            && self.retry_at.is_some_and(|at| at <= now)
            && quiet(self.interval.unwrap_or(10_000_000_000));
        if periodic || again {
            self.send(now);
        }
    }

    /// Whether silence wants a PING, to be answered or to be read.
    fn periodic(&self, now: u128) -> bool {
        let Some(interval) = self.interval else {
            return false;
        };
        let to_read = self.may_send
            && self.watched_by_receipts()
            && self.unread.or(self.to_be_read).is_none();
        let since = self.last_life().max(self.last_ping.unwrap_or(0));
        let silent = since.checked_add(interval).is_some_and(|due| due <= now);
        let rest = self.flushed.is_none() && !self.queued;
        self.watched() && (self.can_ask() || to_read) && rest && silent
    }

    /// The driver takes the PING that is wanted.
    pub(crate) fn take_ping(&mut self) -> Option<u64> {
        if !self.queued || self.handed {
            return None;
        }
        self.handed = true;
        Some(self.number)
    }
}

pub(crate) fn nanos(time: Duration) -> u128 {
    time.as_nanos()
}
