//! What is told: the state to watchers, the end to the wrapped side, transitions to the log.

use std::fmt;
use std::io;
use std::time::Duration;

use tracing::{debug, info, warn};
use ttrpc_keepalive::keepalive::{Event, OnSilence, Role};
use ttrpc_keepalive::{ConnectionError, DeadReason};

use super::Layered;
use super::kernel::Kernel;

impl<S> Layered<S> {
    /// Publishes what the rules know. A conviction is the end, and told together with it.
    pub(super) fn publish(&mut self, now: Duration) -> io::Result<()> {
        let mut dead = None;
        while let Some(mut event) = self.machine.poll_event() {
            if let Event::Convicted {
                reason,
                evidence,
                on_silence,
            } = &mut event
            {
                evidence.process = self.kernel.as_ref().and_then(Kernel::process);
                if *on_silence == OnSilence::Close {
                    let (reason, evidence) = (*reason, Box::new(*evidence));
                    dead = Some(ConnectionError::Dead { reason, evidence });
                }
            }
            log(event);
        }
        match dead {
            Some(end) => Err(self.end_with(end, now)),
            None => {
                self.tell(now);
                Ok(())
            }
        }
    }

    /// The connection is over: nothing is asked any more. Yields the error for the wrapped side.
    pub(super) fn end_with(&mut self, end: ConnectionError, now: Duration) -> io::Error {
        match &end {
            ConnectionError::Dead { reason, evidence } => {
                warn!(%reason, %evidence, "the peer is convicted");
            }
            _ => info!(reason = %end, "the connection has ended"),
        }
        let error = end.clone().into();
        if self.end.is_none() {
            self.ended = matches!(end, ConnectionError::PeerClosed | ConnectionError::Torn);
            self.end = Some(end);
        }
        self.tell(now);
        self.machine.handle_closed();
        self.timer = None;
        self.armed = None;
        // Who waits to write must hear of it, too.
        self.wakers.wake_all();
        error
    }

    /// The error of a connection that has ended, if not by the peer's own closing: a stream of
    /// which the peer has ended its side can still be written to.
    pub(super) fn check(&self) -> io::Result<()> {
        match &self.end {
            Some(end) if !self.ended => Err(end.clone().into()),
            _ => Ok(()),
        }
    }

    pub(super) fn tell(&mut self, now: Duration) {
        self.traffic.calls_in_flight = self.calls.in_flight();
        if self.role == Role::Client {
            self.traffic.oldest_call = self.calls.oldest();
        }
        self.traffic.late_calls_unanswered = self.calls.late();
        let end = self.end.as_ref();
        self.publisher
            .publish(now, &self.machine, &self.traffic, end);
    }
}

/// Why keepalive ended the connection, if this is the error of a [`Layered`]
/// stream and keepalive was what ended it.
///
/// The error itself carries a [`ConnectionError`] with the evidence:
/// `error.get_ref()` yields it, to be downcast.
///
/// ```
/// # use std::io;
/// use ttrpc_keepalive_layer::dead_reason;
///
/// let other = io::Error::from(io::ErrorKind::BrokenPipe);
/// assert_eq!(dead_reason(&other), None);
/// ```
#[must_use]
pub fn dead_reason(error: &io::Error) -> Option<DeadReason> {
    let end: &ConnectionError = error.get_ref()?.downcast_ref()?;
    end.dead_reason()
}

impl<S> fmt::Debug for Layered<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layered")
            .field("role", &self.role)
            .field("publisher", &self.publisher)
            .finish_non_exhaustive()
    }
}

impl<S> Drop for Layered<S> {
    fn drop(&mut self) {
        if self.end.is_none() {
            let now = self.publisher.now();
            self.end_with(ConnectionError::LocalClose, now);
        }
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
