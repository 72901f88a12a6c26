//! What frames do to requests: take them, add to them, and fail them.

use std::mem;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Waker;
use std::time::Duration;

use super::{Kind, OpenRequests, Refusal, Request, RequestRecord, ServerInput, Start, slot};
use crate::connection::{Closing, Effects, Inbox, Local, Note, Received, Side, State, Stream};
use crate::error::ConnectionError;
use crate::keepalive::{Role, Support};
use crate::liveness::Traffic;
use crate::server::admission::{Candidate, Offer};
use crate::server::refusal::{connection_ended, expired, invalid_request, skipped, too_many};
use crate::status::{Code, Status};
use crate::streams::Data;
use crate::tuning::CANARY_STALLED;
use crate::wire::{Flags, Header, MessageType, Part, encode_status};

/// Verbs for frames.
impl State<OpenRequests> {
    fn take_request(
        &mut self,
        now: Duration,
        flags: Flags,
        (request, size): (Request, usize),
        effects: &mut Effects,
    ) -> Result<(), Status> {
        let (id, kind) = (request.stream_id, request.kind);
        for late in self.side.admission.make_room(size, now) {
            self.expire(now, late, effects);
        }
        let mut request = request;
        let stream = match kind {
            Kind::Unary => None,
            Kind::ServerStream => Some(Inbox::closed()),
            Kind::Upload => Some(self.upload(flags, mem::take(&mut request.payload))?),
        };
        let candidate = Candidate {
            deadline: request.deadline,
            request,
            size,
        };
        let OpenRequests {
            admission,
            slots,
            starts,
            ..
        } = &mut self.side;
        match admission.offer(id, candidate, || slot(slots)) {
            Offer::Start(request, slot) => starts.push_back(Start { request, slot }),
            Offer::Wait => {}
            Offer::Refuse(request, full) => {
                effects.drop_later(request);
                return Err(Status::new(Code::RESOURCE_EXHAUSTED, full.to_string()));
            }
        }
        if let Some(inbox) = stream {
            let local = Local::Open {
                newest: 0,
                ticket: None,
            };
            self.streams
                .insert(id, Stream::new(local, inbox, RequestRecord));
        }
        self.side.open += 1;
        self.machine.handle_call_started(now);
        // Nobody would see the flag on a connection on which no PING has come.
        if self.machine.support() == Support::Yes {
            let due = now.saturating_add(CANARY_STALLED);
            self.side.canary_due.get_or_insert(due);
        }
        Ok(())
    }

    /// A queue for the messages of a stream: they may come before its handler starts.
    fn upload(&mut self, flags: Flags, payload: Part) -> Result<Inbox<Status>, Status> {
        let mut inbox =
            Inbox::new(Waker::noop().clone()).with_messages(self.side.limits.stream_bytes);
        let open = flags.contains(Flags::REMOTE_OPEN) && !flags.contains(Flags::REMOTE_CLOSED);
        // Some clients put the first message into the request. RFC KA-44: an empty payload is none
        // if messages follow.
        let none = flags.contains(Flags::NO_DATA) || (open && payload.is_empty());
        if !none {
            let message = Received::Own(payload.into_bytes());
            self.receive_first(&mut inbox, message).map_err(too_many)?;
        }
        if !open {
            inbox.close();
        }
        Ok(inbox)
    }

    /// Answers a request that ran out of time while it waited.
    fn expire(&mut self, now: Duration, request: Request, effects: &mut Effects) {
        self.side.counts.expired.fetch_add(1, Relaxed);
        let id = request.stream_id;
        let frame = encode_status(id, &expired());
        self.answered(now);
        if request.kind == Kind::Unary {
            self.queue(now, frame, false, effects);
        } else {
            self.leave_inbox(id, effects);
            self.finish_stream(now, id, frame, expired(), effects);
        }
        effects.drop_later(request);
    }

    /// Ends a stream whose messages cannot be taken. Its handler sees the same status; one that has
    /// not begun never does.
    fn fail(&mut self, now: Duration, id: u32, status: Status, effects: &mut Effects) {
        let reason = "its messages cannot be taken";
        effects.log(Note::Failed {
            stream_id: id,
            reason,
        });
        let frame = encode_status(id, &status);
        self.finish_stream(now, id, frame, status, effects);
        if let Some(request) = self.side.admission.remove(id) {
            self.leave_inbox(id, effects);
            self.answered(now);
            effects.drop_later(request);
        }
    }

    /// Whether messages may still come on this stream.
    fn takes_messages(&self, id: u32) -> bool {
        let stream = self.streams.get(&id);
        stream.is_some_and(|stream| stream.open && stream.inbox.is_open())
    }

    fn refuse(&mut self, now: Duration, id: u32, status: Status, effects: &mut Effects) {
        let counts = &self.side.counts;
        match status.code() {
            Code::RESOURCE_EXHAUSTED => counts.refused.fetch_add(1, Relaxed),
            Code::DEADLINE_EXCEEDED => counts.expired.fetch_add(1, Relaxed),
            _ => 0,
        };
        let frame = encode_status(id, &status);
        effects.log(Note::Refused {
            stream_id: id,
            status,
        });
        self.queue(now, frame, false, effects);
    }
}

impl Side for OpenRequests {
    type Stream = RequestRecord;
    type Input = ServerInput;

    const ROLE: Role = Role::Server;

    fn handle_input(
        state: &mut State<Self>,
        now: Duration,
        input: ServerInput,
        effects: &mut Effects,
    ) {
        let Header {
            stream_id,
            message_type,
            flags,
            ..
        } = input.header;
        if message_type != MessageType::REQUEST {
            let reason = "its type is not for a server";
            return effects.log(Note::Dropped { stream_id, reason });
        }
        let taken = match (state.side.ids.accept(stream_id), input.request) {
            (Err(refused), _) => Err(invalid_request(&refused)),
            // RFC KA-32: it costs its own stream only.
            (Ok(()), Err(Refusal::Malformed(status))) => Err(status),
            (Ok(()), request) if state.closing() != Closing::No => {
                effects.drop_later(request);
                Err(Status::shutting_down())
            }
            (Ok(()), Err(Refusal::Refused(status))) => Err(status),
            (Ok(()), Ok(request)) if state.side.abandoned => {
                effects.drop_later(request);
                return state.count_abandoned(1, effects);
            }
            (Ok(()), Ok(request)) => state.take_request(now, flags, request, effects),
        };
        if let Err(status) = taken {
            state.refuse(now, stream_id, status, effects);
        }
    }

    fn handle_data(
        state: &mut State<Self>,
        now: Duration,
        header: Header,
        message: Received<'_>,
        effects: &mut Effects,
    ) {
        let id = header.stream_id;
        if !state.takes_messages(id) {
            // RFC KA-37: the stream is unknown, takes no messages, or its client has said that none
            // will follow.
            let reason = "stream data";
            return effects.log(Note::Dropped {
                stream_id: id,
                reason,
            });
        }
        let data = Data::of(header.flags);
        if let Data::Message | Data::Last = data {
            let counted = state.side.admission.handle_message(id, message.len());
            let taken = counted.and_then(|()| state.receive(id, message, effects));
            if let Err(overflow) = taken {
                return state.fail(now, id, too_many(overflow), effects);
            }
        }
        if let Data::Last | Data::End = data {
            state.close_inbox(id, effects);
        }
    }

    /// RFC KA-4: its own stream fails, and nothing else.
    fn handle_oversized(
        state: &mut State<Self>,
        now: Duration,
        header: Header,
        effects: &mut Effects,
    ) {
        let id = header.stream_id;
        match header.message_type {
            MessageType::DATA if state.takes_messages(id) => {
                state.fail(now, id, skipped("a message", header), effects);
            }
            MessageType::REQUEST => {
                let status = match state.side.ids.accept(id) {
                    Ok(()) => skipped("the request", header),
                    Err(refused) => invalid_request(&refused),
                };
                let frame = encode_status(id, &status);
                state.queue(now, frame, false, effects);
            }
            _ => {}
        }
    }

    /// A caller that asks shortly before its only deadline asks once. So that this PING finds out,
    /// the canary is sent before it comes.
    fn handle_run(state: &mut State<Self>, now: Duration) -> bool {
        let side = &mut state.side;
        side.overdue
            .extend(std::iter::from_fn(|| side.early.poll_due(now)));
        let due = state.side.canary_due.take_if(|due| *due <= now).is_some();
        due && !Self::is_idle(state)
    }

    fn next_run(state: &mut State<Self>) -> Option<Duration> {
        let early = state.side.early.next_due();
        state.side.canary_due.into_iter().chain(early).min()
    }

    fn owed_limit(&self) -> usize {
        self.limits.owed_bytes
    }

    /// Answers of what waits would wait behind those that the client does not take.
    fn has_starts(state: &State<Self>) -> bool {
        let side = &state.side;
        !side.starts.is_empty()
            || !side.overdue.is_empty()
            || (!state.machine.parked() && side.admission.may_start())
    }

    fn is_idle(state: &State<Self>) -> bool {
        state.side.admission.len() == 0
    }

    fn traffic(state: &mut State<Self>) -> Traffic {
        Traffic {
            calls_in_flight: state.side.admission.len(),
            ..Traffic::default()
        }
    }

    fn abandon(state: &mut State<Self>, effects: &mut Effects) {
        if !state.side.abandoned {
            state.abandon_requests(effects);
        }
    }

    fn end(state: &mut State<Self>, end: &ConnectionError, effects: &mut Effects) {
        Self::abandon(state, effects);
        // Handlers that run see it by their context.
        for stream in state.streams.values_mut() {
            stream.open = false;
            effects.wake(stream.inbox.fail(connection_ended(end)));
        }
    }
}
