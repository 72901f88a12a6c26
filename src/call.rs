//! A call that is being prepared.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::codec::Decode;
use crate::connection::{Exchange, Handle, Outgoing, Payload, Received};
use crate::error::Error;
use crate::hook::Outcome;
use crate::wire::{Flags, Response};

/// A unary call that is being prepared; awaiting it makes it.
///
/// # Cancel safety
///
/// Dropping it before it is awaited does nothing. Dropping it later ends the call here: a request
/// that has not begun to be written is not sent; the answer to one that has is dropped. The
/// connection goes on. Do not keep it without polling it: one that waits for room holds its place
/// in the queue, and those behind it wait too.
#[must_use = "a call is made when it is awaited"]
pub struct Call<'a, R> {
    handle: &'a Handle,
    outgoing: Outgoing<'a>,
    decode: Decode<R>,
}

impl<'a, R> Call<'a, R> {
    pub(crate) fn new(
        handle: &'a Handle,
        service: &'a str,
        method: &'a str,
        payload: Payload<'a>,
        decode: Decode<R>,
    ) -> Self {
        Self {
            handle,
            outgoing: Outgoing {
                service,
                method,
                flags: Flags::NONE,
                metadata: Vec::new(),
                payload,
                timeout: handle.settings().timeout_of(service, method),
            },
            decode,
        }
    }

    /// How long the call may take: waiting for room, writing and waiting for the answer. The peer
    /// is told what is left of it. Counted from when the call is first awaited, so that a call
    /// which is made anew has its whole time again.
    ///
    /// Overrides what the [builder](crate::ClientBuilder::call_timeout) says. Without either a call
    /// waits until it is answered or the connection ends: with no timeout and no
    /// [`Keepalive::every`](crate::Keepalive::every), **a peer that is frozen keeps it for ever**.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.outgoing.timeout = Some(timeout);
        self
    }

    /// Lets the call take as long as it takes, whatever the
    /// [builder](crate::ClientBuilder::call_timeout) says: for one that is answered when something
    /// happens. Only [`Keepalive::every`](crate::Keepalive::every) then finds out that nobody will.
    pub fn no_timeout(mut self) -> Self {
        self.outgoing.timeout = None;
        self
    }

    /// Adds a pair of metadata. A key may be added several times; it is sent in lower case.
    pub fn metadata(mut self, key: &str, value: &str) -> Self {
        let pair = (key.to_ascii_lowercase(), value.to_owned());
        self.outgoing.metadata.push(pair);
        self
    }
}

impl<'a, R> IntoFuture for Call<'a, R> {
    type Output = Result<R, Error>;
    type IntoFuture = CallFuture<'a, R>;

    fn into_future(self) -> CallFuture<'a, R> {
        CallFuture {
            handle: self.handle,
            timeout: self.outgoing.timeout,
            decode: self.decode,
            exchange: self.handle.exchange(self.outgoing),
        }
    }
}

/// A call that is being made; see [`Call`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct CallFuture<'a, R> {
    handle: &'a Handle,
    timeout: Option<Duration>,
    decode: Decode<R>,
    exchange: Exchange<'a>,
}

impl<R> Future for CallFuture<'_, R> {
    type Output = Result<R, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let result = ready!(self.poll_result(cx));
        self.exchange.end(outcome(&result));
        Poll::Ready(result)
    }
}

impl<R> CallFuture<'_, R> {
    fn poll_result(&mut self, cx: &mut Context<'_>) -> Poll<Result<R, Error>> {
        let envelope = ready!(Pin::new(&mut self.exchange).poll(cx))?;
        // Here and not in the driver: decoding a large message must not hold up a PONG.
        let response = Response::from_envelope(envelope).map_err(Error::InvalidResponse)?;
        Poll::Ready(match response.status {
            None => (self.decode)(Received::Own(response.payload)).map_err(Error::InvalidMessage),
            Some(status) => {
                let evidence = self.handle.shared().snapshot().evidence();
                Err(Error::from_status(status, evidence, self.timeout))
            }
        })
    }
}

/// A result as a hook sees it.
pub(crate) fn outcome<R>(result: &Result<R, Error>) -> Outcome<'_> {
    match result {
        Ok(_) => Outcome::Answered,
        Err(error) => Outcome::Failed(error),
    }
}

impl<R> fmt::Debug for Call<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("service", &self.outgoing.service)
            .field("method", &self.outgoing.method)
            .field("timeout", &self.outgoing.timeout)
            .finish_non_exhaustive()
    }
}

impl<R> fmt::Debug for CallFuture<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallFuture")
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
