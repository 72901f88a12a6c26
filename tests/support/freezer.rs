//! Freezes a peer as SIGSTOP does: it neither reads nor writes, and its socket stays open.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

#[derive(Clone, Debug, Default)]
pub(crate) struct Freezer(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    frozen: bool,
    waiting: Vec<Waker>,
}

impl Freezer {
    pub(crate) fn freeze(&self) {
        self.0.lock().unwrap().frozen = true;
    }

    pub(crate) fn thaw(&self) {
        let waiting = {
            let mut state = self.0.lock().unwrap();
            state.frozen = false;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.0.lock().unwrap();
        if !state.frozen {
            return Poll::Ready(());
        }
        state.waiting.push(cx.waker().clone());
        Poll::Pending
    }
}

/// A stream of the peer that can be frozen.
pub(crate) struct Freezable<S> {
    stream: S,
    freezer: Freezer,
}

impl<S> Freezable<S> {
    pub(crate) fn new(stream: S, freezer: &Freezer) -> Self {
        Self {
            stream,
            freezer: freezer.clone(),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Freezable<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        std::task::ready!(self.freezer.poll(cx));
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Freezable<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        std::task::ready!(self.freezer.poll(cx));
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
