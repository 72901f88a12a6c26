//! Messages received on one stream and not taken, and the receiver that waits for them.
//!
//! The driver puts messages in, in the order in which it reads, and never waits; the receiver takes
//! them out. What is in here is delivered before the end that follows it, be it an error.

use std::collections::VecDeque;
use std::error::Error;
use std::mem;
use std::ops::Deref;
use std::task::{Poll, Waker};

use bytes::Bytes;

use super::effects::Effects;
use crate::tuning::{JOINED_BYTES, KEPT_BUFFER, KEPT_ENTRIES, MESSAGE_OVERHEAD};
use crate::wire::Decode;

/// A message of a stream as it lies in memory.
#[derive(Debug)]
pub(crate) enum Received<'a> {
    /// In memory of its own.
    Own(Bytes),
    /// A small one, in memory that it shares with others for a while.
    Shared(&'a [u8]),
}

impl Received<'_> {
    /// The message of an application in it.
    pub(crate) fn decode<M: Decode>(self) -> Result<M, Box<dyn Error + Send + Sync>> {
        match self {
            Self::Own(bytes) => M::decode_owned(bytes),
            Self::Shared(bytes) => M::decode(bytes),
        }
    }
}

impl Deref for Received<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

/// The messages that a receiver takes at one time.
#[derive(Debug)]
pub(super) enum Chunk {
    Own(Bytes),
    Joined(Joined),
}

/// Small messages one behind the other, each with its length in front: cheaper than memory of its
/// own for each.
#[derive(Debug, Default)]
pub(super) struct Joined {
    bytes: Vec<u8>,
    /// Bytes that were taken.
    taken: usize,
}

/// Bytes of a length.
const LENGTH: usize = size_of::<u16>();

impl Joined {
    /// Whether there was room for it.
    fn push(&mut self, message: &[u8]) -> bool {
        let Ok(length) = u16::try_from(message.len()) else {
            return false;
        };
        let fits = self.bytes.len() + LENGTH + message.len() <= JOINED_BYTES;
        if fits {
            self.bytes.extend_from_slice(&length.to_be_bytes());
            self.bytes.extend_from_slice(message);
        }
        fits
    }

    pub(super) fn pop(&mut self) -> Option<&[u8]> {
        let (length, rest) = self
            .bytes
            .get(self.taken..)?
            .split_first_chunk::<LENGTH>()?;
        let message = rest.get(..u16::from_be_bytes(*length).into())?;
        self.taken += LENGTH + message.len();
        Some(message)
    }

    fn is_done(&self) -> bool {
        self.taken >= self.bytes.len()
    }

    /// Empties it for others.
    fn clear(&mut self) {
        self.bytes.clear();
        self.taken = 0;
    }
}

/// A bound, and what waits under it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteLimit {
    bytes: usize,
    limit: usize,
}

/// A message did not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overflow {
    /// Bytes that wait and those that came.
    pub(crate) size: usize,
    pub(crate) limit: usize,
}

impl ByteLimit {
    pub(crate) fn new(limit: usize) -> Self {
        Self { bytes: 0, limit }
    }

    /// Whether so many bytes more are allowed. If nothing waits they are, or a low limit would refuse
    /// messages that a frame can carry.
    fn check(&self, length: usize) -> Result<(), Overflow> {
        let (size, limit) = (self.bytes.saturating_add(length), self.limit);
        if size > limit && self.bytes > 0 {
            return Err(Overflow { size, limit });
        }
        Ok(())
    }

    fn sub(&mut self, length: usize) {
        self.bytes = self.bytes.saturating_sub(length);
    }
}

/// Messages received on one stream. `E` is its failure.
#[derive(Debug)]
pub(crate) struct Inbox<E> {
    /// `None` where no messages come, which most streams are.
    messages: Option<Box<Messages>>,
    end: End<E>,
    receiver: Receiver,
}

#[derive(Debug)]
struct Messages {
    chunks: VecDeque<(Chunk, usize)>,
    waiting: ByteLimit,
    /// A buffer that the receiver has emptied.
    spare: Joined,
}

/// The end behind the messages that are here.
#[derive(Debug)]
enum End<E> {
    /// More messages.
    Open,
    Failed(E),
    Closed,
}

#[derive(Debug)]
enum Receiver {
    Busy,
    Waiting(Waker),
    /// It was dropped, or never was; messages are for nobody.
    Gone,
}

impl Receiver {
    fn is_there(&self) -> bool {
        !matches!(self, Self::Gone)
    }
}

impl<E> Inbox<E> {
    /// For an end alone, for which somebody waits.
    pub(crate) fn new(waker: Waker) -> Self {
        Self {
            messages: None,
            end: End::Open,
            receiver: Receiver::Waiting(waker),
        }
    }

    /// Takes messages too, as many bytes of them.
    pub(crate) fn with_messages(mut self, limit: usize) -> Self {
        self.messages = Some(Box::new(Messages {
            chunks: VecDeque::new(),
            waiting: ByteLimit::new(limit),
            spare: Joined::default(),
        }));
        self
    }

    /// One of a stream on which nothing is received.
    pub(crate) fn closed() -> Self {
        Self {
            messages: None,
            end: End::Closed,
            receiver: Receiver::Gone,
        }
    }

    /// Adds a message. `total` is what waits in all queues of the connection. Yields who waits for it.
    pub(super) fn push(
        &mut self,
        message: Received<'_>,
        total: &mut ByteLimit,
    ) -> Result<Option<Waker>, Overflow> {
        let messages = self.messages.as_mut().filter(|_| self.receiver.is_there());
        if let Some(messages) = messages {
            let length = message.len() + MESSAGE_OVERHEAD;
            messages.waiting.check(length)?;
            total.check(length)?;
            messages.waiting.bytes += length;
            total.bytes += length;
            messages.append(message, length);
        }
        Ok(self.wake())
    }

    /// No message follows.
    pub(crate) fn close(&mut self) -> Option<Waker> {
        self.end(End::Closed)
    }

    /// No message follows, for this reason.
    pub(crate) fn fail(&mut self, error: E) -> Option<Waker> {
        self.end(End::Failed(error))
    }

    fn end(&mut self, end: End<E>) -> Option<Waker> {
        if let End::Open = self.end {
            self.end = end;
        }
        self.wake()
    }

    fn wake(&mut self) -> Option<Waker> {
        match mem::replace(&mut self.receiver, Receiver::Busy) {
            Receiver::Waiting(waker) => Some(waker),
            receiver => {
                self.receiver = receiver;
                None
            }
        }
    }

    /// What waits, then what the stream failed with, if it did, then `None`. `done` is what was taken
    /// before: its buffer is used again.
    pub(super) fn poll_take(
        &mut self,
        done: Chunk,
        total: &mut ByteLimit,
        waker: &Waker,
        effects: &mut Effects,
    ) -> Poll<Option<Result<Chunk, E>>> {
        if let Some(messages) = &mut self.messages {
            if let Some((chunk, length)) = messages.take(done) {
                total.sub(length);
                return Poll::Ready(Some(Ok(chunk)));
            }
        }
        let end = self.poll_end(waker, effects).map(|end| end.map(Err));
        if let (Poll::Pending, Some(messages)) = (&end, &mut self.messages) {
            messages.rest();
        }
        end
    }

    /// What the stream failed with, if it did, then `None`.
    pub(super) fn poll_end(&mut self, waker: &Waker, effects: &mut Effects) -> Poll<Option<E>> {
        match mem::replace(&mut self.end, End::Closed) {
            End::Closed => Poll::Ready(None),
            End::Failed(error) => Poll::Ready(Some(error)),
            End::Open => {
                self.end = End::Open;
                match &mut self.receiver {
                    Receiver::Waiting(kept) => effects.keep(kept, waker),
                    receiver => *receiver = Receiver::Waiting(waker.clone()),
                }
                Poll::Pending
            }
        }
    }

    /// The receiver is gone, and nobody takes what waits for it.
    pub(super) fn leave(&mut self, total: &mut ByteLimit, effects: &mut Effects) {
        if let Receiver::Waiting(waker) = mem::replace(&mut self.receiver, Receiver::Gone) {
            effects.drop_later(waker);
        }
        if let Some(messages) = &mut self.messages {
            total.sub(mem::take(&mut messages.waiting.bytes));
            effects.drop_later(mem::take(&mut messages.chunks));
        }
    }

    /// The receiver has taken the end.
    pub(super) fn end_taken(&mut self) {
        self.receiver = Receiver::Gone;
    }

    pub(super) fn has_receiver(&self) -> bool {
        self.receiver.is_there()
    }

    /// Whether messages may be among what comes.
    pub(super) fn takes_messages(&self) -> bool {
        self.messages.is_some()
    }

    /// Whether something may still come.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.end, End::Open)
    }
}

impl Messages {
    fn append(&mut self, message: Received<'_>, length: usize) {
        let chunk = match message {
            Received::Own(bytes) => Chunk::Own(bytes),
            Received::Shared(message) => {
                if let Some((Chunk::Joined(joined), counted)) = self.chunks.back_mut() {
                    if joined.push(message) {
                        *counted += length;
                        return;
                    }
                }
                let mut joined = mem::take(&mut self.spare);
                if joined.push(message) {
                    Chunk::Joined(joined)
                } else {
                    Chunk::Own(Bytes::copy_from_slice(message))
                }
            }
        };
        self.chunks.push_back((chunk, length));
    }

    fn take(&mut self, done: Chunk) -> Option<(Chunk, usize)> {
        if let Chunk::Joined(mut joined) = done {
            joined.clear();
            self.spare = joined;
        }
        let (chunk, length) = self.chunks.pop_front()?;
        self.waiting.sub(length);
        Some((chunk, length))
    }

    /// A quiet stream holds little.
    fn rest(&mut self) {
        if self.chunks.capacity() > KEPT_ENTRIES {
            self.chunks = VecDeque::new();
        }
        if self.spare.bytes.capacity() > KEPT_BUFFER {
            self.spare = Joined::default();
        }
    }
}

impl Chunk {
    /// The next message of it.
    pub(super) fn pop(&mut self) -> Option<Received<'_>> {
        match self {
            Self::Own(bytes) => {
                let bytes = mem::take(bytes);
                *self = Self::default();
                Some(Received::Own(bytes))
            }
            Self::Joined(joined) => joined.pop().map(Received::Shared),
        }
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(self, Self::Joined(joined) if joined.is_done())
    }
}

impl Default for Chunk {
    fn default() -> Self {
        Self::Joined(Joined::default())
    }
}

#[cfg(test)]
mod tests;
