//! The machine: what is believed of one peer, and when to ask it.

mod inputs;
mod interval;
mod outputs;
mod round_trip;
mod rules;

use std::time::Duration;

use self::interval::Interval;
use self::round_trip::RoundTrip;
use super::attended::Attended;
use super::events::Events;
use super::receipts::Receipts;
use super::{
    Counters, DeadReason, Keepalive, KeepaliveSettings, PeerSupport, Role, State, Support,
};
use crate::wire;

/// A peer of which it is unknown whether it knows PING is asked again after this, if nothing is
/// sent periodically.
const RETRY: Duration = Duration::from_secs(10);

/// Put between `now` and a wake-up for something that was already due and not done, so that a
/// driver cannot spin.
const BREATH: Duration = Duration::from_millis(1);

/// The keepalive rules of one connection, without I/O, clock, lock or allocation.
///
/// Inputs are the `handle_*` methods, outputs the `poll_*` methods, and bare nouns are getters. All
/// inputs accept any value at any moment: time that goes backwards changes nothing, arithmetic
/// saturates, and what happens after the end is ignored.
///
/// One turn of a driver:
///
/// 1. Read the clock once and call [`handle_run`](Self::handle_run).
/// 2. Read from the socket; report [`handle_bytes`](Self::handle_bytes) for each read that returned
///    some, before the frames in them.
/// 3. Write; report blocked writes, progress and the PING's last byte.
/// 4. If [`look_due`](Self::look_due), ask the kernel, also what is unread if
///    [`asks_unread`](Self::asks_unread), and report [`handle_look`](Self::handle_look). Then [`handle_timeout`](Self::handle_timeout). Only these
///    two ask of themselves: what was due before the read may not be any more.
/// 5. Drain [`poll_event`](Self::poll_event) after each input, put the PING of
///    [`poll_ping`](Self::poll_ping) ahead of data, and sleep until
///    [`poll_timeout`](Self::poll_timeout) at the latest.
///
/// Five deadlines hide behind [`poll_timeout`](Self::poll_timeout):
///
/// | deadline | how long | set when | fired means | cleared when |
/// |---|---|---|---|---|
/// | PING due | the interval, lengthened by the jitter | evidence, or a PING, on a watched connection | a PING is wanted; if it is watched by receipts, look first | it is wanted, or nobody watches |
/// | ask the kernel | the interval | the kernel is asked, on a connection watched by receipts | look at what is unread | the transport cannot tell, nobody watches |
/// | ask again | the interval (10 s without one), doubled each time | a PING to a peer of unknown support | the same PING is wanted again | support is known |
/// | look at the trial | a quarter of the timeout | the PING is flushed, or a look before | look for bytes | evidence, conviction, nobody watches |
/// | look at the blocked write, and on a connection watched by receipts at what is unread | a quarter of the write stall | a write is blocked, something is or may be unread, or a look before | try to write, ask what is unread | bytes are taken or read, or received unless a write stall was set; conviction, nobody watches |
#[derive(Debug)]
pub struct Machine {
    settings: KeepaliveSettings,
    /// The latest time reported: inputs that claim an earlier one are taken as simultaneous with
    /// it.
    now: Duration,
    last_run: Duration,
    /// The shortest lead of the calls between `ask_at` and their deadline, if there is one.
    lead: Option<Duration>,

    life: Life,
    closed: bool,
    support: Support,
    /// False for `off`, and for a server that has not received a PING.
    may_send: bool,
    /// The PING of the first exchange was asked for, or is not needed.
    introduced: bool,

    /// The last sign of life.
    heard: Option<Duration>,
    /// The connection's beginning, which counts as one for the interval and for nothing else.
    connected: Duration,
    in_flight: u32,
    late: u32,
    probes: u32,
    parked: bool,

    ping: Ping,
    /// The number of the newest PING; 0 before the first.
    number: u64,
    last_ping: Option<Duration>,
    interval: Interval,
    retry_at: Option<Duration>,
    retry_gap: Duration,

    answered: u64,
    pong_at: Option<Duration>,
    pong_flags: wire::Flags,
    round_trip: RoundTrip,

    receipts: Receipts,
    blocked_since: Option<Duration>,
    write_stall: Option<Attended>,

    doubted: bool,
    local_stall: Option<Duration>,
    /// The run at which the newest one was counted.
    stalled_until: Option<Duration>,
    counters: Counters,
    told: Flags,
    events: Events,
    armed: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Life {
    Alive,
    Suspect,
    /// Convicted with [`OnSilence::Report`](super::OnSilence::Report): counted once, and no clock
    /// runs until the peer speaks.
    Overdue,
    Dead(DeadReason),
}

/// Where the newest PING is.
#[derive(Debug)]
enum Ping {
    /// None is waited for.
    Rest,
    /// It has its number and is not fully written; `handed` to the driver or not.
    Unwritten { handed: bool },
    /// It is written and nothing came since.
    Out {
        since: Duration,
        /// Time waited for it by the runs before call deadlines, which count watched or not.
        attended: Duration,
        /// On while the connection is watched, the peer known to answer and the reader not parked.
        trial: Option<Attended>,
    },
}

/// A change of one of these is told by [`Event::FlagsChanged`](super::Event::FlagsChanged).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Flags {
    doubted: bool,
    pong: wire::Flags,
    overdue: bool,
    write_blocked: bool,
    local_stall: Option<Duration>,
}

impl Machine {
    /// The rules of a connection that begins at time zero. Settings out of range are brought into
    /// it. The `seed` chooses the jitter; the same seed and the same inputs give the same
    /// outputs.
    #[must_use]
    pub fn new(keepalive: &Keepalive, role: Role, seed: u64) -> Self {
        let settings = keepalive.settings();
        let may_send = !settings.off && role == Role::Client;
        let mut machine = Self {
            settings,
            now: Duration::ZERO,
            last_run: Duration::ZERO,
            lead: None,
            life: Life::Alive,
            closed: false,
            support: match settings.peer_support {
                PeerSupport::Learn => Support::Unknown,
                PeerSupport::Assume => Support::Yes,
            },
            may_send,
            introduced: !may_send,
            heard: None,
            connected: Duration::ZERO,
            in_flight: 0,
            late: 0,
            probes: 0,
            parked: false,
            ping: Ping::Rest,
            number: 0,
            last_ping: None,
            interval: Interval::new(
                settings.every.unwrap_or(Duration::MAX),
                settings.jitter,
                seed,
            ),
            retry_at: None,
            retry_gap: settings.every.unwrap_or(RETRY),
            answered: 0,
            pong_at: None,
            pong_flags: wire::Flags::NONE,
            round_trip: RoundTrip::default(),
            receipts: Receipts::default(),
            blocked_since: None,
            write_stall: None,
            doubted: false,
            local_stall: None,
            stalled_until: None,
            counters: Counters::default(),
            told: Flags::default(),
            events: Events::default(),
            armed: None,
        };
        machine.settle(Duration::ZERO);
        machine
    }
}

impl Life {
    const fn state(self) -> State {
        match self {
            Self::Alive => State::Alive,
            Self::Suspect | Self::Overdue => State::Suspect,
            Self::Dead(reason) => State::Dead(reason),
        }
    }
}
