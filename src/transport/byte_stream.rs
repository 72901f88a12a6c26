//! Any byte stream: an in-memory pipe, TLS, one side of a multiplexer.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::{BufMut, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

use super::Transport;
use crate::tuning::JOINED_WRITE;

/// Makes any byte stream a [`Transport`].
///
/// Such a stream has no descriptor that could be asked whether bytes wait. Before silence is held
/// against the peer the driver gives the scheduler one more turn and reads once more.
///
/// Tokio's sockets raise SIGPIPE in a vectored write to a peer that has closed, where other writes give
/// an error, and so does a wrapper that passes such writes on. Programs in Rust ignore the signal. A
/// library whose host may not takes a [`Socket`](super::Socket), or a wrapper that says it does not
/// write vectored.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use ttrpc_keepalive::{ByteStream, Client};
///
/// let (here, _there) = tokio::io::duplex(4096);
/// let client = Client::builder().attach(ByteStream::new(here));
/// # assert!(client.is_ok());
/// # }
/// ```
pub struct ByteStream<S> {
    stream: Pin<Box<S>>,
    joined: Vec<u8>,
}

impl<S> ByteStream<S>
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    /// Wraps the stream.
    pub fn new(stream: S) -> Self {
        Self {
            stream: Box::pin(stream),
            joined: Vec::new(),
        }
    }
}

impl<S> fmt::Debug for ByteStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByteStream").finish_non_exhaustive()
    }
}

impl<S> Transport for ByteStream<S>
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        pin!(self.stream.read_buf(&mut buffer.limit(limit))).poll(cx)
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match slices {
            [first, second, ..]
                if !self.stream.is_write_vectored()
                    && first.len() + second.len() <= JOINED_WRITE =>
            {
                // Otherwise each small frame would be a write of its own, and a TLS record.
                self.joined.clear();
                for slice in slices {
                    if self.joined.len() + slice.len() > JOINED_WRITE {
                        break;
                    }
                    self.joined.extend_from_slice(slice);
                }
                self.stream.as_mut().poll_write(cx, &self.joined)
            }
            _ => self.stream.as_mut().poll_write_vectored(cx, slices),
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_shutdown(cx)
    }
}
