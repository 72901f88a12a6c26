//! The part of a turn that reads from the stream, and how much it reads.

use std::task::{Context, Poll};

use tracing::{debug, trace};

use super::Driver;
use super::turn::{Incoming, Reading};
use crate::connection::inbox::Received;
use crate::connection::side::SideDriver;
use crate::connection::state::Side;
use crate::error::ConnectionError;
use crate::transport::Fault;
use crate::tuning::{FAULT_PAUSE, TURN_BYTES, TURN_FRAMES, TURN_STEPS};
use crate::wire::{Decoded, Frame, MessageType, Skipped};

impl<S: SideDriver> Driver<S> {
    pub(super) fn read(&mut self, cx: &mut Context<'_>) -> Result<Reading, ConnectionError> {
        self.side.begin_read(self.now);
        self.bytes = 0;
        let result = self.read_some(cx);
        let drained = matches!(result, Ok(Reading::Drained));
        self.side.handle_read(self.now, self.bytes, drained);
        self.reader.rest();
        result
    }

    fn read_some(&mut self, cx: &mut Context<'_>) -> Result<Reading, ConnectionError> {
        let mut share = TURN_BYTES;
        if self.reader.has_rest() && !self.take_frames(false)? {
            return Ok(Reading::More);
        }
        for _ in 0..TURN_STEPS {
            if self.parks {
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
                Poll::Ready(Ok(read)) => {
                    share = share.saturating_sub(read);
                    self.bytes += read;
                }
                Poll::Ready(Err(error)) => match Fault::of(&error) {
                    Fault::Interrupted => continue,
                    Fault::Passing => {
                        self.arm_by(cx, self.now.saturating_add(FAULT_PAUSE));
                        return Ok(Reading::Failed);
                    }
                    Fault::Lasting => return Err(error.into()),
                },
            }
            if !self.take_frames(true)? {
                return Ok(Reading::More);
            }
        }
        Ok(Reading::More)
    }

    /// Whether reading has to wait until the peer takes what it is owed.
    pub(super) fn park(&mut self) -> bool {
        if self.writing.has_failed() {
            // It will take none. All that it has sent is delivered.
            return false;
        }
        let parks = self.shared.lock().park(self.now, &mut self.effects);
        self.effects.run();
        parks
    }

    /// Takes apart what was read, and lets the state apply it. `has_read` if bytes have come. `false` if
    /// some of it is left for the next turn.
    fn take_frames(&mut self, has_read: bool) -> Result<bool, ConnectionError> {
        // A look asks for all that has come, and so does the end.
        let all = self.writing.has_failed() || self.look_due;
        let taken = loop {
            match self.take_frame() {
                Ok(true) => {}
                Ok(false) => break Ok(true),
                Err(error) => break Err(error),
            }
            self.frames += 1;
            self.waits.handle_header();
            let is_call = matches!(self.arrived.last(), Some(Incoming::Input(_)));
            let enough = (is_call && self.share.take()) || self.frames >= TURN_FRAMES;
            if enough && !all && self.reader.may_pause() {
                break Ok(false);
            }
            if self.arrived.len() >= TURN_FRAMES {
                self.apply(has_read);
            }
        };
        if matches!(taken, Ok(true)) {
            let within_header = self.reader.is_mid_header();
            self.waits.handle_read(self.now, within_header);
        }
        // Frames in front of bytes that are not ttrpc are delivered all the same.
        if self.apply(has_read) {
            return Err(ConnectionError::Echo);
        }
        taken
    }

    /// Takes the next frame apart. `false` if all that was read is taken.
    fn take_frame(&mut self) -> Result<bool, ConnectionError> {
        if let Some((header, place)) = self.reader.next_small() {
            trace!(?header, "received");
            self.arrived.push(Incoming::SmallData(header, place));
            return Ok(true);
        }
        match self.reader.next().map_err(ConnectionError::Protocol)? {
            Some(Decoded::Frame(frame)) => {
                let arrived = self.prepare(frame);
                self.arrived.push(arrived);
            }
            Some(Decoded::Skipped { header, reason }) => {
                debug!(?header, ?reason, "a frame is skipped");
                if reason == Skipped::Oversized {
                    if header.message_type == MessageType::REQUEST {
                        self.waits.handle_request();
                    }
                    self.arrived.push(Incoming::Oversized(header));
                }
            }
            None => return Ok(false),
        }
        Ok(true)
    }

    /// Takes a frame apart before the lock is taken (law 2).
    fn prepare(&mut self, frame: Frame) -> Incoming<<S::Side as Side>::Input> {
        trace!(header = ?frame.header, "received");
        match frame.header.message_type {
            MessageType::PING => Incoming::Ping(frame, self.side.handle_ping()),
            MessageType::PONG => Incoming::Pong(frame),
            MessageType::DATA => Incoming::Data(frame.header, frame.payload),
            other => {
                if other == MessageType::REQUEST {
                    self.waits.handle_request();
                }
                Incoming::Input(self.side.decode(self.now, frame))
            }
        }
    }

    /// Lets the state apply a batch of frames under one lock. Returns whether there was an echo among
    /// them.
    fn apply(&mut self, has_read: bool) -> bool {
        let (now, effects) = (self.now, &mut self.effects);
        let echoes = {
            let mut state = self.shared.lock();
            if has_read {
                // RFC KA-21: bytes, not frames. A large frame may take its time.
                state.machine.handle_bytes(now);
            }
            for arrived in self.arrived.drain(..) {
                match arrived {
                    Incoming::Input(input) => {
                        S::Side::handle_input(&mut state, now, input, effects);
                    }
                    Incoming::Data(header, payload) => {
                        let message = Received::Own(payload);
                        S::Side::handle_data(&mut state, now, header, message, effects);
                    }
                    Incoming::SmallData(header, place) => {
                        let message = Received::Shared(self.reader.bytes(place));
                        S::Side::handle_data(&mut state, now, header, message, effects);
                    }
                    Incoming::Ping(ping, flags) => state.handle_ping(now, ping, flags),
                    Incoming::Pong(pong) => state.handle_pong(now, &pong, effects),
                    Incoming::Oversized(header) => {
                        S::Side::handle_oversized(&mut state, now, header, effects);
                    }
                }
            }
            self.look_due = state.look_due(now) || self.waits.is_due(now);
            self.parks = !self.writing.has_failed() && state.park(now, effects);
            self.starts = S::Side::has_starts(&state);
            state.echoes()
        };
        self.effects.run();
        echoes
    }

    /// Starts what may run, once it is known that the peer is there for the answers: requests behind
    /// which the end of the stream lies are run for nobody. A peer that has left while this process did
    /// not run may have left hundreds of them.
    pub(super) fn start(
        &mut self,
        cx: &mut Context<'_>,
        reading: Reading,
    ) -> Result<(), ConnectionError> {
        if !self.starts {
            return Ok(());
        }
        if reading == Reading::More {
            let (has_read, ends) = self.reader.read_ahead(cx, &mut *self.transport);
            if has_read && !self.reader.may_pause() {
                // RFC KA-19: a PING among what was read is answered before handlers run.
                self.take_frames(true)?;
            } else if has_read {
                self.shared.lock().machine.handle_bytes(self.now);
            }
            if ends {
                self.abandon();
            }
        }
        self.side.start(&self.shared);
        Ok(())
    }

    /// Nobody takes answers any more. What has not begun never does.
    pub(super) fn abandon(&mut self) {
        S::Side::abandon(&mut self.shared.lock(), &mut self.effects);
        self.effects.run();
    }
}
