//! The shared stream.

use std::io::{self, ErrorKind};
use std::mem;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::BytesMut;
use tokio::time::Instant;
use ttrpc_keepalive::transport::{Look, Transport};
use ttrpc_keepalive::{ConnectionError, PeerCredentials, PeerProcess};

mod ending;
mod writing;

use super::incoming::{HEADER, Incoming};
use super::outgoing::Outgoing;
use super::wakers::{Driver, Wakers};

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

/// How long a connection that has nothing to do leaves the stream to one that has. That one may be stuck:
/// its thread may be blocked by who knows what.
const STANDBY: Duration = Duration::from_millis(10);

/// So much is read for the other connection in advance.
const WAITING: usize = 64 << 10;

/// Pieces in a burst, beside those of one turn. Go's multiplexer holds 256 for a connection and closes the
/// stream with the next, though its reader is only a little slower than the bytes come.
const BURST: usize = 64;

/// When a burst is over that the peer has not answered.
const PAUSE: Duration = Duration::from_millis(1);

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
    /// The pieces of the present burst, and when it had become one.
    burst: (usize, Option<Instant>),
    /// Who waits until its turn has left.
    waits: [bool; SIDES],
    /// What a write has met that was not the owner's.
    write_error: Option<io::Error>,
    /// The peer has closed the stream, between two pieces.
    is_ended: bool,
    /// Why the connections end.
    end: Option<ConnectionError>,
    left: [bool; SIDES],
    /// Who has not come for what waits for it.
    absent: [bool; SIDES],
    /// Who waits for the other one, and since when that has not come.
    waiting: Option<(Place, Instant)>,
    /// The stream has been told how it ends.
    is_told: bool,
    /// It has said farewell.
    is_shut: bool,
    has_entered: bool,
    /// Reads that brought something.
    reads: u64,
    /// The last one that brought something for each connection.
    brought: [u64; SIDES],
    /// Who has read since the other one last looked after it.
    came: [bool; SIDES],
    /// The last one of which each connection knows.
    known: [u64; SIDES],
    wakes: [bool; SIDES],
}

/// What has become of a read or a write.
pub(super) enum Moved {
    Done(io::Result<usize>),
    /// Nothing. The waker is called.
    Pending,
    /// Nothing, before this time or a wake-up.
    Until(Instant),
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
                burst: (0, None),
                waits: [false; SIDES],
                write_error: None,
                is_ended: false,
                end: None,
                left: [false; SIDES],
                absent: [true; SIDES],
                waiting: None,
                is_told: false,
                is_shut: false,
                has_entered: false,
                reads: 0,
                brought: [0; SIDES],
                came: [false; SIDES],
                known: [0; SIDES],
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
        known: &mut Driver,
        cx: &Context<'_>,
        poll: impl FnOnce(&mut State, &mut Context<'_>) -> R,
    ) -> R {
        self.wakers.set(place, known, cx);
        self.with(|state| poll(state, &mut Context::from_waker(&self.both)))
    }

    /// For a caller that is no task of the stream's. `None` if somebody else is at it.
    pub(super) fn try_now<R>(
        &self,
        act: impl FnOnce(&mut State, &mut Context<'_>) -> R,
    ) -> Option<R> {
        let state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(self.act(state, |state| {
            act(state, &mut Context::from_waker(&self.both))
        }))
    }

    /// It is not woken for what comes, and polls by itself.
    pub(super) fn stand_by(&self, place: Place, known: &mut Driver) {
        self.wakers.stand_by(place, known);
    }

    pub(super) fn with<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        self.act(self.lock(), act)
    }

    /// What is to be woken is woken behind the lock.
    fn act<R>(&self, mut state: MutexGuard<'_, State>, act: impl FnOnce(&mut State) -> R) -> R {
        let result = act(&mut state);
        let wakes = mem::take(&mut state.wakes);
        drop(state);
        for (place, wakes) in wakes.into_iter().enumerate() {
            if wakes {
                self.wakers.wake(place);
            }
        }
        result
    }

    /// A connection is dropped. With the last one goes the stream, though a handle that could write may
    /// live on.
    pub(super) fn leave(&self, place: Place) {
        self.wakers.forget(place);
        let stream = self.with(|state| {
            state.leave(place);
            state.end_for_nobody()
        });
        drop(stream);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn other(place: Place) -> Place {
    1 - place
}

fn gone() -> io::Error {
    ErrorKind::NotConnected.into()
}

impl State {
    pub(super) fn read(
        &mut self,
        place: Place,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
        limit: usize,
    ) -> Moved {
        self.absent[place] = false;
        self.came[place] = true;
        // What was taken of a connection that does not write now leaves all the same.
        self.push_for_all(place, cx);
        let read = self.read_some(place, cx, buffer, limit);
        if let Some((waiter, _)) = self.waiting.filter(|(waiter, _)| *waiter != place) {
            // It has come, and the wait begins anew or is over.
            let behind = self.must_wait_for(place);
            self.waiting = behind.then(|| (waiter, Instant::now()));
            self.wakes[waiter] |= !behind;
        }
        read
    }

    fn read_some(
        &mut self,
        place: Place,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
        limit: usize,
    ) -> Moved {
        if self.incoming.waiting(place) > 0 {
            return Moved::Done(Ok(self.incoming.read(place, buffer, limit)));
        }
        for _ in 0..STEPS {
            if self.is_ended {
                return Moved::Done(Ok(0));
            }
            if let Err(error) = self.check() {
                return Moved::Done(Err(error));
            }
            if self.must_wait_for(other(place)) {
                let now = Instant::now();
                let (_, since) = *self.waiting.get_or_insert((place, now));
                if now < since + PATIENCE {
                    self.wakes[other(place)] = true;
                    return Moved::Until(since + PATIENCE);
                }
                self.absent[other(place)] = true;
            }
            // It waits no more; the other one may.
            self.waiting = self.waiting.filter(|(waiter, _)| *waiter != place);
            let remaining = self.incoming.remaining(place);
            // The header behind it comes with it.
            let most = match remaining {
                LONG.. => limit.min(remaining + HEADER),
                _ => limit,
            };
            let start = buffer.len();
            let Some(transport) = &mut self.transport else {
                return Moved::Done(Err(gone()));
            };
            match transport.poll_read(cx, buffer, most) {
                Poll::Pending => {
                    self.outgoing.rest();
                    if self.stands_by(place) {
                        return Moved::Until(Instant::now() + STANDBY);
                    }
                    return Moved::Pending;
                }
                Poll::Ready(Err(error)) => return Moved::Done(Err(error)),
                Poll::Ready(Ok(0)) => {
                    if self.incoming.is_mid_piece() {
                        self.end = Some(ConnectionError::Torn);
                    }
                    self.is_ended = self.end.is_none();
                    self.wakes[other(place)] = true;
                }
                Poll::Ready(Ok(_)) => {
                    // No PING can have left since the read: whoever writes waits for the lock.
                    self.heard = Some(Instant::now());
                    self.burst = (0, None);
                    self.reads += 1;
                    if let Err(error) = self.incoming.take(place, buffer, start) {
                        self.end = Some(io::Error::from(error).into());
                        self.wakes[other(place)] = true;
                    }
                    if self.incoming.waiting(other(place)) > 0 {
                        self.brought[other(place)] = self.reads;
                        self.wakes[other(place)] = true;
                    }
                    let own = buffer.len() - start;
                    if own > 0 {
                        self.brought[place] = self.reads;
                        return Moved::Done(Ok(own));
                    }
                }
            }
        }
        self.wakes[place] = true;
        Moved::Pending
    }

    /// Whether all that has come since this connection last asked was for the other one, which has read.
    fn stands_by(&mut self, place: Place) -> bool {
        let known = mem::replace(&mut self.known[place], self.reads);
        let came = mem::take(&mut self.came[other(place)]);
        came && self.brought[place] <= known && self.brought[other(place)] > known
    }

    /// Whether what comes next is for this connection, and it will come for it.
    fn must_wait_for(&self, place: Place) -> bool {
        !self.left[place]
            && !self.absent[place]
            && (self.incoming.waiting(place) > WAITING || self.incoming.remaining(place) > LONG)
    }

    /// The reason of the end, for whoever goes on.
    fn check(&self) -> io::Result<()> {
        match &self.end {
            Some(end) => Err(end.clone().into()),
            None => Ok(()),
        }
    }

    pub(super) fn look(&mut self, place: Place, cx: &mut Context<'_>) -> Poll<Look> {
        if self.incoming.waiting(place) > 0 || self.is_ended || self.end.is_some() {
            return Poll::Ready(Look::Readable);
        }
        // A write that was refused may be taken by now, and the reactor has not said so. An error is met
        // by the next write.
        let _ = self.offer_pieces();
        match &mut self.transport {
            Some(transport) => transport.poll_look(cx),
            None => Poll::Ready(Look::Readable),
        }
    }

    pub(super) fn heard(&self) -> Option<std::time::Instant> {
        self.heard.map(Instant::into_std)
    }

    pub(super) fn peer_process(&self) -> Option<PeerProcess> {
        self.transport.as_ref()?.peer_process()
    }

    pub(super) fn enter(&mut self) -> io::Result<()> {
        if self.has_entered {
            return Ok(());
        }
        self.has_entered = true;
        self.wakes = [true; SIDES];
        self.transport.as_mut().ok_or_else(gone)?.enter()
    }
}
