//! The futures of a client: what they do with the state, and what dropping them undoes.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;

use super::calls::{Calls, Key, Opening};
use super::own_clock::OwnClock;
use super::shared::Shared;
use super::state::State;
use super::streaming::StreamGuard;
use crate::clock::{Clock, within};
use crate::config::ClientSettings;
use crate::error::{CloseError, Error, Unsent};
use crate::hook::{CallStart, Hook, Hooked, Outcome};
use crate::keepalive::CallDeadline;
use crate::tuning::END_MARGIN;
use crate::wire::{Encode, Flags, Oversized, RequestDraft};

/// One user's hold on a client's connection. The connection closes when all are gone.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    last: Arc<LastHandle>,
}

#[derive(Debug)]
struct LastHandle {
    shared: Arc<Shared<Calls>>,
    settings: ClientSettings,
}

impl Drop for LastHandle {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// A request that is about to be made. It owns all that it needs.
pub(crate) struct Outgoing {
    draft: Result<RequestDraft, Unsendable>,
    /// Whether messages follow, and how the stream begins.
    flags: Flags,
    metadata: Vec<(String, String)>,
    pub(crate) timeout: Option<Duration>,
}

/// A request whose message is too large.
struct Unsendable {
    oversized: Oversized,
    service: String,
    method: String,
}

impl Outgoing {
    pub(crate) fn new(
        (service, method): (&str, &str),
        flags: Flags,
        payload: &dyn Encode,
        timeout: Option<Duration>,
    ) -> Self {
        let draft = RequestDraft::new(flags, service, method, payload);
        Self {
            draft: draft.map_err(|oversized| Unsendable {
                oversized,
                service: service.to_owned(),
                method: method.to_owned(),
            }),
            flags,
            metadata: Vec::new(),
            timeout,
        }
    }

    /// The names of service and method, until the request is sent.
    pub(crate) fn names(&self) -> (&str, &str) {
        match &self.draft {
            Ok(draft) => draft.names(),
            Err(Unsendable {
                service, method, ..
            }) => (service, method),
        }
    }

    pub(crate) fn push_metadata(&mut self, key: &str, value: &str) {
        let pair = (key.to_ascii_lowercase(), value.to_owned());
        self.metadata.push(pair);
    }

    fn call_hook(&mut self, hook: &Hook, clock: Clock) -> Result<Option<Box<Hooked>>, Error> {
        let mut metadata = mem::take(&mut self.metadata);
        let (service, method) = self.names();
        let start = CallStart {
            service,
            method,
            metadata: &mut metadata,
            remaining: self.timeout,
        };
        let begun = hook.begin(start, clock);
        self.metadata = metadata;
        begun.map_err(Error::Refused)
    }

    /// The frame with what is left of its time.
    fn encode(&mut self, left: Option<Duration>) -> Result<&mut Vec<u8>, Error> {
        let frame = match &mut self.draft {
            Ok(draft) => draft.finish(left.map_or(0, timeout_nano), &self.metadata),
            Err(Unsendable { oversized, .. }) => Err(*oversized),
        };
        frame.map_err(Error::RequestTooLarge)
    }
}

impl Handle {
    pub(crate) fn new(shared: Arc<Shared<Calls>>, settings: ClientSettings) -> Self {
        Self {
            last: Arc::new(LastHandle { shared, settings }),
        }
    }

    pub(crate) fn settings(&self) -> &ClientSettings {
        &self.last.settings
    }

    pub(crate) fn shared(&self) -> &Arc<Shared<Calls>> {
        &self.last.shared
    }

    /// Nothing happens before it is polled.
    pub(crate) fn exchange(&self, outgoing: Outgoing, takes_messages: bool) -> Exchange {
        Exchange {
            handle: self.clone(),
            outgoing,
            takes_messages,
            started: Duration::ZERO,
            deadline: None,
            place: Place::Begin,
            own_clock: OwnClock::none(),
            hooked: None,
        }
    }

    /// Sends what is queued, for so long at most, and ends the connection.
    pub(crate) async fn close(self, limit: Duration) -> Result<(), CloseError> {
        let shared = self.shared();
        // If it is dropped on its way, too.
        let ends = EndOnDrop(shared);
        let now = shared.now();
        shared.with(|state, effects| state.close_when_sent(now, effects));
        let in_time = within(limit, shared.closed()).await.is_some();
        drop(ends);
        if !in_time {
            // A driver that does not run will end the connection when it does (law 9).
            within(END_MARGIN, shared.closed()).await;
        }
        let (unsent, end) = shared.unsent();
        if unsent == Unsent::default() {
            return Ok(());
        }
        Err(CloseError {
            unsent,
            end: end.filter(|end| in_time || !end.is_local_close()),
            limit,
        })
    }

    /// Asks for a PING and waits for its PONG.
    pub(crate) async fn probe(&self, budget: Duration) -> Result<Duration, Error> {
        let shared = &**self.shared();
        let now = shared.now();
        let deadline = CallDeadline::new(now, budget, &self.settings().keepalive);
        let own = deadline.clone();
        let ticket = shared.with(|state, effects| {
            state.start_probe(now, budget, deadline, Waker::noop(), effects)
        })?;
        let probe = ProbeGuard { shared, ticket };
        let mut clock = OwnClock::start(shared, Some(&own));
        let result = std::future::poll_fn(|cx| {
            clock.poll(cx, shared);
            let poll = |state: &mut State<Calls>, effects: &mut _| {
                state.poll_probe(probe.ticket, cx.waker(), effects)
            };
            shared.with(poll)
        });
        shared.with_process(result.await)
    }
}

/// Ends the connection by its drop.
struct EndOnDrop<'a>(&'a Shared<Calls>);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A probe that waits. Leaves whatever ends the wait.
struct ProbeGuard<'a> {
    shared: &'a Shared<Calls>,
    ticket: u64,
}

impl Drop for ProbeGuard<'_> {
    fn drop(&mut self) {
        let now = self.shared.now();
        self.shared
            .with(|state, effects| state.drop_probe(now, self.ticket, effects));
    }
}

/// A request on its way, up to its response or to the stream that it opens.
///
/// Dropping it ends the call: a request of which nothing is written is not sent, and the answer to
/// one that was is dropped. ttrpc has no message to tell the peer.
pub(crate) struct Exchange {
    pub(crate) handle: Handle,
    /// What is asked for. A change counts until the first poll.
    pub(crate) outgoing: Outgoing,
    takes_messages: bool,
    started: Duration,
    deadline: Option<CallDeadline>,
    place: Place,
    own_clock: OwnClock,
    /// Behind the place in the order of drops: the call has ended when the hook is told.
    hooked: Option<Box<Hooked>>,
}

/// Where a call is.
#[derive(Clone, Copy)]
enum Place {
    Begin,
    /// Waits for room with this ticket. No stream id exists yet.
    Room(u64),
    Stream(u32),
    /// The call has ended, or its stream is another's to end.
    Done,
}

impl Exchange {
    /// Yields the envelope of the response.
    pub(crate) fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, Error>> {
        let id = ready!(self.poll_sent(cx))?;
        let shared = self.handle.shared();
        let poll = |state: &mut State<Calls>, effects: &mut _| {
            state.poll_response(id, cx.waker(), effects)
        };
        let result = ready!(shared.with(poll));
        let result = shared.with_process(result);
        self.place = Place::Done;
        Poll::Ready(result)
    }

    /// Yields the stream as soon as its request is queued.
    pub(crate) fn poll_opened(&mut self, cx: &mut Context<'_>) -> Poll<Result<StreamGuard, Error>> {
        let sent = ready!(self.poll_sent(cx));
        let id = sent.inspect_err(|error| self.end(Outcome::Failed(error)))?;
        self.place = Place::Done;
        Poll::Ready(Ok(StreamGuard::new(
            Arc::clone(self.handle.shared()),
            id,
            self.deadline.clone(),
            self.hooked.take(),
        )))
    }

    /// Tells the hook how the call has ended.
    pub(crate) fn end(&mut self, outcome: Outcome<'_>) {
        if let Some(hooked) = self.hooked.take() {
            hooked.end(outcome);
        }
    }

    /// Sends the request, waiting for room. Yields the id of its stream.
    fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<Result<u32, Error>> {
        if let Place::Begin = self.place {
            self.begin(cx)?;
        }
        self.own_clock.poll(cx, self.handle.shared());
        match self.place {
            Place::Stream(id) => Poll::Ready(Ok(id)),
            Place::Room(ticket) => self.poll_promoted(cx, ticket),
            // Polled after its end, which a future need not answer.
            Place::Begin | Place::Done => Poll::Pending,
        }
    }

    fn begin(&mut self, cx: &Context<'_>) -> Result<(), Error> {
        let Self {
            handle, outgoing, ..
        } = self;
        let (shared, settings) = (handle.shared(), handle.settings());
        self.started = shared.now();
        self.place = Place::Done;
        if let Some(hook) = &settings.hook {
            self.hooked = outgoing.call_hook(hook, shared.clock())?;
        }
        let timeout = outgoing.timeout;
        self.deadline =
            timeout.map(|timeout| CallDeadline::new(self.started, timeout, &settings.keepalive));
        let call = Opening {
            started: self.started,
            timeout,
            deadline: self.deadline.clone(),
            flags: outgoing.flags,
            takes_messages: self.takes_messages,
        };
        // Most calls find room, and need the lock once: a frame for which there is none stays here.
        let frame = outgoing.encode(timeout)?;
        let key = shared
            .with(|state, effects| state.open(self.started, &call, frame, cx.waker(), effects))?;
        self.place = match key {
            Key::Stream(id) => Place::Stream(id),
            Key::Ticket(ticket) | Key::Probe(ticket) => Place::Room(ticket),
        };
        self.own_clock = OwnClock::start(shared, self.deadline.as_ref());
        Ok(())
    }

    /// Sends the call that waits with this ticket, if it is its turn.
    fn poll_promoted(&mut self, cx: &Context<'_>, ticket: u64) -> Poll<Result<u32, Error>> {
        let shared = self.handle.shared();
        let room = |state: &mut State<Calls>, effects: &mut _| {
            state.poll_room_for_call(ticket, cx.waker(), effects)
        };
        shared.with_process(ready!(shared.with(room)))?;
        let now = shared.now();
        let waited = now.saturating_sub(self.started);
        let timeout = self.outgoing.timeout;
        let left = timeout.map(|timeout| timeout.saturating_sub(waited));
        let frame = self.outgoing.encode(left)?;
        let id =
            shared.with(|state, effects| state.promote(now, ticket, frame, cx.waker(), effects))?;
        self.place = Place::Stream(id);
        Poll::Ready(Ok(id))
    }

    /// The call is over, or nobody waits for it any more.
    fn leave(&mut self) {
        let shared = self.handle.shared();
        match mem::replace(&mut self.place, Place::Done) {
            Place::Room(ticket) => {
                let now = shared.now();
                shared.with(|state, effects| state.leave_waiting(now, ticket, effects));
            }
            Place::Stream(id) => {
                let now = shared.now();
                shared.with(|state, effects| state.drop_call(now, id, effects));
            }
            Place::Begin | Place::Done => {}
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.leave();
    }
}

/// At least one nanosecond: 0 would mean that there is no limit (RFC KA-33).
fn timeout_nano(left: Duration) -> i64 {
    i64::try_from(left.as_nanos()).unwrap_or(i64::MAX).max(1)
}
