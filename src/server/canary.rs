//! Whether the threads that should run handlers do.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::clock::Clock;
use crate::tuning::CANARY_STALLED;

/// A task that does nothing, sent where handlers run: as long as it has not run, neither has
/// anything else that waits there.
///
/// It sees threads that do not come back. Tasks that wait for each other leave the threads free,
/// and a runtime with several threads is stuck only when all of them are. On a runtime that was
/// shut down the canary never runs: no handler does either, so that counts as stuck.
#[derive(Clone, Debug)]
pub(super) struct Canary {
    handlers: Handle,
    clock: Clock,
    /// Since when it has been out. `None` when it has run.
    out: Arc<Mutex<Option<Duration>>>,
}

impl Canary {
    pub(super) fn new(handlers: Handle) -> Self {
        Self {
            handlers,
            clock: Clock::start(),
            out: Arc::default(),
        }
    }

    /// The runtime that it is sent to.
    pub(super) fn handlers(&self) -> &Handle {
        &self.handlers
    }

    /// Sends it, unless it is out.
    pub(super) fn send(&self) {
        {
            let mut out = self.out();
            if out.is_some() {
                return;
            }
            *out = Some(self.clock.now());
        }
        let canary = self.clone();
        self.handlers.spawn(async move { *canary.out() = None });
    }

    /// Whether it has been out for [`CANARY_STALLED`].
    pub(super) fn is_overdue(&self) -> bool {
        // Read after the lock: it was sent before.
        let out = self.out();
        out.is_some_and(|since| self.clock.now().saturating_sub(since) >= CANARY_STALLED)
    }

    fn out(&self) -> MutexGuard<'_, Option<Duration>> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use tokio::runtime::{Builder, Runtime};

    use super::*;

    /// Its tasks run only inside of `block_on`.
    fn runtime() -> Runtime {
        Builder::new_current_thread().build().unwrap()
    }

    #[test]
    fn it_is_overdue_only_after_it_has_not_run_for_that_long() {
        let runtime = runtime();
        let canary = Canary::new(runtime.handle().clone());
        assert!(!canary.is_overdue(), "it was never sent");
        let before = canary.clock.now();
        canary.send();
        // Too late to be asked is no reason to fail: this thread may have waited for its turn.
        let overdue = canary.is_overdue();
        assert!(!overdue || canary.clock.now() - before >= CANARY_STALLED);
        sleep(CANARY_STALLED);
        assert!(canary.is_overdue());
        canary.send();
        assert!(canary.is_overdue(), "it is still the first one");
        runtime.block_on(tokio::task::yield_now());
        assert!(!canary.is_overdue(), "it has run");
    }

    #[test]
    fn a_runtime_that_is_gone_counts_as_stuck() {
        let runtime = runtime();
        let canary = Canary::new(runtime.handle().clone());
        drop(runtime);
        canary.send();
        sleep(CANARY_STALLED);
        assert!(canary.is_overdue());
    }
}
