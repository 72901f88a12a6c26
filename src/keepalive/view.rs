//! What is known of a peer, as one value.

use std::time::Duration;

use super::{Counters, Evidence, Peer, State, Support};
use crate::wire::Flags;

/// What a [`Machine`](super::Machine) knows of its peer at one moment. Instants are times since the
/// connection began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct View {
    /// What is believed of the peer. Keeps its last value after the connection has ended.
    pub state: State,
    /// Whether the peer knows PING.
    pub support: Support,
    /// The summary to decide by.
    pub peer: Peer,
    /// The last byte that was received, or the last write that moved again after having been
    /// blocked; the connection's beginning if there was neither.
    pub last_evidence: Duration,
    /// The newest round trip that was measured.
    pub rtt: Option<Duration>,
    /// The smoothed round trip: each new one counts for an eighth.
    pub smoothed_rtt: Option<Duration>,
    /// Since when a PING has been written and unanswered, with no other sign of life either.
    pub awaiting_pong_since: Option<Duration>,
    /// Since when the kernel has taken nothing of what we want to write.
    pub write_blocked_since: Option<Duration>,
    /// Whether the kernel tells what the peer's process has read, and this side listens to it.
    pub receipts: bool,
    /// An instant at or after which the peer's process has read, as the kernel told last.
    pub last_read: Option<Duration>,
    /// When something was written that nobody had read when the kernel was last asked, unless bytes
    /// have come since.
    pub unread_since: Option<Duration>,
    /// What the newest PONG said of its side.
    pub pong_flags: Flags,
    /// The newest pause of this side that was noticed.
    pub local_stall: Option<Duration>,
    /// Convicted with [`OnSilence::Report`](super::OnSilence::Report), and silent since.
    pub overdue: bool,
    /// How often things happened.
    pub counters: Counters,
}

impl View {
    /// What speaks for and against the peer at `now`.
    #[must_use]
    pub fn evidence(&self, now: Duration) -> Evidence {
        let age = |since: Duration| now.saturating_sub(since);
        Evidence {
            silent_for: age(self.last_evidence),
            rtt: self.rtt,
            smoothed_rtt: self.smoothed_rtt,
            awaiting_pong_for: self.awaiting_pong_since.map(age),
            write_blocked_for: self.write_blocked_since.map(age),
            receipts: self.receipts,
            read_ago: self.last_read.map(age),
            unread_for: self.unread_since.map(age),
            handlers_stalled: self.pong_flags.contains(Flags::HANDLERS_STALLED),
            local_stall: self.local_stall,
            support: self.support,
            process: None,
        }
    }
}
