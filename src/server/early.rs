//! Calls that are answered without their handler when their time comes. A rule: no runtime, no clock,
//! no lock.
//!
//! A handler's own task keeps its deadlines. It cannot while the handler blocks its thread: then the
//! driver, which is on another one, answers in its place a little later.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;

use super::options::SoftReply;
use crate::status::Status;

/// A soft reply, and the request that it is made of, if it is.
pub(super) type Reply = (SoftReply, Option<Bytes>);

/// What happens to a call whose handler does not come back.
#[derive(Debug)]
pub(super) struct Early {
    /// Taken by whoever answers with it.
    pub(super) soft: Option<Reply>,
    /// When that is due for the driver.
    pub(super) soft_due: Option<Duration>,
    /// When its answer is that it takes too long.
    pub(super) cut_due: Option<Duration>,
    /// Set when it was answered: the status if it was one.
    pub(super) answered: Option<Option<Status>>,
}

/// Due for the driver.
#[derive(Debug)]
pub(super) enum Due {
    Soft(Reply),
    Cut,
}

impl Early {
    fn due(&self) -> Option<Duration> {
        if self.answered.is_some() {
            return None;
        }
        let soft = self.soft_due.filter(|_| self.soft.is_some());
        soft.into_iter().chain(self.cut_due).min()
    }
}

/// The calls of one connection that have such deadlines, from their start to the end of their handlers.
/// Bounded by the handlers that may run; memory follows their number down.
#[derive(Debug, Default)]
pub(super) struct EarlyAnswers {
    calls: BTreeMap<u32, Early>,
    due: BTreeSet<(Duration, u32)>,
}

impl EarlyAnswers {
    pub(super) fn insert(&mut self, stream_id: u32, call: Early) {
        self.due.extend(call.due().map(|due| (due, stream_id)));
        self.calls.insert(stream_id, call);
    }

    /// When the next one is due.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Takes one that is due.
    pub(super) fn poll_due(&mut self, now: Duration) -> Option<(u32, Due)> {
        let &(due, stream_id) = self.due.first().filter(|(due, _)| *due <= now)?;
        self.due.pop_first();
        let call = self.calls.get_mut(&stream_id)?;
        // One that is due at the same instant has its turn later.
        let soft = call.soft.take_if(|_| call.soft_due == Some(due));
        let taken = match soft {
            Some(reply) => Due::Soft(reply),
            None => {
                call.cut_due = None;
                Due::Cut
            }
        };
        self.due.extend(call.due().map(|due| (due, stream_id)));
        Some((stream_id, taken))
    }

    /// Takes the soft reply, unless it was given.
    pub(super) fn take_soft(&mut self, stream_id: u32) -> Option<Reply> {
        let call = self.calls.get_mut(&stream_id)?;
        let before = call.due();
        let reply = call.soft.take()?;
        if let Some(due) = before {
            self.due.remove(&(due, stream_id));
        }
        self.due.extend(call.due().map(|due| (due, stream_id)));
        Some(reply)
    }

    /// There is no soft reply to this request.
    pub(super) fn give_no_soft(&mut self, stream_id: u32) {
        if let Some(call) = self.calls.get_mut(&stream_id) {
            // It was taken, so it is not among those that are due.
            call.soft_due = None;
        }
    }

    /// Gives up the soft reply, so that the handler answers. `false` if it was taken to be given.
    pub(super) fn leave(&mut self, stream_id: u32) -> bool {
        match self.calls.get(&stream_id) {
            Some(call) if call.soft_due.is_some() => self.take_soft(stream_id).is_some(),
            _ => true,
        }
    }

    /// The call is answered with this status, or a message. `false` if it was before, or has ended.
    pub(super) fn answer(&mut self, stream_id: u32, refusal: Option<Status>) -> bool {
        let Some(call) = self.calls.get_mut(&stream_id) else {
            return false;
        };
        if call.answered.is_some() {
            return false;
        }
        if let Some(due) = call.due() {
            self.due.remove(&(due, stream_id));
        }
        call.answered = Some(refusal);
        true
    }

    /// How the call was answered, if it was.
    pub(super) fn answered(&self, stream_id: u32) -> Option<&Option<Status>> {
        self.calls.get(&stream_id)?.answered.as_ref()
    }

    /// The handler has ended.
    pub(super) fn remove(&mut self, stream_id: u32) -> Option<Early> {
        if self.calls.is_empty() {
            return None;
        }
        let call = self.calls.remove(&stream_id)?;
        if let Some(due) = call.due() {
            self.due.remove(&(due, stream_id));
        }
        Some(call)
    }

    /// Nobody takes answers any more.
    pub(super) fn stop(&mut self) {
        self.due.clear();
    }
}
