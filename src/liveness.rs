//! What is known about the peer, as a value to read and a stream to follow. Reports, decides nothing.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use tokio::sync::watch;

mod publisher;

pub use publisher::{Publisher, Traffic};

use crate::clock::Clock;
use crate::error::ConnectionError;
use crate::keepalive::{self, DeadReason, Evidence, Machine, Peer, Support};

/// What is believed about a connection's peer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum State {
    /// Nothing speaks against the peer. Peers that do not know PING are here too.
    Alive,
    /// A PING has been unanswered, or a write refused, for half of the time allowed.
    Suspect,
    /// Convicted. Final for this connection; a new connection starts from nothing.
    Dead(DeadReason),
    /// The connection has ended for another reason.
    Closed(ConnectionError),
}

impl State {
    /// Whether nothing can change any more.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Dead(_) | Self::Closed(_))
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alive => f.write_str("alive"),
            Self::Suspect => f.write_str("suspect"),
            Self::Dead(reason) => write!(f, "dead ({reason})"),
            Self::Closed(end) => write!(f, "closed ({end})"),
        }
    }
}

/// How often something happened on a connection, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// What the keepalive rules counted: PINGs, suspicions, stalls, convictions.
    pub keepalive: keepalive::Counters,
    /// PINGs of the peer that were never answered because a newer one came first.
    pub pongs_coalesced: u64,
    /// Responses that came after their call's deadline.
    pub late_responses: u64,
    /// Responses on an id whose call had ended: repeated ones, and those of dropped calls.
    pub repeated_responses: u64,
}

/// What is in progress on a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pending {
    pub(crate) calls: usize,
    /// When the oldest of them began.
    pub(crate) oldest: Option<Duration>,
}

/// What a driver publishes. Instants are times since the connection began.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) state: keepalive::State,
    pub(crate) end: Option<ConnectionError>,
    pub(crate) support: Support,
    pub(crate) peer: Peer,
    pub(crate) since: Duration,
    pub(crate) last_byte: Duration,
    pub(crate) rtt: Option<Duration>,
    pub(crate) smoothed_rtt: Option<Duration>,
    pub(crate) awaiting_pong_since: Option<Duration>,
    pub(crate) write_blocked_since: Option<Duration>,
    pub(crate) handlers_stalled: bool,
    pub(crate) local_stall: Option<Duration>,
    pub(crate) overdue: bool,
    pub(crate) late_unanswered: usize,
    pub(crate) pending: Pending,
    pub(crate) counters: Counters,
    /// Whether everybody who waits has been told of the end.
    told: bool,
}

impl Known {
    pub(crate) fn new(machine: &Machine) -> Self {
        let mut known = Self {
            state: machine.state(),
            end: None,
            support: machine.support(),
            peer: machine.peer(),
            since: Duration::ZERO,
            last_byte: Duration::ZERO,
            rtt: None,
            smoothed_rtt: None,
            awaiting_pong_since: None,
            write_blocked_since: None,
            handlers_stalled: false,
            local_stall: None,
            overdue: false,
            late_unanswered: 0,
            pending: Pending::default(),
            counters: Counters::default(),
            told: false,
        };
        known.update(Duration::ZERO, machine, Counters::default(), 0);
        known
    }

    /// Takes over what the machine knows. Returns whether a watcher has something new to see:
    /// a state, the support or a flag, never a byte.
    pub(crate) fn update(
        &mut self,
        now: Duration,
        machine: &Machine,
        counters: Counters,
        late_unanswered: usize,
    ) -> bool {
        let seen = self.visible();
        if self.state != machine.state() {
            self.state = machine.state();
            self.since = now;
        }
        self.support = machine.support();
        self.peer = machine.peer();
        self.last_byte = machine.last_evidence();
        self.rtt = machine.rtt();
        self.smoothed_rtt = machine.smoothed_rtt();
        self.awaiting_pong_since = machine.awaiting_pong_since();
        self.write_blocked_since = machine.write_blocked_since();
        self.handlers_stalled = machine.handlers_stalled();
        self.local_stall = machine.local_stall();
        self.overdue = machine.overdue();
        self.late_unanswered = late_unanswered;
        self.counters = counters;
        seen != self.visible()
    }

    pub(crate) fn support(&self) -> Support {
        self.support
    }

    /// Takes over whether the peer knows PING. Returns whether watchers see a change.
    pub(crate) fn learn_support(&mut self, machine: &Machine) -> bool {
        let seen = self.visible();
        self.support = machine.support();
        seen != self.visible()
    }

    /// Takes over the end, once. Returns whether it is new.
    pub(crate) fn end_at(&mut self, now: Duration, end: Option<&ConnectionError>) -> bool {
        if self.end.is_some() || end.is_none() {
            return false;
        }
        self.end = end.cloned();
        self.since = now;
        true
    }

    /// Everybody who waits for something on the connection has been told of its end.
    pub(crate) fn end_told(&mut self) {
        self.told = true;
        self.pending = Pending::default();
    }

    pub(crate) fn is_end_told(&self) -> bool {
        self.told
    }

    fn visible(&self) -> impl PartialEq + use<> {
        (
            (self.state, self.end.is_some(), self.support, self.peer),
            (
                self.handlers_stalled,
                self.overdue,
                self.local_stall,
                self.write_blocked_since.is_some(),
            ),
        )
    }
}

/// The peer of one connection, as known at one moment.
///
/// Facts are those of the moment it was taken; ages are read when asked, so they grow.
#[derive(Clone, Debug)]
pub struct Snapshot {
    known: Known,
    clock: Clock,
}

impl Snapshot {
    pub(crate) fn new(known: Known, clock: Clock) -> Self {
        Self { known, clock }
    }

    /// What is believed about the peer.
    pub fn state(&self) -> State {
        match (&self.known.end, self.known.state) {
            (_, keepalive::State::Dead(reason)) => State::Dead(reason),
            (Some(end), _) => State::Closed(end.clone()),
            (None, keepalive::State::Suspect) => State::Suspect,
            (None, _) => State::Alive,
        }
    }

    /// Whether the peer answers PING.
    pub fn support(&self) -> Support {
        self.known.support
    }

    /// The summary to decide by.
    pub fn peer(&self) -> Peer {
        if self.known.end.is_some() {
            Peer::Gone
        } else {
            self.known.peer
        }
    }

    /// Why the connection is over; `None` while it is not.
    pub fn end(&self) -> Option<&ConnectionError> {
        self.known.end.as_ref()
    }

    /// How long the state has been what it is.
    pub fn in_state_for(&self) -> Duration {
        self.age(self.known.since)
    }

    /// How long ago the peer last gave evidence of life: a byte, or a write that moved again after
    /// having been blocked.
    ///
    /// On TCP the latter proves only that the peer's kernel lives.
    pub fn silent_for(&self) -> Duration {
        self.age(self.known.last_byte)
    }

    /// The newest round-trip time of a PING. `None` until there was one.
    pub fn rtt(&self) -> Option<Duration> {
        self.known.rtt
    }

    /// The smoothed round-trip time. `None` until there was a sample.
    pub fn smoothed_rtt(&self) -> Option<Duration> {
        self.known.smoothed_rtt
    }

    /// For how long a PING has been on its way. `None` if none is.
    pub fn awaiting_pong_for(&self) -> Option<Duration> {
        self.known.awaiting_pong_since.map(|since| self.age(since))
    }

    /// For how long the kernel has been refusing what is to be written. `None` if it is not.
    pub fn write_blocked_for(&self) -> Option<Duration> {
        self.known.write_blocked_since.map(|since| self.age(since))
    }

    /// Whether the peer's newest PONG said that its handlers do not run.
    pub fn handlers_stalled(&self) -> bool {
        self.known.handlers_stalled
    }

    /// The length of the newest pause of this side during which it could not have seen the peer.
    pub fn local_stall(&self) -> Option<Duration> {
        self.known.local_stall
    }

    /// Whether the peer would have been convicted, had that not been left to the application
    /// ([`OnSilence::Report`](keepalive::OnSilence::Report)).
    pub fn overdue(&self) -> bool {
        self.known.overdue
    }

    /// How many calls ran out of time and are still without an answer. The peer may be at work on
    /// each of them.
    pub fn late_calls_unanswered(&self) -> usize {
        self.known.late_unanswered
    }

    /// How many calls wait for their answers, or for room to be sent; on a server, how many requests
    /// are being served or wait for a handler.
    pub fn calls_in_flight(&self) -> usize {
        self.known.pending.calls
    }

    /// For how long the oldest call that was sent has been waiting for its answer. `None` if none
    /// is, and on a server.
    ///
    /// A peer that is alive and whose oldest call grows old has work that does not end: a reason to
    /// look at the application behind it, not at the connection.
    pub fn oldest_call_for(&self) -> Option<Duration> {
        self.known.pending.oldest.map(|since| self.age(since))
    }

    /// How often things happened on this connection.
    pub fn counters(&self) -> Counters {
        self.known.counters
    }

    /// The same with these calls, which have begun and are not known yet.
    pub(crate) fn with_calls(mut self, began: impl Iterator<Item = Duration>) -> Self {
        let Pending { calls, oldest } = &mut self.known.pending;
        for began in began {
            *calls += 1;
            *oldest = Some(oldest.map_or(began, |oldest| oldest.min(began)));
        }
        self
    }

    /// What an error of this moment would carry.
    pub(crate) fn evidence(&self) -> Evidence {
        Evidence {
            silent_for: self.silent_for(),
            rtt: self.rtt(),
            smoothed_rtt: self.smoothed_rtt(),
            awaiting_pong_for: self.awaiting_pong_for(),
            write_blocked_for: self.write_blocked_for(),
            handlers_stalled: self.handlers_stalled(),
            local_stall: self.local_stall(),
            support: self.support(),
        }
    }

    fn age(&self, since: Duration) -> Duration {
        self.clock.now().saturating_sub(since)
    }
}

/// Follows what is known about the peer of one connection.
///
/// As a [`Stream`] it yields the present [`Snapshot`] first and then one for each change of state,
/// support or a flag, never one for a byte. The latest value wins: a watcher that is slow sees the
/// newest state and costs the connection nothing. It ends after the snapshot that is final.
///
/// A clone starts anew with the present value.
pub struct Liveness {
    clock: Clock,
    known: watch::Receiver<Known>,
    next: Next,
}

type Changed = Pin<Box<dyn Future<Output = watch::Receiver<Known>> + Send + Sync>>;

enum Next {
    /// The present value has not been seen.
    Present,
    /// Waiting for a change.
    Change(Option<Changed>),
    /// The final value has been seen.
    End,
}

impl Liveness {
    pub(crate) fn new(known: watch::Receiver<Known>, clock: Clock) -> Self {
        Self {
            clock,
            known,
            next: Next::Present,
        }
    }

    /// What is known now. Does not take part in what the stream yields.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.known.borrow().clone(), self.clock)
    }

    /// The next snapshot, like the stream's: `None` after the final one.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped: the next call yields what it would have.
    pub async fn next(&mut self) -> Option<Snapshot> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl Stream for Liveness {
    type Item = Snapshot;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Snapshot>> {
        let this = &mut *self;
        match &mut this.next {
            Next::Present => {}
            Next::Change(changed) => {
                let waiting = changed.get_or_insert_with(|| {
                    let mut known = this.known.clone();
                    Box::pin(async move {
                        // An error means that the driver is gone; its last word is final.
                        let _ = known.changed().await;
                        known
                    })
                });
                this.known = ready!(waiting.as_mut().poll(cx));
            }
            Next::End => return Poll::Ready(None),
        }
        let known = this.known.borrow_and_update().clone();
        this.next = if known.end.is_some() {
            Next::End
        } else {
            Next::Change(None)
        };
        Poll::Ready(Some(Snapshot::new(known, this.clock)))
    }
}

impl Clone for Liveness {
    fn clone(&self) -> Self {
        Self::new(self.known.clone(), self.clock)
    }
}

impl fmt::Debug for Liveness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Liveness")
            .field("snapshot", &self.snapshot())
            .finish_non_exhaustive()
    }
}
