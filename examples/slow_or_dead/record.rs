//! The plugins' own record of what they did and when: lines on their standard output.
//!
//! The runtime's claims are checked against it, so it must not come from the runtime. Both sides
//! read the monotonic clock of the machine, whose readings compare between processes.

use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// One line of a plugin's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) at: Duration,
    pub(crate) deed: Deed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    Connected,
    Got(u32),
    Ended(u32),
    Disconnected(String),
}

/// Reads the clock that all processes of this machine share.
pub(crate) fn now() -> Duration {
    // It cannot fail for this clock, which every kernel has.
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from)
}

/// Writes one line of the record of this process.
pub(crate) fn note(deed: Deed) {
    let record = Record { at: now(), deed };
    // Nobody reads it any more when the runtime is gone, and then this process ends too.
    let _ = writeln!(io::stdout(), "{record}");
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.at.as_nanos())?;
        match &self.deed {
            Deed::Connected => f.write_str("connected"),
            Deed::Got(event) => write!(f, "got {event}"),
            Deed::Ended(event) => write!(f, "ended {event}"),
            Deed::Disconnected(why) => write!(f, "disconnected {why}"),
        }
    }
}

impl FromStr for Record {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        parse(line).ok_or_else(|| format!("not a line of a record: {line:?}"))
    }
}

fn parse(line: &str) -> Option<Record> {
    let (at, deed) = line.split_once(' ')?;
    let (verb, object) = deed.split_once(' ').unwrap_or((deed, ""));
    Some(Record {
        at: Duration::from_nanos(at.parse().ok()?),
        deed: match verb {
            "connected" => Deed::Connected,
            "got" => Deed::Got(object.parse().ok()?),
            "ended" => Deed::Ended(object.parse().ok()?),
            "disconnected" => Deed::Disconnected(object.to_owned()),
            _ => return None,
        },
    })
}
