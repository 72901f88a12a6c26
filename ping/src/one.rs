//! One peer, asked at an interval.

use tokio::time::Instant;
use ttrpc_keepalive::PeerProcess;

use crate::address;
use crate::arguments::Asking;
use crate::outcome::{Health, Outcome};
use crate::process::{self, Seen};
use crate::summary::Summary;

/// Asks until it has asked often enough, is interrupted, or the connection ends.
///
/// # Errors
///
/// If the address is none. All else that goes wrong is an outcome.
pub(crate) async fn run(address: &str, asking: &Asking) -> Result<Health, String> {
    let mut summary = Summary::new(address, asking.json);
    tokio::select! {
        asked = ask_all(address, asking, &mut summary) => asked?,
        // Whatever waits is given up; what was learned so far is what there is.
        _ = tokio::signal::ctrl_c() => {}
    }
    Ok(summary.print())
}

async fn ask_all(address: &str, asking: &Asking, summary: &mut Summary) -> Result<(), String> {
    let address = &address::written_out(address);
    let mut connection = match address::open(address, asking.wait).await {
        Ok(connection) => connection,
        Err(error) => {
            summary.add(&address::not_connected(address, &error)?, None);
            return Ok(());
        }
    };
    let process = connection.process();
    let seen = match process {
        Some(process) => Some(process::look(process).await),
        None => None,
    };
    summary.connected(seen.and_then(|seen| seen.pid));
    let mut next = Instant::now();
    for number in 1.. {
        let outcome = connection.ask(asking.wait).await;
        let outcome = address::looked_at_again(address, outcome, asking.wait).await;
        summary.add(&outcome, worth_telling(&outcome, process).await);
        if outcome.is_end() || asking.count == Some(number) {
            break;
        }
        next = (next + asking.interval).max(Instant::now());
        if let Err(reason) = connection.rest_until(next).await {
            let listens = false;
            let ended = Outcome::Ended { reason, listens };
            let ended = address::looked_at_again(address, ended, asking.wait).await;
            summary.add(&ended, None);
            break;
        }
    }
    Ok(())
}

/// The peer's process, where the outcome asks for it.
async fn worth_telling(outcome: &Outcome, process: Option<PeerProcess>) -> Option<Seen> {
    match (outcome, process) {
        (Outcome::Answered { stalled: false, .. } | Outcome::Read { knows: false, .. }, _) => None,
        // Of a connection that has ended nobody holds the other end.
        (outcome, _) if outcome.is_end() => None,
        (_, Some(process)) => Some(process::look(process).await),
        (_, None) => None,
    }
}
