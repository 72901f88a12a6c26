//! The threads that handlers run on.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use ttrpc_keepalive::HandlerFuture;

use super::thread::{park, runtime};

/// Handlers that run at one time in the process. Each has a thread while it runs, and more wait.
const THREADS: usize = 4096;

/// For how long a thread waits for another handler.
const PATIENCE: Duration = Duration::from_secs(10);

/// One thread at a time is called, and calls the next one if it finds more than it takes: none has to be
/// woken for what one that is awake takes on its way, and none waits for a handler that blocks.
struct Pool {
    /// Bounded by what the connections admit.
    handlers: VecDeque<HandlerFuture>,
    threads: usize,
    /// Of these, those that wait.
    idle: usize,
    /// One of them was called, and has not looked yet.
    called: bool,
}

static POOL: Mutex<Pool> = Mutex::new(Pool {
    handlers: VecDeque::new(),
    threads: 0,
    idle: 0,
    called: false,
});
static CALLED: Condvar = Condvar::new();

/// How a thread is called, which is done without the lock: it would wait for that first.
enum Call {
    Wake,
    Start,
    Nobody,
}

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has a handler run on a thread that it has for itself.
pub(super) fn run(handler: HandlerFuture) {
    let mut pool = pool();
    pool.handlers.push_back(handler);
    let call = pool.call();
    drop(pool);
    call.make();
}

impl Pool {
    fn call(&mut self) -> Call {
        if self.called || self.handlers.is_empty() {
            return Call::Nobody;
        }
        if self.idle > 0 {
            self.called = true;
            return Call::Wake;
        }
        if self.threads < THREADS {
            self.called = true;
            self.threads += 1;
            return Call::Start;
        }
        // One that is done with its handler takes the next one.
        Call::Nobody
    }
}

impl Call {
    fn make(self) {
        match self {
            Self::Wake => CALLED.notify_one(),
            Self::Start => {
                let thread = thread::Builder::new().name("ttrpc-handler".to_owned());
                if let Err(error) = thread.spawn(work) {
                    log::warn!("no thread can be started for a handler, which waits: {error}");
                    let mut pool = pool();
                    pool.threads -= 1;
                    pool.called = false;
                }
            }
            Self::Nobody => {}
        }
    }
}

/// What a thread does.
fn work() {
    // What handlers use of a runtime is of this one.
    let runtime = runtime().ok();
    let _entered = runtime.as_ref().map(|runtime| runtime.enter());
    let mut pool = pool();
    pool.called = false;
    loop {
        if let Some(handler) = pool.handlers.pop_front() {
            let call = pool.call();
            drop(pool);
            call.make();
            // Its panics are caught in it.
            park(handler);
            pool = self::pool();
            continue;
        }
        pool.idle += 1;
        let waited = CALLED.wait_timeout(pool, PATIENCE);
        let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        pool = woken;
        pool.idle -= 1;
        pool.called = false;
        if timeout.timed_out() && pool.handlers.is_empty() {
            pool.threads -= 1;
            return;
        }
    }
}
