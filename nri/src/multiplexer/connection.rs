//! One of the two connections.

use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio::time::{Instant, Sleep, sleep_until};
use ttrpc_keepalive::transport::{Look, Shortcut, Transport};
use ttrpc_keepalive::{ConnectionError, PeerCredentials, PeerProcess};

use super::trunk::{Moved, Place, State, Trunk};
use super::wakers::Driver;

/// One of the two connections on a shared stream: a [`Transport`] for a client or a server.
///
/// Dropping it leaves the other one alone. With the second the stream is closed.
pub struct Connection {
    trunk: Arc<Trunk>,
    place: Place,
    /// As the wakers know it.
    known: Driver,
    /// When it is called, if nothing else calls it.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Connection {
    pub(super) fn new(trunk: &Arc<Trunk>, place: Place) -> Self {
        Self {
            trunk: Arc::clone(trunk),
            place,
            known: Driver::default(),
            timer: None,
        }
    }

    fn poll<R>(
        &mut self,
        cx: &Context<'_>,
        poll: impl FnOnce(&mut State, &mut Context<'_>) -> R,
    ) -> R {
        self.trunk.poll(self.place, &mut self.known, cx, poll)
    }

    /// Whether it is called then, or earlier.
    fn wait(&mut self, cx: &mut Context<'_>, until: Instant) -> bool {
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(sleep_until(until)));
        // An earlier time does no harm, and costs nothing.
        if timer.is_elapsed() || timer.deadline() > until {
            timer.as_mut().reset(until);
        }
        timer.as_mut().poll(cx).is_pending()
    }
}

impl Transport for Connection {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        let place = self.place;
        loop {
            let read = self.poll(cx, |state, both| state.read(place, both, buffer, limit));
            match read {
                Moved::Done(read) => return Poll::Ready(read),
                Moved::Pending => return Poll::Pending,
                // The other one sees to the stream.
                Moved::Until(until) if self.wait(cx, until) => {
                    self.trunk.stand_by(place, &mut self.known);
                    return Poll::Pending;
                }
                Moved::Until(_) => {}
            }
        }
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let place = self.place;
        loop {
            let written = self.poll(cx, |state, both| state.write(place, both, slices));
            match written {
                Moved::Done(written) => return Poll::Ready(written),
                Moved::Pending => return Poll::Pending,
                Moved::Until(until) if self.wait(cx, until) => return Poll::Pending,
                Moved::Until(_) => {}
            }
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let place = self.place;
        self.poll(cx, |state, both| state.flush(place, both))
    }

    fn poll_look(&mut self, cx: &mut Context<'_>) -> Poll<Look> {
        let place = self.place;
        self.poll(cx, |state, both| state.look(place, both))
    }

    fn unread(&self) -> Option<usize> {
        self.trunk.with(|state| state.unread(self.place))
    }

    fn try_send(&mut self, bytes: &[u8]) -> Option<io::Result<usize>> {
        let place = self.place;
        self.trunk.with(|state| state.offer(place, bytes))
    }

    fn shortcut(&self) -> Option<Arc<dyn Shortcut>> {
        if !self.trunk.with(|state| state.has_shortcut()) {
            return None;
        }
        Some(Arc::new(Direct {
            trunk: Arc::clone(&self.trunk),
            place: self.place,
        }))
    }

    fn last_heard(&self) -> Option<std::time::Instant> {
        self.trunk.with(|state| state.heard())
    }

    fn peer_credentials(&self) -> Option<PeerCredentials> {
        self.trunk.peer_credentials
    }

    fn peer_process(&self) -> Option<PeerProcess> {
        self.trunk.with(|state| state.peer_process())
    }

    fn remote_address(&self) -> Option<SocketAddr> {
        self.trunk.remote_address
    }

    fn enter(&mut self) -> io::Result<()> {
        self.trunk.with(|state| state.enter())
    }

    fn handle_end(&mut self, end: &ConnectionError) {
        let place = self.place;
        self.trunk.with(|state| state.handle_end(place, end));
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let place = self.place;
        self.poll(cx, |state, both| state.shutdown(place, both))
    }

    fn abort(&mut self) {
        // It may have much to do when it is dropped, and that is not for others to wait for.
        drop(self.trunk.with(|state| state.abort()));
    }
}

/// Writes from the task of a caller.
struct Direct {
    trunk: Arc<Trunk>,
    place: Place,
}

impl Shortcut for Direct {
    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let written = (self.trunk).try_now(|state, both| state.write_now(self.place, both, slices));
        // Whoever is at the stream may read much: a driver can wait for that, a caller goes on.
        written.unwrap_or_else(|| Err(io::ErrorKind::WouldBlock.into()))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.trunk.leave(self.place);
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("id", &super::ID[self.place])
            .finish_non_exhaustive()
    }
}
