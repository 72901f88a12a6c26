//! How many requests or responses a turn takes before others have the thread, and what they have
//! queued is written.
//!
//! All at one time costs the fewest turns and writes. A few at a time lets the peer work on the first
//! while this side works on the others: with a core for each neither of them sleeps, which is worth
//! more than all else. With one core for both nothing runs beside, and it only costs. Nothing that a
//! driver can ask says which it is, so now and then both ways are tried and timed.

use std::time::Duration;

use crate::tuning::{SHARE_FEW, SHARE_FIRST_TRIAL, SHARE_GAIN, SHARE_LAST_TRIAL, SHARE_WINDOW};

/// What has been learned of one connection. It tries after a number of frames and not after a time,
/// so that both ends do it together: they see the same calls, and one that cuts alone gains less.
#[derive(Debug)]
pub(super) struct Share {
    phase: Phase,
    /// Frames taken since the phase began.
    taken: u32,
    begun: Duration,
    /// The same for this turn.
    turn: u32,
    /// What one frame took when turns were whole.
    whole: Duration,
    /// Whether a turn takes few: what the last trial said.
    cuts: bool,
    /// Frames until the next trial.
    distance: u32,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Settled,
    TryWhole,
    /// The peer needs some rounds to be in step.
    WarmUp,
    TryFew,
}

impl Default for Share {
    fn default() -> Self {
        Self {
            phase: Phase::Settled,
            taken: 0,
            begun: Duration::ZERO,
            turn: 0,
            whole: Duration::ZERO,
            cuts: false,
            distance: SHARE_FIRST_TRIAL,
        }
    }
}

impl Share {
    pub(super) fn begin_turn(&mut self, now: Duration) {
        self.turn = 0;
        let length = match self.phase {
            Phase::Settled => self.distance,
            Phase::TryWhole | Phase::TryFew => SHARE_WINDOW,
            Phase::WarmUp => SHARE_WINDOW / 4,
        };
        if self.taken < length {
            return;
        }
        let each = now.saturating_sub(self.begun) / self.taken;
        self.phase = match self.phase {
            Phase::Settled => Phase::TryWhole,
            Phase::TryWhole => {
                self.whole = each;
                Phase::WarmUp
            }
            Phase::WarmUp => Phase::TryFew,
            Phase::TryFew => {
                self.cuts =
                    each.saturating_mul(SHARE_GAIN) < self.whole.saturating_mul(SHARE_GAIN - 1);
                self.distance = self.distance.saturating_mul(2).min(SHARE_LAST_TRIAL);
                Phase::Settled
            }
        };
        self.taken = 0;
        self.begun = now;
    }

    /// A request or a response is taken. Returns whether the turn has its share.
    pub(super) fn take(&mut self) -> bool {
        self.taken = self.taken.saturating_add(1);
        self.turn = self.turn.saturating_add(1);
        let cuts = match self.phase {
            Phase::Settled => self.cuts,
            Phase::TryWhole => false,
            Phase::WarmUp | Phase::TryFew => true,
        };
        cuts && self.turn >= SHARE_FEW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes so many frames in turns of at most 16, as a peer with 16 calls in flight brings them: each
    /// turn takes its frames' time, whole ones and cut ones another.
    struct Run {
        share: Share,
        now: Duration,
    }

    impl Run {
        fn new() -> Self {
            Self {
                share: Share::default(),
                now: Duration::ZERO,
            }
        }

        /// Returns how many of the turns were cut.
        fn take(&mut self, frames: u32, whole: u64, few: u64) -> u32 {
            let (mut left, mut cut) = (frames, 0);
            while left > 0 {
                self.share.begin_turn(self.now);
                let mut taken = 1;
                let mut enough = self.share.take();
                while !enough && taken < 16 {
                    taken += 1;
                    enough = self.share.take();
                }
                cut += u32::from(enough);
                let each = if enough { few } else { whole };
                self.now += Duration::from_nanos(each) * taken;
                left = left.saturating_sub(taken);
            }
            cut
        }
    }

    const TRIAL: u32 = SHARE_FIRST_TRIAL + 3 * SHARE_WINDOW;

    #[test]
    fn turns_are_whole_until_few_at_a_time_have_proved_faster() {
        let mut run = Run::new();
        assert_eq!(run.take(SHARE_FIRST_TRIAL, 3000, 1000), 0);
        run.take(3 * SHARE_WINDOW, 3000, 1000);
        assert_eq!(run.take(1600, 3000, 1000), 400);
    }

    #[test]
    fn what_is_not_clearly_faster_is_not_kept() {
        for few in [2700, 3000, 4000] {
            let mut run = Run::new();
            run.take(TRIAL, 3000, few);
            assert_eq!(run.take(1600, 3000, few), 0, "{few}");
        }
    }

    #[test]
    fn what_was_learned_is_tried_again_when_it_has_become_wrong() {
        let mut run = Run::new();
        run.take(TRIAL, 3000, 1000);
        // Both processes are on one core now.
        run.take(2 * TRIAL, 3000, 4000);
        assert_eq!(run.take(1600, 3000, 4000), 0);
    }

    #[test]
    fn trials_cost_a_twentieth_of_the_turns_in_the_long_run() {
        let mut run = Run::new();
        run.take(10 * SHARE_LAST_TRIAL, 3000, 4000);
        let frames = 20 * SHARE_LAST_TRIAL;
        let cut = run.take(frames, 3000, 4000) * SHARE_FEW;
        assert!(cut > 0 && cut < frames / 20, "{cut} of {frames}");
    }

    #[test]
    fn a_clock_that_stands_still_proves_nothing() {
        let mut run = Run::new();
        run.take(TRIAL, 0, 0);
        assert_eq!(run.take(1600, 0, 0), 0);
    }
}
