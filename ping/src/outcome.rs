//! What came of one PING, in words and as a judgement.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use ttrpc_keepalive::ProcessState;

use crate::process::Seen;

/// What came of one PING.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// A PONG came after this time.
    Answered { after: Duration, stalled: bool },
    /// None came, and the peer's process has read the PING after this time. `knows` if it has sent a
    /// PONG before.
    Read { after: Duration, knows: bool },
    /// The PING, or what was sent before it, has lain unread for this time.
    Unread { since: Duration },
    /// No PONG came in this time, and whether the PING was read cannot be told.
    Unknown { within: Duration },
    /// The kernel takes no more bytes: so much lies unread.
    Refused,
    /// The connection has ended. `listens` if another one could be made then.
    Ended { reason: String, listens: bool },
    /// There is none. `gone` if nobody listens, and not for another reason.
    NotConnected { reason: String, gone: bool },
    /// It does what no peer of ttrpc does.
    Foreign(&'static str),
}

/// What an operator does about a peer. A larger one is worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Health {
    Alive,
    Doubtful,
    Gone,
}

impl Health {
    pub(crate) fn exit_status(self) -> u8 {
        match self {
            Self::Alive => 0,
            Self::Doubtful => 1,
            Self::Gone => 2,
        }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Alive => "alive",
            Self::Doubtful => "doubtful",
            Self::Gone => "gone",
        })
    }
}

impl Outcome {
    pub(crate) fn health(&self, process: Option<Seen>) -> Health {
        match self {
            Self::Answered { stalled: false, .. } | Self::Read { knows: false, .. } => {
                Health::Alive
            }
            Self::Ended { listens: false, .. } | Self::NotConnected { gone: true, .. } => {
                Health::Gone
            }
            Self::Ended { .. } | Self::NotConnected { .. } | Self::Foreign(_) => Health::Doubtful,
            _ if process.is_some_and(|process| process.state == ProcessState::Gone) => Health::Gone,
            _ => Health::Doubtful,
        }
    }

    /// The time that was measured, of an answer or of a read.
    pub(crate) fn time(&self) -> Option<Duration> {
        match self {
            Self::Answered { after, .. } | Self::Read { after, .. } => Some(*after),
            _ => None,
        }
    }

    /// Whether the peer knows PING, as far as this says.
    pub(crate) fn support(&self) -> &'static str {
        match self {
            Self::Answered { .. } => "yes",
            Self::Read { knows: false, .. } => "no",
            Self::Read { knows: true, .. } => "yes",
            _ => "-",
        }
    }

    /// Whether to go on asking on this connection.
    pub(crate) fn is_end(&self) -> bool {
        matches!(
            self,
            Self::Ended { .. } | Self::NotConnected { .. } | Self::Foreign(_)
        )
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Answered { stalled: false, .. } => "answered",
            Self::Answered { stalled: true, .. } => "stalled",
            Self::Read { .. } => "read",
            Self::Unread { .. } => "unread",
            Self::Unknown { .. } => "unknown",
            Self::Refused => "refused",
            Self::Ended { .. } => "ended",
            Self::NotConnected { .. } => "not connected",
            Self::Foreign(_) => "not ttrpc",
        }
    }

    /// One line for a program.
    pub(crate) fn json(&self, number: u64, process: Option<Seen>) -> Value {
        if !self.is_end() {
            return json!({
                "number": number,
                "outcome": self.word(),
                "seconds": self.time().or(match self {
                    Self::Unread { since } => Some(*since),
                    Self::Unknown { within } => Some(*within),
                    _ => None,
                }).map(|time| time.as_secs_f64()),
                "process": process.map(|process| process.state.to_string()),
                "health": self.health(process).to_string(),
            });
        }
        json!({
            "number": number,
            "outcome": self.word(),
            "reason": self.to_string(),
            "health": self.health(process).to_string(),
        })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered { after, stalled } => {
                write!(f, "answered in {}", Time(*after))?;
                if *stalled {
                    f.write_str(", and says that its handlers are stuck")?;
                }
                Ok(())
            }
            Self::Read { after, knows } => {
                let but = if *knows {
                    "but is not answered"
                } else {
                    "does not know PING"
                };
                write!(f, "read in {}, {but}", Time(*after))
            }
            Self::Unread { since } => write!(f, "unread for {}", Time(*since)),
            Self::Unknown { within } => write!(
                f,
                "no answer in {}: stuck, or does not know PING; this transport cannot tell",
                Time(*within)
            ),
            Self::Refused => f.write_str("takes no more bytes: much lies unread"),
            Self::Ended { reason, listens } => {
                write!(f, "the connection has ended: {reason}")?;
                if *listens {
                    f.write_str("; somebody listens there")?;
                }
                Ok(())
            }
            Self::NotConnected { reason, .. } => f.write_str(reason),
            Self::Foreign(does) => write!(f, "this is not ttrpc: {does}"),
        }
    }
}

/// A time in the unit in which one reads it.
pub(crate) struct Time(pub(crate) Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        let text = if seconds < 1e-3 {
            format!("{:.0} us", seconds * 1e6)
        } else if seconds < 1.0 {
            format!("{:.2} ms", seconds * 1e3)
        } else {
            format!("{seconds:.1} s")
        };
        f.pad(&text)
    }
}
