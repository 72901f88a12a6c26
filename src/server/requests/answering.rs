//! What handlers do with requests: answer them, and end.

use std::time::Duration;

use super::{Kind, OpenRequests};
use crate::connection::{Closing, Effects, Side, State};
use crate::server::refusal::answered;
use crate::status::Status;

/// Verbs for handlers.
impl State<OpenRequests> {
    /// Answers a unary call, unless it was answered already. Returns whether it was not. Its handler
    /// has ended.
    pub(in crate::server) fn respond(
        &mut self,
        now: Duration,
        id: u32,
        frame: Vec<u8>,
        effects: &mut Effects,
    ) -> bool {
        let early = self.side.early.remove(id);
        let open = early.as_ref().is_none_or(|call| call.answered.is_none());
        if let Some(call) = early {
            effects.drop_later(call);
        }
        if open {
            self.answered(now);
        }
        self.end_handler(effects);
        if open && self.end().is_none() {
            let alone = self.side.open == 0;
            self.queue(now, frame, alone, effects);
        }
        open
    }

    /// Answers a call in the place of its handler, which runs on. Returns whether it was open.
    pub(in crate::server) fn answer_early(
        &mut self,
        now: Duration,
        id: u32,
        frame: Vec<u8>,
        refusal: Option<Status>,
        effects: &mut Effects,
    ) -> bool {
        if !self.side.early.answer(id, refusal.clone()) {
            return false;
        }
        match refusal {
            Some(status) if self.streams.contains_key(&id) => {
                self.finish_stream(now, id, frame, status, effects);
            }
            _ => {
                self.answered(now);
                if self.end().is_none() {
                    self.queue(now, frame, false, effects);
                }
            }
        }
        true
    }

    /// Whether a call whose handler runs has been answered already.
    pub(in crate::server) fn is_answered(&self, id: u32, kind: Kind) -> bool {
        if self.side.early.answered(id).is_some() {
            return true;
        }
        kind != Kind::Unary
            && self.end().is_none()
            && self.streams.get(&id).is_none_or(|stream| !stream.open)
    }

    /// Leaves the answer of a call to its handler: none is given in its place any more. Returns whether
    /// none was given, nor is about to be.
    pub(in crate::server) fn leave_answer(&mut self, id: u32, kind: Kind) -> bool {
        self.side.early.leave(id) && !self.is_answered(id, kind)
    }

    /// Whether a request was read behind this one.
    pub(in crate::server) fn is_newest(&self, id: u32) -> bool {
        self.side.ids.newest() == id
    }

    /// Ends a stream with this frame, unless it has ended already, over the handler's head: then
    /// nobody may send on it any more. Returns whether it was queued. The handler has ended.
    pub(in crate::server) fn end_stream(
        &mut self,
        now: Duration,
        id: u32,
        frame: Vec<u8>,
        effects: &mut Effects,
    ) -> bool {
        self.side.early.remove(id);
        self.answered(now);
        self.end_handler(effects);
        self.finish_stream(now, id, frame, answered(), effects)
    }

    /// Ends a call without an answer, if it had none. Its handler has ended.
    pub(in crate::server) fn drop_answer(
        &mut self,
        now: Duration,
        id: u32,
        kind: Kind,
        effects: &mut Effects,
    ) {
        let early = self.side.early.remove(id);
        let answered = early.as_ref().is_some_and(|call| call.answered.is_some());
        if let Some(call) = early {
            effects.drop_later(call);
        }
        // Streams are counted until their handlers end.
        if !answered || kind != Kind::Unary {
            self.answered(now);
        }
        self.end_handler(effects);
    }

    /// A handler has ended. The driver starts what may run now.
    pub(in crate::server) fn end_handler(&mut self, effects: &mut Effects) {
        self.side.admission.handle_end();
        if self.closing() != Closing::No || OpenRequests::has_starts(self) {
            self.call_driver(effects);
        }
    }

    pub(super) fn answered(&mut self, now: Duration) {
        self.side.open -= 1;
        self.machine.handle_call_ended(now);
    }

    /// Sends a stream's last frame, behind what its handler has sent. What still comes is for nobody:
    /// the handler is told so by `status`.
    pub(super) fn finish_stream(
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
    pub(in crate::server) fn end_requests(&mut self, effects: &mut Effects) {
        for stream in self.streams.values_mut() {
            effects.wake(stream.inbox.fail(Status::shutting_down()));
        }
    }
}
