//! The time before the deadline of one call, in which the verdict on its peer is prepared.

use std::time::Duration;

use super::Keepalive;
use super::verdict::is_stall;

/// The deadline of one call, the instant before it at which the peer is asked, and the longest pause
/// of the driver between the two.
///
/// From `ask_at` on the driver runs at least every quarter of the lead, see
/// [`next_run`](Self::next_run), and reports each run, so that a verdict can tell a silent peer
/// from an observer that was not looking.
#[derive(Clone, Debug)]
pub struct CallDeadline {
    deadline: Duration,
    lead: Duration,
    longest_gap: Duration,
}

impl CallDeadline {
    /// A call that began at `start` and may take `timeout`; both count from the connection's
    /// beginning.
    #[must_use]
    pub fn new(start: Duration, timeout: Duration, keepalive: &Keepalive) -> Self {
        Self {
            deadline: start.saturating_add(timeout),
            lead: keepalive.lead_for(timeout),
            longest_gap: Duration::ZERO,
        }
    }

    /// The same after runs of which the longest gap is known.
    pub(super) const fn with_gap(
        deadline: Duration,
        lead: Duration,
        longest_gap: Duration,
    ) -> Self {
        Self {
            deadline,
            lead,
            longest_gap,
        }
    }

    /// When an unanswered call wants a PING: the deadline less the lead.
    #[must_use]
    pub const fn ask_at(&self) -> Duration {
        self.deadline.saturating_sub(self.lead)
    }

    /// When the call has run out of time.
    #[must_use]
    pub const fn deadline(&self) -> Duration {
        self.deadline
    }

    /// The time between [`ask_at`](Self::ask_at) and the deadline.
    #[must_use]
    pub const fn lead(&self) -> Duration {
        self.lead
    }

    /// The longest time between two runs of the driver since [`ask_at`](Self::ask_at).
    #[must_use]
    pub const fn longest_gap(&self) -> Duration {
        self.longest_gap
    }

    /// Whether that was a pause of this side, in which it could not have seen the peer: more than half
    /// of the lead, and more than the 5 ms by which timers differ.
    #[must_use]
    pub fn has_stalled(&self) -> bool {
        is_stall(self.longest_gap, self.lead)
    }

    /// Notes a run of the driver at `now`, the one before it being at `previous_run`.
    pub fn handle_run(&mut self, previous_run: Duration, now: Duration) {
        let gap = now.saturating_sub(previous_run.max(self.ask_at()));
        self.longest_gap = self.longest_gap.max(gap);
    }

    /// When the driver must run next for this call: at `ask_at`, then every quarter of the lead, at
    /// last at the deadline.
    #[must_use]
    pub fn next_run(&self, previous_run: Duration) -> Duration {
        if previous_run < self.ask_at() {
            return self.ask_at();
        }
        let step = (self.lead / 4).max(Duration::from_nanos(1));
        previous_run.saturating_add(step).min(self.deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn lead_is_a_quarter_of_a_short_call() {
        let keepalive = Keepalive::on_demand();
        let long = CallDeadline::new(ms(100), ms(2000), &keepalive);
        assert_eq!(
            (long.ask_at(), long.deadline(), long.lead()),
            (ms(1850), ms(2100), ms(250))
        );
        let short = CallDeadline::new(ms(100), ms(40), &keepalive);
        assert_eq!(
            (short.ask_at(), short.deadline(), short.lead()),
            (ms(130), ms(140), ms(10))
        );
    }

    #[test]
    fn runs_are_wanted_at_ask_at_every_quarter_lead_and_at_the_deadline() {
        let call = CallDeadline::new(
            ms(0),
            ms(1000),
            &Keepalive::on_demand().probe_before_deadline(ms(200)),
        );
        let mut runs = vec![call.next_run(ms(3))];
        while *runs.last().unwrap() < call.deadline() {
            runs.push(call.next_run(*runs.last().unwrap()));
        }
        assert_eq!(runs, [ms(800), ms(850), ms(900), ms(950), ms(1000)]);
        assert_eq!(call.next_run(ms(990)), ms(1000));
    }

    #[test]
    fn only_gaps_after_ask_at_count() {
        let mut call = CallDeadline::new(ms(0), ms(1000), &Keepalive::on_demand());
        call.handle_run(ms(0), ms(700));
        assert_eq!(call.longest_gap(), ms(0));
        call.handle_run(ms(700), ms(800));
        assert_eq!(call.longest_gap(), ms(50));
        call.handle_run(ms(800), ms(990));
        call.handle_run(ms(990), ms(1000));
        assert_eq!(call.longest_gap(), ms(190));
    }

    #[test]
    fn extreme_values_saturate() {
        let keepalive = Keepalive::on_demand();
        let none = CallDeadline::new(ms(5), ms(0), &keepalive);
        assert_eq!(
            (none.ask_at(), none.next_run(ms(4)), none.next_run(ms(5))),
            (ms(5), ms(5), ms(5))
        );
        let endless = CallDeadline::new(ms(5), Duration::MAX, &keepalive);
        assert_eq!(endless.deadline(), Duration::MAX);
        assert_eq!(endless.next_run(ms(5)), Duration::MAX - ms(250));
    }
}
