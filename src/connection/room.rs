//! A queue of those who wait for room: the back-pressure that a caller feels.

use std::collections::BTreeMap;
use std::task::Waker;

/// Calls, or messages of streams, that wait before they are encoded, first come, first served.
///
/// Its length is bounded by the callers: each entry belongs to a future that somebody holds, and
/// goes with it.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// By ticket, which is the order of coming. Any of them may leave at any time, and all do
    /// when a peer stops: none may have to be searched for.
    waiting: BTreeMap<u64, Waker>,
    newest: u64,
}

impl Room {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// A number that nobody else has.
    pub(super) fn ticket(&mut self) -> u64 {
        self.newest += 1;
        self.newest
    }

    /// Joins the queue at its end.
    pub(super) fn enter(&mut self, waker: Waker) -> u64 {
        let ticket = self.ticket();
        self.waiting.insert(ticket, waker);
        ticket
    }

    /// Keeps the waker of one that goes on waiting.
    pub(super) fn wait(&mut self, ticket: u64, waker: &Waker) {
        if let Some(kept) = self.waiting.get_mut(&ticket) {
            kept.clone_from(waker);
        }
    }

    pub(super) fn is_first(&self, ticket: u64) -> bool {
        self.waiting
            .first_key_value()
            .is_some_and(|(first, _)| *first == ticket)
    }

    pub(super) fn leave(&mut self, ticket: u64) {
        self.waiting.remove(&ticket);
    }

    /// Whom to wake for this ticket, if it is here.
    pub(super) fn waker(&self, ticket: u64) -> Option<Waker> {
        self.waiting.get(&ticket).cloned()
    }

    /// All who wait.
    pub(super) fn wakers(&self) -> Vec<Waker> {
        self.waiting.values().cloned().collect()
    }

    /// The one to wake when there is room.
    pub(super) fn first(&self) -> Option<Waker> {
        self.waiting
            .first_key_value()
            .map(|(_, waker)| waker.clone())
    }
}
