//! The client's end of the desk: starting calls, and undoing what a dropped future began.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::call::{Call, Command, Key, Probe, ServerHalf, StreamEnd};
use super::inbox::{Inbox, Messages};
use super::open::{Guard, Open};
use super::sending::Outlet;
use super::{Desk, Shared, notify};
use crate::config::{ClientLimits, ClientSettings};
use crate::error::{ConnectionError, Error};
use crate::hook::{CallStart, Hooked, Outcome};
use crate::keepalive::CallDeadline;
use crate::liveness::Snapshot;
use crate::streams::PeerHalf;
use crate::wire::{Encode, Flags, PING_STREAM_ID, Raw, RequestHead, encode_request, set_stream_id};

/// One user's hold on a client's connection. The connection closes when all are gone.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    last: Arc<LastHandle>,
}

#[derive(Debug)]
struct LastHandle {
    shared: Arc<Shared<Command>>,
    settings: ClientSettings,
}

impl Drop for LastHandle {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// A request that is about to be made.
pub(crate) struct Outgoing<'a> {
    pub(crate) service: &'a str,
    pub(crate) method: &'a str,
    /// Whether messages follow, and how the stream begins.
    pub(crate) flags: Flags,
    pub(crate) metadata: Vec<(String, String)>,
    pub(crate) payload: Payload<'a>,
    pub(crate) timeout: Option<Duration>,
}

/// The message of a request.
#[derive(Clone, Copy)]
pub(crate) enum Payload<'a> {
    Message(&'a (dyn Encode + Sync)),
    Bytes(&'a [u8]),
}

impl Handle {
    pub(crate) fn new(shared: Arc<Shared<Command>>, settings: ClientSettings) -> Self {
        Self {
            last: Arc::new(LastHandle { shared, settings }),
        }
    }

    pub(crate) fn settings(&self) -> &ClientSettings {
        &self.last.settings
    }

    pub(crate) fn shared(&self) -> &Shared<Command> {
        &self.last.shared
    }

    /// What is known now. A call that its caller wrote at once may be on the desk only: the driver
    /// hears of it when it next runs, which may be never if the peer is frozen.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let shared = self.shared();
        let desk = shared.desk();
        let on_desk = desk.commands.iter().filter_map(Command::opened);
        shared.snapshot().with_calls(on_desk)
    }

    /// Nothing happens before the future is polled.
    pub(crate) fn exchange<'a>(&'a self, outgoing: Outgoing<'a>) -> Exchange<'a> {
        Exchange {
            opening: self.open(outgoing),
        }
    }

    /// Begins a stream. Nothing happens before the future is polled.
    pub(crate) fn open<'a, W: Wait>(&'a self, outgoing: Outgoing<'a>) -> Opening<'a, W> {
        Opening {
            handle: self,
            outgoing,
            started: Duration::ZERO,
            state: State::Begin,
            hooked: None,
        }
    }

    /// Asks for a PING and waits for its PONG.
    pub(crate) async fn probe(&self, budget: Duration) -> Result<Duration, Error> {
        let shared = self.shared();
        let now = shared.clock.now();
        let (reply, waiting) = oneshot::channel();
        let open = {
            let mut desk = shared.desk();
            if let Some(end) = &desk.end {
                return Err(end.clone().into());
            }
            let ticket = desk.room.ticket();
            let key = Key::Probe(ticket);
            desk.commands.push(Command::Probe {
                ticket,
                probe: Probe {
                    deadline: CallDeadline::new(now, budget, &self.settings().keepalive),
                    started: now,
                    budget,
                    reply,
                },
            });
            notify(desk);
            Open { shared, key }
        };
        let result = waiting.await;
        open.ended();
        result.unwrap_or_else(|_| Err(ConnectionError::Abandoned.into()))
    }
}

/// A call on its way: from its encoding to its answer.
///
/// Dropping it ends the call: a request of which nothing is written is not sent, and the answer to
/// one that was is dropped. ttrpc has no message to tell the peer.
pub(crate) struct Exchange<'a> {
    opening: Opening<'a, Reply>,
}

/// A stream on its way, until its request is queued.
pub(crate) struct Opening<'a, W> {
    handle: &'a Handle,
    outgoing: Outgoing<'a>,
    started: Duration,
    state: State<'a, W>,
    /// Behind the state in the order of drops: the call has ended when the hook is told.
    hooked: Option<Box<Hooked>>,
}

pub(crate) type Reply = oneshot::Receiver<Result<Bytes, Error>>;

enum State<'a, W> {
    Begin,
    /// Waits for room. No stream id exists yet and nothing is encoded.
    Waiting(u64, Open<'a>, W),
    Sent(Open<'a>, W),
    Done,
}

/// What a caller waits on.
pub(crate) trait Wait: Sized + Unpin {
    /// With the end that the driver has.
    fn new(limits: &ClientLimits) -> (ServerHalf, Self);

    /// Waits for what can come before the request is sent: an error.
    fn poll_unsent(&mut self, cx: &mut Context<'_>) -> Poll<Error>;
}

impl Wait for Reply {
    fn new(_limits: &ClientLimits) -> (ServerHalf, Self) {
        let (sender, reply) = oneshot::channel();
        (PeerHalf::Answer(sender), reply)
    }

    fn poll_unsent(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        match ready!(Pin::new(self).poll(cx)) {
            Ok(Err(error)) => Poll::Ready(error),
            // Nobody has answered what was not sent: the driver is gone.
            Ok(Ok(_)) | Err(_) => Poll::Ready(ConnectionError::Abandoned.into()),
        }
    }
}

impl Wait for Messages<StreamEnd> {
    fn new(limits: &ClientLimits) -> (ServerHalf, Self) {
        let (inbox, messages) = Inbox::new(limits.stream_bytes, None);
        (PeerHalf::Messages(inbox), messages)
    }

    fn poll_unsent(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        match ready!(self.poll_next(cx)) {
            Some(Err(StreamEnd::Failed(error))) => Poll::Ready(error),
            _ => Poll::Ready(ConnectionError::Abandoned.into()),
        }
    }
}

impl Exchange<'_> {
    /// Tells the hook how the call has ended.
    pub(crate) fn end(&mut self, outcome: Outcome<'_>) {
        if let Some(hooked) = self.opening.hooked.take() {
            hooked.end(outcome);
        }
    }
}

impl Future for Exchange<'_> {
    type Output = Result<Bytes, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let opening = &mut self.opening;
        ready!(opening.poll_sent(cx))?;
        match &mut opening.state {
            State::Sent(_, reply) => {
                let result = ready!(Pin::new(reply).poll(cx));
                if let State::Sent(open, _) = mem::replace(&mut opening.state, State::Done) {
                    open.ended();
                }
                Poll::Ready(result.unwrap_or_else(|_| Err(ConnectionError::Abandoned.into())))
            }
            // Polled after its end, which a future need not answer.
            _ => Poll::Pending,
        }
    }
}

impl<W: Wait> Future for Opening<'_, W> {
    /// The call, the half that messages are sent by, and what the caller waits on.
    type Output = Result<(Guard, Outlet<Command>, W), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Err(error) = ready!(self.poll_sent(cx)) {
            if let Some(hooked) = self.hooked.take() {
                hooked.end(Outcome::Failed(&error));
            }
            return Poll::Ready(Err(error));
        }
        let hooked = self.hooked.take();
        let LastHandle { shared, settings } = &*self.handle.last;
        match mem::replace(&mut self.state, State::Done) {
            State::Sent(open, waited_on) => {
                let Key::Stream(id) = open.key else {
                    return Poll::Pending;
                };
                open.ended();
                let guard = Guard::new(Arc::clone(shared), id, hooked);
                let outlet = Outlet::new(Arc::clone(shared), id, settings.limits.outbox_bytes);
                Poll::Ready(Ok((guard, outlet, waited_on)))
            }
            _ => Poll::Pending,
        }
    }
}

impl<'a, W: Wait> Opening<'a, W> {
    /// Sends the request, waiting for room.
    fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if let State::Begin = self.state {
            self.state = self.begin(cx)?;
        }
        if let State::Waiting(ticket, _, waited_on) = &mut self.state {
            // Its deadline, or the end of the connection, may come while it waits.
            if let Poll::Ready(error) = waited_on.poll_unsent(cx) {
                self.stop_waiting();
                return Poll::Ready(Err(error));
            }
            let ticket = *ticket;
            let Some(id) = self.promote(cx, ticket)? else {
                return Poll::Pending;
            };
            if let State::Waiting(_, mut open, waited_on) =
                mem::replace(&mut self.state, State::Done)
            {
                open.key = Key::Stream(id);
                self.state = State::Sent(open, waited_on);
            }
        }
        Poll::Ready(Ok(()))
    }

    fn begin(&mut self, cx: &Context<'_>) -> Result<State<'a, W>, Error> {
        let shared = self.handle.shared();
        self.started = shared.clock.now();
        let settings = self.handle.settings();
        if let Some(hook) = &settings.hook {
            let start = CallStart {
                service: self.outgoing.service,
                method: self.outgoing.method,
                metadata: &mut self.outgoing.metadata,
                remaining: self.outgoing.timeout,
            };
            self.hooked = hook.begin(start, shared.clock).map_err(Error::Refused)?;
        }
        let deadline = self
            .outgoing
            .timeout
            .map(|timeout| CallDeadline::new(self.started, timeout, &settings.keepalive));
        let (peer, waited_on) = W::new(&settings.limits);
        let call = Call {
            started: self.started,
            timeout: self.outgoing.timeout,
            deadline,
            flags: self.outgoing.flags,
            peer,
        };
        {
            let mut desk = shared.desk();
            if let Some(end) = &desk.end {
                return Err(end.clone().into());
            }
            if !desk.room.is_empty() || !self.has_room(&desk) {
                let ticket = desk.room.enter(cx.waker().clone());
                let key = Key::Ticket(ticket);
                desk.commands.push(Command::Wait { ticket, call });
                notify(desk);
                return Ok(State::Waiting(ticket, Open { shared, key }, waited_on));
            }
        }
        // Between the two locks others may find the same room: each thread that calls can
        // overshoot the bound by one frame.
        let p = call.deadline.as_ref().map(CallDeadline::ask_at);
        let frame = self.encode(self.outgoing.timeout)?;
        let id = self.send(frame, self.started, p, |id| Command::Open { id, call })?;
        let key = Key::Stream(id);
        Ok(State::Sent(Open { shared, key }, waited_on))
    }

    /// Sends the call that waits with this ticket, if it is its turn.
    fn promote(&mut self, cx: &Context<'_>, ticket: u64) -> Result<Option<u32>, Error> {
        let shared = self.handle.shared();
        let now = shared.clock.now();
        let left = self
            .outgoing
            .timeout
            .map(|timeout| timeout.saturating_sub(now.saturating_sub(self.started)));
        {
            let mut desk = shared.desk();
            if let Some(end) = &desk.end {
                return Err(end.clone().into());
            }
            // A call that has run out of time is not sent any more; the driver ends it.
            let expired = left == Some(Duration::ZERO);
            if expired || !desk.room.is_first(ticket) || !self.has_room(&desk) {
                desk.room.wait(ticket, cx.waker());
                return Ok(None);
            }
            desk.room.leave(ticket);
        }
        let frame = self.encode(left);
        let sent = frame
            .and_then(|frame| self.send(frame, now, None, |id| Command::Promote { ticket, id }));
        // There may be room for the next one too.
        let next = {
            let desk = shared.desk();
            self.has_room(&desk).then(|| desk.room.first()).flatten()
        };
        if let Some(waker) = next {
            waker.wake();
        }
        sent.map(Some)
    }

    fn has_room<C>(&self, desk: &Desk<C>) -> bool {
        let limits = &self.handle.settings().limits;
        desk.outbox.bytes() < limits.outbox_bytes && self.handle.shared().open() < limits.calls
    }

    fn encode(&self, left: Option<Duration>) -> Result<Vec<u8>, Error> {
        let head = RequestHead {
            service: self.outgoing.service,
            method: self.outgoing.method,
            timeout_nano: left.map_or(0, timeout_nano),
            metadata: &self.outgoing.metadata,
        };
        let flags = self.outgoing.flags;
        match self.outgoing.payload {
            Payload::Message(message) => encode_request(0, flags, &head, message),
            Payload::Bytes(bytes) => encode_request(0, flags, &head, &Raw(bytes)),
        }
        .map_err(Error::RequestTooLarge)
    }

    /// Takes the next id and queues the frame in one step: the order of ids is the order on the
    /// wire, whatever the threads do (RFC KA-30).
    fn send(
        &self,
        mut frame: Vec<u8>,
        now: Duration,
        p: Option<Duration>,
        command: impl FnOnce(u32) -> Command,
    ) -> Result<u32, Error> {
        let shared = self.handle.shared();
        let mut desk = shared.desk();
        if let Some(end) = &desk.end {
            return Err(end.clone().into());
        }
        let id = desk.next_id.ok_or(Error::IdsExhausted)?;
        // The last odd id belongs to PING (RFC KA-30).
        desk.next_id = id.checked_add(2).filter(|next| *next != PING_STREAM_ID);
        set_stream_id(&mut frame, id);
        let alone = shared.open() == 0 && self.outgoing.timeout != Some(Duration::ZERO);
        let direct = alone && desk.may_write();
        shared.claim();
        desk.commands.push(command(id));
        let opens = self.outgoing.flags.contains(Flags::REMOTE_OPEN);
        if direct {
            let newest = desk.outbox.push(id, frame);
            if opens {
                desk.outbox.open_half(id, newest);
            }
            // The driver learns of the call when it reads the answer, or when its timer fires.
            let timer_is_late = p.is_some_and(|p| desk.wakes_at.is_none_or(|at| at > p));
            shared.write(desk, now, timer_is_late);
        } else {
            let newest = desk.outbox.arrive(id, frame);
            if opens {
                desk.outbox.open_half(id, newest);
            }
            notify(desk);
        }
        Ok(id)
    }

    fn stop_waiting(&mut self) {
        if let State::Waiting(ticket, open, _) = mem::replace(&mut self.state, State::Done) {
            open.ended();
            let mut desk = self.handle.shared().desk();
            desk.room.leave(ticket);
            // It lets the next one in.
            notify(desk);
        }
    }
}

/// At least one nanosecond: 0 would mean that there is no limit (RFC KA-33).
fn timeout_nano(left: Duration) -> i64 {
    i64::try_from(left.as_nanos()).unwrap_or(i64::MAX).max(1)
}
