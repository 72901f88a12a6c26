//! Sockets of the operating system: unix, TCP and vsock.

use std::fmt;
use std::io::{self, ErrorKind, IoSlice};
use std::mem::{self, MaybeUninit};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

#[cfg(not(feature = "vsock"))]
use super::descriptor::vsock_is_missing;
use super::descriptor::{Family, is_its_own_peer, wrong};
use super::{Look, PeerCredentials, PeerProcess, Shortcut, Transport};
use crate::error::ConnectionError;

/// The flag of a send that fails instead of raising SIGPIPE, which ends a process that does not
/// ignore it: a library cannot know what its host chose. Apple's systems have an option of the socket
/// instead.
const NO_SIGNAL: i32 = if cfg!(any(target_os = "linux", target_os = "android")) {
    0x4000
} else if cfg!(target_os = "freebsd") {
    0x2_0000
} else if cfg!(any(
    target_os = "dragonfly",
    target_os = "netbsd",
    target_os = "openbsd"
)) {
    0x400
} else {
    0
};

/// A connected unix, TCP or vsock socket as a [`Transport`].
pub struct Socket {
    /// An error if the reactor has no room for it.
    descriptor: io::Result<Arc<Descriptor>>,
    /// The kernel has refused bytes: the reactor says when to offer them again.
    refused: bool,
    family: Family,
    peer_credentials: Option<PeerCredentials>,
    peer_process: Option<PeerProcess>,
    /// A connection on it has ended, so that nobody can use the socket any more.
    is_over: bool,
}

impl Socket {
    /// A unix socket: a path, an abstract name or one end of a pair.
    pub fn unix(stream: UnixStream) -> Self {
        let peer_credentials = stream.peer_cred().ok().map(PeerCredentials::from);
        let peer_process = PeerProcess::of(&stream);
        let mut socket = Self::registered(stream.into_std().map(OwnedFd::from), Family::Unix);
        socket.peer_credentials = peer_credentials;
        socket.peer_process = peer_process;
        socket
    }

    /// A TCP socket. Small frames are sent at once, without waiting to be joined.
    pub fn tcp(stream: TcpStream) -> Self {
        // Nagle's delay would be measured as round-trip time; a socket that refuses the option
        // still works. No other option is set, and none on sockets of other families: newer kernels
        // refuse those of TCP on them.
        let _ = stream.set_nodelay(true);
        Self::registered(stream.into_std().map(OwnedFd::from), Family::Tcp)
    }

    /// A socket between a machine and its virtual machines. What is particular to the family has
    /// been tested with addresses only.
    #[cfg(feature = "vsock")]
    #[cfg_attr(docsrs, doc(cfg(feature = "vsock")))]
    pub fn vsock(stream: tokio_vsock::VsockStream) -> Self {
        Self::registered(Ok(stream.into()), Family::Vsock)
    }

    /// A connected socket that exists already: one of the standard library, or a descriptor that
    /// was passed on to this process. It is made non-blocking here, and is not inherited by
    /// children that are started later.
    ///
    /// An NRI plugin that was started by its runtime is told the number of such a descriptor, 3, by
    /// the variable `NRI_PLUGIN_SOCKET`. Only the plugin can know that nothing else owns it, so the
    /// step from the number to an [`OwnedFd`] is its own, and `unsafe`.
    ///
    /// ```
    /// # use ttrpc_keepalive::{Client, Socket};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (here, there) = std::os::unix::net::UnixStream::pair()?;
    /// let client = Client::builder().attach(Socket::from_fd(here)?)?;
    ///
    /// // let fd = unsafe { OwnedFd::from_raw_fd(3) };
    /// let fd = std::os::fd::OwnedFd::from(there);
    /// let socket = Socket::from_fd(fd)?; // for Server::serve_connection, or for another client
    /// # let _ = (client, socket); Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// If it is not a connected stream socket of unix, TCP or vsock, if it is connected to itself, or if
    /// the operating system refuses. Without the feature `vsock` such a socket is refused with the feature's name.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with I/O enabled.
    pub fn from_fd(descriptor: impl Into<OwnedFd>) -> io::Result<Self> {
        let descriptor = descriptor.into();
        let family = Family::adopt(&descriptor)?;
        SockRef::from(&descriptor).peer_addr()?;
        Ok(match family {
            Family::Unix => Self::unix(UnixStream::from_std(descriptor.into())?),
            Family::Tcp => {
                let stream = TcpStream::from_std(descriptor.into())?;
                if is_its_own_peer(&stream) {
                    return Err(wrong("it is connected to itself"));
                }
                Self::tcp(stream)
            }
            #[cfg(feature = "vsock")]
            Family::Vsock => Self::registered(Ok(descriptor), family),
            #[cfg(not(feature = "vsock"))]
            Family::Vsock => return Err(vsock_is_missing()),
        })
    }

    fn registered(descriptor: io::Result<OwnedFd>, family: Family) -> Self {
        Self {
            descriptor: Descriptor::register(descriptor),
            refused: false,
            family,
            peer_credentials: None,
            peer_process: None,
            is_over: false,
        }
    }

    pub(super) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut impl BufMut,
    ) -> Poll<io::Result<usize>> {
        let Descriptor { stream, .. } = self.descriptor()?;
        loop {
            ready!(stream.poll_read_ready(cx))?;
            match stream.try_read_buf(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Ok(0) => return Poll::Ready(self.descriptor()?.end()),
                result => return Poll::Ready(result),
            }
        }
    }

    pub(super) fn descriptor(&self) -> io::Result<&Descriptor> {
        match &self.descriptor {
            Ok(descriptor) => Ok(descriptor),
            Err(error) => Err(match error.raw_os_error() {
                Some(code) => io::Error::from_raw_os_error(code),
                None => error.kind().into(),
            }),
        }
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket").finish_non_exhaustive()
    }
}

impl Transport for Socket {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        self.poll_fill(cx, &mut buffer.limit(limit))
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            let descriptor = self.descriptor()?;
            let result = if self.refused {
                ready!(descriptor.stream.poll_write_ready(cx))?;
                let send = || descriptor.send(slices);
                descriptor.stream.try_io(Interest::WRITABLE, send)
            } else {
                descriptor.send(slices)
            };
            self.refused = matches!(&result, Err(error) if error.kind() == ErrorKind::WouldBlock);
            if !self.refused {
                return Poll::Ready(result);
            }
        }
    }

    fn poll_look(&mut self, _cx: &mut Context<'_>) -> Poll<Look> {
        Poll::Ready(match self.descriptor().and_then(Descriptor::peek) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Look::Empty,
            _ => Look::Readable,
        })
    }

    fn unread(&self) -> Option<usize> {
        if self.family != Family::Unix {
            return None;
        }
        let Descriptor { stream, .. } = self.descriptor().ok()?;
        ttrpc_keepalive_unread::unread(stream).ok()
    }

    fn try_send(&mut self, bytes: &[u8]) -> Option<io::Result<usize>> {
        let descriptor = self.descriptor();
        Some(descriptor.and_then(|descriptor| descriptor.send(&[IoSlice::new(bytes)])))
    }

    fn shortcut(&self) -> Option<Arc<dyn Shortcut>> {
        let descriptor = Arc::clone(self.descriptor.as_ref().ok()?);
        Some(descriptor)
    }

    fn enter(&mut self) -> io::Result<()> {
        let unregistered = Err(ErrorKind::NotConnected.into());
        let descriptor = mem::replace(&mut self.descriptor, unregistered)?;
        let Some(Descriptor { stream, .. }) = Arc::into_inner(descriptor) else {
            return Err(wrong("a handle writes to it already"));
        };
        self.descriptor = Descriptor::register(stream.into_std().map(OwnedFd::from));
        self.descriptor().map(|_| ())
    }

    fn remote_address(&self) -> Option<SocketAddr> {
        let descriptor = self.descriptor().ok()?;
        let address = SockRef::from(&descriptor.stream).peer_addr().ok()?;
        address.as_socket()
    }

    fn peer_credentials(&self) -> Option<PeerCredentials> {
        self.peer_credentials
    }

    fn peer_process(&self) -> Option<PeerProcess> {
        self.peer_process
    }

    fn handle_end(&mut self, _end: &ConnectionError) {
        self.is_over = true;
    }

    fn poll_shutdown(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.descriptor()?.shut_down())
    }

    fn abort(&mut self) {
        self.is_over = true;
        // Without it a TCP socket with unsent bytes lingers in the kernel after it is closed.
        if self.family == Family::Tcp {
            if let Ok(descriptor) = self.descriptor() {
                let _ = SockRef::from(&descriptor.stream).set_linger(Some(Duration::ZERO));
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.is_over {
            if let Ok(descriptor) = self.descriptor() {
                // There is nobody to tell.
                let _ = descriptor.shut_down();
            }
        }
    }
}

/// Shared by the driver and the handles that write by themselves.
#[derive(Debug)]
pub(super) struct Descriptor {
    /// A socket of any family: it is asked only what all of them can do.
    ///
    /// It is registered for both directions. Where idle cores sleep, the peer's read of a request
    /// then wakes this side's core while the peer still works, and the answer finds it awake.
    pub(super) stream: UnixStream,
    /// Why the connection is gone, as the system numbers it.
    reason: OnceLock<i32>,
}

impl Descriptor {
    fn register(descriptor: io::Result<OwnedFd>) -> io::Result<Arc<Self>> {
        let descriptor = descriptor?;
        #[cfg(target_vendor = "apple")]
        SockRef::from(&descriptor).set_nosigpipe(true)?;
        Ok(Arc::new(Self {
            stream: UnixStream::from_std(descriptor.into())?,
            reason: OnceLock::new(),
        }))
    }

    /// On the bare descriptor, as all that follows: tokio's cache of its readiness may be stale.
    fn send(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let socket = SockRef::from(&self.stream);
        loop {
            match socket.send_vectored_with_flags(slices, NO_SIGNAL) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => return result.inspect_err(|error| self.note(error)),
            }
        }
    }

    /// Ends the connection and not only this descriptor: a copy, which a child that was forked has
    /// without knowing it, would keep it open.
    fn shut_down(&self) -> io::Result<()> {
        SockRef::from(&self.stream).shutdown(Shutdown::Both)
    }

    fn peek(&self) -> io::Result<usize> {
        let mut byte = [MaybeUninit::uninit()];
        loop {
            match SockRef::from(&self.stream).peek(&mut byte) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => return result.inspect_err(|error| self.note(error)),
            }
        }
    }

    /// The kernel tells these errors once, to whichever call comes first.
    fn note(&self, error: &io::Error) {
        if let ErrorKind::ConnectionReset
        | ErrorKind::TimedOut
        | ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable = error.kind()
        {
            if let Some(code) = error.raw_os_error() {
                let _ = self.reason.set(code);
            }
        }
    }

    /// What the end of the stream means. A connection that was reset has one too, behind all that
    /// came before it.
    fn end(&self) -> io::Result<usize> {
        match self.reason.get() {
            Some(code) => Err(io::Error::from_raw_os_error(*code)),
            None => Ok(0),
        }
    }
}

impl Shortcut for Descriptor {
    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.send(slices)
    }
}
