//! The round trip of PING and PONG.

use std::time::Duration;

/// What was measured, and whether the PING that is out can still be measured.
#[derive(Debug, Default)]
pub(super) struct RoundTrip {
    /// When the newest PING was flushed; `None` once its PONG would no longer tell the truth.
    flushed: Option<Duration>,
    last: Option<Duration>,
    smoothed: Option<Duration>,
}

impl RoundTrip {
    pub(super) fn begin(&mut self, now: Duration) {
        self.flushed = Some(now);
    }

    /// This side paused, or something has judged the PING: its PONG would measure our pause, or a
    /// failure that was already reported, and the next dead peer would be given that long.
    pub(super) fn spoil(&mut self) {
        self.flushed = None;
    }

    /// The PONG of the newest PING came. A second one is no sample.
    pub(super) fn end(&mut self, now: Duration) -> Option<Duration> {
        let flushed = self.flushed.take()?;
        let rtt = now.saturating_sub(flushed);
        self.last = Some(rtt);
        self.smoothed = match self.smoothed {
            None => Some(rtt),
            Some(smoothed) => Some(smoothed.saturating_mul(7).saturating_add(rtt) / 8),
        };
        Some(rtt)
    }

    pub(super) const fn last(&self) -> Option<Duration> {
        self.last
    }

    pub(super) const fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }
}
