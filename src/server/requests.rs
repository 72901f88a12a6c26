//! The server's side of a connection: which requests are taken, which run, and which wait.
//!
//! The invariant: every request that is taken is answered once, and the reader waits for none.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tracing::debug;

mod uploading;

use super::ServerState;
use super::admission::{Admission, CallPermit, Candidate, Offer};
use super::canary::{Canary, STALLED};
use super::context::Context;
use super::dispatch::{Budget, First, poll_first};
use super::guard::expired;
use super::method::{Method, Methods, Served};
use super::responder::{Held, Responder};
use super::slots::{SharedSlots, Slot};
use super::streaming::answered;
use crate::config::{ServerLimits, ServerSettings};
use crate::connection::{Inbox, Messages, Received, Shared, Side, Total, Turn};
use crate::error::ConnectionError;
use crate::keepalive::{Role, Support};
use crate::liveness::Traffic;
use crate::status::{Code, Status};
use crate::streams::{Requests, Uploads};
use crate::wire::{
    Flags, Frame, Header, MAX_PAYLOAD, MessageType, Oversized, Part, RequestFields, encode_status,
};

/// What handlers tell the driver.
#[derive(Debug)]
pub(crate) enum Command {
    /// One of them has answered.
    Answered,
    /// One of them has ended its stream.
    StreamEnded { stream_id: u32 },
    /// A call was answered while its handler runs on.
    AnsweredEarly,
    /// The handler of such a call has ended.
    HandlerEnded,
    /// The server lets one more handler of this connection run.
    Granted,
    /// The server shuts down: no more requests for streams.
    EndRequests,
}

/// A request that was taken.
#[derive(Debug)]
struct Incoming {
    served: Arc<Served>,
    permit: Option<CallPermit>,
    stream_id: u32,
    payload: Part,
    metadata: Vec<(String, String)>,
    /// Of a method that takes many requests: what has come of them.
    messages: Option<Messages<Status>>,
    deadline: Option<Duration>,
}

#[derive(Debug)]
pub(super) struct ServerSide {
    methods: Arc<Methods>,
    limits: ServerLimits,
    requests: Requests,
    uploads: Uploads<Arc<Inbox<Status>>>,
    /// What has come for them and was not taken.
    uploaded: Arc<Total>,
    inline: Budget,
    admission: Admission<Incoming>,
    state: Arc<ServerState>,
    canary: Canary,
    /// When it is sent because of requests that are still unanswered then.
    canary_due: Option<Duration>,
}

impl ServerSide {
    pub(super) fn new(
        methods: Arc<Methods>,
        settings: &ServerSettings,
        state: Arc<ServerState>,
        canary: Canary,
    ) -> Self {
        Self {
            methods,
            limits: settings.limits,
            inline: Budget::new(settings.dispatch),
            requests: Requests::default(),
            uploads: Uploads::default(),
            uploaded: Total::new(settings.limits.upload_bytes),
            admission: Admission::new(settings.limits),
            state,
            canary,
            canary_due: None,
        }
    }

    fn handle_request(&mut self, frame: Frame, turn: &mut Turn<'_, Command>) -> Result<(), Status> {
        let stream_id = frame.header.stream_id;
        let invalid = |message| Status::new(Code::INVALID_ARGUMENT, message);
        self.requests
            .accept(stream_id)
            .map_err(|refused| invalid(refused.to_string()))?;
        // RFC KA-32: it costs its own stream only.
        let request =
            RequestFields::decode(&frame.payload).map_err(|error| invalid(error.to_string()))?;
        if turn.closing {
            return Err(Status::shutting_down());
        }
        let served = Arc::clone(self.methods.find(request.service, request.method)?);
        let flags = frame.header.flags;
        let takes_many = matches!(served.method, Method::Upload(_));
        // RFC KA-48.
        if flags.contains(Flags::REMOTE_OPEN) && !takes_many {
            return Err(Status::new(
                Code::UNIMPLEMENTED,
                format!("method {:?} takes one request", request.method),
            ));
        }
        let deadline = match request.timeout_nano {
            0 => None,
            // RFC KA-34: a negative one has expired.
            nanos => match u64::try_from(nanos) {
                Ok(nanos) => Some(turn.now.saturating_add(Duration::from_nanos(nanos))),
                Err(_) => {
                    self.state.counters.expired.fetch_add(1, Relaxed);
                    return Err(Status::new(
                        Code::DEADLINE_EXCEEDED,
                        "the request had expired when it was sent",
                    ));
                }
            },
        };
        // A pair of metadata may have two bytes in the frame.
        let pairs = request.metadata.len() * size_of::<(String, String)>();
        let size = frame.payload.len() + pairs;
        let permit = served.admit().inspect_err(|_| self.count_refused())?;
        let RequestFields {
            payload, metadata, ..
        } = request;
        let mut payload = Part::new(frame.payload, payload);
        let messages = if takes_many {
            let payload = std::mem::take(&mut payload);
            let opened = self.open_upload(stream_id, flags, payload.into_bytes());
            Some(opened.inspect_err(|_| self.count_refused())?)
        } else {
            None
        };
        for expired in self.admission.make_room(size, turn.now) {
            self.expire(expired, turn);
        }
        let is_unary = served.method.is_unary();
        let candidate = Candidate {
            request: Incoming {
                served,
                permit,
                stream_id,
                payload,
                metadata,
                messages,
                deadline,
            },
            size,
            deadline,
        };
        let slots = self.state.slots.as_ref();
        let slot = || take_slot(slots, turn.shared);
        let start = match self.admission.offer(stream_id, candidate, slot) {
            Offer::Start(incoming, slot) => Some((incoming, slot)),
            Offer::Wait => None,
            Offer::Refuse(_, full) => {
                self.uploads.close(stream_id);
                self.count_refused();
                return Err(Status::new(Code::RESOURCE_EXHAUSTED, full.to_string()));
            }
        };
        if !is_unary {
            turn.open_half(stream_id);
        }
        turn.shared.claim();
        turn.machine.handle_call_started(turn.now);
        if let Some((incoming, slot)) = start {
            self.start(incoming, slot, turn);
        }
        // Nobody would see the flag on a connection on which no PING has come.
        if turn.machine.support() == Support::Yes {
            let due = turn.now.saturating_add(STALLED);
            self.canary_due.get_or_insert(due);
        }
        Ok(())
    }

    fn count_refused(&self) {
        self.state.counters.refused.fetch_add(1, Relaxed);
    }

    fn start(&mut self, incoming: Incoming, slot: Option<Slot>, turn: &Turn<'_, Command>) {
        let Incoming {
            served,
            permit,
            stream_id,
            payload,
            metadata,
            messages,
            deadline,
        } = incoming;
        let held = Held {
            _slot: slot,
            _permit: permit,
        };
        let shared = Arc::clone(turn.shared);
        let context = Context::new(Arc::clone(&shared), Arc::clone(&served), metadata, deadline);
        let handlers = self.canary.handlers();
        let limit = self.limits.owed_bytes;
        match &served.method {
            Method::Unary(method) => {
                let first = self.inline.first(payload.len());
                let responder = Responder::new(shared, stream_id, held);
                let handling = method.handle(context, payload, responder);
                match first {
                    First::Driver => poll_first(handling, handlers),
                    First::Task => drop(handlers.spawn(handling)),
                }
            }
            Method::ServerStream(start) => {
                // Wherever the driver runs.
                let _handlers = handlers.enter();
                let responder = Responder::of_stream(shared, stream_id, held, limit);
                start(context, payload.into_bytes(), responder);
            }
            Method::Upload(start) => {
                let _handlers = handlers.enter();
                let responder = Responder::of_stream(shared, stream_id, held, limit);
                // There is a queue for each method that takes one.
                if let Some(messages) = messages {
                    start(context, messages, responder);
                }
            }
        }
    }

    /// Answers a request that ran out of time while it waited.
    fn expire(&mut self, incoming: Incoming, turn: &mut Turn<'_, Command>) {
        self.state.counters.expired.fetch_add(1, Relaxed);
        let stream_id = incoming.stream_id;
        let frame = encode_status(stream_id, &expired());
        if let Method::Unary(_) = incoming.served.method {
            turn.send(stream_id, frame);
        } else {
            self.uploads.close(stream_id);
            turn.end_stream(stream_id, frame);
        }
        turn.shared.release();
        turn.machine.handle_call_ended(turn.now);
    }

    /// Starts what waits, as far as it may.
    fn start_waiting(&mut self, mut granted: Option<Slot>, turn: &mut Turn<'_, Command>) {
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
            let slots = self.state.slots.as_ref();
            let slot = || match granted.take() {
                Some(slot) => Ok(Some(slot)),
                None => take_slot(slots, turn.shared),
            };
            let Some((incoming, slot)) = self.admission.next(slot) else {
                return;
            };
            self.start(incoming, slot, turn);
        }
    }
}

impl Side for ServerSide {
    type Command = Command;

    const ROLE: Role = Role::Server;

    fn handle_command(&mut self, command: Command, turn: &mut Turn<'_, Command>) {
        match command {
            Command::Answered => {
                self.admission.handle_end();
                turn.machine.handle_call_ended(turn.now);
                self.start_waiting(None, turn);
            }
            Command::StreamEnded { stream_id } => {
                // What still comes is for nobody.
                if let Some(inbox) = self.uploads.close(stream_id) {
                    inbox.fail(answered());
                }
                self.handle_command(Command::Answered, turn);
            }
            Command::AnsweredEarly => turn.machine.handle_call_ended(turn.now),
            Command::HandlerEnded => {
                self.admission.handle_end();
                self.start_waiting(None, turn);
            }
            Command::Granted => {
                let granted = self.state.slots.as_ref().map(SharedSlots::granted);
                self.admission.handle_grant();
                self.start_waiting(granted, turn);
            }
            Command::EndRequests => {
                for inbox in self.uploads.drain() {
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
            debug!(stream_id, %status, "a request is refused");
            turn.send(stream_id, encode_status(stream_id, &status));
        }
    }

    fn handle_data(&mut self, header: Header, message: Received<'_>, turn: &mut Turn<'_, Command>) {
        self.handle_message(header, message, turn);
    }

    /// RFC KA-4: its own stream fails, and nothing else.
    fn handle_oversized(&mut self, header: Header, turn: &mut Turn<'_, Command>) {
        let stream_id = header.stream_id;
        let oversized = Oversized {
            size: header.payload_length(),
            max: MAX_PAYLOAD,
        };
        if header.message_type == MessageType::DATA {
            if let Some(inbox) = self.uploads.close(stream_id) {
                let message = format!("a message was skipped: {oversized}");
                let status = Status::new(Code::RESOURCE_EXHAUSTED, message);
                self.fail(stream_id, &inbox, status, turn);
            }
        }
        if header.message_type != MessageType::REQUEST {
            return;
        }
        let status = match self.requests.accept(stream_id) {
            Ok(()) => Status::new(
                Code::RESOURCE_EXHAUSTED,
                format!("the request was skipped: {oversized}"),
            ),
            Err(refused) => Status::new(Code::INVALID_ARGUMENT, refused.to_string()),
        };
        turn.send(stream_id, encode_status(stream_id, &status));
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
        self.limits.owed_bytes
    }

    fn count(&mut self, traffic: &mut Traffic) {
        traffic.calls_in_flight = self.admission.len();
    }

    fn handle_resumed(&mut self, turn: &mut Turn<'_, Command>) {
        self.start_waiting(None, turn);
    }

    fn is_idle(&self) -> bool {
        self.admission.len() == 0
    }

    fn end(&mut self, end: &ConnectionError) {
        // Handlers that run see it by their context; those that wait never begin.
        let (_, ticket) = self.admission.drain();
        if let (Some(slots), Some(ticket)) = (&self.state.slots, ticket) {
            slots.leave(ticket);
        }
        for inbox in self.uploads.drain() {
            let message = format!("the connection has ended: {end}");
            inbox.fail(Status::new(Code::UNAVAILABLE, message));
        }
    }
}

/// A slot of the server, where it has slots.
fn take_slot(
    slots: Option<&Arc<SharedSlots>>,
    connection: &Arc<Shared<Command>>,
) -> Result<Option<Slot>, u64> {
    let slot = slots.map(|slots| slots.take_or_enter(connection));
    slot.transpose()
}
