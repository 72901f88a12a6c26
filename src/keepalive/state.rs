//! The words the machine speaks: states, what is known of a peer, and what a look found.

use std::fmt;
use std::time::Duration;

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
    /// Its kernel took nothing of what we wanted to write, or, on a connection that is
    /// [watched by receipts](super::Keepalive::watch_by_receipts), its process has read nothing of what
    /// it took. It may live all the same where a [`write_stall`](super::Keepalive::write_stall) was
    /// set.
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
    reason = "three answers that the driver must give, none may be forgotten"
)]
pub struct Look {
    /// The kernel had no more bytes for us. Bytes that were found are reported before the look.
    pub drained: bool,
    /// A bare send of the bytes that were blocked was refused again.
    pub write_refused: bool,
    /// What the peer's process has not read of what was written.
    pub unread: Unread,
}

/// The kernel's answer to how much of what was written a process has read. It is asked before the
/// look for bytes: a peer that has closed leaves nothing unread either, and then its end is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "an answer more is a rule more, and every driver must choose"
)]
pub enum Unread {
    /// It was not asked: [`Machine::asks_unread`](super::Machine::asks_unread) did not want it, or a
    /// write was under way, and nobody can say whether it is among what is unread.
    NotAsked,
    /// This transport cannot tell. It is not asked again.
    Unknown,
    /// It has told.
    Known {
        /// What is unread, as [`Transport::unread`](crate::transport::Transport::unread) counts.
        held: u64,
        /// What has been written on this connection until the kernel was asked, at the least that it
        /// counts for there: a byte for one, and each write for 256 beside its bytes. What may not be
        /// written yet is not among it.
        written: u64,
        /// When the last of them were written, or a little earlier; `None` before the first.
        written_at: Option<Duration>,
    },
}
