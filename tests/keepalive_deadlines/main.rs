//! The table of deadlines against one that walks through all calls, and what a run costs.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod model;

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::time::Duration;

use model::{Operation, compare};
use proptest::prelude::*;
use ttrpc_keepalive::keepalive::{CallDeadline, Deadlines, Keepalive, Writes};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn call(start: u64, timeout: u64) -> CallDeadline {
    CallDeadline::new(ms(start), ms(timeout), &Keepalive::on_demand())
}

fn run(deadlines: &mut Deadlines<u32>, now: u64) {
    deadlines.handle_run(ms(now), Writes::default(), |_| true);
}

fn expired(deadlines: &mut Deadlines<u32>) -> Vec<u32> {
    std::iter::from_fn(|| deadlines.poll_expired())
        .map(|call| call.key)
        .collect()
}

fn operation() -> impl Strategy<Value = Operation> {
    let millis = |range: std::ops::Range<u64>| range.prop_map(Duration::from_millis);
    prop_oneof![
        6 => (millis(0..400), millis(1..100), millis(0..50))
            .prop_map(|(timeout, lead, ago)| Operation::Insert { timeout, lead, ago }),
        3 => any::<prop::sample::Index>().prop_map(Operation::Remove),
        1 => any::<prop::sample::Index>().prop_map(Operation::Rename),
        8 => (millis(0..60), proptest::option::of(millis(0..60)), proptest::option::of(millis(0..60)))
            .prop_map(|(after, offered, taken)| Operation::Run { after, offered, taken }),
        3 => Just(Operation::Wish),
        3 => any::<u8>().prop_map(|deferred| Operation::Expired { deferred }),
        2 => Just(Operation::Deferred),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_table_says_what_a_walk_through_all_calls_would(operations in prop::collection::vec(operation(), 1..150)) {
        compare(&operations);
    }
}

#[test]
fn calls_come_to_their_deadlines_in_the_order_of_these() {
    let timeouts = [5, 3, 9, 1, 9, 2, 12, 7, 4];
    let mut deadlines = Deadlines::new();
    for (key, timeout) in (0..).zip(timeouts) {
        deadlines.insert(key, &call(0, 1000 * timeout));
    }
    let mut order = Vec::new();
    for second in 1..20 {
        run(&mut deadlines, 1000 * second);
        order.extend(expired(&mut deadlines));
    }
    assert_eq!(order, [3, 5, 1, 8, 0, 7, 2, 4, 6]);
    assert_eq!(deadlines.next_run(|_| true), None);
}

#[test]
fn runs_are_wanted_by_the_call_that_needs_them_most() {
    let mut deadlines = Deadlines::new();
    deadlines.insert(0, &call(0, 2000));
    deadlines.insert(1, &call(1700, 200));
    let mut runs = vec![0];
    while let Some(next) = deadlines.next_run(|_| true) {
        let next = u64::try_from(next.as_millis()).unwrap();
        runs.push(next);
        run(&mut deadlines, next);
        expired(&mut deadlines);
    }
    let long = [1750, 1812];
    let short = [1850, 1862, 1874, 1886, 1898, 1900];
    assert_eq!(runs[1..3], long);
    assert_eq!(runs[3..9], short);
    assert_eq!(runs[9..], [1962, 2000]);
}

#[test]
fn a_wish_is_that_of_the_latest_call_which_still_can_use_it() {
    let mut deadlines = Deadlines::new();
    let calls = [call(0, 1000), call(10, 1000), call(790, 20)];
    for (key, call) in (0..).zip(&calls) {
        deadlines.insert(key, call);
    }
    run(&mut deadlines, 740);
    assert_eq!(deadlines.poll_wish(), None);
    run(&mut deadlines, 805);
    deadlines.remove(1, &calls[1]);
    run(&mut deadlines, 810);
    // The last one is at its deadline: a PING tells it nothing.
    assert_eq!(deadlines.poll_wish(), Some(ms(750)));
    assert_eq!(deadlines.poll_wish(), None);
}

#[test]
fn writes_after_the_first_run_at_the_deadline_do_not_count() {
    let at = |offered, taken| Writes {
        offered: Some(ms(offered)),
        taken: Some(ms(taken)),
    };
    for (writes, facts) in [
        (Writes::default(), (false, false)),
        (at(749, 749), (false, false)),
        (at(750, 749), (true, false)),
        (at(990, 750), (true, true)),
    ] {
        let mut deadlines = Deadlines::new();
        deadlines.insert(0, &call(0, 1000));
        deadlines.handle_run(ms(1000), writes, |_| true);
        let unjudged = deadlines.poll_expired().unwrap();
        deadlines.defer(unjudged);
        deadlines.handle_run(ms(1010), at(1005, 1005), |_| true);
        assert!(deadlines.is_due() && deadlines.poll_expired().is_none());
        let call = deadlines.poll_deferred().unwrap().write_facts(true);
        assert_eq!((call.offered_since_asked, call.taken_since_asked), facts);
        assert!(!deadlines.is_due());
    }
}

#[test]
fn a_call_that_ends_at_its_deadline_or_gets_another_key_is_not_given_out_by_its_old_one() {
    let calls = [call(0, 1000), call(0, 1000), call(0, 1000), call(0, 1000)];
    let mut deadlines = Deadlines::new();
    for (key, call) in (0..).zip(&calls) {
        deadlines.insert(key, call);
    }
    let mut open = BTreeSet::from([1, 2, 3]);
    deadlines.remove(0, &calls[0]);
    open.extend([11]);
    open.remove(&1);
    deadlines.rename(1, 11, &calls[1]);
    deadlines.handle_run(ms(1000), Writes::default(), |key| open.contains(&key));
    deadlines.remove(2, &calls[2]);
    deadlines.rename(3, 13, &calls[3]);
    assert_eq!(expired(&mut deadlines), [11, 13]);
    assert_eq!(deadlines.shortest_lead(), None);
}

thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

fn step() {
    STEPS.set(STEPS.get() + 1);
}

/// A key that counts how often it is compared. All calls of the test below have the same times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counted(u32);

impl Ord for Counted {
    fn cmp(&self, other: &Self) -> Ordering {
        step();
        self.0.cmp(&other.0)
    }
}

impl PartialOrd for Counted {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

// A peer that stops has all its calls near their deadlines at once.
#[test]
fn a_turn_costs_as_much_with_100000_calls_near_their_deadlines_as_with_one() {
    const CALLS: u32 = 100_000;
    let (near, beside) = (call(0, 60_000), call(59_800, 100));
    let mut deadlines = Deadlines::new();
    let is_open = |_| {
        step();
        true
    };
    (0..CALLS).for_each(|key| deadlines.insert(Counted(key), &near));
    deadlines.handle_run(near.ask_at(), Writes::default(), is_open);
    assert_eq!(deadlines.poll_wish(), Some(near.ask_at()));
    let whole = STEPS.get() / u64::from(CALLS);
    assert!(whole < 200, "{whole} steps to come near");

    let mut now = near.ask_at();
    let mut most = 0;
    for key in CALLS..CALLS + 100 {
        let before = STEPS.get();
        now += ms(1);
        deadlines.handle_run(now, Writes::default(), is_open);
        deadlines.insert(Counted(key), &beside);
        deadlines.poll_wish();
        assert!(!deadlines.is_due() && deadlines.poll_expired().is_none());
        deadlines.next_run(is_open);
        deadlines.remove(Counted(key), &beside);
        deadlines.remove(Counted(key - CALLS), &near);
        most = most.max(STEPS.get() - before);
    }
    assert!(most < 200, "{most} steps in a turn");
}
