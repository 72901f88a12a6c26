//! What is known about the peer, as a value to read and a stream to follow. Reports, decides nothing.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use tokio::runtime;
use tokio::sync::watch;

mod publisher;

pub use publisher::{Publisher, Traffic};

use crate::clock::{Alarm, Clock};
use crate::error::ConnectionError;
use crate::keepalive::{self, DeadReason, Evidence, Peer, Support, View};
use crate::wire::Flags;

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
            // It may live all the same, and speak.
            Self::Dead(DeadReason::NotReading) => f.write_str("ended (not reading)"),
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

/// What is published of a connection. Instants are times since it began.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    view: View,
    /// When the state became what it is.
    since: Duration,
    end: Option<ConnectionError>,
    traffic: Traffic,
    /// Whether everybody who waits has been told of the end.
    told: bool,
}

impl Known {
    fn new(view: View) -> Self {
        Self {
            view,
            since: Duration::ZERO,
            end: None,
            traffic: Traffic::default(),
            told: false,
        }
    }

    /// Takes over what is known at `now`, and the first end. Returns whether watchers have something
    /// new to see.
    fn update(
        &mut self,
        now: Duration,
        view: View,
        traffic: &Traffic,
        end: Option<&ConnectionError>,
    ) -> bool {
        let seen = self.visible();
        let ends = self.end.is_none() && end.is_some();
        if ends || self.view.state != view.state {
            self.since = now;
        }
        if ends {
            self.end = end.cloned();
        }
        self.view = view;
        self.traffic = *traffic;
        seen != self.visible()
    }

    /// Everybody who waits for something on the connection has been told of its end.
    fn end_told(&mut self) {
        self.told = true;
        self.traffic.calls_in_flight = 0;
        self.traffic.oldest_call = None;
    }

    fn visible(&self) -> (bool, Shown) {
        (self.end.is_some(), Shown::of(&self.view))
    }
}

/// What watchers are woken for when it changes: what somebody may decide by, never a byte. Whether a
/// write is blocked is not among it: it changes with every pause of the peer's reading, and what follows
/// from it does so by the state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shown {
    state: keepalive::State,
    support: Support,
    peer: Peer,
    pong_flags: Flags,
    overdue: bool,
    local_stall: Option<Duration>,
}

impl Shown {
    pub(crate) fn of(view: &View) -> Self {
        Self {
            state: view.state,
            support: view.support,
            peer: view.peer,
            pong_flags: view.pong_flags,
            overdue: view.overdue,
            local_stall: view.local_stall,
        }
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
    fn new(known: Known, clock: Clock) -> Self {
        Self { known, clock }
    }

    /// What is believed about the peer.
    pub fn state(&self) -> State {
        match (&self.known.end, &self.known.view.state) {
            // On a shared stream it may have been convicted on another connection.
            (Some(ConnectionError::Dead { reason, .. }), _)
            | (_, keepalive::State::Dead(reason)) => State::Dead(*reason),
            (Some(end), _) => State::Closed(end.clone()),
            (None, keepalive::State::Suspect) => State::Suspect,
            (None, _) => State::Alive,
        }
    }

    /// Whether the peer answers PING.
    pub fn support(&self) -> Support {
        self.known.view.support
    }

    /// The summary to decide by.
    pub fn peer(&self) -> Peer {
        if self.known.end.is_some() {
            Peer::Gone
        } else {
            self.known.view.peer
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

    /// How long ago the peer was last heard: a byte, or a write that moved again after having been
    /// blocked.
    ///
    /// On TCP the latter proves only that the peer's kernel lives.
    pub fn silent_for(&self) -> Duration {
        self.age(self.known.view.last_evidence)
    }

    /// The newest round-trip time of a PING. `None` until there was one.
    pub fn rtt(&self) -> Option<Duration> {
        self.known.view.rtt
    }

    /// The smoothed round-trip time. `None` until there was a sample.
    pub fn smoothed_rtt(&self) -> Option<Duration> {
        self.known.view.smoothed_rtt
    }

    /// For how long a PING has been on its way. `None` if none is.
    pub fn awaiting_pong_for(&self) -> Option<Duration> {
        let since = self.known.view.awaiting_pong_since?;
        Some(self.age(since))
    }

    /// For how long the kernel has been refusing what is to be written. `None` if it is not.
    pub fn write_blocked_for(&self) -> Option<Duration> {
        let since = self.known.view.write_blocked_since?;
        Some(self.age(since))
    }

    /// Whether the kernel tells what the peer's process has read, as that of Linux does on unix sockets,
    /// and this side listens to it ([`Keepalive::read_receipts`](keepalive::Keepalive::read_receipts)).
    ///
    /// This and [`support`](Self::support) are two questions: one is what the peer knows, the other what
    /// can be seen without its help.
    pub fn receipts(&self) -> bool {
        self.known.view.receipts
    }

    /// How long ago the peer's process is known to have read what was sent. `None` if the kernel was
    /// not asked, or tells nothing.
    ///
    /// Of a peer that does not answer PING it is evidence of life, though
    /// [`silent_for`](Self::silent_for) grows on.
    pub fn read_ago(&self) -> Option<Duration> {
        self.known.view.last_read.map(|since| self.age(since))
    }

    /// For how long something has been there that nobody had read when the kernel was last asked, and
    /// nothing was heard since. `None` if there was nothing.
    pub fn unread_for(&self) -> Option<Duration> {
        self.known.view.unread_since.map(|since| self.age(since))
    }

    /// Whether the peer's newest PONG said that its handlers do not run.
    pub fn handlers_stalled(&self) -> bool {
        let flags = self.known.view.pong_flags;
        flags.contains(Flags::HANDLERS_STALLED)
    }

    /// The length of the newest pause of this side during which it could not have seen the peer.
    pub fn local_stall(&self) -> Option<Duration> {
        self.known.view.local_stall
    }

    /// Whether the peer would have been convicted, had that not been left to the application
    /// ([`OnSilence::Report`](keepalive::OnSilence::Report)).
    pub fn overdue(&self) -> bool {
        self.known.view.overdue
    }

    /// How many calls ran out of time and are still without an answer. The peer may be at work on
    /// each of them.
    pub fn late_calls_unanswered(&self) -> usize {
        self.known.traffic.late_calls_unanswered
    }

    /// How many calls wait for their answers, or for room to be sent; on a server, how many requests
    /// are being served or wait for a handler.
    pub fn calls_in_flight(&self) -> usize {
        self.known.traffic.calls_in_flight
    }

    /// For how long the oldest call that was sent has been waiting for its answer. `None` if none
    /// is, and on a server.
    ///
    /// A peer that is alive and whose oldest call grows old has work that does not end: a reason to
    /// look at the application behind it, not at the connection.
    pub fn oldest_call_for(&self) -> Option<Duration> {
        self.known.traffic.oldest_call.map(|since| self.age(since))
    }

    /// How often things happened on this connection.
    pub fn counters(&self) -> Counters {
        Counters {
            keepalive: self.known.view.counters,
            ..self.known.traffic.counters
        }
    }

    /// What an error of this moment would carry.
    pub(crate) fn evidence(&self) -> Evidence {
        self.known.view.evidence(self.clock.now())
    }

    fn age(&self, since: Duration) -> Duration {
        self.clock.now().saturating_sub(since)
    }
}

/// Follows what is known about the peer of one connection.
///
/// As a [`Stream`] it yields the present [`Snapshot`] first and then one for each change that somebody
/// may decide by: of the state, the support, [`peer`](Snapshot::peer) or a flag, never one for a byte.
/// What changes and changes back within 100 ms is told once, or not at all: after a change the value
/// before it is not told sooner than that. The latest value wins: a watcher that is slow sees the newest
/// state and costs the connection nothing. It ends after the snapshot that is final, which nothing holds
/// back.
///
/// A clone starts anew with the present value.
pub struct Liveness {
    clock: Clock,
    known: watch::Receiver<Known>,
    /// Who knows more than what watchers are told of. `None` if that is all.
    source: Option<Arc<dyn Source>>,
    next: Next,
    told: Option<Told>,
}

/// What a watcher was told last.
#[derive(Clone, Copy, Debug)]
struct Told {
    at: Duration,
    shown: Shown,
    since: Duration,
    /// And before that.
    before: Option<Shown>,
}

impl Told {
    /// Whether this is what it was told last. If it has changed, it has changed back.
    fn is(&self, known: &Known) -> bool {
        self.since == known.since && self.shown == Shown::of(&known.view)
    }

    /// Until when this is not told, since it is what was told before.
    fn holds(&self, known: &Known) -> Option<Duration> {
        let returns = self.before == Some(Shown::of(&known.view));
        returns.then(|| self.at.saturating_add(FLIP))
    }
}

/// What changes back within this time is no change.
const FLIP: Duration = Duration::from_millis(100);

/// Knows the present state of a connection.
pub(crate) trait Source: Send + Sync {
    fn snapshot(&self) -> Snapshot;
}

type Changed = Pin<Box<dyn Future<Output = Option<watch::Receiver<Known>>> + Send + Sync>>;

enum Next {
    /// The present value has not been seen.
    Present,
    /// Waiting for a change, and for the end of the time in which one is held back.
    Change(Option<Changed>, Option<Alarm>),
    /// The final value has been seen.
    End,
}

impl Liveness {
    fn new(known: watch::Receiver<Known>, clock: Clock, source: Option<Arc<dyn Source>>) -> Self {
        Self {
            clock,
            known,
            source,
            next: Next::Present,
            told: None,
        }
    }

    /// What is known now. Does not take part in what the stream yields.
    pub fn snapshot(&self) -> Snapshot {
        match &self.source {
            Some(source) => source.snapshot(),
            None => Snapshot::new(self.known.borrow().clone(), self.clock),
        }
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
        loop {
            ready!(this.poll_change(cx));
            if let Next::End = this.next {
                return Poll::Ready(None);
            }
            let known = this.known.borrow_and_update().clone();
            let now = this.clock.now();
            this.next = Next::Change(None, None);
            if known.end.is_some() {
                this.next = Next::End;
            } else if let Some(told) = &this.told {
                if told.is(&known) {
                    continue;
                }
                // Outside of all runtimes there is no timer.
                let until = told.holds(&known).filter(|until| *until > now);
                let until = until.filter(|_| runtime::Handle::try_current().is_ok());
                if let Some(at) = until.and_then(|until| this.clock.instant(until)) {
                    this.next = Next::Change(None, Some(Alarm::at(at)));
                    continue;
                }
            }
            let shown = Shown::of(&known.view);
            this.told = Some(Told {
                at: now,
                shown,
                since: known.since,
                before: this.told.map(|told| told.shown),
            });
            return Poll::Ready(Some(Snapshot::new(known, this.clock)));
        }
    }
}

impl Liveness {
    /// Waits until there may be something to tell.
    fn poll_change(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Next::Change(changed, held) = &mut self.next else {
            return Poll::Ready(());
        };
        let waiting = changed.get_or_insert_with(|| {
            let mut known = self.known.clone();
            Box::pin(async move {
                // An error means that the driver is gone; its last word is final.
                known.changed().await.ok().map(|()| known)
            })
        });
        if let Poll::Ready(known) = waiting.as_mut().poll(cx) {
            match known {
                Some(known) => self.known = known,
                None => self.next = Next::End,
            }
            return Poll::Ready(());
        }
        match held {
            Some(held) => Pin::new(held).poll(cx),
            None => Poll::Pending,
        }
    }
}

impl Clone for Liveness {
    fn clone(&self) -> Self {
        Self::new(self.known.clone(), self.clock, self.source.clone())
    }
}

impl fmt::Debug for Liveness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Liveness")
            .field("snapshot", &self.snapshot())
            .finish_non_exhaustive()
    }
}
