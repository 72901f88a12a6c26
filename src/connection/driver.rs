//! The driver: the one task that moves a connection's bytes.
//!
//! Each turn it reads the clock once, reads, lets the state apply what came, writes, asks the kernel
//! before silence is held against the peer, and sleeps until the earliest deadline. Nothing in it
//! waits for anything else: reading never waits for a consumer, and on a client never for writing.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Sleep;

mod extra_turn;
mod farewell;
mod reading;
mod share;
mod stage;
mod telling;
mod turn;
mod writing;

use self::extra_turn::ExtraTurn;
use self::share::Share;
use self::stage::Stage;
use self::turn::{Incoming, LookResult, Reading, Writing};
use super::effects::Effects;
use super::give_way::give_way;
use super::patience::{PeerLimits, Waits};
use super::reader::Reader;
use super::shared::Shared;
use super::side::SideDriver;
use super::state::{Closing, Rest, Side, SleepRequest};
use crate::error::ConnectionError;
use crate::keepalive::{Look, Unread};
use crate::liveness::Shown;
use crate::transport::{self, Transport};
use crate::tuning::{LOOK_PATIENCE, LOOK_PAUSE, LOOK_TURNS, REST_PATIENCE};

/// Moves the bytes of one connection from its beginning to its end. As a future it yields why it ended.
///
/// # Cancel safety
///
/// Dropping it ends the connection.
pub(crate) struct Driver<S: SideDriver> {
    transport: Box<dyn Transport>,
    reader: Reader,
    writing: Writing,
    side: S,
    shared: Arc<Shared<S::Side>>,
    /// Frames read and not applied yet. Kept so that the next one takes no memory.
    arrived: Vec<Incoming<<S::Side as Side>::Input>>,
    effects: Effects,
    timer: Pin<Box<Sleep>>,
    /// When the timer fires.
    armed: Option<Duration>,
    now: Duration,
    /// Frames that this turn has taken.
    frames: usize,
    /// Bytes that this turn has read.
    bytes: usize,
    share: Share,
    /// Whether something is to be judged that needs a look.
    look_due: bool,
    /// Whether reading waits until the peer takes what it is owed.
    parks: bool,
    /// Whether there is something to start.
    starts: bool,
    waits: Waits,
    /// One turn of the scheduler, in which bytes may arrive that a read has not seen.
    extra_turn: Option<Arc<ExtraTurn>>,
    /// How many such turns have passed since the look was due.
    yields: u32,
    /// Since when the transport has left a look unanswered.
    look_asked: Option<Duration>,
    /// Until then no deadline wakes this task.
    rest_until: Duration,
    /// Since when nothing can be written.
    failed_since: Option<Duration>,
    /// The state last told to watchers.
    shown: Shown,
    stage: Stage,
}

/// The driver's next step after a turn.
enum Next {
    Turn,
    Sleep,
}

impl<S: SideDriver> Driver<S> {
    pub(super) fn new(
        transport: Box<dyn Transport>,
        side: S,
        shared: Arc<Shared<S::Side>>,
    ) -> Self {
        let shown = Shown::of(&shared.lock().machine.view());
        Self {
            shown,
            transport,
            reader: Reader::default(),
            writing: Writing::default(),
            side,
            shared,
            arrived: Vec::new(),
            effects: Effects::default(),
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            armed: None,
            now: Duration::ZERO,
            frames: 0,
            bytes: 0,
            share: Share::default(),
            look_due: false,
            parks: false,
            starts: false,
            waits: Waits::new(PeerLimits::default()),
            extra_turn: None,
            yields: 0,
            look_asked: None,
            rest_until: Duration::ZERO,
            failed_since: None,
            stage: Stage::Open,
        }
    }

    /// Makes the connection end with this error, once what has been received is delivered.
    pub(super) fn fail(&mut self, error: io::Error) {
        self.writing.fail(error);
    }

    /// Ends the connection if the peer takes longer than this. Before the first turn.
    pub(super) fn limit_peer(&mut self, limits: PeerLimits) {
        self.waits = Waits::new(limits);
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> Result<Next, ConnectionError> {
        let now = self.shared.now();
        self.now = now;
        self.frames = 0;
        self.share.begin_turn(now);
        let (begun, closing) = {
            let mut state = self.shared.lock();
            let begun = state.begin_turn(now, cx.waker(), &mut self.effects);
            self.look_due = state.look_due(now) || self.waits.is_due(now);
            self.parks = !self.writing.has_failed() && state.park(now, &mut self.effects);
            self.starts = S::Side::has_starts(&state);
            (begun, state.closing())
        };
        self.effects.run();
        self.check_timer(cx, begun.moved);
        if closing == Closing::Now {
            return Err(ConnectionError::LocalClose);
        }
        self.side.handle_run(begun.acts);

        let write_failed = self.writing.has_failed();
        if write_failed {
            self.abandon();
        }
        let reading = match self.read(cx) {
            Err(end) if write_failed => return Err(self.writing.end_of(end)),
            reading => reading?,
        };
        self.start(cx, reading)?;
        if write_failed {
            // All that the peer sent before it stopped reading is delivered first.
            let looked = self.drained(cx, reading);
            if looked != LookResult::Drained && self.waits_for_rest() {
                return match looked {
                    LookResult::Wait => self.wait(cx),
                    LookResult::Yield => self.yield_now(cx),
                    _ if reading == Reading::More => self.yield_now(cx),
                    // The reactor has still to deliver what the kernel holds, or may have.
                    _ => self.pause(cx),
                };
            }
            if let Some(error) = self.writing.take_failure() {
                return Err(error);
            }
        }
        let wrote_all = self.write(cx);

        if self.look_due {
            match self.look(cx, reading) {
                // A call that is late at the very look that convicts fails with its connection.
                looked @ (LookResult::Drained
                | LookResult::Blind
                | LookResult::Undecided
                | LookResult::Unanswered) => {
                    self.tell()?;
                    let answered = matches!(looked, LookResult::Drained | LookResult::Blind);
                    let effects = &mut self.effects;
                    S::Side::end_late(&mut self.shared.lock(), now, answered, effects);
                    self.effects.run();
                    if reading == Reading::Parked {
                        self.waits.handle_parked(now);
                    } else if answered {
                        self.waits.judge(now)?;
                    }
                }
                LookResult::Yield => return self.yield_now(cx),
                LookResult::Wait => return self.wait(cx),
            }
        }
        self.yields = 0;
        self.look_asked = None;
        // The write that ended parking may have been written after this turn's read.
        let resumed = reading == Reading::Parked && !self.park();
        let goes_on = resumed || self.writing.has_failed() || !wrote_all;
        self.sleep(cx, None, goes_on, reading != Reading::More)
    }

    /// Whether there still is time for what the peer sent before nothing could be written any more.
    fn waits_for_rest(&mut self) -> bool {
        let since = *self.failed_since.get_or_insert(self.now);
        self.now.saturating_sub(since) < REST_PATIENCE
    }

    fn pause(&mut self, cx: &mut Context<'_>) -> Result<Next, ConnectionError> {
        self.yields = 0;
        self.arm(cx, self.now.saturating_add(LOOK_PAUSE));
        self.wait(cx)
    }

    /// Asks whether the kernel holds bytes that a read has not found. Where it cannot be asked, a turn
    /// of the scheduler is given to what may have come.
    fn drained(&mut self, cx: &mut Context<'_>, reading: Reading) -> LookResult {
        match reading {
            Reading::Parked => LookResult::Drained,
            Reading::More => self.patience(),
            Reading::Failed => LookResult::Undecided,
            Reading::Drained => match self.transport.poll_look(cx) {
                Poll::Ready(transport::Look::Empty) => LookResult::Drained,
                Poll::Ready(transport::Look::Blind) => {
                    self.extra_turn().unwrap_or(LookResult::Blind)
                }
                Poll::Ready(_) => self.patience(),
                Poll::Pending => self.await_look(cx),
            },
        }
    }

    /// One turn of the scheduler, if it is not over.
    fn extra_turn(&self) -> Option<LookResult> {
        match &self.extra_turn {
            Some(turn) if self.yields > 0 && !turn.is_over() => Some(LookResult::Wait),
            _ if self.yields == 0 => Some(LookResult::Yield),
            _ => None,
        }
    }

    /// The transport answers later: no later than is good for those who wait for what is judged by it.
    fn await_look(&mut self, cx: &mut Context<'_>) -> LookResult {
        let asked = *self.look_asked.get_or_insert(self.now);
        let until = asked.saturating_add(LOOK_PATIENCE);
        if self.now >= until {
            return self.extra_turn().unwrap_or(LookResult::Unanswered);
        }
        self.arm_by(cx, until);
        LookResult::Wait
    }

    /// When the process at the other end was last heard by whoever shares the stream with this
    /// connection.
    fn last_heard(&self) -> Option<Duration> {
        let heard = self.transport.last_heard()?;
        Some(self.shared.clock().at(heard))
    }

    fn patience(&self) -> LookResult {
        if self.yields < LOOK_TURNS {
            LookResult::Yield
        } else {
            LookResult::Undecided
        }
    }

    /// Asks the kernel before silence is held against the peer: *the timer fired* is not *the peer
    /// was silent*. The clock was read before.
    fn look(&mut self, cx: &mut Context<'_>, reading: Reading) -> LookResult {
        let write_refused = self.offer();
        // In this order: what a peer leaves unread that closes is gone when its end is found.
        let unread = self.unread();
        let looked = self.drained(cx, reading);
        if let LookResult::Yield | LookResult::Wait = looked {
            return looked;
        }
        if looked == LookResult::Undecided && reading != Reading::More {
            self.rest_until = self.now.saturating_add(LOOK_PAUSE);
        }
        let look = Look {
            drained: looked != LookResult::Undecided,
            write_refused,
            unread,
        };
        // Behind the look, which may have found bytes for others.
        let heard = self.last_heard();
        self.shared.lock().handle_look(self.now, heard, look);
        looked
    }

    /// Asks what the peer has not read of what was written. No handle writes meanwhile: this task is awake.
    fn unread(&self) -> Unread {
        let written = {
            let state = self.shared.lock();
            state.machine.asks_unread().then(|| state.written())
        };
        let Some(Some((written, written_at))) = written else {
            return Unread::NotAsked;
        };
        match self.transport.unread() {
            Some(held) => {
                if held > 0 {
                    // If nobody reads it a verdict will name who does not. One to whom the connection was
                    // handed on has to be looked for, which takes longer than a verdict waits.
                    let _ = self.shared.process_state(self.now);
                }
                Unread::Known {
                    held: u64::try_from(held).unwrap_or(u64::MAX),
                    written,
                    written_at,
                }
            }
            None => Unread::Unknown,
        }
    }

    /// Gives the scheduler one turn: a look that is due then reads again, with a clock read anew.
    fn yield_now(&mut self, cx: &mut Context<'_>) -> Result<Next, ConnectionError> {
        self.yields = self.yields.saturating_add(1);
        self.extra_turn = Some(ExtraTurn::begin(cx.waker()));
        self.wait(cx)
    }

    /// The look goes on when the driver is called.
    fn wait(&mut self, cx: &mut Context<'_>) -> Result<Next, ConnectionError> {
        self.sleep(cx, Some(self.now), false, true)
    }

    /// Sleeps until the earliest deadline of all, unless there is something to do.
    fn sleep(
        &mut self,
        cx: &mut Context<'_>,
        looks_since: Option<Duration>,
        goes_on: bool,
        has_read_all: bool,
    ) -> Result<Next, ConnectionError> {
        loop {
            let io = SleepRequest {
                now: self.now,
                armed: self.armed,
                due: self.waits.due(),
                rest_until: self.rest_until,
                looks_since,
                heard: self.last_heard(),
                goes_on,
                blocked: !self.writing.is_free(),
                flushed: self.writing.is_flushed(),
                has_read_all,
                alone: self.frames <= 1,
            };
            let (rest, starts) =
                self.tell_and(|state, _| (state.sleep(&io), S::Side::has_starts(state)))?;
            if starts {
                self.side.start(&self.shared);
            }
            match rest {
                Rest::Sleep => return Ok(Next::Sleep),
                Rest::Turn => return Ok(Next::Turn),
                Rest::End => return Err(ConnectionError::LocalClose),
                Rest::Arm(at) => self.arm(cx, at),
            }
        }
    }

    /// The driver is called at this time at the latest.
    fn arm_by(&mut self, cx: &mut Context<'_>, at: Duration) {
        if self.armed.is_none_or(|armed| at < armed) {
            self.arm(cx, at);
        }
    }

    fn arm(&mut self, cx: &mut Context<'_>, at: Duration) {
        // A time too far to be represented is never due.
        if let Some(instant) = self.shared.clock().instant(at) {
            self.timer.as_mut().reset(instant);
        }
        self.armed = Some(at);
        if self.timer.as_mut().poll(cx).is_ready() {
            // It has fired just now.
            cx.waker().wake_by_ref();
        }
    }

    /// Sees whether the timer has fired. It is polled when it is armed only, and when the task has
    /// `moved` to another waker: not at each turn.
    fn check_timer(&mut self, cx: &mut Context<'_>, moved: bool) {
        let fired = self.armed.is_some_and(|at| at <= self.now)
            || (moved && self.armed.is_some() && self.timer.as_mut().poll(cx).is_ready());
        if fired {
            self.armed = None;
        }
    }
}

/// Nothing in it is pinned in place: its timer and futures have their own boxes.
impl<S: SideDriver> Unpin for Driver<S> {}

impl<S: SideDriver> Future for Driver<S> {
    type Output = ConnectionError;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ConnectionError> {
        let this = &mut *self;
        if let Stage::Open = this.stage {
            match this.turn(cx) {
                Ok(Next::Sleep) => return Poll::Pending,
                Ok(Next::Turn) => {
                    give_way(cx);
                    return Poll::Pending;
                }
                Err(end) => this.end(end),
            }
        }
        this.poll_farewell(cx)
    }
}

impl<S: SideDriver> Drop for Driver<S> {
    fn drop(&mut self) {
        if let Stage::Open = self.stage {
            self.end(ConnectionError::Abandoned);
        }
        self.give_up();
    }
}
