//! How much is done, and what is allowed.

use std::time::Duration;

pub(crate) const USAGE: &str = "\
usage: soak [--calls N] [--streams N] [--leak BYTES]
       soak --idle N [--seconds S]
       soak --peaks

  --calls    unary calls, 100,000 if not given
  --streams  streams, 10,000 if not given
  --leak     keeps so many bytes of each call, to see that it is noticed
  --idle     instead: so many connections that are watched and have no call
  --seconds  for how long they are held, 600 if not given
  --peaks    instead: what others pay for very many calls at once";

pub(crate) struct Plan {
    pub(crate) calls: usize,
    pub(crate) streams: usize,
    /// Bytes kept of each call: a leak on purpose.
    pub(crate) leak: usize,
    /// By how many bytes memory may grow in the second half of the run.
    pub(crate) growth: f64,
    /// For how long nothing may move.
    pub(crate) patience: Duration,
}

impl Plan {
    pub(crate) fn new(calls: usize, streams: usize) -> Self {
        Self {
            calls,
            streams,
            leak: 0,
            growth: f64::from(4_u32 << 20),
            patience: Duration::from_secs(30),
        }
    }

    pub(crate) fn from_arguments(
        mut arguments: impl Iterator<Item = String>,
    ) -> Result<Self, &'static str> {
        let mut plan = Self::new(100_000, 10_000);
        while let Some(option) = arguments.next() {
            let number = arguments.next().and_then(|number| number.parse().ok());
            let number = number.ok_or(USAGE)?;
            match option.as_str() {
                "--calls" => plan.calls = number,
                "--streams" => plan.streams = number,
                "--leak" => plan.leak = number,
                _ => return Err(USAGE),
            }
        }
        Ok(plan)
    }
}
