//! The late answer: how a caller learns that a slow peer is well again.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::watch;

use super::ConnectionError;

/// Ends when the answer to a late call comes after all.
///
/// A caller that set a slow peer aside serves it again then; until the answer is here the peer may
/// still be at work on the old request. The answer itself is dropped: whoever asked for it has
/// gone on without it.
///
/// # Cancel safety
///
/// Dropping it changes nothing on the connection; a clone goes on waiting.
#[must_use = "a future does nothing unless it is awaited"]
pub struct LateAnswer {
    outcome: watch::Receiver<Option<LateOutcome>>,
    waiting: Option<Pin<Box<dyn Future<Output = LateOutcome> + Send + Sync>>>,
}

/// How a late call ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LateOutcome {
    /// The answer came, so long after the call had begun.
    Answered {
        /// From the start of the call to its answer.
        after: Duration,
    },
    /// Too many newer calls were late; this one is no longer followed.
    Forgotten,
    /// The connection ended first.
    Ended(ConnectionError),
}

impl Future for LateAnswer {
    type Output = LateOutcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<LateOutcome> {
        let this = &mut *self;
        let waiting = this
            .waiting
            .get_or_insert_with(|| Box::pin(outcome(this.outcome.clone())));
        waiting.as_mut().poll(cx)
    }
}

async fn outcome(mut outcome: watch::Receiver<Option<LateOutcome>>) -> LateOutcome {
    match outcome.wait_for(Option::is_some).await.as_deref() {
        Ok(Some(outcome)) => outcome.clone(),
        // The driver reports an outcome for every record it lets go of, unless it was itself
        // dropped with its runtime.
        _ => LateOutcome::Ended(ConnectionError::Abandoned),
    }
}

impl Clone for LateAnswer {
    fn clone(&self) -> Self {
        Self {
            outcome: self.outcome.clone(),
            waiting: None,
        }
    }
}

impl fmt::Debug for LateAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LateAnswer")
            .field("outcome", &*self.outcome.borrow())
            .finish_non_exhaustive()
    }
}

/// The driver's end of a [`LateAnswer`].
#[derive(Debug)]
pub(crate) struct LateRecord {
    started: Duration,
    outcome: watch::Sender<Option<LateOutcome>>,
}

impl LateRecord {
    pub(crate) fn new(started: Duration) -> Self {
        Self {
            started,
            outcome: watch::Sender::new(None),
        }
    }

    pub(crate) fn answer(&self) -> LateAnswer {
        LateAnswer {
            outcome: self.outcome.subscribe(),
            waiting: None,
        }
    }

    /// How long ago its call began.
    pub(crate) fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.started)
    }

    pub(crate) fn end(self, outcome: LateOutcome) {
        self.outcome.send_replace(Some(outcome));
    }
}
