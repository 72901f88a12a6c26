//! The deadlines of open calls: one small table, so that no call has a timer of its own.

use std::collections::BTreeMap;
use std::time::Duration;

use super::call::Key;
use crate::keepalive::CallDeadline;

/// Calls ordered by `p`, the instant at which an unanswered call wants a PING, and apart from them
/// those for which it has passed.
///
/// Both are ordered: a peer that stops answers no call, so all of them may be late at once, and a
/// driver that searches for each among all the others looks dead itself meanwhile.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    upcoming: BTreeMap<(Duration, Key), CallDeadline>,
    closing: BTreeMap<(Duration, Key), Closing>,
}

/// A call between `p` and its deadline.
#[derive(Debug)]
struct Closing {
    deadline: CallDeadline,
    asked: bool,
    /// As of the first run at the deadline: what is written later does not count.
    wrote: Option<Wrote>,
}

/// What became of bytes between `p` and the deadline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wrote {
    pub(super) offered: bool,
    pub(super) taken: bool,
}

impl Deadlines {
    pub(super) fn insert(&mut self, key: Key, deadline: CallDeadline) {
        self.upcoming.insert((deadline.p(), key), deadline);
    }

    pub(super) fn remove(&mut self, key: Key, deadline: &CallDeadline) {
        let at = (deadline.p(), key);
        if self.upcoming.remove(&at).is_none() {
            self.closing.remove(&at);
        }
    }

    /// The call is known by another key from now on.
    pub(super) fn rename(&mut self, from: Key, to: Key, deadline: &CallDeadline) {
        let (from, to) = ((deadline.p(), from), (deadline.p(), to));
        if let Some(deadline) = self.upcoming.remove(&from) {
            self.upcoming.insert(to, deadline);
        } else if let Some(closing) = self.closing.remove(&from) {
            self.closing.insert(to, closing);
        }
    }

    /// Notes a run of the driver, and which calls have come to `p`.
    pub(super) fn handle_run(&mut self, previous_run: Duration, now: Duration) {
        self.approach(now);
        for closing in self.closing.values_mut() {
            closing.deadline.handle_run(previous_run, now);
        }
    }

    fn approach(&mut self, now: Duration) {
        while let Some(first) = self.upcoming.first_entry() {
            if first.key().0 > now {
                break;
            }
            let (at, deadline) = first.remove_entry();
            let closing = Closing {
                deadline,
                asked: false,
                wrote: None,
            };
            self.closing.insert(at, closing);
        }
    }

    /// Notes once for each call at its deadline what `wrote` says about the time since `p`, and
    /// returns these calls.
    pub(super) fn expired(
        &mut self,
        now: Duration,
        wrote: impl Fn(Duration) -> Wrote,
    ) -> Vec<(Key, CallDeadline, Wrote)> {
        // A call that was made within this turn may have no time at all.
        self.approach(now);
        let expired = self
            .closing
            .iter_mut()
            .filter(|(_, closing)| closing.deadline.deadline() <= now);
        expired
            .map(|((p, key), closing)| {
                let wrote = *closing.wrote.get_or_insert_with(|| wrote(*p));
                (*key, closing.deadline.clone(), wrote)
            })
            .collect()
    }

    /// The `p` of each call that wants a PING and has not said so.
    pub(super) fn ask(&mut self, now: Duration) -> impl Iterator<Item = Duration> + '_ {
        self.closing
            .values_mut()
            // A PING that leaves after the deadline tells this call nothing.
            .filter(move |closing| !closing.asked && closing.deadline.deadline() > now)
            .map(|closing| {
                closing.asked = true;
                closing.deadline.p()
            })
    }

    /// Whether a call is at its deadline.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        self.closing
            .values()
            .any(|closing| closing.deadline.deadline() <= now)
    }

    /// When the driver must run next.
    pub(super) fn next_run(&self, previous_run: Duration) -> Option<Duration> {
        let closing = self.closing.values();
        let next = closing.map(|closing| closing.deadline.next_run(previous_run));
        let upcoming = self.upcoming.first_key_value();
        next.chain(upcoming.map(|((p, _), _)| *p)).min()
    }

    pub(super) fn shortest_lead(&self) -> Option<Duration> {
        self.closing
            .values()
            .map(|closing| closing.deadline.lead())
            .min()
    }
}
