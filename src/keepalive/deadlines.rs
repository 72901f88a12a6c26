//! The deadlines of a connection's open calls: one table, so that no call has a timer of its own.

mod gaps;
mod upcoming;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::mem;
use std::time::Duration;

use self::gaps::Gaps;
use self::upcoming::{Ask, Upcoming};
use super::{CallDeadline, WriteFacts};
use crate::tuning::KEPT_DEADLINES;

/// The deadlines of the open calls of one connection, by keys of the caller's choice.
///
/// A peer that stops answers no call, so all calls may come to their deadlines at once, and an
/// observer that walks through them in each run looks dead itself meanwhile. So no method here
/// walks through calls: each call costs a few comparisons at its beginning, at
/// [`ask_at`](CallDeadline::ask_at) and at its end, and one that ends before it came so far costs
/// hardly anything.
///
/// A key stands for one call only and is not used again: calls that end early are not searched for,
/// but skipped when their time comes, if `is_open` says that they have ended.
///
/// One turn of a driver:
///
/// 1. [`handle_run`](Self::handle_run), then [`shortest_lead`](Self::shortest_lead) for
///    [`Machine::handle_run`](super::Machine::handle_run).
/// 2. Read. Before writing, [`poll_expired`](Self::poll_expired): a call of which nothing was
///    written ends without a look, the others are [deferred](Self::defer).
/// 3. If [`is_due`](Self::is_due), look, and so if it [`may_wish`](Self::may_wish) and that
///    [needs a look](super::Machine::wish_needs_look); then [`poll_deferred`](Self::poll_deferred) and judge.
/// 4. [`poll_wish`](Self::poll_wish), for
///    [`Machine::handle_ping_wish`](super::Machine::handle_ping_wish).
/// 5. Sleep until [`next_run`](Self::next_run) at the latest.
///
/// ```
/// use std::time::Duration;
/// use ttrpc_keepalive::keepalive::{CallDeadline, Deadlines, Keepalive, Writes};
///
/// let ms = Duration::from_millis;
/// let call = CallDeadline::new(ms(0), ms(1000), &Keepalive::on_demand());
/// let mut deadlines = Deadlines::new();
/// deadlines.insert(1, &call);
/// assert_eq!(deadlines.next_run(|_| true), Some(ms(750)));
///
/// deadlines.handle_run(ms(750), Writes::default(), |_| true);
/// assert_eq!(deadlines.poll_wish(), Some(ms(750)));
/// deadlines.handle_run(ms(1000), Writes::default(), |_| true);
/// assert_eq!(deadlines.poll_expired().map(|call| call.key), Some(1));
/// assert_eq!(deadlines.next_run(|_| false), None);
/// ```
#[derive(Debug)]
pub struct Deadlines<K> {
    upcoming: Upcoming<K>,
    /// Calls between `ask_at` and their deadline.
    near: Table<K>,
    expired: Table<K>,
    deferred: Table<K>,
    /// How many calls of these three tables have this lead.
    leads: BTreeMap<Duration, usize>,
    /// Those that came to `ask_at` since the last wish.
    asking: Vec<(Duration, K)>,
    gaps: Gaps,
    last_run: Duration,
}

/// By deadline.
type Table<K> = BTreeMap<(Duration, K), Near>;

/// A call that has come to `ask_at`.
#[derive(Clone, Copy, Debug)]
struct Near {
    lead: Duration,
    /// Gaps count from here on.
    since: Duration,
    /// No wish was asked for since `ask_at`.
    asking: bool,
    offered_since_asked: bool,
    taken_since_asked: bool,
}

/// When the kernel was last offered bytes of this side, and when it last took some.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_structs,
    reason = "two answers that the driver must give, none may be forgotten"
)]
pub struct Writes {
    /// The last offer, taken or not; `None` before the first.
    pub offered: Option<Duration>,
    /// The last offer of which something was taken.
    pub taken: Option<Duration>,
}

/// A call at its deadline.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Expired<K> {
    /// By which the call is known.
    pub key: K,
    /// Its deadline. Gaps of not more than half of the lead, which decide nothing, may be missing
    /// in its [`longest_gap`](CallDeadline::longest_gap).
    pub deadline: CallDeadline,
    near: Near,
}

impl<K> Expired<K> {
    /// What became of bytes of this side, as of the first run at the deadline, for a request that
    /// is `written` fully or not.
    #[must_use]
    pub const fn write_facts(&self, written: bool) -> WriteFacts {
        WriteFacts {
            written,
            offered_since_asked: self.near.offered_since_asked,
            taken_since_asked: self.near.taken_since_asked,
        }
    }
}

impl<K: Copy + Ord> Deadlines<K> {
    /// No call is open.
    #[must_use]
    pub fn new() -> Self {
        Self {
            upcoming: Upcoming::default(),
            near: BTreeMap::new(),
            expired: BTreeMap::new(),
            deferred: BTreeMap::new(),
            leads: BTreeMap::new(),
            asking: Vec::new(),
            gaps: Gaps::default(),
            last_run: Duration::ZERO,
        }
    }

    /// A call begins.
    pub fn insert(&mut self, key: K, deadline: &CallDeadline) {
        self.upcoming.push(Ask {
            at: deadline.ask_at(),
            key,
            lead: deadline.lead(),
        });
    }

    /// A call has ended. From here on `is_open` says so. Of no effect for one that
    /// [`poll_expired`](Self::poll_expired) or [`poll_deferred`](Self::poll_deferred) has given
    /// out.
    pub fn remove(&mut self, key: K, deadline: &CallDeadline) {
        if deadline.ask_at() > self.last_run {
            return self.upcoming.note_ended();
        }
        let at = (deadline.deadline(), key);
        let near = self
            .tables()
            .into_iter()
            .find_map(|table| table.remove(&at));
        if let Some(near) = near {
            self.forget_lead(near.lead);
        }
    }

    /// A call is known by another key from now on.
    pub fn rename(&mut self, from: K, to: K, deadline: &CallDeadline) {
        let [from, at] = [from, to].map(|key| (deadline.deadline(), key));
        let renamed = self.tables().into_iter().find_map(|table| {
            let near = table.remove(&from)?;
            table.insert(at, near);
            Some(near)
        });
        match renamed {
            Some(near) if near.asking => self.asking.push(at),
            Some(_) => {}
            None => {
                self.upcoming.note_ended();
                self.insert(to, deadline);
            }
        }
    }

    /// The driver runs. Calls that have come to `ask_at` are near their deadline from here on, and
    /// those at their deadline are expired. `writes` are those before this run.
    ///
    /// A time before that of the last run counts as the same. Called again within a turn it takes up
    /// calls that have begun since, of which one may have no time at all.
    pub fn handle_run(&mut self, now: Duration, writes: Writes, is_open: impl Fn(K) -> bool) {
        let now = now.max(self.last_run);
        let previous_run = mem::replace(&mut self.last_run, now);
        self.upcoming.compact(&is_open);
        while let Some(ask) = self.upcoming.pop_until(now, &is_open) {
            let at = (ask.at.saturating_add(ask.lead), ask.key);
            let near = Near {
                lead: ask.lead,
                since: ask.at.max(previous_run),
                asking: true,
                offered_since_asked: false,
                taken_since_asked: false,
            };
            self.near.insert(at, near);
            self.asking.push(at);
            self.note_lead(ask.lead);
        }
        if self.leads.is_empty() {
            return self.gaps.clear();
        }
        self.note_gap(previous_run);
        while let Some(first) = self.near.first_entry() {
            if first.key().0 > now {
                break;
            }
            let (at, mut near) = first.remove_entry();
            let asked_at = at.0.saturating_sub(near.lead);
            let since_asked = |at: Option<Duration>| at.is_some_and(|at| at >= asked_at);
            near.offered_since_asked = since_asked(writes.offered);
            near.taken_since_asked = since_asked(writes.taken);
            self.expired.insert(at, near);
        }
    }

    /// Only a gap longer than half of a call's lead makes a difference to it.
    fn note_gap(&mut self, previous_run: Duration) {
        let (Some((shortest, _)), Some((longest, _)), Some(deadline)) = (
            self.leads.first_key_value(),
            self.leads.last_key_value(),
            self.first_deadline(),
        ) else {
            return;
        };
        if self.last_run - previous_run > *shortest / 2 {
            let asked_first = deadline.saturating_sub(*longest);
            self.gaps.note(previous_run, self.last_run, asked_first);
        }
    }

    /// Whether [`poll_wish`](Self::poll_wish) may have one.
    #[must_use]
    pub fn may_wish(&self) -> bool {
        !self.asking.is_empty()
    }

    /// The latest `ask_at` of the calls that came to it since this was last asked and still are
    /// ahead of their deadline. One wish stands for all: if evidence is fresh enough for the
    /// latest, it is for those before.
    pub fn poll_wish(&mut self) -> Option<Duration> {
        let asking = self.asking.drain(..).filter_map(|at| {
            let near = self.near.get_mut(&at)?;
            mem::take(&mut near.asking).then(|| at.0.saturating_sub(near.lead))
        });
        let latest = asking.max();
        if self.asking.capacity() > KEPT_DEADLINES {
            self.asking = Vec::new();
        }
        latest
    }

    /// Whether a call is at its deadline and has not been given out, or was deferred.
    #[must_use]
    pub fn is_due(&self) -> bool {
        !self.expired.is_empty() || !self.deferred.is_empty()
    }

    /// Takes the next call at its deadline, in the order of deadlines.
    pub fn poll_expired(&mut self) -> Option<Expired<K>> {
        let (at, near) = self.expired.pop_first()?;
        Some(self.take(at, near))
    }

    /// A call that [`poll_expired`](Self::poll_expired) has given out is not to be judged before a
    /// look.
    pub fn defer(&mut self, expired: Expired<K>) {
        let at = (expired.deadline.deadline(), expired.key);
        self.note_lead(expired.near.lead);
        self.deferred.insert(at, expired.near);
    }

    /// Takes the next call that was deferred, in the order of deadlines.
    pub fn poll_deferred(&mut self) -> Option<Expired<K>> {
        let (at, near) = self.deferred.pop_first()?;
        Some(self.take(at, near))
    }

    /// When the driver must run next: when a call comes to `ask_at`, then every quarter of the
    /// shortest lead, and at each deadline. In the past while [`is_due`](Self::is_due).
    pub fn next_run(&mut self, is_open: impl Fn(K) -> bool) -> Option<Duration> {
        let ask_at = self.upcoming.first(is_open);
        self.upcoming.shrink();
        let Some(lead) = self.shortest_lead() else {
            return ask_at;
        };
        let step = (lead / 4).max(Duration::from_nanos(1));
        let step = Some(self.last_run.saturating_add(step));
        [ask_at, step, self.first_deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// The shortest lead of the calls that have come to `ask_at` and have not been given out.
    #[must_use]
    pub fn shortest_lead(&self) -> Option<Duration> {
        self.leads.first_key_value().map(|(lead, _)| *lead)
    }

    fn first_deadline(&self) -> Option<Duration> {
        let tables = [&self.deferred, &self.expired, &self.near].into_iter();
        let first = tables.filter_map(|table| table.first_key_value());
        first.map(|((deadline, _), _)| *deadline).min()
    }

    fn tables(&mut self) -> [&mut Table<K>; 3] {
        [&mut self.near, &mut self.expired, &mut self.deferred]
    }

    fn take(&mut self, (deadline, key): (Duration, K), near: Near) -> Expired<K> {
        self.forget_lead(near.lead);
        let longest_gap = self.gaps.longest_since(near.since);
        Expired {
            key,
            deadline: CallDeadline::with_gap(deadline, near.lead, longest_gap),
            near,
        }
    }

    fn note_lead(&mut self, lead: Duration) {
        *self.leads.entry(lead).or_default() += 1;
    }

    fn forget_lead(&mut self, lead: Duration) {
        if let Entry::Occupied(mut calls) = self.leads.entry(lead) {
            *calls.get_mut() -= 1;
            if *calls.get() == 0 {
                calls.remove();
            }
        }
    }
}

impl<K: Copy + Ord> Default for Deadlines<K> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keepalive::Keepalive;

    #[test]
    fn calls_that_ask_at_one_time_leave_no_memory_behind() {
        let mut deadlines = Deadlines::new();
        let timeout = Duration::from_secs(1);
        let deadline = CallDeadline::new(Duration::ZERO, timeout, &Keepalive::on_demand());
        for key in 0..10_000 {
            deadlines.insert(key, &deadline);
        }
        deadlines.handle_run(deadline.ask_at(), Writes::default(), |_| true);
        assert_eq!(deadlines.poll_wish(), Some(deadline.ask_at()));
        assert!(deadlines.asking.capacity() <= KEPT_DEADLINES);
    }
}
