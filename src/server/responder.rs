//! The duty to answer a request.

use std::mem;
use std::sync::Arc;

use tracing::{debug, error};

use super::admission::CallPermit;
use super::requests::Command;
use super::slots::Slot;
use crate::connection::{Outlet, Shared, half_close};
use crate::hook::{Hooked, Outcome};
use crate::status::{Code, Status};
use crate::wire::{Encode, Raw, encode_response, encode_status};

/// The duty to answer one request. Whatever ends the handler, a panic too, ends the call.
pub(super) struct Responder {
    shared: Arc<Shared<Command>>,
    stream_id: u32,
    duty: Duty,
    /// Who is told of the outcome.
    hooked: Option<Box<Hooked>>,
    _held: Held,
}

/// What a call holds until its handler has ended, answered or not: a handler that runs on behind
/// its answer takes memory too.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) _slot: Option<Slot>,
    pub(super) _permit: Option<CallPermit>,
}

/// What is owed on a stream.
#[derive(Clone, Copy)]
enum Duty {
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
    pub(super) fn new(shared: Arc<Shared<Command>>, stream_id: u32, held: Held) -> Self {
        Self {
            shared,
            stream_id,
            duty: Duty::Response,
            hooked: None,
            _held: held,
        }
    }

    pub(super) fn of_stream(
        shared: Arc<Shared<Command>>,
        stream_id: u32,
        held: Held,
        limit: usize,
    ) -> Self {
        let mut responder = Self::new(shared, stream_id, held);
        responder.duty = Duty::End { limit };
        responder
    }

    /// Tells this one of the outcome.
    pub(super) fn hook(&mut self, hooked: Option<Box<Hooked>>) {
        self.hooked = hooked;
    }

    /// Sends messages in front of the end.
    pub(super) fn outlet(&self) -> Outlet<Command> {
        let limit = match self.duty {
            Duty::End { limit } => limit,
            _ => 0,
        };
        Outlet::new(Arc::clone(&self.shared), self.stream_id, limit)
    }

    /// Ends a stream of responses.
    pub(super) fn end(mut self, result: Result<(), Status>) {
        match result {
            Ok(()) => self.answer(half_close(self.stream_id), Outcome::Answered),
            Err(status) => self.refuse(&status),
        }
    }

    pub(super) fn reply(mut self, message: &dyn Encode) {
        // One that is dropped need not be encoded.
        if let Duty::Handler = self.duty {
            return;
        }
        match encode_response(self.stream_id, message) {
            Ok(frame) => self.answer(frame, Outcome::Answered),
            Err(oversized) => self.refuse(&Status::new(
                Code::RESOURCE_EXHAUSTED,
                format!("the response cannot be sent: {oversized}"),
            )),
        }
    }

    pub(super) fn refuse(mut self, status: &Status) {
        self.refuse_now(status);
    }

    /// Answers with a status. The handler has ended, or is about to.
    pub(super) fn refuse_now(&mut self, status: &Status) {
        let (frame, sent) = self.encode_refusal(status);
        self.answer(frame, Outcome::Refused(sent.as_ref().unwrap_or(status)));
    }

    /// Answers in place of a handler that runs on. What it answers later is dropped.
    pub(super) fn answer_early(&mut self, reply: Result<&[u8], &Status>) {
        let Duty::Response = self.duty else { return };
        let (frame, sent) = match reply {
            Ok(message) => match encode_response(self.stream_id, &Raw(message)) {
                Ok(frame) => (frame, None),
                Err(oversized) => {
                    let message = format!("the response cannot be sent: {oversized}");
                    let status = Status::new(Code::RESOURCE_EXHAUSTED, message);
                    (encode_status(self.stream_id, &status), Some(status))
                }
            },
            Err(status) => {
                let (frame, sent) = self.encode_refusal(status);
                (frame, Some(sent.unwrap_or_else(|| status.clone())))
            }
        };
        self.duty = Duty::Handler;
        self.shared
            .answer(self.stream_id, frame, Command::AnsweredEarly);
        self.tell_hook(sent.as_ref().map_or(Outcome::Answered, Outcome::Refused));
    }

    /// Ends a call without an answer: it would come too late for a caller that does not want it.
    pub(super) fn drop_answer(&mut self) {
        if let Duty::Response = self.duty {
            self.duty = Duty::Done;
            self.shared.release();
            // Or the connection has ended.
            let _ = self.shared.tell(Command::Answered);
            self.tell_hook(Outcome::Dropped);
        }
    }

    /// The frame of a status, and what is sent in place of one that would be taken for an answer.
    fn encode_refusal(&self, status: &Status) -> (Vec<u8>, Option<Status>) {
        if status.code() != Code::OK {
            return (encode_status(self.stream_id, status), None);
        }
        // RFC KA-35: the caller would take it for the answer, an empty message.
        let message = format!("the handler failed with the status {status}");
        let status = Status::new(Code::INTERNAL, message);
        (encode_status(self.stream_id, &status), Some(status))
    }

    fn answer(&mut self, frame: Vec<u8>, outcome: Outcome<'_>) {
        let stream_id = self.stream_id;
        let sent = match mem::replace(&mut self.duty, Duty::Done) {
            Duty::Response => {
                self.shared.answer(stream_id, frame, Command::Answered);
                true
            }
            // It may have been ended over the handler's head, for messages that could not be taken.
            Duty::End { .. } => {
                let ended = Command::StreamEnded { stream_id };
                self.shared.answer_stream(stream_id, frame, ended)
            }
            Duty::Handler => {
                self.duty = Duty::Handler;
                return;
            }
            Duty::Done => return,
        };
        self.tell_hook(if sent { outcome } else { Outcome::Dropped });
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

impl Drop for Responder {
    fn drop(&mut self) {
        match self.duty {
            Duty::Done => return,
            Duty::Handler => {
                debug!(
                    stream_id = self.stream_id,
                    "what a handler answered after its call was answered is dropped"
                );
                // Or the connection has ended.
                let _ = self.shared.tell(Command::HandlerEnded);
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
        let status = Status::new(Code::INTERNAL, message);
        self.refuse_now(&status);
    }
}
