//! All that is true of one connection, as a value: verbs in, results out.
//!
//! No I/O, no clock, no runtime and no call of a waker. `now` is an argument, and the same inputs give
//! the same outputs (law 1). It is changed under one short lock, by handles and by the driver alike;
//! nothing is mailed from one to the other. What a verb leaves to do is in its [`Effects`] (law 3).

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

mod streams;
mod turn;
mod writing;

pub(crate) use self::streams::{NotSent, half_close};
use super::effects::Effects;
use super::inbox::{ByteLimit, Received};
use super::outbox::Outbox;
use super::stream::{Spread, StreamRecord, Table};
use crate::error::{ConnectionError, Unsent};
use crate::keepalive::{Machine, Role};
use crate::liveness::Traffic;
use crate::transport::Shortcut;
use crate::wire::Header;

/// The part of a state that differs between the sides: the calls of a client, the requests of a server.
pub(crate) trait Side: fmt::Debug + Send + Sized + 'static {
    /// The record that this side keeps of a stream beside its halves.
    type Stream: StreamRecord;
    /// A REQUEST or RESPONSE, taken apart before the lock.
    type Input: Send;

    const ROLE: Role;

    fn handle_input(
        state: &mut State<Self>,
        now: Duration,
        input: Self::Input,
        effects: &mut Effects,
    );

    fn handle_data(
        state: &mut State<Self>,
        now: Duration,
        header: Header,
        message: Received<'_>,
        effects: &mut Effects,
    );

    /// A frame whose payload is too large and was skipped.
    fn handle_oversized(
        state: &mut State<Self>,
        now: Duration,
        header: Header,
        effects: &mut Effects,
    );

    /// A PONG, after the rules have seen it, with the round trip if it measured one.
    fn handle_pong(
        _state: &mut State<Self>,
        _now: Duration,
        _round_trip: Option<Duration>,
        _effects: &mut Effects,
    ) {
    }

    /// The driver runs. Returns whether its own part of the side is to act.
    fn handle_run(_state: &mut State<Self>, _now: Duration) -> bool {
        false
    }

    /// Ends what has run out of time before a byte of it was written. Asked before a write.
    fn end_unsent(_state: &mut State<Self>, _now: Duration, _effects: &mut Effects) {}

    /// The socket was looked at: ends what has run out of time. `answered` if the look says that there
    /// was nothing: else nothing is held against the peer.
    fn end_late(_state: &mut State<Self>, _now: Duration, _answered: bool, _effects: &mut Effects) {
    }

    /// Whether something is to be judged that needs a look.
    fn look_due(&self) -> bool {
        false
    }

    /// Whether something is to be judged as soon as a batch that is out has come back.
    fn awaits_write(&self) -> bool {
        false
    }

    /// Whether it may wish for one.
    fn may_wish(&self) -> bool {
        false
    }

    /// Wishes for a PING in front of a deadline: the instant at which it was wanted.
    fn poll_wish(&mut self) -> Option<Duration> {
        None
    }

    /// When the driver must run for this side.
    fn next_run(_state: &mut State<Self>) -> Option<Duration> {
        None
    }

    /// The shortest time in which a late call prepares its verdict.
    fn shortest_lead(&self) -> Option<Duration> {
        None
    }

    /// Unwritten bytes of answers beyond which this side stops reading. A client never does: if
    /// both sides did, neither would go on (RFC KA-50).
    fn owed_limit(&self) -> usize {
        usize::MAX
    }

    /// Whether the driver has something to start.
    fn has_starts(_state: &State<Self>) -> bool {
        false
    }

    /// The peer takes no answers any more: what has not started never does.
    fn abandon(_state: &mut State<Self>, _effects: &mut Effects) {}

    /// Wakes the first call that waits for room. Asked whenever there may be some.
    fn admit(_state: &mut State<Self>, _effects: &mut Effects) {}

    /// All that was queued is written. Whether the peer has read it, or cannot say so.
    fn is_read(_state: &mut State<Self>, _now: Duration) -> bool {
        true
    }

    /// Whether nothing is in progress, so that a connection that closes may end.
    fn is_idle(state: &State<Self>) -> bool;

    fn traffic(state: &mut State<Self>) -> Traffic;

    /// The connection has ended: everybody who waits is told.
    fn end(state: &mut State<Self>, end: &ConnectionError, effects: &mut Effects);
}

/// The failure of a stream's messages.
pub(crate) type Failure<S> = <<S as Side>::Stream as StreamRecord>::Failure;

/// The state of one connection.
#[derive(Debug)]
pub(crate) struct State<S: Side> {
    pub(crate) machine: Machine,
    pub(super) outbox: Outbox,
    pub(crate) streams: Table<S::Stream>,
    /// Streams that this side has given up, with the number of their last frame, in the order of
    /// these. Until that frame has left the peer may still end the stream in front of it.
    /// Bounded by the frames in the outbox.
    leaving: VecDeque<(u64, u32)>,
    /// Messages of open streams that wait for room, by ticket. Apart from calls: a call may wait for
    /// a stream to end that cannot end before its message is sent. Each belongs to a future that
    /// somebody holds, and goes with it.
    senders: BTreeMap<u64, Option<Waker>>,
    newest_ticket: u64,
    /// Messages in the queues of all streams.
    pub(super) received: ByteLimit,
    driver: DriverState,
    /// How the driver is called.
    waker: Waker,
    closing: Closing,
    /// Whether the peer has said, by whatever way, that it is about to close the connection.
    announced: bool,
    end: Option<ConnectionError>,
    /// The peer has sent back what it was sent: it is no peer.
    pub(super) echoes: bool,
    /// What the numbers of PINGs on this connection begin with. Nobody else uses them, so a PING that
    /// has one is an echo; by the numbers alone it might be the peer's own.
    pub(super) first_ping: u64,
    /// What was queued and not written at the end.
    unsent: Unsent,
    /// A way to write from the task of a handle.
    shortcut: Option<Arc<dyn Shortcut>>,
    pub(super) pongs_coalesced: u64,
    pub(crate) side: S,
}

/// How the driver is (law 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DriverState {
    /// In a turn. Before it sleeps it looks here for all that there is to do, so nobody calls it.
    Running,
    /// Until it is called, or its timer fires.
    Asleep {
        until: Option<Duration>,
        /// Whether a handle may write by itself: nothing is blocked, and the last turn took one frame
        /// at most. Callers that are answered together tend to call again together, and then one
        /// write carries all of it.
        lets_write: bool,
    },
    /// It sleeps, and was called.
    Called,
    Ended,
}

/// How this side wants the connection to end. A level, which the driver reads before it sleeps
/// (law 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Closing {
    No,
    /// When its streams have ended: the last handle is gone, or a shutdown drains.
    Drained,
    /// When all that is queued has been sent. Nothing more is let in.
    Sent,
    Now,
}

/// The answer to a driver that wants to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    Sleep,
    /// Set the timer to this first.
    Arm(Duration),
    /// There is something to do.
    Turn,
    /// The connection has nothing left to do, and closes.
    End,
}

/// The answer to a driver that begins a turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct TurnStart {
    /// The driver has another waker than before.
    pub(super) moved: bool,
    /// Its own part of the side is to act.
    pub(super) acts: bool,
}

/// The work left after a write.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Remainder {
    pub(super) frames: bool,
    /// A PING that the stream may hold back.
    pub(super) ping: bool,
}

/// The driver's knowledge of its stream when it wants to sleep.
#[derive(Clone, Copy, Debug)]
pub(super) struct SleepRequest {
    pub(super) now: Duration,
    /// When the timer fires.
    pub(super) armed: Option<Duration>,
    /// When the peer has taken too long.
    pub(super) due: Option<Duration>,
    /// Until then no deadline wakes the driver.
    pub(super) rest_until: Duration,
    /// When a look was due that goes on: the driver is called when it may go further.
    pub(super) looks_since: Option<Duration>,
    /// When the peer's process was last heard by whoever shares the stream.
    pub(super) heard: Option<Duration>,
    /// Whether it has something to do of which the state does not know.
    pub(super) goes_on: bool,
    /// Whether the stream refuses bytes.
    pub(super) blocked: bool,
    /// Whether the stream has passed on all that it took.
    pub(super) flushed: bool,
    /// Whether all that was read is taken.
    pub(super) has_read_all: bool,
    /// Whether it took one frame at most.
    pub(super) alone: bool,
}

impl<S: Side> State<S> {
    pub(super) fn new(
        machine: Machine,
        side: S,
        spread: Spread,
        receive_limit: usize,
        shortcut: Option<Arc<dyn Shortcut>>,
        seed: u64,
    ) -> Self {
        Self {
            machine,
            outbox: Outbox::default(),
            streams: Table::with_hasher(spread),
            leaving: VecDeque::new(),
            senders: BTreeMap::new(),
            newest_ticket: 0,
            received: ByteLimit::new(receive_limit),
            driver: DriverState::Running,
            waker: Waker::noop().clone(),
            closing: Closing::No,
            announced: false,
            end: None,
            echoes: false,
            // Room for all that are counted, and for the count to grow.
            first_ping: (seed >> 2) & !u64::from(u32::MAX),
            unsent: Unsent::default(),
            shortcut,
            pongs_coalesced: 0,
            side,
        }
    }

    /// Why the connection is over, once it is.
    pub(crate) fn end(&self) -> Option<&ConnectionError> {
        self.end.as_ref()
    }

    /// Fails if the connection is over.
    pub(crate) fn check(&self) -> Result<(), ConnectionError> {
        self.end.clone().map_or(Ok(()), Err)
    }

    pub(crate) fn closing(&self) -> Closing {
        self.closing
    }

    /// What was queued and is not written.
    pub(super) fn unsent(&self) -> Unsent {
        if self.end.is_some() {
            self.unsent
        } else {
            self.outbox.unsent()
        }
    }

    /// Fails if nothing more may be queued.
    pub(super) fn check_open(&self) -> Result<(), ConnectionError> {
        self.check()?;
        if self.closing >= Closing::Sent {
            return Err(ConnectionError::LocalClose);
        }
        Ok(())
    }

    /// This side wants the connection to end.
    pub(crate) fn close(&mut self, closing: Closing, effects: &mut Effects) {
        self.closing = self.closing.max(closing);
        self.call_driver(effects);
    }

    /// The peer is about to close the connection.
    pub(crate) fn expect_close(&mut self) {
        self.announced = true;
    }

    pub(super) fn echoes(&self) -> bool {
        self.echoes
    }

    pub(super) fn is_announced(&self) -> bool {
        self.announced
    }

    pub(super) fn traffic(&mut self) -> Traffic {
        let mut traffic = S::traffic(self);
        traffic.counters.pongs_coalesced = self.pongs_coalesced;
        traffic
    }

    /// A number that nobody else has.
    pub(super) fn ticket(&mut self) -> u64 {
        self.newest_ticket += 1;
        self.newest_ticket
    }
}
