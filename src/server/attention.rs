//! How long what is read now may have waited. A rule: no runtime, no clock.

use std::time::Duration;

use crate::tuning::{KERNEL_BYTES, PULSE};

/// Since when this side would have read what came. Nothing that is read now is older.
#[derive(Debug, Default)]
pub(super) struct Attention {
    since: Duration,
    /// Bytes that were read since it is known that more lie unread.
    behind: Option<usize>,
    /// Whether the runtime was in time when this turn began.
    in_time: bool,
}

/// What is shorter may be two looks at the clock, and the delay of the second.
const SEEN: Duration = PULSE.saturating_mul(3);

impl Attention {
    /// Reading begins. The runtime was in time so long ago, and would have read.
    pub(super) fn handle_turn(&mut self, now: Duration, in_time: Duration) {
        self.in_time = in_time <= SEEN;
        if self.behind.is_none() {
            self.since = self.since.max(now.saturating_sub(in_time));
        }
    }

    /// So many bytes were read. `drained` if there were no more.
    pub(super) fn handle_read(&mut self, now: Duration, bytes: usize, drained: bool) {
        if drained {
            // Behind bytes the kernel has said so. A reactor that has not run since a pause says it too,
            // of a socket that is full.
            if bytes > 0 || self.in_time {
                self.since = now;
            }
            self.behind = None;
            return;
        }
        let bytes = self.behind.unwrap_or(0).saturating_add(bytes);
        // No kernel holds so many: what comes next has come since.
        self.behind = (bytes < KERNEL_BYTES).then_some(bytes);
    }

    /// How long what is read now may have waited; zero where that is no more than can be told.
    pub(super) fn waited(&self, now: Duration) -> Duration {
        let waited = now.saturating_sub(self.since);
        if waited > SEEN {
            waited
        } else {
            Duration::ZERO
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn what_is_found_after_a_quiet_time_is_as_old_as_the_last_time_that_anything_ran() {
        let mut attention = Attention::default();
        attention.handle_read(ms(100), 10, true);
        // An hour of silence, in which the runtime was in time.
        attention.handle_turn(ms(3_600_000), ms(90));
        assert_eq!(attention.waited(ms(3_600_000)), ms(0));
        // And six seconds in which it did not run.
        attention.handle_turn(ms(3_606_000), ms(6050));
        assert_eq!(attention.waited(ms(3_606_000)), ms(6050));
    }

    #[test]
    fn what_was_read_to_its_end_meanwhile_is_not_counted() {
        let mut attention = Attention::default();
        attention.handle_turn(ms(6000), ms(6000));
        assert_eq!(attention.waited(ms(6000)), ms(6000));
        attention.handle_read(ms(6000), 10, true);
        attention.handle_turn(ms(6400), ms(6400));
        assert_eq!(attention.waited(ms(6400)), ms(400));
    }

    #[test]
    fn a_turn_that_finds_nothing_after_a_pause_proves_nothing() {
        let mut attention = Attention::default();
        attention.handle_turn(ms(6000), ms(6000));
        attention.handle_read(ms(6000), 0, true);
        attention.handle_turn(ms(6001), ms(6001));
        assert_eq!(attention.waited(ms(6001)), ms(6001));
        attention.handle_turn(ms(6300), ms(50));
        attention.handle_read(ms(6300), 0, true);
        assert_eq!(attention.waited(ms(6300)), ms(0));
    }

    #[test]
    fn what_lies_behind_much_else_has_waited_as_long() {
        let mut attention = Attention::default();
        attention.handle_turn(ms(6000), ms(6000));
        attention.handle_read(ms(6000), 1000, false);
        // It takes its time to read all of it, and the runtime is in time again.
        attention.handle_turn(ms(7000), ms(10));
        assert_eq!(attention.waited(ms(7000)), ms(7000));
        // A peer that never stops is not late for ever.
        attention.handle_read(ms(7000), KERNEL_BYTES, false);
        attention.handle_turn(ms(8000), ms(10));
        assert_eq!(attention.waited(ms(8000)), ms(0));
    }
}
