//! Random lists of operations: the machine keeps its promises and agrees with a second one written
//! from the rules.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod compare;
mod model;
mod operations;

use std::time::Duration;

use compare::compare;
use operations::{Checked, Operation, Step, VERDICTS, When, decode, unread};
use proptest::prelude::*;

fn when() -> impl Strategy<Value = When> {
    let later = |millis| When::Later(Duration::from_millis(millis));
    prop_oneof![
        6 => Just(When::Due),
        6 => (0..60_u64).prop_map(later),
        2 => (60..4000_u64).prop_map(later),
        1 => (0..60_u64).prop_map(|millis| When::Back(Duration::from_millis(millis))),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let lead = proptest::option::of((1..250_u64).prop_map(Duration::from_millis));
    let number = proptest::option::of(0..12_u64);
    prop_oneof![
        1 => Just(Operation::Connected),
        4 => Just(Operation::Bytes),
        2 => Just(Operation::Ping),
        4 => (number, any::<bool>())
            .prop_map(|(number, handlers_stalled)| Operation::Pong { number, handlers_stalled }),
        1 => Just(Operation::Response),
        12 => Just(Operation::Flushed),
        2 => Just(Operation::Blocked),
        2 => any::<bool>().prop_map(|still_blocked| Operation::Progress { still_blocked }),
        1 => Just(Operation::Withdrawn),
        4 => Just(Operation::CallStarted),
        2 => Just(Operation::CallEnded),
        2 => Just(Operation::CallLate),
        2 => Just(Operation::LateCallEnded),
        1 => Just(Operation::ProbeStarted),
        1 => Just(Operation::ProbeEnded),
        3 => (0..200_u64).prop_map(|millis| Operation::Wish { ago: Duration::from_millis(millis) }),
        1 => Just(Operation::Parked),
        2 => Just(Operation::Resumed),
        4 => lead.prop_map(|lead| Operation::Run { lead }),
        24 => (prop::bool::weighted(0.9), any::<bool>(), any::<u8>())
            .prop_map(|(drained, write_refused, argument)| {
                Operation::Look { drained, write_refused, unread: unread(argument) }
            }),
        4 => Just(Operation::Timeout),
        2 => prop::sample::select(&VERDICTS[..]).prop_map(Operation::Verdict),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (when(), operation()).prop_map(|(when, operation)| Step { when, operation });
    (
        prop::collection::vec(step, 1..120),
        prop::bool::weighted(0.1),
    )
        .prop_map(|(mut steps, closed)| {
            if closed {
                let middle = steps.len() / 2;
                steps[middle].operation = Operation::Closed;
            }
            steps
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn machine_agrees_with_the_model_and_keeps_its_promises(choice in any::<u8>(), steps in steps()) {
        compare(choice, &steps);
    }

    #[test]
    fn same_inputs_give_the_same_outputs(choice in any::<u8>(), steps in steps()) {
        let (mut one, mut other) = (Checked::new(choice), Checked::new(choice));
        for &step in &steps {
            prop_assert_eq!(one.take(step), other.take(step));
            prop_assert_eq!(&one.events, &other.events);
            prop_assert_eq!(one.seen(), other.seen());
        }
    }

    #[test]
    fn bytes_of_any_kind_make_lists_on_which_they_agree(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let (choice, steps) = decode(&bytes);
        compare(choice, &steps);
    }
}

// A model test that never meets a death proves nothing of deaths.
#[test]
fn random_lists_reach_every_state() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let (mut suspects, mut silent, mut not_reading, mut recoveries, mut stalls, mut pongs) =
        (0, 0, 0, 0, 0, 0);
    let (mut receipts, mut unread) = (0, 0);
    for _ in 0..300 {
        let (choice, steps) = (any::<u8>(), steps())
            .new_tree(&mut runner)
            .unwrap()
            .current();
        let checked = compare(choice, &steps);
        let counters = checked.seen().counters;
        receipts += checked.receipts;
        unread += checked.unread;
        suspects += counters.suspect_entries;
        silent += counters.convictions_silent;
        not_reading += counters.convictions_not_reading;
        recoveries += counters.recoveries;
        stalls += counters.local_stalls;
        pongs += counters.pongs_received;
    }
    let reached = [
        suspects,
        silent,
        not_reading,
        recoveries,
        stalls,
        pongs,
        receipts,
        unread,
    ];
    println!(
        "suspect, silent, not reading, recovered, stalled, PONGs, receipts, unread: {reached:?}"
    );
    assert!(reached.iter().all(|&count| count >= 10), "{reached:?}");
}
