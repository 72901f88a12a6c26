//! What a process costs, read from outside.

use std::fs;
use std::io;
use std::time::Duration;

use crate::gauges::resident_of;

/// What a process has cost so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    /// Bytes of memory in use.
    pub(crate) resident: f64,
    /// In its own code and in the kernel's for it, of all of its threads.
    pub(crate) processor: Duration,
}

impl Costs {
    /// Of the process with this number, or `self`.
    pub(crate) fn of(process: &str) -> io::Result<Self> {
        // A hundredth of a second, whatever the kernel counts in: this is what it shows.
        const TICK: Duration = Duration::from_millis(10);
        let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
        // The name, in brackets, may hold anything; `utime` and `stime` are the 12th and 13th behind it.
        let behind = stat.rsplit_once(") ").ok_or(io::ErrorKind::InvalidData)?.1;
        let ticks = behind.split(' ').skip(11).take(2);
        let ticks: Option<u32> = ticks.map(|ticks| ticks.parse::<u32>().ok()).sum();
        Ok(Self {
            resident: resident_of(process)?,
            processor: TICK * ticks.ok_or(io::ErrorKind::InvalidData)?,
        })
    }
}
