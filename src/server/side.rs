//! The driver's part of a server's connection: it takes requests apart, starts their handlers, and
//! sends the canary.

use std::collections::VecDeque;
use std::mem::size_of;
use std::sync::Arc;
use std::time::Duration;

use super::attention::Attention;
use super::canary::Canary;
use super::context::Context;
use super::dispatch::{Budget, First};
use super::early::Due;
use super::guard::Guard;
use super::handler::Call;
use super::methods::Methods;
use super::pulse::Pulse;
use super::refusal::invalid_request;
use super::requests::{Kind, OpenRequests, Refusal, Request, ServerInput, Start};
use super::responder::{Duty, Permits, Responder, answer_softly, encode_refusal};
use super::state::ServerState;
use crate::connection::{Shared, SideDriver};
use crate::status::{Code, Status};
use crate::wire::{Flags, Frame, MessageType, Part, RequestFields};

#[derive(Debug)]
pub(super) struct ServerSide {
    methods: Arc<Methods>,
    state: Arc<ServerState>,
    inline: Budget,
    canary: Canary,
    attention: Attention,
    /// That of the driver's runtime, where the server asks for it.
    pulse: Option<Arc<Pulse>>,
    /// The place of the method of the last request.
    last_method: usize,
    /// Kept so that starting takes no memory.
    starts: VecDeque<Start>,
}

impl ServerSide {
    pub(super) fn new(methods: Arc<Methods>, state: Arc<ServerState>, canary: Canary) -> Self {
        Self {
            methods,
            inline: Budget::new(state.settings.dispatch),
            state,
            canary,
            attention: Attention::default(),
            pulse: None,
            last_method: 0,
            starts: VecDeque::new(),
        }
    }

    /// Takes a request apart. With its size in memory, about.
    fn request(&mut self, now: Duration, frame: Frame) -> Result<(Request, usize), Refusal> {
        let malformed = |error: &dyn std::fmt::Display| Refusal::Malformed(invalid_request(error));
        if frame.header.message_type != MessageType::REQUEST {
            return Err(malformed(&"it is no request"));
        }
        let fields = RequestFields::decode(&frame.payload).map_err(|error| malformed(&error))?;
        let found = self
            .methods
            .find(self.last_method, fields.service, fields.method);
        let Some(place) = found else {
            let (service, name) = fields.names().map_err(|error| malformed(&error))?;
            return Err(Refusal::Refused(self.methods.refusal(service, name)));
        };
        self.last_method = place;
        let (method, handler) = self.methods.get(place);
        let (flags, kind) = (frame.header.flags, handler.kind());
        // RFC KA-48.
        if flags.contains(Flags::REMOTE_OPEN) && kind != Kind::Upload {
            let message = format!("method {:?} takes one request", method.name);
            return Err(Refusal::Refused(Status::new(Code::UNIMPLEMENTED, message)));
        }
        let deadline = match fields.timeout_nano {
            0 => None,
            // RFC KA-34: a negative one has expired.
            nanos => {
                let timeout = u64::try_from(nanos).map_err(|_| {
                    let message = "the request had expired when it was sent";
                    Refusal::Refused(Status::new(Code::DEADLINE_EXCEEDED, message))
                })?;
                Some(now.saturating_add(Duration::from_nanos(timeout)))
            }
        };
        let waited = match self.pulse {
            Some(_) => self.attention.waited(now),
            None => Duration::ZERO,
        };
        method.check_wait(waited).map_err(Refusal::Refused)?;
        let permit = method.permit().map_err(Refusal::Refused)?;
        // A pair of metadata may have two bytes in the frame.
        let pairs = fields.metadata.len() * size_of::<(String, String)>();
        let size = frame.payload.len() + pairs;
        let RequestFields {
            payload, metadata, ..
        } = fields;
        let request = Request {
            stream_id: frame.header.stream_id,
            method: place,
            kind,
            permit,
            payload: Part::new(frame.payload, payload),
            metadata,
            deadline,
            waited,
        };
        Ok((request, size))
    }

    /// Answers in the place of a handler that keeps its thread.
    fn answer_early(shared: &Shared<OpenRequests>, stream_id: u32, due: Due) {
        match due {
            Due::Soft(reply) => answer_softly(shared, stream_id, reply),
            Due::Cut => {
                let message = "the handler has not ended at its deadline";
                let status = Status::new(Code::DEADLINE_EXCEEDED, message);
                let (frame, status) = encode_refusal(stream_id, &status);
                let (now, refusal) = (shared.now(), Some(status));
                shared.with(|state, effects| {
                    state.answer_early(now, stream_id, frame, refusal, effects)
                });
            }
        }
    }

    fn start_one(&mut self, start: Start, shared: &Arc<Shared<OpenRequests>>) {
        let Start { mut request, slot } = start;
        let (method, handler) = self.methods.get(request.method);
        let first = match request.kind {
            Kind::Unary => self.inline.first(request.payload.len()),
            _ => First::Task,
        };
        let duty = match request.kind {
            Kind::Unary => Duty::Response,
            Kind::ServerStream | Kind::Upload => Duty::End {
                limit: self.state.settings.limits.owed_bytes,
            },
        };
        let permits = Permits {
            _slot: slot,
            _call: request.permit.take(),
        };
        let call = Call {
            guard: Guard::of(method, shared, &request),
            context: Context::new(
                Arc::clone(shared),
                Arc::clone(method),
                request.stream_id,
                request.metadata,
                request.deadline,
                request.waited,
            ),
            responder: Responder::new(Arc::clone(shared), request.stream_id, duty, permits),
            first,
            handlers: self.canary.handlers(),
        };
        handler.start(call, request.payload);
    }
}

impl SideDriver for ServerSide {
    type Side = OpenRequests;

    fn decode(&mut self, now: Duration, frame: Frame) -> ServerInput {
        ServerInput {
            header: frame.header,
            request: self.request(now, frame),
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

    fn handle_run(&mut self, acts: bool) {
        self.inline.renew();
        if acts {
            self.canary.send();
        }
    }

    fn begin_read(&mut self, now: Duration) {
        if self.state.settings.observe_pauses {
            let pulse = self.pulse.get_or_insert_with(Pulse::here);
            self.attention.handle_turn(now, pulse.age());
        }
    }

    fn handle_read(&mut self, now: Duration, bytes: usize, drained: bool) {
        if self.pulse.is_some() {
            self.attention.handle_read(now, bytes, drained);
        }
    }

    fn start(&mut self, shared: &Arc<Shared<OpenRequests>>) {
        shared.with(|state, _| state.take_starts(&mut self.starts));
        while let Some(start) = self.starts.pop_front() {
            self.start_one(start, shared);
        }
        while let Some((stream_id, due)) = shared.with(|state, _| state.side.overdue.pop()) {
            Self::answer_early(shared, stream_id, due);
        }
    }
}
