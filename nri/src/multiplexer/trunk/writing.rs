//! Turns of the connections, from the driver or the handle that has them to the stream.

use std::io::{self, ErrorKind, IoSlice};
use std::mem;
use std::task::{Context, Poll};

use tokio::time::Instant;

use super::{BURST, Moved, PAUSE, Place, SIDES, State, gone};
use crate::multiplexer::outgoing::Turn;

impl State {
    pub(in crate::multiplexer) fn write(
        &mut self,
        place: Place,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Moved {
        if let Err(error) = self.check().and_then(|()| self.push(place, cx)) {
            return Moved::Done(Err(error));
        }
        if self.is_held(place) {
            return Moved::Pending;
        }
        if let Some(until) = self.burst_until() {
            return Moved::Until(until);
        }
        // Its place in the row is taken now, whatever the stream says: another connection with much to
        // write would be faster each time.
        let taken = self.take(place, slices).length;
        self.push_for_all(place, cx);
        Moved::Done(Ok(taken))
    }

    fn take(&mut self, place: Place, slices: &[IoSlice<'_>]) -> Turn {
        let turn = self.outgoing.take(place, slices);
        let (pieces, since) = &mut self.burst;
        *pieces += turn.pieces;
        // A call and its answer are none, and are not worth a look at the clock.
        if *pieces >= BURST / 4 {
            since.get_or_insert_with(Instant::now);
        }
        turn
    }

    /// Until when nothing more is written, if there has been a burst.
    fn burst_until(&mut self) -> Option<Instant> {
        let (BURST.., Some(since)) = self.burst else {
            return None;
        };
        let until = since + PAUSE;
        if Instant::now() < until {
            return Some(until);
        }
        self.burst = (0, None);
        None
    }

    /// Writes if nothing is in front, and the stream takes some of it now.
    pub(in crate::multiplexer) fn write_now(
        &mut self,
        place: Place,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> io::Result<usize> {
        self.check()?;
        let in_front = self.write_error.is_some() || !self.outgoing.pieces().is_empty();
        if in_front || self.burst_until().is_some() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let turn = self.take(place, slices);
        let length = self.outgoing.pieces().len();
        self.push_for_all(place, cx);
        self.keep(turn, length)
    }

    /// Offers bytes past every cache: what was taken before, and then those of this connection.
    pub(in crate::multiplexer) fn offer(
        &mut self,
        place: Place,
        bytes: &[u8],
    ) -> Option<io::Result<usize>> {
        if let Err(error) = self.check() {
            return Some(Err(error));
        }
        match self.offer_pieces()? {
            Ok(()) if self.outgoing.pieces().is_empty() => {}
            Ok(()) => return Some(Err(ErrorKind::WouldBlock.into())),
            Err(error) => return Some(Err(error)),
        }
        let turn = self.take(place, &[IoSlice::new(bytes)]);
        let length = self.outgoing.pieces().len();
        let offered = self.offer_pieces();
        let kept = self.keep(turn, length);
        match offered? {
            Ok(()) => Some(kept),
            Err(error) => Some(Err(error)),
        }
    }

    pub(super) fn offer_pieces(&mut self) -> Option<io::Result<()>> {
        if self.outgoing.pieces().is_empty() {
            return Some(Ok(()));
        }
        let offered = (self.transport.as_mut()?).try_send(self.outgoing.pieces())?;
        Some(offered.map(|length| self.handle_written(length, None)))
    }

    /// A turn of which nothing was written is taken back: its bytes may be others the next time.
    fn keep(&mut self, turn: Turn, length: usize) -> io::Result<usize> {
        if self.outgoing.pieces().len() < length {
            return Ok(turn.length);
        }
        self.outgoing.untake(turn);
        Err(ErrorKind::WouldBlock.into())
    }

    pub(in crate::multiplexer) fn flush(
        &mut self,
        place: Place,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.check()?;
        self.push(place, cx)?;
        if self.is_held(place) {
            return Poll::Pending;
        }
        self.transport.as_mut().ok_or_else(gone)?.poll_flush(cx)
    }

    /// Whether a turn of this connection has not left yet. Its driver is called when it has.
    pub(super) fn is_held(&mut self, place: Place) -> bool {
        self.waits[place] = self.outgoing.holds(place);
        self.waits[place]
    }

    /// The same in the turn of somebody who may have nothing to write: an error is met by the next who
    /// has.
    pub(super) fn push_for_all(&mut self, place: Place, cx: &mut Context<'_>) {
        if let Err(error) = self.push(place, cx) {
            self.write_error = Some(error);
        }
    }

    /// Writes what was taken of both, in the turn of this connection's driver. It writes behind its reads and
    /// sees what came of it, so it is not called: a task that is woken while it runs is offered to another
    /// thread, and a large message that goes from thread to thread costs twice as much.
    pub(super) fn push(&mut self, place: Place, cx: &mut Context<'_>) -> io::Result<()> {
        if let Some(error) = self.write_error.take() {
            return Err(error);
        }
        while !self.outgoing.pieces().is_empty() {
            let transport = self.transport.as_mut().ok_or_else(gone)?;
            match transport.poll_write(cx, &[IoSlice::new(self.outgoing.pieces())]) {
                Poll::Pending => {
                    self.refused = true;
                    return Ok(());
                }
                Poll::Ready(Ok(0)) => return Err(ErrorKind::WriteZero.into()),
                Poll::Ready(written) => self.handle_written(written?, Some(place)),
            }
        }
        Ok(())
    }

    fn handle_written(&mut self, length: usize, runs: Option<Place>) {
        if mem::take(&mut self.refused) {
            self.heard = Some(Instant::now());
        }
        self.outgoing.advance(length);
        for place in 0..SIDES {
            if self.waits[place] && !self.outgoing.holds(place) {
                self.waits[place] = false;
                self.wakes[place] |= runs != Some(place);
            }
        }
    }

    pub(in crate::multiplexer) fn unread(&mut self, place: Place) -> Option<usize> {
        let kernel = self.transport.as_ref()?.unread()?;
        Some(self.outgoing.unread(place, kernel))
    }

    /// Whether the stream can be written to from anywhere. It holds nothing back then.
    pub(in crate::multiplexer) fn has_shortcut(&self) -> bool {
        (self.transport.as_ref()).is_some_and(|transport| transport.shortcut().is_some())
    }
}
