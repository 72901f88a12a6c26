//! Why a plugin cannot run.

use std::io;

use ttrpc_keepalive::ConfigError;

use super::end::End;

/// Why a plugin cannot run, or does not run on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PluginError {
    /// An index has two digits.
    #[error("the plugin's index {index:?} has not two digits")]
    InvalidIndex {
        /// The index.
        index: String,
    },
    /// A name is of letters, digits, `-`, `_`, `.` and `+`.
    #[error("the plugin's name {name:?} is not of letters, digits, '-', '_', '.' and '+'")]
    InvalidName {
        /// The name.
        name: String,
    },
    /// [`Plugin::named_by_file`](crate::Plugin::named_by_file) is for programs that are called like
    /// `10-devices`.
    #[error("the program's file {file:?} is not called as a plugin is, like \"10-devices\"")]
    InvalidFileName {
        /// The name of the file, without its folder.
        file: String,
    },
    /// A runtime takes a plugin that asks for no events for one that asks for all of them.
    #[error("the plugin handles no events")]
    NoEvents,
    /// [`Plugin::late`](crate::Plugin::late) is of the event in front of it.
    #[error("what becomes of late answers is set before any event")]
    LateWithoutEvent,
    /// [`Late::then`](crate::Late::then) is for events that have a result.
    #[error("{event} has no result that could be delivered later")]
    NothingToDeliver {
        /// The name of its call.
        event: &'static str,
    },
    /// The runtime names a descriptor that cannot be used.
    #[error(
        "descriptor {number:?}, which the runtime names in NRI_PLUGIN_SOCKET, cannot be used: {error}"
    )]
    Descriptor {
        /// As it is named.
        number: String,
        /// What the operating system says.
        #[source]
        error: io::Error,
    },
    /// A setting is out of its range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There were as many attempts in a row as [`Plugin::reconnect`](crate::Plugin::reconnect) allows.
    #[error("no runtime has kept the plugin: {0}")]
    GivenUp(End),
}
