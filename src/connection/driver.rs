//! The driver: the one task that owns a connection.
//!
//! Each turn it reads the clock once, takes what handles want, reads, writes, asks the kernel
//! before it holds silence against the peer, and sleeps until the earliest deadline. Nothing in it
//! waits for anything else: reading never waits for a consumer, and on a client never for writing.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Sleep;

mod extra_turn;
mod reading;
mod telling;

use self::extra_turn::ExtraTurn;
use self::reading::Reading;
use super::give_way::give_way;
use super::reader::Reader;
use super::side::{Side, Turn};
use super::writer::{Link, Writer};
use super::{Closing, Shared};
use crate::error::ConnectionError;
use crate::keepalive::{Keepalive, Look, Machine, Role};
use crate::transport::{self, Transport};

/// Reads and writes in one turn, each: a peer that sends without end must not keep the driver from
/// its deadlines, nor other tasks from the thread.
pub(super) const STEPS: usize = 16;

/// Turns before a look is over although there still is something to read. What the kernel held when
/// the look was due has been read by then; a peer that sends without end would otherwise keep every
/// deadline from being seen, and so would a transport whose reads do not find what its looks do.
const PATIENCE: u32 = 16;

/// After a look that lasted so long and whose reads found nothing. What was due then still is, and
/// would keep a core busy.
const REST: Duration = Duration::from_millis(10);

/// Owns one connection from its beginning to its end. As a future it yields why it ended.
///
/// # Cancel safety
///
/// Dropping it ends the connection.
pub(crate) struct Driver<S: Side> {
    transport: Box<dyn Transport>,
    reader: Reader,
    writer: Writer,
    machine: Machine,
    side: S,
    shared: Arc<Shared<S::Command>>,
    /// Kept so that taking commands needs no memory.
    commands: Vec<S::Command>,
    timer: Pin<Box<Sleep>>,
    /// When the timer fires. It is set earlier but never later: a deadline that moves away costs
    /// one turn that finds nothing, instead of a timer operation for each frame.
    armed: Option<Duration>,
    last_run: Duration,
    /// The number of the newest PING; 0 before the first.
    newest_ping: u64,
    /// One turn of the scheduler, in which bytes may arrive that a read has not seen.
    extra_turn: Option<Arc<ExtraTurn>>,
    /// How many such turns have passed since the look was due.
    yields: u32,
    /// Until then no deadline wakes this task.
    rest_until: Duration,
    parked: bool,
    closing: Closing,
    pongs_coalesced: u64,
    /// Frames that this turn has taken.
    frames: usize,
    ended: bool,
}

/// What came of asking the kernel.
enum Looked {
    /// It holds nothing more that was there when the look was due.
    Drained,
    /// The look has lasted long enough, and there still is something: nothing is held against the
    /// peer, and nothing else waits.
    Undecided,
    /// Bytes may have come: read again after a turn of the scheduler.
    Yield,
    /// The transport answers later, and wakes the driver.
    Wait,
}

/// What a turn wants next.
enum Next {
    Turn,
    Sleep,
}

impl<S: Side> Driver<S> {
    pub(crate) fn new(
        transport: Box<dyn Transport>,
        side: S,
        keepalive: &Keepalive,
        clock: crate::clock::Clock,
        seed: u64,
    ) -> Self {
        let mut machine = Machine::new(keepalive, S::ROLE, seed);
        machine.handle_connected(Duration::ZERO);
        let shared = Arc::new(Shared::new(clock, &machine, &*transport));
        Self {
            transport,
            reader: Reader::default(),
            writer: Writer::default(),
            machine,
            side,
            shared,
            commands: Vec::new(),
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            armed: None,
            last_run: Duration::ZERO,
            newest_ping: 0,
            extra_turn: None,
            yields: 0,
            rest_until: Duration::ZERO,
            parked: false,
            closing: Closing::No,
            pongs_coalesced: 0,
            frames: 0,
            ended: false,
        }
    }

    /// Makes the connection end with this error, once what has been received is delivered.
    pub(super) fn fail(&mut self, error: io::Error) {
        self.writer.fail(error);
    }

    pub(crate) fn shared(&self) -> &Arc<Shared<S::Command>> {
        &self.shared
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> Result<Next, ConnectionError> {
        let now = self.shared.clock.now();
        let previous_run = std::mem::replace(&mut self.last_run, now);
        self.frames = 0;
        // First, so that a call that ran out of time before this turn is not written by it.
        self.take_commands(cx, now);
        if self.closing == Closing::Now {
            return Err(ConnectionError::LocalClose);
        }
        self.side.handle_run(previous_run, now);
        self.machine.handle_run(now, self.side.shortest_lead());

        let write_failed = self.writer.has_failed();
        let reading = self.read(cx, now)?;
        if write_failed {
            // All that the peer sent before it stopped reading is delivered first.
            match self.drained(cx, reading) {
                Looked::Yield => return Ok(self.yield_now(cx)),
                Looked::Wait => return Ok(Next::Sleep),
                Looked::Drained | Looked::Undecided => {}
            }
            if let Some(error) = self.writer.take_failure() {
                return Err(error);
            }
        }
        if S::ROLE == Role::Server {
            // Handlers that were polled within this turn have answered.
            self.take_commands(cx, now);
        }
        self.with_side(now, |side, turn| side.handle_unsent(turn));
        self.queue_ping(now);
        let mut wrote_all = self.write(cx, now);

        if self.machine.look_due(now) || self.side.look_due(now) {
            match self.look(cx, now, reading) {
                Looked::Drained | Looked::Undecided => {
                    // A call that is late at the very look that convicts fails with its connection.
                    self.publish(now)?;
                    self.with_side(now, |side, turn| side.handle_look(turn));
                }
                Looked::Yield => return Ok(self.yield_now(cx)),
                Looked::Wait => return Ok(Next::Sleep),
            }
        }
        self.yields = 0;
        self.machine.handle_timeout(now);
        self.with_side(now, |side, turn| side.ask(turn));
        if self.queue_ping(now) {
            wrote_all &= self.write(cx, now);
        }

        self.publish(now)?;
        // Requests that were read are answered, if only that they come too late.
        let has_read_all = S::ROLE == Role::Client || reading != Reading::More;
        let drained = self.closing == Closing::Drained && self.side.is_idle();
        if drained && has_read_all && self.may_close() {
            return Err(ConnectionError::LocalClose);
        }
        // What ended parking may have been written after this turn's read.
        let resumed = reading == Reading::Parked && !self.park(now);
        let failed = self.writer.has_failed();
        if reading == Reading::More || resumed || failed || !wrote_all {
            return Ok(Next::Turn);
        }
        Ok(self.sleep(cx, now))
    }

    /// Answers are sent before a server closes, those too that its stream still holds back. A
    /// client whose handles are gone owes nothing, and must not wait for a peer that does not read.
    fn may_close(&self) -> bool {
        match S::ROLE {
            Role::Client => true,
            Role::Server => self.writer.is_flushed() && self.shared.desk().outbox.is_empty(),
        }
    }

    fn with_side(&mut self, now: Duration, run: impl FnOnce(&mut S, &mut Turn<'_, S::Command>)) {
        let (_, side, mut turn) = self.parts(now);
        run(side, &mut turn);
    }

    /// What was read, whom it is for, and what that one may use.
    fn parts(&mut self, now: Duration) -> (&mut Reader, &mut S, Turn<'_, S::Command>) {
        let turn = Turn {
            now,
            closing: self.closing != Closing::No,
            parked: self.parked,
            machine: &mut self.machine,
            shared: &self.shared,
        };
        (&mut self.reader, &mut self.side, turn)
    }

    /// Takes what handles have left on the desk.
    fn take_commands(&mut self, cx: &Context<'_>, now: Duration) {
        {
            let mut desk = self.shared.desk();
            desk.notified = false;
            desk.awake = true;
            if !desk
                .waker
                .as_ref()
                .is_some_and(|waker| waker.will_wake(cx.waker()))
            {
                desk.waker = Some(cx.waker().clone());
            }
            std::mem::swap(&mut desk.commands, &mut self.commands);
            desk.outbox.admit();
            self.closing = desk.closing;
        }
        let mut commands = std::mem::take(&mut self.commands);
        for command in commands.drain(..) {
            self.with_side(now, |side, turn| side.handle_command(command, turn));
        }
        self.commands = commands;
    }

    /// Puts the PING that the rules want into its slot.
    fn queue_ping(&mut self, now: Duration) -> bool {
        let Some(number) = self.machine.poll_ping(now) else {
            return false;
        };
        self.newest_ping = number;
        self.shared.desk().outbox.set_ping(number);
        true
    }

    fn write(&mut self, cx: &mut Context<'_>, now: Duration) -> bool {
        let mut link = Link {
            now,
            transport: &mut *self.transport,
            machine: &mut self.machine,
            shared: &self.shared,
        };
        self.writer.write(cx, &mut link)
    }

    /// Asks whether the kernel holds bytes that a read has not found.
    fn drained(&mut self, cx: &mut Context<'_>, reading: Reading) -> Looked {
        match reading {
            Reading::Parked => Looked::Drained,
            Reading::More => self.patience(),
            Reading::Drained => match self.transport.poll_look(cx) {
                Poll::Ready(transport::Look::Empty) => Looked::Drained,
                Poll::Ready(transport::Look::Blind) if self.yields > 0 => match &self.extra_turn {
                    Some(turn) if !turn.is_over() => Looked::Wait,
                    _ => Looked::Drained,
                },
                Poll::Ready(_) => self.patience(),
                Poll::Pending => Looked::Wait,
            },
        }
    }

    fn patience(&self) -> Looked {
        if self.yields < PATIENCE {
            Looked::Yield
        } else {
            Looked::Undecided
        }
    }

    /// Asks the kernel before silence is held against the peer: *the timer fired* is not *the peer
    /// was silent*. `now` was read before.
    fn look(&mut self, cx: &mut Context<'_>, now: Duration, reading: Reading) -> Looked {
        let mut link = Link {
            now,
            transport: &mut *self.transport,
            machine: &mut self.machine,
            shared: &self.shared,
        };
        let write_refused = self.writer.offer(&mut link);
        let looked = self.drained(cx, reading);
        let drained = match looked {
            Looked::Drained => true,
            Looked::Undecided => {
                if reading == Reading::Drained {
                    self.rest_until = now.saturating_add(REST);
                }
                false
            }
            Looked::Yield | Looked::Wait => return looked,
        };
        let look = Look {
            drained,
            write_refused,
        };
        self.machine.handle_look(now, look);
        looked
    }

    /// Gives the scheduler one turn: a look that is due then reads again, with a clock read anew.
    fn yield_now(&mut self, cx: &Context<'_>) -> Next {
        self.yields = self.yields.saturating_add(1);
        self.extra_turn = Some(ExtraTurn::begin(cx.waker()));
        Next::Sleep
    }

    /// Sets the timer to the earliest deadline of all, and tells handles what they may do alone.
    fn sleep(&mut self, cx: &mut Context<'_>, now: Duration) -> Next {
        let rules = self.machine.poll_timeout();
        let side = self.side.next_run(now);
        let next = rules.into_iter().chain(side).min();
        let next = next.map(|next| next.max(self.rest_until));
        let earlier = next.filter(|next| self.armed.is_none_or(|armed| *next < armed));
        if let Some(at) = earlier.and_then(|next| self.shared.clock.instant(next)) {
            self.timer.as_mut().reset(at);
            self.armed = earlier;
        }
        if self.armed.is_some() && self.timer.as_mut().poll(cx).is_ready() {
            self.armed = None;
            return Next::Turn;
        }
        let mut desk = self.shared.desk();
        // Who was answered together is about to call again together: one write carries all of it.
        let alone = self.frames <= 1;
        desk.direct = alone && self.writer.is_free() && self.machine.call_start_is_quiet();
        desk.wakes_at = self.armed;
        Next::Sleep
    }
}

/// Nothing in it is pinned in place: its timer and futures have their own boxes.
impl<S: Side> Unpin for Driver<S> {}

impl<S: Side> Future for Driver<S> {
    type Output = ConnectionError;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ConnectionError> {
        let this = &mut *self;
        let turned = this.turn(cx);
        // After all that makes room in a turn: a call that looked earlier has found none.
        let called = this.shared.end_turn();
        match turned {
            Ok(Next::Sleep) if !called => Poll::Pending,
            Ok(_) => {
                give_way(cx);
                Poll::Pending
            }
            Err(end) => {
                let announced = this.shared.desk().announced;
                let end = if announced { end.announced() } else { end };
                this.end(&end);
                Poll::Ready(end)
            }
        }
    }
}

impl<S: Side> Drop for Driver<S> {
    fn drop(&mut self) {
        if !self.ended {
            self.end(&ConnectionError::Abandoned);
        }
    }
}
