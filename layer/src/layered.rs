//! The stream around the stream.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, SystemTime};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;
use ttrpc_keepalive::keepalive::{ConfigError, Keepalive, Machine, Role};
use ttrpc_keepalive::wire::{Flags, Header, MessageType};
use ttrpc_keepalive::{ConnectionError, Liveness, Publisher, Traffic};

use self::kernel::Kernel;
use crate::calls::Calls;
use crate::incoming::Incoming;
use crate::outgoing::Outgoing;
use crate::timeout::TimeoutScan;
use crate::wakers::{Turn, Wakers};

mod kernel;
mod reading;
mod telling;
mod writing;

pub use telling::dead_reason;

/// A byte stream with a keepalive inside: see the [front page](crate).
pub struct Layered<S> {
    stream: Pin<Box<S>>,
    role: Role,
    machine: Machine,
    publisher: Publisher,
    traffic: Traffic,
    calls: Calls,
    incoming: Incoming,
    outgoing: Outgoing,
    /// The REQUEST of a client that is passing.
    request: Option<Passing>,
    /// The highest id of a REQUEST that has passed.
    newest_request: u32,

    wakers: Arc<Wakers>,
    /// `wakers` as what a stream is polled with.
    both: Waker,
    timer: Option<Pin<Box<Sleep>>>,
    /// When the timer fires. It is set earlier but never later.
    armed: Option<Duration>,
    look: Looking,

    blocked: Option<By>,
    last_offered: Option<Duration>,
    last_taken: Option<Duration>,
    /// The stream may hold back a PING or PONG that it took.
    unflushed: bool,
    /// A PING was written to a stream that may hold it back.
    ping_unflushed: bool,
    newest_ping: u64,

    /// Where it tells what the peer's process reads.
    kernel: Option<Kernel<S>>,

    /// Reading has come to the end.
    ended: bool,
    end: Option<ConnectionError>,
}

struct Passing {
    id: u32,
    scan: TimeoutScan,
}

/// What the stream refused when it was last asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// It took no byte.
    Write,
    /// It took all, and cannot pass on what it holds.
    Flush,
}

/// How far a look has come that is due.
enum Looking {
    No,
    /// One turn of the scheduler, in which bytes may arrive that a read has not seen.
    Yielding(Arc<Turn>),
    /// So many polls have found bytes since it was due.
    Reading(u32),
}

/// Whether this is the last frame of a server on its stream.
fn is_last(header: Header) -> bool {
    match header.message_type {
        MessageType::DATA => header.flags.contains(Flags::REMOTE_CLOSED),
        other => other == MessageType::RESPONSE,
    }
}

impl<S: AsyncRead + AsyncWrite> Layered<S> {
    /// Wraps the stream of a ttrpc client. `keepalive` says what is asked, and when.
    ///
    /// # Errors
    ///
    /// The first setting that is out of range.
    pub fn client(stream: S, keepalive: &Keepalive) -> Result<Self, ConfigError> {
        Self::new(stream, keepalive, Role::Client)
    }

    /// Wraps the stream of one connection of a ttrpc server. It sends no PING before it has
    /// received one (RFC KA-28).
    ///
    /// # Errors
    ///
    /// The first setting that is out of range.
    pub fn server(stream: S, keepalive: &Keepalive) -> Result<Self, ConfigError> {
        Self::new(stream, keepalive, Role::Server)
    }

    fn new(stream: S, keepalive: &Keepalive, role: Role) -> Result<Self, ConfigError> {
        keepalive.validate()?;
        // A process that was forked has the keys of its parent.
        let moment = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .ok();
        let seed = RandomState::new().hash_one((std::process::id(), moment));
        let mut machine = Machine::new(keepalive, role, seed);
        machine.handle_connected(Duration::ZERO);
        let wakers = Arc::new(Wakers::default());
        Ok(Self {
            stream: Box::pin(stream),
            role,
            publisher: Publisher::new(&machine),
            machine,
            traffic: Traffic::default(),
            calls: Calls::new(keepalive),
            incoming: Incoming::new(role),
            outgoing: Outgoing::default(),
            request: None,
            newest_request: 0,
            both: Waker::from(Arc::clone(&wakers)),
            wakers,
            timer: None,
            armed: None,
            look: Looking::No,
            blocked: None,
            last_offered: None,
            last_taken: None,
            unflushed: false,
            ping_unflushed: false,
            newest_ping: 0,
            kernel: None,
            ended: false,
            end: None,
        })
    }
}

impl<S> Layered<S> {
    /// Follows what is known about the peer. To be asked for before the stream is given away.
    pub fn liveness(&self) -> Liveness {
        self.publisher.liveness()
    }
}

impl<S: AsyncRead + AsyncWrite> AsyncRead for Layered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.ended {
            this.incoming.end(out);
            return Poll::Ready(Ok(()));
        }
        this.check()?;
        this.wakers.set_reader(cx);
        this.turn(cx, out)
    }
}

impl<S: AsyncRead + AsyncWrite> AsyncWrite for Layered<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        this.check()?;
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        this.wakers.set_writer(cx);
        let written = this.write(bytes);
        this.settle_write()?;
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.check()?;
        this.wakers.set_writer(cx);
        let flushed = this.flush_all();
        this.settle_write()?;
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.outgoing.close();
        ready!(self.as_mut().poll_flush(cx))?;
        let this = &mut *self;
        let mut both = Context::from_waker(&this.both);
        this.stream.as_mut().poll_shutdown(&mut both)
    }
}
