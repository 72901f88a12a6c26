//! Verbs for futures of calls: begin, wait for room, take the response, give up.

use std::mem;
use std::task::{Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;

use super::{Call, Calls, Key, Opening, StreamEnd, Waiting};
use crate::connection::effects::Effects;
use crate::connection::inbox::Inbox;
use crate::connection::state::{Closing, State};
use crate::connection::stream::{Local, Stream};
use crate::error::{ConnectionError, Error, RequestProgress};
use crate::keepalive::{CallDeadline, WriteFacts};
use crate::wire::{Flags, HEADER_LENGTH, PING_STREAM_ID, set_stream_id};

impl State<Calls> {
    pub(super) fn has_room(&self) -> bool {
        let limits = &self.side.limits;
        self.outbox.bytes() < limits.outbox_bytes && self.side.open < limits.calls
    }

    /// Makes a call and takes its frame, or lets it wait for room.
    pub(in crate::connection) fn open(
        &mut self,
        now: Duration,
        call: &Opening,
        frame: &mut Vec<u8>,
        waker: &Waker,
        effects: &mut Effects,
    ) -> Result<Key, Error> {
        self.check_open().map_err(Error::not_sent)?;
        self.check_time(now, call, false)?;
        let waits = !self.side.waiting.is_empty() || !self.has_room();
        self.machine.handle_call_started(now);
        if waits {
            let ticket = self.ticket();
            self.watch(Key::Ticket(ticket), call.deadline.as_ref(), effects);
            let (call, waker) = (call.clone(), Some(waker.clone()));
            self.side.waiting.insert(ticket, Waiting { call, waker });
            // The PING that it may want. A driver that is about to sleep has asked the rules already.
            self.queue_ping(now);
            self.call_driver(effects);
            return Ok(Key::Ticket(ticket));
        }
        let begun = self.begin(now, call, frame, waker, effects);
        if begun.is_err() {
            self.machine.handle_call_ended(now);
        }
        begun.map(Key::Stream)
    }

    /// A call without any time left is not sent. One that `waited` for room had some.
    fn check_time(&mut self, now: Duration, call: &Opening, waited: bool) -> Result<(), Error> {
        match &call.deadline {
            Some(deadline) if deadline.deadline() <= now => {
                let unsent = WriteFacts {
                    written: false,
                    offered_since_asked: false,
                    taken_since_asked: waited,
                };
                let verdict = self.machine.verdict(now, deadline, unsent);
                let late = self.late(now, verdict, call.timeout);
                Err(Error::Deadline(Box::new(late)))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn watch(
        &mut self,
        key: Key,
        deadline: Option<&CallDeadline>,
        effects: &mut Effects,
    ) {
        if let Some(deadline) = deadline {
            self.side.deadlines.insert(key, deadline);
            self.call_driver_by(Some(deadline.ask_at()), effects);
        }
    }

    /// Takes the next id and queues the frame in one step: the order of ids is the order on the
    /// wire, whatever the threads do (RFC KA-30, law 7).
    fn begin(
        &mut self,
        now: Duration,
        call: &Opening,
        frame: &mut Vec<u8>,
        waker: &Waker,
        effects: &mut Effects,
    ) -> Result<u32, Error> {
        let id = self.side.next_id.ok_or(Error::IdsExhausted)?;
        // The last odd id belongs to PING (RFC KA-30).
        self.side.next_id = id.checked_add(2).filter(|next| *next != PING_STREAM_ID);
        let mut frame = mem::take(frame);
        set_stream_id(&mut frame, id);
        if self.side.first_request.is_none() {
            let payload = frame.len().saturating_sub(HEADER_LENGTH);
            self.side.first_request = u32::try_from(payload).ok();
        }
        let alone = self.side.open == 0;
        self.side.open += 1;
        let request = self.queue(now, frame, alone, effects);
        self.watch(Key::Stream(id), call.deadline.as_ref(), effects);
        let local = if call.flags.contains(Flags::REMOTE_OPEN) {
            Local::Open {
                newest: request,
                ticket: None,
            }
        } else {
            // Behind a unary request nothing is sent, no half-close either (RFC KA-38).
            Local::Closed
        };
        let own = Call {
            started: call.started,
            timeout: call.timeout,
            deadline: call.deadline.clone(),
            request,
            answered: false,
            late: None,
        };
        let mut inbox = Inbox::new(waker.clone());
        if call.takes_messages {
            inbox = inbox.with_messages(self.side.limits.stream_bytes);
        }
        self.streams.insert(id, Stream::new(local, inbox, own));
        Ok(id)
    }

    /// Whether a call that waits may be sent now.
    pub(in crate::connection) fn poll_room_for_call(
        &mut self,
        ticket: u64,
        waker: &Waker,
        effects: &mut Effects,
    ) -> Poll<Result<(), Error>> {
        if let Some(Err(error)) = self.side.results.remove(&ticket) {
            return Poll::Ready(Err(error));
        }
        let has_room = self.has_room();
        let first = self.side.waiting.first_entry();
        if has_room && first.is_some_and(|first| *first.key() == ticket) {
            return Poll::Ready(Ok(()));
        }
        if let Some(waiting) = self.side.waiting.get_mut(&ticket) {
            effects.keep_some(&mut waiting.waker, waker);
        }
        Poll::Pending
    }

    /// Sends a call that has waited. Its time may have passed since it was let in.
    pub(in crate::connection) fn promote(
        &mut self,
        now: Duration,
        ticket: u64,
        frame: &mut Vec<u8>,
        waker: &Waker,
        effects: &mut Effects,
    ) -> Result<u32, Error> {
        if let Some(Err(error)) = self.side.results.remove(&ticket) {
            return Err(error);
        }
        let Some(Waiting { call, waker: kept }) = self.side.waiting.remove(&ticket) else {
            return Err(Error::not_sent(ConnectionError::Abandoned));
        };
        effects.drop_later(kept);
        if let Some(deadline) = &call.deadline {
            self.side.deadlines.remove(Key::Ticket(ticket), deadline);
        }
        let in_time = self.check_time(now, &call, true);
        let begun = in_time.and_then(|()| self.begin(now, &call, frame, waker, effects));
        if begun.is_err() {
            self.machine.handle_call_ended(now);
        }
        // There may be room for the next one too.
        self.admit(effects);
        begun
    }

    /// A call that waits for room was dropped, or could not be encoded.
    pub(in crate::connection) fn leave_waiting(
        &mut self,
        now: Duration,
        ticket: u64,
        effects: &mut Effects,
    ) {
        self.side.results.remove(&ticket);
        if let Some(Waiting { call, waker }) = self.side.waiting.remove(&ticket) {
            effects.drop_later(waker);
            if let Some(deadline) = &call.deadline {
                self.side.deadlines.remove(Key::Ticket(ticket), deadline);
            }
            self.machine.handle_call_ended(now);
            self.call_ended(effects);
        }
    }

    /// How a call has ended, if it takes no messages. With that its stream is over.
    pub(in crate::connection) fn poll_response(
        &mut self,
        id: u32,
        waker: &Waker,
        effects: &mut Effects,
    ) -> Poll<Result<Bytes, Error>> {
        let Some(stream) = self.streams.get_mut(&id) else {
            return Poll::Ready(Err(abandoned()));
        };
        let end = ready!(stream.inbox.poll_end(waker, effects));
        stream.inbox.end_taken();
        if stream.is_over() {
            self.remove(id, effects);
        }
        Poll::Ready(match end {
            Some(StreamEnd::Response(envelope)) => Ok(envelope),
            Some(StreamEnd::Failed(error)) => Err(*error),
            None => Err(abandoned()),
        })
    }

    /// The future of a call, or the last half of a stream, is gone.
    pub(in crate::connection) fn drop_call(
        &mut self,
        now: Duration,
        id: u32,
        effects: &mut Effects,
    ) {
        self.leave_inbox(id, effects);
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let has_sent = stream.has_sent;
        if mem::replace(&mut stream.open, false) {
            let Call {
                request, deadline, ..
            } = &stream.own;
            let request = *request;
            if let Some(deadline) = deadline {
                self.side.deadlines.remove(Key::Stream(id), deadline);
            }
            self.machine.handle_call_ended(now);
            self.side.open -= 1;
            if has_sent && self.machine.view().write_blocked_since.is_none() {
                // It is as good as written: whether the driver was faster must make no difference.
                self.give_up(id, effects);
            } else {
                self.give_up_call(id, request, effects);
            }
            self.call_ended(effects);
        }
        self.forget(id, effects);
    }

    /// A request of which nothing is written goes with all that follows it; otherwise what was sent is
    /// sent, and the half-close.
    pub(super) fn give_up_call(&mut self, id: u32, request: u64, effects: &mut Effects) {
        match self.outbox.take_back(request) {
            Some(frame) => {
                effects.drop_later(frame);
                self.close_local(id, true, effects);
            }
            None => self.give_up(id, effects),
        }
    }

    /// There may be room for those that wait, and a connection that closes may be done.
    pub(super) fn call_ended(&mut self, effects: &mut Effects) {
        if self.closing() != Closing::No {
            self.call_driver(effects);
        }
        self.admit(effects);
    }
}

/// For a call of which nothing is known any more.
fn abandoned() -> Error {
    Error::Connection(ConnectionError::Abandoned, RequestProgress::Sent)
}
