//! Many peers, asked once each and side by side.

use std::fs;
use std::io::{IsTerminal, stdout};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;

use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use ttrpc_keepalive::ProcessState;

use crate::address;
use crate::arguments::Asking;
use crate::outcome::{Health, Outcome, Time};
use crate::output;
use crate::process::{self, Seen};

/// Connections at one time. Each takes a descriptor.
const AT_ONCE: usize = 64;

struct Row {
    address: String,
    program: Option<String>,
    process: Option<Seen>,
    outcome: Outcome,
}

impl Row {
    fn pid(&self) -> Option<i32> {
        self.process?.pid
    }

    fn health(&self) -> Health {
        self.outcome.health(self.process)
    }
}

/// Asks all sockets of a folder, or those with such abstract names. Interrupted it tells of those that
/// have answered.
///
/// # Errors
///
/// If there is no such folder.
pub(crate) async fn run(place: &str, asking: &Asking) -> Result<Health, String> {
    let addresses = match place.strip_prefix('@') {
        Some(prefix) => {
            let names = process::abstract_names(prefix);
            names
                .into_iter()
                .map(|name| format!("unix://@{name}"))
                .collect()
        }
        None => sockets(Path::new(place))?,
    };
    let all = addresses.len();
    let mut rows = Vec::with_capacity(all);
    let mut asked = JoinSet::new();
    let places = Arc::new(Semaphore::new(AT_ONCE));
    for address in addresses {
        let (asking, places) = (asking.clone(), Arc::clone(&places));
        asked.spawn(async move {
            // It is never closed.
            let _place = places.acquire_owned().await;
            ask(address, &asking).await
        });
    }
    let shows_progress = !asking.json && stdout().is_terminal();
    let mut interrupted = pin!(tokio::signal::ctrl_c());
    loop {
        let row = tokio::select! {
            row = asked.join_next() => row,
            _ = &mut interrupted => None,
        };
        let Some(row) = row else {
            break;
        };
        rows.push(row.map_err(|error| error.to_string())?);
        if shows_progress {
            output::over(&format!("{} of {all} asked", rows.len()));
        }
    }
    if shows_progress {
        output::over("");
    }
    if rows.len() < all || all == 0 {
        eprintln!("ttrpc-ping: {} of {all} sockets asked", rows.len());
    }
    rows.sort_by(|one, other| {
        let order = other.health().cmp(&one.health());
        order.then_with(|| one.address.cmp(&other.address))
    });
    print(&rows, asking.json);
    Ok(rows.iter().map(Row::health).max().unwrap_or(Health::Alive))
}

async fn ask(address: String, asking: &Asking) -> Row {
    let (outcome, process) = match address::open(&address, asking.wait).await {
        Ok(mut connection) => {
            let outcome = connection.ask(asking.wait).await;
            let outcome = address::looked_at_again(&address, outcome, asking.wait).await;
            let process = match connection.process() {
                // Of a connection that has ended nobody holds the other end.
                Some(process) if !outcome.is_end() => Some(process::look(process).await),
                _ => None,
            };
            (outcome, process)
        }
        Err(error) => {
            let outcome = address::not_connected(&address, &error);
            let gone = false;
            let outcome = outcome.unwrap_or_else(|reason| Outcome::NotConnected { reason, gone });
            (outcome, None)
        }
    };
    Row {
        program: process.and_then(|process| process::name(process.pid?)),
        process,
        address,
        outcome,
    }
}

fn sockets(folder: &Path) -> Result<Vec<String>, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut sockets = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| format!("{}: {error}", folder.display()))?;
        // What has gone meanwhile is no socket. A link to one is.
        if fs::metadata(entry.path()).is_ok_and(|there| there.file_type().is_socket()) {
            sockets.push(format!("unix://{}", entry.path().display()));
        }
    }
    sockets.sort();
    Ok(sockets)
}

fn print(rows: &[Row], json: bool) {
    if json {
        for row in rows {
            let time = row.outcome.time();
            let line = json!({
                "address": row.address,
                "pid": row.pid(),
                "program": row.program,
                "process": row.process.map(|process| process.state.to_string()),
                "knows_ping": row.outcome.support(),
                "seconds": time.map(|time| time.as_secs_f64()),
                "outcome": row.outcome.to_string(),
                "health": row.health().to_string(),
            });
            output::line(line);
        }
        return;
    }
    let widest = rows.iter().map(|row| row.address.chars().count()).max();
    let widest = widest.unwrap_or(0).max("ADDRESS".len());
    output::line(format_args!(
        "{:8}  {:widest$}  {:>7}  {:15}  {:20}  {:4}  {:>9}  WHAT CAME",
        "HEALTH", "ADDRESS", "PID", "PROGRAM", "PROCESS", "PING", "TIME"
    ));
    let colours = output::is_coloured();
    for row in rows {
        let (begin, end) = match row.health() {
            Health::Doubtful if colours => ("\x1b[33m", "\x1b[0m"),
            Health::Gone if colours => ("\x1b[31m", "\x1b[0m"),
            _ => ("", ""),
        };
        let dash = || "-".to_owned();
        output::line(format_args!(
            "{begin}{:8}{end}  {:widest$}  {:>7}  {:15}  {:20}  {:4}  {:>9}  {}",
            row.health(),
            row.address,
            row.pid().map_or_else(dash, |pid| pid.to_string()),
            row.program.clone().unwrap_or_else(dash),
            match row.process.map(|process| process.state) {
                // Why not is told by the lines about one peer.
                None | Some(ProcessState::Unknown(_)) => dash(),
                Some(state) => state.to_string(),
            },
            row.outcome.support(),
            row.outcome
                .time()
                .map_or_else(dash, |time| Time(time).to_string()),
            row.outcome,
        ));
    }
}
