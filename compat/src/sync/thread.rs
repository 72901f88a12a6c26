//! Who drives the connections, and waiting for that.
//!
//! All of them belong to one runtime, which one thread at a time drives: a caller that waits, for as long as
//! it does, so that no other thread has to be woken for its answer; else a thread that is there for that. It
//! takes over a moment after the last caller has left, and not at once: most are back by then.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::unconstrained;

/// For how long nobody drives after a caller has left. PINGs wait so long at most.
const PAUSE: Duration = Duration::from_millis(1);

struct Driven {
    runtime: Runtime,
    turns: Mutex<Turns>,
    /// The last caller has left, or somebody waits who does not drive.
    changed: Condvar,
}

/// Whose turn it is.
#[derive(Default)]
struct Turns {
    /// Callers that wait, each of which drives if nobody else does.
    callers: usize,
    /// When the last of them left. `None` if somebody waits for the thread to drive.
    left: Option<Instant>,
    thread: Driver,
}

/// What the thread does that is there to drive.
#[derive(Default)]
enum Driver {
    /// Waits until callers have left.
    #[default]
    Waits,
    /// Lets a moment pass.
    Pauses,
    /// Drives, until this is woken.
    Drives(Option<Waker>),
}

/// Set at the first use, and there as long as the process.
static DRIVEN: OnceLock<&Driven> = OnceLock::new();

/// The runtime that all connections belong to.
pub(super) fn runtime() -> io::Result<Handle> {
    static STARTING: Mutex<()> = Mutex::new(());
    let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(driven) = DRIVEN.get() {
        return Ok(driven.runtime.handle().clone());
    }
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let driven: &Driven = Box::leak(Box::new(Driven {
        runtime,
        turns: Mutex::default(),
        changed: Condvar::new(),
    }));
    let driver = thread::Builder::new().name("ttrpc".to_owned());
    driver.spawn(|| driven.drive())?;
    let driven = DRIVEN.get_or_init(|| driven);
    Ok(driven.runtime.handle().clone())
}

impl Driven {
    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the thread does.
    fn drive(&self) -> ! {
        loop {
            self.runtime.block_on(poll_fn(|cx| {
                let mut turns = self.turns();
                if turns.callers > 0 {
                    turns.thread = Driver::Waits;
                    return Poll::Ready(());
                }
                turns.thread = Driver::Drives(Some(cx.waker().clone()));
                Poll::Pending
            }));
            let mut turns = self.turns();
            while let Some(pause) = turns.pause() {
                turns = match pause {
                    None => self
                        .changed
                        .wait(turns)
                        .unwrap_or_else(PoisonError::into_inner),
                    Some(pause) => {
                        let waited = self.changed.wait_timeout(turns, pause);
                        waited.unwrap_or_else(PoisonError::into_inner).0
                    }
                };
            }
        }
    }

    /// A caller begins to wait.
    fn enter(&self) -> Turn<'_> {
        let mut turns = self.turns();
        turns.callers += 1;
        let woken = match &mut turns.thread {
            Driver::Drives(waker) => waker.take(),
            Driver::Waits | Driver::Pauses => None,
        };
        drop(turns);
        if let Some(waker) = woken {
            waker.wake();
        }
        Turn(self)
    }

    /// Somebody waits who cannot drive.
    fn call(&self) {
        let mut turns = self.turns();
        turns.left = None;
        if let (0, Driver::Pauses) = (turns.callers, &turns.thread) {
            self.changed.notify_one();
        }
    }
}

impl Turns {
    /// How long the thread lets others drive; for ever if there are callers. `None` if it is to drive.
    fn pause(&mut self) -> Option<Option<Duration>> {
        if self.callers > 0 {
            self.thread = Driver::Waits;
            return Some(None);
        }
        let left = self.left.map(|left| PAUSE.saturating_sub(left.elapsed()));
        let left = left.filter(|left| !left.is_zero())?;
        self.thread = Driver::Pauses;
        Some(Some(left))
    }
}

/// Of a caller that waits.
struct Turn<'a>(&'a Driven);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut turns = self.0.turns();
        turns.callers -= 1;
        if turns.callers == 0 {
            turns.left = Some(Instant::now());
            if let Driver::Waits = turns.thread {
                self.0.changed.notify_one();
            }
        }
    }
}

/// Waits on this thread.
pub(super) fn wait<F: Future>(future: F) -> F::Output {
    let Some(driven) = DRIVEN.get() else {
        return park(future);
    };
    if Handle::try_current().is_err() {
        let _turn = driven.enter();
        return driven.runtime.block_on(future);
    }
    // Within a runtime blocking is the caller's affair: users of `ttrpc` do so, and one that was to
    // drive another there would panic.
    driven.call();
    park(future)
}

struct Parked(Thread);

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits, and lets others drive.
pub(super) fn park<F: Future>(future: F) -> F::Output {
    thread_local! {
        static WAKER: Waker = Waker::from(Arc::new(Parked(thread::current())));
    }
    let waker = WAKER.with(Waker::clone);
    let mut cx = Context::from_waker(&waker);
    // A task that is there may have used up its budget, and would have to give way for another one, which
    // it does not while it is here.
    let mut future = pin!(unconstrained(future));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
        thread::park();
    }
}
