//! Results that came too late, until they can be delivered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::{debug, warn};

use super::runtime::Runtime;
use crate::api::ContainerUpdate;

/// Results that wait for their containers at one time. Beyond it further ones are dropped.
const WAITING_LIMIT: usize = 1024;

/// Of all connections: a container outlives the one on which it was created.
#[derive(Debug)]
pub(super) struct Deliveries {
    creating: Mutex<HashMap<String, Creating>>,
    runtime: Runtime,
}

/// A container whose creation is handled, or was.
#[derive(Debug)]
enum Creating {
    /// Its handler is at work. Whether it exists meanwhile.
    Handled { exists: bool },
    /// Its handler was too late, and it does not exist yet.
    Late(Vec<ContainerUpdate>),
}

impl Deliveries {
    pub(super) fn new(runtime: Runtime) -> Arc<Self> {
        Arc::new(Self {
            creating: Mutex::default(),
            runtime,
        })
    }

    pub(super) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Watches for a container to exist, until the returned value is dropped.
    pub(super) fn begin(self: &Arc<Self>, container: &str) -> Creation {
        let handled = Creating::Handled { exists: false };
        self.lock().insert(container.to_owned(), handled);
        Creation {
            deliveries: Arc::clone(self),
            container: container.to_owned(),
        }
    }

    /// A container exists.
    pub(super) fn handle_exists(&self, container: &str) {
        let mut creating = self.lock();
        match creating.get_mut(container) {
            None => {}
            Some(Creating::Handled { exists }) => *exists = true,
            Some(Creating::Late(updates)) => {
                let updates = std::mem::take(updates);
                creating.remove(container);
                drop(creating);
                self.deliver(updates);
            }
        }
    }

    /// A container is gone, or will never exist.
    pub(super) fn handle_gone(&self, container: &str) {
        let mut creating = self.lock();
        if matches!(creating.get(container), Some(Creating::Late(_))) {
            creating.remove(container);
            drop(creating);
            debug!(container, "a late result is dropped with its container");
        }
    }

    /// Delivers by a task of its own: a runtime updates containers between events, so that the event in
    /// which this is called has to end first.
    pub(super) fn deliver(&self, updates: Vec<ContainerUpdate>) {
        if updates.is_empty() {
            return;
        }
        let runtime = self.runtime.clone();
        tokio::spawn(async move {
            let count = updates.len();
            match runtime.update_later(updates).await {
                Ok(failed) if failed.is_empty() => debug!(count, "a late result is delivered"),
                Ok(failed) => warn!(?failed, "a late result was not taken for some containers"),
                Err(error) => warn!(%error, "a late result cannot be delivered"),
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Creating>> {
        // What is under the lock cannot be left half done.
        self.creating.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A container whose creation is being handled.
#[derive(Debug)]
pub(super) struct Creation {
    deliveries: Arc<Deliveries>,
    container: String,
}

impl Creation {
    /// Delivers what was too late, now or when the container exists.
    pub(super) fn deliver(self, updates: Vec<ContainerUpdate>) {
        let mut creating = self.deliveries.lock();
        let waiting = creating.len();
        match creating.get_mut(&self.container) {
            Some(Creating::Handled { exists: true }) => {
                drop(creating);
                self.deliveries.deliver(updates);
            }
            Some(slot) if !updates.is_empty() && waiting <= WAITING_LIMIT => {
                *slot = Creating::Late(updates);
            }
            Some(_) if !updates.is_empty() => {
                drop(creating);
                warn!(WAITING_LIMIT, "a late result is dropped: too many wait");
            }
            _ => {}
        }
    }
}

impl Drop for Creation {
    fn drop(&mut self) {
        let mut creating = self.deliveries.lock();
        if matches!(
            creating.get(&self.container),
            Some(Creating::Handled { .. })
        ) {
            creating.remove(&self.container);
        }
    }
}
