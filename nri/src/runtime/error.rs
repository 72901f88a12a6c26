//! Why an event fails, and why a plugin was not heard.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use ttrpc_keepalive::{ConfigError, ConnectError, ConnectionError, Error, Status, Verdict};

use super::combine::Conflict;
use crate::api::Event;

/// Why a plugin has no part in an event: the cause that a log, and who debugs a node, needs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Absence {
    /// It was asked, and its answer did not come in time: [`Error::verdict`] says whether it is slow or does
    /// not respond.
    Late(Arc<Error>),
    /// It was late with an earlier event, was found so then, and has not answered that one yet.
    SetAside(Verdict),
    /// It fell silent while nothing was asked of it. It is asked again when it is heard.
    Silent,
    /// It has not answered *Synchronize* yet.
    Synchronizing,
    /// Its connection has ended: it was convicted, or it closed, or it crashed.
    Gone(ConnectionError),
    /// It is required, and has never registered.
    NotRegistered,
}

impl Absence {
    /// What was found of its process when it was late.
    pub fn verdict(&self) -> Option<Verdict> {
        match self {
            Self::Late(error) => error.verdict(),
            Self::SetAside(verdict) => Some(*verdict),
            _ => None,
        }
    }
}

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late(error) => write!(f, "it is late: {error}"),
            Self::SetAside(verdict) => write!(
                f,
                "it has not answered an earlier event, and is set aside until it does: {verdict}"
            ),
            Self::Silent => f.write_str("it is silent, and is asked again when it is heard"),
            Self::Synchronizing => f.write_str("it has not answered Synchronize yet"),
            Self::Gone(end) => match end.dead_reason() {
                Some(_) => write!(f, "it was found dead: {end}"),
                None => write!(f, "it is gone: {end}"),
            },
            Self::NotRegistered => f.write_str("it has not registered"),
        }
    }
}

/// Why an event failed. It names the plugin: *CreateContainer failed: required plugin 10-devices: ...*
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum EventError {
    /// The plugin answered in time with an error of its own. Those behind it were not asked.
    Refused {
        /// Its index and name.
        plugin: String,
        /// What it was asked.
        event: Event,
        /// What it answered.
        status: Status,
    },
    /// A validator rejects the adjustments of the others.
    Rejected {
        /// Its index and name.
        plugin: String,
        /// Why, in its own words.
        reason: String,
    },
    /// Two plugins want different things of the same field.
    Conflict(Conflict),
    /// A plugin without which this event may not go on had no part in it.
    Absent {
        /// Its index and name, or the name by which it is required.
        plugin: String,
        /// What it would have been asked.
        event: Event,
        /// Why.
        absence: Absence,
    },
    /// The request could not be sent, as one that is too large, or the answer is not what the protocol says.
    Failed {
        /// Its index and name.
        plugin: String,
        /// What it was asked.
        event: Event,
        /// Why.
        error: Arc<Error>,
    },
}

impl EventError {
    /// The plugin for which the event failed, by index and name.
    pub fn plugin(&self) -> &str {
        match self {
            Self::Refused { plugin, .. }
            | Self::Rejected { plugin, .. }
            | Self::Absent { plugin, .. }
            | Self::Failed { plugin, .. } => plugin,
            Self::Conflict(conflict) => conflict.plugin(),
        }
    }

    /// Why that plugin had no part in the event. `None` if it had.
    pub fn absence(&self) -> Option<&Absence> {
        match self {
            Self::Absent { absence, .. } => Some(absence),
            _ => None,
        }
    }

    /// What the plugin answered, if it answered an error.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Refused { status, .. } => Some(status),
            _ => None,
        }
    }
}

impl fmt::Display for EventError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused {
                plugin,
                event,
                status,
            } => write!(
                f,
                "plugin {plugin} refuses {}: {status}",
                event.method_name()
            ),
            Self::Rejected { plugin, reason } => {
                write!(f, "validator {plugin} rejects the adjustments: {reason}")
            }
            Self::Conflict(conflict) => conflict.fmt(f),
            Self::Absent {
                plugin,
                event,
                absence,
            } => write!(
                f,
                "{} needs plugin {plugin}: {absence}",
                event.method_name()
            ),
            Self::Failed {
                plugin,
                event,
                error,
            } => write!(
                f,
                "{} of plugin {plugin} failed: {error}",
                event.method_name()
            ),
        }
    }
}

impl std::error::Error for EventError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Conflict(conflict) => Some(conflict),
            Self::Refused { status, .. } => Some(status),
            Self::Failed { error, .. }
            | Self::Absent {
                absence: Absence::Late(error),
                ..
            } => Some(&**error),
            Self::Absent {
                absence: Absence::Gone(end),
                ..
            } => Some(end),
            Self::Absent { .. } | Self::Rejected { .. } => None,
        }
    }
}

impl From<Conflict> for EventError {
    fn from(conflict: Conflict) -> Self {
        Self::Conflict(conflict)
    }
}

/// Why a runtime could not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A setting of a connection is out of its range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The socket for plugins could not be bound.
    #[error(transparent)]
    Listen(#[from] ConnectError),
    /// A limit of zero, with which no plugin could ever answer.
    #[error("{setting} is zero")]
    Zero {
        /// The setter that was given it.
        setting: &'static str,
    },
    /// The folder of the plugins, or of their configurations, or one of the files there, could not be read.
    #[error("{}: {source}", path.display())]
    Folder {
        /// What was read.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A file in the folder of the plugins is not called as a plugin is.
    #[error("{}: {reason}", path.display())]
    Name {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}
