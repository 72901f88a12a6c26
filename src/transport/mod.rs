//! What yields byte streams: unix sockets, TCP, vsock, and any stream in memory.
//!
//! The invariant: a transport moves bytes and answers what the kernel holds; it knows nothing of
//! frames, and none waits.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::BytesMut;

mod accept;
mod address;
mod byte_stream;
mod credentials;
mod descriptor;
mod listener;
mod socket;
mod socket_file;
#[cfg(feature = "vsock")]
mod vsock;

pub use accept::Accept;
pub(crate) use address::Address;
pub use byte_stream::ByteStream;
pub use credentials::PeerCredentials;
pub use listener::{Listener, ListenerBuilder};
pub use socket::Socket;

/// What a [`Transport::poll_look`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Look {
    /// The kernel holds no unread byte.
    Empty,
    /// It holds some, or the end of the stream, or an error: a read will tell, if not the next then
    /// one a few turns of the scheduler later. A transport whose reads go on finding nothing is
    /// believed neither way: its peer is not convicted by that look, and nothing waits for it.
    Readable,
    /// This transport cannot ask. The driver then gives the scheduler one turn and reads again.
    Blind,
}

/// A byte stream that carries a connection.
///
/// Sockets and [`ByteStream`] are ready-made; implement it for a stream that sits on a descriptor
/// of its own kind, or for one side of a multiplexer, whose look is answered by the owner of the
/// descriptor. All methods are called by one task, the connection's driver.
///
/// There is no way to end one direction alone: a half-close would lose calls in flight (RFC KA-41).
pub trait Transport: Send + 'static {
    /// Appends at most `limit` bytes to `buffer`, which has room for them.
    ///
    /// `Ok(0)` is the end of the stream.
    ///
    /// # Errors
    ///
    /// Any error ends the connection.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
        limit: usize,
    ) -> Poll<io::Result<usize>>;

    /// Writes from the front of `slices`, as much as is taken without waiting.
    ///
    /// After `Pending` nothing has been taken, and the next call may offer other bytes in front.
    ///
    /// # Errors
    ///
    /// An error stops writing; what has been received is still delivered.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>>;

    /// Passes on what the stream itself holds back. Sockets hold nothing back.
    ///
    /// # Errors
    ///
    /// As for [`Transport::poll_write`].
    fn poll_flush(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Asks whether the kernel holds unread bytes: the descriptor itself, not a cache of its
    /// readiness, which says *empty* for bytes that are there.
    ///
    /// It is asked after a read found nothing, before silence is held against the peer.
    fn poll_look(&mut self, _cx: &mut Context<'_>) -> Poll<Look> {
        Poll::Ready(Look::Blind)
    }

    /// Offers the kernel bytes that it refused before, past every cache. `None` if this transport
    /// cannot; then the last [`Transport::poll_write`] is believed.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if nothing was taken. The driver's next read or write must meet any other again:
    /// it ends nothing by itself, and is no sign of life.
    fn try_send(&mut self, _bytes: &[u8]) -> Option<io::Result<usize>> {
        None
    }

    /// A way to write from the task of a caller, without a hop to the driver's. `None` if there
    /// is none.
    fn shortcut(&self) -> Option<Arc<dyn Shortcut>> {
        None
    }

    /// Who is at the other end, if the operating system tells. It is asked once, when the connection
    /// begins.
    fn peer_credentials(&self) -> Option<PeerCredentials> {
        None
    }

    /// Moves to the runtime that is entered: registers there what is registered with a reactor. It
    /// is called at most once, before anything else.
    ///
    /// # Errors
    ///
    /// Any error ends the connection.
    fn enter(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Gives up at once: no flush, no farewell. The transport is dropped next.
    fn abort(&mut self) {}
}

/// Writes to a connection from outside its driver's task.
pub trait Shortcut: Send + Sync + 'static {
    /// Writes without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if nothing is taken now. Any other is dropped, so the driver's next read or write
    /// must meet it again: an error that the operating system tells only once has to be kept.
    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize>;
}

impl std::fmt::Debug for dyn Shortcut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shortcut")
    }
}

impl<T: Transport + ?Sized> Transport for Box<T> {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        (**self).poll_read(cx, buffer, limit)
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        (**self).poll_write(cx, slices)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        (**self).poll_flush(cx)
    }

    fn poll_look(&mut self, cx: &mut Context<'_>) -> Poll<Look> {
        (**self).poll_look(cx)
    }

    fn try_send(&mut self, bytes: &[u8]) -> Option<io::Result<usize>> {
        (**self).try_send(bytes)
    }

    fn shortcut(&self) -> Option<Arc<dyn Shortcut>> {
        (**self).shortcut()
    }

    fn peer_credentials(&self) -> Option<PeerCredentials> {
        (**self).peer_credentials()
    }

    fn enter(&mut self) -> io::Result<()> {
        (**self).enter()
    }

    fn abort(&mut self) {
        (**self).abort();
    }
}

/// What can be made a [`Transport`]: tokio's sockets, its in-memory stream, and every transport.
pub trait IntoTransport {
    /// What it becomes.
    type Transport: Transport;

    /// Makes it a transport.
    fn into_transport(self) -> Self::Transport;
}

impl<T: Transport> IntoTransport for T {
    type Transport = T;

    fn into_transport(self) -> T {
        self
    }
}

impl IntoTransport for tokio::net::UnixStream {
    type Transport = Socket;

    fn into_transport(self) -> Socket {
        Socket::unix(self)
    }
}

impl IntoTransport for tokio::net::TcpStream {
    type Transport = Socket;

    fn into_transport(self) -> Socket {
        Socket::tcp(self)
    }
}

#[cfg(feature = "vsock")]
#[cfg_attr(docsrs, doc(cfg(feature = "vsock")))]
impl IntoTransport for tokio_vsock::VsockStream {
    type Transport = Socket;

    fn into_transport(self) -> Socket {
        Socket::vsock(self)
    }
}

impl IntoTransport for tokio::io::DuplexStream {
    type Transport = ByteStream<Self>;

    fn into_transport(self) -> ByteStream<Self> {
        ByteStream::new(self)
    }
}
