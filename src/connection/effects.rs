//! The work that a verb of the state leaves for when its lock is free again.
//!
//! The invariant: no waker is called, nothing is logged and no large memory given back under the lock
//! (law 2), and nothing of it is forgotten: the lock is reached only where these are carried out
//! (law 3).

use std::any::Any;
use std::mem;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tracing::debug;

use super::outbox::Batch;
use crate::error::{LateOutcome, LateRecord};
use crate::keepalive::{Evidence, Verdict};
use crate::status::Status;
use crate::transport::Shortcut;
use crate::tuning::KEPT_ENTRIES;

/// Filled by verbs, carried out behind the lock.
#[derive(Debug, Default)]
#[must_use = "somebody waits for it"]
pub(crate) struct Effects {
    /// Wake the driver.
    pub(super) driver: Option<Waker>,
    pub(super) write: Option<Write>,
    pub(super) others: Vec<Effect>,
}

/// Write this by yourself.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) now: Duration,
    pub(super) batch: Batch,
    pub(super) shortcut: Arc<dyn Shortcut>,
}

#[derive(Debug)]
pub(super) enum Effect {
    Wake(Waker),
    /// Tell those who wait for a late answer.
    Late(LateRecord, LateOutcome),
    /// In a box, since most effects are small and wake somebody.
    Log(Box<Note>),
    /// Its memory may be large, or its destructor not ours.
    Drop(#[expect(dead_code, reason = "kept only to be dropped")] Box<dyn Any + Send>),
}

/// Something for the log, at debug level.
#[derive(Debug)]
pub(crate) enum Note {
    Late {
        stream_id: Option<u32>,
        timeout: Option<Duration>,
        verdict: Verdict,
        evidence: Evidence,
    },
    LateAnswer {
        stream_id: u32,
        after: Duration,
    },
    Failed {
        stream_id: u32,
        reason: &'static str,
    },
    Dropped {
        stream_id: u32,
        reason: &'static str,
    },
    Refused {
        stream_id: u32,
        status: Status,
    },
    /// So many requests have not begun when their client left.
    Abandoned(u64),
    Parked(bool),
}

impl Note {
    fn log(self) {
        match self {
            Self::Late {
                stream_id,
                timeout,
                verdict,
                evidence,
            } => debug!(stream_id, ?timeout, %verdict, %evidence, "a call is late"),
            Self::LateAnswer { stream_id, after } => {
                debug!(stream_id, ?after, "a late answer has come");
            }
            Self::Failed { stream_id, reason } => debug!(stream_id, reason, "a stream fails"),
            Self::Dropped { stream_id, reason } => {
                debug!(stream_id, reason, "a frame for nobody is dropped");
            }
            Self::Refused { stream_id, status } => {
                debug!(stream_id, %status, "a request is refused");
            }
            Self::Abandoned(requests) => {
                debug!(
                    requests,
                    "requests are not handled: their client had left before"
                );
            }
            Self::Parked(parks) => {
                debug!(parks, "reading waits for the peer to take its answers");
            }
        }
    }
}

impl Effects {
    pub(crate) fn wake(&mut self, waker: impl IntoIterator<Item = Waker>) {
        self.others.extend(waker.into_iter().map(Effect::Wake));
    }

    /// Keeps the waker of one who goes on waiting.
    pub(super) fn keep(&mut self, kept: &mut Waker, waker: &Waker) {
        if !kept.will_wake(waker) {
            self.drop_later(mem::replace(kept, waker.clone()));
        }
    }

    /// The same for one who may have been woken.
    pub(super) fn keep_some(&mut self, kept: &mut Option<Waker>, waker: &Waker) {
        match kept {
            Some(kept) => self.keep(kept, waker),
            None => *kept = Some(waker.clone()),
        }
    }

    pub(crate) fn log(&mut self, note: Note) {
        self.others.push(Effect::Log(Box::new(note)));
    }

    /// Drops it behind the lock.
    pub(crate) fn drop_later(&mut self, garbage: impl Any + Send) {
        self.others.push(Effect::Drop(Box::new(garbage)));
    }

    pub(super) fn late(&mut self, record: LateRecord, outcome: LateOutcome) {
        self.others.push(Effect::Late(record, outcome));
    }

    /// Carries out all but a write, and keeps a little memory for the next time. Never under the lock.
    #[inline]
    pub(super) fn run(&mut self) {
        // Most verbs leave nothing to do.
        if self.driver.is_some() || !self.others.is_empty() {
            self.run_all();
        }
    }

    fn run_all(&mut self) {
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
        for effect in self.others.drain(..) {
            match effect {
                Effect::Wake(waker) => waker.wake(),
                Effect::Late(record, outcome) => record.end(outcome),
                Effect::Log(note) => note.log(),
                Effect::Drop(_) => {}
            }
        }
        // Thousands may have been woken at one time.
        if self.others.capacity() > KEPT_ENTRIES {
            self.others = Vec::new();
        }
    }
}

/// A panic in between, be it of a transport, must not leave somebody asleep.
impl Drop for Effects {
    fn drop(&mut self) {
        self.run();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_gives_its_memory_back() {
        let mut effects = Effects::default();
        effects.wake((0..10_000).map(|_| Waker::noop().clone()));
        effects.run();
        assert!(effects.others.capacity() <= KEPT_ENTRIES);
        // A few are no burst.
        effects.wake([Waker::noop().clone()]);
        effects.run();
        assert!(effects.others.capacity() > 0);
    }
}
