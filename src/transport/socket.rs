//! Sockets of the operating system: unix and TCP.

use std::fmt;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::{TcpStream, UnixStream, tcp, unix};

use super::{Look, Shortcut, Transport};

/// A connected unix or TCP socket as a [`Transport`].
pub struct Socket {
    // The owned halves rather than the stream: reading through them lets tokio skip the extra
    // read that would only find the socket empty.
    read: Pin<Box<dyn AsyncRead + Send>>,
    write: Arc<dyn WriteHalf>,
    /// An error that a look took from the descriptor, which tells it only once.
    failed: Option<io::Error>,
}

impl Socket {
    /// A unix socket: a path, an abstract name or one end of a pair.
    pub fn unix(stream: UnixStream) -> Self {
        let (read, write) = stream.into_split();
        Self {
            read: Box::pin(read),
            write: Arc::new(write),
            failed: None,
        }
    }

    /// A TCP socket. Small frames are sent at once, without waiting to be joined.
    pub fn tcp(stream: TcpStream) -> Self {
        // Nagle's delay would be measured as round-trip time; a socket that refuses the option
        // still works.
        let _ = stream.set_nodelay(true);
        let (read, write) = stream.into_split();
        Self {
            read: Box::pin(read),
            write: Arc::new(write),
            failed: None,
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
        pin!(self.read.read_buf(&mut buffer.limit(limit))).poll(cx)
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.write.poll_ready(cx))?;
            match self.write.try_write(slices) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }

    fn poll_look(&mut self, _cx: &mut Context<'_>) -> Poll<Look> {
        // On the bare descriptor: inside `try_io` it would answer from tokio's readiness cache.
        let mut byte = [MaybeUninit::uninit()];
        Poll::Ready(match self.write.socket().peek(&mut byte) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Look::Empty,
            Err(error) => {
                self.failed = Some(error);
                Look::Readable
            }
            Ok(_) => Look::Readable,
        })
    }

    fn try_send(&mut self, bytes: &[u8]) -> Option<io::Result<usize>> {
        Some(self.write.socket().send(bytes))
    }

    fn shortcut(&self) -> Option<Arc<dyn Shortcut>> {
        Some(Arc::new(Direct(Arc::clone(&self.write))))
    }

    fn enter(&mut self) -> io::Result<()> {
        let here = self.write.duplicate()?;
        let there = std::mem::replace(self, here);
        there.write.forget();
        Ok(())
    }

    fn abort(&mut self) {
        // Without it a TCP socket with unsent bytes lingers in the kernel after it is closed.
        // Unix sockets refuse it and need none.
        let _ = self.write.socket().set_linger(Some(Duration::ZERO));
    }
}

#[derive(Debug)]
struct Direct(Arc<dyn WriteHalf>);

impl Shortcut for Direct {
    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write(slices)
    }
}

trait WriteHalf: fmt::Debug + Send + Sync {
    fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize>;
    fn socket(&self) -> SockRef<'_>;
    /// The same socket, registered with the runtime that is entered.
    fn duplicate(&self) -> io::Result<Socket>;
    /// Leaves the direction open: dropped like that, it would be shut down for duplicates too.
    fn forget(self: Arc<Self>);
}

macro_rules! write_half {
    ($half:ty, $stream:ty, $std:ty, $socket:path) => {
        impl WriteHalf for $half {
            fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.as_ref().poll_write_ready(cx)
            }

            fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
                self.try_write_vectored(slices)
            }

            fn socket(&self) -> SockRef<'_> {
                SockRef::from(self.as_ref())
            }

            fn duplicate(&self) -> io::Result<Socket> {
                let stream: &$stream = self.as_ref();
                let duplicate = stream.as_fd().try_clone_to_owned()?;
                Ok($socket(<$stream>::from_std(<$std>::from(duplicate))?))
            }

            fn forget(self: Arc<Self>) {
                // Nobody else has it: a shortcut is asked for only afterwards.
                if let Some(half) = Arc::into_inner(self) {
                    half.forget();
                }
            }
        }
    };
}

write_half!(
    unix::OwnedWriteHalf,
    UnixStream,
    std::os::unix::net::UnixStream,
    Socket::unix
);
write_half!(
    tcp::OwnedWriteHalf,
    TcpStream,
    std::net::TcpStream,
    Socket::tcp
);
