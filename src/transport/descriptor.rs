//! Sockets that exist already: passed on by another process, or made by the standard library.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;

use socket2::{Domain, SockRef, Type};
use tokio::net::TcpStream;

/// A family of sockets that carries connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Unix,
    Tcp,
    Vsock,
}

impl Family {
    /// The family of a descriptor, which is made fit for a reactor. Whatever is no stream socket of
    /// a family that is known here is refused: wrapped as one it would fail later, and strangely.
    pub(super) fn adopt(descriptor: &OwnedFd) -> io::Result<Self> {
        let socket = SockRef::from(descriptor);
        let family = match socket.local_addr()?.domain() {
            Domain::UNIX => Self::Unix,
            Domain::IPV4 | Domain::IPV6 => Self::Tcp,
            #[cfg(any(target_os = "linux", target_os = "android"))]
            Domain::VSOCK => Self::Vsock,
            _ => return Err(wrong("it is no unix, TCP or vsock socket")),
        };
        if socket.r#type()? != Type::STREAM {
            return Err(wrong("it is no stream socket"));
        }
        socket.set_nonblocking(true)?;
        // A child that inherits the descriptor would keep the connection open without knowing it.
        socket.set_cloexec(true)?;
        Ok(family)
    }
}

/// Whether a TCP socket is connected to itself: the system chose the port for it that it was to reach,
/// and nobody listens there.
pub(super) fn is_its_own_peer(stream: &TcpStream) -> bool {
    match (stream.local_addr(), stream.peer_addr()) {
        (Ok(here), Ok(there)) => here == there,
        _ => false,
    }
}

/// A socket that cannot be what it was given for.
pub(super) fn wrong(problem: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, problem)
}

/// What to say of vsock without the feature.
#[cfg(not(feature = "vsock"))]
pub(super) const NO_VSOCK: &str = "vsock needs the feature `vsock` of ttrpc-keepalive";

/// Why a socket of this family cannot be used.
#[cfg(not(feature = "vsock"))]
pub(super) fn vsock_is_missing() -> io::Error {
    io::Error::new(ErrorKind::Unsupported, NO_VSOCK)
}
