//! The halves of streams in the hands of users: what sends, what receives, and what holds a call.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::sync::Mutex as Turn;

use super::calls::Calls;
use super::give_way::pause;
use super::inbox::{Chunk, Received};
use super::own_clock::OwnClock;
use super::shared::Shared;
use super::state::{Failure, NotSent, Side};
use crate::hook::{Hooked, Outcome};
use crate::keepalive::CallDeadline;
use crate::tuning::{KEPT_BUFFER, SEND_SHARE};
use crate::wire::{Encode, Flags, encode_data_into};

/// A client's stream that is open, held by its halves. Dropping the last of them ends the call.
#[derive(Debug)]
pub(crate) struct StreamGuard {
    call: OpenCall,
    deadline: Option<CallDeadline>,
    /// Behind the call in the order of drops.
    hooked: Mutex<Option<Box<Hooked>>>,
}

#[derive(Debug)]
struct OpenCall {
    shared: Arc<Shared<Calls>>,
    id: u32,
}

impl StreamGuard {
    pub(super) fn new(
        shared: Arc<Shared<Calls>>,
        id: u32,
        deadline: Option<CallDeadline>,
        hooked: Option<Box<Hooked>>,
    ) -> Self {
        Self {
            call: OpenCall { shared, id },
            deadline,
            hooked: Mutex::new(hooked),
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared<Calls>> {
        &self.call.shared
    }

    /// The half that sends, while fewer than `limit` bytes of the connection are unwritten.
    pub(crate) fn outlet(&self, limit: usize) -> Outlet<Calls> {
        Outlet::new(Arc::clone(self.shared()), self.call.id, limit)
    }

    /// The half that receives.
    pub(crate) fn messages(&self) -> Messages<Calls> {
        Messages::new(Arc::clone(self.shared()), self.call.id)
    }

    /// The clock of whoever waits for this call.
    pub(crate) fn own_clock(&self) -> OwnClock {
        OwnClock::start(self.shared(), self.deadline.as_ref())
    }

    /// How the call has ended, if it takes no messages.
    pub(crate) fn poll_response(
        &self,
        cx: &Context<'_>,
    ) -> Poll<Result<bytes::Bytes, crate::error::Error>> {
        let id = self.call.id;
        let shared = self.shared();
        shared
            .with(|state, effects| state.poll_response(id, cx.waker(), effects))
            .map(|response| shared.with_process(response))
    }

    /// Tells the hook how the stream has ended.
    pub(crate) fn end(&self, outcome: Outcome<'_>) {
        let hooked = {
            let mut hooked = self.hooked.lock().unwrap_or_else(PoisonError::into_inner);
            hooked.take()
        };
        if let Some(hooked) = hooked {
            hooked.end(outcome);
        }
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        let now = self.shared.now();
        self.shared
            .with(|state, effects| state.drop_call(now, self.id, effects));
    }
}

/// Sends the messages of one stream, one at a time: each waits for its turn, in the order in which they
/// were sent.
#[derive(Debug)]
pub(crate) struct Outlet<S: Side> {
    shared: Arc<Shared<S>>,
    id: u32,
    /// Unwritten bytes on the connection at which a message waits.
    limit: usize,
    sending: Mutex<Sending>,
    /// Messages that wait, for room or behind one that does. Without one the next goes by itself: the
    /// queue alone costs a third of what a small message does.
    waiting: AtomicUsize,
    /// A stream has one place among those that wait for room, so one message may stand there. This is
    /// the queue of those behind it; nothing is locked that a driver or another stream needs.
    turn: Turn<()>,
}

/// What one message needs while it is sent.
#[derive(Debug, Default)]
struct Sending {
    /// Bytes that were queued since other tasks had a turn.
    unyielded: usize,
    /// Where messages are encoded: small ones are copied from here.
    encoded: Vec<u8>,
}

impl<S: Side> Outlet<S> {
    pub(crate) fn new(shared: Arc<Shared<S>>, id: u32, limit: usize) -> Self {
        Self {
            shared,
            id,
            limit,
            sending: Mutex::default(),
            waiting: AtomicUsize::new(0),
            turn: Turn::default(),
        }
    }

    /// Waits for room, encodes a message for this stream and queues it. Dropped before its end it
    /// has sent nothing.
    pub(crate) async fn send(&self, message: &impl Encode) -> Result<(), NotSent> {
        if self.waiting.load(Ordering::Acquire) == 0 {
            // Whoever holds it is sending on another thread, and neither of the two is the first.
            if let Ok(mut sending) = self.sending.try_lock() {
                // Most messages find room, and need the lock of the connection once.
                if sending.unyielded < SEND_SHARE && self.queue(message, &mut sending)? {
                    return Ok(());
                }
            }
        }
        self.send_in_turn(message).await
    }

    async fn send_in_turn(&self, message: &impl Encode) -> Result<(), NotSent> {
        let _waiting = Waiting::new(&self.waiting);
        let _turn = self.turn.lock().await;
        let pauses = self.sending().unyielded >= SEND_SHARE;
        if pauses {
            self.sending().unyielded = 0;
            // The driver among them.
            pause().await;
        }
        if self.queue(message, &mut self.sending())? {
            return Ok(());
        }
        let room = Room {
            shared: Arc::clone(&self.shared),
            id: self.id,
        };
        loop {
            // What waits is not encoded yet: it takes no memory.
            self.sending().encoded = Vec::new();
            let limit = self.limit;
            poll_fn(|cx| {
                let waker = cx.waker();
                room.shared
                    .with(|state, effects| state.poll_room(room.id, limit, waker, effects))
            })
            .await?;
            if self.queue(message, &mut self.sending())? {
                return Ok(());
            }
        }
    }

    fn sending(&self) -> MutexGuard<'_, Sending> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Encodes a message and queues it. `false` if there is no room.
    fn queue(&self, message: &dyn Encode, sending: &mut Sending) -> Result<bool, NotSent> {
        let Sending { unyielded, encoded } = sending;
        let (id, limit) = (self.id, self.limit);
        encode_data_into(encoded, id, Flags::NONE, message).map_err(NotSent::Oversized)?;
        let length = encoded.len();
        let queued = self
            .shared
            .with(|state, effects| state.send(id, encoded, limit, effects))?;
        if queued {
            *unyielded += length;
        }
        if encoded.capacity() > KEPT_BUFFER {
            *encoded = Vec::new();
        }
        Ok(queued)
    }

    /// Says that no message follows.
    pub(crate) fn half_close(&self) {
        self.shared
            .with(|state, effects| state.half_close(self.id, effects));
    }
}

/// One of the messages that wait. Goes whatever ends the wait.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::AcqRel);
        Self(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The place of a message that waits for room. Goes whatever ends the wait.
struct Room<S: Side> {
    shared: Arc<Shared<S>>,
    id: u32,
}

impl<S: Side> Drop for Room<S> {
    fn drop(&mut self) {
        self.shared
            .with(|state, effects| state.leave_room(self.id, effects));
    }
}

/// Receives the messages of one stream.
#[derive(Debug)]
pub(crate) struct Messages<S: Side> {
    shared: Arc<Shared<S>>,
    id: u32,
    /// What was taken when the lock was last needed.
    chunk: Chunk,
}

impl<S: Side> Messages<S> {
    pub(crate) fn new(shared: Arc<Shared<S>>, id: u32) -> Self {
        Self {
            shared,
            id,
            chunk: Chunk::default(),
        }
    }

    /// The next message, then what the stream failed with, if it did, then `None`.
    pub(crate) fn poll_next(
        &mut self,
        cx: &Context<'_>,
    ) -> Poll<Option<Result<Received<'_>, Failure<S>>>> {
        if self.chunk.is_done() {
            let done = std::mem::take(&mut self.chunk);
            let taken = self
                .shared
                .with(|state, effects| state.poll_take(self.id, done, cx.waker(), effects));
            match ready!(taken) {
                Some(Ok(chunk)) => self.chunk = chunk,
                Some(Err(failure)) => return Poll::Ready(Some(Err(failure))),
                None => return Poll::Ready(None),
            }
        }
        Poll::Ready(self.chunk.pop().map(Ok))
    }
}

impl<S: Side> Drop for Messages<S> {
    fn drop(&mut self) {
        self.shared
            .with(|state, effects| state.leave_inbox(self.id, effects));
    }
}
