//! Verbs for futures of probes: ask for a PING, and wait for its PONG.

use std::task::{Poll, Waker};
use std::time::Duration;

use super::{Calls, Key, Probe};
use crate::connection::effects::Effects;
use crate::connection::state::State;
use crate::error::{ConnectionError, Error};
use crate::keepalive::{CallDeadline, Unknown, Verdict};

impl State<Calls> {
    /// Asks for a PING. The result comes by the ticket.
    pub(in crate::connection) fn start_probe(
        &mut self,
        now: Duration,
        budget: Duration,
        deadline: CallDeadline,
        waker: &Waker,
        effects: &mut Effects,
    ) -> Result<u64, Error> {
        self.check().map_err(Error::not_sent)?;
        // A peer of which nothing is known is asked: the probe may be what comes first. One that is
        // known not to answer may be seen to read.
        if !self.machine.may_ask() && !self.machine.may_ask_to_read() {
            let verdict = Verdict::Unknown(Unknown::NoSupport);
            return Err(Error::Deadline(Box::new(self.late(
                now,
                verdict,
                Some(budget),
            ))));
        }
        let ticket = self.ticket();
        let probe = Probe {
            number: self.machine.handle_probe_started(now),
            started: now,
            budget,
            deadline,
            waker: waker.clone(),
        };
        self.watch(Key::Probe(ticket), Some(&probe.deadline), effects);
        self.side.probes.insert(ticket, probe);
        // A driver that is about to sleep has asked the rules already.
        self.queue_ping(now);
        self.call_driver(effects);
        Ok(ticket)
    }

    pub(in crate::connection) fn poll_probe(
        &mut self,
        ticket: u64,
        waker: &Waker,
        effects: &mut Effects,
    ) -> Poll<Result<Duration, Error>> {
        if let Some(result) = self.side.results.remove(&ticket) {
            return Poll::Ready(result);
        }
        match self.side.probes.get_mut(&ticket) {
            None => Poll::Ready(Err(Error::not_sent(ConnectionError::Abandoned))),
            Some(probe) => {
                effects.keep(&mut probe.waker, waker);
                Poll::Pending
            }
        }
    }

    pub(in crate::connection) fn drop_probe(
        &mut self,
        now: Duration,
        ticket: u64,
        effects: &mut Effects,
    ) {
        self.side.results.remove(&ticket);
        if let Some(probe) = self.close_probe(now, ticket) {
            effects.drop_later(probe.waker);
            self.call_ended(effects);
        }
    }

    pub(super) fn close_probe(&mut self, now: Duration, ticket: u64) -> Option<Probe> {
        let probe = self.side.probes.remove(&ticket)?;
        self.side
            .deadlines
            .remove(Key::Probe(ticket), &probe.deadline);
        self.machine.handle_probe_ended(now);
        Some(probe)
    }

    pub(super) fn end_probe(
        &mut self,
        ticket: u64,
        probe: Probe,
        result: Result<Duration, Error>,
        effects: &mut Effects,
    ) {
        self.side.results.insert(ticket, result);
        effects.wake([probe.waker]);
    }
}
