//! The verdict on a call that ran out of time: is its peer slow, or is it dead?

use std::fmt;
use std::time::Duration;

/// Evidence this much older than `ask_at` still speaks for the peer, and a PING this much older is
/// still fresh enough to be waited for. It bounds the PINGs that late calls cause to 40 a second,
/// however many calls are late.
pub(super) const FRESH: Duration = Duration::from_millis(25);

/// Stands for the round trip while none has been measured.
const ASSUMED_RTT: Duration = Duration::from_millis(50);

/// Timers of a runtime differ by so much from what they were set to: runs of the driver that lie no
/// further apart are no pause, however short the lead of a call is.
const TIMER_GRAIN: Duration = Duration::from_millis(5);

/// Whether two runs of the driver that lie so far apart were a pause of this side, for a call with this
/// lead.
pub(super) fn is_stall(gap: Duration, lead: Duration) -> bool {
    gap > TIMER_GRAIN.max(lead / 2)
}

/// What is known of the peer of a call whose deadline has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// The peer lives: it gave a sign of life just now, and the answer is late. Of a peer that does
    /// not answer PING that sign may be that its process reads, see [`Evidence::only_reads`](super::Evidence::only_reads).
    Slow,
    /// The peer lives and says itself that its handlers do not run.
    HandlersStalled,
    /// The peer was asked, had time to answer, and said nothing.
    Unresponsive,
    /// The peer's kernel takes no byte of what we want to write, or, of a peer that does not answer
    /// PING, its process reads nothing of what the kernel took.
    NotReading,
    /// The request still waits, behind other bytes of ours, which the peer does read, or for another
    /// call to end.
    NotSent,
    /// This side did not run for so long that nothing can be said of the peer.
    LocalStall,
    /// Nothing speaks for the peer, and too little against it.
    Unknown(Unknown),
}

/// Why a verdict is [`Verdict::Unknown`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unknown {
    /// The PING, or the write that is refused, has not been out long enough to expect an answer, or
    /// has not lain unread for so long.
    TooEarly,
    /// The peer is not known to answer a PING, or this side sends none, and the kernel does not tell
    /// whether it reads.
    NoSupport,
    /// The stream did not say in time whether the answer has come, as one side of a multiplexer whose
    /// owner is busy.
    NotSeen,
}

impl Verdict {
    /// Whether it speaks against the peer until the next sign of life.
    pub(super) const fn is_doubtful(self) -> bool {
        matches!(
            self,
            Self::Unresponsive | Self::NotReading | Self::Unknown(Unknown::TooEarly)
        )
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Slow => "the peer is alive, its answer is late",
            Self::HandlersStalled => "the peer is alive, its handlers are stalled",
            Self::Unresponsive => "the peer does not respond",
            Self::NotReading => "the peer does not read",
            Self::NotSent => "the request is still waiting to be sent",
            Self::LocalStall => "this side did not run",
            Self::Unknown(Unknown::TooEarly) => "the peer had too little time to respond",
            Self::Unknown(Unknown::NoSupport) => "the peer cannot be asked",
            Self::Unknown(Unknown::NotSeen) => "the stream does not say whether an answer has come",
        })
    }
}

/// What is known of a request's bytes at its deadline, by the one who writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_structs,
    reason = "three answers that the driver must give, none may be forgotten"
)]
pub struct WriteFacts {
    /// The request is fully written.
    pub written: bool,
    /// The kernel was offered bytes between `ask_at` and the deadline; an offer after the deadline
    /// does not count.
    pub offered_since_asked: bool,
    /// The kernel took bytes since `ask_at`.
    pub taken_since_asked: bool,
}

/// Everything a verdict depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_structs,
    reason = "a fact more is a rule more, and every caller must supply it"
)]
pub struct Facts {
    /// The call was answered by the peer's own `DEADLINE_EXCEEDED`.
    pub peer_deadline_exceeded: bool,
    /// The request and the PING it waits for are fully written.
    pub written: bool,
    /// See [`WriteFacts::offered_since_asked`].
    pub offered_since_asked: bool,
    /// See [`WriteFacts::taken_since_asked`].
    pub taken_since_asked: bool,
    /// For how long the kernel has taken nothing, if a write is blocked.
    pub refused_for: Option<Duration>,
    /// The peer's process has read since `ask_at`, as the kernel told.
    pub read_since_asked: bool,
    /// A sign of life came not longer than 25 ms before `ask_at`. Of a peer that is not known to
    /// answer PING, that its process reads is one.
    pub fresh_evidence: bool,
    /// The newest PONG came in that time too and said that handlers are stalled.
    pub handlers_stalled: bool,
    /// The longest time between two runs of the driver since `ask_at`.
    pub longest_gap: Duration,
    /// The time between `ask_at` and the deadline.
    pub lead: Duration,
    /// The peer is known to answer a PING, and this side may send one.
    pub can_ask: bool,
    /// For how long the PING that is out was waited for while this side was looking, if one is
    /// out.
    pub attended: Option<Duration>,
    /// For how long written bytes have lain unread while this side was looking, if some do.
    pub unread: Option<Duration>,
    /// The smoothed round trip, if one was measured.
    pub smoothed_rtt: Option<Duration>,
}

/// Finds the verdict: the first rule that fits.
#[must_use]
pub fn judge(facts: &Facts) -> Verdict {
    if facts.peer_deadline_exceeded {
        return Verdict::Slow;
    }
    let patience = facts
        .smoothed_rtt
        .unwrap_or(ASSUMED_RTT)
        .saturating_mul(2)
        .max(facts.lead / 4);
    let stalled = is_stall(facts.longest_gap, facts.lead);
    if !facts.written {
        return match facts.refused_for {
            _ if stalled && !facts.offered_since_asked => Verdict::LocalStall,
            _ if facts.taken_since_asked || facts.read_since_asked => Verdict::NotSent,
            Some(refused_for) if refused_for >= patience => Verdict::NotReading,
            _ => Verdict::Unknown(Unknown::TooEarly),
        };
    }
    if facts.fresh_evidence {
        return if facts.handlers_stalled {
            Verdict::HandlersStalled
        } else {
            Verdict::Slow
        };
    }
    if stalled {
        return Verdict::LocalStall;
    }
    if !facts.can_ask {
        return match facts.unread {
            Some(unread) if unread >= patience => Verdict::NotReading,
            Some(_) => Verdict::Unknown(Unknown::TooEarly),
            None => Verdict::Unknown(Unknown::NoSupport),
        };
    }
    match facts.attended {
        Some(attended) if attended >= patience => Verdict::Unresponsive,
        _ => Verdict::Unknown(Unknown::TooEarly),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// A known peer that was asked and said nothing: each row below changes some of it.
    const SILENT: Facts = Facts {
        peer_deadline_exceeded: false,
        written: true,
        offered_since_asked: true,
        taken_since_asked: true,
        refused_for: None,
        read_since_asked: false,
        fresh_evidence: false,
        handlers_stalled: false,
        longest_gap: ms(125),
        lead: ms(250),
        can_ask: true,
        attended: Some(ms(250)),
        unread: None,
        smoothed_rtt: Some(ms(10)),
    };

    #[test]
    fn first_rule_that_fits_gives_the_verdict() {
        const EARLY: Verdict = Verdict::Unknown(Unknown::TooEarly);
        const UNWRITTEN: Facts = Facts {
            written: false,
            taken_since_asked: false,
            refused_for: Some(ms(300)),
            ..SILENT
        };
        let table = [
            ("asked, attended, silent", SILENT, Verdict::Unresponsive),
            (
                "its own deadline",
                Facts {
                    peer_deadline_exceeded: true,
                    ..UNWRITTEN
                },
                Verdict::Slow,
            ),
            (
                "nothing offered in a pause",
                Facts {
                    offered_since_asked: false,
                    longest_gap: ms(126),
                    ..UNWRITTEN
                },
                Verdict::LocalStall,
            ),
            (
                "nothing offered without one",
                Facts {
                    offered_since_asked: false,
                    ..UNWRITTEN
                },
                Verdict::NotReading,
            ),
            (
                "no time to offer anything",
                Facts {
                    offered_since_asked: false,
                    refused_for: None,
                    longest_gap: ms(0),
                    lead: ms(0),
                    ..UNWRITTEN
                },
                EARLY,
            ),
            ("nothing taken", UNWRITTEN, Verdict::NotReading),
            (
                "nothing taken, just refused",
                Facts {
                    refused_for: Some(ms(62)),
                    ..UNWRITTEN
                },
                EARLY,
            ),
            (
                "refused for a quarter lead",
                Facts {
                    refused_for: Some(ms(63)),
                    ..UNWRITTEN
                },
                Verdict::NotReading,
            ),
            (
                "offered, not even refused",
                Facts {
                    refused_for: None,
                    ..UNWRITTEN
                },
                EARLY,
            ),
            (
                "behind our own bulk",
                Facts {
                    taken_since_asked: true,
                    ..UNWRITTEN
                },
                Verdict::NotSent,
            ),
            (
                "unwritten beats evidence",
                Facts {
                    fresh_evidence: true,
                    ..UNWRITTEN
                },
                Verdict::NotReading,
            ),
            (
                "evidence",
                Facts {
                    fresh_evidence: true,
                    ..SILENT
                },
                Verdict::Slow,
            ),
            (
                "evidence of an old peer",
                Facts {
                    fresh_evidence: true,
                    can_ask: false,
                    ..SILENT
                },
                Verdict::Slow,
            ),
            (
                "evidence beats a gap",
                Facts {
                    fresh_evidence: true,
                    longest_gap: ms(900),
                    ..SILENT
                },
                Verdict::Slow,
            ),
            (
                "stalled handlers",
                Facts {
                    fresh_evidence: true,
                    handlers_stalled: true,
                    ..SILENT
                },
                Verdict::HandlersStalled,
            ),
            (
                "gap over half the lead",
                Facts {
                    longest_gap: ms(126),
                    ..SILENT
                },
                Verdict::LocalStall,
            ),
            (
                "gap of timers",
                Facts {
                    longest_gap: ms(5),
                    lead: ms(2),
                    ..SILENT
                },
                Verdict::Unresponsive,
            ),
            (
                "gap beyond them",
                Facts {
                    longest_gap: ms(6),
                    lead: ms(2),
                    ..SILENT
                },
                Verdict::LocalStall,
            ),
            (
                "gap beats support",
                Facts {
                    longest_gap: ms(126),
                    can_ask: false,
                    ..SILENT
                },
                Verdict::LocalStall,
            ),
            (
                "cannot be asked",
                Facts {
                    can_ask: false,
                    ..SILENT
                },
                Verdict::Unknown(Unknown::NoSupport),
            ),
            (
                "never asked",
                Facts {
                    attended: None,
                    ..SILENT
                },
                EARLY,
            ),
            (
                "quarter lead",
                Facts {
                    attended: Some(Duration::from_micros(62_500)),
                    ..SILENT
                },
                Verdict::Unresponsive,
            ),
            (
                "less than it",
                Facts {
                    attended: Some(Duration::from_micros(62_499)),
                    ..SILENT
                },
                EARLY,
            ),
            (
                "two round trips",
                Facts {
                    attended: Some(ms(200)),
                    smoothed_rtt: Some(ms(100)),
                    ..SILENT
                },
                Verdict::Unresponsive,
            ),
            (
                "less than them",
                Facts {
                    attended: Some(ms(199)),
                    smoothed_rtt: Some(ms(100)),
                    ..SILENT
                },
                EARLY,
            ),
            (
                "no sample",
                Facts {
                    attended: Some(ms(100)),
                    smoothed_rtt: None,
                    ..SILENT
                },
                Verdict::Unresponsive,
            ),
            (
                "no sample, early",
                Facts {
                    attended: Some(ms(99)),
                    smoothed_rtt: None,
                    ..SILENT
                },
                EARLY,
            ),
            (
                "unread",
                Facts {
                    can_ask: false,
                    unread: Some(ms(62)),
                    ..SILENT
                },
                EARLY,
            ),
            (
                "unread for a quarter lead",
                Facts {
                    can_ask: false,
                    unread: Some(ms(63)),
                    ..SILENT
                },
                Verdict::NotReading,
            ),
            (
                "unread, and a pause of ours",
                Facts {
                    can_ask: false,
                    unread: Some(ms(250)),
                    longest_gap: ms(126),
                    ..SILENT
                },
                Verdict::LocalStall,
            ),
            (
                "unread by a peer that answers PINGs",
                Facts {
                    unread: Some(ms(250)),
                    ..SILENT
                },
                Verdict::Unresponsive,
            ),
            (
                "refused, and it reads",
                Facts {
                    read_since_asked: true,
                    ..UNWRITTEN
                },
                Verdict::NotSent,
            ),
        ];
        for (name, facts, verdict) in table {
            assert_eq!(judge(&facts), verdict, "{name}");
        }
    }
}
