//! The machine beside the model, step by step.

use super::model::{Counts, Model, nanos};
use super::operations::{Checked, Step};

/// Runs the machine beside the model and returns how the machine ended.
pub(crate) fn compare(choice: u8, steps: &[Step]) -> Checked {
    let (mut checked, mut model) = (Checked::new(choice), Model::new(choice));
    for (index, &step) in steps.iter().enumerate() {
        let (instant, ping) = checked.take(step);
        model.apply(instant, step.operation);
        assert_eq!(
            ping,
            model.take_ping(),
            "PING after step {index}, {step:?} at {instant:?}"
        );
        let (seen, now) = (checked.seen(), checked.now);
        let context = || format!("step {index}, {step:?} at {instant:?}, choice {choice}");
        let ago = |since: Option<u128>| since.map(|since| nanos(now).saturating_sub(since));
        assert_eq!(
            (seen.state, seen.overdue, seen.support),
            (model.state, model.overdue, model.support),
            "{}",
            context()
        );
        assert_eq!(
            (seen.peer, seen.watched),
            (model.peer(), model.watched()),
            "{}",
            context()
        );
        assert_eq!(
            nanos(seen.last_evidence),
            model.last_evidence(),
            "{}",
            context()
        );
        let evidence = seen.evidence;
        assert_eq!(
            evidence.awaiting_pong_for.map(nanos),
            ago(model.awaiting()),
            "{}",
            context()
        );
        assert_eq!(
            evidence.write_blocked_for.map(nanos),
            ago(model.blocked()),
            "{}",
            context()
        );
        let read = (evidence.read_ago.map(nanos), evidence.unread_for.map(nanos));
        assert_eq!(
            (seen.asks_unread, evidence.receipts, read),
            (
                model.asks_unread(),
                model.receipts(),
                (ago(model.read), ago(model.unread()))
            ),
            "{}",
            context()
        );
        assert_eq!(
            (evidence.rtt.map(nanos), evidence.smoothed_rtt.map(nanos)),
            (model.rtt, model.smoothed),
            "{}",
            context()
        );
        assert_eq!(
            evidence.local_stall.map(nanos),
            model.local_stall,
            "{}",
            context()
        );
        assert_eq!(
            (evidence.handlers_stalled, seen.answered),
            (model.handlers_stalled, model.answered),
            "{}",
            context()
        );
        assert_eq!(seen.look_due, model.look_due(nanos(now)), "{}", context());
        let counters = seen.counters;
        let counts = Counts {
            sent: counters.pings_sent,
            pongs: counters.pongs_received,
            suspects: counters.suspect_entries,
            recoveries: counters.recoveries,
            stalls: counters.local_stalls,
            silent: counters.convictions_silent,
            not_reading: counters.convictions_not_reading,
        };
        assert_eq!(counts, model.counts, "{}", context());
    }
    checked
}
