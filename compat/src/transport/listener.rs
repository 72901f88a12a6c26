//! What accepts byte streams.

use std::fmt;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::net as unix;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio_vsock::VsockListener;

use super::{Socket, unix_address, unsupported, vsock_address};
use crate::descriptor::take;

/// Yields byte streams.
pub struct Listener(Pin<Box<dyn Stream<Item = io::Result<Socket>> + Send>>);

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

/// A socket's own way to accept, as a stream.
struct Accepting<L, F>(L, F);

impl<L, F> Stream for Accepting<L, F>
where
    L: Unpin,
    F: FnMut(&mut L, &mut Context<'_>) -> Poll<io::Result<Socket>> + Unpin,
{
    type Item = io::Result<Socket>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self(listener, accept) = &mut *self;
        accept(listener, cx).map(Some)
    }
}

/// Makes sockets of what a stream yields.
struct Sockets<S>(Pin<Box<S>>);

impl<T, S> Stream for Sockets<S>
where
    T: AsyncRead + AsyncWrite + Send + Sync + 'static,
    S: Stream<Item = io::Result<T>>,
{
    type Item = io::Result<Socket>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = self.0.as_mut().poll_next(cx);
        next.map(|next| next.map(|stream| stream.map(Socket::new)))
    }
}

/// By the standard library's socket of another family: the flag is of the descriptor.
fn set_nonblocking(descriptor: &OwnedFd) -> io::Result<()> {
    unix::UnixStream::from(descriptor.try_clone()?).set_nonblocking(true)
}

impl Listener {
    /// Anything that yields byte streams.
    pub fn new<S: AsyncRead + AsyncWrite + Send + Sync + 'static>(
        listener: impl Stream<Item = io::Result<S>> + Send + 'static,
    ) -> Self {
        Self(Box::pin(Sockets(Box::pin(listener))))
    }

    /// Listens on an address with its scheme.
    ///
    /// # Errors
    ///
    /// If the address is none, or the operating system refuses.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn bind(addr: impl AsRef<str>) -> io::Result<Self> {
        let address = addr.as_ref();
        if let Some(address) = address.strip_prefix("unix://") {
            Self::bind_unix(address)
        } else if let Some(address) = address.strip_prefix("tcp://") {
            Self::bind_tcp(address)
        } else if let Some(address) = address.strip_prefix("vsock://") {
            Self::bind_vsock(address)
        } else {
            Err(unsupported(address))
        }
    }

    /// Listens on a path, or on a name that begins with `@`. The file is not removed, before or after.
    ///
    /// # Errors
    ///
    /// If the address is none, or the operating system refuses.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn bind_unix(addr: impl AsRef<str>) -> io::Result<Self> {
        unix::UnixListener::bind_addr(&unix_address(addr.as_ref())?)?.try_into()
    }

    /// Listens on `IP:PORT`.
    ///
    /// # Errors
    ///
    /// If the address is none, or the operating system refuses.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn bind_tcp(addr: impl AsRef<str>) -> io::Result<Self> {
        let address: std::net::SocketAddr = addr.as_ref().parse().map_err(io::Error::other)?;
        std::net::TcpListener::bind(address)?.try_into()
    }

    /// Listens on `CID:PORT`; the CID -1 is any.
    ///
    /// # Errors
    ///
    /// If the address is none, or the operating system refuses.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn bind_vsock(addr: impl AsRef<str>) -> io::Result<Self> {
        VsockListener::bind(vsock_address(addr.as_ref())?).map(Self::from)
    }

    pub(crate) fn of_unix(fd: RawFd) -> io::Result<Self> {
        unix::UnixListener::from(take(fd)?).try_into()
    }

    pub(crate) fn of_tcp(fd: RawFd) -> io::Result<Self> {
        std::net::TcpListener::from(take(fd)?).try_into()
    }

    pub(crate) fn of_vsock(fd: RawFd) -> io::Result<Self> {
        let descriptor = take(fd)?;
        set_nonblocking(&descriptor)?;
        Ok(VsockListener::from(descriptor).into())
    }

    /// A unix socket that listens, given away by its number.
    ///
    /// # Safety
    ///
    /// `fd` is an open descriptor of one, and nobody else uses it.
    ///
    /// # Errors
    ///
    /// If the operating system refuses.
    #[allow(unsafe_code, reason = "the signature of the crate ttrpc")]
    pub unsafe fn from_raw_unix_listener_fd(fd: RawFd) -> io::Result<Self> {
        Self::of_unix(fd)
    }

    /// A TCP socket that listens, given away by its number.
    ///
    /// # Safety
    ///
    /// `fd` is an open descriptor of one, and nobody else uses it.
    ///
    /// # Errors
    ///
    /// If the operating system refuses.
    #[allow(unsafe_code, reason = "the signature of the crate ttrpc")]
    pub unsafe fn from_raw_tcp_listener_fd(fd: RawFd) -> io::Result<Self> {
        Self::of_tcp(fd)
    }

    /// A vsock socket that listens, given away by its number.
    ///
    /// # Safety
    ///
    /// `fd` is an open descriptor of one, and nobody else uses it.
    ///
    /// # Errors
    ///
    /// If the operating system refuses.
    #[allow(unsafe_code, reason = "the signature of the crate ttrpc")]
    pub unsafe fn from_raw_vsock_listener_fd(fd: RawFd) -> io::Result<Self> {
        Self::of_vsock(fd)
    }
}

impl From<UnixListener> for Listener {
    fn from(listener: UnixListener) -> Self {
        let accept = |listener: &mut UnixListener, cx: &mut Context<'_>| {
            listener.poll_accept(cx).map_ok(|(stream, _)| stream.into())
        };
        Self(Box::pin(Accepting(listener, accept)))
    }
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        let accept = |listener: &mut TcpListener, cx: &mut Context<'_>| {
            listener.poll_accept(cx).map_ok(|(stream, _)| stream.into())
        };
        Self(Box::pin(Accepting(listener, accept)))
    }
}

impl From<VsockListener> for Listener {
    fn from(listener: VsockListener) -> Self {
        let accept = |listener: &mut VsockListener, cx: &mut Context<'_>| {
            listener.poll_accept(cx).map_ok(|(stream, _)| stream.into())
        };
        Self(Box::pin(Accepting(listener, accept)))
    }
}

impl TryFrom<unix::UnixListener> for Listener {
    type Error = io::Error;

    fn try_from(listener: unix::UnixListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        UnixListener::from_std(listener).map(Self::from)
    }
}

impl TryFrom<std::net::TcpListener> for Listener {
    type Error = io::Error;

    fn try_from(listener: std::net::TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener).map(Self::from)
    }
}

impl Stream for Listener {
    type Item = io::Result<Socket>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(cx)
    }
}
