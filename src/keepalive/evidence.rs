//! What speaks for and against a peer.

use std::fmt;
use std::time::Duration;

use super::{ProcessState, Support};

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
    /// What the peer's process was doing, where the kernel can tell: on unix sockets, when a call was
    /// late or the peer was convicted. Nothing is decided by it. Who holds a
    /// connection that was handed on, as by the launcher of a shim, is looked for when something lies
    /// unread before a deadline, or behind the first verdict: until it is found nothing is known.
    pub process: Option<ProcessState>,
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
        if let Some(process) = self.process {
            write!(f, ", its process is {process}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keepalive::ProcessUnknown;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
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
            process: None,
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
        evidence.process = Some(ProcessState::Frozen);
        assert!(
            evidence
                .to_string()
                .ends_with(", this side paused for 5.00 s, its process is frozen by its cgroup")
        );
        evidence.process = Some(ProcessState::Unknown(ProcessUnknown::HandedOn));
        assert!(evidence.to_string().ends_with(
            ", its process is not known: who listened or connected does not hold the connection"
        ));
    }
}
