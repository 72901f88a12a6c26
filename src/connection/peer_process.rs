//! What the peer's process is doing, for those who are told a verdict.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime;

use crate::keepalive::{ProcessState, ProcessUnknown};
use crate::transport::PeerProcess;
use crate::tuning::{PROCESS_KNOWN, PROCESS_SOUGHT};

/// Asked by system calls, so by no verb of the state and under no lock but its own; no more often than
/// late calls cause PINGs.
#[derive(Debug)]
pub(super) struct KnownProcess(Option<Arc<Mutex<Known>>>);

#[derive(Debug)]
struct Known {
    process: PeerProcess,
    seen: Option<(Duration, ProcessState)>,
    sought: Option<Duration>,
}

impl KnownProcess {
    pub(super) fn new(process: Option<PeerProcess>) -> Self {
        Self(process.map(|process| {
            Arc::new(Mutex::new(Known {
                process,
                seen: None,
                sought: None,
            }))
        }))
    }

    pub(super) fn state(&self, now: Duration) -> Option<ProcessState> {
        let shared = self.0.as_ref()?;
        let mut known = lock(shared);
        if let Some((at, state)) = known.seen {
            if now.saturating_sub(at) < PROCESS_KNOWN {
                return Some(state);
            }
        }
        let state = known.process.state();
        known.seen = Some((now, state));
        if state == ProcessState::Unknown(ProcessUnknown::HandedOn) {
            known.seek(now, shared);
        }
        Some(state)
    }
}

impl Known {
    /// Looks for who holds the connection now, for the next verdict: all processes of a host are too
    /// many to wait for.
    fn seek(&mut self, now: Duration, shared: &Arc<Mutex<Self>>) {
        let is_due = |sought: Duration| now.saturating_sub(sought) >= PROCESS_SOUGHT;
        if !self.sought.is_none_or(is_due) {
            return;
        }
        let Ok(runtime) = runtime::Handle::try_current() else {
            return;
        };
        self.sought = Some(now);
        let (process, shared) = (self.process, Arc::clone(shared));
        // Nobody waits for it: what it finds is there when it is there.
        drop(runtime.spawn_blocking(move || {
            if let Ok(found) = process.find() {
                lock(&shared).process = found;
            }
        }));
    }
}

fn lock(shared: &Mutex<Known>) -> MutexGuard<'_, Known> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
