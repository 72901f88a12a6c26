//! How the time of a plugin with its runtime ended.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ttrpc_keepalive::{ConnectionError, Error};

use super::progress::Interrupted;

/// How a connection to a runtime ended. It displays in one line, which is also logged: *closed by the
/// runtime while CreateContainer was 0.2 s overdue*.
#[derive(Clone, Debug)]
pub struct End {
    pub(super) reason: EndReason,
    pub(super) interrupted: Option<Interrupted>,
    /// How far it had come.
    pub(super) stage: Stage,
}

/// Why a connection to a runtime ended.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndReason {
    /// The plugin was told to stop.
    #[error("stopped")]
    Stopped,
    /// There was no runtime to connect to.
    #[error("not connected to {}: {error}", socket.display())]
    NotConnected {
        /// Where it was looked for.
        socket: PathBuf,
        /// What the operating system says.
        #[source]
        error: Arc<std::io::Error>,
    },
    /// The runtime did not take the registration, or did not answer it in time.
    #[error("not registered: {0}")]
    NotRegistered(#[source] Arc<Error>),
    /// The connection ended. A runtime gives no reason when it closes one.
    #[error("{}", Closed(.0))]
    Connection(#[source] ConnectionError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Connecting,
    Registering,
    /// Its events were asked for, and nothing else came.
    Configured,
    Synchronized,
}

struct Closed<'a>(&'a ConnectionError);

impl fmt::Display for Closed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            // A socket that is closed with bytes in it which were not read resets its peer.
            ConnectionError::PeerClosed | ConnectionError::Reset(_) => {
                f.write_str("closed by the runtime")
            }
            ConnectionError::Announced(_) => f.write_str("closed by the runtime, as announced"),
            ended => write!(f, "the connection has ended: {ended}"),
        }
    }
}

impl End {
    /// Why it ended.
    pub fn reason(&self) -> &EndReason {
        &self.reason
    }

    /// The event whose answer was due, or almost, and for how long it had been: most likely the runtime
    /// has closed the connection for that.
    pub fn overdue(&self) -> Option<(&'static str, Duration)> {
        match self.interrupted? {
            Interrupted::Overdue(event, overdue) => Some((event, overdue)),
            Interrupted::Running(..) => None,
        }
    }

    /// Whether the plugin had been given the state of the runtime, so that it was to get events.
    pub fn was_synchronized(&self) -> bool {
        self.stage == Stage::Synchronized
    }

    pub(super) fn stopped() -> Self {
        Self {
            reason: EndReason::Stopped,
            interrupted: None,
            stage: Stage::Connecting,
        }
    }

    /// Whether the runtime has closed the connection.
    pub(super) fn is_close(&self) -> bool {
        matches!(
            self.reason,
            EndReason::Connection(ConnectionError::PeerClosed | ConnectionError::Reset(_))
        )
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)?;
        if !matches!(self.reason, EndReason::Connection(_)) {
            return Ok(());
        }
        match (self.interrupted, self.stage) {
            (Some(Interrupted::Overdue(event, overdue)), _) => {
                write!(
                    f,
                    " while {event} was {:.1} s overdue",
                    overdue.as_secs_f64()
                )
            }
            (Some(Interrupted::Running(event, running)), _) => {
                let running = running.as_secs_f64();
                write!(f, " while {event} had been handled for {running:.1} s")
            }
            (None, Stage::Configured) => f.write_str(" before it was synchronized"),
            (None, Stage::Registering) => f.write_str(" before it was registered"),
            (None, _) => Ok(()),
        }
    }
}
