//! Which requests start, and what is let go of at the end.

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::Ordering::Relaxed;

use super::{OpenRequests, Start, slot};
use crate::connection::{Effects, Note, State};

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

    /// Nobody is there for the answers any more: lets go of what has not begun, and of what is held of
    /// the server. Nothing is taken afterwards.
    pub(super) fn abandon_requests(&mut self, effects: &mut Effects) {
        let (waiting, ticket) = self.side.admission.drain();
        let slots = self.side.slots.take();
        if let (Some(slots), Some(ticket)) = (&slots, ticket) {
            slots.slots.leave(ticket);
        }
        let granted = slots.filter(|slots| slots.granted);
        let granted = granted.map(|slots| slots.slots.granted());
        let starts = mem::take(&mut self.side.starts);
        self.count_abandoned(waiting.len() + starts.len(), effects);
        self.side.abandoned = true;
        self.side.early.stop();
        effects.drop_later(mem::take(&mut self.side.overdue));
        // Behind the lock: a slot that goes on takes that of another connection.
        effects.drop_later((waiting, starts, granted));
    }

    /// So many requests were for nobody.
    pub(super) fn count_abandoned(&mut self, requests: usize, effects: &mut Effects) {
        if requests > 0 {
            let requests = u64::try_from(requests).unwrap_or(u64::MAX);
            let counts = &self.side.counts;
            counts.abandoned.fetch_add(requests, Relaxed);
            effects.log(Note::Abandoned(requests));
        }
    }
}
