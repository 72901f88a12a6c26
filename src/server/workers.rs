//! The tasks in which handlers of unary calls run.
//!
//! Handlers that come together share a task until one of them has to wait: most never do, and a task
//! for each would cost more than they. The invariant: while a handler waits for its first turn, a
//! worker is on its way, or one is busy with a handler that came before it. If that one keeps its
//! thread, another worker goes on: soon if it returns, and otherwise when the driver looks here.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::yield_now;

use super::canary::STALLED;
use crate::clock::Clock;

/// A handler on its way to its answer. Dropped, it answers that it was stopped.
pub(super) type Handling = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Handlers that one worker polls before other tasks have a turn.
const IN_A_ROW: u32 = 64;

/// A handler that took so long is none of those that share a task well: the others go to another.
const LONG: Duration = Duration::from_micros(50);

/// How long a handler may keep its thread before the driver sends somebody to those behind it.
const STUCK: Duration = Duration::from_millis(1);

/// A queue longer than this gives its memory back when it is empty.
const KEPT: usize = 64;

/// The driver's end of the queue.
#[derive(Debug)]
pub(super) struct Workers {
    queue: Arc<Queue>,
    watched: Option<Watched>,
}

/// A queue in which something waits.
#[derive(Clone, Copy, Debug)]
struct Watched {
    /// How many handlers had begun.
    begun: u64,
    since: Duration,
    /// When to look again.
    due: Duration,
}

/// Handlers that wait for their first turn. They are bounded with those that run.
#[derive(Debug)]
struct Queue {
    state: Mutex<State>,
    /// Where they run.
    handlers: Handle,
    clock: Clock,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Handling>,
    begun: u64,
    /// Whether a worker was called and has not come yet.
    coming: bool,
    /// Workers that come back here when their handler is done.
    working: usize,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("waiting", &self.waiting.len())
            .field("coming", &self.coming)
            .field("working", &self.working)
            .finish_non_exhaustive()
    }
}

impl Workers {
    pub(super) fn new(handlers: Handle) -> Self {
        Self {
            queue: Arc::new(Queue {
                state: Mutex::default(),
                handlers,
                clock: Clock::start(),
            }),
            watched: None,
        }
    }

    /// Lets a handler run.
    pub(super) fn push(&self, handling: Handling) {
        let mut state = self.queue.state();
        state.waiting.push_back(handling);
        if state.working == 0 {
            self.queue.call(state);
        }
    }

    /// The driver runs. Sends somebody if the queue has not moved since it was seen.
    pub(super) fn handle_run(&mut self, now: Duration) {
        let Some(watched) = self.watched.filter(|watched| watched.due <= now) else {
            return;
        };
        let state = self.queue.state();
        if state.begun == watched.begun && !state.waiting.is_empty() {
            self.queue.call(state);
        }
    }

    /// When the driver must look here again.
    pub(super) fn next_run(&mut self, now: Duration) -> Option<Duration> {
        let (begun, stuck) = {
            let state = self.queue.state();
            // One that is alone has a worker of its own, which is on its way.
            let behind_another = state.waiting.len() > usize::from(state.coming);
            (state.begun, behind_another)
        };
        if !stuck {
            self.watched = None;
            return None;
        }
        let same = self.watched.filter(|watched| watched.begun == begun);
        let since = same.map_or(now, |watched| watched.since);
        let due = same.map(|watched| watched.due).filter(|due| *due > now);
        let due = due.unwrap_or_else(|| {
            // Where no thread is free there is nobody to send, for as long as that lasts.
            let pause = now.saturating_sub(since).clamp(STUCK, STALLED);
            now.saturating_add(pause)
        });
        self.watched = Some(Watched { begun, since, due });
        Some(due)
    }
}

impl Queue {
    /// Calls a worker, unless one is on its way.
    fn call(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        if mem::replace(&mut state.coming, true) {
            return;
        }
        drop(state);
        let worker = Worker {
            queue: Arc::clone(self),
            place: Place::Coming,
        };
        self.handlers.spawn(worker.work());
    }

    /// Every critical section leaves the state as it should be, so a panic elsewhere has broken
    /// nothing.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One task.
struct Worker {
    queue: Arc<Queue>,
    place: Place,
}

/// How a worker counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Coming,
    Working,
    Gone,
}

impl Worker {
    async fn work(mut self) {
        self.come();
        let mut began = self.queue.clock.now();
        let mut in_a_row = 0;
        while let Some(mut handling) = self.next() {
            let polled = poll_fn(|cx| {
                // A panic costs its call, which was answered as the responder was dropped.
                Poll::Ready(catch_unwind(AssertUnwindSafe(|| {
                    handling.as_mut().poll(cx)
                })))
            });
            if let Ok(Poll::Pending) = polled.await {
                self.leave();
                return handling.await;
            }
            drop(handling);
            let now = self.queue.clock.now();
            if now.saturating_sub(began) >= LONG {
                self.call_another();
            }
            began = now;
            in_a_row += 1;
            if in_a_row == IN_A_ROW {
                in_a_row = 0;
                yield_now().await;
                began = self.queue.clock.now();
            }
        }
    }

    fn come(&mut self) {
        let mut state = self.queue.state();
        state.coming = false;
        state.working += 1;
        self.place = Place::Working;
    }

    /// The handler that came first. This worker is gone if there is none.
    fn next(&mut self) -> Option<Handling> {
        let mut state = self.queue.state();
        let next = state.waiting.pop_front();
        if next.is_some() {
            state.begun += 1;
            return next;
        }
        if state.waiting.capacity() > KEPT {
            state.waiting = VecDeque::new();
        }
        state.working -= 1;
        self.place = Place::Gone;
        None
    }

    /// Does not come back: its handler has to wait.
    fn leave(&mut self) {
        let mut state = self.queue.state();
        state.working -= 1;
        self.place = Place::Gone;
        if state.working == 0 && !state.waiting.is_empty() {
            self.queue.call(state);
        }
    }

    fn call_another(&self) {
        let state = self.queue.state();
        if !state.waiting.is_empty() {
            self.queue.call(state);
        }
    }
}

/// A worker that goes before it is done was stopped with its runtime, where no other will ever come:
/// what waits is answered now.
impl Drop for Worker {
    fn drop(&mut self) {
        let stopped = {
            let mut state = self.queue.state();
            match self.place {
                Place::Coming => state.coming = false,
                Place::Working => state.working -= 1,
                Place::Gone => return,
            }
            mem::take(&mut state.waiting)
        };
        drop(stopped);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use tokio::runtime::{Builder, Runtime};

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Its tasks run only inside of `block_on`.
    fn runtime() -> (Runtime, Workers) {
        let runtime = Builder::new_current_thread().build().unwrap();
        let workers = Workers::new(runtime.handle().clone());
        (runtime, workers)
    }

    fn ready() -> Handling {
        Box::pin(async {})
    }

    #[test]
    fn the_driver_looks_only_after_handlers_behind_others_and_less_and_less_often() {
        let (runtime, mut workers) = runtime();
        assert_eq!(workers.next_run(MS), None);
        workers.push(ready());
        assert_eq!(workers.next_run(MS), None, "its worker is on its way");

        workers.push(ready());
        let mut now = MS;
        let mut pauses = Vec::new();
        for _ in 0..12 {
            let due = workers.next_run(now).unwrap();
            assert_eq!(workers.next_run(now), Some(due));
            pauses.push((due - now).as_millis());
            now = due;
            workers.handle_run(now);
        }
        assert_eq!(pauses, [1, 1, 2, 4, 8, 16, 32, 64, 100, 100, 100, 100]);

        runtime.block_on(yield_now());
        assert_eq!(workers.next_run(now), None);
    }

    #[test]
    fn a_second_worker_is_called_if_the_first_does_not_come_back() {
        let (_runtime, mut workers) = runtime();
        workers.push(ready());
        workers.push(ready());
        // As if the worker had come and were busy with a handler.
        {
            let mut state = workers.queue.state();
            (state.coming, state.working) = (false, 1);
        }
        assert_eq!(workers.next_run(5 * MS), Some(6 * MS));
        workers.handle_run(6 * MS);
        assert!(workers.queue.state().coming);

        // A queue that has moved has somebody who comes back.
        {
            let mut state = workers.queue.state();
            state.coming = false;
            state.begun += 1;
        }
        workers.handle_run(100 * MS);
        assert!(!workers.queue.state().coming);
        workers.queue.state().working = 0;
    }

    #[test]
    fn a_handler_that_took_long_has_those_behind_it_shared_out() {
        let (runtime, workers) = runtime();
        let queue = Arc::clone(&workers.queue);
        let (seen, is_seen) = tokio::sync::oneshot::channel();
        workers.push(Box::pin(async { std::thread::sleep(2 * LONG) }));
        workers.push(Box::pin(async move {
            seen.send(queue.state().coming).unwrap();
        }));
        workers.push(ready());
        assert!(runtime.block_on(is_seen).unwrap(), "another is called");
    }

    #[test]
    fn other_tasks_have_their_turn_however_many_handlers_are_ready() {
        let (runtime, workers) = runtime();
        for _ in 0..3 * IN_A_ROW {
            workers.push(ready());
        }
        let queue = Arc::clone(&workers.queue);
        let other = runtime.spawn(async move { queue.state().begun });
        assert_eq!(runtime.block_on(other).unwrap(), u64::from(IN_A_ROW));
    }

    #[test]
    fn handlers_are_dropped_with_their_runtime_and_never_kept() {
        struct Counts(Arc<AtomicU32>);
        impl Drop for Counts {
            fn drop(&mut self) {
                self.0.fetch_add(1, Relaxed);
            }
        }
        let dropped = Arc::new(AtomicU32::new(0));
        let handling = || {
            let counts = Counts(Arc::clone(&dropped));
            Box::pin(async move { drop(counts) })
        };
        let (runtime, workers) = runtime();
        workers.push(handling());
        workers.push(handling());
        assert_eq!(dropped.load(Relaxed), 0);
        drop(runtime);
        assert_eq!(dropped.load(Relaxed), 2);
        workers.push(handling());
        assert_eq!(dropped.load(Relaxed), 3, "there is nobody to run it");
    }
}
