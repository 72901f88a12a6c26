//! Handlers of a whole server: how many run at one time, and whose turn it is.
//!
//! The invariant: a slot that is free goes to the connection that has waited longest, and one that
//! still has requests waiting joins the queue again at its end. So a connection with many requests
//! holds up another one by no more than a handler for each.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::requests::Command;
use crate::connection::Shared;

/// The slots of one server.
#[derive(Debug)]
pub(super) struct Slots {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    taken: usize,
    /// Connections with a request that may start as soon as there is a slot, each once. Bounded by
    /// the connections.
    queue: VecDeque<Arc<Shared<Command>>>,
}

/// The right to run one handler. Goes on to the next connection when it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    /// `None` once it has gone on.
    slots: Option<Arc<Slots>>,
}

impl Slots {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            state: Mutex::default(),
        })
    }

    /// Takes a slot, or a place in the queue for one: then [`Command::Granted`] brings it. In one
    /// step, or a slot that is given back in between would wake nobody.
    pub(super) fn take_or_enter(
        self: &Arc<Self>,
        connection: &Arc<Shared<Command>>,
    ) -> Option<Slot> {
        let mut state = self.state();
        // Nobody is in the queue then: a slot that is given back goes there first.
        if state.taken < self.limit {
            state.taken += 1;
            let slots = Some(Arc::clone(self));
            return Some(Slot { slots });
        }
        state.queue.push_back(Arc::clone(connection));
        None
    }

    /// Gives up a place in the queue.
    pub(super) fn leave(&self, connection: &Arc<Shared<Command>>) {
        let mut state = self.state();
        state.queue.retain(|other| !Arc::ptr_eq(other, connection));
    }

    /// Nothing is left half done in a critical section, so a panic elsewhere has broken nothing.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        while let Some(slots) = self.slots.take() {
            let next = {
                let mut state = slots.state();
                let next = state.queue.pop_front();
                if next.is_none() {
                    state.taken -= 1;
                }
                next
            };
            let Some(connection) = next else { return };
            let slots = Some(slots);
            // One that has ended gives it back, and the next one is asked: here, and not by
            // dropping it, which would call this again for each of them.
            if let Err(Command::Granted(mut slot)) =
                connection.tell(Command::Granted(Self { slots }))
            {
                self.slots = slot.slots.take();
            }
        }
    }
}
