//! A transport in which a test does what it likes at each read, write and look.

use std::fmt;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use bytes::BytesMut;
use ttrpc_keepalive::IntoTransport;
use ttrpc_keepalive::transport::{Look, PeerCredentials, PeerProcess, Shortcut, Transport};

/// What to answer instead of the stream, if anything.
type OnIo = Box<dyn FnMut() -> Option<Poll<io::Result<usize>>> + Send>;
type OnLook = Box<dyn FnMut(&mut Context<'_>) -> Poll<Look> + Send>;

pub(crate) struct Hooked<T> {
    stream: T,
    on_read: OnIo,
    on_write: OnIo,
    on_look: Option<OnLook>,
    credentials: Option<PeerCredentials>,
    shortcut: Option<Arc<dyn Shortcut>>,
    reads: Arc<AtomicU32>,
    shortcuts: Arc<AtomicU32>,
}

/// Counts what it passes on.
#[derive(Debug)]
struct Counted {
    shortcut: Arc<dyn Shortcut>,
    writes: Arc<AtomicU32>,
}

impl Shortcut for Counted {
    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.shortcut.try_write(slices)
    }
}

impl<T: Transport> Hooked<T> {
    pub(crate) fn new(stream: impl IntoTransport<Transport = T>) -> Self {
        let stream = stream.into_transport();
        Self {
            shortcut: stream.shortcut(),
            stream,
            on_read: Box::new(|| None),
            on_write: Box::new(|| None),
            on_look: None,
            credentials: None,
            reads: Arc::default(),
            shortcuts: Arc::default(),
        }
    }

    pub(crate) fn on_read(
        mut self,
        hook: impl FnMut() -> Option<Poll<io::Result<usize>>> + Send + 'static,
    ) -> Self {
        self.on_read = Box::new(hook);
        self
    }

    pub(crate) fn on_write(
        mut self,
        hook: impl FnMut() -> Option<Poll<io::Result<usize>>> + Send + 'static,
    ) -> Self {
        self.on_write = Box::new(hook);
        self
    }

    pub(crate) fn on_look(
        mut self,
        mut hook: impl FnMut(&mut Context<'_>) -> Look + Send + 'static,
    ) -> Self {
        self.on_look = Some(Box::new(move |cx| Poll::Ready(hook(cx))));
        self
    }

    /// Looks are pending as long as the hook says so. Then nothing is there.
    pub(crate) fn on_pending_look(
        mut self,
        mut hook: impl FnMut() -> Option<Poll<Look>> + Send + 'static,
    ) -> Self {
        self.on_look = Some(Box::new(move |_| {
            hook().unwrap_or(Poll::Ready(Look::Empty))
        }));
        self
    }

    pub(crate) fn credentials(mut self, credentials: PeerCredentials) -> Self {
        self.credentials = Some(credentials);
        self
    }

    /// So that every write is the driver's.
    pub(crate) fn without_shortcut(mut self) -> Self {
        self.shortcut = None;
        self
    }

    pub(crate) fn with_shortcut(mut self, shortcut: Arc<dyn Shortcut>) -> Self {
        self.shortcut = Some(shortcut);
        self
    }

    /// Counts reads, of which each turn of the driver does one at least.
    pub(crate) fn reads(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.reads)
    }

    /// Counts the writes that callers did by themselves, past the driver.
    pub(crate) fn shortcuts(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.shortcuts)
    }
}

impl<T> fmt::Debug for Hooked<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooked").finish_non_exhaustive()
    }
}

impl<T: Transport> Transport for Hooked<T> {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        if let Some(answer) = (self.on_read)() {
            return answer;
        }
        self.stream.poll_read(cx, buffer, limit)
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Some(answer) = (self.on_write)() {
            return answer;
        }
        self.stream.poll_write(cx, slices)
    }

    fn poll_look(&mut self, cx: &mut Context<'_>) -> Poll<Look> {
        match &mut self.on_look {
            Some(hook) => hook(cx),
            None => self.stream.poll_look(cx),
        }
    }

    fn peer_credentials(&self) -> Option<PeerCredentials> {
        self.credentials.or_else(|| self.stream.peer_credentials())
    }

    fn peer_process(&self) -> Option<PeerProcess> {
        self.stream.peer_process()
    }

    fn shortcut(&self) -> Option<Arc<dyn Shortcut>> {
        let shortcut = self.shortcut.clone()?;
        let writes = Arc::clone(&self.shortcuts);
        Some(Arc::new(Counted { shortcut, writes }))
    }
}
