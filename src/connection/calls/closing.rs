//! Verbs of a client that closes when all that it has queued is sent.

use std::mem;
use std::time::Duration;

use super::{Calls, Farewell, Key};
use crate::connection::effects::Effects;
use crate::connection::state::{Closing, State};
use crate::error::{ConnectionError, Error};
use crate::tuning::LAST_WORD_PATIENCE;

impl State<Calls> {
    /// Lets nothing more in, and ends the connection when all that is queued has been sent.
    pub(in crate::connection) fn close_when_sent(&mut self, now: Duration, effects: &mut Effects) {
        if self.end().is_some() {
            return;
        }
        self.close(Closing::Sent, effects);
        self.refuse_senders(effects);
        for (ticket, waiting) in &self.side.waiting {
            if let Some(deadline) = &waiting.call.deadline {
                self.side.deadlines.remove(Key::Ticket(*ticket), deadline);
            }
            self.machine.handle_call_ended(now);
        }
        self.refuse_waiting(&ConnectionError::LocalClose, effects);
    }

    /// No call that waits for room will be sent.
    pub(super) fn refuse_waiting(&mut self, end: &ConnectionError, effects: &mut Effects) {
        for (ticket, waiting) in mem::take(&mut self.side.waiting) {
            let error = Error::not_sent(end.clone());
            self.side.results.insert(ticket, Err(error));
            effects.wake(waiting.waker);
        }
    }

    /// Asks the peer, once all is written. A PING that went ahead of it proves nothing.
    pub(super) fn is_read(&mut self, now: Duration) -> bool {
        if !self.machine.may_ask() {
            return true;
        }
        let (ping, until) = match &self.side.farewell {
            Some(farewell) => (farewell.ping, farewell.until),
            None => (None, now.saturating_add(LAST_WORD_PATIENCE)),
        };
        let answered = ping.is_some_and(|ping| self.machine.answered_number() >= ping);
        if answered || until <= now {
            return true;
        }
        let is_asked = ping.is_some() || self.machine.view().awaiting_pong_since.is_some();
        let ping = if is_asked {
            ping
        } else {
            Some(self.machine.handle_probe_started(now))
        };
        self.queue_ping(now);
        self.side.farewell = Some(Farewell { ping, until });
        false
    }
}
