//! Streaming calls of a client: their preparation and their halves.

use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;

use crate::call::{CallOptions, outcome};
use crate::connection::{
    Calls, Exchange, Handle, Messages, NotSent, Outgoing, Outlet, OwnClock, Received, StreamEnd,
    StreamGuard,
};
use crate::error::Error;
use crate::hook::Outcome;
use crate::wire::{Decode, Encode, Flags, Raw, Response};

/// A streaming call that is being prepared, and a future; awaiting it opens the stream and yields its
/// halves `H`. It owns all that it needs, as a [`Call`](crate::Call) does.
///
/// It waits for room only, and not for the peer: a method that does not exist is told by the halves.
///
/// # Cancel safety
///
/// Dropping it before it is awaited does nothing. Dropping it later, before it has yielded, leaves
/// nothing behind: the request is not sent.
#[must_use = "a call is made when it is awaited"]
pub struct StreamCall<H> {
    exchange: Exchange,
    /// `None` when they have been yielded.
    halves: Option<fn(Half) -> H>,
}

impl<H> StreamCall<H> {
    /// How long the whole call may take, from waiting for room to the stream's end. The peer is
    /// told what is left of it.
    ///
    /// Without it a stream lasts until one side ends it or the connection ends, since the
    /// [default](crate::ClientBuilder::call_timeout) is for unary calls; only one that
    /// [names the method](crate::ClientBuilder::method_timeout) counts here. With no timeout and no
    /// [`Keepalive::every`](crate::Keepalive::every), **a peer that is frozen keeps it for ever**.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.exchange.outgoing.timeout = Some(timeout);
        self
    }

    /// Lets the stream last as long as it lasts, whatever the
    /// [builder](crate::ClientBuilder::method_timeout) says of the method.
    pub fn no_timeout(mut self) -> Self {
        self.exchange.outgoing.timeout = None;
        self
    }

    /// Adds a pair of metadata. A key may be added several times; it is sent in lower case.
    pub fn metadata(mut self, key: &str, value: &str) -> Self {
        self.exchange.outgoing.push_metadata(key, value);
        self
    }

    /// Sets what is set in these options, as if it were set here.
    pub fn options(mut self, options: &CallOptions) -> Self {
        options.apply(&mut self.exchange.outgoing);
        self
    }

    fn new(
        handle: &Handle,
        outgoing: Outgoing,
        takes_messages: bool,
        halves: fn(Half) -> H,
    ) -> Self {
        Self {
            exchange: handle.exchange(outgoing, takes_messages),
            halves: Some(halves),
        }
    }
}

impl<R> StreamCall<Receiver<R>> {
    pub(crate) fn server_stream(
        handle: &Handle,
        names: (&str, &str),
        request: &dyn Encode,
    ) -> Self {
        let outgoing = outgoing(handle, names, Flags::REMOTE_CLOSED, request);
        Self::new(handle, outgoing, true, Receiver::new)
    }
}

impl<Q, R> StreamCall<(Sender<Q>, Reply<R>)> {
    pub(crate) fn client_stream(handle: &Handle, names: (&str, &str)) -> Self {
        let outgoing = outgoing(handle, names, OPEN, &Raw(b""));
        Self::new(handle, outgoing, false, |half| {
            (Sender::new(&half), Reply::new(half))
        })
    }
}

impl<Q, R> StreamCall<(Sender<Q>, Receiver<R>)> {
    pub(crate) fn bidi_stream(handle: &Handle, names: (&str, &str)) -> Self {
        let outgoing = outgoing(handle, names, OPEN, &Raw(b""));
        Self::new(handle, outgoing, true, |half| {
            (Sender::new(&half), Receiver::new(half))
        })
    }
}

/// A request without a message, that messages follow (RFC KA-44). Without *no data* some servers
/// would take the absent message for an empty one.
const OPEN: Flags = Flags::REMOTE_OPEN.union(Flags::NO_DATA);

fn outgoing(handle: &Handle, names: (&str, &str), flags: Flags, request: &dyn Encode) -> Outgoing {
    let (service, method) = names;
    let timeout = handle.settings().stream_timeout_of(service, method);
    Outgoing::new(names, flags, request, timeout)
}

impl<H> Future for StreamCall<H> {
    type Output = Result<H, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let guard = Arc::new(ready!(self.exchange.poll_opened(cx))?);
        let half = Half {
            guard,
            timeout: self.exchange.outgoing.timeout,
            outbox_bytes: self.exchange.handle.settings().limits.outbox_bytes,
        };
        // Polled after its end, which a future need not answer.
        let Some(halves) = self.halves.take() else {
            return Poll::Pending;
        };
        Poll::Ready(Ok(halves(half)))
    }
}

impl<H> fmt::Debug for StreamCall<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outgoing = &self.exchange.outgoing;
        let (service, method) = outgoing.names();
        f.debug_struct("StreamCall")
            .field("service", &service)
            .field("method", &method)
            .field("timeout", &outgoing.timeout)
            .finish_non_exhaustive()
    }
}

/// What both halves of a call keep. With the last of them the call ends here.
#[derive(Clone, Debug)]
struct Half {
    guard: Arc<StreamGuard>,
    timeout: Option<Duration>,
    outbox_bytes: usize,
}

impl Half {
    /// Decoded here and not in the driver, where it would hold up a PONG.
    fn decode_response(&self, envelope: &Bytes) -> Result<Bytes, Error> {
        let response = Response::decode(envelope).map_err(Error::InvalidResponse)?;
        match response.status {
            None => Ok(response.payload),
            Some(status) => {
                let evidence = self.guard.shared().snapshot().evidence();
                Err(Error::from_status(status, evidence, self.timeout))
            }
        }
    }
}

/// The half of a streaming call by which requests `Q` are sent.
///
/// It may be moved to another task than the other half, and shared by several, in an [`Arc`]: each
/// message waits for those that were sent before it. **Dropping it ends the requests**, as
/// [`finish`](Self::finish) does: ttrpc has no message that says otherwise. A server that must tell
/// a caller that is done from one that gave up needs a message of its own for that.
pub struct Sender<Q> {
    outlet: Outlet<Calls>,
    requests: PhantomData<fn(&Q)>,
    /// Behind the outlet in the order of drops: the half-close goes out before the call ends.
    guard: Arc<StreamGuard>,
}

impl<Q> Sender<Q> {
    fn new(half: &Half) -> Self {
        Self {
            outlet: half.guard.outlet(half.outbox_bytes),
            requests: PhantomData,
            guard: Arc::clone(&half.guard),
        }
    }

    /// Queues a message to be written, after those that were sent before it. Waits while more than
    /// [`outbox_limit`](crate::ClientBuilder::outbox_limit) bytes of the connection are unwritten,
    /// and gives other tasks a turn every 16 KiB.
    ///
    /// It says that the message will be written if the connection lasts and the peer does not end the
    /// stream before, not that it was, and not that the peer has done something with it. Dropping both
    /// halves takes nothing back, unless the peer takes no bytes and the stream's request still waits;
    /// dropping the last [`Client`](crate::Client) does, and [`close`](crate::Client::close) does not.
    ///
    /// # Errors
    ///
    /// [`Error::RequestTooLarge`] if the message does not fit into a frame; it was not sent and the
    /// stream goes on. [`Error::StreamEnded`] if the stream is over, for which the other half has
    /// the reason: the peer may have replied early. The connection's end, if it has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready sends nothing; the stream goes on. Do not keep it
    /// without polling it: messages of a connection are let in in their order, and those of other
    /// streams wait behind it.
    pub async fn send(&self, message: &Q) -> Result<(), Error>
    where
        Q: Encode,
    {
        let Self { outlet, guard, .. } = self;
        let mut sending = pin!(outlet.send(message));
        // Most messages wait for nothing, and need no clock.
        let mut own_clock = None;
        let sent = poll_fn(|cx| {
            let sent = sending.as_mut().poll(cx);
            if sent.is_ready() {
                return sent;
            }
            let own_clock = own_clock.get_or_insert_with(|| guard.own_clock());
            own_clock.poll(cx, guard.shared());
            Poll::Pending
        });
        sent.await.map_err(|not_sent| match not_sent {
            NotSent::Oversized(oversized) => Error::RequestTooLarge(oversized),
            NotSent::Ended => Error::StreamEnded,
            NotSent::Connection(end) => Error::not_sent(end),
        })
    }

    /// Ends the requests: the peer is told that no message follows. Never waits.
    pub fn finish(self) {}
}

impl<Q> Drop for Sender<Q> {
    fn drop(&mut self) {
        self.outlet.half_close();
    }
}

impl<Q> fmt::Debug for Sender<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

/// The half of a streaming call by which responses are received: a stream of messages `R`.
///
/// Messages come in the order in which they were sent, none is lost, and what was received before
/// the stream failed comes before the error. After an error that ends the stream, and after its
/// plain end, there is `None`.
///
/// Messages that are not taken wait in memory, up to
/// [`stream_limit`](crate::ClientBuilder::stream_limit), and those of all streams up to
/// [`download_limit`](crate::ClientBuilder::download_limit): beyond it the stream fails, and
/// nothing else on the connection.
///
/// Dropping it drops what was received; the requests of a bidirectional call may go on. With both
/// halves gone the call has ended here: the peer is told that no request follows, which is all that
/// ttrpc can say, and what it still sends is dropped.
#[must_use = "messages wait in memory until they are taken"]
pub struct Receiver<R> {
    messages: Messages<Calls>,
    responses: PhantomData<fn() -> R>,
    half: Half,
    own_clock: OwnClock,
}

impl<R> Receiver<R> {
    fn new(half: Half) -> Self {
        Self {
            messages: half.guard.messages(),
            responses: PhantomData,
            own_clock: half.guard.own_clock(),
            half,
        }
    }

    /// The next message; `None` when there will be none.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidMessage`] is about one message, and others may follow. Every other error is
    /// the stream's end: the peer's status, a deadline with its verdict, an overflow, the end of
    /// the connection.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no message.
    pub async fn next(&mut self) -> Option<Result<R, Error>>
    where
        R: Decode,
    {
        poll_fn(|cx| self.poll_message(cx)).await
    }

    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<R, Error>>>
    where
        R: Decode,
    {
        self.own_clock.poll(cx, self.half.guard.shared());
        let message = match ready!(self.messages.poll_next(cx)) {
            None => Err(None),
            Some(Ok(message)) => Ok(message),
            Some(Err(StreamEnd::Failed(error))) => {
                let told = self.half.guard.shared().with_process::<()>(Err(*error));
                Err(told.err())
            }
            Some(Err(StreamEnd::Response(envelope))) => {
                match self.half.decode_response(&envelope) {
                    // A success that has no message is the plain end.
                    Ok(payload) if payload.is_empty() => Err(None),
                    Ok(payload) => Ok(Received::Own(payload)),
                    Err(error) => Err(Some(error)),
                }
            }
        };
        Poll::Ready(match message {
            Ok(message) => Some(message.decode().map_err(Error::InvalidMessage)),
            Err(end) => {
                let failed = end.as_ref().map(Outcome::Failed);
                self.half.guard.end(failed.unwrap_or(Outcome::Answered));
                end.map(Err)
            }
        })
    }
}

impl<R: Decode> Stream for Receiver<R> {
    type Item = Result<R, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_message(cx)
    }
}

impl<R> fmt::Debug for Receiver<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}

/// The response of a call with many requests: a future. It may come before the requests have ended.
///
/// # Cancel safety
///
/// Dropping it drops the response; requests may go on. With both halves gone the call has ended
/// here.
#[must_use = "a future does nothing unless it is awaited"]
pub struct Reply<R> {
    response: PhantomData<fn() -> R>,
    half: Half,
    own_clock: OwnClock,
}

impl<R> Reply<R> {
    fn new(half: Half) -> Self {
        Self {
            response: PhantomData,
            own_clock: half.guard.own_clock(),
            half,
        }
    }
}

impl<R: Decode> Future for Reply<R> {
    type Output = Result<R, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        this.own_clock.poll(cx, this.half.guard.shared());
        let envelope = ready!(this.half.guard.poll_response(cx));
        let payload = envelope.and_then(|envelope| self.half.decode_response(&envelope));
        let result =
            payload.and_then(|payload| R::decode_owned(payload).map_err(Error::InvalidMessage));
        self.half.guard.end(outcome(&result));
        Poll::Ready(result)
    }
}

impl<R> fmt::Debug for Reply<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").finish_non_exhaustive()
    }
}
