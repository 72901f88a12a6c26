//! Calls that have not come to `ask_at`.

use crate::tuning::{KEPT_DEADLINES, TOLERATED_ENTRIES};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

/// Nearly all calls end before `ask_at`. They are left in here until they come to the front, or are
/// more than those that are open.
#[derive(Debug)]
pub(super) struct Upcoming<K> {
    /// Most calls have the same timeout and come in their order, which is cheaper than sorting.
    in_order: VecDeque<Ask<K>>,
    others: BinaryHeap<Reverse<Ask<K>>>,
    ended: usize,
}

/// When a call asks whether its peer lives, and for how long after that it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ask<K> {
    pub(super) at: Duration,
    pub(super) key: K,
    pub(super) lead: Duration,
}

impl<K: Copy + Ord> Upcoming<K> {
    pub(super) fn push(&mut self, ask: Ask<K>) {
        if self.in_order.back().is_none_or(|last| last.at <= ask.at) {
            self.in_order.push_back(ask);
        } else {
            self.others.push(Reverse(ask));
        }
    }

    /// One of the calls in here has ended.
    pub(super) const fn note_ended(&mut self) {
        self.ended = self.ended.saturating_add(1);
    }

    /// When the first open call comes to `ask_at`.
    pub(super) fn first(&mut self, is_open: impl Fn(K) -> bool) -> Option<Duration> {
        loop {
            let first = self.peek()?;
            if is_open(first.key) {
                return Some(first.at);
            }
            self.pop();
            self.ended = self.ended.saturating_sub(1);
        }
    }

    /// Takes the first open call if it has come to `ask_at`. Nobody is asked who is open if none
    /// has, as in most runs.
    pub(super) fn pop_until(
        &mut self,
        now: Duration,
        is_open: impl Fn(K) -> bool,
    ) -> Option<Ask<K>> {
        while self.peek().is_some_and(|first| first.at <= now) {
            let first = self.pop()?;
            if is_open(first.key) {
                return Some(first);
            }
            self.ended = self.ended.saturating_sub(1);
        }
        None
    }

    fn peek(&self) -> Option<&Ask<K>> {
        let other = self.others.peek().map(|Reverse(other)| other);
        match (self.in_order.front(), other) {
            (Some(first), Some(other)) => Some(first.min(other)),
            (first, other) => first.or(other),
        }
    }

    /// Takes what [`peek`](Self::peek) finds.
    fn pop(&mut self) -> Option<Ask<K>> {
        let other = self.others.peek().map(|Reverse(other)| other);
        let first = self.in_order.front();
        if first.is_some_and(|first| other.is_none_or(|other| first <= other)) {
            return self.in_order.pop_front();
        }
        self.others.pop().map(|Reverse(other)| other)
    }

    /// Walks through the calls only after as many have ended, so it costs each of them a step.
    pub(super) fn compact(&mut self, is_open: impl Fn(K) -> bool) {
        let len = self.in_order.len() + self.others.len();
        if self.ended > len / 2 + TOLERATED_ENTRIES {
            self.in_order.retain(|ask| is_open(ask.key));
            self.others.retain(|Reverse(ask)| is_open(ask.key));
            self.ended = 0;
        }
    }

    /// Gives back the memory of a burst that is over.
    pub(super) fn shrink(&mut self) {
        if self.in_order.capacity() > 4 * self.in_order.len() + KEPT_DEADLINES {
            self.in_order.shrink_to(2 * self.in_order.len());
        }
        if self.others.capacity() > 4 * self.others.len() + KEPT_DEADLINES {
            self.others.shrink_to(2 * self.others.len());
        }
    }
}

impl<K> Default for Upcoming<K> {
    fn default() -> Self {
        Self {
            in_order: VecDeque::new(),
            others: BinaryHeap::new(),
            ended: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(seconds: u64, key: u32) -> Ask<u32> {
        let at = Duration::from_secs(seconds);
        Ask { at, key, lead: at }
    }

    #[test]
    fn calls_that_have_ended_are_forgotten_although_one_in_front_of_them_is_open() {
        let mut upcoming = Upcoming::default();
        upcoming.push(ask(1, 0));
        for key in 1..10_000 {
            upcoming.push(ask(3 - u64::from(key % 2), key));
            upcoming.note_ended();
            upcoming.compact(|key| key == 0);
            assert!(upcoming.in_order.len() + upcoming.others.len() <= 2 * TOLERATED_ENTRIES + 2);
        }
        assert_eq!(upcoming.first(|key| key == 0), Some(ask(1, 0).at));
        assert_eq!(upcoming.first(|_| false), None);
    }

    #[test]
    fn a_burst_gives_its_memory_back() {
        let mut upcoming = Upcoming::default();
        for key in 0..60_000 {
            upcoming.push(ask(3 - u64::from(key % 2), key));
        }
        let places = |it: &Upcoming<u32>| it.in_order.capacity() + it.others.capacity();
        upcoming.shrink();
        assert!(places(&upcoming) >= 60_000);
        upcoming.first(|_| false);
        upcoming.shrink();
        assert!(places(&upcoming) <= 2 * KEPT_DEADLINES);
    }
}
