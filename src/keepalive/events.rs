//! What the machine says has happened, and how often.

use std::time::Duration;

use super::{DeadReason, Evidence, OnSilence, State, Support};

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

impl Events {
    pub(super) const fn is_empty(&self) -> bool {
        self.local_stall.is_none()
            && self.state_from.is_none()
            && !self.support_changed
            && !self.flags_changed
            && self.convicted.is_none()
    }
}
