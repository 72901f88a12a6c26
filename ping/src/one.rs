//! One peer, asked at an interval.

use std::error::Error;

use tokio::time::Instant;
use ttrpc_keepalive::{ConnectError, PeerProcess};

use crate::arguments::Asking;
use crate::connection::Connection;
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
    let mut connection = match Connection::open(address, asking.wait).await {
        Ok(connection) => connection,
        Err(error @ ConnectError::Address { .. }) => return Err(error.to_string()),
        Err(error) => {
            summary.add(&Outcome::NotConnected(reason(&error)), None);
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
        summary.add(&outcome, worth_telling(&outcome, process).await);
        if outcome.is_end() || asking.count == Some(number) {
            break;
        }
        next = (next + asking.interval).max(Instant::now());
        if let Err(reason) = connection.rest_until(next).await {
            summary.add(&Outcome::Ended(reason), None);
            break;
        }
    }
    Ok(())
}

/// What the system says, behind what this program was about to do.
pub(crate) fn reason(error: &ConnectError) -> String {
    match error.source() {
        Some(source) if !error.to_string().contains(&source.to_string()) => {
            format!("{error}: {source}")
        }
        _ => error.to_string(),
    }
}

/// The peer's process, where the outcome asks for it.
async fn worth_telling(outcome: &Outcome, process: Option<PeerProcess>) -> Option<Seen> {
    match (outcome, process) {
        (Outcome::Answered { stalled: false, .. } | Outcome::Read { knows: false, .. }, _) => None,
        (_, Some(process)) => Some(process::look(process).await),
        (_, None) => None,
    }
}
