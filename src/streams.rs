//! The stream table: which ids are open, which have ended late, and what a frame means for them.
//!
//! No channels, no payloads, no clock: what a stream carries for its owner is a type parameter.
//! The invariant: an id is in at most one of the two tables, and a finished one is in neither.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use crate::wire::PING_STREAM_ID;

mod halves;

pub(crate) use halves::{Data, LocalHalf, PeerHalf, Upload, Uploads};

/// The calls of a client's connection.
#[derive(Debug)]
pub(crate) struct Calls<C, L> {
    open: HashMap<u32, C, BuildHasherDefault<OwnIds>>,
    /// The ids of open calls in the order in which they began, and of some that have ended: about
    /// as many, and [`SLACK`] more.
    order: VecDeque<u32>,
    /// Calls whose deadline has passed and whose Response may still come, by id, which is the
    /// order in which they began.
    late: BTreeMap<u32, L>,
    late_limit: usize,
    newest: u32,
}

/// What a frame that ends a stream ends on a client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended<C, L> {
    /// A call that somebody waits for.
    Call(C),
    /// A call whose deadline had passed: its late answer.
    Late(L),
    /// A call that has ended before: a repeated Response, or that of a call that was dropped.
    Again,
    /// The id that PINGs are sent on: a peer that does not know them says so there.
    Ping,
    /// An id that was never handed out.
    Unknown,
}

impl<C, L> Calls<C, L> {
    pub(crate) fn new(late_limit: usize) -> Self {
        Self {
            open: HashMap::default(),
            order: VecDeque::new(),
            late: BTreeMap::new(),
            late_limit,
            newest: 0,
        }
    }

    pub(crate) fn open(&mut self, id: u32, call: C) {
        self.newest = self.newest.max(id);
        self.open.insert(id, call);
        // Behind one call that never ends, all later ones would stay here.
        if self.order.len() >= 2 * self.open.len() + SLACK {
            self.order.retain(|id| self.open.contains_key(id));
        }
        self.order.push_back(id);
    }

    /// The open call that began first.
    pub(crate) fn oldest(&mut self) -> Option<&C> {
        if self.open.is_empty() {
            self.order.clear();
        }
        while let Some(id) = self.order.front() {
            if self.open.contains_key(id) {
                return self.open.get(id);
            }
            self.order.pop_front();
        }
        None
    }

    pub(crate) fn find(&self, id: u32) -> Option<&C> {
        self.open.get(&id)
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Forgets a call without a trace: it was dropped, or never sent.
    pub(crate) fn close(&mut self, id: u32) -> Option<C> {
        self.open.remove(&id)
    }

    /// Turns an expired call into a late record. Returns the record that had to make room for it:
    /// a peer that never answers must not make the table grow.
    pub(crate) fn keep_late(&mut self, id: u32, late: L) -> Option<L> {
        self.late.insert(id, late);
        if self.late.len() > self.late_limit {
            self.late.pop_first().map(|(_, oldest)| oldest)
        } else {
            None
        }
    }

    /// A frame that ends stream `id` has come.
    pub(crate) fn handle_end(&mut self, id: u32) -> Ended<C, L> {
        if let Some(call) = self.open.remove(&id) {
            Ended::Call(call)
        } else if let Some(late) = self.late.remove(&id) {
            Ended::Late(late)
        } else if id == PING_STREAM_ID {
            Ended::Ping
        } else if id % 2 == 1 && id <= self.newest {
            Ended::Again
        } else {
            Ended::Unknown
        }
    }

    /// What is left of an expired call whose end has come after all.
    pub(crate) fn take_late(&mut self, id: u32) -> Option<L> {
        self.late.remove(&id)
    }

    pub(crate) fn late_len(&self) -> usize {
        self.late.len()
    }

    /// Empties the table: the connection has ended.
    pub(crate) fn drain(&mut self) -> (impl Iterator<Item = C> + '_, impl Iterator<Item = L>) {
        let late = std::mem::take(&mut self.late);
        (self.open.drain().map(|(_, call)| call), late.into_values())
    }
}

/// How many ids of ended calls are kept before they are looked for.
const SLACK: usize = 64;

/// Spreads ids that this side has chosen itself, one behind the other. No peer can put ids into the
/// table that collide, so nothing more is needed.
#[derive(Debug, Default)]
struct OwnIds(u64);

impl Hasher for OwnIds {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32((*byte).into());
        }
    }

    fn write_u32(&mut self, id: u32) {
        // 2^64 by the golden ratio: neighbours land far from each other.
        self.0 = (self.0 ^ u64::from(id)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// The requests that a server has taken on one connection.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    newest: u32,
}

/// Why a server does not take a request on an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error("stream id {id} is even: a client uses odd ones")]
    Even { id: u32 },
    #[error("stream id {id} is not larger than {newest}, the newest one")]
    NotLarger { id: u32, newest: u32 },
    #[error("stream id {id} is reserved for PING")]
    Reserved { id: u32 },
}

impl Requests {
    /// Judges the id of a request. An id is used once, so that a late frame of an old stream can
    /// never be taken for one of a new stream (RFC KA-31).
    pub(crate) fn accept(&mut self, id: u32) -> Result<(), Refused> {
        if id % 2 == 0 {
            return Err(Refused::Even { id });
        }
        // RFC KA-30. Remembering this id would refuse every later request.
        if id == PING_STREAM_ID {
            return Err(Refused::Reserved { id });
        }
        if id <= self.newest {
            return Err(Refused::NotLarger {
                id,
                newest: self.newest,
            });
        }
        self.newest = id;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ending_frame_finds_what_it_ends() {
        let mut calls: Calls<&str, &str> = Calls::new(8);
        calls.open(1, "answered");
        calls.open(3, "expired");
        calls.open(5, "dropped");
        assert_eq!(calls.close(3), Some("expired"));
        assert_eq!(calls.keep_late(3, "late"), None);
        assert_eq!(calls.close(5), Some("dropped"));

        for (id, expected) in [
            (1, Ended::Call("answered")),
            (1, Ended::Again),
            (3, Ended::Late("late")),
            (3, Ended::Again),
            (5, Ended::Again),
            (7, Ended::Unknown),
            (2, Ended::Unknown),
            (0, Ended::Unknown),
            (PING_STREAM_ID, Ended::Ping),
        ] {
            assert_eq!(calls.handle_end(id), expected, "id {id}");
        }
        assert_eq!(calls.late_len(), 0);
    }

    #[test]
    fn the_oldest_open_call_is_found_and_ended_ones_are_forgotten() {
        let mut calls: Calls<u32, ()> = Calls::new(8);
        assert_eq!(calls.oldest(), None);
        calls.open(1, 1);
        for id in (3..100_000).step_by(2) {
            calls.open(id, id);
            assert_eq!(calls.oldest(), Some(&1));
            calls.close(id);
            assert!(calls.order.len() <= 2 * 2 + SLACK + 1, "two are open");
        }
        calls.open(100_001, 100_001);
        calls.close(1);
        assert_eq!(calls.oldest(), Some(&100_001));
        calls.close(100_001);
        assert_eq!(calls.oldest(), None);
        assert!(calls.order.is_empty());
    }

    #[test]
    fn the_oldest_late_record_makes_room() {
        let mut calls: Calls<(), u32> = Calls::new(2);
        assert_eq!(calls.keep_late(1, 1), None);
        assert_eq!(calls.keep_late(5, 5), None);
        assert_eq!(calls.keep_late(3, 3), Some(1));
        assert_eq!(calls.late_len(), 2);
    }

    #[test]
    fn a_request_needs_an_odd_and_larger_id() {
        let mut requests = Requests::default();
        for (id, expected) in [
            (1, Ok(())),
            (1, Err(Refused::NotLarger { id: 1, newest: 1 })),
            (2, Err(Refused::Even { id: 2 })),
            (7, Ok(())),
            (5, Err(Refused::NotLarger { id: 5, newest: 7 })),
            (
                PING_STREAM_ID,
                Err(Refused::Reserved { id: PING_STREAM_ID }),
            ),
            (9, Ok(())),
        ] {
            assert_eq!(requests.accept(id), expected, "id {id}");
        }
    }
}
