//! Turns of the driver.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Duration;

use super::{Closing, DriverState, Rest, Side, SleepRequest, State, TurnStart};
use crate::connection::effects::{Effects, Note};
use crate::connection::stream::Local;
use crate::error::ConnectionError;
use crate::keepalive::{Look, Role};
use crate::tuning::KEPT_ENTRIES;
use crate::wire::{Flags, Frame, ping_number};

impl<S: Side> State<S> {
    /// A turn begins.
    pub(in crate::connection) fn begin_turn(
        &mut self,
        now: Duration,
        waker: &Waker,
        effects: &mut Effects,
    ) -> TurnStart {
        self.driver = DriverState::Running;
        let moved = !self.waker.will_wake(waker);
        effects.keep(&mut self.waker, waker);
        let acts = S::handle_run(self, now);
        let lead = self.side.shortest_lead();
        self.machine.handle_run(now, lead);
        TurnStart { moved, acts }
    }

    pub(in crate::connection) fn look_due(&self, now: Duration) -> bool {
        let wish = || self.side.may_wish() && self.machine.wish_needs_look(now);
        self.machine.look_due(now) || self.side.look_due() || wish()
    }

    /// A PING has come. RFC KA-11, KA-19: answered here, whatever the handlers do.
    pub(in crate::connection) fn handle_ping(&mut self, now: Duration, ping: Frame, flags: Flags) {
        // RFC KA-52
        if ping_number(&ping.payload).is_some_and(|number| self.outbox.has_sent_ping(number)) {
            self.echoes = true;
            return;
        }
        self.machine.handle_ping(now);
        if self
            .outbox
            .reply(ping.header.stream_id, ping.payload, flags)
        {
            self.pongs_coalesced += 1;
        }
    }

    pub(in crate::connection) fn handle_pong(
        &mut self,
        now: Duration,
        pong: &Frame,
        effects: &mut Effects,
    ) {
        let number = ping_number(&pong.payload);
        let answers = number.is_some_and(|number| self.outbox.answer_ping(number));
        let number = number.and_then(|number| number.checked_sub(self.first_ping));
        if answers {
            // Told only later that the PING has left, the rules would wait for another answer, and
            // convict a peer that is well.
            self.machine.handle_ping_flushed(now);
            self.machine.handle_bytes(now);
        }
        let round_trip = self.machine.handle_pong(now, number, pong.header.flags);
        S::handle_pong(self, now, round_trip, effects);
    }

    /// The stream has passed on all that it took. A trial begins when the kernel has the PING's last
    /// byte, not when a buffer of ours has it.
    pub(in crate::connection) fn handle_flushed(&mut self, now: Duration) {
        self.outbox.handle_flush(now, true);
        if self.outbox.take_unflushed_ping() {
            self.machine.handle_ping_flushed(now);
        }
    }

    /// The stream cannot pass it on. For a call that waits this is as a write that is refused.
    pub(in crate::connection) fn handle_flush_refused(&mut self, now: Duration) {
        self.outbox.handle_flush(now, false);
    }

    /// Whether reading has to wait until the peer takes what it is owed.
    pub(in crate::connection) fn park(&mut self, now: Duration, effects: &mut Effects) -> bool {
        let parks = self.outbox.owed_bytes() > self.side.owed_limit();
        if parks != self.machine.parked() {
            effects.log(Note::Parked(parks));
            if parks {
                self.machine.handle_parked(now);
            } else {
                self.machine.handle_resumed(now);
            }
        }
        parks
    }

    /// Puts the PING that the rules want into its slot. Returns whether there was one.
    pub(in crate::connection) fn queue_ping(&mut self, now: Duration) -> bool {
        let ping = self.machine.poll_ping(now);
        ping.is_some_and(|number| {
            self.outbox.set_ping(self.first_ping.saturating_add(number));
            true
        })
    }

    /// Nothing more is looked for in this turn. Tells the rules that deadlines were seen, and queues the
    /// PING that one of them wants.
    fn settle(&mut self, now: Duration, heard: Option<Duration>) {
        self.handle_heard(now, heard);
        self.machine.handle_timeout(now);
        if let Some(wanted) = self.side.poll_wish() {
            self.machine.handle_ping_wish(now, wanted);
        }
        self.queue_ping(now);
    }

    pub(in crate::connection) fn handle_look(
        &mut self,
        now: Duration,
        heard: Option<Duration>,
        look: Look,
    ) {
        self.handle_heard(now, heard);
        self.machine.handle_look(now, look);
    }

    /// RFC KA-21: when whoever shares the stream last heard the process at the other end.
    fn handle_heard(&mut self, now: Duration, heard: Option<Duration>) {
        if let Some(at) = heard {
            self.machine.handle_heard(now, at);
        }
    }

    /// Whether the connection closes and has nothing left to do. Answers are sent before a server
    /// closes, those too that its stream still holds back, and requests that were read are answered. A
    /// client whose handles are gone owes nothing, and must not wait for a peer that does not read.
    fn is_drained(&mut self, io: &SleepRequest) -> bool {
        let has_sent_all = io.flushed && self.outbox.is_empty();
        match self.closing {
            Closing::No | Closing::Now => false,
            Closing::Drained => {
                S::is_idle(self)
                    && match S::ROLE {
                        Role::Client => true,
                        Role::Server => io.has_read_all && has_sent_all,
                    }
            }
            Closing::Sent => has_sent_all && S::is_read(self, io.now),
        }
    }

    /// The driver wants to sleep. All that it must act on is read here, under the lock (law 4).
    pub(in crate::connection) fn sleep(&mut self, io: &SleepRequest) -> Rest {
        if io.looks_since.is_none() {
            self.settle(io.now, io.heard);
        }
        self.shrink();
        if self.closing == Closing::Now || self.is_drained(io) {
            return Rest::End;
        }
        let writes = !io.blocked && self.outbox.is_ready();
        // A batch that has come back since this turn's write found the driver running, and called
        // nobody.
        let flushes = io.flushed && self.has_unflushed_ping();
        let judges = self.side.awaits_write() && !self.outbox.is_out();
        let goes_on = writes || flushes || judges || io.goes_on || !io.has_read_all;
        if goes_on || S::has_starts(self) {
            return Rest::Turn;
        }
        let rules = self.machine.poll_timeout();
        let next = [rules, S::next_run(self), io.due]
            .into_iter()
            .flatten()
            .min();
        let next = next.map(|next| next.max(io.rest_until));
        // A deadline that is due waits for the look that goes on.
        let next = next.filter(|next| io.looks_since.is_none_or(|since| *next > since));
        // The timer is set earlier but never later: a deadline that moves away costs one turn that
        // finds nothing, instead of a timer operation for each frame.
        match next {
            Some(next) if io.armed.is_none_or(|armed| next < armed) => return Rest::Arm(next),
            _ => {}
        }
        self.driver = DriverState::Asleep {
            until: io.armed,
            lets_write: io.alone && !io.blocked && io.looks_since.is_none(),
        };
        Rest::Sleep
    }

    /// Gives back memory that a burst has left.
    fn shrink(&mut self) {
        self.outbox.shrink();
        if self.leaving.is_empty() && self.leaving.capacity() > KEPT_ENTRIES {
            self.leaving = VecDeque::new();
        }
    }

    /// The connection has ended, and its stream is still being ended. Returns whether there is time for
    /// that: this side may want it to end at once, now or later, and then calls the driver.
    pub(in crate::connection) fn wait_for_farewell(
        &mut self,
        waker: &Waker,
        effects: &mut Effects,
    ) -> bool {
        effects.keep(&mut self.waker, waker);
        self.driver = DriverState::Asleep {
            until: None,
            lets_write: false,
        };
        self.closing != Closing::Now
    }

    pub(in crate::connection) fn end_farewell(&mut self) {
        self.driver = DriverState::Ended;
    }

    /// The connection has ended. Everybody who waits has this for a result.
    pub(in crate::connection) fn finish(&mut self, end: &ConnectionError, effects: &mut Effects) {
        self.driver = DriverState::Ended;
        self.machine.handle_closed();
        self.end = Some(end.clone());
        // What is unwritten is still known to it.
        S::end(self, end, effects);
        self.unsent = self.outbox.unsent();
        effects.drop_later(self.outbox.clear());
        self.leaving.clear();
        effects.drop_later(self.shortcut.take());
        self.refuse_senders(effects);
        for stream in self.streams.values_mut() {
            stream.local = Local::Closed;
        }
        self.streams.retain(|_, stream| !stream.is_over());
    }
}
