//! What a turn takes from the stream, and how much of it.

use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use tracing::{debug, trace};

use super::{Driver, STEPS};
use crate::connection::inbox::Received;
use crate::connection::side::Side;
use crate::error::ConnectionError;
use crate::keepalive::Peer;
use crate::wire::{Decoded, Flags, Frame, MessageType, Skipped, ping_number};

/// Bytes read in one turn, about, for the reason of [`STEPS`]: they may be thousands of small frames.
const SHARE: usize = 256 << 10;

/// Frames taken in one turn. Whoever they wake has a turn before the rest: its peer can work on the
/// first answers or requests while this side works on the others. As many as go into one write.
const FRAMES: usize = 64;

/// How far reading has come in a turn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// There was nothing more.
    Drained,
    /// This turn's share is used up.
    More,
    /// Nothing is read before answers are taken.
    Parked,
}

impl<S: Side> Driver<S> {
    pub(super) fn read(
        &mut self,
        cx: &mut Context<'_>,
        now: Duration,
    ) -> Result<Reading, ConnectionError> {
        let result = self.read_some(cx, now);
        self.reader.rest();
        result
    }

    fn read_some(
        &mut self,
        cx: &mut Context<'_>,
        now: Duration,
    ) -> Result<Reading, ConnectionError> {
        let mut share = SHARE;
        if !self.take_frames(now)? {
            return Ok(Reading::More);
        }
        for _ in 0..STEPS {
            if self.park(now) {
                return Ok(Reading::Parked);
            }
            if share == 0 {
                break;
            }
            match self.reader.poll_fill(cx, &mut *self.transport) {
                Poll::Pending => return Ok(Reading::Drained),
                Poll::Ready(Ok(0)) if self.reader.is_mid_frame() => {
                    return Err(ConnectionError::Torn);
                }
                Poll::Ready(Ok(0)) => return Err(ConnectionError::PeerClosed),
                Poll::Ready(Ok(read)) => share = share.saturating_sub(read),
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::Interrupted => continue,
                Poll::Ready(Err(error)) => return Err(error.into()),
            }
            // RFC KA-21: bytes, not frames. A large frame may take its time.
            let doubted = self.machine.peer() != Peer::Alive;
            self.machine.handle_bytes(now);
            if doubted {
                // Who hears of the answer that has come may look before this turn is over.
                self.publish(now)?;
            }
            // A handle may have written by itself a request that is answered here.
            self.take_commands(cx, now);
            if !self.take_frames(now)? {
                return Ok(Reading::More);
            }
        }
        Ok(Reading::More)
    }

    /// Takes apart what was read. `false` if some of it is left for the next turn.
    fn take_frames(&mut self, now: Duration) -> Result<bool, ConnectionError> {
        // A look asks for all that has come, and so does the end.
        let due = self.writer.has_failed() || self.machine.look_due(now) || self.side.look_due(now);
        while self.take_frame(now)? {
            self.frames += 1;
            if self.frames >= FRAMES && !due && self.reader.may_pause() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// `false` if all that was read is taken.
    fn take_frame(&mut self, now: Duration) -> Result<bool, ConnectionError> {
        let (reader, side, mut turn) = self.parts(now);
        if let Some((header, message)) = reader.next_small() {
            trace!(?header, "received");
            side.handle_data(header, Received::Shared(message), &mut turn);
            return Ok(true);
        }
        let decoded = self.reader.next().map_err(ConnectionError::Protocol)?;
        let taken = decoded.is_some();
        if let Some(decoded) = decoded {
            self.handle_decoded(decoded, now);
        }
        Ok(taken)
    }

    /// Whether reading has to wait until the peer takes what it is owed.
    pub(super) fn park(&mut self, now: Duration) -> bool {
        let limit = self.side.owed_limit();
        let parks = limit < usize::MAX && self.shared.desk().outbox.owed_bytes() > limit;
        if parks != self.parked {
            self.parked = parks;
            debug!(parks, "reading waits for the peer to take its answers");
            if parks {
                self.machine.handle_parked(now);
            } else {
                self.machine.handle_resumed(now);
                self.with_side(now, |side, turn| side.handle_resumed(turn));
            }
        }
        parks
    }

    fn handle_decoded(&mut self, decoded: Decoded, now: Duration) {
        match decoded {
            Decoded::Frame(frame) => self.handle_frame(frame, now),
            Decoded::Skipped { header, reason } => {
                debug!(?header, ?reason, "a frame is skipped");
                if reason == Skipped::Oversized {
                    self.with_side(now, |side, turn| side.handle_oversized(header, turn));
                }
            }
        }
    }

    fn handle_frame(&mut self, frame: Frame, now: Duration) {
        let header = frame.header;
        trace!(?header, "received");
        match header.message_type {
            // RFC KA-11, KA-19: answered here, whatever the handlers do.
            MessageType::PING => {
                self.machine.handle_ping(now);
                let flags = self.side.handle_ping();
                let mut desk = self.shared.desk();
                if desk.outbox.reply(header.stream_id, frame.payload, flags) {
                    self.pongs_coalesced += 1;
                }
            }
            MessageType::PONG => {
                let stalled = header.flags.contains(Flags::HANDLERS_STALLED);
                let number = ping_number(&frame.payload);
                if number == Some(self.newest_ping) && self.writer.ping_has_left() {
                    // The stream holds back later bytes, but not the PING. Told only after its
                    // answer it would wait for another one, and convict a peer that is well.
                    self.machine.handle_ping_flushed(now);
                    self.machine.handle_bytes(now);
                }
                let round_trip = self.machine.handle_pong(now, number, stalled);
                // The answer behind it may be looked at before this turn is over.
                self.shared.publisher.learn_support(self.machine.support());
                self.with_side(now, |side, turn| side.handle_pong(round_trip, turn));
            }
            MessageType::DATA => {
                let message = Received::Own(frame.payload);
                self.with_side(now, |side, turn| side.handle_data(header, message, turn));
            }
            _ => self.with_side(now, |side, turn| side.handle_frame(frame, turn)),
        }
    }
}
