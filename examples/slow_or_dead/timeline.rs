//! What happened, in order: told once, printed at once, and kept to be summed up and checked.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use tokio::sync::watch;
use ttrpc_keepalive::{
    ConnectionError, Error, Evidence, LateOutcome, Peer, Snapshot, State, Support, Verdict,
};

use crate::decide::Outcome;
use crate::record::now;
use crate::{FROZEN_IN, Result, Rules};

/// Everything that has happened to all plugins.
pub(crate) struct Timeline {
    pub(crate) rules: Rules,
    /// When the run began, on the clock of [`now`].
    origin: Duration,
    coloured: bool,
    entries: watch::Sender<Vec<Entry>>,
}

pub(crate) struct Entry {
    /// On the clock of [`now`], as the plugins' records are.
    pub(crate) at: Duration,
    pub(crate) name: &'static str,
    pub(crate) happening: Happening,
}

pub(crate) enum Happening {
    Registered {
        pid: u32,
        seen: Snapshot,
    },
    /// An event that was due has been decided, which kept the node waiting for so long.
    Event {
        event: u32,
        took: Duration,
        outcome: Outcome,
    },
    LateAnswer {
        event: u32,
        outcome: LateOutcome,
    },
    Doubtful(Snapshot),
    Heard(Snapshot),
    /// Silent for all of its time, and its process runs: it is given longer.
    Spared(Evidence),
    /// Evicted, on this evidence.
    Dead(Evidence),
    /// Its connection has ended otherwise.
    Gone(ConnectionError),
    /// The process was stopped with SIGSTOP.
    Stopped,
    /// It runs again, by SIGCONT.
    Continued,
}

impl Timeline {
    pub(crate) fn begin(rules: Rules) -> Self {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            rules,
            origin: now(),
            coloured: io::stdout().is_terminal() && !plain,
            entries: watch::Sender::new(Vec::new()),
        }
    }

    /// Adds an entry, and prints it if it is worth a line.
    pub(crate) fn tell(&self, name: &'static str, happening: Happening) {
        self.entries.send_modify(|entries| {
            let entry = Entry {
                at: now(),
                name,
                happening,
            };
            if let Some(line) = Line::about(&entry, entries, self.rules) {
                self.print(&entry, &line);
            }
            entries.push(entry);
        });
    }

    /// Waits until something of the kind has happened to a plugin.
    pub(crate) async fn happened(
        &self,
        name: &str,
        such: impl Fn(&Happening) -> bool,
    ) -> Result<()> {
        let matches = |entry: &Entry| entry.name == name && such(&entry.happening);
        let mut entries = self.entries.subscribe();
        entries
            .wait_for(|entries| entries.iter().any(matches))
            .await?;
        Ok(())
    }

    /// Gives all entries so far to a reader.
    pub(crate) fn read<R>(&self, reader: impl FnOnce(&[Entry]) -> R) -> R {
        reader(&self.entries.borrow())
    }

    /// Seconds since the run began.
    pub(crate) fn seconds(&self, at: Duration) -> f64 {
        at.saturating_sub(self.origin).as_secs_f64()
    }

    /// Text in a colour, on a terminal.
    pub(crate) fn paint(&self, colour: Colour, text: &str) -> String {
        match (self.coloured, colour) {
            (false, _) | (_, Colour::None) => text.to_owned(),
            (true, Colour::Good) => format!("\x1b[32m{text}\x1b[0m"),
            (true, Colour::Late) => format!("\x1b[33m{text}\x1b[0m"),
            (true, Colour::Bad) => format!("\x1b[1;31m{text}\x1b[0m"),
            (true, Colour::Stage) => format!("\x1b[2m{text}\x1b[0m"),
        }
    }

    fn print(&self, entry: &Entry, line: &Line) {
        let (at, name) = (self.seconds(entry.at), entry.name);
        let what = self.paint(line.colour, &format!("{:<30}", line.what));
        let evidence = &line.evidence;
        say(format_args!("{at:>6.2} s  {name:<7} {what} {evidence}"));
    }
}

/// Writes one line to standard output.
pub(crate) fn say(line: impl fmt::Display) {
    // A reader that has gone away, as `head` does, changes nothing about how the run comes out.
    let _ = writeln!(io::stdout(), "{}", line.to_string().trim_end_matches(' '));
}

/// Whether a connection ended there.
pub(crate) fn is_gone(happening: &Happening) -> bool {
    matches!(happening, Happening::Dead(_) | Happening::Gone(_))
}

#[derive(Clone, Copy)]
pub(crate) enum Colour {
    None,
    Good,
    Late,
    Bad,
    /// What the stage does to a plugin, as opposed to what the runtime sees of it.
    Stage,
}

/// The line that tells an entry.
struct Line {
    colour: Colour,
    what: String,
    evidence: String,
}

impl Line {
    /// `None` for what goes without saying: events that are answered or skipped.
    fn about(entry: &Entry, before: &[Entry], rules: Rules) -> Option<Self> {
        let (colour, what, evidence) = match &entry.happening {
            Happening::Registered { pid, seen } => {
                let again = before.iter().any(|earlier| {
                    earlier.name == entry.name
                        && matches!(earlier.happening, Happening::Registered { .. })
                });
                let what = if again {
                    "registered anew"
                } else {
                    "registered"
                };
                let support = match seen.support() {
                    Support::Yes => ", answers PING",
                    _ => "",
                };
                (Colour::Good, what.to_owned(), format!("pid {pid}{support}"))
            }
            Happening::Event { event, outcome, .. } => about_event(*event, outcome, rules)?,
            Happening::LateAnswer { event, outcome } => {
                let LateOutcome::Answered { after } = outcome else {
                    return None;
                };
                let skipped = skipped_since(before, entry.name, *event);
                let what = format!("answers event {event} after all");
                let evidence = format!(
                    "took {:.2} s; served again, {skipped} events skipped",
                    after.as_secs_f64()
                );
                (Colour::Good, what, evidence)
            }
            Happening::Doubtful(seen) => match seen.state() {
                State::Suspect => (Colour::Late, "suspect".to_owned(), silence(seen)),
                // The line about the late event has said it.
                _ => return None,
            },
            Happening::Heard(seen) => {
                let rtt = seen.rtt().map(|rtt| format!("PONG took {}", short(rtt)));
                (
                    Colour::Good,
                    "heard again".to_owned(),
                    rtt.unwrap_or_default(),
                )
            }
            Happening::Spared(evidence) => (
                Colour::Late,
                "overdue, given longer".to_owned(),
                words(evidence),
            ),
            Happening::Dead(evidence) => (Colour::Bad, "DEAD, evicted".to_owned(), words(evidence)),
            Happening::Gone(ConnectionError::LocalClose) => return None,
            Happening::Gone(end) => (Colour::Bad, "gone, evicted".to_owned(), end.to_string()),
            Happening::Stopped => (
                Colour::Stage,
                "(SIGSTOP)".to_owned(),
                format!("in the middle of event {FROZEN_IN}"),
            ),
            Happening::Continued => (Colour::Stage, "(SIGCONT)".to_owned(), String::new()),
        };
        Some(Self {
            colour,
            what,
            evidence,
        })
    }
}

fn about_event(event: u32, outcome: &Outcome, rules: Rules) -> Option<(Colour, String, String)> {
    Some(match (outcome, rules) {
        (Outcome::Applied | Outcome::Skipped | Outcome::Absent, _) => return None,
        (Outcome::Late(_), Rules::Today) => (
            Colour::Bad,
            format!("event {event} late: FATAL"),
            "deadline exceeded; disconnected for good".to_owned(),
        ),
        (Outcome::Late(error), Rules::Evidence | Rules::OldPeers | Rules::OldPeersInGo) => {
            let (colour, consequence) = match error.peer() {
                Peer::Alive => (Colour::Late, "kept, set aside"),
                Peer::Doubtful => (Colour::Bad, "skipped until heard"),
                Peer::Gone => (Colour::Bad, "gone"),
            };
            let evidence = error.evidence().map(words).unwrap_or_default();
            let what = format!("event {event} late: {}", verdict(error));
            (colour, what, format!("{evidence}; {consequence}"))
        }
        (Outcome::Failed(error), _) => (
            Colour::Bad,
            format!("event {event} failed"),
            error.to_string(),
        ),
    })
}

/// The verdict of a late call, loud.
pub(crate) fn verdict(error: &Error) -> String {
    error.verdict().map(loud).unwrap_or_default()
}

pub(crate) fn loud(verdict: Verdict) -> String {
    match verdict {
        Verdict::HandlersStalled => "HANDLERS STALLED".to_owned(),
        Verdict::NotReading => "NOT READING".to_owned(),
        other => format!("{other:?}").to_uppercase(),
    }
}

fn words(evidence: &Evidence) -> String {
    let silent_for = evidence.silent_for.as_secs_f64();
    match (evidence.awaiting_pong_for, evidence.rtt) {
        (None, Some(rtt)) => format!("heard {silent_for:.2} s ago, PONG took {}", short(rtt)),
        _ => evidence.to_string(),
    }
}

fn silence(seen: &Snapshot) -> String {
    let mut text = format!("silent for {:.2} s", seen.silent_for().as_secs_f64());
    if let Some(awaiting) = seen.awaiting_pong_for() {
        text += &format!(", PING unanswered for {:.2} s", awaiting.as_secs_f64());
    }
    if let Some(unread) = seen.unread_for() {
        text += &format!(", read nothing for {:.2} s", unread.as_secs_f64());
    }
    text
}

fn short(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

/// How many events a plugin was spared since it was late with one.
fn skipped_since(entries: &[Entry], name: &str, late: u32) -> usize {
    let skipped = entries.iter().filter(|entry| {
        entry.name == name
            && matches!(
                entry.happening,
                Happening::Event { event, outcome: Outcome::Skipped, .. } if event > late
            )
    });
    skipped.count()
}
