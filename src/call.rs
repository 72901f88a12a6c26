//! A call that is being prepared, and what several may have in common.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::connection::{Exchange, Handle, Outgoing};
use crate::error::Error;
use crate::hook::Outcome;
use crate::text::ShownPairs;
use crate::wire::{Decode, Encode, Flags, Response};

/// A unary call that is being prepared, and a future; awaiting it makes the call.
///
/// It owns all that it needs, so it can be spawned, kept, and polled beside others:
///
/// ```
/// # use protobuf::well_known_types::wrappers::StringValue;
/// # use std::time::Duration;
/// # use ttrpc_keepalive::{Client, Error};
/// # async fn example(client: &Client, request: &StringValue) -> Result<(), Box<dyn std::error::Error>> {
/// let limit = Duration::from_secs(2);
/// let task = tokio::spawn(client.call::<_, StringValue>("demo.Echo", "Say", request).timeout(limit));
/// let mut other = client.call::<_, StringValue>("demo.Echo", "Say", request).timeout(limit);
/// tokio::select! {
///     reply = &mut other => println!("{:?}", reply?),
///     reply = task => println!("{:?}", reply??),
/// }
/// # Ok(()) }
/// ```
///
/// # Cancel safety
///
/// Dropping it before it is awaited does nothing. Dropping it later ends the call here: a request
/// that has not begun to be written is not sent; the answer to one that has is dropped. The
/// connection goes on. Do not keep it without polling it: one that waits for room holds its place
/// in the queue, and those behind it wait too, until its time is over.
#[must_use = "a call is made when it is awaited"]
pub struct Call<R> {
    exchange: Exchange,
    response: PhantomData<fn() -> R>,
}

impl<R> Call<R> {
    pub(crate) fn new(
        handle: &Handle,
        (service, method): (&str, &str),
        message: &dyn Encode,
    ) -> Self {
        let timeout = handle.settings().timeout_of(service, method);
        let outgoing = Outgoing::new((service, method), Flags::NONE, message, timeout);
        Self {
            exchange: handle.exchange(outgoing, false),
            response: PhantomData,
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
        self.exchange.outgoing.timeout = Some(timeout);
        self
    }

    /// Lets the call take as long as it takes, whatever the
    /// [builder](crate::ClientBuilder::call_timeout) says: for one that is answered when something
    /// happens. Only [`Keepalive::every`](crate::Keepalive::every) then finds out that nobody will.
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
}

/// Time and metadata that several calls have in common, for [`Call::options`] and
/// [`StreamCall::options`](crate::StreamCall::options).
///
/// ```
/// # use protobuf::well_known_types::wrappers::StringValue;
/// # use std::time::Duration;
/// # use ttrpc_keepalive::{CallOptions, Client, Error};
/// # async fn example(client: &Client, request: &StringValue) -> Result<(), Error> {
/// let options = CallOptions::new()
///     .timeout(Duration::from_secs(2))
///     .metadata("tenant", "one");
/// let first: StringValue = client.call("demo.Echo", "Say", request).options(&options).await?;
/// let second: StringValue = client.call("demo.Echo", "Say", &first).options(&options).await?;
/// # let _ = second; Ok(()) }
/// ```
#[derive(Clone, Default)]
#[must_use = "options do nothing until a call has them"]
pub struct CallOptions {
    /// `Some(None)` lets a call take as long as it takes.
    timeout: Option<Option<Duration>>,
    metadata: Vec<(String, String)>,
}

impl CallOptions {
    /// Sets nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// As [`Call::timeout`], or [`StreamCall::timeout`](crate::StreamCall::timeout).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(Some(timeout));
        self
    }

    /// As [`Call::no_timeout`].
    pub fn no_timeout(mut self) -> Self {
        self.timeout = Some(None);
        self
    }

    /// Adds a pair of metadata, as [`Call::metadata`].
    pub fn metadata(mut self, key: &str, value: &str) -> Self {
        self.metadata.push((key.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn apply(&self, outgoing: &mut Outgoing) {
        if let Some(timeout) = self.timeout {
            outgoing.timeout = timeout;
        }
        for (key, value) in &self.metadata {
            outgoing.push_metadata(key, value);
        }
    }
}

impl fmt::Debug for CallOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallOptions")
            .field("timeout", &self.timeout)
            .field("metadata", &ShownPairs(&self.metadata))
            .finish()
    }
}

impl<R: Decode> Future for Call<R> {
    type Output = Result<R, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let result = ready!(self.poll_result(cx));
        self.exchange.end(outcome(&result));
        Poll::Ready(result)
    }
}

impl<R: Decode> Call<R> {
    fn poll_result(&mut self, cx: &mut Context<'_>) -> Poll<Result<R, Error>> {
        let envelope = ready!(self.exchange.poll_response(cx))?;
        // Here and not in the driver: decoding a large message must not hold up a PONG.
        let response = Response::from_envelope(envelope).map_err(Error::InvalidResponse)?;
        Poll::Ready(match response.status {
            None => R::decode_owned(response.payload).map_err(Error::InvalidMessage),
            Some(status) => {
                let evidence = self.exchange.handle.shared().snapshot().evidence();
                let timeout = self.exchange.outgoing.timeout;
                Err(Error::from_status(status, evidence, timeout))
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

impl<R> fmt::Debug for Call<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outgoing = &self.exchange.outgoing;
        let (service, method) = outgoing.names();
        f.debug_struct("Call")
            .field("service", &service)
            .field("method", &method)
            .field("timeout", &outgoing.timeout)
            .finish_non_exhaustive()
    }
}
