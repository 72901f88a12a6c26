//! The same rules, by a walk through all calls for each question.

use std::time::Duration;

use proptest::sample::Index;
use ttrpc_keepalive::keepalive::{CallDeadline, Deadlines, Expired, Keepalive, Writes};

#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Insert {
        timeout: Duration,
        lead: Duration,
        /// The call began so long before it is known.
        ago: Duration,
    },
    Remove(Index),
    Rename(Index),
    Run {
        after: Duration,
        offered: Option<Duration>,
        taken: Option<Duration>,
    },
    Wish,
    /// A bit of `deferred` says of each call whether it is.
    Expired {
        deferred: u8,
    },
    Deferred,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    Upcoming,
    Near,
    Expired,
    Deferred,
}

#[derive(Debug)]
struct Call {
    key: u32,
    deadline: CallDeadline,
    stage: Stage,
    asking: bool,
    facts: (bool, bool),
}

#[derive(Default)]
struct Model {
    calls: Vec<Call>,
    last_run: Duration,
}

impl Model {
    fn handle_run(&mut self, now: Duration, writes: Writes) {
        for call in &mut self.calls {
            call.deadline.handle_run(self.last_run, now);
            let ask_at = call.deadline.ask_at();
            if call.stage == Stage::Upcoming && ask_at <= now {
                (call.stage, call.asking) = (Stage::Near, true);
            }
            if call.stage == Stage::Near && call.deadline.deadline() <= now {
                call.stage = Stage::Expired;
                let since = |at: Option<Duration>| at >= Some(ask_at);
                call.facts = (since(writes.offered), since(writes.taken));
            }
        }
        self.last_run = now;
    }

    fn wish(&mut self) -> Option<Duration> {
        let asking = self.calls.iter_mut().map(|call| {
            let asking = std::mem::take(&mut call.asking);
            (asking, call)
        });
        let asking = asking.filter_map(|(asking, call)| asking.then_some(call));
        let ahead = asking.filter(|call| call.stage == Stage::Near);
        ahead.map(|call| call.deadline.ask_at()).max()
    }

    fn take(&mut self, stage: Stage) -> Vec<Call> {
        let (mut taken, kept): (Vec<_>, _) =
            self.calls.drain(..).partition(|call| call.stage == stage);
        self.calls = kept;
        taken.sort_by_key(|call| (call.deadline.deadline(), call.key));
        taken
    }

    fn next_run(&self) -> Option<Duration> {
        let next = self.calls.iter().map(|call| match call.stage {
            Stage::Upcoming => call.deadline.ask_at(),
            _ => call.deadline.next_run(self.last_run),
        });
        next.min()
    }

    fn shortest_lead(&self) -> Option<Duration> {
        let near = self
            .calls
            .iter()
            .filter(|call| call.stage != Stage::Upcoming);
        near.map(|call| call.deadline.lead()).min()
    }

    fn is_due(&self) -> bool {
        let mut calls = self.calls.iter();
        calls.any(|call| matches!(call.stage, Stage::Expired | Stage::Deferred))
    }

    fn is_open(&self, key: u32) -> bool {
        self.calls.iter().any(|call| call.key == key)
    }
}

fn agree(expired: &Expired<u32>, call: &Call) {
    let (found, wanted) = (&expired.deadline, &call.deadline);
    assert_eq!(expired.key, call.key);
    assert_eq!(found.deadline(), wanted.deadline());
    assert_eq!(found.lead(), wanted.lead());
    let facts = expired.write_facts(true);
    let facts = (facts.offered_since_asked, facts.taken_since_asked);
    assert_eq!(facts, call.facts);
    let decides = |call: &CallDeadline| call.longest_gap() > call.lead() / 2;
    assert_eq!(decides(found), decides(wanted));
    if decides(wanted) {
        assert_eq!(found.longest_gap(), wanted.longest_gap());
    }
}

pub(crate) fn compare(operations: &[Operation]) {
    let (mut deadlines, mut model) = (Deadlines::new(), Model::default());
    let mut now = Duration::ZERO;
    for (key, operation) in (0..).zip(operations) {
        let of = |index: &Index| (!model.calls.is_empty()).then(|| index.index(model.calls.len()));
        match operation {
            Operation::Insert { timeout, lead, ago } => {
                let keepalive = Keepalive::on_demand().probe_before_deadline(*lead);
                let deadline = CallDeadline::new(now.saturating_sub(*ago), *timeout, &keepalive);
                deadlines.insert(key, &deadline);
                model.calls.push(Call {
                    key,
                    deadline,
                    stage: Stage::Upcoming,
                    asking: false,
                    facts: (false, false),
                });
            }
            Operation::Remove(index) => {
                if let Some(index) = of(index) {
                    let call = model.calls.remove(index);
                    deadlines.remove(call.key, &call.deadline);
                }
            }
            Operation::Rename(index) => {
                if let Some(index) = of(index) {
                    let call = &mut model.calls[index];
                    deadlines.rename(call.key, key, &call.deadline);
                    call.key = key;
                }
            }
            Operation::Run {
                after,
                offered,
                taken,
            } => {
                let ago = |ago: &Option<Duration>| ago.map(|ago| now.saturating_sub(ago));
                let writes = Writes {
                    offered: ago(offered),
                    taken: ago(taken),
                };
                now += *after;
                deadlines.handle_run(now, writes, |key| model.is_open(key));
                model.handle_run(now, writes);
            }
            Operation::Wish => assert_eq!(deadlines.poll_wish(), model.wish()),
            Operation::Expired { deferred } => {
                for (index, mut call) in model.take(Stage::Expired).into_iter().enumerate() {
                    let expired = deadlines.poll_expired().unwrap();
                    agree(&expired, &call);
                    if deferred >> (index % 8) & 1 == 1 {
                        deadlines.defer(expired);
                        call.stage = Stage::Deferred;
                        model.calls.push(call);
                    } else {
                        deadlines.remove(call.key, &call.deadline);
                    }
                }
                assert!(deadlines.poll_expired().is_none());
            }
            Operation::Deferred => {
                for call in model.take(Stage::Deferred) {
                    agree(&deadlines.poll_deferred().unwrap(), &call);
                }
                assert!(deadlines.poll_deferred().is_none());
            }
        }
        assert_eq!(deadlines.is_due(), model.is_due());
        assert_eq!(deadlines.shortest_lead(), model.shortest_lead());
        let next = deadlines.next_run(|key| model.is_open(key));
        assert_eq!(next, model.next_run());
    }
}
