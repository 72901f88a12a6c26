//! The duty to answer a request.

use std::sync::Arc;

use tracing::{debug, error};

use super::admission::CallPermit;
use super::refusal::response_too_large;
use super::requests::OpenRequests;
use super::slots::Slot;
use crate::connection::{Messages, Outlet, Shared, State, half_close};
use crate::hook::{Hooked, Outcome};
use crate::status::{Code, Status};
use crate::wire::{Encode, Raw, encode_response, encode_status};

/// The duty to answer one request. Whatever ends the handler, a panic too, ends the call. Nothing else
/// sends on its stream, and there is none before the REQUEST has come (RFC KA-40).
pub(super) struct Responder {
    shared: Arc<Shared<OpenRequests>>,
    stream_id: u32,
    duty: Duty,
    /// The hook to be told of the outcome.
    hooked: Option<Box<Hooked>>,
    _permits: Permits,
}

/// What a call holds until its handler has ended, answered or not: a handler that runs on behind
/// its answer takes memory too.
#[derive(Debug, Default)]
pub(super) struct Permits {
    pub(super) _slot: Option<Slot<Shared<OpenRequests>>>,
    pub(super) _call: Option<CallPermit>,
}

/// The answer owed on a stream.
#[derive(Clone, Copy)]
pub(super) enum Duty {
    /// One response.
    Response,
    /// The last frame of a stream whose messages wait at so many unwritten bytes.
    End {
        limit: usize,
    },
    /// The end of the handler only: the call has been answered.
    Handler,
    Done,
}

impl Responder {
    pub(super) fn new(
        shared: Arc<Shared<OpenRequests>>,
        stream_id: u32,
        duty: Duty,
        permits: Permits,
    ) -> Self {
        Self {
            shared,
            stream_id,
            duty,
            hooked: None,
            _permits: permits,
        }
    }

    /// Tells this one of the outcome.
    pub(super) fn hook(&mut self, hooked: Option<Box<Hooked>>) {
        self.hooked = hooked;
    }

    /// Sends messages in front of the end.
    pub(super) fn outlet(&self) -> Outlet<OpenRequests> {
        let limit = match self.duty {
            Duty::End { limit } => limit,
            _ => 0,
        };
        Outlet::new(Arc::clone(&self.shared), self.stream_id, limit)
    }

    /// Receives the messages of its call.
    pub(super) fn messages(&self) -> Messages<OpenRequests> {
        Messages::new(Arc::clone(&self.shared), self.stream_id)
    }

    /// Ends a stream of responses.
    pub(super) fn end(&mut self) {
        self.answer(half_close(self.stream_id), None);
    }

    pub(super) fn reply(&mut self, message: &dyn Encode) {
        // One that is dropped need not be encoded.
        if let Duty::Handler = self.duty {
            return;
        }
        let (frame, refusal) = self.encode(message);
        self.answer(frame, refusal.as_ref());
    }

    /// Answers with a status.
    pub(super) fn refuse(&mut self, status: &Status) {
        let (frame, refusal) = self.encode_refusal(status);
        self.answer(frame, Some(&refusal));
    }

    /// Answers in place of a handler that runs on. What it answers later is dropped.
    pub(super) fn answer_early(&mut self, reply: Result<&[u8], &Status>) {
        let Duty::Response = self.duty else { return };
        let (frame, refusal) = match reply {
            Ok(message) => self.encode(&Raw(message)),
            Err(status) => {
                let (frame, refusal) = self.encode_refusal(status);
                (frame, Some(refusal))
            }
        };
        self.duty = Duty::Handler;
        self.respond(frame, true);
        self.tell_hook(outcome(refusal.as_ref()));
    }

    /// Ends a call that has not begun, if its connection has ended.
    pub(super) fn abandon(&mut self) -> bool {
        if !self.shared.has_ended() {
            return false;
        }
        self.duty = Duty::Done;
        self.shared
            .with(|state, effects| state.end_handler(effects));
        true
    }

    /// Ends a call without an answer: it would come too late for a caller that does not want it.
    pub(super) fn drop_answer(&mut self) {
        if let Duty::Response = self.duty {
            self.duty = Duty::Done;
            let now = self.shared.now();
            self.shared
                .with(|state, effects| state.drop_answer(now, effects));
            self.tell_hook(Outcome::Dropped);
        }
    }

    /// The frame of a message, or of the status that is sent in its place.
    fn encode(&self, message: &dyn Encode) -> (Vec<u8>, Option<Status>) {
        match encode_response(self.stream_id, message) {
            Ok(frame) => (frame, None),
            Err(oversized) => {
                let (frame, refusal) = self.encode_refusal(&response_too_large(oversized));
                (frame, Some(refusal))
            }
        }
    }

    /// The frame of a status, and the status in it.
    fn encode_refusal(&self, status: &Status) -> (Vec<u8>, Status) {
        let refusal = match status.code() {
            // RFC KA-35: the caller would take it for the answer, an empty message.
            Code::OK => {
                let message = format!("the handler failed with the status {status}");
                Status::new(Code::INTERNAL, message)
            }
            _ => status.clone(),
        };
        (encode_status(self.stream_id, &refusal), refusal)
    }

    fn answer(&mut self, frame: Vec<u8>, refusal: Option<&Status>) {
        let stream_id = self.stream_id;
        let sent = match self.duty {
            Duty::Response => {
                self.respond(frame, false);
                true
            }
            // It may have been ended over the handler's head, for messages that could not be taken.
            Duty::End { .. } => {
                let now = self.shared.now();
                let end = |state: &mut State<_>, effects: &mut _| {
                    state.end_stream(now, stream_id, frame, effects)
                };
                self.shared.with(end)
            }
            Duty::Handler | Duty::Done => return,
        };
        self.duty = Duty::Done;
        self.tell_hook(if sent {
            outcome(refusal)
        } else {
            Outcome::Dropped
        });
    }

    fn respond(&self, frame: Vec<u8>, runs_on: bool) {
        let now = self.shared.now();
        self.shared
            .with(|state, effects| state.respond(now, frame, runs_on, effects));
    }

    fn tell_hook(&mut self, outcome: Outcome<'_>) {
        if let Some(hooked) = self.hooked.take() {
            hooked.end(if self.shared.has_ended() {
                Outcome::Dropped
            } else {
                outcome
            });
        }
    }
}

fn outcome(refusal: Option<&Status>) -> Outcome<'_> {
    refusal.map_or(Outcome::Answered, Outcome::Refused)
}

impl Drop for Responder {
    fn drop(&mut self) {
        match self.duty {
            Duty::Done => return,
            Duty::Handler => {
                let stream_id = self.stream_id;
                debug!(
                    stream_id,
                    "the handler of a call that was answered has ended"
                );
                self.shared
                    .with(|state, effects| state.end_handler(effects));
                return;
            }
            Duty::Response | Duty::End { .. } => {}
        }
        let message = if std::thread::panicking() {
            "the handler panicked"
        } else {
            "the handler was stopped before it answered"
        };
        error!(stream_id = self.stream_id, message);
        self.refuse(&Status::new(Code::INTERNAL, message));
    }
}
