//! The verdict on a call that ran out of time: is its peer slow, or is it dead?

use std::fmt;
use std::time::Duration;

use super::Support;

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
    /// not answer PING that sign may be that its process reads, see [`Evidence::only_reads`].
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

/// What speaks for and against the peer at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Evidence {
    /// Time since the last byte that was received, or the last write that moved again; since the
    /// connection began if there was neither.
    pub silent_for: Duration,
    /// The newest round trip that was measured.
    pub rtt: Option<Duration>,
    /// The smoothed round trip.
    pub smoothed_rtt: Option<Duration>,
    /// For how long a PING has been written and unanswered, with no other sign of life either.
    pub awaiting_pong_for: Option<Duration>,
    /// For how long the kernel has taken nothing of what we want to write.
    pub write_blocked_for: Option<Duration>,
    /// Whether the kernel tells what the peer's process has read, and this side listens to it. This and
    /// [`support`](Self::support) are two questions.
    pub receipts: bool,
    /// Time since the peer's process is known to have read, as the kernel told last.
    pub read_ago: Option<Duration>,
    /// For how long written bytes have been there that nobody had read when the kernel was last asked.
    pub unread_for: Option<Duration>,
    /// The newest PONG said that the peer's handlers are stalled.
    pub handlers_stalled: bool,
    /// The newest pause of this side that was noticed.
    pub local_stall: Option<Duration>,
    /// Whether the peer knows PING.
    pub support: Support,
}

impl Evidence {
    /// Whether the newest sign of life is that the peer's process reads, of a peer that cannot be asked
    /// for more. It says nothing of a handler, nor of anything behind a proxy.
    #[must_use]
    pub fn only_reads(&self) -> bool {
        self.support != Support::Yes && self.read_ago.is_some_and(|ago| ago <= self.silent_for)
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "nothing heard for {:.2} s",
            self.silent_for.as_secs_f64()
        )?;
        if let Some(awaiting) = self.awaiting_pong_for {
            write!(f, ", PING unanswered for {:.2} s", awaiting.as_secs_f64())?;
        }
        if let Some(blocked) = self.write_blocked_for {
            write!(f, ", write refused for {:.2} s", blocked.as_secs_f64())?;
        }
        if let Some(unread) = self.unread_for {
            let unread = unread.as_secs_f64();
            write!(f, ", nobody has read what was sent for {unread:.2} s")?;
        } else if let Some(read) = self.read_ago {
            write!(f, ", read what was sent {:.2} s ago", read.as_secs_f64())?;
        }
        if self.handlers_stalled {
            f.write_str(", handlers stalled")?;
        }
        if let Some(stall) = self.local_stall {
            write!(f, ", this side paused for {:.2} s", stall.as_secs_f64())?;
        }
        Ok(())
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

    #[test]
    fn evidence_reads_as_a_sentence() {
        let mut evidence = Evidence {
            silent_for: ms(1980),
            rtt: None,
            smoothed_rtt: None,
            awaiting_pong_for: Some(ms(250)),
            write_blocked_for: None,
            receipts: true,
            read_ago: None,
            unread_for: None,
            handlers_stalled: false,
            local_stall: None,
            support: Support::Yes,
        };
        assert_eq!(
            evidence.to_string(),
            "nothing heard for 1.98 s, PING unanswered for 0.25 s"
        );
        evidence.read_ago = Some(ms(250));
        assert!(
            evidence
                .to_string()
                .ends_with(", read what was sent 0.25 s ago")
        );
        evidence.unread_for = Some(ms(1800));
        assert!(
            evidence
                .to_string()
                .ends_with(", nobody has read what was sent for 1.80 s")
        );
        (evidence.read_ago, evidence.unread_for) = (None, None);
        evidence.write_blocked_for = Some(ms(1500));
        evidence.handlers_stalled = true;
        evidence.local_stall = Some(ms(5000));
        assert!(evidence.to_string().ends_with(
            ", write refused for 1.50 s, handlers stalled, this side paused for 5.00 s"
        ));
    }
}
