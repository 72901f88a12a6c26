//! Sockets of the operating system: unix and TCP.

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

use super::{Look, Shortcut, Transport};

/// A connected unix or TCP socket as a [`Transport`].
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
}

impl Socket {
    /// A unix socket: a path, an abstract name or one end of a pair.
    pub fn unix(stream: UnixStream) -> Self {
        Self::registered(stream.into_std().map(OwnedFd::from))
    }

    /// A TCP socket. Small frames are sent at once, without waiting to be joined.
    pub fn tcp(stream: TcpStream) -> Self {
        // Nagle's delay would be measured as round-trip time; a socket that refuses the option
        // still works.
        let _ = stream.set_nodelay(true);
        Self::registered(stream.into_std().map(OwnedFd::from))
    }

    fn registered(descriptor: io::Result<OwnedFd>) -> Self {
        Self {
            descriptor: descriptor
                .and_then(Receiver::from_owned_fd_unchecked)
                .map(Arc::new),
            room: None,
            failed: None,
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
        let descriptor = self.descriptor()?.as_fd().try_clone_to_owned()?;
        *self = Self::registered(Ok(descriptor));
        self.descriptor().map(|_| ())
    }

    fn abort(&mut self) {
        // Without it a TCP socket with unsent bytes lingers in the kernel after it is closed.
        // Unix sockets refuse it and need none.
        if let Ok(descriptor) = self.descriptor() {
            let _ = SockRef::from(descriptor).set_linger(Some(Duration::ZERO));
        }
    }
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
