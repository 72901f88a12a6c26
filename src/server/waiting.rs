//! Requests of one connection that wait for a handler to end.
//!
//! The invariant: they are in the order in which they came, and bounded in number and in bytes,
//! the messages of their streams included.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::method::{Place, Served};
use crate::config::ServerLimits;
use crate::connection::{MESSAGE_OVERHEAD, Messages, Overflow};
use crate::status::Status;
use crate::wire::Part;

/// A request that was taken.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) served: Arc<Served>,
    pub(super) place: Option<Place>,
    pub(super) stream_id: u32,
    pub(super) payload: Part,
    pub(super) metadata: Vec<(String, String)>,
    /// Of a method that takes many requests: what has come of them.
    pub(super) messages: Option<Messages<Status>>,
    pub(super) deadline: Option<Duration>,
    /// Bytes in memory, about.
    pub(super) size: usize,
}

impl Incoming {
    pub(super) fn has_expired(&self, now: Duration) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

#[derive(Debug)]
pub(super) struct Waiting {
    /// Their stream ids grow, since a client's do.
    requests: VecDeque<Incoming>,
    bytes: usize,
    limit: usize,
    byte_limit: usize,
}

impl Waiting {
    pub(super) fn new(limits: &ServerLimits) -> Self {
        Self {
            requests: VecDeque::new(),
            bytes: 0,
            limit: limits.waiting,
            byte_limit: limits.waiting_bytes,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there is room for a request of this size. There is if none waits, or a low limit
    /// would refuse requests that a frame can carry.
    pub(super) fn has_room(&self, size: usize) -> bool {
        self.is_empty()
            || (self.len() < self.limit && self.bytes.saturating_add(size) <= self.byte_limit)
    }

    pub(super) fn push(&mut self, incoming: Incoming) {
        self.bytes = self.bytes.saturating_add(incoming.size);
        self.requests.push_back(incoming);
    }

    pub(super) fn pop(&mut self) -> Option<Incoming> {
        let incoming = self.requests.pop_front()?;
        self.bytes -= incoming.size;
        Some(incoming)
    }

    /// A message has come for a stream, which counts if its request waits here.
    pub(super) fn handle_message(&mut self, stream_id: u32, length: usize) -> Result<(), Overflow> {
        let Some(at) = self.position(stream_id) else {
            return Ok(());
        };
        let length = length.saturating_add(MESSAGE_OVERHEAD);
        let size = self.bytes.saturating_add(length);
        if size > self.byte_limit {
            let limit = self.byte_limit;
            return Err(Overflow { size, limit });
        }
        self.bytes = size;
        self.requests[at].size += length;
        Ok(())
    }

    /// Takes out the request of this stream.
    pub(super) fn remove(&mut self, stream_id: u32) -> Option<Incoming> {
        let at = self.position(stream_id)?;
        let incoming = self.requests.remove(at)?;
        self.bytes -= incoming.size;
        Some(incoming)
    }

    /// Takes out those that have run out of time.
    pub(super) fn expire(&mut self, now: Duration) -> Vec<Incoming> {
        if !self.requests.iter().any(|request| request.has_expired(now)) {
            return Vec::new();
        }
        let all = std::mem::take(&mut self.requests).into_iter();
        let (expired, rest): (Vec<_>, Vec<_>) = all.partition(|request| request.has_expired(now));
        self.requests = rest.into();
        self.bytes -= expired.iter().map(|request| request.size).sum::<usize>();
        expired
    }

    pub(super) fn clear(&mut self) {
        self.requests.clear();
        self.bytes = 0;
    }

    fn position(&self, stream_id: u32) -> Option<usize> {
        let by_id = |request: &Incoming| request.stream_id;
        self.requests.binary_search_by_key(&stream_id, by_id).ok()
    }
}
