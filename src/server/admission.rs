//! Which request runs, waits or is refused. A rule: no runtime, no clock, no lock.
//!
//! The invariant: requests start in the order in which they came, as many as may run at one time, and
//! those that wait are bounded in number and in bytes, the messages of their streams included.
//!
//! It is called under a connection's lock. So nothing of its caller's is dropped in here: what leaves
//! it is returned. No verb is linear in what waits, but for what it returns.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use crate::config::ServerLimits;
use crate::connection::Overflow;
use crate::tuning::MESSAGE_OVERHEAD;

/// The requests of one connection: how many run, and which wait.
#[derive(Debug)]
pub(super) struct Admission<T> {
    limits: ServerLimits,
    running: usize,
    /// By stream id, which is the order in which they came, since a client's ids grow.
    waiting: BTreeMap<u32, Candidate<T>>,
    /// When those that wait run out of time.
    deadlines: BTreeSet<(Duration, u32)>,
    /// Of all that wait.
    bytes: usize,
    /// The connection's place in the queue for a slot of the server. Until its turn nothing starts.
    ticket: Option<u64>,
}

/// A request that asks to run.
#[derive(Debug)]
pub(super) struct Candidate<T> {
    pub(super) request: T,
    /// Bytes in memory, about.
    pub(super) size: usize,
    pub(super) deadline: Option<Duration>,
}

/// What becomes of a request that has come.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Offer<T, S> {
    Start(T, S),
    Wait,
    Refuse(T, Full),
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full {
    running: usize,
    waiting: usize,
    bytes: usize,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            running,
            waiting,
            bytes,
        } = self;
        write!(
            f,
            "{running} calls are running on this connection and {waiting} are waiting, of {bytes} bytes"
        )
    }
}

impl<T> Admission<T> {
    pub(super) fn new(limits: ServerLimits) -> Self {
        Self {
            limits,
            running: 0,
            waiting: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            bytes: 0,
            ticket: None,
        }
    }

    /// A request has come. `slot` takes a slot of the server, or a place in the queue for one. It is
    /// asked only where this connection may run one more.
    pub(super) fn offer<S>(
        &mut self,
        stream_id: u32,
        candidate: Candidate<T>,
        slot: impl FnOnce() -> Result<S, u64>,
    ) -> Offer<T, S> {
        if self.waiting.is_empty() {
            if let Some(slot) = self.admit(slot) {
                return Offer::Start(candidate.request, slot);
            }
        }
        if !self.has_room(candidate.size) {
            let full = Full {
                running: self.running,
                waiting: self.waiting.len(),
                bytes: self.bytes,
            };
            return Offer::Refuse(candidate.request, full);
        }
        self.bytes += candidate.size;
        if let Some(deadline) = candidate.deadline {
            self.deadlines.insert((deadline, stream_id));
        }
        self.waiting.insert(stream_id, candidate);
        Offer::Wait
    }

    /// The request that may start now, if there is one. `slot` is as in [`offer`](Self::offer).
    pub(super) fn next<S>(&mut self, slot: impl FnOnce() -> Result<S, u64>) -> Option<(T, S)> {
        let first = *self.waiting.first_key_value()?.0;
        let slot = self.admit(slot)?;
        self.remove(first).map(|request| (request, slot))
    }

    fn admit<S>(&mut self, slot: impl FnOnce() -> Result<S, u64>) -> Option<S> {
        if self.running >= self.limits.handlers || self.ticket.is_some() {
            return None;
        }
        match slot() {
            Ok(slot) => {
                self.running += 1;
                Some(slot)
            }
            Err(ticket) => {
                self.ticket = Some(ticket);
                None
            }
        }
    }

    /// A handler has ended.
    pub(super) fn handle_end(&mut self) {
        self.running -= 1;
    }

    /// It is this connection's turn to have a slot.
    pub(super) fn handle_grant(&mut self) {
        self.ticket = None;
    }

    /// A message has come for a stream, which counts if its request waits.
    pub(super) fn handle_message(&mut self, stream_id: u32, length: usize) -> Result<(), Overflow> {
        let Some(candidate) = self.waiting.get_mut(&stream_id) else {
            return Ok(());
        };
        let length = length.saturating_add(MESSAGE_OVERHEAD);
        let size = self.bytes.saturating_add(length);
        let limit = self.limits.waiting_bytes;
        if size > limit {
            return Err(Overflow { size, limit });
        }
        self.bytes = size;
        candidate.size += length;
        Ok(())
    }

    /// Takes out the requests that have run out of time, if one of this size has no room.
    pub(super) fn make_room(&mut self, size: usize, now: Duration) -> Vec<T> {
        let mut expired = Vec::new();
        if self.has_room(size) {
            return expired;
        }
        while let Some((deadline, stream_id)) = self.deadlines.first().copied() {
            if deadline > now {
                break;
            }
            expired.extend(self.remove(stream_id));
        }
        expired
    }

    /// Takes out the request of this stream.
    pub(super) fn remove(&mut self, stream_id: u32) -> Option<T> {
        let candidate = self.waiting.remove(&stream_id)?;
        self.bytes -= candidate.size;
        if let Some(deadline) = candidate.deadline {
            self.deadlines.remove(&(deadline, stream_id));
        }
        Some(candidate.request)
    }

    /// The connection has ended. Yields what waits, and the place in the queue for a slot.
    pub(super) fn drain(&mut self) -> (Vec<T>, Option<u64>) {
        let waiting = std::mem::take(&mut self.waiting).into_values();
        self.deadlines.clear();
        self.bytes = 0;
        let requests = waiting.map(|candidate| candidate.request).collect();
        (requests, self.ticket.take())
    }

    /// Whether a request that waits may be let in, if there is a slot for it.
    pub(super) fn may_start(&self) -> bool {
        !self.waiting.is_empty() && self.running < self.limits.handlers && self.ticket.is_none()
    }

    /// Requests that run or wait.
    pub(super) fn len(&self) -> usize {
        self.running + self.waiting.len()
    }

    /// There is room for any request if none waits, or a low limit would refuse what a frame can
    /// carry.
    fn has_room(&self, size: usize) -> bool {
        self.waiting.is_empty()
            || (self.waiting.len() < self.limits.waiting
                && self.bytes.saturating_add(size) <= self.limits.waiting_bytes)
    }
}

/// Handlers of a whole server: how many run at one time, and which connection `C` is next.
///
/// A slot that is free goes to the connection that has waited longest, and one that still has requests
/// waiting enters the queue again at its end. So a connection with many requests holds up another one
/// by no more than a handler for each.
#[derive(Debug)]
pub(super) struct Slots<C> {
    limit: usize,
    taken: usize,
    /// Connections with a request that may start as soon as there is a slot, each once, by ticket.
    queue: BTreeMap<u64, C>,
    next_ticket: u64,
}

impl<C> Slots<C> {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            taken: 0,
            queue: BTreeMap::new(),
            next_ticket: 0,
        }
    }

    /// Takes a slot, if there is one. The queue is empty then: a slot that is given back goes there.
    pub(super) fn take(&mut self) -> bool {
        let is_free = self.taken < self.limit;
        self.taken += usize::from(is_free);
        is_free
    }

    /// Takes a place in the queue for a slot.
    pub(super) fn enter(&mut self, connection: C) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.queue.insert(ticket, connection);
        ticket
    }

    /// Gives up a place in the queue, unless the slot is on its way already.
    pub(super) fn leave(&mut self, ticket: u64) -> Option<C> {
        self.queue.remove(&ticket)
    }

    /// A slot is given back. It belongs to the connection that this yields.
    pub(super) fn give_back(&mut self) -> Option<C> {
        let next = self.queue.pop_first();
        self.taken -= usize::from(next.is_none());
        next.map(|(_, connection)| connection)
    }
}

/// How many calls of one method may run or wait at one time.
#[derive(Debug)]
pub(super) struct CallLimit {
    limit: usize,
    calls: AtomicUsize,
}

/// The right to be one of these calls. Ends with its drop.
#[derive(Debug)]
pub(super) struct CallPermit(Arc<CallLimit>);

impl CallLimit {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            calls: AtomicUsize::new(0),
        })
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    pub(super) fn permit(self: &Arc<Self>) -> Option<CallPermit> {
        // The permit is there first, and takes the call back if there are too many.
        let permit = CallPermit(Arc::clone(self));
        (self.calls.fetch_add(1, Relaxed) < self.limit).then_some(permit)
    }
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests;
