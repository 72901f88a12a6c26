//! The tasks in which handlers of unary calls run.
//!
//! Handlers that come together share a task until one of them has to wait: most never do, and a task
//! for each would cost more than they. The invariant: while a handler waits for its first turn, a
//! worker is on its way, or one is busy with a handler that came before it. If that one keeps its
//! thread, another worker goes on: soon if it returns, and otherwise when the driver looks here.
//!
//! What a handler wakes on a thread of several waits there until its task gives the thread back, and
//! no other thread takes it. So a worker wakes nobody and then goes on to a handler which may block: the
//! driver is called when no handler follows, and before another worker is called the thread is given
//! back.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::Handle;

use super::requests::Command;
use crate::clock::Clock;
use crate::connection::{Shared, pause};

/// A handler on its way to its answer. Dropped, it answers that it was stopped.
pub(super) type Handling = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Handlers that one worker polls before other tasks have a turn.
const IN_A_ROW: u32 = 64;

/// A handler that took so long is none of those that share a task well: the others go to another.
const LONG: Duration = Duration::from_micros(50);

/// How long a handler may keep its thread before the driver sends somebody to those behind it.
const STUCK: Duration = Duration::from_millis(1);

/// The longest time from one look of the driver to the next while handlers wait. Answers of others may
/// gather as long.
const LOOK: Duration = Duration::from_millis(10);

/// Workers that may be on their way at one time: one may be held up by the very handler that the next
/// is to make up for.
const COMING: usize = 4;

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
    /// Workers that were called and have not come yet.
    coming: usize,
    /// Workers that come back here when their handler is done.
    working: usize,
    /// Whom to tell when no handler follows.
    connection: Option<Arc<Shared<Command>>>,
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

    /// Lets a handler run, of this connection as all others.
    pub(super) fn push(&self, handling: Handling, connection: &Arc<Shared<Command>>) {
        let mut state = self.queue.state();
        state
            .connection
            .get_or_insert_with(|| Arc::clone(connection));
        state.waiting.push_back(handling);
        if state.working == 0 && state.coming == 0 {
            self.queue.call(state);
        }
    }

    /// The driver runs. Sends somebody if the queue has not moved since it was seen.
    pub(super) fn handle_run(&mut self, now: Duration) {
        let before = self.watched;
        let Some(watched) = self.watch(now) else {
            return;
        };
        let stuck = before.is_some_and(|before| before.begun == watched.begun && before.due <= now);
        let state = self.queue.state();
        if stuck && !state.waiting.is_empty() && state.coming < COMING {
            self.queue.call(state);
        }
    }

    /// When the driver must look here again.
    pub(super) fn next_run(&mut self, now: Duration) -> Option<Duration> {
        self.watch(now).map(|watched| watched.due)
    }

    /// Whether the driver looks here before long.
    pub(super) fn are_watched(&self) -> bool {
        self.watched.is_some()
    }

    fn watch(&mut self, now: Duration) -> Option<Watched> {
        let (begun, behind_another) = {
            let state = self.queue.state();
            // One that is alone has a worker of its own, which is on its way.
            let own = usize::from(state.working == 0 && state.coming > 0);
            (state.begun, state.waiting.len() > own)
        };
        self.watched = behind_another.then(|| {
            let same = self.watched.filter(|watched| watched.begun == begun);
            match same {
                Some(watched) if watched.due > now => watched,
                _ => {
                    let since = same.map_or(now, |watched| watched.since);
                    // Where no thread is free there is nobody to send, for as long as that lasts.
                    let rest = now.saturating_sub(since).clamp(STUCK, LOOK);
                    let due = now.saturating_add(rest);
                    Watched { begun, since, due }
                }
            }
        });
        self.watched
    }
}

/// The driver has ended, and looks after nobody any more: each of those that wait has a task of its own.
impl Drop for Workers {
    fn drop(&mut self) {
        let waiting = mem::take(&mut self.queue.state().waiting);
        for handling in waiting {
            self.queue.handlers.spawn(handling);
        }
    }
}

impl Queue {
    /// Calls one more worker.
    fn call(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        state.coming += 1;
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
                return go_on(handling).await;
            }
            drop(handling);
            let now = self.queue.clock.now();
            let long = now.saturating_sub(began) >= LONG;
            began = now;
            in_a_row += 1;
            if long || in_a_row == IN_A_ROW {
                in_a_row = 0;
                if long {
                    self.call_another();
                }
                self.end_gathering();
                pause().await;
                began = self.queue.clock.now();
            }
        }
    }

    fn come(&mut self) {
        let mut state = self.queue.state();
        state.coming -= 1;
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
        drop(state);
        self.end_gathering();
        None
    }

    /// Does not come back: its handler has to wait. The thread is given back at once.
    fn leave(&mut self) {
        let mut state = self.queue.state();
        state.working -= 1;
        self.place = Place::Gone;
        if state.working == 0 && state.coming == 0 && !state.waiting.is_empty() {
            self.queue.call(state);
        } else {
            drop(state);
        }
        self.end_gathering();
    }

    /// Before the thread is given back.
    fn call_another(&self) {
        let state = self.queue.state();
        if !state.waiting.is_empty() && state.coming == 0 {
            self.queue.call(state);
        }
    }

    fn end_gathering(&self) {
        let connection = self.queue.state().connection.clone();
        if let Some(connection) = connection {
            connection.end_gathering();
        }
    }
}

/// Polls a handler that waits again when it is woken, and not before: who was called just now is to have
/// the thread.
async fn go_on(mut handling: Handling) {
    let mut woken = false;
    poll_fn(|cx| {
        if mem::replace(&mut woken, true) {
            return handling.as_mut().poll(cx);
        }
        Poll::Pending
    })
    .await;
}

/// A worker that goes before it is done was stopped with its runtime, where no other will ever come:
/// what waits is answered now.
impl Drop for Worker {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        match self.place {
            Place::Coming => state.coming -= 1,
            Place::Working => state.working -= 1,
            Place::Gone => return,
        }
        let stopped = mem::take(&mut state.waiting);
        drop(state);
        drop(stopped);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use tokio::runtime::{Builder, Runtime};
    use tokio::task::yield_now;

    use super::*;
    use crate::keepalive::{Keepalive, Machine, Role};
    use crate::transport::ByteStream;

    const MS: Duration = Duration::from_millis(1);

    /// Its tasks run only inside of `block_on`.
    fn runtime() -> (Runtime, Workers) {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let workers = Workers::new(runtime.handle().clone());
        (runtime, workers)
    }

    impl Workers {
        fn add(&self, handling: Handling) {
            let machine = Machine::new(&Keepalive::off(), Role::Server, 0);
            let stream = ByteStream::new(tokio::io::empty());
            let connection = Shared::new(Clock::start(), &machine, &stream);
            self.push(handling, &Arc::new(connection));
        }
    }

    fn ready() -> Handling {
        Box::pin(async {})
    }

    #[test]
    fn the_driver_looks_only_after_handlers_behind_others_and_less_and_less_often() {
        let (runtime, mut workers) = runtime();
        assert_eq!(workers.next_run(MS), None);
        workers.add(ready());
        assert_eq!(workers.next_run(MS), None, "its worker is on its way");

        workers.add(ready());
        let mut now = MS;
        let mut pauses = Vec::new();
        for _ in 0..12 {
            let due = workers.next_run(now).unwrap();
            assert_eq!(workers.next_run(now), Some(due));
            pauses.push((due - now).as_millis());
            now = due;
            workers.handle_run(now);
        }
        assert_eq!(pauses, [1, 1, 2, 4, 8, 10, 10, 10, 10, 10, 10, 10]);

        runtime.block_on(yield_now());
        assert_eq!(workers.next_run(now), None);
    }

    #[test]
    fn a_second_worker_is_called_if_the_first_does_not_come_back() {
        let (_runtime, mut workers) = runtime();
        workers.add(ready());
        workers.add(ready());
        // As if the worker had come and were busy with a handler.
        {
            let mut state = workers.queue.state();
            (state.coming, state.working) = (0, 1);
        }
        assert_eq!(workers.next_run(5 * MS), Some(6 * MS));
        workers.handle_run(6 * MS);
        assert_eq!(workers.queue.state().coming, 1);

        // A queue that has moved has somebody who comes back.
        {
            let mut state = workers.queue.state();
            state.coming = 0;
            state.begun += 1;
        }
        workers.handle_run(100 * MS);
        assert_eq!(workers.queue.state().coming, 0);
        workers.queue.state().working = 0;
    }

    #[test]
    fn a_handler_that_took_long_has_those_behind_it_shared_out() {
        let (runtime, workers) = runtime();
        let queue = Arc::clone(&workers.queue);
        let (seen, is_seen) = tokio::sync::oneshot::channel();
        workers.add(Box::pin(async { std::thread::sleep(2 * LONG) }));
        workers.add(Box::pin(async move {
            seen.send(queue.state().working).unwrap();
        }));
        workers.add(ready());
        assert_eq!(runtime.block_on(is_seen).unwrap(), 2, "another has come");
    }

    #[test]
    fn other_tasks_have_their_turn_however_many_handlers_are_ready() {
        let (runtime, workers) = runtime();
        for _ in 0..3 * IN_A_ROW {
            workers.add(ready());
        }
        let queue = Arc::clone(&workers.queue);
        let other = runtime.spawn(async move { queue.state().begun });
        // Fewer if this thread had to wait for its core meanwhile.
        assert!(runtime.block_on(other).unwrap() <= u64::from(IN_A_ROW));
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
        workers.add(handling());
        workers.add(handling());
        assert_eq!(dropped.load(Relaxed), 0);
        drop(runtime);
        assert_eq!(dropped.load(Relaxed), 2);
        workers.add(handling());
        assert_eq!(dropped.load(Relaxed), 3, "there is nobody to run it");
    }
}
