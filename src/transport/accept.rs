//! What a server takes connections from.

use std::io;
use std::task::{Context, Poll};

use tokio::sync::mpsc;

use super::IntoTransport;

/// Yields connections to [`Server::serve`](crate::Server::serve).
///
/// [`Listener`](super::Listener) is ready-made, and so is the receiver of a channel, which suits
/// everything that makes connections in a task of its own: the channels of a multiplexer, or a TLS
/// acceptor, whose handshakes must not hold up each other.
///
/// ```
/// # use ttrpc_keepalive::{ByteStream, Client, Server};
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// # let server = Server::builder().build().unwrap();
/// let (connected, incoming) = tokio::sync::mpsc::channel(16);
/// let serving = tokio::spawn(async move { server.serve(incoming).await });
///
/// // A task that has connected a stream of any kind gives it away:
/// let (here, there) = tokio::io::duplex(4096);
/// connected.send(ByteStream::new(there)).await.unwrap();
/// # let client = Client::builder().attach(here).unwrap();
///
/// drop(connected); // no more of them: serving ends with the last connection
/// # drop(client);
/// serving.await.unwrap();
/// # }
/// ```
pub trait Accept: Send {
    /// What it yields.
    type Stream: IntoTransport + Send + 'static;

    /// The next connection. `None` if there will be no more: serving then ends with the last of
    /// those that are open. It is not asked again after that, nor while the server has as many
    /// connections as it may have.
    ///
    /// # Errors
    ///
    /// The server logs an error, waits a little and asks again: a connection that failed before it
    /// was accepted, or descriptors that are used up, end nothing.
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Self::Stream>>>;
}

impl<A: Accept + ?Sized> Accept for Box<A> {
    type Stream = A::Stream;

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Self::Stream>>> {
        (**self).poll_accept(cx)
    }
}

impl<S: IntoTransport + Send + 'static> Accept for mpsc::Receiver<S> {
    type Stream = S;

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<S>>> {
        self.poll_recv(cx).map(|stream| stream.map(Ok))
    }
}
