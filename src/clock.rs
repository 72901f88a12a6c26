//! The one place that reads the time.

use std::time::{Duration, Instant as StdInstant, SystemTime};

use tokio::time::Instant;

/// The time of one connection: everything else is told how long it has existed.
///
/// Rules take that duration as an argument, so a test that pauses tokio's clock controls all of
/// them, and nothing can compare the readings of two clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self {
            origin: Instant::now(),
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// What somebody else has read from tokio's clock. Before the connection began is when it began.
    pub(crate) fn at(&self, instant: StdInstant) -> Duration {
        Instant::from_std(instant).saturating_duration_since(self.origin)
    }

    /// `None` if the instant cannot be represented: what cannot be represented is never due.
    pub(crate) fn instant(&self, at: Duration) -> Option<Instant> {
        self.origin.checked_add(at)
    }
}

/// A number for this moment, of which only the difference to others matters.
pub(crate) fn moment() -> u128 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos())
}
