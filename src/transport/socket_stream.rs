//! A socket as a byte stream, for what comes before ttrpc or goes around it.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Socket, Transport};

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if out.remaining() > 0 {
            ready!(self.poll_fill(cx, out))?;
        }
        Poll::Ready(Ok(()))
    }
}

/// As the other writes of this crate, these raise no SIGPIPE.
impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Transport::poll_write(&mut *self, cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Transport::poll_write(&mut *self, cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Ends the direction of writing, as of every byte stream.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let descriptor = self.descriptor()?;
        Poll::Ready(SockRef::from(&descriptor.stream).shutdown(Shutdown::Write))
    }
}

/// For options of the socket, and for handing a copy to another process.
///
/// # Panics
///
/// If the operating system has refused to register it with the runtime's reactor. A connection on such
/// a socket ends with that error.
impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self.descriptor() {
            Ok(descriptor) => descriptor.stream.as_fd(),
            Err(error) => panic!("the socket could not be registered: {error}"),
        }
    }
}
