//! What handlers do with requests: answer them, and end.

use std::time::Duration;

use super::OpenRequests;
use crate::connection::{Closing, Effects, Side, State};
use crate::server::refusal::answered;
use crate::status::Status;

/// Verbs for handlers.
impl State<OpenRequests> {
    /// Answers a unary call. Its handler has ended, unless it `runs_on` behind an early answer.
    pub(in crate::server) fn respond(
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
    pub(in crate::server) fn end_stream(
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
    pub(in crate::server) fn drop_answer(&mut self, now: Duration, effects: &mut Effects) {
        self.answered(now);
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
