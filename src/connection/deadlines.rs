//! The deadlines of open calls: one small table, so that no call has a timer of its own.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

use super::call::{Key, OpenCalls};
use crate::keepalive::CallDeadline;

/// Entries of calls that have ended which are kept, beside as many as there are open calls.
const SLACK: usize = 16;

/// Calls by `p`, the instant at which an unanswered call wants a PING, and apart from them those for
/// which it has passed.
///
/// Both are ordered: a peer that stops answers no call, so all of them may be late at once, and a
/// driver that searches for each among all the others looks dead itself meanwhile.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    /// Nearly all calls end long before `p`. They are left in here until they come to the front, or
    /// are more than those that are open.
    upcoming: Upcoming,
    closing: BTreeMap<(Duration, Key), Closing>,
}

/// Calls by `p`. Most have the same timeout and come in their order, which is cheaper than sorting.
#[derive(Debug, Default)]
struct Upcoming {
    in_order: VecDeque<(Duration, Key)>,
    others: BinaryHeap<Reverse<(Duration, Key)>>,
}

impl Upcoming {
    fn push(&mut self, p: Duration, key: Key) {
        if self.in_order.back().is_none_or(|(last, _)| *last <= p) {
            self.in_order.push_back((p, key));
        } else {
            self.others.push(Reverse((p, key)));
        }
    }

    fn first(&self) -> Option<(Duration, Key)> {
        let in_order = self.in_order.front().copied();
        match (in_order, self.others.peek()) {
            (first, None) => first,
            (None, Some(Reverse(first))) => Some(*first),
            (Some(one), Some(Reverse(other))) => Some(one.min(*other)),
        }
    }

    /// Takes off the one that is `first`.
    fn pop(&mut self, first: (Duration, Key)) {
        if self.others.is_empty() || self.in_order.front() == Some(&first) {
            self.in_order.pop_front();
        } else {
            self.others.pop();
        }
    }

    fn len(&self) -> usize {
        self.in_order.len() + self.others.len()
    }

    fn retain(&mut self, keep: impl Fn(Key) -> bool) {
        self.in_order.retain(|(_, key)| keep(*key));
        self.others.retain(|Reverse((_, key))| keep(*key));
    }
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
    pub(super) fn insert(&mut self, key: Key, deadline: &CallDeadline) {
        self.upcoming.push(deadline.ask_at(), key);
    }

    pub(super) fn remove(&mut self, key: Key, deadline: &CallDeadline) {
        if !self.closing.is_empty() {
            self.closing.remove(&(deadline.ask_at(), key));
        }
    }

    /// The call is known by another key from now on.
    pub(super) fn rename(&mut self, from: Key, to: Key, deadline: &CallDeadline) {
        match self.closing.remove(&(deadline.ask_at(), from)) {
            Some(closing) => {
                self.closing.insert((deadline.ask_at(), to), closing);
            }
            None => self.insert(to, deadline),
        }
    }

    /// Notes a run of the driver, and which calls have come to `p`.
    pub(super) fn handle_run(&mut self, previous_run: Duration, now: Duration, open: &OpenCalls) {
        self.approach(now, open);
        for closing in self.closing.values_mut() {
            closing.deadline.handle_run(previous_run, now);
        }
        if self.upcoming.len() > 2 * open.len() + SLACK {
            self.upcoming.retain(|key| open.deadline(key).is_some());
        }
    }

    fn approach(&mut self, now: Duration, open: &OpenCalls) {
        while let Some((p, key, deadline)) = self.first(open) {
            if p > now {
                break;
            }
            let closing = Closing {
                deadline: deadline.clone(),
                asked: false,
                wrote: None,
            };
            self.upcoming.pop((p, key));
            self.closing.insert((p, key), closing);
        }
    }

    /// The open call that comes to `p` first.
    fn first<'a>(&mut self, open: &'a OpenCalls) -> Option<(Duration, Key, &'a CallDeadline)> {
        loop {
            let (p, key) = self.upcoming.first()?;
            if let Some(deadline) = open.deadline(key) {
                return Some((p, key, deadline));
            }
            self.upcoming.pop((p, key));
        }
    }

    /// Notes once for each call at its deadline what `wrote` says about the time since `p`, and
    /// returns these calls.
    pub(super) fn expired(
        &mut self,
        now: Duration,
        open: &OpenCalls,
        wrote: impl Fn(Duration) -> Wrote,
    ) -> Vec<(Key, CallDeadline, Wrote)> {
        // A call that was made within this turn may have no time at all.
        self.approach(now, open);
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
                closing.deadline.ask_at()
            })
    }

    /// Whether a call is at its deadline.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        self.closing
            .values()
            .any(|closing| closing.deadline.deadline() <= now)
    }

    /// When the driver must run next.
    pub(super) fn next_run(
        &mut self,
        previous_run: Duration,
        open: &OpenCalls,
    ) -> Option<Duration> {
        let upcoming = self.first(open).map(|(p, ..)| p);
        let closing = self.closing.values();
        let next = closing.map(|closing| closing.deadline.next_run(previous_run));
        next.chain(upcoming).min()
    }

    pub(super) fn shortest_lead(&self) -> Option<Duration> {
        self.closing
            .values()
            .map(|closing| closing.deadline.lead())
            .min()
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::super::call::Call;
    use super::*;
    use crate::keepalive::Keepalive;
    use crate::streams::PeerHalf;
    use crate::wire::Flags;

    const SECOND: Duration = Duration::from_secs(1);

    fn call(timeout: Duration) -> Call {
        Call {
            started: Duration::ZERO,
            timeout: Some(timeout),
            deadline: Some(CallDeadline::new(
                Duration::ZERO,
                timeout,
                &Keepalive::on_demand(),
            )),
            flags: Flags::NONE,
            peer: PeerHalf::Answer(oneshot::channel().0),
        }
    }

    fn insert(deadlines: &mut Deadlines, open: &mut OpenCalls, ticket: u64, timeout: Duration) {
        let call = call(timeout);
        deadlines.insert(Key::Ticket(ticket), call.deadline.as_ref().unwrap());
        open.waiting.insert(ticket, call);
    }

    #[test]
    fn calls_that_have_ended_are_forgotten_although_one_in_front_of_them_is_open() {
        let (mut deadlines, mut open) = (Deadlines::default(), OpenCalls::new(0));
        insert(&mut deadlines, &mut open, 0, SECOND);
        for ticket in 1..10_000 {
            insert(&mut deadlines, &mut open, ticket, 2 * SECOND);
            open.waiting.remove(&ticket);
            deadlines.handle_run(Duration::ZERO, Duration::ZERO, &open);
            assert!(deadlines.upcoming.len() <= 2 + SLACK);
        }
        let first = deadlines.next_run(Duration::ZERO, &open);
        assert_eq!(first, Some(SECOND - SECOND / 4));
        open.waiting.remove(&0);
        assert_eq!(deadlines.next_run(Duration::ZERO, &open), None);
        assert_eq!(deadlines.upcoming.len(), 0);
    }

    #[test]
    fn calls_come_to_their_deadline_in_its_order_whatever_that_of_their_beginning() {
        let (mut deadlines, mut open) = (Deadlines::default(), OpenCalls::new(0));
        let timeouts = [5, 3, 9, 1, 9, 2, 12, 7, 4];
        for (ticket, timeout) in (0..).zip(timeouts) {
            insert(&mut deadlines, &mut open, ticket, timeout * SECOND);
        }
        let mut order = Vec::new();
        for now in 1..20 {
            let now = now * SECOND;
            deadlines.handle_run(now, now, &open);
            let wrote = |_| Wrote {
                offered: true,
                taken: true,
            };
            for (key, deadline, _) in deadlines.expired(now, &open, wrote) {
                let Key::Ticket(ticket) = key else {
                    panic!("{key:?}")
                };
                open.waiting.remove(&ticket);
                deadlines.remove(key, &deadline);
                order.push(timeouts[usize::try_from(ticket).unwrap()]);
            }
        }
        assert_eq!(order, [1, 2, 3, 4, 5, 7, 9, 9, 12]);
    }
}
