//! Calls end by frames: responses, data, and what breaks a call.

use std::time::Duration;

use super::{Call, Calls, Key, StreamEnd, decide_support};
use crate::connection::effects::{Effects, Note};
use crate::connection::state::State;
use crate::connection::stream::{Local, Stream};
use crate::error::{Error, LateOutcome, LateRecord};
use crate::streams::Data;
use crate::wire::{Flags, PING_STREAM_ID};

impl State<Calls> {
    /// The stream that a frame is for, if its call is open.
    pub(super) fn open_stream(&mut self, id: u32) -> Option<&mut Stream<Call>> {
        self.streams.get_mut(&id).filter(|stream| stream.open)
    }

    /// An open call has ended: by its answer, its failure or its deadline. It is not in flight any more.
    pub(super) fn close_call(&mut self, id: u32) -> Option<&mut Stream<Call>> {
        let stream = self.streams.get_mut(&id).filter(|stream| stream.open)?;
        stream.open = false;
        self.side.open -= 1;
        if let Some(deadline) = &stream.own.deadline {
            self.side.deadlines.remove(Key::Stream(id), deadline);
        }
        Some(stream)
    }

    pub(super) fn decide_support(&mut self, now: Duration) {
        decide_support(now, &mut self.machine, &mut self.outbox, self.first_ping);
    }

    /// A RESPONSE has come, or one that was too large was skipped.
    pub(super) fn handle_response(
        &mut self,
        now: Duration,
        id: u32,
        end: StreamEnd,
        effects: &mut Effects,
    ) {
        if id == PING_STREAM_ID {
            // RFC KA-25: the PING's own id. The peer does not know PING.
            self.decide_support(now);
            return;
        }
        let was_sent = id % 2 == 1 && self.side.next_id.is_none_or(|next| id < next);
        if !was_sent {
            let reason = "a response to no call";
            effects.log(Note::Dropped {
                stream_id: id,
                reason,
            });
            return;
        }
        self.decide_support(now);
        if let Some(stream) = self.close_call(id) {
            effects.wake(stream.inbox.fail(end));
            let sends = stream.local != Local::Closed;
            self.machine.handle_call_ended(now);
            if sends {
                self.close_local(id, true, effects);
            }
            return;
        }
        if !self.end_late_record(now, id, effects) {
            self.side.repeated_responses += 1;
            let reason = "a response to a call that has ended";
            effects.log(Note::Dropped {
                stream_id: id,
                reason,
            });
        }
        self.close_local(id, true, effects);
        self.forget(id, effects);
    }

    /// The late answer of an expired call has come. Returns whether there was a record of it.
    fn end_late_record(&mut self, now: Duration, id: u32, effects: &mut Effects) -> bool {
        let Some(record) = self.take_late(id) else {
            return false;
        };
        self.machine.handle_late_call_ended(now);
        self.side.late_responses += 1;
        let after = record.age(now);
        effects.log(Note::LateAnswer {
            stream_id: id,
            after,
        });
        effects.late(record, LateOutcome::Answered { after });
        true
    }

    pub(super) fn take_late(&mut self, id: u32) -> Option<LateRecord> {
        self.side.late.remove(&id);
        self.streams.get_mut(&id)?.own.late.take()
    }

    /// Data of a stream that this side has given up, or never had (RFC KA-37).
    pub(super) fn handle_late_data(
        &mut self,
        now: Duration,
        id: u32,
        flags: Flags,
        effects: &mut Effects,
    ) {
        let reason = "stream data";
        effects.log(Note::Dropped {
            stream_id: id,
            reason,
        });
        if let Data::Last | Data::End = Data::of(flags) {
            // Its end comes all the same, and may be the late answer that somebody waits for.
            self.end_late_record(now, id, effects);
            self.close_local(id, true, effects);
            self.forget(id, effects);
        }
    }

    /// Ends a stream since its DATA frame with these flags cannot be taken.
    pub(super) fn fail(
        &mut self,
        now: Duration,
        (id, flags): (u32, Flags),
        error: Error,
        effects: &mut Effects,
    ) {
        let Some(stream) = self.close_call(id) else {
            return;
        };
        effects.wake(stream.inbox.fail(StreamEnd::Failed(Box::new(error))));
        let reason = "its data cannot be taken";
        effects.log(Note::Failed {
            stream_id: id,
            reason,
        });
        self.machine.handle_call_ended(now);
        match Data::of(flags) {
            Data::Message | Data::Nothing => self.give_up(id, effects),
            // It was the server's last frame all the same: no half-close may follow it.
            Data::Last | Data::End => self.close_local(id, true, effects),
        }
        self.forget(id, effects);
    }
}
