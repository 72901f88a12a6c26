//! Tells watchers what the rules of one connection know.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::{Counters, Known, Liveness, Snapshot, Source};
use crate::clock::Clock;
use crate::error::ConnectionError;
use crate::keepalive::{Machine, View};

/// The other end of [`Liveness`]: publishes what a [`Machine`] knows, and keeps its time.
///
/// [`Client`](crate::Client) and [`Server`](crate::Server) do so by themselves. This is for who
/// drives the rules of [`keepalive`](crate::keepalive) in another place, such as a layer around a
/// byte stream.
///
/// ```
/// use std::time::Duration;
/// use ttrpc_keepalive::keepalive::{Keepalive, Machine, Role};
/// use ttrpc_keepalive::wire::Flags;
/// use ttrpc_keepalive::{Publisher, Support, Traffic};
///
/// let mut machine = Machine::new(&Keepalive::on_demand(), Role::Client, 0);
/// let publisher = Publisher::new(&machine);
/// let liveness = publisher.liveness();
///
/// let now = publisher.now();
/// machine.handle_bytes(now);
/// machine.handle_pong(now, None, Flags::NONE);
/// publisher.publish(now, &machine, &Traffic::default(), None);
/// assert_eq!(liveness.snapshot().support(), Support::Yes);
/// ```
pub struct Publisher {
    clock: Clock,
    known: watch::Sender<Known>,
}

/// What a driver knows of the traffic on its connection, and the rules do not.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Traffic {
    /// How often things happened. What the rules count themselves is taken from them.
    pub counters: Counters,
    /// See [`Snapshot::calls_in_flight`](crate::Snapshot::calls_in_flight).
    pub calls_in_flight: usize,
    /// When the oldest call that has no answer began, as a time since the connection began.
    pub oldest_call: Option<Duration>,
    /// See [`Snapshot::late_calls_unanswered`](crate::Snapshot::late_calls_unanswered).
    pub late_calls_unanswered: usize,
}

impl Publisher {
    /// The connection begins now.
    #[must_use]
    pub fn new(machine: &Machine) -> Self {
        Self::with_clock(Clock::start(), machine.view())
    }

    pub(crate) fn with_clock(clock: Clock, view: View) -> Self {
        Self {
            clock,
            known: watch::Sender::new(Known::new(view)),
        }
    }

    /// Time since the connection began, by tokio's clock: the `now` of every input of the machine.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Tells what is known at `now`, and the end of the connection if it has come; the first one
    /// stays. Watchers wake up for a change of state, support or a flag only, so it may be called
    /// at each turn.
    pub fn publish(
        &self,
        now: Duration,
        machine: &Machine,
        traffic: &Traffic,
        end: Option<&ConnectionError>,
    ) {
        self.tell(now, machine.view(), traffic, end);
        if end.is_some() {
            self.end_told();
        }
    }

    /// As [`publish`](Self::publish), but those who wait for the [`end`](Self::closed) are told
    /// apart from it, when everything else has been told.
    pub(crate) fn tell(
        &self,
        now: Duration,
        view: View,
        traffic: &Traffic,
        end: Option<&ConnectionError>,
    ) {
        self.known
            .send_if_modified(|known| known.update(now, view, traffic, end));
    }

    /// What would be seen if this were published.
    pub(crate) fn snapshot_of(
        &self,
        now: Duration,
        view: View,
        traffic: &Traffic,
        end: Option<&ConnectionError>,
    ) -> Snapshot {
        let mut known = self.known.borrow().clone();
        known.update(now, view, traffic, end);
        Snapshot::new(known, self.clock)
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    /// Everybody who waits for something on the connection has been told of its end.
    pub(crate) fn end_told(&self) {
        self.known.send_modify(Known::end_told);
    }

    /// Waits until the connection has ended.
    pub(crate) async fn ended(&self) -> ConnectionError {
        self.end_when(|known| known.end.is_some()).await
    }

    /// Waits until everybody has been told of the end, and its stream has ended.
    pub(crate) async fn closed(&self) -> ConnectionError {
        self.end_when(|known| known.told).await
    }

    async fn end_when(&self, is_over: impl FnMut(&Known) -> bool) -> ConnectionError {
        let mut known = self.known.subscribe();
        match known.wait_for(is_over).await.as_deref() {
            Ok(Known { end: Some(end), .. }) => end.clone(),
            // The sender lives as long as `self`, so there always is an end.
            _ => ConnectionError::Abandoned,
        }
    }

    /// What was published last.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.known.borrow().clone(), self.clock)
    }

    /// Follows what is published.
    #[must_use]
    pub fn liveness(&self) -> Liveness {
        Liveness::new(self.known.subscribe(), self.clock, None)
    }

    /// The same for a connection whose present state can be asked for.
    pub(crate) fn liveness_of(&self, source: Arc<dyn Source>) -> Liveness {
        Liveness::new(self.known.subscribe(), self.clock, Some(source))
    }
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher")
            .field("snapshot", &self.snapshot())
            .finish_non_exhaustive()
    }
}
