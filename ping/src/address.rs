//! Where a peer is, and why it cannot be reached.

use std::error::Error;
use std::fs;
use std::io::ErrorKind;
use std::time::Duration;

use ttrpc_keepalive::ConnectError;

use crate::connection::Connection;
use crate::outcome::Outcome;

/// An address as the crate takes it, also of what is only short for one.
pub(crate) fn written_out(address: &str) -> String {
    let short = ["./", "../", "@"];
    if short.iter().any(|begin| address.starts_with(begin)) {
        return format!("unix://{address}");
    }
    address.to_owned()
}

/// Connects. Lists of sockets, as that of `ss`, show a zero byte of an abstract name as `@`: a name with one
/// is tried both ways.
pub(crate) async fn open(address: &str, wait: Duration) -> Result<Connection, ConnectError> {
    let opened = Connection::open(address, wait).await;
    match address.strip_prefix("unix://@") {
        Some(name) if opened.is_err() && name.contains('@') => {
            let name = name.replace('@', "\0");
            let other = Connection::open(&format!("unix://@{name}"), wait).await;
            other.or(opened)
        }
        _ => opened,
    }
}

/// What it means that no connection was made.
///
/// # Errors
///
/// If the address is none, or if what is there is no socket.
pub(crate) fn not_connected(address: &str, error: &ConnectError) -> Result<Outcome, String> {
    if let ConnectError::Address { .. } = error {
        return Err(error.to_string());
    }
    let path = address.strip_prefix("unix://").unwrap_or(address);
    match fs::metadata(path) {
        // The kernel says of both that nobody listens there.
        Ok(there) if there.is_dir() => {
            return Err(format!(
                "{path} is a folder; `ttrpc-ping scan {path}` asks the sockets in it"
            ));
        }
        Ok(there) if there.is_file() => return Err(format!("{path} is a file, and no socket")),
        _ => {}
    }
    let kind = match error {
        ConnectError::Io { source, .. } => Some(source.kind()),
        ConnectError::TimedOut { source, .. } => source.as_ref().map(std::io::Error::kind),
        _ => None,
    };
    let reason = match kind {
        Some(ErrorKind::NotFound) => "there is no such socket".to_owned(),
        Some(ErrorKind::ConnectionRefused) => "nobody listens there".to_owned(),
        Some(ErrorKind::PermissionDenied) => "this user may not connect to it".to_owned(),
        // Where there is no room a connection waits to be made.
        Some(ErrorKind::WouldBlock) => {
            "as many connections wait as may, and nobody accepts them".to_owned()
        }
        _ => match error.source() {
            Some(source) => source.to_string(),
            None => error.to_string(),
        },
    };
    let gone = matches!(
        kind,
        Some(ErrorKind::NotFound | ErrorKind::ConnectionRefused)
    );
    Ok(Outcome::NotConnected { reason, gone })
}

/// Of a connection that has ended, whether somebody listens all the same: it may be another process
/// by now, or one that ends connections.
pub(crate) async fn looked_at_again(address: &str, outcome: Outcome, wait: Duration) -> Outcome {
    match outcome {
        Outcome::Ended { reason, .. } => Outcome::Ended {
            reason,
            listens: open(address, wait).await.is_ok(),
        },
        other => other,
    }
}
