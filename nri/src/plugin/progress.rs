//! The events of one connection that are being handled.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use ttrpc_keepalive::Context;

/// An answer that is due in so short a time counts as overdue: the runtime's clock began before ours.
const ALMOST: Duration = Duration::from_millis(50);

/// Bounded by the handlers that the server lets run.
#[derive(Debug, Default)]
pub(super) struct Progress(Mutex<Handled>);

#[derive(Debug, Default)]
struct Handled {
    next: u64,
    events: BTreeMap<u64, Event>,
}

#[derive(Debug)]
struct Event {
    name: &'static str,
    context: Context,
    since: Instant,
}

/// An event that was being handled when its connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interrupted {
    /// Its answer was due so long ago.
    Overdue(&'static str, Duration),
    /// It was handled for so long.
    Running(&'static str, Duration),
}

impl Progress {
    /// Counts an event until the returned value is dropped.
    pub(super) fn begin(self: &Arc<Self>, name: &'static str, context: &Context) -> Running {
        let event = Event {
            name,
            context: context.clone(),
            since: Instant::now(),
        };
        let mut handled = self.lock();
        let place = handled.next;
        handled.next += 1;
        handled.events.insert(place, event);
        drop(handled);
        Running {
            progress: Arc::clone(self),
            place,
        }
    }

    /// The event that has not been answered for longest.
    pub(super) fn interrupted(&self) -> Option<Interrupted> {
        let handled = self.lock();
        let now = Instant::now();
        let open = handled.events.values();
        let mut open = open.filter(|event| !event.context.is_answered());
        let event = open.next()?;
        let deadline = event.context.deadline();
        Some(
            match deadline.filter(|deadline| *deadline <= now + ALMOST) {
                Some(deadline) => Interrupted::Overdue(event.name, now - deadline),
                None => Interrupted::Running(event.name, now - event.since),
            },
        )
    }

    fn lock(&self) -> MutexGuard<'_, Handled> {
        // What is under the lock cannot be left half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(super) struct Running {
    progress: Arc<Progress>,
    place: u64,
}

impl Drop for Running {
    fn drop(&mut self) {
        let event = self.progress.lock().events.remove(&self.place);
        drop(event);
    }
}
