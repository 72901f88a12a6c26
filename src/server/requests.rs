//! The requests of one connection, as a part of its state: which ids are used, which requests run or
//! wait, and which streams are open. Data only: no handler, no runtime, no clock.
//!
//! The invariant: every request that is taken is answered once, and the reader waits for none.

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use super::admission::{Admission, CallPermit, Candidate, Offer};
use super::counters::Counts;
use super::refusal::{answered, expired, invalid_request, skipped, too_many};
use super::slots::{Grant, SharedSlots, Slot};
use crate::config::ServerLimits;
use crate::connection::{
    Closing, Effects, Inbox, Local, Note, Received, Shared, Side, State, Stream, StreamRecord,
};
use crate::error::ConnectionError;
use crate::keepalive::{Role, Support};
use crate::liveness::Traffic;
use crate::status::{Code, Status};
use crate::streams::{Data, RequestIds};
use crate::tuning::CANARY_STALLED;
use crate::wire::{Flags, Header, MessageType, Part, encode_status};

/// The requests of one connection.
#[derive(Debug)]
pub(crate) struct OpenRequests {
    limits: ServerLimits,
    ids: RequestIds,
    admission: Admission<Request>,
    /// Requests that may run. The driver starts them.
    starts: VecDeque<Start>,
    /// Requests that were taken and are not answered.
    open: usize,
    slots: Option<ConnectionSlots>,
    /// When the canary is sent because of requests that are still unanswered then.
    canary_due: Option<Duration>,
    counts: Arc<Counts>,
}

/// The slots of a server, as one of its connections uses them.
#[derive(Debug)]
struct ConnectionSlots {
    slots: Arc<SharedSlots<Shared<OpenRequests>>>,
    connection: Weak<Shared<OpenRequests>>,
    /// A slot is this connection's, and is not taken yet.
    granted: bool,
}

/// A request that was taken.
#[derive(Debug)]
pub(crate) struct Request {
    pub(super) stream_id: u32,
    /// The place of its method in the server's table.
    pub(super) method: usize,
    pub(super) kind: Kind,
    pub(super) permit: Option<CallPermit>,
    pub(super) payload: Part,
    pub(super) metadata: Vec<(String, String)>,
    pub(super) deadline: Option<Duration>,
}

/// A server keeps nothing of a stream beside its halves.
#[derive(Debug)]
pub(crate) struct RequestRecord;

impl StreamRecord for RequestRecord {
    type Failure = Status;

    fn is_needed(&self) -> bool {
        false
    }
}

/// How many messages go each way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Unary,
    /// One request, many responses.
    ServerStream,
    /// Many requests.
    Upload,
}

/// A request that starts now, with its slot where the server has slots.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) request: Request,
    pub(super) slot: Option<Slot<Shared<OpenRequests>>>,
}

/// A frame for the server, taken apart.
#[derive(Debug)]
pub(crate) struct ServerInput {
    pub(super) header: Header,
    /// With its size in memory, about.
    pub(super) request: Result<(Request, usize), Refusal>,
}

/// Why a request is not taken.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It cannot be read.
    Malformed(Status),
    /// Nor are others, while the server shuts down.
    Refused(Status),
}

impl OpenRequests {
    pub(super) fn new(limits: ServerLimits, counts: Arc<Counts>) -> Self {
        Self {
            limits,
            ids: RequestIds::default(),
            admission: Admission::new(limits),
            starts: VecDeque::new(),
            open: 0,
            slots: None,
            canary_due: None,
            counts,
        }
    }

    /// The handlers of this connection need slots of the server.
    pub(super) fn use_slots(
        &mut self,
        slots: Arc<SharedSlots<Shared<Self>>>,
        connection: Weak<Shared<Self>>,
    ) {
        self.slots = Some(ConnectionSlots {
            slots,
            connection,
            granted: false,
        });
    }
}

impl ConnectionSlots {
    /// A slot, or a place in the queue for one.
    fn take(&mut self) -> Result<Option<Slot<Shared<OpenRequests>>>, u64> {
        if mem::take(&mut self.granted) {
            return Ok(Some(self.slots.granted()));
        }
        match self.connection.upgrade() {
            Some(connection) => self.slots.take_or_enter(connection).map(Some),
            // It is about to end, and starts nothing.
            None => Ok(None),
        }
    }
}

/// A slot for a handler of this connection, if the server has slots.
fn slot(slots: &mut Option<ConnectionSlots>) -> Result<Option<Slot<Shared<OpenRequests>>>, u64> {
    slots.as_mut().map_or(Ok(None), ConnectionSlots::take)
}

impl Grant for Shared<OpenRequests> {
    fn grant(&self) -> bool {
        self.with(|state, effects| {
            let ended = state.end().is_some();
            let Some(slots) = state.side.slots.as_mut().filter(|_| !ended) else {
                return false;
            };
            slots.granted = true;
            state.side.admission.handle_grant();
            state.call_driver(effects);
            true
        })
    }
}

/// Verbs for handlers.
impl State<OpenRequests> {
    /// Answers a unary call. Its handler has ended, unless it `runs_on` behind an early answer.
    pub(super) fn respond(
        &mut self,
        now: Duration,
        frame: Vec<u8>,
        runs_on: bool,
        effects: &mut Effects,
    ) {
        self.answered(now);
        if !runs_on {
            self.end_handler(effects);
        }
        if self.end().is_none() {
            let alone = self.side.open == 0;
            self.queue(now, frame, alone, effects);
        }
    }

    /// Ends a stream with this frame, unless it has ended already, over the handler's head: then
    /// nobody may send on it any more. Returns whether it was queued. The handler has ended.
    pub(super) fn end_stream(
        &mut self,
        now: Duration,
        id: u32,
        frame: Vec<u8>,
        effects: &mut Effects,
    ) -> bool {
        self.answered(now);
        self.end_handler(effects);
        self.finish_stream(now, id, frame, answered(), effects)
    }

    /// Ends a unary call without an answer.
    pub(super) fn drop_answer(&mut self, now: Duration, effects: &mut Effects) {
        self.answered(now);
        self.end_handler(effects);
    }

    /// A handler has ended. The driver starts what may run now.
    pub(super) fn end_handler(&mut self, effects: &mut Effects) {
        self.side.admission.handle_end();
        if self.closing() != Closing::No || OpenRequests::has_starts(self) {
            self.call_driver(effects);
        }
    }

    fn answered(&mut self, now: Duration) {
        self.side.open -= 1;
        self.machine.handle_call_ended(now);
    }

    /// Sends a stream's last frame, behind what its handler has sent. What still comes is for nobody:
    /// the handler is told so by `status`.
    fn finish_stream(
        &mut self,
        now: Duration,
        id: u32,
        frame: Vec<u8>,
        status: Status,
        effects: &mut Effects,
    ) -> bool {
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.open) else {
            return false;
        };
        stream.open = false;
        effects.wake(stream.inbox.fail(status));
        self.close_local(id, false, effects);
        self.queue(now, frame, false, effects);
        self.forget(id, effects);
        true
    }

    /// The server shuts down: no more requests for streams.
    pub(super) fn end_requests(&mut self, effects: &mut Effects) {
        for stream in self.streams.values_mut() {
            effects.wake(stream.inbox.fail(Status::shutting_down()));
        }
    }
}

/// Verbs for frames.
impl State<OpenRequests> {
    fn take_request(
        &mut self,
        now: Duration,
        flags: Flags,
        (request, size): (Request, usize),
        effects: &mut Effects,
    ) -> Result<(), Status> {
        let (id, kind) = (request.stream_id, request.kind);
        for late in self.side.admission.make_room(size, now) {
            self.expire(now, late, effects);
        }
        let mut request = request;
        let stream = match kind {
            Kind::Unary => None,
            Kind::ServerStream => Some(Inbox::closed()),
            Kind::Upload => Some(self.upload(flags, mem::take(&mut request.payload))?),
        };
        let candidate = Candidate {
            deadline: request.deadline,
            request,
            size,
        };
        let OpenRequests {
            admission,
            slots,
            starts,
            ..
        } = &mut self.side;
        match admission.offer(id, candidate, || slot(slots)) {
            Offer::Start(request, slot) => starts.push_back(Start { request, slot }),
            Offer::Wait => {}
            Offer::Refuse(request, full) => {
                effects.drop_later(request);
                return Err(Status::new(Code::RESOURCE_EXHAUSTED, full.to_string()));
            }
        }
        if let Some(inbox) = stream {
            let local = Local::Open {
                newest: 0,
                ticket: None,
            };
            self.streams
                .insert(id, Stream::new(local, inbox, RequestRecord));
        }
        self.side.open += 1;
        self.machine.handle_call_started(now);
        // Nobody would see the flag on a connection on which no PING has come.
        if self.machine.support() == Support::Yes {
            let due = now.saturating_add(CANARY_STALLED);
            self.side.canary_due.get_or_insert(due);
        }
        Ok(())
    }

    /// A queue for the messages of a stream: they may come before its handler starts.
    fn upload(&mut self, flags: Flags, payload: Part) -> Result<Inbox<Status>, Status> {
        let mut inbox =
            Inbox::new(Waker::noop().clone()).with_messages(self.side.limits.stream_bytes);
        let open = flags.contains(Flags::REMOTE_OPEN) && !flags.contains(Flags::REMOTE_CLOSED);
        // Some clients put the first message into the request. RFC KA-44: an empty payload is none
        // if messages follow.
        let none = flags.contains(Flags::NO_DATA) || (open && payload.is_empty());
        if !none {
            let message = Received::Own(payload.into_bytes());
            self.receive_first(&mut inbox, message).map_err(too_many)?;
        }
        if !open {
            inbox.close();
        }
        Ok(inbox)
    }

    /// Answers a request that ran out of time while it waited.
    fn expire(&mut self, now: Duration, request: Request, effects: &mut Effects) {
        self.side.counts.expired.fetch_add(1, Relaxed);
        let id = request.stream_id;
        let frame = encode_status(id, &expired());
        self.answered(now);
        if request.kind == Kind::Unary {
            self.queue(now, frame, false, effects);
        } else {
            self.leave_inbox(id, effects);
            self.finish_stream(now, id, frame, expired(), effects);
        }
        effects.drop_later(request);
    }

    /// Ends a stream whose messages cannot be taken. Its handler sees the same status; one that has
    /// not begun never does.
    fn fail(&mut self, now: Duration, id: u32, status: Status, effects: &mut Effects) {
        let reason = "its messages cannot be taken";
        effects.log(Note::Failed {
            stream_id: id,
            reason,
        });
        let frame = encode_status(id, &status);
        self.finish_stream(now, id, frame, status, effects);
        if let Some(request) = self.side.admission.remove(id) {
            self.leave_inbox(id, effects);
            self.answered(now);
            effects.drop_later(request);
        }
    }

    /// Whether messages may still come on this stream.
    fn takes_messages(&self, id: u32) -> bool {
        let stream = self.streams.get(&id);
        stream.is_some_and(|stream| stream.open && stream.inbox.is_open())
    }

    fn refuse(&mut self, now: Duration, id: u32, status: Status, effects: &mut Effects) {
        let counts = &self.side.counts;
        match status.code() {
            Code::RESOURCE_EXHAUSTED => counts.refused.fetch_add(1, Relaxed),
            Code::DEADLINE_EXCEEDED => counts.expired.fetch_add(1, Relaxed),
            _ => 0,
        };
        let frame = encode_status(id, &status);
        effects.log(Note::Refused {
            stream_id: id,
            status,
        });
        self.queue(now, frame, false, effects);
    }

    /// Yields what may start now, behind what is in `starts`.
    pub(super) fn take_starts(&mut self, starts: &mut VecDeque<Start>) {
        let side = &mut self.side;
        starts.append(&mut side.starts);
        if self.machine.parked() {
            return;
        }
        while let Some((request, slot)) = side.admission.next(|| slot(&mut side.slots)) {
            starts.push_back(Start { request, slot });
        }
    }

    /// The connection has ended: lets go of what never begins, and of what it holds of the server.
    pub(super) fn drain(&mut self) -> impl Sized + use<> {
        let (waiting, ticket) = self.side.admission.drain();
        let slots = self.side.slots.take();
        if let (Some(slots), Some(ticket)) = (&slots, ticket) {
            slots.slots.leave(ticket);
        }
        let granted = slots.filter(|slots| slots.granted);
        let granted = granted.map(|slots| slots.slots.granted());
        (waiting, mem::take(&mut self.side.starts), granted)
    }
}

impl Side for OpenRequests {
    type Stream = RequestRecord;
    type Input = ServerInput;

    const ROLE: Role = Role::Server;

    fn handle_input(
        state: &mut State<Self>,
        now: Duration,
        input: ServerInput,
        effects: &mut Effects,
    ) {
        let Header {
            stream_id,
            message_type,
            flags,
            ..
        } = input.header;
        if message_type != MessageType::REQUEST {
            let reason = "its type is not for a server";
            return effects.log(Note::Dropped { stream_id, reason });
        }
        let taken = match (state.side.ids.accept(stream_id), input.request) {
            (Err(refused), _) => Err(invalid_request(&refused)),
            // RFC KA-32: it costs its own stream only.
            (Ok(()), Err(Refusal::Malformed(status))) => Err(status),
            (Ok(()), request) if state.closing() != Closing::No => {
                effects.drop_later(request);
                Err(Status::shutting_down())
            }
            (Ok(()), Err(Refusal::Refused(status))) => Err(status),
            (Ok(()), Ok(request)) => state.take_request(now, flags, request, effects),
        };
        if let Err(status) = taken {
            state.refuse(now, stream_id, status, effects);
        }
    }

    fn handle_data(
        state: &mut State<Self>,
        now: Duration,
        header: Header,
        message: Received<'_>,
        effects: &mut Effects,
    ) {
        let id = header.stream_id;
        if !state.takes_messages(id) {
            // RFC KA-37: the stream is unknown, takes no messages, or its client has said that none
            // will follow.
            let reason = "stream data";
            return effects.log(Note::Dropped {
                stream_id: id,
                reason,
            });
        }
        let data = Data::of(header.flags);
        if let Data::Message | Data::Last = data {
            let counted = state.side.admission.handle_message(id, message.len());
            let taken = counted.and_then(|()| state.receive(id, message, effects));
            if let Err(overflow) = taken {
                return state.fail(now, id, too_many(overflow), effects);
            }
        }
        if let Data::Last | Data::End = data {
            state.close_inbox(id, effects);
        }
    }

    /// RFC KA-4: its own stream fails, and nothing else.
    fn handle_oversized(
        state: &mut State<Self>,
        now: Duration,
        header: Header,
        effects: &mut Effects,
    ) {
        let id = header.stream_id;
        match header.message_type {
            MessageType::DATA if state.takes_messages(id) => {
                state.fail(now, id, skipped("a message", header), effects);
            }
            MessageType::REQUEST => {
                let status = match state.side.ids.accept(id) {
                    Ok(()) => skipped("the request", header),
                    Err(refused) => invalid_request(&refused),
                };
                let frame = encode_status(id, &status);
                state.queue(now, frame, false, effects);
            }
            _ => {}
        }
    }

    /// A caller that asks shortly before its only deadline asks once. So that this PING finds out,
    /// the canary is sent before it comes.
    fn handle_run(state: &mut State<Self>, now: Duration) -> bool {
        let due = state.side.canary_due.take_if(|due| *due <= now).is_some();
        due && !Self::is_idle(state)
    }

    fn next_run(state: &mut State<Self>) -> Option<Duration> {
        state.side.canary_due
    }

    fn owed_limit(&self) -> usize {
        self.limits.owed_bytes
    }

    /// Answers of what waits would wait behind those that the client does not take.
    fn has_starts(state: &State<Self>) -> bool {
        let side = &state.side;
        !side.starts.is_empty() || (!state.machine.parked() && side.admission.may_start())
    }

    fn is_idle(state: &State<Self>) -> bool {
        state.side.admission.len() == 0
    }

    fn traffic(state: &mut State<Self>) -> Traffic {
        Traffic {
            calls_in_flight: state.side.admission.len(),
            ..Traffic::default()
        }
    }

    fn end(state: &mut State<Self>, end: &ConnectionError, effects: &mut Effects) {
        // Handlers that run see it by their context.
        for stream in state.streams.values_mut() {
            stream.open = false;
            let message = format!("the connection has ended: {end}");
            let status = Status::new(Code::UNAVAILABLE, message);
            effects.wake(stream.inbox.fail(status));
        }
    }
}
