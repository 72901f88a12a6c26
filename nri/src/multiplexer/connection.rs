//! One of the two connections.

use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio::time::Sleep;
use ttrpc_keepalive::transport::{Look, Transport};
use ttrpc_keepalive::{ConnectionError, PeerCredentials};

use super::trunk::{Place, Read, Trunk};

/// One of the two connections on a shared stream: a [`Transport`] for a client or a server.
pub struct Connection {
    trunk: Arc<Trunk>,
    place: Place,
    /// How long it waits for the other one.
    patience: Option<Pin<Box<Sleep>>>,
}

impl Connection {
    pub(super) fn new(trunk: &Arc<Trunk>, place: Place) -> Self {
        Self {
            trunk: Arc::clone(trunk),
            place,
            patience: None,
        }
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
            let read = (self.trunk).poll(place, cx, |state, both| {
                state.read(place, both, buffer, limit)
            });
            let until = match read {
                Read::Done(read) => return read,
                Read::Wait(until) => until,
            };
            let timer =
                (self.patience).get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
            if timer.deadline() < until {
                timer.as_mut().reset(until);
            }
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let place = self.place;
        (self.trunk).poll(place, cx, |state, both| state.write(place, both, slices))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let place = self.place;
        (self.trunk).poll(place, cx, |state, both| state.flush(place, both))
    }

    fn poll_look(&mut self, cx: &mut Context<'_>) -> Poll<Look> {
        let place = self.place;
        (self.trunk).poll(place, cx, |state, both| state.look(place, both))
    }

    fn last_heard(&self) -> Option<std::time::Instant> {
        self.trunk.with(|state| state.heard())
    }

    fn peer_credentials(&self) -> Option<PeerCredentials> {
        self.trunk.peer_credentials
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
        (self.trunk).poll(place, cx, |state, both| state.shutdown(place, both))
    }

    fn abort(&mut self) {
        self.trunk.with(|state| state.abort());
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
