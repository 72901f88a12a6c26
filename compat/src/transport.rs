//! Byte streams, and what accepts them.

use std::any::Any;
use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::{OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net as unix;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_vsock::{VsockAddr, VsockListener, VsockStream};
use ttrpc_keepalive::transport::Transport;
use ttrpc_keepalive::{ByteStream, IntoTransport};

use crate::descriptor::take;

trait Duplex: AsyncRead + AsyncWrite + Send + Sync {}
impl<T: AsyncRead + AsyncWrite + Send + Sync> Duplex for T {}

/// A byte stream. Sockets stay what they are, so that the kernel can be asked what they hold.
pub struct Socket(Kind);

enum Kind {
    Unix(UnixStream),
    Tcp(TcpStream),
    Vsock(VsockStream),
    Other(Pin<Box<dyn Duplex>>),
}

/// Yields byte streams.
pub struct Listener(Pin<Box<dyn Stream<Item = io::Result<Socket>> + Send>>);

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Socket")
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

fn unsupported(address: &str) -> io::Error {
    io::Error::other(format!("Scheme of {address:?} is not supported"))
}

fn unix_address(address: &str) -> io::Result<unix::SocketAddr> {
    match address.strip_prefix('@') {
        Some(name) => unix::SocketAddr::from_abstract_name(name),
        None => unix::SocketAddr::from_pathname(address),
    }
}

pub(crate) fn vsock_address(address: &str) -> io::Result<VsockAddr> {
    let wrong = || io::Error::other(format!("sockaddr {address} is not right for vsock"));
    let (cid, port) = address.split_once(':').ok_or_else(wrong)?;
    let number = |text: &str, name| {
        let parsed = text.parse();
        parsed.map_err(|e| io::Error::other(format!("failed to parse {name} from {text:?}: {e}")))
    };
    let cid = if cid.trim() == "-1" {
        tokio_vsock::VMADDR_CID_ANY
    } else {
        number(cid, "cid")?
    };
    Ok(VsockAddr::new(cid, number(port, "port")?))
}

impl Socket {
    /// Any byte stream.
    pub fn new(socket: impl AsyncRead + AsyncWrite + Send + Sync + 'static) -> Self {
        let mut socket = Some(socket);
        let known: &mut dyn Any = &mut socket;
        // Users wrap sockets too. What is known to be one is judged better.
        if let Some(unix) = known
            .downcast_mut::<Option<UnixStream>>()
            .and_then(Option::take)
        {
            return unix.into();
        }
        if let Some(tcp) = known
            .downcast_mut::<Option<TcpStream>>()
            .and_then(Option::take)
        {
            return tcp.into();
        }
        if let Some(own) = known.downcast_mut::<Option<Self>>().and_then(Option::take) {
            return own;
        }
        // It is none of those, and still there.
        let Some(socket) = socket else {
            unreachable!("a stream is of one type")
        };
        Self(Kind::Other(Box::pin(socket)))
    }

    /// Connects to an address with its scheme.
    ///
    /// # Errors
    ///
    /// If the address is none, or the operating system refuses.
    pub async fn connect(addr: impl AsRef<str>) -> io::Result<Self> {
        let address = addr.as_ref();
        if let Some(address) = address.strip_prefix("unix://") {
            Self::connect_unix(address).await
        } else if let Some(address) = address.strip_prefix("tcp://") {
            Self::connect_tcp(address).await
        } else if let Some(address) = address.strip_prefix("vsock://") {
            Self::connect_vsock(address).await
        } else {
            Err(unsupported(address))
        }
    }

    #[cfg(feature = "async")]
    pub(crate) fn connect_blocking(address: &str) -> io::Result<Self> {
        let Some(path) = address.strip_prefix("unix://") else {
            // In a release that waits for it.
            return Err(unsupported(address));
        };
        unix::UnixStream::connect_addr(&unix_address(path)?)?.try_into()
    }

    /// Connects to a path, or to a name that begins with `@`.
    ///
    /// # Errors
    ///
    /// If the address is none, or the operating system refuses.
    pub async fn connect_unix(addr: impl AsRef<str>) -> io::Result<Self> {
        let address = unix_address(addr.as_ref())?;
        // tokio knows of no abstract names as addresses of the standard library.
        let path = address.as_pathname();
        let stream = match (path, address.as_abstract_name()) {
            (Some(path), _) => UnixStream::connect(path).await?,
            (None, _) => return unix::UnixStream::connect_addr(&address)?.try_into(),
        };
        Ok(stream.into())
    }

    /// Connects to `IP:PORT`.
    ///
    /// # Errors
    ///
    /// If the address is none, or the operating system refuses.
    pub async fn connect_tcp(addr: impl AsRef<str>) -> io::Result<Self> {
        let address: std::net::SocketAddr = addr.as_ref().parse().map_err(io::Error::other)?;
        Ok(TcpStream::connect(address).await?.into())
    }

    /// Connects to `CID:PORT`.
    ///
    /// # Errors
    ///
    /// If the address is none, or the operating system refuses.
    pub async fn connect_vsock(addr: impl AsRef<str>) -> io::Result<Self> {
        let address = vsock_address(addr.as_ref())?;
        Ok(VsockStream::connect(address).await?.into())
    }

    pub(crate) fn of_unix(fd: RawFd) -> io::Result<Self> {
        unix::UnixStream::from(take(fd)).try_into()
    }

    /// A unix socket that is given away by its number.
    ///
    /// # Safety
    ///
    /// `fd` is an open descriptor of one, and nobody else uses it.
    ///
    /// # Errors
    ///
    /// If the operating system refuses.
    #[allow(unsafe_code, reason = "the signature of the crate ttrpc")]
    pub unsafe fn from_raw_unix_socket_fd(fd: RawFd) -> io::Result<Self> {
        Self::of_unix(fd)
    }

    /// A TCP socket that is given away by its number.
    ///
    /// # Safety
    ///
    /// `fd` is an open descriptor of one, and nobody else uses it.
    ///
    /// # Errors
    ///
    /// If the operating system refuses.
    #[allow(unsafe_code, reason = "the signature of the crate ttrpc")]
    pub unsafe fn from_raw_tcp_socket_fd(fd: RawFd) -> io::Result<Self> {
        std::net::TcpStream::from(take(fd)).try_into()
    }
}

impl From<UnixStream> for Socket {
    fn from(stream: UnixStream) -> Self {
        Self(Kind::Unix(stream))
    }
}

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Self {
        Self(Kind::Tcp(stream))
    }
}

impl From<VsockStream> for Socket {
    fn from(stream: VsockStream) -> Self {
        Self(Kind::Vsock(stream))
    }
}

impl TryFrom<unix::UnixStream> for Socket {
    type Error = io::Error;

    fn try_from(stream: unix::UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        UnixStream::from_std(stream).map(Self::from)
    }
}

impl TryFrom<std::net::TcpStream> for Socket {
    type Error = io::Error;

    fn try_from(stream: std::net::TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        TcpStream::from_std(stream).map(Self::from)
    }
}

impl IntoTransport for Socket {
    type Transport = Box<dyn Transport>;

    fn into_transport(self) -> Self::Transport {
        match self.0 {
            Kind::Unix(stream) => Box::new(stream.into_transport()),
            Kind::Tcp(stream) => Box::new(stream.into_transport()),
            Kind::Vsock(stream) => Box::new(stream.into_transport()),
            Kind::Other(stream) => Box::new(ByteStream::new(stream)),
        }
    }
}

impl Socket {
    fn io(self: Pin<&mut Self>) -> Pin<&mut dyn Duplex> {
        match &mut self.get_mut().0 {
            Kind::Unix(stream) => Pin::<&mut UnixStream>::new(stream),
            Kind::Tcp(stream) => Pin::<&mut TcpStream>::new(stream),
            Kind::Vsock(stream) => Pin::<&mut VsockStream>::new(stream),
            Kind::Other(stream) => stream.as_mut(),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.io().poll_read(cx, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.io().poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io().poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.io().poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.0 {
            Kind::Unix(stream) => stream.is_write_vectored(),
            Kind::Tcp(stream) => stream.is_write_vectored(),
            Kind::Vsock(stream) => stream.is_write_vectored(),
            Kind::Other(stream) => stream.is_write_vectored(),
        }
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
        unix::UnixListener::from(take(fd)).try_into()
    }

    pub(crate) fn of_tcp(fd: RawFd) -> io::Result<Self> {
        std::net::TcpListener::from(take(fd)).try_into()
    }

    pub(crate) fn of_vsock(fd: RawFd) -> io::Result<Self> {
        let descriptor = take(fd);
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
