//! What differs between the two ends of a connection, as the driver sees it.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::deadlines::Wrote;
use super::inbox::Received;
use super::outbox::Outbox;
use super::{Shared, notify};
use crate::error::ConnectionError;
use crate::keepalive::{Machine, Role};
use crate::liveness::Traffic;
use crate::wire::{Flags, Frame, Header};

/// One end of a connection: what it does with frames, commands and deadlines.
pub(crate) trait Side: Send + 'static {
    /// What handles tell this side.
    type Command: Send + 'static;

    const ROLE: Role;

    fn handle_command(&mut self, command: Self::Command, turn: &mut Turn<'_, Self::Command>);

    /// A REQUEST or RESPONSE frame.
    fn handle_frame(&mut self, frame: Frame, turn: &mut Turn<'_, Self::Command>);

    /// A DATA frame.
    fn handle_data(
        &mut self,
        header: Header,
        message: Received<'_>,
        turn: &mut Turn<'_, Self::Command>,
    );

    /// A frame whose payload is too large and was skipped.
    fn handle_oversized(&mut self, header: Header, turn: &mut Turn<'_, Self::Command>);

    /// A PING. Yields the flags of its PONG.
    fn handle_ping(&mut self) -> Flags {
        Flags::NONE
    }

    /// A PONG, after the rules have seen it, with the round trip if it measured one.
    fn handle_pong(&mut self, _round_trip: Option<Duration>, _turn: &mut Turn<'_, Self::Command>) {}

    /// The driver runs, and last did at `previous_run`.
    fn handle_run(&mut self, _previous_run: Duration, _now: Duration) {}

    /// Ends what has run out of time before a byte of it was written. Called before writing.
    fn handle_unsent(&mut self, _turn: &mut Turn<'_, Self::Command>) {}

    /// The socket was found empty: ends what has run out of time.
    fn handle_look(&mut self, _turn: &mut Turn<'_, Self::Command>) {}

    /// Wishes for PINGs in front of deadlines.
    fn ask(&mut self, _turn: &mut Turn<'_, Self::Command>) {}

    /// Whether something is to be judged that needs a look.
    fn look_due(&self, _now: Duration) -> bool {
        false
    }

    /// When the driver must run for this side, which it does now.
    fn next_run(&mut self, _now: Duration) -> Option<Duration> {
        None
    }

    /// The shortest time in which a late call now prepares its verdict.
    fn shortest_lead(&self) -> Option<Duration> {
        None
    }

    /// Unwritten bytes of answers beyond which this side stops reading. A client never does: if
    /// both ends did, neither would go on (RFC KA-50).
    fn owed_limit(&self) -> usize {
        usize::MAX
    }

    /// The peer has taken so much that requests are read again.
    fn handle_resumed(&mut self, _turn: &mut Turn<'_, Self::Command>) {}

    /// Whether nothing is in progress, so that a connection that closes may end.
    fn is_idle(&self) -> bool;

    /// Says what is in progress, and how often things happened.
    fn count(&mut self, traffic: &mut Traffic);

    /// The connection has ended: tells everybody who waits.
    fn end(&mut self, end: &ConnectionError);
}

/// What a side may use in one turn of the driver.
pub(crate) struct Turn<'a, C> {
    pub(crate) now: Duration,
    /// The connection ends when its streams have ended.
    pub(crate) closing: bool,
    /// Nothing is read until the peer takes what it is owed.
    pub(crate) parked: bool,
    pub(crate) machine: &'a mut Machine,
    pub(crate) shared: &'a Arc<Shared<C>>,
}

impl<C> Turn<'_, C> {
    /// Queues a frame for the write of this turn.
    pub(crate) fn send(&self, stream_id: u32, frame: Vec<u8>) {
        self.shared.desk().outbox.push(stream_id, frame);
    }

    /// This side gives up a stream that the peer has not ended.
    pub(super) fn give_up(&self, stream_id: u32) {
        self.end_half(stream_id, |outbox| outbox.give_up(stream_id));
        self.admit_soon();
    }

    /// The peer has ended a stream: nothing more is sent on it.
    pub(super) fn end_sending(&self, stream_id: u32) {
        self.end_half(stream_id, |outbox| outbox.end_half(stream_id));
    }

    /// Ends a stream of a server with this frame, unless it has ended.
    pub(crate) fn end_stream(&self, stream_id: u32, frame: Vec<u8>) {
        self.end_half(stream_id, |outbox| {
            outbox.end_stream(stream_id, frame);
        });
        self.admit_soon();
    }

    /// What was queued behind frames of handles is admitted with them, by the next turn.
    fn admit_soon(&self) {
        let desk = self.shared.desk();
        if desk.outbox.has_arrived() {
            notify(desk);
        }
    }

    /// Whoever waits to send on the stream is told.
    fn end_half(&self, stream_id: u32, end: impl FnOnce(&mut Outbox)) {
        let waiting = {
            let mut desk = self.shared.desk();
            end(&mut desk.outbox);
            desk.waiting_sender(stream_id)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// A server takes messages of a stream's handler from now on.
    pub(crate) fn open_half(&self, stream_id: u32) {
        self.shared.desk().outbox.open_half(stream_id, 0);
    }

    /// Takes back a stream's frame of which nothing is written.
    pub(super) fn take_back(&self, stream_id: u32) -> bool {
        self.shared.desk().outbox.remove(stream_id)
    }

    /// Whether a byte of this stream's frame is unwritten.
    pub(super) fn holds(&self, stream_id: u32) -> bool {
        self.shared.desk().outbox.holds(stream_id)
    }

    pub(super) fn wrote_since(&self, p: Duration) -> Wrote {
        let (offered, taken) = self.shared.desk().outbox.offered_and_taken_since(p);
        Wrote { offered, taken }
    }
}
