//! What is to be reached: ratios of this crate to others, measured in the same run.
//!
//! The floors are what the shape of a fast implementation gives, less what deadlines, metadata,
//! shutdown and keepalive cost it. They are the same on each machine, because what is compared ran
//! on the same one at the same time.

use crate::child::Placement::{self, OneCore, TwoCores, TwoWorkers};
use crate::{
    BARE, EVERY, FACADE, FACADE_THREADS, INLINE, OFF, OURS, TONIC, TRAPEZE, TTRPC_RUST,
    TTRPC_RUST_THREADS,
};
use Bound::{Aim, AtLeast, AtMost, Shown};
use Measure::{Cpu, Latency, Rate};
use Work::{Calls, Streams};

/// How far a floor may be missed before it counts: two runs on a busy machine differ by that much.
pub(crate) const SLACK: f64 = 0.15;

/// A group of cells that have the same floors.
pub(crate) struct Goal {
    pub(crate) placement: Placement,
    pub(crate) work: Work,
    /// Of each payload or message.
    pub(crate) bytes: &'static [usize],
    pub(crate) in_flight: &'static [usize],
    pub(crate) of: &'static str,
    pub(crate) against: &'static str,
    pub(crate) bounds: &'static [(Measure, Bound)],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Calls,
    Streams,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// Calls, or messages of a stream, per second.
    Rate,
    /// Processor time of both processes for each.
    Cpu,
    /// The median time that a call takes.
    Latency,
}

/// What a ratio has to be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
    /// At least, but to be below is told and no miss.
    Aim(f64),
    /// For orientation.
    Shown,
}

impl Bound {
    pub(crate) fn is_met(self, ratio: f64) -> bool {
        self.is_met_within(ratio, 0.0)
    }

    /// Whether it is not even met with the slack.
    pub(crate) fn is_missed(self, ratio: f64) -> bool {
        !matches!(self, Aim(_)) && !self.is_met_within(ratio, SLACK)
    }

    /// What it is called to be below without missing.
    pub(crate) fn shortfall(self) -> &'static str {
        match self {
            Aim(_) => "below the aim",
            _ => "within the slack",
        }
    }

    fn is_met_within(self, ratio: f64, slack: f64) -> bool {
        match self {
            AtLeast(floor) | Aim(floor) => ratio >= floor * (1.0 - slack),
            AtMost(ceiling) => ratio <= ceiling * (1.0 + slack),
            Shown => true,
        }
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AtLeast(floor) => write!(f, "at least {floor:.2}"),
            AtMost(ceiling) => write!(f, "at most {ceiling:.2}"),
            Aim(aim) => write!(f, "aim {aim:.2}"),
            Shown => f.write_str("(shown)"),
        }
    }
}

const SMALL: &[usize] = &[0, 1 << 10];
const MEDIUM: &[usize] = &[1 << 16];
const LARGE: &[usize] = &[1 << 20];

/// Calls of this crate against those of another implementation.
const fn calls(
    placement: Placement,
    bytes: &'static [usize],
    in_flight: &'static [usize],
    against: &'static str,
    bounds: &'static [(Measure, Bound)],
) -> Goal {
    Goal {
        placement,
        work: Calls,
        bytes,
        in_flight,
        of: OURS,
        against,
        bounds,
    }
}

/// A server stream, client and server with a core each.
const fn streams(
    bytes: &'static [usize],
    against: &'static str,
    bounds: &'static [(Measure, Bound)],
) -> Goal {
    Goal {
        placement: TwoCores,
        work: Streams,
        bytes,
        in_flight: &[1],
        of: OURS,
        against,
        bounds,
    }
}

/// A connection that is watched against one that is not: keepalive is to cost nothing.
const fn keepalive(
    placement: Placement,
    bytes: &'static [usize],
    in_flight: &'static [usize],
    bounds: &'static [(Measure, Bound)],
) -> Goal {
    Goal {
        of: EVERY,
        against: OFF,
        ..calls(placement, bytes, in_flight, OFF, bounds)
    }
}

/// What stands in the place of ttrpc-rust, against that.
const fn facade(
    placement: Placement,
    bytes: &'static [usize],
    in_flight: &'static [usize],
    bounds: &'static [(Measure, Bound)],
) -> Goal {
    Goal {
        of: FACADE,
        ..calls(placement, bytes, in_flight, TTRPC_RUST, bounds)
    }
}

/// The same with threads for callers and handlers.
const fn threads(
    placement: Placement,
    bytes: &'static [usize],
    in_flight: &'static [usize],
    bounds: &'static [(Measure, Bound)],
) -> Goal {
    Goal {
        of: FACADE_THREADS,
        against: TTRPC_RUST_THREADS,
        ..facade(placement, bytes, in_flight, bounds)
    }
}

#[rustfmt::skip]
pub(crate) const FACADE_GOALS: &[Goal] = &[
    threads(OneCore, SMALL, &[1], &[(Latency, AtMost(0.5)), (Cpu, Shown)]),
    threads(OneCore, SMALL, &[16], &[(Rate, AtLeast(1.5)), (Cpu, Shown)]),
    threads(TwoCores, SMALL, &[1, 16], &[(Rate, Shown), (Cpu, Shown)]),
    threads(TwoCores, MEDIUM, &[1, 16], &[(Rate, Shown), (Cpu, Shown)]),

    facade(OneCore, SMALL, &[1], &[(Latency, Shown), (Cpu, AtMost(1.0))]),
    facade(OneCore, SMALL, &[16], &[(Rate, AtLeast(1.0)), (Cpu, AtMost(1.0))]),
    facade(TwoCores, SMALL, &[1, 16, 256], &[(Rate, Shown), (Cpu, AtMost(1.0))]),
    facade(TwoCores, MEDIUM, &[1, 16], &[(Rate, Shown), (Cpu, AtMost(1.0))]),
    Goal { work: Streams, ..facade(TwoCores, &[100], &[1], &[(Rate, AtLeast(1.0)), (Cpu, AtMost(1.0))]) },
];

#[rustfmt::skip]
pub(crate) const GOALS: &[Goal] = &[
    // The steadiest: no wake-up of another core is in it.
    calls(OneCore, SMALL, &[1], TTRPC_RUST, &[(Latency, AtMost(0.85)), (Cpu, AtMost(0.85))]),
    // How near to the limit.
    calls(OneCore, SMALL, &[1], BARE, &[(Latency, AtMost(1.20))]),
    calls(OneCore, SMALL, &[1], TONIC, &[(Rate, AtLeast(2.2))]),
    keepalive(OneCore, SMALL, &[1], &[(Cpu, AtMost(1.03)), (Latency, Shown)]),
    calls(OneCore, SMALL, &[16], TTRPC_RUST, &[(Rate, AtLeast(4.0))]),
    keepalive(OneCore, SMALL, &[16], &[(Cpu, AtMost(1.03)), (Rate, Shown)]),

    // Two wake-ups of a sleeping core dominate.
    calls(TwoCores, SMALL, &[1], TTRPC_RUST, &[(Latency, AtMost(1.05)), (Cpu, AtMost(0.95))]),
    calls(TwoCores, SMALL, &[1], TONIC, &[(Rate, AtLeast(1.2))]),
    calls(TwoCores, SMALL, &[16], TTRPC_RUST, &[(Rate, AtLeast(1.8)), (Cpu, AtMost(0.35))]),
    calls(TwoCores, SMALL, &[16], TONIC, &[(Rate, AtLeast(5.0))]),
    calls(TwoCores, SMALL, &[256], TTRPC_RUST, &[(Rate, AtLeast(4.0)), (Cpu, AtMost(0.20))]),
    calls(TwoCores, SMALL, &[256], TONIC, &[(Rate, AtLeast(7.0))]),
    calls(TwoCores, SMALL, &[256], BARE, &[(Rate, Aim(0.5))]),
    keepalive(TwoCores, SMALL, &[256], &[(Cpu, AtMost(1.03)), (Rate, Shown)]),

    calls(TwoCores, MEDIUM, &[1], TTRPC_RUST, &[(Rate, AtLeast(2.0)), (Rate, Aim(2.2)), (Cpu, AtMost(0.5))]),
    calls(TwoCores, MEDIUM, &[16], TTRPC_RUST, &[(Rate, AtLeast(1.4)), (Cpu, AtMost(0.7))]),
    calls(TwoCores, MEDIUM, &[256], TTRPC_RUST, &[(Rate, AtLeast(1.3)), (Cpu, AtMost(0.75))]),
    calls(TwoCores, MEDIUM, &[1, 16, 256], TONIC, &[(Rate, AtLeast(2.5)), (Cpu, AtMost(0.45))]),
    calls(TwoCores, LARGE, &[1], TTRPC_RUST, &[(Rate, AtLeast(3.0))]),
    calls(TwoCores, LARGE, &[16], TTRPC_RUST, &[(Rate, AtLeast(1.6))]),
    calls(TwoCores, LARGE, &[256], TTRPC_RUST, &[(Rate, AtLeast(1.5))]),

    // Which reads and writes large messages in one piece.
    calls(TwoCores, LARGE, &[1, 16, 256], TRAPEZE, &[(Rate, AtLeast(0.9))]),

    // As a program is that does not care: threads migrate, and share locks and wakers.
    calls(TwoWorkers, SMALL, &[16], TTRPC_RUST, &[(Rate, AtLeast(1.0)), (Cpu, AtMost(0.80))]),
    Goal { of: INLINE, ..calls(TwoWorkers, SMALL, &[16], TTRPC_RUST, &[(Rate, AtLeast(1.7)), (Cpu, AtMost(0.55))]) },
    calls(TwoWorkers, SMALL, &[256], TTRPC_RUST, &[(Rate, AtLeast(3.0))]),

    streams(&[100], TTRPC_RUST, &[(Rate, AtLeast(8.0)), (Cpu, Shown)]),
    streams(&[100], TONIC, &[(Rate, AtLeast(0.8)), (Cpu, Shown)]),
    streams(&[100], BARE, &[(Rate, Shown)]),
    streams(MEDIUM, TTRPC_RUST, &[(Rate, AtLeast(1.0)), (Cpu, Shown)]),
    streams(MEDIUM, TONIC, &[(Rate, Shown), (Cpu, Shown)]),
    streams(MEDIUM, BARE, &[(Rate, Shown)]),
];
