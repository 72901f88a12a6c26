//! The calls that are seen to pass.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use ttrpc_keepalive::keepalive::{CallDeadline, Deadlines, Expired, Keepalive, Writes};

/// Calls followed on one connection. Those beyond are passed on like the others, and neither keep
/// the watch nor are asked for.
const OPEN: usize = 65_536;

/// Late calls whose answer is waited for. Beyond it the oldest is forgotten.
const LATE: usize = 1024;

/// Calls in flight, the deadlines of those with a limit, and late calls.
#[derive(Debug)]
pub(crate) struct Calls {
    keepalive: Keepalive,
    open: BTreeMap<u32, Open>,
    /// When the peer of a call is judged, and when it is asked before that.
    deadlines: Deadlines<Key>,
    /// Calls whose peer was judged, by their end.
    judged: BTreeSet<(Duration, u32)>,
    late: VecDeque<u32>,
}

/// The id and the beginning: a wrapped side that uses an id again begins another call.
type Key = (u32, Duration);

#[derive(Debug)]
struct Open {
    began: Duration,
    limit: Option<Limit>,
}

#[derive(Debug)]
struct Limit {
    verdict: CallDeadline,
    end: Duration,
}

/// What a RESPONSE ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Call,
    Late,
    Nothing,
}

impl Calls {
    pub(crate) fn new(keepalive: &Keepalive) -> Self {
        Self {
            keepalive: keepalive.clone(),
            open: BTreeMap::new(),
            deadlines: Deadlines::new(),
            judged: BTreeSet::new(),
            late: VecDeque::new(),
        }
    }

    /// A REQUEST passes. Says whether the call is followed.
    pub(crate) fn begin(&mut self, id: u32, now: Duration) -> bool {
        let followed = self.open.len() < OPEN && !self.open.contains_key(&id);
        if followed {
            let call = Open {
                began: now,
                limit: None,
            };
            self.open.insert(id, call);
        }
        followed
    }

    /// The REQUEST of this call gives its server so long.
    pub(crate) fn limit(&mut self, id: u32, timeout: Duration) {
        let Some(Open {
            began,
            limit: limit @ None,
        }) = self.open.get_mut(&id)
        else {
            return;
        };
        // The wrapped side took its own time before the request came here. What it is to find when
        // its timer fires must be known before ours does.
        let early = timeout - self.keepalive.lead_for(timeout) / 4;
        let verdict = CallDeadline::new(*began, early, &self.keepalive);
        self.deadlines.insert((id, *began), &verdict);
        *limit = Some(Limit {
            verdict,
            end: began.saturating_add(timeout),
        });
    }

    /// A frame passes that ends the call.
    pub(crate) fn end(&mut self, id: u32) -> Ended {
        match self.open.remove(&id) {
            Some(Open { began, limit }) => {
                if let Some(limit) = limit {
                    self.deadlines.remove((id, began), &limit.verdict);
                    self.judged.remove(&(limit.end, id));
                }
                Ended::Call
            }
            None => match self.late.iter().position(|&late| late == id) {
                Some(at) => {
                    self.late.remove(at);
                    Ended::Late
                }
                None => Ended::Nothing,
            },
        }
    }

    /// Notes a run. `writes` are those before it.
    pub(crate) fn handle_run(&mut self, now: Duration, writes: Writes) {
        let open = &self.open;
        self.deadlines
            .handle_run(now, writes, |key| is_open(open, key));
    }

    /// When the latest of the calls that want a PING, and have not said so, came to want it.
    pub(crate) fn poll_wish(&mut self) -> Option<Duration> {
        self.deadlines.poll_wish()
    }

    pub(crate) fn may_wish(&self) -> bool {
        self.deadlines.may_wish()
    }

    /// Whether a call is to be judged, or late.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        let end = self.judged.first();
        self.deadlines.is_due() || end.is_some_and(|(end, _)| *end <= now)
    }

    /// The next call on whose peer it is time to say something. Each is named once.
    pub(crate) fn poll_judged(&mut self) -> Option<Expired<Key>> {
        let expired = self.deadlines.poll_expired()?;
        let id = expired.key.0;
        let limit = self.open.get(&id).and_then(|call| call.limit.as_ref());
        self.judged.extend(limit.map(|limit| (limit.end, id)));
        Some(expired)
    }

    /// Moves calls that have run out of time to the late ones. Says how many, and how many older
    /// late ones are forgotten for them.
    pub(crate) fn expire(&mut self, now: Duration) -> (usize, usize) {
        let mut late = 0;
        while let Some((_, id)) = self.judged.first().copied().filter(|(end, _)| *end <= now) {
            self.judged.pop_first();
            self.open.remove(&id);
            self.late.push_back(id);
            late += 1;
        }
        let forgotten = self.late.len().saturating_sub(LATE);
        self.late.drain(..forgotten);
        (late, forgotten)
    }

    /// When the next run is wanted.
    pub(crate) fn next_run(&mut self) -> Option<Duration> {
        let open = &self.open;
        let next = self.deadlines.next_run(|key| is_open(open, key));
        let end = self.judged.first().map(|(end, _)| *end);
        next.into_iter().chain(end).min()
    }

    pub(crate) fn shortest_lead(&self) -> Option<Duration> {
        self.deadlines.shortest_lead()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.open.len()
    }

    /// When the oldest call without an answer began: ids grow.
    pub(crate) fn oldest(&self) -> Option<Duration> {
        let (_, oldest) = self.open.first_key_value()?;
        Some(oldest.began)
    }

    pub(crate) fn late(&self) -> usize {
        self.late.len()
    }
}

fn is_open(open: &BTreeMap<u32, Open>, (id, began): Key) -> bool {
    open.get(&id).is_some_and(|call| call.began == began)
}
