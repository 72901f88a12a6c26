//! Byte streams.

use std::any::Any;
use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::RawFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net as unix;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_vsock::VsockStream;
use ttrpc_keepalive::transport::Transport;
use ttrpc_keepalive::{ByteStream, IntoTransport};

use super::{unix_address, unsupported, vsock_address};
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

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Socket")
    }
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
        unix::UnixStream::from(take(fd)?).try_into()
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
        std::net::TcpStream::from(take(fd)?).try_into()
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
