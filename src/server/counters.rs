//! What became of calls that did not go the ordinary way.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What has become of a server's calls, on all its connections, since it was built.
///
/// Only what is out of the ordinary: a call that is served and answered is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerCounters {
    /// Requests answered RESOURCE_EXHAUSTED at once, since too many ran or waited.
    pub refused: u64,
    /// Requests answered DEADLINE_EXCEEDED without their handler, since they had expired.
    pub expired: u64,
    /// Requests that were not handled since their client had left: the end of the connection lay behind
    /// them, or came before their handler could begin.
    pub abandoned: u64,
    /// Requests that were not handled since they [may have
    /// waited](crate::MethodOptions::refuse_waited) for too long while this process did not run.
    pub waited: u64,
    /// Calls answered at their [soft deadline](crate::MethodOptions::soft_deadline).
    pub soft_answers: u64,
    /// What handlers returned for nobody: after a soft deadline, or late with
    /// [`OnDeadline::DropAnswer`](crate::OnDeadline::DropAnswer).
    pub results_dropped: u64,
    /// Handlers that were stopped, by a [`timeout`](crate::MethodOptions::timeout) or
    /// [`OnDeadline::Cancel`](crate::OnDeadline::Cancel).
    pub handlers_cut: u64,
}

/// The same, while it is being counted.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) refused: AtomicU64,
    pub(super) expired: AtomicU64,
    pub(super) abandoned: AtomicU64,
    pub(super) waited: AtomicU64,
    pub(super) soft_answers: AtomicU64,
    pub(super) results_dropped: AtomicU64,
    pub(super) handlers_cut: AtomicU64,
}

impl Counts {
    pub(super) fn now(&self) -> ServerCounters {
        ServerCounters {
            refused: self.refused.load(Relaxed),
            expired: self.expired.load(Relaxed),
            abandoned: self.abandoned.load(Relaxed),
            waited: self.waited.load(Relaxed),
            soft_answers: self.soft_answers.load(Relaxed),
            results_dropped: self.results_dropped.load(Relaxed),
            handlers_cut: self.handlers_cut.load(Relaxed),
        }
    }
}
