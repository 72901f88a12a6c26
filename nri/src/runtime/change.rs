//! What happens to plugins, for logs and metrics.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use ttrpc_keepalive::{ConnectionError, Error, Verdict};

use super::name::PluginName;
use crate::api::Event;

/// What has happened to a plugin.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Change {
    /// It has registered and been configured.
    Registered,
    /// It was not let in, for this reason.
    Refused(String),
    /// It has answered *Synchronize*, and is sent events from now on.
    Serving,
    /// Its answer to an event did not come in time. The connection is kept.
    Late {
        /// What it was asked.
        event: Event,
        /// With the verdict and its evidence.
        error: Arc<Error>,
    },
    /// It is sent no events: for this verdict on a late call, or because it fell silent.
    SetAside(Option<Verdict>),
    /// It has answered an event after all.
    Answered {
        /// What it was asked.
        event: Event,
        /// How long it took.
        after: Duration,
    },
    /// Its connection has ended, and it is forgotten. It may register anew.
    Gone(ConnectionError),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registered => f.write_str("registered"),
            Self::Refused(reason) => write!(f, "refused: {reason}"),
            Self::Serving => f.write_str("synchronized, and sent events"),
            Self::Late { event, error } => write!(f, "late with {}: {error}", event.method_name()),
            Self::SetAside(Some(verdict)) => {
                write!(f, "set aside until it has answered: {verdict}")
            }
            Self::SetAside(None) => f.write_str("set aside until it is heard: it is silent"),
            Self::Answered { event, after } => write!(
                f,
                "answered {} after {:.2} s",
                event.method_name(),
                after.as_secs_f64()
            ),
            Self::Gone(end) => write!(f, "gone: {end}"),
        }
    }
}

pub(super) type Hook = Box<dyn Fn(&str, &Change) + Send + Sync>;

/// Who is told of changes.
#[derive(Default)]
pub(super) struct Told(pub(super) Option<Hook>);

impl Told {
    pub(super) fn tell(&self, plugin: &PluginName, change: &Change) {
        let plugin = plugin.to_string();
        match change {
            Change::Registered | Change::Serving | Change::Answered { .. } => {
                tracing::info!(plugin, "{change}");
            }
            _ => tracing::warn!(plugin, "{change}"),
        }
        if let Some(hook) = &self.0 {
            // Whoever is told must not end what he is told of: a plugin would stay, or an event fail.
            if catch_unwind(AssertUnwindSafe(|| hook(&plugin, change))).is_err() {
                tracing::error!(plugin, "the hook has panicked at: {change}");
            }
        }
    }
}

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Told").field(&self.0.is_some()).finish()
    }
}
