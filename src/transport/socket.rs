//! Sockets of the operating system: unix, TCP and vsock.

use std::fmt;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe::Receiver;
use tokio::net::{TcpStream, UnixStream};

use super::descriptor::Family;
#[cfg(not(feature = "vsock"))]
use super::descriptor::vsock_is_missing;
use super::{Look, PeerCredentials, Shortcut, Transport};

/// A connected unix, TCP or vsock socket as a [`Transport`].
pub struct Socket {
    /// Registered for reading alone. Tokio's sockets are registered for both directions, and then
    /// each read of the peer wakes this side, which has nothing to do with it: one more turn of the
    /// scheduler for each call. A pipe's end is what tokio has for one direction; a socket is read
    /// as a pipe is.
    ///
    /// An error if the reactor has no room for it.
    descriptor: io::Result<Arc<Receiver>>,
    /// The same, registered for writing: while the kernel refuses bytes.
    room: Option<AsyncFd<OwnedFd>>,
    /// An error that a look took from the descriptor, which tells it only once.
    failed: Option<io::Error>,
    family: Family,
    peer_credentials: Option<PeerCredentials>,
}

impl Socket {
    /// A unix socket: a path, an abstract name or one end of a pair.
    pub fn unix(stream: UnixStream) -> Self {
        let peer_credentials = stream.peer_cred().ok().map(PeerCredentials::from);
        Self {
            peer_credentials,
            ..Self::registered(stream.into_std().map(OwnedFd::from), Family::Unix)
        }
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
        Self::registered(stream.as_fd().try_clone_to_owned(), Family::Vsock)
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
    /// If it is not a connected stream socket of unix, TCP or vsock, or if the operating system
    /// refuses. Without the feature `vsock` such a socket is refused with the feature's name.
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
            Family::Tcp => Self::tcp(TcpStream::from_std(descriptor.into())?),
            #[cfg(feature = "vsock")]
            Family::Vsock => Self::registered(Ok(descriptor), family),
            #[cfg(not(feature = "vsock"))]
            Family::Vsock => return Err(vsock_is_missing()),
        })
    }

    fn registered(descriptor: io::Result<OwnedFd>, family: Family) -> Self {
        Self {
            descriptor: register(descriptor),
            room: None,
            failed: None,
            family,
            peer_credentials: None,
        }
    }

    fn descriptor(&self) -> io::Result<&Receiver> {
        match &self.descriptor {
            Ok(descriptor) => Ok(descriptor),
            Err(error) => Err(error.kind().into()),
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
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Err(error));
        }
        let descriptor = self.descriptor()?;
        loop {
            ready!(descriptor.poll_read_ready(cx))?;
            match descriptor.try_read_buf(&mut buffer.limit(limit)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            // Always a send: a write to a socket that the peer has closed raises SIGPIPE, which ends a
            // process that has not chosen to ignore it.
            let result = if let Some(room) = &self.room {
                let mut ready = ready!(room.poll_write_ready(cx))?;
                match ready.try_io(|room| SockRef::from(room).send_vectored(slices)) {
                    Ok(result) => result,
                    Err(_not_ready_after_all) => continue,
                }
            } else {
                SockRef::from(self.descriptor()?).send_vectored(slices)
            };
            match result {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.room.is_none() {
                        let descriptor = self.descriptor()?.as_fd().try_clone_to_owned()?;
                        self.room = Some(registered_for_writing(descriptor)?);
                    }
                }
                result => {
                    self.room = None;
                    return Poll::Ready(result);
                }
            }
        }
    }

    fn poll_look(&mut self, _cx: &mut Context<'_>) -> Poll<Look> {
        // On the bare descriptor: inside `try_io` it would answer from tokio's readiness cache.
        let mut byte = [MaybeUninit::uninit()];
        let peeked = self
            .descriptor()
            .and_then(|descriptor| SockRef::from(descriptor).peek(&mut byte));
        Poll::Ready(match peeked {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Look::Empty,
            Err(error) => {
                self.failed = Some(error);
                Look::Readable
            }
            Ok(_) => Look::Readable,
        })
    }

    fn try_send(&mut self, bytes: &[u8]) -> Option<io::Result<usize>> {
        Some(
            self.descriptor()
                .and_then(|descriptor| SockRef::from(descriptor).send(bytes)),
        )
    }

    fn shortcut(&self) -> Option<Arc<dyn Shortcut>> {
        let descriptor = self.descriptor.as_ref().ok()?;
        Some(Arc::new(Direct(Arc::clone(descriptor))))
    }

    fn enter(&mut self) -> io::Result<()> {
        self.descriptor = register(self.descriptor()?.as_fd().try_clone_to_owned());
        self.descriptor().map(|_| ())
    }

    fn peer_credentials(&self) -> Option<PeerCredentials> {
        self.peer_credentials
    }

    fn abort(&mut self) {
        // Without it a TCP socket with unsent bytes lingers in the kernel after it is closed.
        if self.family == Family::Tcp {
            if let Ok(descriptor) = self.descriptor() {
                let _ = SockRef::from(descriptor).set_linger(Some(Duration::ZERO));
            }
        }
    }
}

fn register(descriptor: io::Result<OwnedFd>) -> io::Result<Arc<Receiver>> {
    descriptor
        .and_then(Receiver::from_owned_fd_unchecked)
        .map(Arc::new)
}

#[allow(
    deprecated,
    reason = "its successor is newer than the oldest tokio allowed here; the fault is of descriptors \
              that are not owned"
)]
fn registered_for_writing(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(descriptor, Interest::WRITABLE)
}

#[derive(Debug)]
struct Direct(Arc<Receiver>);

impl Shortcut for Direct {
    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        SockRef::from(&*self.0).send_vectored(slices)
    }
}
