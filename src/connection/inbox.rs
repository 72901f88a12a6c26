//! Messages of one stream that were received and not yet taken.
//!
//! The driver puts them in, in the order in which it reads, and never waits; the receiver takes
//! them out. What is in here is delivered before the end that follows it, be it an error.

use std::collections::VecDeque;
use std::mem;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

/// What a message takes beside its bytes, about. Counted, since empty messages would be free
/// otherwise and a flood of them without a bound.
pub(crate) const MESSAGE_OVERHEAD: usize = 64;

/// A message of a stream as it lies in memory.
#[derive(Debug)]
pub(crate) enum Received<'a> {
    /// In memory of its own.
    Own(Bytes),
    /// A small one, in memory that it shares with others for a while.
    Shared(&'a [u8]),
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

/// A queue of one stream. `E` is what it may fail with.
#[derive(Debug)]
pub(crate) struct Inbox<E> {
    state: Mutex<State<E>>,
    /// Bytes that wait, in the state or with the receiver. The driver adds under the lock.
    bytes: AtomicUsize,
    /// Bytes that may wait.
    limit: usize,
    /// What waits in this and other queues, if they have a bound together.
    total: Option<Arc<Total>>,
}

/// Bytes that wait in all queues of a connection. Its driver adds, receivers take away.
#[derive(Debug)]
pub(crate) struct Total {
    bytes: AtomicUsize,
    limit: usize,
}

impl Total {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            bytes: AtomicUsize::new(0),
            limit,
        })
    }

    /// As in a queue, what comes while nothing waits always fits.
    fn add(&self, length: usize) -> Result<(), Overflow> {
        let waiting = self.bytes.load(Relaxed);
        let (size, limit) = (waiting.saturating_add(length), self.limit);
        if size > limit && waiting > 0 {
            return Err(Overflow { size, limit });
        }
        self.bytes.fetch_add(length, Relaxed);
        Ok(())
    }
}

#[derive(Debug)]
struct State<E> {
    messages: Queue,
    end: End<E>,
    receiver: Receiver,
}

/// Messages in their order.
#[derive(Debug, Default)]
struct Queue {
    messages: VecDeque<Queued>,
    /// The shared ones, one behind the other.
    shared: Vec<u8>,
    /// Bytes of them that are taken.
    taken: usize,
}

#[derive(Debug)]
enum Queued {
    Own(Bytes),
    /// So many bytes of those that are shared.
    Shared(usize),
}

/// Bytes that small messages share. They stay until the last of these is taken, so this is what a
/// stream may hold beyond what it counts; messages behind them have memory of their own.
const SHARED: usize = 16 << 10;

/// Messages, and bytes that they share, for which a queue keeps its memory while its receiver waits: a
/// quiet stream is to hold little.
const KEPT: (usize, usize) = (64, 4 << 10);

impl Queue {
    fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    fn push(&mut self, message: Received<'_>) {
        self.messages.push_back(match message {
            Received::Own(bytes) => Queued::Own(bytes),
            Received::Shared(bytes) if self.shared.len() + bytes.len() <= SHARED => {
                self.shared.extend_from_slice(bytes);
                Queued::Shared(bytes.len())
            }
            Received::Shared(bytes) => Queued::Own(Bytes::copy_from_slice(bytes)),
        });
    }

    fn pop(&mut self) -> Option<Received<'_>> {
        Some(match self.messages.pop_front()? {
            Queued::Own(bytes) => Received::Own(bytes),
            Queued::Shared(length) => {
                let begin = self.taken;
                self.taken += length;
                Received::Shared(&self.shared[begin..self.taken])
            }
        })
    }

    /// Makes an empty queue ready for others.
    fn reset(&mut self) {
        self.shared.clear();
        self.taken = 0;
    }

    /// Gives memory back: nothing waits.
    fn rest(&mut self) {
        if self.messages.capacity() > KEPT.0 || self.shared.capacity() > KEPT.1 {
            *self = Self::default();
        }
    }
}

/// What follows the messages that are here.
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
    /// It was dropped; messages are for nobody.
    Gone,
}

/// A message did not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overflow {
    /// Bytes that wait and those that came.
    pub(crate) size: usize,
    pub(crate) limit: usize,
}

impl<E> Inbox<E> {
    /// The two ends of a queue.
    pub(crate) fn new(limit: usize, total: Option<Arc<Total>>) -> (Arc<Self>, Messages<E>) {
        let inbox = Arc::new(Self {
            state: Mutex::new(State {
                messages: Queue::default(),
                end: End::Open,
                receiver: Receiver::Busy,
            }),
            bytes: AtomicUsize::new(0),
            limit,
            total,
        });
        let messages = Messages {
            inbox: Arc::clone(&inbox),
            taken: Queue::default(),
        };
        (inbox, messages)
    }

    /// Adds a message. One always fits into an empty queue, or a low limit would refuse messages
    /// that a frame can carry.
    pub(crate) fn push(&self, message: Received<'_>) -> Result<(), Overflow> {
        let mut state = self.state();
        if matches!(state.receiver, Receiver::Gone) {
            return Ok(());
        }
        let length = message.len() + MESSAGE_OVERHEAD;
        let waiting = self.bytes.load(Relaxed);
        let size = waiting.saturating_add(length);
        if size > self.limit && waiting > 0 {
            return Err(Overflow {
                size,
                limit: self.limit,
            });
        }
        if let Some(total) = &self.total {
            total.add(length)?;
        }
        self.bytes.fetch_add(length, Relaxed);
        state.messages.push(message);
        wake(state);
        Ok(())
    }

    /// No message follows.
    pub(crate) fn close(&self) {
        self.end(End::Closed);
    }

    /// No message follows, for this reason.
    pub(crate) fn fail(&self, error: E) {
        self.end(End::Failed(error));
    }

    fn end(&self, end: End<E>) {
        let mut state = self.state();
        if let End::Open = state.end {
            state.end = end;
            wake(state);
        }
    }

    /// So many bytes do not wait here any more.
    fn taken(&self, length: usize) {
        self.bytes.fetch_sub(length, Relaxed);
        if let Some(total) = &self.total {
            total.bytes.fetch_sub(length, Relaxed);
        }
    }

    /// Nothing is left half done in a critical section, so a panic elsewhere has broken nothing.
    fn state(&self) -> MutexGuard<'_, State<E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes the receiver if it waits, behind the lock.
fn wake<E>(mut state: MutexGuard<'_, State<E>>) {
    if let Receiver::Waiting(_) = state.receiver {
        if let Receiver::Waiting(waker) = mem::replace(&mut state.receiver, Receiver::Busy) {
            drop(state);
            waker.wake();
        }
    }
}

/// The receiver's end of an [`Inbox`].
#[derive(Debug)]
pub(crate) struct Messages<E> {
    inbox: Arc<Inbox<E>>,
    /// All that waited when the lock was last needed. They still count.
    taken: Queue,
}

impl<E> Messages<E> {
    /// The next message, then what the stream failed with, if it did, then `None`.
    pub(crate) fn poll_next(&mut self, cx: &Context<'_>) -> Poll<Option<Result<Received<'_>, E>>> {
        if !self.taken.is_empty() {
            return Poll::Ready(self.next_taken());
        }
        self.taken.reset();
        let mut state = self.inbox.state();
        if !state.messages.is_empty() {
            mem::swap(&mut state.messages, &mut self.taken);
            drop(state);
            return Poll::Ready(self.next_taken());
        }
        match mem::replace(&mut state.end, End::Closed) {
            End::Closed => Poll::Ready(None),
            End::Failed(error) => Poll::Ready(Some(Err(error))),
            End::Open => {
                state.end = End::Open;
                state.messages.rest();
                self.taken.rest();
                match &mut state.receiver {
                    Receiver::Waiting(waker) => waker.clone_from(cx.waker()),
                    receiver => *receiver = Receiver::Waiting(cx.waker().clone()),
                }
                Poll::Pending
            }
        }
    }

    fn next_taken(&mut self) -> Option<Result<Received<'_>, E>> {
        let message = self.taken.pop()?;
        self.inbox.taken(message.len() + MESSAGE_OVERHEAD);
        Some(Ok(message))
    }
}

impl<E> Drop for Messages<E> {
    fn drop(&mut self) {
        let messages = {
            let mut state = self.inbox.state();
            state.receiver = Receiver::Gone;
            self.inbox.taken(self.inbox.bytes.load(Relaxed));
            mem::take(&mut state.messages)
        };
        drop(messages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(bytes: impl Into<Bytes>) -> Received<'static> {
        Received::Own(bytes.into())
    }

    fn next(messages: &mut Messages<&'static str>) -> Poll<Option<Result<Bytes, &'static str>>> {
        let polled = messages.poll_next(&Context::from_waker(Waker::noop()));
        polled.map_ok(|message| Bytes::copy_from_slice(&message))
    }

    #[test]
    fn messages_come_in_order_and_before_the_error_that_follows_them() {
        let (inbox, mut messages) = Inbox::new(1000, None);
        assert!(next(&mut messages).is_pending());
        inbox.push(Received::Shared(b"one")).unwrap();
        inbox.push(own("")).unwrap();
        inbox.fail("reset");
        inbox.close();
        assert_eq!(next(&mut messages), Poll::Ready(Some(Ok("one".into()))));
        assert_eq!(next(&mut messages), Poll::Ready(Some(Ok(Bytes::new()))));
        assert_eq!(next(&mut messages), Poll::Ready(Some(Err("reset"))));
        assert_eq!(next(&mut messages), Poll::Ready(None));
        assert_eq!(next(&mut messages), Poll::Ready(None));
    }

    #[test]
    fn bytes_are_bounded_and_empty_messages_are_not_free() {
        for (length, fit) in [(0, 15), (136, 5), (5000, 1)] {
            let (inbox, mut messages) = Inbox::<&str>::new(1000, None);
            let message = Bytes::from(vec![0; length]);
            for _ in 0..fit {
                inbox.push(own(message.clone())).unwrap();
            }
            let refused = inbox.push(own(message.clone())).unwrap_err();
            assert_eq!(
                (refused.size, refused.limit),
                ((fit + 1) * (length + 64), 1000)
            );
            assert!(next(&mut messages).is_ready());
            inbox.push(own(message)).unwrap();
        }
    }

    #[test]
    fn a_receiver_that_is_gone_keeps_nothing() {
        let (inbox, messages) = Inbox::<&str>::new(1000, None);
        inbox.push(own(vec![0; 900])).unwrap();
        drop(messages);
        for _ in 0..10 {
            inbox.push(own(vec![0; 900])).unwrap();
        }
        assert!(inbox.state().messages.is_empty());
    }
    #[test]
    fn queues_with_a_bound_together_share_what_others_have_left() {
        let total = Total::new(1000);
        let queue = || Inbox::<&str>::new(800, Some(Arc::clone(&total)));
        let message = Bytes::from(vec![0; 336]);
        let ((one, mut taken), (other, dropped)) = (queue(), queue());
        one.push(own(message.clone())).unwrap();
        other.push(own(message.clone())).unwrap();
        let refused = other.push(own(message.clone())).unwrap_err();
        assert_eq!((refused.size, refused.limit), (1200, 1000));
        assert!(next(&mut taken).is_ready());
        other.push(own(message.clone())).unwrap();
        one.push(own(message.clone())).unwrap_err();
        drop(dropped);
        one.push(own(message.clone())).unwrap();
        other.push(own(message)).unwrap();
        assert_eq!(total.bytes.load(Relaxed), 400, "one waits");
        drop(taken);
        assert_eq!(total.bytes.load(Relaxed), 0);
        let (_large, _messages) = {
            let (inbox, messages) = queue();
            inbox.push(own(vec![0; 5000])).unwrap();
            (inbox, messages)
        };
        assert_eq!(total.bytes.load(Relaxed), 5064, "nothing else waited");
    }

    #[test]
    fn small_messages_share_memory_that_a_quiet_stream_gives_back() {
        let (inbox, mut messages) = Inbox::<&str>::new(usize::MAX, None);
        let message = |number: usize| vec![number.to_le_bytes()[0]; number % 1000];
        for _ in 0..3 {
            for number in 0..2000 {
                let bytes = message(number);
                let received = match number % 7 {
                    0 => own(bytes.clone()),
                    _ => Received::Shared(&bytes),
                };
                inbox.push(received).unwrap();
            }
            for number in 0..2000 {
                let expected = Poll::Ready(Some(Ok(message(number).into())));
                assert_eq!(next(&mut messages), expected, "{number}");
            }
        }
        assert!(next(&mut messages).is_pending());
        let state = inbox.state();
        for queue in [&state.messages, &messages.taken] {
            assert!(queue.messages.capacity() <= KEPT.0);
            assert!(queue.shared.capacity() <= KEPT.1);
        }
    }
}
