//! Calling the driver, and writing without it.

use std::sync::Arc;
use std::time::Duration;

use super::{Closing, DriverState, Remainder, Side, State};
use crate::connection::effects::{Effects, Write};
use crate::connection::outbox::Batch;

impl<S: Side> State<S> {
    pub(crate) fn call_driver(&mut self, effects: &mut Effects) {
        if let DriverState::Asleep { .. } = self.driver {
            self.driver = DriverState::Called;
            effects.driver = Some(self.waker.clone());
        }
    }

    /// Calls the driver if its timer fires after this.
    pub(in crate::connection) fn call_driver_by(
        &mut self,
        at: Option<Duration>,
        effects: &mut Effects,
    ) {
        if let (DriverState::Asleep { until, .. }, Some(at)) = (self.driver, at) {
            if until.is_none_or(|until| at < until) {
                self.call_driver(effects);
            }
        }
    }

    /// Queues a frame that opens or ends a stream (law 7), and returns its number. It is written at once if
    /// it is `alone` and nothing else is going on; otherwise the driver sends all that has gathered in
    /// one go.
    pub(crate) fn queue(
        &mut self,
        now: Duration,
        frame: Vec<u8>,
        alone: bool,
        effects: &mut Effects,
    ) -> u64 {
        let direct = alone && self.closing == Closing::No && self.outbox.is_empty();
        // RFC KA-22: in front of the frame.
        self.queue_ping(now);
        let number = self.outbox.push(frame);
        let shortcut = self.shortcut.as_ref().filter(|_| direct);
        match (self.driver, shortcut) {
            (
                DriverState::Asleep {
                    lets_write: true, ..
                },
                Some(shortcut),
            ) => {
                let shortcut = Arc::clone(shortcut);
                effects.write = self.outbox.begin().map(|batch| Write {
                    now,
                    batch,
                    shortcut,
                });
                self.call_driver_by(self.machine.poll_timeout(), effects);
            }
            _ => self.call_driver(effects),
        }
        number
    }

    /// Takes the permit to write: what is to be written next (law 6). A call that has run out of time
    /// is not among it.
    pub(in crate::connection) fn begin_write(
        &mut self,
        now: Duration,
        effects: &mut Effects,
    ) -> Option<Batch> {
        S::end_unsent(self, now, effects);
        self.queue_ping(now);
        self.outbox.begin()
    }

    /// The same for what was refused before, and whatever has run out of time meanwhile.
    pub(in crate::connection) fn begin_offer(&mut self) -> Option<Batch> {
        self.outbox.begin()
    }

    /// The permit comes back. Returns what is left to do.
    pub(in crate::connection) fn end_write(
        &mut self,
        now: Duration,
        batch: Batch,
        effects: &mut Effects,
    ) -> Remainder {
        self.outbox.end(batch, now);
        if self.end.is_some() {
            self.unsent = self.unsent.plus(self.outbox.unsent());
            effects.drop_later(self.outbox.clear());
            return Remainder::default();
        }
        self.forget_left(effects);
        // A connection that closes waits for what was being written, and so does the end of a call
        // whose frame that was.
        let waited_for = self.closing != Closing::No || self.side.awaits_write();
        if waited_for || !self.outbox.is_empty() || self.outbox.unflushed_ping().is_some() {
            self.call_driver(effects);
        }
        self.admit(effects);
        Remainder {
            frames: self.outbox.is_ready(),
            ping: self.outbox.unflushed_ping().is_some(),
        }
    }

    /// Whether nothing waits that a write could have been refused for.
    pub(in crate::connection) fn has_written_all(&self) -> bool {
        self.outbox.is_empty()
    }

    /// What the transport has taken, and when it last took something. `None` while somebody writes, and while
    /// the stream holds bytes back, since nobody can say when these were written.
    pub(in crate::connection) fn written(&self) -> Option<(u64, Option<Duration>)> {
        let taken = self.outbox.writes().taken;
        let known = !self.outbox.is_out() && !self.outbox.holds();
        known.then(|| (self.outbox.written(), taken))
    }

    pub(in crate::connection) fn has_unflushed_ping(&self) -> bool {
        self.outbox.unflushed_ping().is_some()
    }

    /// Lets the call and the message that wait longest look whether there is room for them.
    pub(in crate::connection) fn admit(&mut self, effects: &mut Effects) {
        let sender = self.senders.first_entry();
        effects.wake(sender.and_then(|mut first| first.get_mut().take()));
        S::admit(self, effects);
    }
}
