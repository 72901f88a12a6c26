//! The shared stream.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::BytesMut;
use tokio::time::Instant;
use ttrpc_keepalive::transport::{Look, Transport};
use ttrpc_keepalive::{ConnectionError, PeerCredentials};

use super::incoming::{HEADER, Incoming};
use super::outgoing::Outgoing;
use super::wakers::Wakers;

/// Connections on a stream.
pub(super) const SIDES: usize = 2;

/// Which one of them.
pub(super) type Place = usize;

/// How long one connection waits until the other takes what has come for it. Without a pause all that
/// comes in a moment in which the other does not run would have to be held here.
const PATIENCE: Duration = Duration::from_millis(100);

/// The rest of a piece that is left in the kernel for the connection that it is for: it reads that to
/// where it is needed.
const LONG: usize = 4096;

/// Reads that bring nothing for the connection that reads.
const STEPS: usize = 16;

/// What both connections share.
pub(super) struct Trunk {
    state: Mutex<State>,
    wakers: Arc<Wakers>,
    /// `wakers` as what the stream is polled with.
    both: Waker,
    pub(super) peer_credentials: Option<PeerCredentials>,
    pub(super) remote_address: Option<SocketAddr>,
}

pub(super) struct State {
    /// `None` behind the end.
    transport: Option<Box<dyn Transport>>,
    incoming: Incoming,
    outgoing: Outgoing,
    /// When the process at the other end gave a sign of life.
    heard: Option<Instant>,
    /// The stream took no byte when it was last offered some.
    refused: bool,
    /// What a write has met that was not the owner's.
    write_error: Option<io::Error>,
    /// The peer has closed the stream.
    is_ended: bool,
    /// Why the connections end.
    end: Option<ConnectionError>,
    left: [bool; SIDES],
    /// Who has not come for what waits for it.
    absent: [bool; SIDES],
    /// Since when one waits for the other.
    waits_since: Option<Instant>,
    /// The stream has been told how it ends.
    is_over: bool,
    has_entered: bool,
    wakes: [bool; SIDES],
}

/// What a read has brought.
pub(super) enum Read {
    Done(Poll<io::Result<usize>>),
    /// The other connection has its turn, until then.
    Wait(Instant),
}

impl Trunk {
    pub(super) fn new(transport: Box<dyn Transport>, limit: usize) -> Arc<Self> {
        let wakers = Arc::new(Wakers::default());
        Arc::new(Self {
            peer_credentials: transport.peer_credentials(),
            remote_address: transport.remote_address(),
            state: Mutex::new(State {
                transport: Some(transport),
                incoming: Incoming::new(limit),
                outgoing: Outgoing::default(),
                heard: None,
                refused: false,
                write_error: None,
                is_ended: false,
                end: None,
                left: [false; SIDES],
                absent: [true; SIDES],
                waits_since: None,
                is_over: false,
                has_entered: false,
                wakes: [false; SIDES],
            }),
            both: Waker::from(Arc::clone(&wakers)),
            wakers,
        })
    }

    /// For a poll of one connection. What it leaves to wake is woken behind the lock.
    pub(super) fn poll<R>(
        &self,
        place: Place,
        cx: &Context<'_>,
        poll: impl FnOnce(&mut State, &mut Context<'_>) -> R,
    ) -> R {
        self.wakers.set(place, cx);
        self.with(|state| poll(state, &mut Context::from_waker(&self.both)))
    }

    pub(super) fn with<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.lock();
        let result = act(&mut state);
        let wakes = std::mem::take(&mut state.wakes);
        drop(state);
        for (place, wakes) in wakes.into_iter().enumerate() {
            if wakes {
                self.wakers.wake(place);
            }
        }
        result
    }

    pub(super) fn leave(&self, place: Place) {
        self.wakers.forget(place);
        // Dropped behind the lock.
        let _transport = self.with(|state| {
            state.leave(place);
            let nobody = state.left.iter().all(|left| *left);
            nobody.then(|| state.transport.take())
        });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn other(place: Place) -> Place {
    1 - place
}

fn gone() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

impl State {
    pub(super) fn read(
        &mut self,
        place: Place,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
        limit: usize,
    ) -> Read {
        self.absent[place] = false;
        if let Err(error) = self.push(cx) {
            // The next write meets it.
            self.write_error = Some(error);
        }
        let read = self.read_some(place, cx, buffer, limit);
        if self.waits_since.is_some() && !self.must_wait_for(place) {
            self.waits_since = None;
            self.wakes[other(place)] = true;
        }
        read
    }

    fn read_some(
        &mut self,
        place: Place,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
        limit: usize,
    ) -> Read {
        if self.incoming.waits_for(place) {
            return Read::Done(Poll::Ready(Ok(self.incoming.read(place, buffer, limit))));
        }
        for _ in 0..STEPS {
            if let Some(end) = &self.end {
                return Read::Done(Poll::Ready(Err(end.clone().into())));
            }
            if self.is_ended {
                return Read::Done(Poll::Ready(Ok(0)));
            }
            let now = Instant::now();
            if self.must_wait_for(other(place)) {
                let since = *self.waits_since.get_or_insert(now);
                if now < since + PATIENCE {
                    self.wakes[other(place)] = true;
                    return Read::Wait(since + PATIENCE);
                }
                self.absent[other(place)] = true;
                self.waits_since = None;
            }
            let remaining = self.incoming.remaining(place);
            // The header behind it comes with it.
            let most = match remaining {
                LONG.. => limit.min(remaining + HEADER),
                _ => limit,
            };
            let start = buffer.len();
            let Some(transport) = &mut self.transport else {
                return Read::Done(Poll::Ready(Err(gone())));
            };
            match transport.poll_read(cx, buffer, most) {
                Poll::Pending => return Read::Done(Poll::Pending),
                Poll::Ready(Err(error)) => return Read::Done(Poll::Ready(Err(error))),
                Poll::Ready(Ok(0)) => {
                    self.is_ended = true;
                    if self.incoming.is_mid_piece() {
                        self.end = Some(ConnectionError::Torn);
                    }
                    self.wakes[other(place)] = true;
                }
                Poll::Ready(Ok(_)) => {
                    self.heard = Some(now);
                    if let Err(error) = self.incoming.take(place, buffer, start) {
                        self.end = Some(io::Error::from(error).into());
                        self.wakes[other(place)] = true;
                    }
                    self.wakes[other(place)] |= self.incoming.waits_for(other(place));
                    let own = buffer.len() - start;
                    if own > 0 {
                        return Read::Done(Poll::Ready(Ok(own)));
                    }
                }
            }
        }
        self.wakes[place] = true;
        Read::Done(Poll::Pending)
    }

    /// Whether what comes next is for this connection, and it will come for it.
    fn must_wait_for(&self, place: Place) -> bool {
        !self.left[place]
            && !self.absent[place]
            && (self.incoming.waits_for(place) || self.incoming.remaining(place) > LONG)
    }

    pub(super) fn write(
        &mut self,
        place: Place,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Some(end) = &self.end {
            return Poll::Ready(Err(end.clone().into()));
        }
        self.push(cx)?;
        if self.outgoing.holds(place) {
            return Poll::Pending;
        }
        let taken = self.outgoing.take(place, slices);
        if let Err(error) = self.push(cx) {
            self.write_error = Some(error);
        }
        Poll::Ready(Ok(taken))
    }

    pub(super) fn flush(&mut self, place: Place, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(end) = &self.end {
            return Poll::Ready(Err(end.clone().into()));
        }
        self.push(cx)?;
        if self.outgoing.holds(place) {
            return Poll::Pending;
        }
        match &mut self.transport {
            Some(transport) => transport.poll_flush(cx),
            None => Poll::Ready(Err(gone())),
        }
    }

    /// Writes what was taken of both.
    fn push(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if let Some(error) = self.write_error.take() {
            return Err(error);
        }
        while !self.outgoing.pieces().is_empty() {
            let transport = self.transport.as_mut().ok_or_else(gone)?;
            let now = Instant::now();
            match transport.poll_write(cx, &[IoSlice::new(self.outgoing.pieces())]) {
                Poll::Pending => {
                    self.refused = true;
                    return Ok(());
                }
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(written) => self.handle_written(now, written?),
            }
        }
        Ok(())
    }

    fn handle_written(&mut self, now: Instant, length: usize) {
        if std::mem::take(&mut self.refused) {
            self.heard = Some(now);
        }
        let held = [self.outgoing.holds(0), self.outgoing.holds(1)];
        self.outgoing.advance(length);
        for place in 0..SIDES {
            self.wakes[place] |= held[place] && !self.outgoing.holds(place);
        }
    }

    pub(super) fn look(&mut self, place: Place, cx: &mut Context<'_>) -> Poll<Look> {
        if self.incoming.waits_for(place) || self.is_ended || self.end.is_some() {
            return Poll::Ready(Look::Readable);
        }
        match &mut self.transport {
            Some(transport) => transport.poll_look(cx),
            None => Poll::Ready(Look::Readable),
        }
    }

    pub(super) fn heard(&self) -> Option<std::time::Instant> {
        self.heard.map(Instant::into_std)
    }

    pub(super) fn enter(&mut self) -> io::Result<()> {
        if self.has_entered {
            return Ok(());
        }
        self.has_entered = true;
        self.wakes = [true; SIDES];
        self.transport.as_mut().ok_or_else(gone)?.enter()
    }

    /// One connection has ended. An end of its own is that of the stream only if both have.
    pub(super) fn handle_end(&mut self, place: Place, end: &ConnectionError) {
        let own = matches!(
            end,
            ConnectionError::LocalClose | ConnectionError::Abandoned
        );
        self.leave(place);
        if !own && self.end.is_none() {
            self.end = Some(end.clone());
        }
        if self.closes() {
            let end = self.end.get_or_insert_with(|| end.clone());
            if let Some(transport) = &mut self.transport {
                if !std::mem::replace(&mut self.is_over, true) {
                    transport.handle_end(end);
                }
            }
        }
    }

    fn leave(&mut self, place: Place) {
        self.left[place] = true;
        self.incoming.drop_for(place);
        self.wakes[other(place)] = true;
    }

    /// Whether the stream ends with this connection.
    fn closes(&self) -> bool {
        self.end.is_some() || self.left.iter().all(|left| *left)
    }

    pub(super) fn shutdown(&mut self, place: Place, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.push(cx)?;
        if self.outgoing.holds(place) {
            return Poll::Pending;
        }
        match &mut self.transport {
            Some(transport) if self.end.is_some() => transport.poll_shutdown(cx),
            _ => Poll::Ready(Ok(())),
        }
    }

    pub(super) fn abort(&mut self) {
        if self.closes() {
            if let Some(mut transport) = self.transport.take() {
                transport.abort();
            }
        }
    }
}
