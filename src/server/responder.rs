//! The duty to answer a request.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tracing::error;

use super::admission::CallPermit;
use super::early::Reply;
use super::refusal::response_too_large;
use super::requests::{Kind, OpenRequests};
use super::slots::Slot;
use crate::connection::{Messages, Outlet, Shared, half_close};
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
        let (frame, refusal) = encode(self.stream_id, message);
        self.answer(frame, refusal.as_ref());
    }

    /// Answers with a status.
    pub(super) fn refuse(&mut self, status: &Status) {
        let (frame, refusal) = encode_refusal(self.stream_id, status);
        self.answer(frame, Some(&refusal));
    }

    /// Answers in place of a handler that runs on, unless the driver has done so. What it answers later
    /// is dropped.
    pub(super) fn answer_early(&mut self) {
        let id = self.stream_id;
        let soft = self.shared.with(|state, _| state.side.early.take_soft(id));
        if let Some(reply) = soft {
            answer_softly(&self.shared, id, reply);
        }
        self.was_answered();
    }

    /// Whether the call has been answered in place of its handler. The hook hears of it.
    pub(super) fn was_answered(&mut self) -> bool {
        let id = self.stream_id;
        let answered = self
            .shared
            .with(|state, _| state.side.early.answered(id).cloned());
        if let Some(refusal) = &answered {
            self.tell_hook(outcome(refusal.as_ref()));
        }
        answered.is_some()
    }

    /// Ends a call that has not begun, if its connection has ended. Not a stream: a client that has
    /// sent all its messages may close, and what it has sent is to be taken all the same.
    pub(super) fn abandon(&mut self) -> bool {
        if !matches!(self.duty, Duty::Response) || !self.shared.has_ended() {
            return false;
        }
        self.drop_answer();
        true
    }

    /// Ends a call without an answer: it would come too late for a caller that does not want it, or
    /// there is none any more.
    pub(super) fn drop_answer(&mut self) {
        let kind = match self.duty {
            Duty::Response => Kind::Unary,
            Duty::End { .. } => Kind::Upload,
            Duty::Done => return,
        };
        self.duty = Duty::Done;
        let (now, id) = (self.shared.now(), self.stream_id);
        self.shared
            .with(|state, effects| state.drop_answer(now, id, kind, effects));
        self.tell_hook(Outcome::Dropped);
    }

    fn answer(&mut self, frame: Vec<u8>, refusal: Option<&Status>) {
        let (now, id) = (self.shared.now(), self.stream_id);
        let sent = match self.duty {
            Duty::Response => self
                .shared
                .with(|state, effects| state.respond(now, id, frame, effects)),
            // It may have been ended over the handler's head, for messages that could not be taken.
            Duty::End { .. } => self
                .shared
                .with(|state, effects| state.end_stream(now, id, frame, effects)),
            Duty::Done => return,
        };
        self.duty = Duty::Done;
        self.tell_hook(if sent {
            outcome(refusal)
        } else {
            Outcome::Dropped
        });
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

/// Gives a soft reply, unless the call has been answered.
pub(super) fn answer_softly(
    shared: &Shared<OpenRequests>,
    stream_id: u32,
    (reply, request): Reply,
) {
    let Some(reply) = reply.make(request) else {
        return shared.with(|state, _| state.side.early.give_no_soft(stream_id));
    };
    let (frame, refusal) = match reply {
        Ok(message) => encode(stream_id, &Raw(&message)),
        Err(status) => {
            let (frame, refusal) = encode_refusal(stream_id, &status);
            (frame, Some(refusal))
        }
    };
    let now = shared.now();
    shared.with(|state, effects| {
        if state.answer_early(now, stream_id, frame, refusal, effects) {
            state.side.counts.soft_answers.fetch_add(1, Relaxed);
        }
    });
}

/// The frame of a message, or of the status that is sent in its place.
fn encode(stream_id: u32, message: &dyn Encode) -> (Vec<u8>, Option<Status>) {
    match encode_response(stream_id, message) {
        Ok(frame) => (frame, None),
        Err(oversized) => {
            let (frame, refusal) = encode_refusal(stream_id, &response_too_large(oversized));
            (frame, Some(refusal))
        }
    }
}

/// The frame of a status, and the status in it.
pub(super) fn encode_refusal(stream_id: u32, status: &Status) -> (Vec<u8>, Status) {
    let refusal = match status.code() {
        // RFC KA-35: the caller would take it for the answer, an empty message.
        Code::OK => {
            let message = format!("the handler failed with the status {status}");
            Status::new(Code::INTERNAL, message)
        }
        _ => status.clone(),
    };
    (encode_status(stream_id, &refusal), refusal)
}

fn outcome(refusal: Option<&Status>) -> Outcome<'_> {
    refusal.map_or(Outcome::Answered, Outcome::Refused)
}

impl Drop for Responder {
    fn drop(&mut self) {
        if let Duty::Done = self.duty {
            return;
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
