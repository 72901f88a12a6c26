//! The words the machine speaks: states, events, counters, and what a look found.

use std::fmt;
use std::time::Duration;

use super::{Evidence, OnSilence};

/// What is believed of the peer of a connection that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// Nothing speaks against it.
    Alive,
    /// Half of the time it was given has passed without a sign of life.
    Suspect,
    /// All of it has passed. Final for this connection, and said of this connection only.
    Dead(DeadReason),
}

/// By which clock a peer was found dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeadReason {
    /// It left a PING without any sign of life.
    Silent,
    /// Its kernel took nothing of what we wanted to write.
    NotReading,
}

impl fmt::Display for DeadReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Silent => "silent",
            Self::NotReading => "not reading",
        })
    }
}

/// Whether the peer knows PING.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Support {
    /// Not decided yet.
    Unknown,
    /// It has sent a PING or a PONG, or the settings say that it does.
    Yes,
    /// It answered a request and not the PING in front of it.
    No,
}

/// The summary to decide by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(
    clippy::exhaustive_enums,
    reason = "whoever decides by it must have an answer for each case"
)]
pub enum Peer {
    /// Nothing speaks against it; old peers that do not know PING too.
    Alive,
    /// It is suspect, or a verdict has spoken against it, and no sign of life has come since.
    Doubtful,
    /// The connection is over.
    Gone,
}

/// Which end of the connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a connection has two ends")]
pub enum Role {
    /// Asks first: puts a PING in front of its first request.
    Client,
    /// Sends no PING before it has received one, since old clients do not expect any.
    Server,
}

/// One look at the socket, whose time was read before the kernel was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_structs,
    reason = "two answers that the driver must give, none may be forgotten"
)]
pub struct Look {
    /// The kernel had no more bytes for us. Bytes that were found are reported before the look.
    pub drained: bool,
    /// A bare send of the bytes that were blocked was refused again.
    pub write_refused: bool,
}

/// What happened, for the driver to act on.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// This side did not look for more than half of the time it gives to the peer.
    LocalStall {
        /// Time since the look before.
        gap: Duration,
    },
    /// The state changed.
    StateChanged {
        /// The state when events were last drained.
        from: State,
        /// The state now.
        to: State,
    },
    /// It became known whether the peer knows PING.
    SupportChanged(Support),
    /// One of these changed: a verdict's doubt, handlers stalled, overdue, local stall, write
    /// blocked.
    FlagsChanged,
    /// The peer was found dead. Always the last event of its input.
    Convicted {
        /// By which clock.
        reason: DeadReason,
        /// What was known at that look.
        evidence: Evidence,
        /// [`OnSilence::Close`]: the state is dead, end the connection. [`OnSilence::Report`]: the state is suspect
        /// and overdue, the connection stays.
        on_silence: OnSilence,
    },
}

/// How often things happened on one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// PINGs fully written.
    pub pings_sent: u64,
    /// PONGs received.
    pub pongs_received: u64,
    /// Changes from alive to suspect.
    pub suspect_entries: u64,
    /// Changes back to alive by a sign of life.
    pub recoveries: u64,
    /// Pauses of this side.
    pub local_stalls: u64,
    /// Convictions by silence; with [`OnSilence::Report`] those that would have been.
    pub convictions_silent: u64,
    /// Convictions by writes that were refused; with [`OnSilence::Report`] those that would have
    /// been.
    pub convictions_not_reading: u64,
}

/// Events not drained yet: one slot for each kind, since the newest of a kind says all.
#[derive(Debug, Default)]
pub(super) struct Events {
    pub(super) local_stall: Option<Duration>,
    pub(super) state_from: Option<State>,
    pub(super) support_changed: bool,
    pub(super) flags_changed: bool,
    pub(super) convicted: Option<(DeadReason, Evidence)>,
}
