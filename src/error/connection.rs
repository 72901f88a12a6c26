//! Why a connection ended, or was not made.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::keepalive::{self, DeadReason, Evidence};
use crate::wire::ProtocolError;

/// Why a connection is over. Every call on it, open or later, fails with this one reason.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// This side closed it: the last handle was dropped, or a shutdown was asked for.
    #[error("closed on this side")]
    LocalClose,
    /// The peer closed it between two frames.
    #[error("closed by the peer")]
    PeerClosed,
    /// The peer closed it in the middle of a frame: it crashed, or the stream was cut.
    #[error("closed by the peer in the middle of a frame")]
    Torn,
    /// The operating system reported an error on the byte stream, a reset for example.
    #[error("the byte stream failed")]
    Io(#[source] Arc<io::Error>),
    /// The peer sent something that is not ttrpc.
    #[error("the peer does not speak ttrpc")]
    Protocol(#[source] ProtocolError),
    /// Keepalive convicted the peer. Final for this connection, and only for it.
    #[error("the peer is dead: {reason} ({evidence})")]
    Dead {
        /// What it was convicted for.
        reason: DeadReason,
        /// What was known at that moment.
        evidence: Evidence,
    },
    /// The task that drove the connection is gone: its runtime was shut down, or the future that
    /// served it was dropped.
    #[error("the task that drove the connection is gone")]
    Abandoned,
}

impl ConnectionError {
    /// Whether keepalive ended the connection, and why.
    pub fn dead_reason(&self) -> Option<DeadReason> {
        match self {
            Self::Dead { reason, .. } => Some(*reason),
            _ => None,
        }
    }

    /// Whether this side ended the connection of its own will.
    pub fn is_local_close(&self) -> bool {
        matches!(self, Self::LocalClose)
    }
}

impl From<io::Error> for ConnectionError {
    fn from(error: io::Error) -> Self {
        Self::Io(Arc::new(error))
    }
}

/// A setting that is out of its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// One of [`Keepalive`](crate::Keepalive).
    #[error(transparent)]
    Keepalive(#[from] keepalive::ConfigError),
    /// A limit of nothing, with which no call could ever be made.
    #[error("`{setting}` is 0, allowed is 1 or more")]
    ZeroLimit {
        /// The setter that was given the value.
        setting: &'static str,
    },
}

/// Why no connection could be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// A setting is out of its range. Nothing was tried.
    #[error("a setting is not usable")]
    Config(#[from] ConfigError),
    /// The address is not one of `unix:///path`, `unix://@name`, `tcp://host:port`.
    #[error("{address:?} is not an address: {problem}")]
    Address {
        /// What was given.
        address: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The operating system refused.
    #[error("cannot reach {address}")]
    Io {
        /// Where to.
        address: String,
        /// Why, as the operating system says it.
        #[source]
        source: io::Error,
    },
    /// Nobody accepted within the time allowed.
    #[error("nobody accepted at {address} within {timeout:?}")]
    TimedOut {
        /// Where to.
        address: String,
        /// The time allowed.
        timeout: Duration,
    },
}
