//! What the driver tells: the state to watchers, the end to everybody, transitions to the log.

use std::task::Waker;
use std::time::Duration;

use tracing::{debug, info, warn};

use super::Driver;
use crate::connection::side::Side;
use crate::error::ConnectionError;
use crate::keepalive::{Event, OnSilence};
use crate::liveness::Traffic;

impl<S: Side> Driver<S> {
    /// Publishes what the rules know. A conviction is the end of the connection: it is published
    /// together with that end, so that nobody sees a death without its evidence.
    pub(super) fn publish(&mut self, now: Duration) -> Result<(), ConnectionError> {
        let mut dead = None;
        while let Some(event) = self.machine.poll_event() {
            if let Event::Convicted {
                reason,
                evidence,
                on_silence: OnSilence::Close,
            } = event
            {
                // That of the event: the machine has let go of the PING that was on trial.
                dead = Some(ConnectionError::Dead { reason, evidence });
            }
            log(event);
        }
        self.tell(now, dead.as_ref());
        dead.map_or(Ok(()), Err)
    }

    fn tell(&mut self, now: Duration, end: Option<&ConnectionError>) {
        let mut traffic = Traffic::default();
        traffic.counters.pongs_coalesced = self.pongs_coalesced;
        self.side.count(&mut traffic);
        let view = self.machine.view();
        self.shared.publisher.tell(now, view, &traffic, end);
    }

    /// Ends the connection: first the state is known, then the calls fail, then the stream goes.
    /// Nothing on this path writes, flushes or waits.
    pub(super) fn end(&mut self, end: &ConnectionError) {
        self.ended = true;
        let now = self.last_run;
        // What the last turn learned before it met the end.
        while let Some(event) = self.machine.poll_event() {
            log(event);
        }
        match end {
            ConnectionError::Dead { reason, evidence } => {
                warn!(%reason, %evidence, "the peer is dead");
            }
            _ => info!(reason = %end, "the connection has ended"),
        }
        self.tell(now, Some(end));
        self.machine.handle_closed();
        let (commands, senders) = {
            let mut desk = self.shared.desk();
            desk.end = Some(end.clone());
            desk.shortcut = None;
            desk.outbox.clear();
            (std::mem::take(&mut desk.commands), desk.senders.wakers())
        };
        senders.into_iter().for_each(Waker::wake);
        for command in commands {
            self.with_side(now, |side, turn| side.handle_command(command, turn));
        }
        self.side.end(end);
        if let ConnectionError::Dead { .. } | ConnectionError::Abandoned = end {
            self.transport.abort();
        }
        // Who waits for the end finds nothing half ended.
        self.shared.publisher.end_told();
    }
}

fn log(event: Event) {
    match event {
        Event::LocalStall { gap } => info!(?gap, "this side did not run"),
        Event::StateChanged { from, to } => info!(?from, ?to, "the peer's state changed"),
        Event::SupportChanged(support) => debug!(?support, "keepalive support is known"),
        Event::Convicted {
            reason,
            evidence,
            on_silence: OnSilence::Report,
        } => warn!(%reason, %evidence, "the peer is overdue"),
        _ => {}
    }
}
