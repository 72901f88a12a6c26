//! Streams of messages.

use std::fmt::{self, Display};
use std::marker::PhantomData;

use ttrpc_keepalive as native;

use super::client::Client;
use super::stream::{StreamInner, StreamReceiver, StreamSender};
use crate::error::{Error, Result};
use crate::proto::Codec;

/// Gives a typed half its name, its documentation and its bounds.
macro_rules! half {
    ($(#[$doc:meta])+ $name:ident<$($message:ident),+> { $($field:ident: $type:ty),+ }) => {
        $(#[$doc])+
        pub struct $name<$($message),+> {
            $($field: $type,)+
            messages: PhantomData<fn($($message),+)>,
        }

        impl<$($message),+> fmt::Debug for $name<$($message),+> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    };
}

half! {
    /// A client's stream of many requests `Q` and many responses `P`.
    ClientStream<Q, P> { sender: CSSender<Q>, receiver: CSReceiver<P> }
}
half! {
    /// What sends the requests of a [`ClientStream`].
    CSSender<Q> { inner: StreamSender }
}
half! {
    /// What receives the responses of a [`ClientStream`].
    CSReceiver<P> { inner: StreamReceiver }
}
half! {
    /// A client's stream of many requests `Q` and one response `P`.
    ClientStreamSender<Q, P> { inner: StreamInner }
}
half! {
    /// A client's stream of many responses `P`. It keeps the connection.
    ClientStreamReceiver<P> { inner: StreamReceiver, _client: native::Client }
}
half! {
    /// A server's stream of many responses `P` and many requests `Q`.
    ServerStream<P, Q> { sender: SSSender<P>, receiver: SSReceiver<Q> }
}
half! {
    /// What sends the responses of a [`ServerStream`].
    SSSender<P> { inner: StreamSender }
}
half! {
    /// What receives the requests of a [`ServerStream`].
    SSReceiver<Q> { inner: StreamReceiver }
}
half! {
    /// A server's stream of many responses `P`.
    ServerStreamSender<P> { inner: StreamSender }
}
half! {
    /// A server's stream of many requests `Q`.
    ServerStreamReceiver<Q> { inner: StreamReceiver }
}

impl<Q> Clone for CSSender<Q> {
    fn clone(&self) -> Self {
        Self::of(self.inner.clone())
    }
}

impl<P> Clone for SSSender<P> {
    fn clone(&self) -> Self {
        Self::of(self.inner.clone())
    }
}

impl<Q> CSSender<Q> {
    fn of(inner: StreamSender) -> Self {
        Self {
            inner,
            messages: PhantomData,
        }
    }
}

impl<P> SSSender<P> {
    fn of(inner: StreamSender) -> Self {
        Self {
            inner,
            messages: PhantomData,
        }
    }
}

/// A message as bytes.
fn encode<M: Codec>(message: &M) -> Result<Vec<u8>>
where
    M::E: Display,
{
    let encoded = message.encode();
    encoded.map_err(crate::err_to_others!(e, "Encode message failed."))
}

fn decode<M: Codec>(message: Vec<u8>) -> Result<M>
where
    M::E: Display,
{
    M::decode(message).map_err(crate::err_to_others!(e, "Decode message failed."))
}

/// `None` at the plain end.
async fn next<M: Codec>(receiver: &mut StreamReceiver) -> Result<Option<M>>
where
    M::E: Display,
{
    match receiver.recv().await {
        Ok(message) => decode(message).map(Some),
        Err(Error::Eof) => Ok(None),
        Err(failed) => Err(failed),
    }
}

impl<Q: Codec, P: Codec> ClientStream<Q, P>
where
    Q::E: Display,
    P::E: Display,
{
    /// Gives a stream its types.
    pub fn new(inner: StreamInner) -> Self {
        let (sender, receiver) = inner.split();
        Self {
            sender: CSSender::of(sender),
            receiver: CSReceiver {
                inner: receiver,
                messages: PhantomData,
            },
            messages: PhantomData,
        }
    }

    /// Its halves.
    pub fn split(self) -> (CSSender<Q>, CSReceiver<P>) {
        (self.sender, self.receiver)
    }

    /// As [`CSSender::send`].
    ///
    /// # Errors
    ///
    /// The same.
    pub async fn send(&self, req: &Q) -> Result<()> {
        self.sender.send(req).await
    }

    /// As [`CSSender::close_send`].
    ///
    /// # Errors
    ///
    /// The same.
    pub async fn close_send(&self) -> Result<()> {
        self.sender.close_send().await
    }

    /// As [`CSReceiver::recv`].
    ///
    /// # Errors
    ///
    /// The same.
    pub async fn recv(&mut self) -> Result<P> {
        self.receiver.recv().await
    }
}

impl<Q: Codec> CSSender<Q>
where
    Q::E: Display,
{
    /// Sends a request.
    ///
    /// # Errors
    ///
    /// As [`StreamSender::send`].
    pub async fn send(&self, req: &Q) -> Result<()> {
        self.inner.send(encode(req)?).await
    }

    /// Says that no request follows.
    ///
    /// # Errors
    ///
    /// `LocalClosed` if that was said.
    pub async fn close_send(&self) -> Result<()> {
        self.inner.close_send().await
    }
}

impl<P: Codec> CSReceiver<P>
where
    P::E: Display,
{
    /// The next response.
    ///
    /// # Errors
    ///
    /// As [`StreamReceiver::recv`], `Eof` at the end among them.
    pub async fn recv(&mut self) -> Result<P> {
        decode(self.inner.recv().await?)
    }
}

impl<Q: Codec, P: Codec> ClientStreamSender<Q, P>
where
    Q::E: Display,
    P::E: Display,
{
    /// Gives a stream its types.
    pub fn new(inner: StreamInner) -> Self {
        Self {
            inner,
            messages: PhantomData,
        }
    }

    /// Sends a request.
    ///
    /// # Errors
    ///
    /// As [`StreamSender::send`].
    pub async fn send(&self, req: &Q) -> Result<()> {
        self.inner.send(encode(req)?).await
    }

    /// Says that no request follows, and waits for the response.
    ///
    /// # Errors
    ///
    /// `LocalClosed` if it was called before; else as [`StreamReceiver::recv`].
    pub async fn close_and_recv(&mut self) -> Result<P> {
        self.inner.close_send().await?;
        decode(self.inner.recv().await?)
    }
}

impl<P: Codec> ClientStreamReceiver<P>
where
    P::E: Display,
{
    /// Gives a stream its type.
    pub fn new(inner: StreamInner, client: Client) -> Self {
        Self::with_native(inner, client.as_ref())
    }

    #[doc(hidden)]
    pub fn with_native(inner: StreamInner, client: &native::Client) -> Self {
        Self {
            inner: inner.split().1,
            _client: client.clone(),
            messages: PhantomData,
        }
    }

    /// The next response; `None` at the end.
    ///
    /// # Errors
    ///
    /// As [`StreamReceiver::recv`].
    pub async fn recv(&mut self) -> Result<Option<P>> {
        next(&mut self.inner).await
    }
}

impl<P: Codec, Q: Codec> ServerStream<P, Q>
where
    P::E: Display,
    Q::E: Display,
{
    /// Gives a stream its types.
    pub fn new(inner: StreamInner) -> Self {
        let (sender, receiver) = inner.split();
        Self {
            sender: SSSender::of(sender),
            receiver: SSReceiver {
                inner: receiver,
                messages: PhantomData,
            },
            messages: PhantomData,
        }
    }

    /// Its halves.
    pub fn split(self) -> (SSSender<P>, SSReceiver<Q>) {
        (self.sender, self.receiver)
    }

    /// As [`SSSender::send`].
    ///
    /// # Errors
    ///
    /// The same.
    pub async fn send(&self, resp: &P) -> Result<()> {
        self.sender.send(resp).await
    }

    /// As [`SSReceiver::recv`].
    ///
    /// # Errors
    ///
    /// The same.
    pub async fn recv(&mut self) -> Result<Option<Q>> {
        self.receiver.recv().await
    }
}

impl<P: Codec> SSSender<P>
where
    P::E: Display,
{
    /// Sends a response.
    ///
    /// # Errors
    ///
    /// As [`StreamSender::send`].
    pub async fn send(&self, resp: &P) -> Result<()> {
        self.inner.send(encode(resp)?).await
    }
}

impl<Q: Codec> SSReceiver<Q>
where
    Q::E: Display,
{
    /// The next request; `None` at the end.
    ///
    /// # Errors
    ///
    /// As [`StreamReceiver::recv`].
    pub async fn recv(&mut self) -> Result<Option<Q>> {
        next(&mut self.inner).await
    }
}

impl<P: Codec> ServerStreamSender<P>
where
    P::E: Display,
{
    /// Gives a stream its type.
    pub fn new(inner: StreamInner) -> Self {
        Self {
            inner: inner.split().0,
            messages: PhantomData,
        }
    }

    /// Sends a response.
    ///
    /// # Errors
    ///
    /// As [`StreamSender::send`].
    pub async fn send(&self, resp: &P) -> Result<()> {
        self.inner.send(encode(resp)?).await
    }
}

impl<Q: Codec> ServerStreamReceiver<Q>
where
    Q::E: Display,
{
    /// Gives a stream its type.
    pub fn new(inner: StreamInner) -> Self {
        Self {
            inner: inner.split().1,
            messages: PhantomData,
        }
    }

    /// The next request; `None` at the end.
    ///
    /// # Errors
    ///
    /// As [`StreamReceiver::recv`].
    pub async fn recv(&mut self) -> Result<Option<Q>> {
        next(&mut self.inner).await
    }
}
