//! What a service takes along: calls by a hook, the peer by its liveness. Both only report; with no
//! recorder installed they cost next to nothing.

use std::time::Duration;

use metrics::{
    Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use ttrpc_keepalive::{AtEnd, CallStart, Error, Liveness, Outcome, Peer, State, Status, Verdict};

/// Says what each metric is. Call it once, when a recorder is installed.
pub(crate) fn describe() {
    describe_counter!(
        "ttrpc_calls_total",
        "Calls that have ended, by what came of them"
    );
    describe_histogram!("ttrpc_call_seconds", Unit::Seconds, "How long calls took");
    describe_gauge!(
        "ttrpc_peer",
        "0 if the peer is gone, 1 if it is doubtful, 2 if it is alive"
    );
    describe_counter!(
        "ttrpc_silences_total",
        "How often the peer was suspect for its silence"
    );
    describe_counter!(
        "ttrpc_convictions_total",
        "Connections ended since their peer was dead"
    );
    describe_counter!(
        "ttrpc_local_stalls_total",
        "How often this side did not run for a while"
    );
    describe_gauge!(
        "ttrpc_round_trip_seconds",
        Unit::Seconds,
        "The smoothed round trip of PINGs"
    );
    describe_gauge!(
        "ttrpc_late_calls",
        "Calls that ran out of time and are still unanswered"
    );
}

/// The hook of a client: counts each of its calls when it ends.
///
/// The method is a label, so it must come from code. A server that uses this labels by what clients
/// ask for, and refuses unknown methods before its hook is asked.
pub(crate) fn count_call(call: &mut CallStart<'_>) -> Result<AtEnd, Status> {
    let method = format!("{}/{}", call.service(), call.method());
    Ok(AtEnd::run(move |end| {
        let outcome = outcome(end.outcome());
        histogram!("ttrpc_call_seconds", "method" => method.clone()).record(end.took());
        counter!("ttrpc_calls_total", "method" => method, "outcome" => outcome).increment(1);
    }))
}

/// A word for each thing that an operator would do something else about. No text of a peer: labels are
/// kept for ever, and a peer could make any number of them.
fn outcome(outcome: Outcome<'_>) -> &'static str {
    match outcome {
        Outcome::Answered => "answered",
        Outcome::Refused(_) => "refused",
        Outcome::Failed(error) => failure(error),
        _ => "dropped",
    }
}

fn failure(error: &Error) -> &'static str {
    match error.verdict() {
        Some(Verdict::Slow) => "late: slow",
        Some(Verdict::HandlersStalled) => "late: handlers stalled",
        Some(Verdict::Unresponsive) => "late: unresponsive",
        Some(Verdict::NotReading) => "late: not reading",
        Some(Verdict::NotSent) => "late: not sent",
        Some(Verdict::LocalStall) => "late: this side stalled",
        Some(_) => "late: unknown",
        None if error.status().is_some() => "refused",
        None if error.is_connection() => "connection ended",
        None => "failed here",
    }
}

/// Follows one peer until its connection has ended. `every` bounds how old the round trip and the
/// number of late calls may be: these change without a word on the stream.
pub(crate) async fn watch(name: &'static str, mut liveness: Liveness, every: Duration) {
    let mut before = ttrpc_keepalive::keepalive::Counters::default();
    loop {
        // A look from time to time, or a change of state at once.
        let changed = tokio::time::timeout(every, liveness.next()).await;
        if matches!(changed, Ok(None)) {
            return;
        }
        let seen = liveness.snapshot();
        let peer = match seen.peer() {
            Peer::Alive => 2.0,
            Peer::Doubtful => 1.0,
            Peer::Gone => 0.0,
        };
        gauge!("ttrpc_peer", "peer" => name).set(peer);
        if let Some(round_trip) = seen.smoothed_rtt() {
            gauge!("ttrpc_round_trip_seconds", "peer" => name).set(round_trip);
        }
        let late = u32::try_from(seen.late_calls_unanswered()).unwrap_or(u32::MAX);
        gauge!("ttrpc_late_calls", "peer" => name).set(late);

        let counted = seen.counters().keepalive;
        let silences = counted.suspect_entries - before.suspect_entries;
        counter!("ttrpc_silences_total", "peer" => name).increment(silences);
        let stalls = counted.local_stalls - before.local_stalls;
        counter!("ttrpc_local_stalls_total", "peer" => name).increment(stalls);
        before = counted;

        if let State::Dead(reason) = seen.state() {
            let reason = reason.to_string();
            counter!("ttrpc_convictions_total", "peer" => name, "reason" => reason).increment(1);
            return;
        }
    }
}
