//! The slots of a server, as its connections share them: [`Slots`] behind a lock, and whom to wake.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::admission::Slots;
use super::requests::Command;
use crate::connection::Shared;

/// The slots of one server.
#[derive(Debug)]
pub(super) struct SharedSlots(Mutex<Slots<Arc<Shared<Command>>>>);

/// The right to run one handler. Goes on to the next connection when it is dropped.
#[derive(Debug)]
pub(super) struct Slot(Arc<SharedSlots>);

impl SharedSlots {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Slots::new(limit))))
    }

    /// Takes a slot, or a place in the queue for one: then [`Command::Granted`] tells of it. In one
    /// step, or a slot that is given back in between would wake nobody.
    pub(super) fn take_or_enter(
        self: &Arc<Self>,
        connection: &Arc<Shared<Command>>,
    ) -> Result<Slot, u64> {
        let mut slots = self.slots();
        if slots.take() {
            return Ok(self.granted());
        }
        Err(slots.enter(Arc::clone(connection)))
    }

    /// The slot of which [`Command::Granted`] has told.
    pub(super) fn granted(self: &Arc<Self>) -> Slot {
        Slot(Arc::clone(self))
    }

    /// Gives up a place in the queue.
    pub(super) fn leave(&self, ticket: u64) {
        let left = self.slots().leave(ticket);
        drop(left);
    }

    /// Nothing is left half done in a critical section, so a panic elsewhere has broken nothing.
    fn slots(&self) -> MutexGuard<'_, Slots<Arc<Shared<Command>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        loop {
            let next = self.0.slots().give_back();
            // One that has ended has no use for it, and the next one is asked.
            match next {
                Some(connection) if connection.tell(Command::Granted).is_err() => {}
                _ => return,
            }
        }
    }
}
