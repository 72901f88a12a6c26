//! Streaming calls of a server: what their handlers receive and send by.

use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, ready};

use futures_core::Stream;

use super::refusal::{answered, connection_ended, invalid, response_too_large};
use super::requests::OpenRequests;
use crate::connection::{Messages, NotSent, Outlet};
use crate::status::Status;
use crate::wire::{Decode, Encode};

/// The requests of a call that has many: a stream of messages `Q`.
///
/// They come in the order in which they were sent, and `None` when the caller has said that none
/// follows; that it gave up looks the same, since ttrpc has no message for it. What was received
/// before the stream failed comes before the error. Errors are statuses, so that a handler can end
/// by them with `?`.
///
/// Messages that are not taken wait in memory, up to
/// [`stream_limit`](crate::ServerBuilder::stream_limit), and up to
/// [`upload_limit`](crate::ServerBuilder::upload_limit) with those of other calls: beyond it the
/// call is answered RESOURCE_EXHAUSTED, and what the handler answers later is dropped.
///
/// It may be moved to another task. Dropping it drops what was received and what still comes; the
/// call goes on.
#[must_use = "messages wait in memory until they are taken"]
pub struct Requests<Q> {
    messages: Messages<OpenRequests>,
    requests: PhantomData<fn() -> Q>,
}

impl<Q> Requests<Q> {
    pub(super) fn new(messages: Messages<OpenRequests>) -> Self {
        Self {
            messages,
            requests: PhantomData,
        }
    }

    /// The next message; `None` when there will be none.
    ///
    /// # Errors
    ///
    /// INVALID_ARGUMENT for a message that cannot be decoded; others may follow it. RESOURCE_EXHAUSTED
    /// if messages came faster than they were taken, or one was too large: the caller has been
    /// told. UNAVAILABLE if the connection has ended, or a [shutdown](crate::Server::shutdown) waits
    /// for the stream. CANCELLED if the call has been answered.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no message.
    pub async fn next(&mut self) -> Option<Result<Q, Status>>
    where
        Q: Decode,
    {
        poll_fn(|cx| self.poll_message(cx)).await
    }

    fn poll_message(&mut self, cx: &TaskContext<'_>) -> Poll<Option<Result<Q, Status>>>
    where
        Q: Decode,
    {
        let message = ready!(self.messages.poll_next(cx));
        Poll::Ready(message.map(|message| message?.decode().map_err(|error| invalid(&*error))))
    }
}

impl<Q: Decode> Stream for Requests<Q> {
    type Item = Result<Q, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        self.poll_message(cx)
    }
}

impl<Q> fmt::Debug for Requests<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").finish_non_exhaustive()
    }
}

/// Sends the responses `R` of a call that has many.
///
/// The stream ends with the handler: plainly if it returns `Ok`, with its status otherwise. Dropping
/// this ends nothing. It may be moved to another task, where it fails when the handler has ended, and
/// shared by several, in an [`Arc`](std::sync::Arc): each message waits for those that were sent
/// before it.
pub struct Responses<R> {
    outlet: Outlet<OpenRequests>,
    responses: PhantomData<fn(&R)>,
}

impl<R> Responses<R> {
    pub(super) fn new(outlet: Outlet<OpenRequests>) -> Self {
        Self {
            outlet,
            responses: PhantomData,
        }
    }

    /// Queues a message to be written, after those that were sent before it. Waits while more than
    /// [`owed_limit`](crate::ServerBuilder::owed_limit) bytes of the connection are unwritten,
    /// and gives other tasks a turn every 16 KiB.
    ///
    /// It says that the message will be written if the connection lasts, not that it was, and not
    /// that the caller has done something with it.
    ///
    /// # Errors
    ///
    /// RESOURCE_EXHAUSTED if the message does not fit into a frame; it was not sent and the stream
    /// goes on. CANCELLED if the call has been answered. UNAVAILABLE if the connection has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready sends nothing; the stream goes on. Do not keep it
    /// without polling it: messages of a connection are let in in their order, and those of other
    /// streams wait behind it.
    pub async fn send(&self, message: &R) -> Result<(), Status>
    where
        R: Encode,
    {
        let sent = self.outlet.send(message).await;
        sent.map_err(|not_sent| match not_sent {
            NotSent::Oversized(oversized) => response_too_large(oversized),
            NotSent::Ended => answered(),
            NotSent::Connection(end) => connection_ended(&end),
        })
    }
}

impl<R> fmt::Debug for Responses<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responses").finish_non_exhaustive()
    }
}
