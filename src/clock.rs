//! The one place that reads the time, and the timer of whoever waits.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::{Duration, Instant as StdInstant, SystemTime};

use tokio::runtime::{self, Handle};
use tokio::task::unconstrained;
use tokio::time::{Instant, Sleep, sleep_until};

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

/// A timer of somebody who waits, and may go on to wait when the runtime on which he began is gone: it
/// goes off by the one that polls it then. tokio's own panics.
///
/// A task that has used up its share of its thread is told of it all the same: what keeps it busy must
/// not keep it from its limit.
#[derive(Debug)]
pub(crate) struct Alarm {
    at: Instant,
    runtime: runtime::Id,
    sleep: Pin<Box<Sleep>>,
}

impl Alarm {
    /// # Panics
    ///
    /// Outside of a tokio runtime with time enabled.
    pub(crate) fn at(at: Instant) -> Self {
        Self {
            at,
            runtime: Handle::current().id(),
            sleep: Box::pin(sleep_until(at)),
        }
    }

    /// As [`at`](Self::at). What cannot be represented goes off in thirty years.
    pub(crate) fn after(time: Duration) -> Self {
        const LONG: Duration = Duration::from_secs(30 * 365 * 86_400);
        let now = Instant::now();
        Self::at(now.checked_add(time).unwrap_or_else(|| now + LONG))
    }
}

impl Future for Alarm {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let here = Handle::try_current();
        if here.is_ok_and(|here| here.id() != self.runtime) {
            *self = Self::at(self.at);
        }
        pin!(unconstrained(self.sleep.as_mut())).poll(cx)
    }
}

/// Does this in so much time, or gives `None`.
pub(crate) async fn within<F: Future>(limit: Duration, work: F) -> Option<F::Output> {
    let (mut work, mut over) = (pin!(work), Alarm::after(limit));
    let done = poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => Pin::new(&mut over).poll(cx).map(|()| None),
    });
    done.await
}

/// A number for this moment, of which only the difference to others matters.
pub(crate) fn moment() -> u128 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos())
}
