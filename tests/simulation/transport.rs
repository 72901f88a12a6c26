//! The link as each end sees it.

use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::BytesMut;
use ttrpc_keepalive::transport::{Look, Shortcut, Transport};

use super::link::{End, SharedLink};

/// One end's transport.
pub(crate) struct Side {
    end: End,
    link: SharedLink,
}

impl Side {
    pub(crate) fn new(end: End, link: &SharedLink) -> Self {
        let link = link.clone();
        Self { end, link }
    }

    fn interrupt(&self, reading: bool) {
        let hook = {
            let mut link = self.link.lock();
            link.take_hook(self.end, reading)
        };
        if let Some(hook) = hook {
            hook();
        }
    }
}

impl Transport for Side {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        self.interrupt(true);
        let mut link = self.link.lock();
        if link.is_stale(self.end) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Some(read) = link.give(self.end, buffer, limit) {
            return Poll::Ready(read);
        }
        link.wake_reader(self.end, cx.waker());
        Poll::Pending
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.interrupt(false);
        let mut link = self.link.lock();
        match link.take(self.end, slices) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                link.wake_writer(self.end, cx.waker());
                Poll::Pending
            }
            taken => Poll::Ready(taken),
        }
    }

    fn poll_look(&mut self, _: &mut Context<'_>) -> Poll<Look> {
        Poll::Ready(self.link.lock().look(self.end))
    }

    fn unread(&self) -> Option<usize> {
        let mut link = self.link.lock();
        let tells = link.traits.receipts;
        tells.then(|| link.unread(self.end))
    }

    fn try_send(&mut self, bytes: &[u8]) -> Option<io::Result<usize>> {
        let mut link = self.link.lock();
        let can = link.traits.try_send;
        can.then(|| link.take(self.end, &[IoSlice::new(bytes)]))
    }

    fn shortcut(&self) -> Option<Arc<dyn Shortcut>> {
        let shortcut = self.link.lock().traits.shortcut;
        let (end, link) = (self.end, self.link.clone());
        let beside: Arc<dyn Shortcut> = Arc::new(Beside { end, link });
        shortcut.then_some(beside)
    }

    fn abort(&mut self) {
        self.link.lock().close(self.end);
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.link.lock().close(self.end);
    }
}

struct Beside {
    end: End,
    link: SharedLink,
}

impl Shortcut for Beside {
    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.link.lock().take(self.end, slices)
    }
}
