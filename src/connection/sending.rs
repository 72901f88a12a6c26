//! This side's halves of streams: who may still send, and what becomes of what was queued.
//!
//! The invariant: data is queued under the lock under which its stream is known to be open, and
//! what is unwritten when the peer ends the stream is taken back. So no frame follows the last one
//! of its stream (RFC KA-39).

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::give_way::pause;
use super::outbox::Outbox;
use super::{Shared, notify};
use crate::error::ConnectionError;
use crate::streams::LocalHalf;
use crate::wire::{Flags, Header, MessageType, Oversized};

/// The local halves of streams, by id.
#[derive(Debug, Default)]
pub(super) struct Sending {
    halves: HashMap<u32, LocalHalf>,
    /// Streams that this side has given up, with the number of their last frame, in the order of
    /// these. Until that frame has left the peer may still end the stream in front of it.
    /// Bounded by the frames in the outbox.
    leaving: VecDeque<(u64, u32)>,
    /// The streams whose sender waits for room, with its ticket.
    waiting: HashMap<u32, u64>,
}

impl Sending {
    /// The ticket of a stream's sender that waits for room.
    pub(super) fn ticket(&self, stream_id: u32) -> Option<u64> {
        self.waiting.get(&stream_id).copied()
    }

    /// Forgets streams whose last frame has left.
    pub(super) fn forget(&mut self, first_unwritten: u64) {
        while let Some((last, id)) = self.leaving.front() {
            if *last >= first_unwritten {
                break;
            }
            self.halves.remove(id);
            self.leaving.pop_front();
        }
    }
}

impl Outbox {
    /// Messages may follow on this stream. `newest` is the number of its frame, if it has one here.
    pub(super) fn open_half(&mut self, stream_id: u32, newest: u64) {
        let half = LocalHalf::Open { newest };
        self.sending.halves.insert(stream_id, half);
    }

    /// Whether messages may follow on this stream.
    fn is_sending(&self, stream_id: u32) -> bool {
        let half = self.sending.halves.get(&stream_id);
        matches!(half, Some(LocalHalf::Open { .. }))
    }

    /// Queues a message, and leaves its buffer empty. `false` if nothing may be sent on the stream
    /// any more.
    fn send_data(&mut self, stream_id: u32, frame: &mut Vec<u8>) -> bool {
        let Some(&LocalHalf::Open { newest: before }) = self.sending.halves.get(&stream_id) else {
            return false;
        };
        let newest = self.arrive_data(stream_id, frame);
        if newest != before {
            self.open_half(stream_id, newest);
        }
        true
    }

    /// Says that no message follows, unless that was said or the stream has ended.
    fn half_close(&mut self, stream_id: u32) {
        if self.is_sending(stream_id) {
            let newest = self.arrive_data(stream_id, &mut half_close(stream_id));
            let half = LocalHalf::Closed { newest };
            self.sending.halves.insert(stream_id, half);
        }
    }

    /// This side gives up a stream that the peer has not ended. A request of which nothing is
    /// written goes with all that follows it; otherwise what was sent is sent, and the half-close.
    pub(super) fn give_up(&mut self, stream_id: u32) {
        if self.remove(stream_id) {
            self.end_half(stream_id);
            return;
        }
        self.half_close(stream_id);
        if let Some(half) = self.sending.halves.get(&stream_id) {
            self.sending.leaving.push_back((half.newest(), stream_id));
            let first_unwritten = self.first_unwritten();
            self.sending.forget(first_unwritten);
        }
    }

    /// The stream has ended: nothing more may be sent on it, and what is unwritten is taken back.
    pub(super) fn end_half(&mut self, stream_id: u32) {
        let Some(half) = self.sending.halves.remove(&stream_id) else {
            return;
        };
        // Most streams have nothing here when they end, and the outbox may be long.
        if half.newest() >= self.first_unwritten() {
            self.remove_data(stream_id);
        }
    }

    /// Queues a server's last frame on a stream, unless the stream has ended already. Returns
    /// whether it has not.
    pub(super) fn end_stream(&mut self, stream_id: u32, frame: Vec<u8>) -> bool {
        let open = self.sending.halves.remove(&stream_id).is_some();
        if open {
            // Behind the data of its handler.
            self.arrive(stream_id, frame);
        }
        open
    }
}

/// RFC KA-43: empty, with both flags.
pub(crate) fn half_close(stream_id: u32) -> Vec<u8> {
    let header = Header {
        length: 0,
        stream_id,
        message_type: MessageType::DATA,
        flags: Flags::REMOTE_CLOSED | Flags::NO_DATA,
    };
    header.encode().to_vec()
}

/// Sends the messages of one stream. Not more than one at a time.
#[derive(Debug)]
pub(crate) struct Outlet<C> {
    shared: Arc<Shared<C>>,
    stream_id: u32,
    /// Unwritten bytes on the connection at which a message waits.
    limit: usize,
    /// Whether the message before had to wait.
    crowded: bool,
    /// Bytes that were queued since the driver was let in.
    unyielded: usize,
    /// Where messages are encoded: small ones are copied from here.
    encoded: Vec<u8>,
}

/// Bytes of messages that are queued before other tasks have a turn. A handler that has much to send
/// would otherwise keep its thread until the outbox is full, and its peer waiting until then.
const SHARE: usize = 16 << 10;

/// A buffer up to this size is kept for the next message.
const KEPT: usize = 2 << 10;

/// Why a message was not sent.
#[derive(Debug)]
pub(crate) enum NotSent {
    Oversized(Oversized),
    /// The stream has ended, or this side has.
    Ended,
    Connection(ConnectionError),
}

impl<C> Outlet<C> {
    pub(crate) fn new(shared: Arc<Shared<C>>, stream_id: u32, limit: usize) -> Self {
        Self {
            shared,
            stream_id,
            limit,
            crowded: false,
            unyielded: 0,
            encoded: Vec::new(),
        }
    }

    /// Waits for room, encodes a message for this stream and queues it. Dropped before its end it
    /// has sent nothing.
    pub(crate) async fn send(
        &mut self,
        encode: impl Fn(u32, &mut Vec<u8>) -> Result<(), Oversized>,
    ) -> Result<(), NotSent> {
        if self.unyielded >= SHARE {
            self.unyielded = 0;
            // The driver among them.
            pause().await;
        }
        // Most messages find room, and need the lock once.
        let sent = !self.crowded && encode(self.stream_id, &mut self.encoded).is_ok();
        if sent && self.queue(true)? {
            return Ok(());
        }
        // What waits is not encoded yet: it takes no memory.
        self.encoded = Vec::new();
        let waited = Waiting {
            outlet: self,
            ticket: None,
        };
        self.crowded = waited.room().await?;
        let encoded = encode(self.stream_id, &mut self.encoded).map_err(NotSent::Oversized);
        let queued = encoded.and_then(|()| self.queue(false));
        if self.crowded {
            self.wake_next();
        }
        queued.map(|_| ())
    }

    /// Queues what is encoded. `false` if there is no room, and it matters.
    fn queue(&mut self, if_room: bool) -> Result<bool, NotSent> {
        let mut desk = self.shared.desk();
        if let Some(end) = &desk.end {
            return Err(NotSent::Connection(end.clone()));
        }
        if if_room && !(desk.senders.is_empty() && desk.outbox.bytes() < self.limit) {
            return Ok(false);
        }
        self.unyielded += self.encoded.len();
        if !desk.outbox.send_data(self.stream_id, &mut self.encoded) {
            return Err(NotSent::Ended);
        }
        notify(desk);
        if self.encoded.capacity() > KEPT {
            self.encoded = Vec::new();
        }
        Ok(true)
    }

    /// Says that no message follows.
    pub(crate) fn half_close(&mut self) {
        let mut desk = self.shared.desk();
        if desk.end.is_none() {
            desk.outbox.half_close(self.stream_id);
            notify(desk);
        }
    }

    /// There may be room for the next one too.
    fn wake_next(&self) {
        let next = {
            let desk = self.shared.desk();
            let has_room = desk.outbox.bytes() < self.limit;
            has_room.then(|| desk.senders.first()).flatten()
        };
        if let Some(waker) = next {
            waker.wake();
        }
    }
}

/// A message that waits for room. Leaves the queue whatever ends the wait.
struct Waiting<'a, C> {
    outlet: &'a Outlet<C>,
    ticket: Option<u64>,
}

impl<C> Waiting<'_, C> {
    /// Returns whether it had to wait.
    async fn room(mut self) -> Result<bool, NotSent> {
        poll_fn(|cx| self.poll(cx)).await?;
        Ok(self.ticket.is_some())
    }

    fn poll(&mut self, cx: &Context<'_>) -> Poll<Result<(), NotSent>> {
        let mut desk = self.outlet.shared.desk();
        if let Some(end) = &desk.end {
            return Poll::Ready(Err(NotSent::Connection(end.clone())));
        }
        if !desk.outbox.is_sending(self.outlet.stream_id) {
            return Poll::Ready(Err(NotSent::Ended));
        }
        let first = match self.ticket {
            Some(ticket) => desk.senders.is_first(ticket),
            None => desk.senders.is_empty(),
        };
        if first && desk.outbox.bytes() < self.outlet.limit {
            return Poll::Ready(Ok(()));
        }
        if let Some(ticket) = self.ticket {
            desk.senders.wait(ticket, cx.waker());
        } else {
            let ticket = desk.senders.enter(cx.waker().clone());
            let stream_id = self.outlet.stream_id;
            desk.outbox.sending.waiting.insert(stream_id, ticket);
            self.ticket = Some(ticket);
        }
        Poll::Pending
    }
}

impl<C> Drop for Waiting<'_, C> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            let mut desk = self.outlet.shared.desk();
            desk.senders.leave(ticket);
            desk.outbox.sending.waiting.remove(&self.outlet.stream_id);
            // It lets the next one in.
            notify(desk);
        }
    }
}
