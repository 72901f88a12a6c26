//! Attended time: how long a peer has been silent while this side was looking.

use std::time::Duration;

/// So many late looks of one clock give time back to the peer; after them an observer that is
/// always throttled still comes to a decision.
const FORGIVEN_LOOKS: u8 = 4;

/// A clock that advances only by looks, used for a PING on trial and for a blocked write.
///
/// *The timer fired* does not mean *the peer was silent*: after a pause of this process the timer
/// and the answer are both there, and the timer may be seen first. So each look adds at most a
/// quarter of the limit, however long it took to come, and a look that comes very late leaves at
/// least half of the limit to the peer, which may have been paused together with us.
#[derive(Clone, Debug)]
pub(super) struct Attended {
    limit: Duration,
    attended: Duration,
    last: Duration,
    late_looks: u8,
    gap_noted: bool,
}

/// How much of the limit was attended after a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waited {
    /// The look was not due.
    TooEarly,
    Little,
    Half,
    All,
}

impl Attended {
    pub(super) const fn new(now: Duration, limit: Duration) -> Self {
        Self {
            limit,
            attended: Duration::ZERO,
            last: now,
            late_looks: 0,
            gap_noted: false,
        }
    }

    /// When the next look is due; `None` if that instant cannot be represented.
    pub(super) fn due(&self) -> Option<Duration> {
        let step = self.quarter().min(self.limit.saturating_sub(self.attended));
        self.last.checked_add(step.max(Duration::from_nanos(1)))
    }

    pub(super) fn is_due(&self, now: Duration) -> bool {
        self.due().is_some_and(|due| due <= now)
    }

    /// A look that found nothing. One that is not due yet changes nothing, so looking often never
    /// convicts sooner.
    pub(super) fn look(&mut self, now: Duration) -> Waited {
        if !self.is_due(now) {
            return Waited::TooEarly;
        }
        let gap = now.saturating_sub(self.last);
        self.attended = self.attended.saturating_add(gap.min(self.quarter()));
        if self.is_late(gap) && self.late_looks < FORGIVEN_LOOKS {
            self.late_looks += 1;
            self.attended = self.attended.min(self.limit / 2);
        }
        self.last = now;
        self.gap_noted = false;
        if self.attended >= self.limit {
            Waited::All
        } else if self.attended.saturating_mul(2) >= self.limit {
            Waited::Half
        } else {
            Waited::Little
        }
    }

    /// The time since the last look if that is a pause of ours, told once for each pause.
    pub(super) fn note_gap(&mut self, now: Duration) -> Option<Duration> {
        let gap = now.saturating_sub(self.last);
        if self.gap_noted || !self.is_late(gap) {
            return None;
        }
        self.gap_noted = true;
        Some(gap)
    }

    pub(super) const fn attended(&self) -> Duration {
        self.attended
    }

    /// Rounded up, so that four looks on time reach the limit whatever its value.
    fn quarter(&self) -> Duration {
        self.limit.saturating_add(Duration::from_nanos(3)) / 4
    }

    fn is_late(&self, gap: Duration) -> bool {
        gap.saturating_mul(2) > self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Looks at each given instant and returns the attended time after each.
    fn attended(limit: Duration, looks: &[u64]) -> Vec<Duration> {
        let mut clock = Attended::new(Duration::ZERO, limit);
        looks
            .iter()
            .map(|&at| (clock.look(ms(at)), clock.attended()).1)
            .collect()
    }

    #[test]
    fn looks_on_time_add_up_to_the_limit_exactly() {
        assert_eq!(
            attended(ms(1000), &[250, 500, 750, 1000]),
            [ms(250), ms(500), ms(750), ms(1000)]
        );
    }

    #[test]
    fn early_looks_change_nothing() {
        assert_eq!(
            attended(ms(1000), &[100, 200, 249, 250, 300, 499]),
            [ms(0), ms(0), ms(0), ms(250), ms(250), ms(250)]
        );
    }

    #[test]
    fn late_looks_leave_half_of_the_limit_to_the_peer_four_times() {
        let far = [250, 500, 750, 2000, 4000, 6000, 8000, 8250, 10_000];
        let seen = attended(ms(1000), &far);
        assert_eq!(seen[2..7], [ms(750), ms(500), ms(500), ms(500), ms(500)]);
        assert_eq!(seen[7..], [ms(750), ms(1000)]);
    }

    #[test]
    fn four_looks_reach_a_limit_that_four_does_not_divide() {
        for nanos in [20_000_001, 20_000_002, 20_000_003, 333_333_333] {
            let limit = Duration::from_nanos(nanos);
            let mut clock = Attended::new(Duration::ZERO, limit);
            let waited: Vec<_> = (0..4).map(|_| clock.look(clock.due().unwrap())).collect();
            assert_eq!(
                waited,
                [Waited::Little, Waited::Half, Waited::Half, Waited::All]
            );
            assert_eq!(clock.last, limit);
        }
    }

    #[test]
    fn a_gap_is_told_once() {
        let mut clock = Attended::new(ms(0), ms(1000));
        assert_eq!(clock.note_gap(ms(500)), None);
        assert_eq!(clock.note_gap(ms(501)), Some(ms(501)));
        assert_eq!(clock.note_gap(ms(600)), None);
        clock.look(ms(600));
        assert_eq!(clock.note_gap(ms(1200)), Some(ms(600)));
    }

    #[test]
    fn what_cannot_be_represented_is_never_due() {
        assert_eq!(Attended::new(Duration::MAX, ms(1000)).due(), None);
        let endless = Attended::new(ms(1), Duration::MAX);
        assert!(!endless.is_due(Duration::from_secs(1 << 40)));
    }
}
