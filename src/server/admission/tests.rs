use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);

fn limits(handlers: usize, waiting: usize, waiting_bytes: usize) -> ServerLimits {
    ServerLimits {
        handlers,
        waiting,
        waiting_bytes,
        ..ServerLimits::default()
    }
}

fn candidate(request: u32, size: usize, deadline: Option<Duration>) -> Candidate<u32> {
    Candidate {
        request,
        size,
        deadline,
    }
}

/// A server without a limit for all connections.
fn free() -> Result<(), u64> {
    Ok(())
}

impl Admission<u32> {
    fn come(&mut self, id: u32, size: usize) -> Offer<u32, ()> {
        self.offer(id, candidate(id, size, None), free)
    }
}

#[test]
fn requests_start_up_to_the_limit_then_wait_in_order_and_are_refused_beyond_the_bounds() {
    let mut admission = Admission::new(limits(2, 2, 100));
    assert_eq!(admission.come(1, 1000), Offer::Start(1, ()));
    assert_eq!(admission.come(3, 1000), Offer::Start(3, ()));
    assert_eq!(admission.come(5, 60), Offer::Wait);
    let full = |waiting, bytes| Full {
        running: 2,
        waiting,
        bytes,
    };
    assert_eq!(admission.come(7, 41), Offer::Refuse(7, full(1, 60)));
    assert_eq!(admission.come(9, 40), Offer::Wait);
    assert_eq!(admission.come(11, 0), Offer::Refuse(11, full(2, 100)));
    assert_eq!(admission.next(free), None);
    admission.handle_end();
    assert_eq!(admission.next(free), Some((5, ())));
    assert_eq!(admission.come(13, 60), Offer::Wait, "behind 9");
    admission.handle_end();
    admission.handle_end();
    assert_eq!(admission.next(free), Some((9, ())));
    assert_eq!(admission.next(free), Some((13, ())));
    assert_eq!((admission.next(free), admission.len()), (None, 2));
}

#[test]
fn any_request_may_wait_if_no_other_does() {
    let mut admission = Admission::new(limits(1, 1, 10));
    admission.come(1, 0);
    assert_eq!(admission.come(3, 1000), Offer::Wait);
}

#[test]
fn what_has_expired_makes_room_and_nothing_else_does() {
    let mut admission = Admission::new(limits(1, 3, 100));
    admission.come(1, 0);
    for (id, deadline) in [(3, Some(20 * MS)), (5, Some(10 * MS)), (7, None)] {
        let offer = admission.offer(id, candidate(id, 10, deadline), free);
        assert_eq!(offer, Offer::Wait);
    }
    assert!(admission.make_room(1, 9 * MS).is_empty());
    assert_eq!(admission.make_room(1, 20 * MS), [5, 3]);
    assert!(admission.make_room(1, 30 * MS).is_empty(), "there is room");
    assert_eq!((admission.bytes, admission.deadlines.len()), (10, 0));
}

#[test]
fn messages_count_while_their_request_waits() {
    let mut admission = Admission::new(limits(1, 8, 200));
    admission.come(1, 0);
    admission.come(3, 10);
    for id in [1, 99] {
        assert_eq!(
            admission.handle_message(id, 1 << 20),
            Ok(()),
            "it waits not"
        );
    }
    assert_eq!(admission.handle_message(3, 100), Ok(()));
    let overflow = Overflow {
        size: 174 + MESSAGE_OVERHEAD,
        limit: 200,
    };
    assert_eq!(admission.handle_message(3, 0), Err(overflow));
    assert_eq!(admission.remove(3), Some(3));
    assert_eq!(admission.bytes, 0);
}

#[test]
fn nothing_starts_before_the_connections_turn_for_a_slot() {
    let mut admission = Admission::new(limits(2, 8, 100));
    let offer = admission.offer(1, candidate(1, 0, None), || Err::<(), _>(7));
    assert_eq!(offer, Offer::Wait);
    assert_eq!(admission.come(3, 0), Offer::Wait);
    assert_eq!(admission.next(free), None);
    admission.handle_grant();
    assert_eq!(admission.next(free), Some((1, ())));
    assert_eq!(admission.next(|| Err::<(), _>(8)), None);
    assert_eq!(admission.drain(), (vec![3], Some(8)));
    assert_eq!(admission.drain(), (vec![], None));
}

#[test]
fn a_slot_goes_to_the_connection_that_has_waited_longest() {
    let mut slots = Slots::new(2);
    assert!(slots.take() && slots.take() && !slots.take());
    let a = slots.enter("a");
    let b = slots.enter("b");
    slots.enter("c");
    assert_eq!(slots.leave(b), Some("b"));
    assert_eq!(slots.give_back(), Some("a"));
    assert_eq!(slots.leave(a), None, "its slot is on its way");
    assert!(!slots.take());
    assert_eq!(slots.give_back(), Some("c"));
    assert_eq!(slots.give_back(), None);
    assert!(slots.take() && !slots.take());
}

#[test]
fn a_method_has_as_many_calls_as_it_may() {
    let calls = CallLimit::new(2);
    let first = calls.permit();
    let second = calls.permit();
    assert!(first.is_some() && second.is_some() && calls.permit().is_none());
    drop(first);
    assert!(calls.permit().is_some());
}

/// What may happen to the requests of a connection.
#[derive(Clone, Debug)]
enum Step {
    Come { size: usize, deadline: Option<u8> },
    End,
    Next,
    Message { back: u32, length: usize },
    Remove { back: u32 },
    Pass { time: u8 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..60_usize, any::<Option<u8>>())
            .prop_map(|(size, deadline)| Step::Come { size, deadline }),
        2 => Just(Step::End),
        1 => Just(Step::Next),
        1 => (0..8_u32, 0..60_usize).prop_map(|(back, length)| Step::Message { back, length }),
        1 => (0..8_u32).prop_map(|back| Step::Remove { back }),
        1 => (0..64_u8).prop_map(|time| Step::Pass { time }),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    #[test]
    fn every_request_starts_once_and_in_order_or_is_given_back(steps in steps()) {
        let limits = limits(3, 4, 200);
        let mut admission = Admission::new(limits);
        // The server has two slots, of which others have none.
        let mut slots = Slots::new(2);
        let (mut newest, mut now) = (0, Duration::ZERO);
        let mut waiting = VecDeque::new();
        let mut started = 0;
        let mut running = 0;
        for step in steps {
            let mut slot = || if slots.take() { Ok(()) } else { Err(slots.enter(())) };
            match step {
                Step::Come { size, deadline } => {
                    newest += 2;
                    let deadline = deadline.map(|ms| now + u32::from(ms) * MS);
                    for expired in admission.make_room(size, now) {
                        prop_assert!(waiting.contains(&expired));
                        waiting.retain(|id| *id != expired);
                    }
                    match admission.offer(newest, candidate(newest, size, deadline), slot) {
                        Offer::Start(id, ()) => {
                            prop_assert!(waiting.is_empty());
                            (started, running) = (id, running + 1);
                        }
                        Offer::Wait => waiting.push_back(newest),
                        Offer::Refuse(id, _) => prop_assert!(id == newest && !waiting.is_empty()),
                    }
                }
                Step::End if running > 0 => {
                    running -= 1;
                    admission.handle_end();
                    if slots.give_back().is_some() {
                        admission.handle_grant();
                        if let Some((id, ())) = admission.next(free) {
                            prop_assert_eq!(Some(id), waiting.pop_front());
                            (started, running) = (id, running + 1);
                        } else {
                            slots.give_back();
                        }
                    }
                }
                Step::Next => {
                    while let Some((id, ())) = admission.next(&mut slot) {
                        prop_assert_eq!(Some(id), waiting.pop_front());
                        prop_assert!(id > started);
                        (started, running) = (id, running + 1);
                    }
                }
                Step::Message { back, length } => {
                    let id = newest.saturating_sub(2 * back);
                    let _ = admission.handle_message(id, length);
                }
                Step::Remove { back } => {
                    let id = newest.saturating_sub(2 * back);
                    let waits = waiting.contains(&id);
                    prop_assert_eq!(admission.remove(id), waits.then_some(id));
                    waiting.retain(|other| *other != id);
                }
                Step::Pass { time } => now += u32::from(time) * MS,
                Step::End => {}
            }
            prop_assert!(running <= 2, "the server's slots");
            prop_assert!(waiting.len() <= limits.waiting);
            prop_assert!(admission.bytes <= limits.waiting_bytes.max(60));
            prop_assert_eq!(admission.len(), running + waiting.len());
            let sizes: usize = admission.waiting.values().map(|candidate| candidate.size).sum();
            prop_assert_eq!(admission.bytes, sizes);
        }
        let left: Vec<_> = waiting.into();
        prop_assert_eq!(admission.drain().0, left);
        prop_assert!(admission.deadlines.is_empty());
    }
}
