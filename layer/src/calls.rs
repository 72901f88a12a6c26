//! The calls that are seen to pass.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ttrpc_keepalive::keepalive::{CallDeadline, Keepalive};

/// Calls followed on one connection. Those beyond are passed on like the others, and neither keep
/// the watch nor are asked for.
const OPEN: usize = 65_536;

/// Late calls whose answer is waited for. Beyond it the oldest is forgotten.
const LATE: usize = 1024;

/// Calls in flight, those with a limit in the order in which they want a PING, and late ones.
#[derive(Debug)]
pub(crate) struct Calls {
    keepalive: Keepalive,
    open: BTreeMap<u32, Open>,
    /// By the instant at which an unanswered call wants a PING.
    upcoming: BTreeMap<(Duration, u32), Limit>,
    /// Those for which it has passed.
    closing: BTreeMap<(Duration, u32), Limit>,
    late: VecDeque<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    began: Duration,
    /// Where a call with a limit stands in the tables of those.
    place: Option<Duration>,
}

#[derive(Clone, Debug)]
struct Limit {
    /// When the peer is judged, and when it is asked before that.
    judged: CallDeadline,
    end: Duration,
    asked: bool,
    told: bool,
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
            upcoming: BTreeMap::new(),
            closing: BTreeMap::new(),
            late: VecDeque::new(),
        }
    }

    /// A REQUEST passes. Says whether the call is followed.
    pub(crate) fn begin(&mut self, id: u32, now: Duration) -> bool {
        let followed = self.open.len() < OPEN && !self.open.contains_key(&id);
        if followed {
            let call = Open {
                began: now,
                place: None,
            };
            self.open.insert(id, call);
        }
        followed
    }

    /// The REQUEST of this call gives its server so long.
    pub(crate) fn limit(&mut self, id: u32, timeout: Duration) {
        let Some(Open {
            began,
            place: place @ None,
        }) = self.open.get_mut(&id)
        else {
            return;
        };
        // The wrapped side took its own time before the request came here. What it is to find when
        // its timer fires must be known before ours does.
        let early = timeout - self.keepalive.lead_for(timeout) / 4;
        let limit = Limit {
            judged: CallDeadline::new(*began, early, &self.keepalive),
            end: began.saturating_add(timeout),
            asked: false,
            told: false,
        };
        let p = limit.judged.ask_at();
        *place = Some(p);
        self.upcoming.insert((p, id), limit);
    }

    /// A frame passes that ends the call.
    pub(crate) fn end(&mut self, id: u32) -> Ended {
        match self.open.remove(&id) {
            Some(call) => {
                if let Some(p) = call.place {
                    let at = (p, id);
                    if self.upcoming.remove(&at).is_none() {
                        self.closing.remove(&at);
                    }
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

    /// Notes a run, and which calls have come to where they want a PING.
    pub(crate) fn handle_run(&mut self, previous_run: Duration, now: Duration) {
        while let Some(first) = self.upcoming.first_entry() {
            if first.key().0 > now {
                break;
            }
            let (at, limit) = first.remove_entry();
            self.closing.insert(at, limit);
        }
        for limit in self.closing.values_mut() {
            limit.judged.handle_run(previous_run, now);
        }
    }

    /// The instants at which calls that have not said so wanted a PING.
    pub(crate) fn wishes(&mut self, now: Duration) -> Vec<Duration> {
        let wishing = self
            .closing
            .values_mut()
            .filter(|limit| !limit.asked && limit.judged.deadline() > now);
        wishing
            .map(|limit| {
                limit.asked = true;
                limit.judged.ask_at()
            })
            .collect()
    }

    /// Whether a call is to be judged, or late.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        self.closing.values().any(|limit| limit.due() <= now)
    }

    /// Calls on whose peer it is time to say something. Each is named once.
    pub(crate) fn judged(&mut self, now: Duration) -> Vec<(u32, CallDeadline)> {
        let judged = self
            .closing
            .iter_mut()
            .filter(|(_, limit)| !limit.told && limit.judged.deadline() <= now);
        judged
            .map(|((_, id), limit)| {
                limit.told = true;
                (*id, limit.judged.clone())
            })
            .collect()
    }

    /// Moves calls that have run out of time to the late ones. Says how many, and how many older
    /// late ones are forgotten for them.
    pub(crate) fn expire(&mut self, now: Duration) -> (usize, usize) {
        let late: Vec<(Duration, u32)> = self
            .closing
            .iter()
            .filter(|(_, limit)| limit.end <= now)
            .map(|(at, _)| *at)
            .collect();
        for at in &late {
            self.closing.remove(at);
            self.open.remove(&at.1);
            self.late.push_back(at.1);
        }
        let forgotten = self.late.len().saturating_sub(LATE);
        self.late.drain(..forgotten);
        (late.len(), forgotten)
    }

    /// When the next run is wanted, after one at `now`.
    pub(crate) fn next_run(&self, now: Duration) -> Option<Duration> {
        let closing = self.closing.values().map(|limit| match limit.told {
            true => limit.end,
            false => limit.judged.next_run(now),
        });
        let upcoming = self.upcoming.first_key_value();
        closing.chain(upcoming.map(|((p, _), _)| *p)).min()
    }

    pub(crate) fn shortest_lead(&self) -> Option<Duration> {
        let closing = self.closing.values().filter(|limit| !limit.told);
        closing.map(|limit| limit.judged.lead()).min()
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

impl Limit {
    fn due(&self) -> Duration {
        if self.told {
            self.end
        } else {
            self.judged.deadline()
        }
    }
}
