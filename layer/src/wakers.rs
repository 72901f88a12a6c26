//! One waker for the two tasks that may share a stream, and one for a turn of the scheduler.

use std::future::Future;
use std::mem;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};

use tokio::task::yield_now;

/// Wakes the task that reads and the one that writes.
///
/// Both write to the wrapped stream: the one that reads has PONGs. A stream remembers the waker of
/// the last poll only, so each of the two would take the wake-up of the other.
#[derive(Debug, Default)]
pub(crate) struct Wakers {
    tasks: Mutex<Tasks>,
    woken: AtomicBool,
}

#[derive(Debug, Default)]
struct Tasks {
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Wakers {
    pub(crate) fn set_reader(&self, cx: &Context<'_>) {
        set(&mut self.tasks().reader, cx);
    }

    pub(crate) fn set_writer(&self, cx: &Context<'_>) {
        set(&mut self.tasks().writer, cx);
    }

    /// Wakes the task that reads, which keeps the timer.
    pub(crate) fn wake_reader(&self) {
        let reader = self.tasks().reader.take();
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    pub(crate) fn wake_all(&self) {
        let Tasks { reader, writer } = mem::take(&mut *self.tasks());
        for waker in [reader, writer].into_iter().flatten() {
            waker.wake();
        }
    }

    /// Whether the stream has called since this was last asked to forget it: what it refused it
    /// may take now.
    pub(crate) fn is_woken(&self) -> bool {
        self.woken.load(Ordering::Acquire)
    }

    pub(crate) fn forget_wake(&self) {
        self.woken.store(false, Ordering::Release);
    }

    fn tasks(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Wakers {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.wake_all();
    }
}

/// One turn of the scheduler, in which it asks the kernel.
///
/// The task may be polled before that is over, whoever else wakes it, so a poll proves nothing.
#[derive(Debug)]
pub(crate) struct Turn {
    over: AtomicBool,
    wakers: Arc<Wakers>,
}

impl Turn {
    pub(crate) fn begin(wakers: &Arc<Wakers>) -> Arc<Self> {
        let turn = Arc::new(Self {
            over: AtomicBool::new(false),
            wakers: Arc::clone(wakers),
        });
        let waker = Waker::from(Arc::clone(&turn));
        // The scheduler has the waker from here on, and the future has done its work.
        let _ = pin!(yield_now()).poll(&mut Context::from_waker(&waker));
        turn
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

impl Wake for Turn {
    fn wake(self: Arc<Self>) {
        self.over.store(true, Ordering::Release);
        self.wakers.wake_reader();
    }
}

fn set(waker: &mut Option<Waker>, cx: &Context<'_>) {
    if !waker
        .as_ref()
        .is_some_and(|waker| waker.will_wake(cx.waker()))
    {
        *waker = Some(cx.waker().clone());
    }
}
