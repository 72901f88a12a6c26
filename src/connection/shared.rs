//! The door to a connection's state: one short lock, and what is carried out behind it.

use std::fmt;
use std::io::IoSlice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::{self, RuntimeFlavor};
use tracing::error;

use super::effects::Effects;
use super::outbox::Batch;
use super::peer_process::KnownProcess;
use super::state::{Closing, Remainder, Side, State};
use crate::clock::Clock;
use crate::error::{ConnectionError, Error, Unsent};
use crate::keepalive::ProcessState;
use crate::liveness::{Liveness, Publisher, Snapshot, Source};
use crate::panics::catch;
use crate::transport::Remote;

/// Shared by the handles and the driver of one connection.
pub(crate) struct Shared<S: Side> {
    state: Mutex<State<S>>,
    publisher: Publisher,
    remote: Remote,
    process: KnownProcess,
    /// The runtime of one thread on which the driver runs, if it runs on such a one.
    home: Option<runtime::Id>,
}

impl<S: Side> Shared<S> {
    /// `runtime` is that of the driver.
    pub(super) fn new(
        state: State<S>,
        clock: Clock,
        remote: Remote,
        runtime: &runtime::Handle,
    ) -> Self {
        let one_thread = runtime.runtime_flavor() == RuntimeFlavor::CurrentThread;
        Self {
            publisher: Publisher::with_clock(clock, state.machine.view()),
            state: Mutex::new(state),
            process: KnownProcess::new(remote.process),
            remote,
            home: one_thread.then(|| runtime.id()),
        }
    }

    /// Runs a verb of the state under the lock, and behind it what the verb leaves to do (law 3).
    pub(crate) fn with<R>(&self, verb: impl FnOnce(&mut State<S>, &mut Effects) -> R) -> R {
        let mut effects = Effects::default();
        let result = verb(&mut self.lock(), &mut effects);
        if let Some(write) = effects.write.take() {
            // The driver meets every error by itself, in reading or in its own write. A transport of
            // users may panic: the caller does not know its call yet, and would leave it open.
            let written = catch(|| {
                let permit = Permit::new(self, write.now, write.batch);
                let _ = permit.write(|slices| write.shortcut.try_write(slices));
            });
            if written.is_none() {
                error!("a shortcut panicked, the driver writes in its place");
            }
        }
        result
    }

    /// Every verb leaves the state as it should be, so a panic elsewhere in a thread that holds the
    /// lock has broken nothing.
    pub(super) fn lock(&self) -> MutexGuard<'_, State<S>> {
        #[cfg(test)]
        super::schedule::point_before(&self.state);
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn clock(&self) -> Clock {
        self.publisher.clock()
    }

    pub(crate) fn now(&self) -> Duration {
        self.publisher.now()
    }

    pub(super) fn publisher(&self) -> &Publisher {
        &self.publisher
    }

    pub(crate) fn remote(&self) -> Remote {
        self.remote
    }

    /// What the peer's process is doing, where that can be known.
    pub(super) fn process_state(&self, now: Duration) -> Option<ProcessState> {
        self.process.state(now)
    }

    /// The same in the evidence of a call that was late.
    pub(crate) fn with_process<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        result.map_err(|mut error| {
            if let Some(evidence) = error.evidence_of_deadline() {
                evidence.process = self.process_state(self.now());
            }
            error
        })
    }

    pub(crate) fn liveness(self: &Arc<Self>) -> Liveness {
        let source: Arc<Self> = Arc::clone(self);
        self.publisher.liveness_of(source)
    }

    /// The snapshot of this instant, read from the state (law 8).
    pub(crate) fn snapshot(&self) -> Snapshot {
        let now = self.now();
        let (view, traffic, end) = {
            let mut state = self.lock();
            (state.machine.view(), state.traffic(), state.end().cloned())
        };
        self.publisher
            .snapshot_of(now, view, &traffic, end.as_ref())
    }

    /// Whether whoever asks is as late as the driver, if that is late: both run on the same thread
    /// and no other.
    pub(super) fn is_at_home(&self) -> bool {
        self.home
            .is_some_and(|home| runtime::Handle::try_current().is_ok_and(|here| here.id() == home))
    }

    /// Asks the driver to end the connection as soon as its streams have ended (law 4).
    pub(crate) fn close(&self) {
        self.with(|state, effects| state.close(Closing::Drained, effects));
    }

    /// Asks the driver to end the connection now (law 4).
    pub(crate) fn abort(&self) {
        self.with(|state, effects| state.close(Closing::Now, effects));
    }

    /// The peer is about to close the connection.
    pub(crate) fn expect_close(&self) {
        self.lock().expect_close();
    }

    /// Whether the connection has ended, so that nothing which is queued goes out any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.lock().end().is_some()
    }

    /// Waits until nothing can be sent on the connection any more.
    pub(crate) async fn ended(&self) -> ConnectionError {
        self.publisher.ended().await
    }

    /// What was queued and is not written, and the end if it has come.
    pub(crate) fn unsent(&self) -> (Unsent, Option<ConnectionError>) {
        let state = self.lock();
        (state.unsent(), state.end().cloned())
    }

    /// Waits for the end of the connection.
    pub(crate) async fn closed(&self) -> ConnectionError {
        self.publisher.closed().await
    }
}

impl<S: Side> Source for Shared<S> {
    fn snapshot(&self) -> Snapshot {
        self.snapshot()
    }
}

impl<S: Side> fmt::Debug for Shared<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// The right to write (law 6). It goes back by its drop, whatever happens in between: a transport that
/// panics must not leave a connection that cannot write.
pub(super) struct Permit<'a, S: Side> {
    shared: &'a Shared<S>,
    now: Duration,
    batch: Option<Batch>,
}

impl<'a, S: Side> Permit<'a, S> {
    pub(super) fn new(shared: &'a Shared<S>, now: Duration, batch: Batch) -> Self {
        Self {
            shared,
            now,
            batch: Some(batch),
        }
    }

    /// Writes the whole batch in one go, or as much as is taken.
    pub(super) fn write<E>(
        mut self,
        write: impl FnOnce(&[IoSlice<'_>]) -> Result<usize, E>,
    ) -> (Result<usize, E>, Remainder) {
        let mut taken = Ok(0);
        if let Some(batch) = &mut self.batch {
            taken = batch.write(write);
            batch.advance(*taken.as_ref().unwrap_or(&0));
        }
        (taken, self.give_back())
    }

    /// Writes of the frame in front only.
    pub(super) fn write_front(mut self, write: impl FnOnce(&[u8]) -> usize) -> usize {
        let Some(batch) = &mut self.batch else {
            return 0;
        };
        let taken = write(batch.front());
        batch.advance(taken);
        taken
    }

    fn give_back(&mut self) -> Remainder {
        let Some(batch) = self.batch.take() else {
            return Remainder::default();
        };
        let now = self.now;
        self.shared
            .with(|state, effects| state.end_write(now, batch, effects))
    }
}

impl<S: Side> Drop for Permit<'_, S> {
    fn drop(&mut self) {
        self.give_back();
    }
}
