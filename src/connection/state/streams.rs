//! Verbs for streams, the same on both sides.

use std::mem;
use std::task::{Poll, Waker};

use super::{Failure, Side, State};
use crate::connection::effects::Effects;
use crate::connection::inbox::{Chunk, Inbox, Overflow, Received};
use crate::connection::stream::{Local, Stream, left_by_burst};
use crate::error::ConnectionError;
use crate::wire::{Flags, Header, MessageType};

impl<S: Side> State<S> {
    /// Whether a message may be sent on this stream, and there is room for it.
    pub(in crate::connection) fn poll_room(
        &mut self,
        id: u32,
        limit: usize,
        waker: &Waker,
        effects: &mut Effects,
    ) -> Poll<Result<(), NotSent>> {
        self.check_open().map_err(NotSent::Connection)?;
        let Some(Stream {
            local: Local::Open { ticket, .. },
            ..
        }) = self.streams.get_mut(&id)
        else {
            return Poll::Ready(Err(NotSent::Ended));
        };
        let first = self.senders.first_key_value().map(|(first, _)| *first);
        if first == *ticket && self.outbox.bytes() < limit {
            return Poll::Ready(Ok(()));
        }
        let ticket = *ticket.get_or_insert_with(|| {
            self.newest_ticket += 1;
            self.newest_ticket
        });
        effects.keep_some(self.senders.entry(ticket).or_default(), waker);
        Poll::Pending
    }

    /// A message does not wait any more. It lets the next one in.
    pub(in crate::connection) fn leave_room(&mut self, id: u32, effects: &mut Effects) {
        if let Some(Stream {
            local: Local::Open { ticket, .. },
            ..
        }) = self.streams.get_mut(&id)
        {
            if let Some(waker) = ticket
                .take()
                .and_then(|ticket| self.senders.remove(&ticket))
            {
                effects.drop_later(waker);
                self.admit(effects);
            }
        }
    }

    /// Queues a message, and leaves its buffer empty. `false` if there is no room under `limit`.
    pub(in crate::connection) fn send(
        &mut self,
        id: u32,
        frame: &mut Vec<u8>,
        limit: usize,
        effects: &mut Effects,
    ) -> Result<bool, NotSent> {
        self.check_open().map_err(NotSent::Connection)?;
        let Some(Stream {
            local: Local::Open { newest, ticket },
            has_sent,
            ..
        }) = self.streams.get_mut(&id)
        else {
            return Err(NotSent::Ended);
        };
        let first = self.senders.first_key_value().map(|(first, _)| *first);
        if first != *ticket || self.outbox.bytes() >= limit {
            return Ok(false);
        }
        *has_sent = true;
        *newest = self.outbox.push_data(id, *newest, frame);
        self.call_driver(effects);
        Ok(true)
    }

    /// No message that waits for room will be let in.
    pub(in crate::connection) fn refuse_senders(&mut self, effects: &mut Effects) {
        effects.wake(mem::take(&mut self.senders).into_values().flatten());
    }

    /// Says that no message follows, unless that was said or the stream has ended.
    pub(crate) fn half_close(&mut self, id: u32, effects: &mut Effects) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if let Local::Open { newest, ticket } = stream.local {
            let newest = self.outbox.push_data(id, newest, &mut half_close(id));
            stream.local = Local::HalfClosed { newest };
            self.leave_senders(ticket, effects);
            self.call_driver(effects);
        }
    }

    /// The sender's ticket goes, and it is told.
    fn leave_senders(&mut self, ticket: Option<u64>, effects: &mut Effects) {
        effects.wake(
            ticket
                .and_then(|ticket| self.senders.remove(&ticket))
                .flatten(),
        );
    }

    /// Nothing more may be sent on the stream, and what is unwritten is taken back: the peer has ended
    /// it, so no frame of this side may follow (RFC KA-39). Or its end is queued next.
    pub(crate) fn close_local(&mut self, id: u32, take_back: bool, effects: &mut Effects) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let (newest, ticket) = match mem::replace(&mut stream.local, Local::Closed) {
            Local::Open { newest, ticket } => (newest, ticket),
            Local::HalfClosed { newest } => (newest, None),
            Local::Closed => return,
        };
        self.leave_senders(ticket, effects);
        if take_back {
            let free = |frame| effects.drop_later(frame);
            self.outbox.take_back_data(newest, free);
        }
    }

    /// This side gives up a stream that the peer has not ended: what was sent is sent, and then the
    /// half-close. Until that has left the peer may still end the stream in front of it.
    pub(in crate::connection) fn give_up(&mut self, id: u32, effects: &mut Effects) {
        self.half_close(id, effects);
        if let Some(Stream {
            local: Local::HalfClosed { newest },
            ..
        }) = self.streams.get(&id)
        {
            self.leaving.push_back((*newest, id));
            self.forget_left(effects);
        }
    }

    /// Forgets streams whose last frame has left.
    pub(super) fn forget_left(&mut self, effects: &mut Effects) {
        let first_unwritten = self.outbox.first_unwritten();
        while let Some((last, id)) = self.leaving.front().copied() {
            if last >= first_unwritten {
                break;
            }
            self.leaving.pop_front();
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.local = Local::Closed;
            }
            self.forget(id, effects);
        }
    }

    /// Removes a stream of which nothing is left, and the memory of a burst with the last ones.
    pub(crate) fn forget(&mut self, id: u32, effects: &mut Effects) {
        if self.streams.get(&id).is_some_and(Stream::is_over) {
            self.remove(id, effects);
        }
    }

    pub(in crate::connection) fn remove(&mut self, id: u32, effects: &mut Effects) {
        self.streams.remove(&id);
        if let Some(table) = left_by_burst(&mut self.streams) {
            effects.drop_later(table);
        }
    }

    /// A message has come.
    pub(crate) fn receive(
        &mut self,
        id: u32,
        message: Received<'_>,
        effects: &mut Effects,
    ) -> Result<(), Overflow> {
        if let Some(stream) = self.streams.get_mut(&id) {
            effects.wake(stream.inbox.push(message, &mut self.received)?);
        }
        Ok(())
    }

    /// A first message, for a stream that is about to be opened.
    pub(crate) fn receive_first(
        &mut self,
        inbox: &mut Inbox<Failure<S>>,
        message: Received<'_>,
    ) -> Result<(), Overflow> {
        inbox.push(message, &mut self.received).map(|_| ())
    }

    /// No message follows.
    pub(crate) fn close_inbox(&mut self, id: u32, effects: &mut Effects) {
        if let Some(stream) = self.streams.get_mut(&id) {
            effects.wake(stream.inbox.close());
        }
    }

    /// The receiver takes what has come. `done` is what it took before.
    pub(in crate::connection) fn poll_take(
        &mut self,
        id: u32,
        done: Chunk,
        waker: &Waker,
        effects: &mut Effects,
    ) -> Poll<Option<Result<Chunk, Failure<S>>>> {
        let Some(stream) = self.streams.get_mut(&id) else {
            return Poll::Ready(None);
        };
        let taken = stream
            .inbox
            .poll_take(done, &mut self.received, waker, effects);
        if let Poll::Ready(None | Some(Err(_))) = taken {
            self.leave_inbox(id, effects);
        }
        taken
    }

    /// The receiver is gone.
    pub(crate) fn leave_inbox(&mut self, id: u32, effects: &mut Effects) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.inbox.leave(&mut self.received, effects);
            self.forget(id, effects);
        }
    }
}

/// Why a message was not sent.
#[derive(Debug)]
pub(crate) enum NotSent {
    Oversized(crate::wire::Oversized),
    /// The stream has ended, or this side has.
    Ended,
    Connection(ConnectionError),
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
