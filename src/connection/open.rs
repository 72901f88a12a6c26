//! Calls that are open on a client: whoever holds one ends it by dropping it.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use super::call::{Command, Key};
use super::{Shared, notify};
use crate::hook::{Hooked, Outcome};

/// Tells the driver when the future of an open call is dropped, so that nothing is left behind.
pub(super) struct Open<'a> {
    pub(super) shared: &'a Shared<Command>,
    pub(super) key: Key,
}

impl Open<'_> {
    /// The driver has ended it already.
    pub(super) fn ended(self) {
        mem::forget(self);
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let mut desk = self.shared.desk();
        if let Key::Ticket(ticket) = self.key {
            desk.room.leave(ticket);
        }
        if desk.end.is_none() {
            desk.commands.push(Command::Drop { key: self.key });
            notify(desk);
        }
    }
}

/// A stream that is open, held by its halves. Dropping the last of them ends the call.
#[derive(Debug)]
pub(crate) struct Guard {
    open: OpenStream,
    /// Behind the stream in the order of drops.
    hooked: Mutex<Option<Box<Hooked>>>,
}

#[derive(Debug)]
struct OpenStream {
    shared: Arc<Shared<Command>>,
    id: u32,
}

impl Guard {
    pub(super) fn new(shared: Arc<Shared<Command>>, id: u32, hooked: Option<Box<Hooked>>) -> Self {
        Self {
            open: OpenStream { shared, id },
            hooked: Mutex::new(hooked),
        }
    }

    pub(crate) fn shared(&self) -> &Shared<Command> {
        &self.open.shared
    }

    /// Tells the hook how the stream has ended.
    pub(crate) fn end(&self, outcome: Outcome<'_>) {
        let hooked = self.hooked.lock().unwrap_or_else(PoisonError::into_inner);
        let hooked = { hooked }.take();
        if let Some(hooked) = hooked {
            hooked.end(outcome);
        }
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let key = Key::Stream(self.id);
        let shared = &*self.shared;
        drop(Open { shared, key });
    }
}
