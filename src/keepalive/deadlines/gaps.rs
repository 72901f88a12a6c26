//! The longest time between two runs, since whenever.

use std::collections::VecDeque;
use std::time::Duration;

/// The gaps that no later one was as long as, oldest and longest first. Empty nearly always: short
/// ones are not noted.
#[derive(Debug, Default)]
pub(super) struct Gaps(VecDeque<Gap>);

#[derive(Clone, Copy, Debug)]
struct Gap {
    from: Duration,
    to: Duration,
}

impl Gap {
    fn since(&self, since: Duration) -> Duration {
        self.to.saturating_sub(self.from.max(since))
    }
}

impl Gaps {
    /// Notes a gap. Nobody asks for gaps that ended before `oldest` any more.
    pub(super) fn note(&mut self, from: Duration, to: Duration, oldest: Duration) {
        let gap = Gap { from, to };
        while self.0.front().is_some_and(|first| first.to <= oldest) {
            self.0.pop_front();
        }
        let length = gap.since(from);
        while self
            .0
            .back()
            .is_some_and(|last| last.since(last.from) <= length)
        {
            self.0.pop_back();
        }
        self.0.push_back(gap);
    }

    pub(super) fn longest_since(&self, since: Duration) -> Duration {
        let first = self.0.partition_point(|gap| gap.to <= since);
        // Of the first one only a part may lie behind `since`.
        let gaps = self.0.iter().skip(first).take(2);
        gaps.map(|gap| gap.since(since)).max().unwrap_or_default()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
