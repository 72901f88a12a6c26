//! What can be made a transport.

use super::{ByteStream, Socket, Transport};

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
