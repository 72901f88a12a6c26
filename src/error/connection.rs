//! Why a connection ended, or was not made.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::keepalive::{self, DeadReason, Evidence};
use crate::wire::ProtocolError;

/// Why a connection is over. Every call on it, open or later, fails with this one reason.
///
/// What the byte stream says of a peer that went away is little: a process that is killed has its
/// sockets closed like one that ends well, and one that ends well while bytes of ours are unread
/// looks like a reset. Only [`Announced`](Self::Announced) says that it went on purpose.
///
/// What it displays is the whole reason in one line, the operating system's words included.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// This side closed it: the last handle was dropped, or a shutdown was asked for.
    #[error("this side closed it")]
    LocalClose,
    /// The peer closed it between two frames, without a word before.
    #[error("the peer closed it")]
    PeerClosed,
    /// The peer closed it, and had said so before: it refused a call because it
    /// [shuts down](crate::Status::shutting_down), or the application said that it
    /// [expects the end](crate::Client::expect_close). With what the operating system reported, if
    /// it was not a plain end.
    #[error("the peer closed it, as announced{}", Reason(.0.as_ref()))]
    Announced(#[source] Option<Arc<io::Error>>),
    /// The peer closed it in the middle of a frame: it crashed, or the stream was cut.
    #[error("the peer closed it in the middle of a frame")]
    Torn,
    /// The peer's end was closed while bytes of ours were unread there, or the peer's system does
    /// not know the connection any more (ECONNRESET, ECONNABORTED).
    #[error("the peer reset it: {0}")]
    Reset(#[source] Arc<io::Error>),
    /// The peer's end takes no bytes any more (EPIPE), and has not closed the other direction.
    #[error("the peer receives nothing any more: {0}")]
    BrokenPipe(#[source] Arc<io::Error>),
    /// The operating system, or the byte stream itself, reported another error.
    #[error("the byte stream failed: {0}")]
    Io(#[source] Arc<io::Error>),
    /// The peer sent something that is not ttrpc.
    #[error("the peer does not speak ttrpc: {0}")]
    Protocol(#[source] ProtocolError),
    /// What this side sent came back. Nobody is there: it is a service that echoes, or a socket that is
    /// connected to itself.
    #[error("the peer sends back what it is sent")]
    Echo,
    /// Keepalive convicted the peer. Final for this connection, and only for it.
    #[error("{} ({evidence})", conviction(*.reason))]
    Dead {
        /// What it was convicted for.
        reason: DeadReason,
        /// What was known at that moment.
        evidence: Box<Evidence>,
    },
    /// The client made no request in the time it has for that
    /// ([`first_request_timeout`](crate::ServerBuilder::first_request_timeout)).
    #[error("the client made no request within {0:?}")]
    NoRequest(Duration),
    /// A frame's header did not come whole in the time it has for that
    /// ([`header_timeout`](crate::ServerBuilder::header_timeout)).
    #[error("the header of a frame was not complete within {0:?}")]
    HeaderTimeout(Duration),
    /// The task that drove the connection is gone: its runtime was shut down, or the future that
    /// served it was dropped.
    #[error("the task that drove it is gone")]
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

    /// Whether the peer had said that it would close.
    pub fn is_announced(&self) -> bool {
        matches!(self, Self::Announced(_))
    }

    /// What the operating system, or the byte stream, reported.
    pub fn io_error(&self) -> Option<&io::Error> {
        match self {
            Self::Reset(error) | Self::BrokenPipe(error) | Self::Io(error) => Some(error),
            Self::Announced(error) => error.as_deref(),
            _ => None,
        }
    }

    /// The same end of a connection whose peer had announced to close it. One that came in the
    /// middle of a frame, or before the peer closed anything, is not what was announced.
    pub(crate) fn announced(self) -> Self {
        match self {
            Self::PeerClosed => Self::Announced(None),
            // A peer that closes with a PING of ours unread looks like this.
            Self::Reset(error) | Self::BrokenPipe(error) => Self::Announced(Some(error)),
            other => other,
        }
    }
}

/// What stands behind the text of an error: its source, if it has one.
pub(super) struct Reason<E>(pub(super) Option<E>);

impl<E: fmt::Display> fmt::Display for Reason<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(reason) => write!(f, ": {reason}"),
            None => Ok(()),
        }
    }
}

/// A peer that does not read may live all the same, and speak.
const fn conviction(reason: DeadReason) -> &'static str {
    match reason {
        DeadReason::Silent => "the peer is dead: silent",
        DeadReason::NotReading => "the peer takes no bytes",
    }
}

/// What a stream reports. An error that was made of a connection's end is that end: a connection on a
/// shared stream, or on a layer that judges by itself, ends with the reason that is known there.
impl From<io::Error> for ConnectionError {
    fn from(error: io::Error) -> Self {
        let handed_on = error.get_ref().and_then(|inner| inner.downcast_ref());
        if let Some(end) = handed_on {
            return Self::clone(end);
        }
        let error = Arc::new(error);
        match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => Self::Reset(error),
            io::ErrorKind::BrokenPipe => Self::BrokenPipe(error),
            _ => Self::Io(error),
        }
    }
}

/// The error of a stream whose connection has ended: of kind `TimedOut` for a conviction, `InvalidData`
/// for what is not ttrpc, that of the operating system if it reported one, and else
/// `ConnectionAborted`. It carries the reason, which [`io::Error::get_ref`] yields.
impl From<ConnectionError> for io::Error {
    fn from(end: ConnectionError) -> Self {
        let kind = match &end {
            ConnectionError::Dead { .. } => io::ErrorKind::TimedOut,
            ConnectionError::Protocol(_) => io::ErrorKind::InvalidData,
            _ => end
                .io_error()
                .map_or(io::ErrorKind::ConnectionAborted, Self::kind),
        };
        Self::new(kind, end)
    }
}

/// A setting that is out of its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// One of [`Keepalive`](crate::Keepalive).
    #[error(transparent)]
    Keepalive(#[from] keepalive::ConfigError),
    /// A limit of zero, with which no call could ever be made.
    #[error("`{setting}` is 0, allowed is 1 or more")]
    ZeroLimit {
        /// The setter that was given the value.
        setting: &'static str,
    },
    /// A timeout in which no call could ever be answered.
    #[error("`{setting}` is 0, allowed is any longer time")]
    ZeroTimeout {
        /// The setter that was given the value.
        setting: &'static str,
    },
    /// Options were set for a method that cannot have them.
    #[error("the options of {method:?} are not usable: {problem}")]
    Method {
        /// The service and the method.
        method: String,
        /// Why.
        problem: &'static str,
    },
    /// [`Dispatch::Inline`](crate::Dispatch::Inline) with
    /// [`DriverThread::Dedicated`](crate::DriverThread::Dedicated): handlers would run on the thread
    /// that is there to answer PINGs whatever they do.
    #[error("a dedicated thread cannot poll handlers inline")]
    InlineOnDedicated,
}

/// Why no connection could be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// A setting is out of its range. Nothing was tried.
    #[error("a setting is not usable: {0}")]
    Config(#[from] ConfigError),
    /// The address is not one of `unix:///path`, `unix://@name`, `tcp://host:port` and
    /// `vsock://CID:PORT`, or needs a feature of this crate that is off.
    #[error("{address:?} cannot be used: {problem}")]
    Address {
        /// What was given.
        address: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The operating system refused.
    #[error("the operating system refuses {address}: {source}")]
    Io {
        /// Where to connect, or to listen.
        address: String,
        /// Why, as the operating system says it.
        #[source]
        source: io::Error,
    },
    /// No connection was made within the time allowed.
    #[error("no connection to {address} within {timeout:?}{}", Reason(.source.as_ref()))]
    TimedOut {
        /// Where to.
        address: String,
        /// The time allowed.
        timeout: Duration,
        /// What came of the last attempt that ended. `None` if the only one was still going on.
        #[source]
        source: Option<io::Error>,
    },
}
