//! From the byte stream to frames, with no buffer held by a connection that is quiet.

use std::cell::Cell;
use std::io;
use std::mem;
use std::ops::Range;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;

use crate::transport::{Fault, Transport};
use crate::tuning::{READ_BEHIND_LARGE, READ_BYTES, TURN_BYTES};
use crate::wire::{Decoded, Decoder, Header, ProtocolError};

thread_local! {
    /// Lent to the connection whose turn it is, so that idle ones hold none.
    static CHUNKS: Cell<BytesMut> = Cell::default();
}

/// Reads and takes frames apart.
#[derive(Debug, Default)]
pub(super) struct Reader {
    decoder: Decoder,
    chunk: BytesMut,
    /// Bytes of the chunk that the decoder has taken.
    taken: usize,
    /// Whether a PING is among the others, once that was asked.
    ping: Option<bool>,
    /// Whether the payload before was a large one.
    large: bool,
    /// Whether what is not taken yet was read on behind.
    ahead: bool,
    /// The end that was found there.
    end: Option<io::Result<usize>>,
}

impl Reader {
    /// Reads once. All frames of the read before must have been taken.
    pub(super) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut dyn Transport,
    ) -> Poll<io::Result<usize>> {
        if let Some(end) = self.end.take() {
            return Poll::Ready(end);
        }
        // A large payload goes where it will stay.
        if let Some((payload, missing)) = self.decoder.growing_payload() {
            self.large = true;
            return transport.poll_read(cx, payload, missing);
        }
        if self.chunk.capacity() == 0 {
            self.chunk = CHUNKS.take();
        }
        self.chunk.clear();
        self.chunk.reserve(READ_BYTES);
        self.taken = 0;
        self.ahead = false;
        self.ping = None;
        let limit = if self.large {
            READ_BEHIND_LARGE
        } else {
            READ_BYTES
        };
        let read = ready!(transport.poll_read(cx, &mut self.chunk, limit));
        self.large = false;
        Poll::Ready(read)
    }

    /// Reads on behind what is not taken yet, as much as is there, up to a turn's share; once, or a peer
    /// that sends without end would never be made to wait. Yields whether bytes have come, and whether
    /// the stream ends behind them.
    pub(super) fn read_ahead(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut dyn Transport,
    ) -> (bool, bool) {
        let before = self.chunk.len();
        let goes_on = !mem::replace(&mut self.ahead, true);
        while goes_on && self.end.is_none() && self.chunk.len() - self.taken < TURN_BYTES {
            self.chunk.reserve(READ_BYTES);
            match transport.poll_read(cx, &mut self.chunk, READ_BYTES) {
                Poll::Pending => break,
                Poll::Ready(Ok(read)) if read > 0 => self.ping = None,
                Poll::Ready(Err(error)) if Fault::of(&error) == Fault::Interrupted => {}
                Poll::Ready(Err(error)) if Fault::of(&error) == Fault::Passing => break,
                Poll::Ready(end) => self.end = Some(end),
            }
        }
        (self.chunk.len() > before, self.end.is_some())
    }

    /// The next frame of what was read, if it is a small one of data: its payload is these
    /// [`bytes`](Self::bytes).
    pub(super) fn next_small(&mut self) -> Option<(Header, Range<usize>)> {
        let mut input = self.chunk.get(self.taken..)?;
        let small = self.decoder.decode_small(&mut input);
        self.taken = self.chunk.len() - input.len();
        small.map(|(header, payload)| (header, self.taken - payload.len()..self.taken))
    }

    pub(super) fn bytes(&self, place: Range<usize>) -> &[u8] {
        self.chunk.get(place).unwrap_or_default()
    }

    /// Whether something that was read is not taken yet.
    pub(super) fn has_rest(&self) -> bool {
        self.taken < self.chunk.len()
    }

    /// The next frame of what was read.
    pub(super) fn next(&mut self) -> Result<Option<Decoded>, ProtocolError> {
        if let Some(complete) = self.decoder.take_complete() {
            return Ok(Some(complete));
        }
        let mut input = self.chunk.get(self.taken..).unwrap_or_default();
        let decoded = self.decoder.decode(&mut input);
        self.taken = self.chunk.len() - input.len();
        decoded
    }

    /// Whether frames were read that are not taken yet, and may wait while others have the thread.
    /// A PING may not: that handlers are busy is nothing that its answer depends on (RFC KA-19).
    pub(super) fn may_pause(&mut self) -> bool {
        // What was read on behind a part of a frame may complete a PING.
        if self.decoder.is_mid_frame() {
            return false;
        }
        let rest = self.chunk.get(self.taken..).unwrap_or_default();
        let decoder = &self.decoder;
        !rest.is_empty() && !*self.ping.get_or_insert_with(|| decoder.finds_ping(rest))
    }

    /// Gives the buffer back to the thread, unless it is needed again.
    pub(super) fn rest(&mut self) {
        if self.has_rest() {
            return;
        }
        let chunk = mem::take(&mut self.chunk);
        // One that was read ahead into may be larger.
        if (1..=2 * READ_BYTES).contains(&chunk.capacity()) {
            CHUNKS.set(chunk);
        }
        self.taken = 0;
    }

    /// Whether a header has come in part.
    pub(super) fn is_mid_header(&self) -> bool {
        self.decoder.is_mid_header()
    }

    /// Whether the end of the stream would cut a frame.
    pub(super) fn is_mid_frame(&self) -> bool {
        self.decoder.is_mid_frame()
    }
}
