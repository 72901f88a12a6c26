//! The slots of a server, as its connections share them: [`Slots`] behind a lock, and whose turn it is.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::admission::Slots;

/// A connection that waits for a slot.
pub(super) trait Grant {
    /// A slot is its own now. `false` if it has ended, and has no use for it.
    fn grant(&self) -> bool;
}

/// The slots of one server, for connections `C`. Under the lock of a connection this one may be taken;
/// under this one no other is.
pub(super) struct SharedSlots<C>(Mutex<Slots<Arc<C>>>);

/// The right to run one handler. Goes on to the next connection when it is dropped, never under a lock.
#[derive(Debug)]
pub(super) struct Slot<C: Grant>(Arc<SharedSlots<C>>);

impl<C: Grant> SharedSlots<C> {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Slots::new(limit))))
    }

    /// Takes a slot, or a place in the queue for one: then [`Grant::grant`] tells of it. In one
    /// step, or a slot that is given back in between would wake nobody.
    pub(super) fn take_or_enter(self: &Arc<Self>, connection: Arc<C>) -> Result<Slot<C>, u64> {
        let mut slots = self.slots();
        if slots.take() {
            return Ok(self.granted());
        }
        Err(slots.enter(connection))
    }

    /// The slot that was granted.
    pub(super) fn granted(self: &Arc<Self>) -> Slot<C> {
        Slot(Arc::clone(self))
    }

    /// Gives up a place in the queue.
    pub(super) fn leave(&self, ticket: u64) -> Option<Arc<C>> {
        self.slots().leave(ticket)
    }
}

impl<C> SharedSlots<C> {
    /// Nothing is left half done in a critical section, so a panic elsewhere has broken nothing.
    fn slots(&self) -> MutexGuard<'_, Slots<Arc<C>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Grant> Drop for Slot<C> {
    fn drop(&mut self) {
        loop {
            let next = self.0.slots().give_back();
            match next {
                Some(connection) if !connection.grant() => {}
                _ => return,
            }
        }
    }
}

impl<C> fmt::Debug for SharedSlots<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedSlots").finish_non_exhaustive()
    }
}
