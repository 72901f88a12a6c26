//! The pieces that come: for whom they are, and what waits for whom.

use bytes::{Buf, BytesMut};

use super::error::MultiplexerError;
use super::trunk::{Place, SIDES};

/// Connection id and length, each a `u32` in network order.
pub(super) const HEADER: usize = 8;

/// The longest piece: a whole frame of the largest size, with its header.
pub(super) const LONGEST: u32 = (4 << 20) + 10;

/// Room for bytes is kept up to this size while none wait.
const KEPT: usize = 4 << 10;

/// What is known of the bytes that come. It reads nothing by itself.
#[derive(Debug)]
pub(super) struct Incoming {
    header: [u8; HEADER],
    filled: usize,
    /// Of the present piece, or the last one.
    id: u32,
    /// Bytes of the present piece that are still to come.
    remaining: usize,
    queues: [BytesMut; SIDES],
    /// What comes for a connection that is no more is dropped.
    dropped: [bool; SIDES],
    limit: usize,
}

impl Incoming {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            header: [0; HEADER],
            filled: 0,
            id: 0,
            remaining: 0,
            queues: Default::default(),
            dropped: [false; SIDES],
            limit,
        }
    }

    /// Takes apart what stands in the buffer from `start` on. What is for `place` stays there, what is
    /// for the other waits in its queue.
    pub(super) fn take(
        &mut self,
        place: Place,
        buffer: &mut BytesMut,
        start: usize,
    ) -> Result<(), MultiplexerError> {
        let (mut from, mut kept) = (start, start);
        let mut result = Ok(());
        while from < buffer.len() && result.is_ok() {
            if self.remaining == 0 {
                let missing = HEADER - self.filled;
                let part = &buffer[from..buffer.len().min(from + missing)];
                self.header[self.filled..self.filled + part.len()].copy_from_slice(part);
                self.filled += part.len();
                from += part.len();
                if self.filled == HEADER {
                    result = self.begin();
                }
                continue;
            }
            let to = buffer.len().min(from.saturating_add(self.remaining));
            self.remaining -= to - from;
            match self.owner() {
                Some(owner) if owner == place => {
                    if from > kept {
                        buffer.copy_within(from..to, kept);
                    }
                    kept += to - from;
                }
                Some(owner) => result = self.queue(owner, &buffer[from..to]),
                None => {}
            }
            from = to;
        }
        buffer.truncate(kept);
        result
    }

    /// A header is complete.
    fn begin(&mut self) -> Result<(), MultiplexerError> {
        let [a, b, c, d, e, f, g, h] = self.header;
        let length = u32::from_be_bytes([e, f, g, h]);
        self.filled = 0;
        self.id = u32::from_be_bytes([a, b, c, d]);
        if length > LONGEST {
            return Err(MultiplexerError::TooLong {
                connection: self.id,
                length,
                limit: LONGEST,
            });
        }
        self.remaining = usize::try_from(length).unwrap_or(usize::MAX);
        Ok(())
    }

    fn queue(&mut self, owner: Place, bytes: &[u8]) -> Result<(), MultiplexerError> {
        if self.dropped[owner] {
            return Ok(());
        }
        let queue = &mut self.queues[owner];
        let waiting = queue.len() + bytes.len();
        if waiting > self.limit {
            return Err(MultiplexerError::Unread {
                connection: self.id,
                waiting,
                limit: self.limit,
            });
        }
        queue.extend_from_slice(bytes);
        Ok(())
    }

    /// Whose the present piece is. `None` for one of no connection that is known here.
    fn owner(&self) -> Option<Place> {
        match self.id {
            super::PLUGIN_SERVICE => Some(0),
            super::RUNTIME_SERVICE => Some(1),
            _ => None,
        }
    }

    /// Moves what waits for a connection.
    pub(super) fn read(&mut self, place: Place, buffer: &mut BytesMut, limit: usize) -> usize {
        let queue = &mut self.queues[place];
        let length = queue.len().min(limit);
        buffer.extend_from_slice(&queue[..length]);
        queue.advance(length);
        if queue.is_empty() && queue.capacity() > KEPT {
            *queue = BytesMut::new();
        }
        length
    }

    /// Bytes that wait for a connection.
    pub(super) fn waiting(&self, place: Place) -> usize {
        self.queues[place].len()
    }

    /// Bytes of the present piece that are still to come, if it is for this connection.
    pub(super) fn remaining(&self, place: Place) -> usize {
        match self.owner() {
            Some(owner) if owner == place => self.remaining,
            _ => 0,
        }
    }

    /// Nobody will read what comes for this connection.
    pub(super) fn drop_for(&mut self, place: Place) {
        self.dropped[place] = true;
        self.queues[place] = BytesMut::new();
    }

    /// Whether the end of the stream would cut a piece.
    pub(super) fn is_mid_piece(&self) -> bool {
        self.remaining > 0 || self.filled > 0
    }
}
