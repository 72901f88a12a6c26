//! What lies between two ends, in counts of bytes and microseconds.

use std::collections::VecDeque;
use std::time::Duration;

pub(crate) const MS: u64 = 1000;
pub(crate) const S: u64 = 1_000_000;

pub(crate) const SMALL: u64 = 18;

pub(crate) fn at(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// When an end runs, or reads.
#[derive(Clone, Debug)]
pub(crate) enum Pattern {
    Always,
    /// Not inside these spans, which are in order and do not touch.
    Except(Vec<(u64, u64)>),
    /// For the first `on` of each `period`.
    Slices {
        period: u64,
        on: u64,
    },
}

impl Pattern {
    /// The first instant from `time` on that is inside.
    pub(crate) fn next(&self, time: u64) -> u64 {
        match self {
            Self::Always => time,
            Self::Except(spans) => {
                let after = spans.partition_point(|&(_, end)| end <= time);
                spans
                    .get(after)
                    .filter(|&&(start, _)| start <= time)
                    .map_or(time, |&(_, end)| end)
            }
            Self::Slices { period, on } if time % period < *on => time,
            Self::Slices { period, .. } => time - time % period + period,
        }
    }

    pub(crate) fn holds(&self, time: u64) -> bool {
        self.next(time) == time
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Frame {
    Ping(u64),
    Pong(u64),
    Request {
        call: usize,
        answer_after: Option<u64>,
    },
    Response {
        call: usize,
    },
    Bulk,
}

/// One direction: what the kernel took and the other end has not read.
pub(crate) struct Link {
    pub(crate) latency: u64,
    pub(crate) capacity: u64,
    pub(crate) held: u64,
    pub(crate) chunks: VecDeque<(u64, u64, Option<Frame>)>,
}

/// Marks a PONG's number that handlers are stalled.
pub(crate) const STALLED: u64 = 1 << 63;
