//! A transport whose look is a test's own, and whose bytes can be hidden from reads.

use std::fmt;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio::io::DuplexStream;
use ttrpc_keepalive::ByteStream;
use ttrpc_keepalive::transport::{Look, Transport};

type OnLook = Box<dyn FnMut(&mut Context<'_>) -> Look + Send>;

pub(crate) struct Hooked {
    stream: ByteStream<DuplexStream>,
    /// While it is set a read finds nothing, as a read does that trusts a stale cache.
    hidden: Arc<AtomicBool>,
    on_look: OnLook,
    reads: Arc<AtomicU32>,
}

impl Hooked {
    pub(crate) fn new(
        stream: DuplexStream,
        hidden: &Arc<AtomicBool>,
        on_look: impl FnMut(&mut Context<'_>) -> Look + Send + 'static,
    ) -> Self {
        Self {
            stream: ByteStream::new(stream),
            hidden: Arc::clone(hidden),
            on_look: Box::new(on_look),
            reads: Arc::default(),
        }
    }

    /// Counts reads, of which each turn of the driver does one at least.
    pub(crate) fn reads(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.reads)
    }
}

impl fmt::Debug for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooked").finish_non_exhaustive()
    }
}

impl Transport for Hooked {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        if self.hidden.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        self.stream.poll_read(cx, buffer, limit)
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream.poll_write(cx, slices)
    }

    fn poll_look(&mut self, cx: &mut Context<'_>) -> Poll<Look> {
        Poll::Ready((self.on_look)(cx))
    }
}
