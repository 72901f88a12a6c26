//! Which requests start, and what is let go of at the end.

use std::collections::VecDeque;
use std::mem;

use super::{OpenRequests, Start, slot};
use crate::connection::State;

impl State<OpenRequests> {
    /// Yields what may start now, behind what is in `starts`.
    pub(in crate::server) fn take_starts(&mut self, starts: &mut VecDeque<Start>) {
        let side = &mut self.side;
        starts.append(&mut side.starts);
        if self.machine.parked() {
            return;
        }
        while let Some((request, slot)) = side.admission.next(|| slot(&mut side.slots)) {
            starts.push_back(Start { request, slot });
        }
    }

    /// The connection has ended: lets go of what never begins, and of what it holds of the server.
    pub(in crate::server) fn drain(&mut self) -> impl Sized + use<> {
        let (waiting, ticket) = self.side.admission.drain();
        let slots = self.side.slots.take();
        if let (Some(slots), Some(ticket)) = (&slots, ticket) {
            slots.slots.leave(ticket);
        }
        let granted = slots.filter(|slots| slots.granted);
        let granted = granted.map(|slots| slots.slots.granted());
        (waiting, mem::take(&mut self.side.starts), granted)
    }
}
