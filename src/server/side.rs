//! The server's side of a connection: the driver's part. It decodes requests, starts their handlers, and
//! sends the canary.
//!
//! The invariant: every request that is taken is answered once, and the reader waits for none.

use std::mem::size_of;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tracing::debug;

use super::admission::{Candidate, Offer};
use super::canary::{Canary, STALLED};
use super::context::Context;
use super::dispatch::{Budget, First};
use super::handler::Call;
use super::method::Kind;
use super::methods::Methods;
use super::refusal::{answered, expired, too_many};
use super::requests::{Command, Input, NotTaken, OpenRequests, Request};
use super::responder::{Duty, Permits, Responder};
use super::slots::{SharedSlots, Slot};
use super::state::ServerState;
use crate::connection::{Inbox, Received, Shared, Side, Turn};
use crate::error::ConnectionError;
use crate::keepalive::{Role, Support};
use crate::liveness::Traffic;
use crate::status::{Code, Status};
use crate::wire::{
    Flags, Frame, Header, MAX_PAYLOAD, MessageType, Oversized, Part, RequestFields, encode_status,
};

#[derive(Debug)]
pub(super) struct ServerSide {
    methods: Arc<Methods>,
    state: Arc<ServerState>,
    requests: OpenRequests,
    inline: Budget,
    canary: Canary,
    /// When it is sent because of requests that are still unanswered then.
    canary_due: Option<Duration>,
}

impl ServerSide {
    pub(super) fn new(methods: Arc<Methods>, state: Arc<ServerState>, canary: Canary) -> Self {
        Self {
            methods,
            requests: OpenRequests::new(state.settings.limits),
            inline: Budget::new(state.settings.dispatch),
            state,
            canary,
            canary_due: None,
        }
    }

    fn handle_request(&mut self, frame: Frame, turn: &mut Turn<'_, Command>) -> Result<(), Status> {
        let Header {
            stream_id, flags, ..
        } = frame.header;
        let accepted = self.requests.ids.accept(stream_id);
        accepted.map_err(|refused| invalid_request(&refused))?;
        // RFC KA-32: it costs its own stream only.
        let request =
            RequestFields::decode(&frame.payload).map_err(|error| invalid_request(&error))?;
        if turn.closing {
            return Err(Status::shutting_down());
        }
        let place = self.methods.find(request.service, request.method)?;
        let (method, _) = self.methods.get(place);
        let kind = method.kind;
        // RFC KA-48.
        if flags.contains(Flags::REMOTE_OPEN) && kind != Kind::Upload {
            let message = format!("method {:?} takes one request", request.method);
            return Err(Status::new(Code::UNIMPLEMENTED, message));
        }
        let deadline = match request.timeout_nano {
            0 => None,
            // RFC KA-34: a negative one has expired.
            nanos => {
                let timeout = u64::try_from(nanos).map_err(|_| {
                    let message = "the request had expired when it was sent";
                    Status::new(Code::DEADLINE_EXCEEDED, message)
                })?;
                Some(turn.now.saturating_add(Duration::from_nanos(timeout)))
            }
        };
        // A pair of metadata may have two bytes in the frame.
        let pairs = request.metadata.len() * size_of::<(String, String)>();
        let size = frame.payload.len() + pairs;
        let permit = method.permit()?;
        let RequestFields {
            payload, metadata, ..
        } = request;
        let payload = Part::new(frame.payload, payload);
        let (input, inbox) = if kind == Kind::Upload {
            let queue = self.requests.queue(flags, payload.into_bytes());
            let (messages, inbox) = queue.map_err(too_many)?;
            (Input::Many(messages), inbox)
        } else {
            (Input::One(payload), None)
        };
        for late in self.requests.admission.make_room(size, turn.now) {
            self.expire(&late, turn);
        }
        let candidate = Candidate {
            request: Request {
                stream_id,
                method: place,
                permit,
                input,
                metadata,
                deadline,
            },
            size,
            deadline,
        };
        let slot = || take_slot(&self.state, turn.shared);
        let start = match self.requests.offer(candidate, inbox, slot) {
            Offer::Start(request, slot) => Some((request, slot)),
            Offer::Wait => None,
            Offer::Refuse(_, full) => {
                return Err(Status::new(Code::RESOURCE_EXHAUSTED, full.to_string()));
            }
        };
        if kind != Kind::Unary {
            turn.open_half(stream_id);
        }
        turn.shared.claim();
        turn.machine.handle_call_started(turn.now);
        if let Some((request, slot)) = start {
            self.start(request, slot, turn);
        }
        // Nobody would see the flag on a connection on which no PING has come.
        if turn.machine.support() == Support::Yes {
            let due = turn.now.saturating_add(STALLED);
            self.canary_due.get_or_insert(due);
        }
        Ok(())
    }

    fn start(&mut self, request: Request, slot: Option<Slot>, turn: &Turn<'_, Command>) {
        let (method, handler) = self.methods.get(request.method);
        let first = match &request.input {
            Input::One(payload) if method.kind == Kind::Unary => self.inline.first(payload.len()),
            _ => First::Task,
        };
        let duty = match method.kind {
            Kind::Unary => Duty::Response,
            Kind::ServerStream | Kind::Upload => Duty::End {
                limit: self.owed_limit(),
            },
        };
        let permits = Permits {
            _slot: slot,
            _call: request.permit,
        };
        let shared = Arc::clone(turn.shared);
        let call = Call {
            context: Context::new(
                Arc::clone(&shared),
                Arc::clone(method),
                request.metadata,
                request.deadline,
            ),
            responder: Responder::new(shared, request.stream_id, duty, permits),
            first,
            handlers: self.canary.handlers(),
        };
        handler.start(call, request.input);
    }

    /// Answers a request that ran out of time while it waited.
    fn expire(&mut self, request: &Request, turn: &mut Turn<'_, Command>) {
        self.state.counts.expired.fetch_add(1, Relaxed);
        let stream_id = request.stream_id;
        let frame = encode_status(stream_id, &expired());
        if self.methods.get(request.method).0.kind == Kind::Unary {
            turn.send(stream_id, frame);
        } else {
            self.requests.close(stream_id);
            turn.end_stream(stream_id, frame);
        }
        turn.shared.release();
        turn.machine.handle_call_ended(turn.now);
    }

    /// Starts what waits, as far as it may.
    fn start_waiting(&mut self, mut granted: Option<Slot>, turn: &Turn<'_, Command>) {
        // The last commands are taken after the end, where there may be no runtime left to start a
        // handler on, and nobody to receive what it answers.
        if turn.shared.has_ended() {
            return;
        }
        // Their answers would wait behind those that the client does not take.
        if turn.parked {
            return;
        }
        loop {
            let slot = || match granted.take() {
                Some(slot) => Ok(Some(slot)),
                None => take_slot(&self.state, turn.shared),
            };
            let Some((request, slot)) = self.requests.admission.next(slot) else {
                return;
            };
            self.start(request, slot, turn);
        }
    }

    /// Ends a stream whose messages cannot be taken. Its handler sees the same status; one that has
    /// not begun never does.
    fn fail(
        &mut self,
        stream_id: u32,
        inbox: &Inbox<Status>,
        status: Status,
        turn: &mut Turn<'_, Command>,
    ) {
        self.requests.close(stream_id);
        debug!(stream_id, %status, "a stream fails");
        turn.end_stream(stream_id, encode_status(stream_id, &status));
        inbox.fail(status);
        if self.requests.admission.remove(stream_id).is_some() {
            turn.shared.release();
            turn.machine.handle_call_ended(turn.now);
        }
    }

    fn refuse(&self, stream_id: u32, status: &Status, turn: &Turn<'_, Command>) {
        debug!(stream_id, %status, "a request is refused");
        let counts = &self.state.counts;
        match status.code() {
            Code::RESOURCE_EXHAUSTED => counts.refused.fetch_add(1, Relaxed),
            Code::DEADLINE_EXCEEDED => counts.expired.fetch_add(1, Relaxed),
            _ => 0,
        };
        turn.send(stream_id, encode_status(stream_id, status));
    }
}

/// A slot of the server, where it has slots.
fn take_slot(state: &ServerState, connection: &Arc<Shared<Command>>) -> Result<Option<Slot>, u64> {
    let slots = state.slots.as_ref();
    slots
        .map(|slots| slots.take_or_enter(connection))
        .transpose()
}

fn invalid_request(reason: &dyn std::fmt::Display) -> Status {
    Status::new(Code::INVALID_ARGUMENT, reason.to_string())
}

impl Side for ServerSide {
    type Command = Command;

    const ROLE: Role = Role::Server;

    fn handle_command(&mut self, command: Command, turn: &mut Turn<'_, Command>) {
        match command {
            Command::Answered => {
                turn.machine.handle_call_ended(turn.now);
                self.handle_command(Command::HandlerEnded, turn);
            }
            Command::StreamEnded { stream_id } => {
                if let Some(inbox) = self.requests.close(stream_id) {
                    inbox.fail(answered());
                }
                self.handle_command(Command::Answered, turn);
            }
            Command::AnsweredEarly => turn.machine.handle_call_ended(turn.now),
            Command::HandlerEnded => {
                self.requests.admission.handle_end();
                self.start_waiting(None, turn);
            }
            Command::Granted => {
                self.requests.admission.handle_grant();
                let granted = self.state.slots.as_ref().map(SharedSlots::granted);
                self.start_waiting(granted, turn);
            }
            Command::EndRequests => {
                for inbox in self.requests.drain() {
                    inbox.fail(Status::shutting_down());
                }
            }
        }
    }

    fn handle_frame(&mut self, frame: Frame, turn: &mut Turn<'_, Command>) {
        let Header {
            stream_id,
            message_type,
            ..
        } = frame.header;
        match message_type {
            MessageType::REQUEST => {}
            _ => return debug!(stream_id, ?message_type, "a frame for nobody is dropped"),
        }
        if let Err(status) = self.handle_request(frame, turn) {
            self.refuse(stream_id, &status, turn);
        }
    }

    fn handle_data(&mut self, header: Header, message: Received<'_>, turn: &mut Turn<'_, Command>) {
        let stream_id = header.stream_id;
        let taken = self.requests.handle_data(stream_id, header.flags, message);
        match taken {
            Ok(()) => {}
            Err(NotTaken::ForNobody) => debug!(stream_id, "stream data for nobody is dropped"),
            Err(NotTaken::Overflow(inbox, overflow)) => {
                self.fail(stream_id, &inbox, too_many(overflow), turn);
            }
        }
    }

    /// RFC KA-4: its own stream fails, and nothing else.
    fn handle_oversized(&mut self, header: Header, turn: &mut Turn<'_, Command>) {
        let stream_id = header.stream_id;
        let oversized = Oversized {
            size: header.payload_length(),
            max: MAX_PAYLOAD,
        };
        let skipped = |what| {
            let message = format!("{what} was skipped: {oversized}");
            Status::new(Code::RESOURCE_EXHAUSTED, message)
        };
        match header.message_type {
            MessageType::DATA => {
                if let Some(inbox) = self.requests.close(stream_id) {
                    self.fail(stream_id, &inbox, skipped("a message"), turn);
                }
            }
            MessageType::REQUEST => {
                let status = match self.requests.ids.accept(stream_id) {
                    Ok(()) => skipped("the request"),
                    Err(refused) => invalid_request(&refused),
                };
                turn.send(stream_id, encode_status(stream_id, &status));
            }
            _ => {}
        }
    }

    /// RFC KA-12: a driver with a thread of its own must not hide that no handler runs.
    fn handle_ping(&mut self) -> Flags {
        let stalled = self.canary.is_overdue();
        self.canary.send();
        if stalled {
            Flags::HANDLERS_STALLED
        } else {
            Flags::NONE
        }
    }

    /// A caller that asks shortly before its only deadline asks once. So that this PING finds out,
    /// the canary is sent before it comes.
    fn handle_run(&mut self, _previous_run: Duration, now: Duration) {
        self.inline.renew();
        if self.canary_due.is_some_and(|due| due <= now) {
            self.canary_due = None;
            if !self.is_idle() {
                self.canary.send();
            }
        }
    }

    fn next_run(&mut self, _now: Duration) -> Option<Duration> {
        self.canary_due
    }

    fn owed_limit(&self) -> usize {
        self.state.settings.limits.owed_bytes
    }

    fn count(&mut self, traffic: &mut Traffic) {
        traffic.calls_in_flight = self.requests.admission.len();
    }

    fn handle_resumed(&mut self, turn: &mut Turn<'_, Command>) {
        self.start_waiting(None, turn);
    }

    fn is_idle(&self) -> bool {
        self.requests.admission.len() == 0
    }

    fn end(&mut self, end: &ConnectionError) {
        // Handlers that run see it by their context; those that wait never begin.
        let (_, ticket) = self.requests.admission.drain();
        if let (Some(slots), Some(ticket)) = (&self.state.slots, ticket) {
            slots.leave(ticket);
        }
        for inbox in self.requests.drain() {
            let message = format!("the connection has ended: {end}");
            inbox.fail(Status::new(Code::UNAVAILABLE, message));
        }
    }
}
