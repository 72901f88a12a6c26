//! The calls of a client: what is true of them beside the halves of their streams.
//!
//! The invariant: a call's stream, its place among the deadlines and its frame end together,
//! whatever ends the call. Its result waits in the stream until its future takes it or is dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;

mod answers;
mod closing;
mod late;
mod opening;
mod probes;

use super::effects::{Effects, Note};
use super::inbox::{Overflow, Received};
use super::outbox::{Outbox, Progress};
use super::state::{Side, State};
use super::stream::{Local, Stream, StreamRecord};
use crate::config::ClientLimits;
use crate::error::{ConnectionError, Error, LateOutcome, LateRecord, RequestProgress};
use crate::keepalive::{CallDeadline, Deadlines, Expired, Machine, Role, Support};
use crate::liveness::{Counters, Traffic};
use crate::streams::Data;
use crate::tuning::SHORT_STATUS;
use crate::wire::{Flags, Frame, Header, MAX_PAYLOAD, MessageType, Oversized, Response};

/// The calls of one connection.
#[derive(Debug)]
pub(crate) struct Calls {
    limits: ClientLimits,
    next_id: Option<u32>,
    /// The length of the first REQUEST's payload, of which an echo would be the first.
    first_request: Option<u32>,
    /// Calls that were sent and have not ended.
    open: usize,
    /// No open call has a smaller id.
    oldest: u32,
    /// Calls that wait for room, by ticket: first come, first served. Each belongs to a future that
    /// somebody holds, and goes with it.
    waiting: BTreeMap<u64, Waiting>,
    /// Waits for a PONG, by ticket. The numbers of their PINGs grow with it.
    probes: BTreeMap<u64, Probe>,
    /// How waiting calls and probes have ended, until their futures take it.
    results: BTreeMap<u64, Result<Duration, Error>>,
    deadlines: Deadlines<Key>,
    /// Calls at their deadline whose frame somebody is writing.
    undecided: Vec<Expired<Key>>,
    /// The ids of late records: the order in which their calls began.
    late: BTreeSet<u32>,
    late_responses: u64,
    repeated_responses: u64,
    farewell: Option<Farewell>,
}

/// A client's stream.
#[derive(Debug)]
pub(crate) struct Call {
    started: Duration,
    timeout: Option<Duration>,
    deadline: Option<CallDeadline>,
    /// The number of its request.
    request: u64,
    /// A first message has come.
    answered: bool,
    /// Its deadline has passed, and its answer may still come.
    late: Option<LateRecord>,
}

impl StreamRecord for Call {
    type Failure = StreamEnd;

    fn is_needed(&self) -> bool {
        self.late.is_some()
    }
}

#[derive(Debug)]
struct Waiting {
    call: Opening,
    /// `None` once it was woken, until it looks for room again.
    waker: Option<Waker>,
}

#[derive(Debug)]
struct Probe {
    /// The PING that it waits for.
    number: u64,
    started: Duration,
    budget: Duration,
    deadline: CallDeadline,
    waker: Waker,
}

/// The last thing that a client asks: whether its peer has read all that was sent. An end right behind
/// a request would tell a server that nobody waits for it.
#[derive(Debug)]
struct Farewell {
    /// The PING behind all that was sent.
    ping: Option<u64>,
    until: Duration,
}

/// A call about to be made.
#[derive(Clone, Debug)]
pub(super) struct Opening {
    pub(super) started: Duration,
    pub(super) timeout: Option<Duration>,
    pub(super) deadline: Option<CallDeadline>,
    /// The flags of its request.
    pub(super) flags: Flags,
    pub(super) takes_messages: bool,
}

/// The name of a call or a probe among the deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// It was queued, under this id.
    Stream(u32),
    /// It waits for room.
    Ticket(u64),
    Probe(u64),
}

/// The end of a call, other than the plain end of its messages.
#[derive(Debug)]
pub(crate) enum StreamEnd {
    /// A RESPONSE, with this envelope. It is decoded by the caller.
    Response(Bytes),
    /// In a box, since most calls have none.
    Failed(Box<Error>),
}

/// A frame for the client.
#[derive(Debug)]
pub(crate) struct ClientInput {
    frame: Frame,
    announces_shutdown: bool,
}

impl ClientInput {
    pub(super) fn new(frame: Frame) -> Self {
        Self {
            announces_shutdown: frame.header.message_type == MessageType::RESPONSE
                && announces_shutdown(&frame.payload),
            frame,
        }
    }
}

/// Whether a response says that the peer is about to close the connection. Asked here and not by
/// the caller: the end may have been read together with it.
fn announces_shutdown(envelope: &Bytes) -> bool {
    // A success does not begin with a status, so it costs one comparison.
    envelope.first() == Some(&STATUS)
        && envelope.len() <= SHORT_STATUS
        && Response::decode(envelope)
            .is_ok_and(|response| response.status.is_some_and(|it| it.announces_shutdown()))
}

/// The tag of the field `status` in a Response.
const STATUS: u8 = 0x0a;

impl Calls {
    pub(crate) fn new(limits: ClientLimits) -> Self {
        Self {
            limits,
            next_id: Some(1),
            first_request: None,
            open: 0,
            oldest: 1,
            waiting: BTreeMap::new(),
            probes: BTreeMap::new(),
            results: BTreeMap::new(),
            deadlines: Deadlines::new(),
            undecided: Vec::new(),
            late: BTreeSet::new(),
            late_responses: 0,
            repeated_responses: 0,
            farewell: None,
        }
    }
}

impl State<Calls> {
    /// The open call that began first. All with smaller ids have ended.
    fn oldest_open(&mut self) -> Option<&Stream<Call>> {
        let Self { side, streams, .. } = self;
        let is_open = |id: u32| streams.get(&id).is_some_and(|stream| stream.open);
        while side.open > 0 && !is_open(side.oldest) {
            side.oldest += 2;
        }
        streams.get(&side.oldest).filter(|_| side.open > 0)
    }
}

/// How far the request of a call had come when its connection ended, messages of its stream included.
fn request_progress(stream: &Stream<Call>, outbox: &Outbox) -> RequestProgress {
    if stream.own.answered {
        return RequestProgress::Answered;
    }
    match outbox.progress(stream.own.request) {
        Progress::Unsent => RequestProgress::NotSent,
        Progress::Begun => RequestProgress::PartlySent,
        // Whoever writes it may have written all of it.
        Progress::Out => RequestProgress::Sent,
        Progress::Written => match stream.local {
            Local::Open { newest, .. } | Local::HalfClosed { newest } => {
                match outbox.progress(newest) {
                    Progress::Unsent | Progress::Begun => RequestProgress::PartlySent,
                    Progress::Out | Progress::Written => RequestProgress::Sent,
                }
            }
            Local::Closed => RequestProgress::Sent,
        },
    }
}

/// RFC KA-23: a response decides, and so does data of a stream, which may never see one.
///
/// The first PING stands in front of all requests, so that either says that it has left. Who writes both
/// is the last to tell that, and what came before he does would decide nothing.
fn decide_support(now: Duration, machine: &mut Machine, outbox: &mut Outbox, first_ping: u64) {
    if machine.support() != Support::Unknown {
        return;
    }
    if outbox.answer_ping(first_ping.saturating_add(1)) {
        machine.handle_ping_flushed(now);
    }
    machine.handle_response(now);
}

/// Whether the socket was looked at when a call had run out of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looked {
    No,
    Answered,
    /// It cannot be said whether bytes wait.
    Unanswered,
}

impl Side for Calls {
    type Stream = Call;
    type Input = ClientInput;

    const ROLE: Role = Role::Client;

    fn handle_input(
        state: &mut State<Self>,
        now: Duration,
        input: ClientInput,
        effects: &mut Effects,
    ) {
        let Frame { header, payload } = input.frame;
        let stream_id = header.stream_id;
        if header.message_type != MessageType::RESPONSE {
            // No server sends any (RFC KA-52).
            let is_request = header.message_type == MessageType::REQUEST;
            if is_request && stream_id == 1 && state.side.first_request == Some(header.length) {
                state.echoes = true;
            }
            let reason = "its type is not for a client";
            return effects.log(Note::Dropped { stream_id, reason });
        }
        if input.announces_shutdown {
            state.expect_close();
        }
        state.handle_response(now, stream_id, StreamEnd::Response(payload), effects);
    }

    fn handle_data(
        state: &mut State<Self>,
        now: Duration,
        header: Header,
        message: Received<'_>,
        effects: &mut Effects,
    ) {
        let (id, flags) = (header.stream_id, header.flags);
        let State {
            streams,
            machine,
            outbox,
            first_ping,
            received,
            ..
        } = state;
        let Some(stream) = streams.get_mut(&id).filter(|stream| stream.open) else {
            return state.handle_late_data(now, id, flags, effects);
        };
        decide_support(now, machine, outbox, *first_ping);
        if !stream.inbox.takes_messages() {
            return state.fail(now, (id, flags), Error::UnexpectedData, effects);
        }
        let data = Data::of(flags);
        if let Data::Message | Data::Last = data {
            stream.own.answered = true;
            match stream.inbox.push(message, received) {
                Ok(waker) => effects.wake(waker),
                Err(Overflow { size, limit }) => {
                    let error = Error::StreamOverflow { size, limit };
                    return state.fail(now, (id, flags), error, effects);
                }
            }
        }
        if let Data::Last | Data::End = data {
            if let Some(stream) = state.close_call(id) {
                effects.wake(stream.inbox.close());
                state.machine.handle_call_ended(now);
            }
            state.close_local(id, true, effects);
            state.forget(id, effects);
        }
    }

    fn handle_oversized(
        state: &mut State<Self>,
        now: Duration,
        header: Header,
        effects: &mut Effects,
    ) {
        let error = Error::ResponseTooLarge(Oversized {
            size: header.payload_length(),
            max: MAX_PAYLOAD,
        });
        let id = header.stream_id;
        match header.message_type {
            MessageType::RESPONSE => {
                let end = StreamEnd::Failed(Box::new(error));
                state.handle_response(now, id, end, effects)
            }
            // RFC KA-4: its call fails. One that expects no data fails as by DATA of any other size.
            MessageType::DATA => {
                let error = match state.open_stream(id) {
                    None => return state.handle_late_data(now, id, header.flags, effects),
                    Some(stream) if stream.inbox.takes_messages() => error,
                    Some(_) => Error::UnexpectedData,
                };
                state.decide_support(now);
                state.fail(now, (id, header.flags), error, effects);
            }
            _ => {}
        }
    }

    fn handle_pong(
        state: &mut State<Self>,
        now: Duration,
        round_trip: Option<Duration>,
        effects: &mut Effects,
    ) {
        let newest = state.machine.answered_number();
        while let Some((&ticket, probe)) = state.side.probes.first_key_value() {
            if probe.number > newest {
                break;
            }
            if let Some(probe) = state.close_probe(now, ticket) {
                // A PONG that measured nothing came after a pause, or was given up before: what
                // the caller waited is the truth then, an older round trip is not.
                let waited = now.saturating_sub(probe.started);
                state.end_probe(ticket, probe, Ok(round_trip.unwrap_or(waited)), effects);
            }
        }
    }

    fn handle_run(state: &mut State<Self>, now: Duration) -> bool {
        let writes = state.outbox.writes();
        let (deadlines, open) = state.deadlines();
        deadlines.handle_run(now, writes, |key| open.contains(key));
        false
    }

    fn end_unsent(state: &mut State<Self>, now: Duration, effects: &mut Effects) {
        for expired in mem::take(&mut state.side.undecided) {
            state.expire(now, expired, Looked::No, effects);
        }
        while let Some(expired) = state.side.deadlines.poll_expired() {
            state.expire(now, expired, Looked::No, effects);
        }
    }

    fn end_late(state: &mut State<Self>, now: Duration, answered: bool, effects: &mut Effects) {
        let looked = if answered {
            Looked::Answered
        } else {
            Looked::Unanswered
        };
        while let Some(expired) = state.side.deadlines.poll_deferred() {
            state.expire(now, expired, looked, effects);
        }
    }

    fn look_due(&self) -> bool {
        self.deadlines.is_due()
    }

    fn awaits_write(&self) -> bool {
        !self.undecided.is_empty()
    }

    fn may_wish(&self) -> bool {
        self.deadlines.may_wish()
    }

    fn poll_wish(&mut self) -> Option<Duration> {
        self.deadlines.poll_wish()
    }

    fn next_run(state: &mut State<Self>) -> Option<Duration> {
        let farewell = state.side.farewell.as_ref().map(|farewell| farewell.until);
        let (deadlines, open) = state.deadlines();
        let next = deadlines.next_run(|key| open.contains(key));
        [next, farewell].into_iter().flatten().min()
    }

    fn shortest_lead(&self) -> Option<Duration> {
        self.deadlines.shortest_lead()
    }

    fn admit(state: &mut State<Self>, effects: &mut Effects) {
        if state.has_room() {
            let first = state.side.waiting.first_entry();
            effects.wake(first.and_then(|mut first| first.get_mut().waker.take()));
        }
    }

    fn is_read(state: &mut State<Self>, now: Duration) -> bool {
        state.is_read(now)
    }

    fn is_idle(state: &State<Self>) -> bool {
        let Self {
            open,
            waiting,
            probes,
            ..
        } = &state.side;
        *open == 0 && waiting.is_empty() && probes.is_empty()
    }

    fn traffic(state: &mut State<Self>) -> Traffic {
        let oldest = state.oldest_open().map(|stream| stream.own.started);
        let side = &state.side;
        Traffic {
            counters: Counters {
                late_responses: side.late_responses,
                repeated_responses: side.repeated_responses,
                ..Counters::default()
            },
            calls_in_flight: side.open + side.waiting.len(),
            oldest_call: oldest,
            late_calls_unanswered: side.late.len(),
        }
    }

    fn end(state: &mut State<Self>, end: &ConnectionError, effects: &mut Effects) {
        state.refuse_waiting(end, effects);
        for (ticket, probe) in mem::take(&mut state.side.probes) {
            let error = Error::not_sent(end.clone());
            state.end_probe(ticket, probe, Err(error), effects);
        }
        let State {
            streams, outbox, ..
        } = state;
        for stream in streams.values_mut() {
            stream.open = false;
            let error = Error::Connection(end.clone(), request_progress(stream, outbox));
            effects.wake(stream.inbox.fail(StreamEnd::Failed(Box::new(error))));
            if let Some(record) = stream.own.late.take() {
                effects.late(record, LateOutcome::Ended(end.clone()));
            }
        }
        state.side.open = 0;
        state.side.late.clear();
        state.side.deadlines = Deadlines::new();
    }
}
