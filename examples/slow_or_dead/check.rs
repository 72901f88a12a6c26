//! Whether everything came out as said, by the plugins' own records.
//!
//! Times have a margin where something had to happen, because a busy machine makes everything
//! late. They have none where something must not happen: nothing may come early.

use std::time::Duration;

use ttrpc_keepalive::{Peer, ProcessState, Support, Verdict};

use crate::cast::Testimony;
use crate::part::Part;
use crate::record::Deed;
use crate::timeline::{Colour, Entry, Happening, Timeline, loud, say};
use crate::{
    FROZEN_IN, INTERVAL, LIMIT, PLUGINS, Rules, SLOW_IN, SLOW_WORK, TIMEOUT, WEDGED_AND_SILENT_FOR,
    WEDGED_FOR, WEDGED_IN,
};

const MARGIN: Duration = Duration::from_millis(1500);

/// Prints each claim and whether it holds; returns whether all do.
pub(crate) fn print(
    timeline: &Timeline,
    entries: &[Entry],
    left: &[Testimony],
    rules: Rules,
) -> bool {
    let parts = PLUGINS.map(|name| Part::of(name, entries, left));
    let [prompt, slow, wedged, frozen] = &parts;
    let claims = match rules {
        Rules::Evidence => [
            prompt.prompt(),
            slow.late_and_kept(SLOW_IN, SLOW_WORK, Verdict::Slow),
            wedged.late_and_kept(WEDGED_IN, WEDGED_FOR, Verdict::HandlersStalled),
            frozen.frozen(Verdict::Unresponsive),
        ],
        Rules::OldPeers => [
            prompt.prompt(),
            slow.late_and_seen_to_read(SLOW_IN, SLOW_WORK),
            wedged.late_and_seen_to_run(WEDGED_IN, WEDGED_AND_SILENT_FOR),
            frozen.frozen(Verdict::NotReading),
        ],
        Rules::OldPeersInGo => [
            prompt.prompt(),
            slow.late_and_seen_to_read(SLOW_IN, SLOW_WORK),
            wedged.late_and_seen_to_read(WEDGED_IN, WEDGED_FOR),
            frozen.frozen(Verdict::NotReading),
        ],
        Rules::Today => [
            prompt.prompt(),
            slow.slow_today(),
            wedged.wedged_today(),
            frozen.frozen_today(),
        ],
    };

    say("  Checked against what the plugins recorded themselves:");
    let mut all_hold = true;
    for (part, claims) in parts.iter().zip(claims) {
        for Claim { text, holds } in claims {
            let mark = if holds {
                timeline.paint(Colour::Good, "ok    ")
            } else {
                timeline.paint(Colour::Bad, "FAILED")
            };
            say(format_args!("  {mark}  {:<7} {text}", part.name));
            all_hold &= holds;
        }
    }
    if !all_hold {
        for part in &parts {
            part.print_records(timeline);
        }
    }
    all_hold
}

struct Claim {
    text: String,
    holds: bool,
}

/// A claim holds if its test says so; a test that misses a fact it needs says nothing.
fn claim(text: impl Into<String>, test: impl FnOnce() -> Option<bool>) -> Claim {
    Claim {
        text: text.into(),
        holds: test().unwrap_or(false),
    }
}

impl Part<'_> {
    fn prompt(&self) -> Vec<Claim> {
        vec![
            claim("got every event and answered each in time", || {
                let last = self.events().last()?.0;
                let all: Vec<u32> = (1..=last).collect();
                Some(self.got() == all && self.applied() == all)
            }),
            claim("was never doubted or disconnected", || {
                Some(self.unharmed())
            }),
            self.process(),
        ]
    }

    fn late_and_kept(&self, event: u32, work: Duration, verdict: Verdict) -> Vec<Claim> {
        let mut claims = self.late_and_served_again(event, work, verdict, Peer::Alive);
        claims.push(claim("was never doubted or disconnected", || {
            Some(self.unharmed())
        }));
        claims
    }

    fn late_and_served_again(
        &self,
        event: u32,
        work: Duration,
        verdict: Verdict,
        peer: Peer,
    ) -> Vec<Claim> {
        let again = || {
            let answer = |happening: &_| matches!(happening, Happening::LateAnswer { .. });
            self.at(answer)
        };
        vec![
            claim(
                format!("took {} s for event {event}", work.as_secs()),
                || {
                    let took = self
                        .did(Deed::Ended(event))?
                        .checked_sub(self.did(Deed::Got(event))?)?;
                    Some(on_time(took, work))
                },
            ),
            claim(format!("was called {} after 2 s", loud(verdict)), || {
                let (_, took, error) = self.late(event)?;
                let said = error.verdict() == Some(verdict) && error.peer() == peer;
                Some(said && on_time(took, LIMIT))
            }),
            claim("was sent nothing until it had answered that event", || {
                let (late, ..) = self.late(event)?;
                let aside = late..self.did(Deed::Ended(event))?;
                Some(self.got_times().all(|at| !aside.contains(&at)))
            }),
            claim(
                "was then served again, and answered each event in time",
                || {
                    let answered = self.did(Deed::Ended(event))?;
                    let prompt = on_time(again()?, answered);
                    Some(prompt && self.served_from(again()?))
                },
            ),
            self.process(),
        ]
    }

    /// It blocks the thread on which it reads: its process is what tells it from one that is stopped.
    fn late_and_seen_to_run(&self, event: u32, work: Duration) -> Vec<Claim> {
        let (verdict, peer) = (Verdict::NotReading, Peer::Doubtful);
        let mut claims = self.late_and_served_again(event, work, verdict, peer);
        claims.push(claim("was said to run, and kept its connection", || {
            let (_, _, error) = self.late(event)?;
            let runs = error.evidence()?.process == Some(ProcessState::Running);
            Some(runs && self.kept())
        }));
        claims.push(claim(
            "was given longer when its 2 s + 5 s were over, and was not evicted",
            || {
                let spared = self.at(|happening| matches!(happening, Happening::Spared(_)))?;
                let due = self.did(Deed::Ended(event - 1))? + INTERVAL + TIMEOUT;
                Some(spared >= due && self.death().is_none())
            },
        ));
        claims
    }

    fn late_and_seen_to_read(&self, event: u32, work: Duration) -> Vec<Claim> {
        let mut claims = self.late_and_kept(event, work, Verdict::Slow);
        claims.push(claim(
            "was seen to read the PING before that, and to do no more",
            || {
                let (_, _, error) = self.late(event)?;
                let evidence = error.evidence()?;
                Some(evidence.only_reads() && evidence.support == Support::No)
            },
        ));
        claims
    }

    fn frozen(&self, verdict: Verdict) -> Vec<Claim> {
        vec![
            self.stopped_at_work(),
            claim(
                format!(
                    "was called {} after 2 s, and was doubtful from then on",
                    loud(verdict)
                ),
                || {
                    let (_, took, error) = self.late(FROZEN_IN)?;
                    let doubted = |happening: &_| matches!(happening, Happening::Doubtful(_));
                    let doubtful = error.peer() == Peer::Doubtful && self.at(doubted).is_some();
                    let said = error.verdict() == Some(verdict);
                    Some(doubtful && said && on_time(took, LIMIT))
                },
            ),
            claim(
                "was called DEAD 2 s + 5 s after its last sign of life",
                || {
                    let (dead, evidence) = self.death()?;
                    let due = INTERVAL + TIMEOUT;
                    // The plugin's own word for it: it lived when it answered the event before.
                    let lived = self.did(Deed::Ended(FROZEN_IN - 1))?;
                    // A pause of this machine is not held against the plugin, which makes death later.
                    let latest = self.at(is_stopped)? + INTERVAL + 2 * TIMEOUT + MARGIN;
                    Some(evidence.silent_for >= due && dead >= lived + due && dead <= latest)
                },
            ),
            self.nothing_while_stopped(),
            claim(
                "found itself disconnected, registered anew and was served",
                || {
                    let continued = self.at(is_continued)?;
                    let lost = self.did_once(|deed| matches!(deed, Deed::Disconnected(_)))?;
                    let [_, back] = self.registered()[..] else {
                        return Some(false);
                    };
                    Some(lost >= continued && back >= lost && self.served_from(back))
                },
            ),
            claim("cost the node 2 s, once", || {
                let waited = self.events().map(|(_, took, _)| took).sum();
                Some(on_time(waited, LIMIT))
            }),
            self.process(),
        ]
    }

    fn slow_today(&self) -> Vec<Claim> {
        vec![
            claim(
                "was alive and at work, and was disconnected after 2 s",
                || {
                    let (_, took, _) = self.late(SLOW_IN)?;
                    let got = self.did(Deed::Got(SLOW_IN))?;
                    let lost = self.did_once(|deed| matches!(deed, Deed::Disconnected(_)))?;
                    let at_work = self.did(Deed::Ended(SLOW_IN)).is_none();
                    // It sees the end of its connection at once, which a dead process would not.
                    Some(at_work && on_time(took, LIMIT) && lost < got + SLOW_WORK)
                },
            ),
            self.lost_from(SLOW_IN),
            self.process(),
        ]
    }

    fn wedged_today(&self) -> Vec<Claim> {
        vec![
            claim(
                "answered after 5 s, and had been disconnected after 2 s",
                || {
                    let (late, took, _) = self.late(WEDGED_IN)?;
                    let got = self.did(Deed::Got(WEDGED_IN))?;
                    let ended = self.did(Deed::Ended(WEDGED_IN))?;
                    let worked = on_time(ended.checked_sub(got)?, WEDGED_FOR);
                    Some(worked && on_time(took, LIMIT) && late < ended)
                },
            ),
            self.lost_from(WEDGED_IN),
            self.process(),
        ]
    }

    fn frozen_today(&self) -> Vec<Claim> {
        vec![
            self.stopped_at_work(),
            claim("was disconnected after 2 s", || {
                let (_, took, _) = self.late(FROZEN_IN)?;
                Some(on_time(took, LIMIT))
            }),
            self.nothing_while_stopped(),
            self.lost_from(FROZEN_IN),
            self.process(),
        ]
    }

    fn stopped_at_work(&self) -> Claim {
        claim(
            format!("was stopped in the middle of event {FROZEN_IN}"),
            || {
                let (stopped, continued) = (self.at(is_stopped)?, self.at(is_continued)?);
                let got = self.did(Deed::Got(FROZEN_IN))?;
                // Today its process ends with its connection, before the event.
                let ended = self.did(Deed::Ended(FROZEN_IN));
                Some(got < stopped && ended.is_none_or(|ended| ended >= continued))
            },
        )
    }

    /// An event that was sent while it was stopped would be found in its socket afterwards.
    fn nothing_while_stopped(&self) -> Claim {
        claim(
            "was sent nothing while stopped: it found no event afterwards",
            || {
                let back = self.registered().get(1).copied();
                let served = |at| back.is_some_and(|back| at >= back);
                let early = self.got_times().filter(|at| !served(*at)).count();
                Some(early == usize::try_from(FROZEN_IN).ok()?)
            },
        )
    }

    fn lost_from(&self, event: u32) -> Claim {
        claim(format!("got no event after number {event}"), || {
            Some(self.got() == (1..=event).collect::<Vec<_>>() && self.registered().len() == 1)
        })
    }

    fn process(&self) -> Claim {
        claim("ended by itself", || Some(self.ended_well))
    }
}

/// Whether something came when it should, or a little later, and not early.
fn on_time(came: Duration, due: Duration) -> bool {
    came >= due && came <= due + MARGIN
}

fn is_stopped(happening: &Happening) -> bool {
    matches!(happening, Happening::Stopped)
}

fn is_continued(happening: &Happening) -> bool {
    matches!(happening, Happening::Continued)
}
