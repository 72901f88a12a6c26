//! The distance from evidence to the next PING.

use std::time::Duration;

/// The interval with its jitter, which only lengthens: a peer may rely on the interval as the
/// shortest distance.
#[derive(Debug)]
pub(super) struct Interval {
    shortest: Duration,
    /// By how many nanoseconds it may be longer.
    span: u64,
    random: u64,
    current: Duration,
}

impl Interval {
    pub(super) fn new(shortest: Duration, jitter_percent: u8, seed: u64) -> Self {
        let span = (shortest / 100).saturating_mul(u32::from(jitter_percent));
        let span = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let mut interval = Self {
            shortest,
            span,
            random: seed,
            current: shortest,
        };
        interval.draw();
        interval
    }

    pub(super) const fn current(&self) -> Duration {
        self.current
    }

    /// Draws the next one.
    pub(super) fn draw(&mut self) {
        if self.span > 0 {
            let longer = Duration::from_nanos(self.next_random() % self.span);
            self.current = self.shortest.saturating_add(longer);
        }
    }

    /// SplitMix64: one word of state, and any seed will do.
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}
