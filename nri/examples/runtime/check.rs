//! Whether everything came out as said, and the table of the README.
//!
//! Times have a margin where something had to happen, because a busy machine makes everything late. They have
//! none where something must not happen.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use crate::node::Entry;
use crate::processes::Records;
use crate::{FROZEN_IN, LIMIT, PLUGINS, Result, SLOW_IN, TIMEOUT, WEDGED_IN};

const MARGIN: Duration = Duration::from_millis(1500);

/// Writes one line to standard output.
pub(crate) fn line(line: &str) {
    // A reader that has gone away, as `head` does, changes nothing about how the run comes out.
    let _ = writeln!(io::stdout(), "{}", line.trim_end());
}

/// What happened to one plugin.
struct Part<'a> {
    name: &'static str,
    entries: Vec<&'a Entry>,
    made: Vec<&'a (usize, Vec<String>, Duration)>,
    records: &'a [String],
}

impl<'a> Part<'a> {
    fn of(name: &'static str, entries: &'a [Entry], records: &'a [String]) -> Self {
        Self {
            name,
            entries: entries
                .iter()
                .filter(|entry| entry.plugin == name)
                .collect(),
            made: entries
                .iter()
                .filter_map(|entry| entry.made.as_ref())
                .collect(),
            records,
        }
    }

    fn did(&self, what: &str) -> Vec<&Entry> {
        let such = |entry: &&&Entry| entry.what == what;
        self.entries.iter().filter(such).copied().collect()
    }

    fn adjusted(&self, made: &(usize, Vec<String>, Duration)) -> bool {
        made.1.iter().any(|by| self.name.ends_with(by.as_str()))
    }

    /// How many containers it was spared.
    fn skipped(&self) -> usize {
        let got = |number| self.records.contains(&format!("got {number}"));
        self.made
            .iter()
            .filter(|(number, ..)| !got(*number))
            .count()
    }

    /// Whether it was late with this container, with this verdict, which kept the node waiting once.
    fn late(&self, number: usize, verdict: &str) -> bool {
        let late = self.did("late");
        let took = self
            .made
            .iter()
            .find(|made| made.0 == number)
            .map(|made| made.2);
        late.len() == 1
            && late[0].detail.starts_with(verdict)
            && took.is_some_and(|took| took >= LIMIT && took < LIMIT + MARGIN)
    }

    /// Whether it adjusted each container from the second `serving` on, at least one.
    fn served_again(&self, entries: &[Entry]) -> bool {
        let [_, again] = self.did("serving")[..] else {
            return false;
        };
        let since = |entry: &&Entry| {
            entry.at > again.at + entry.made.as_ref().map_or(Duration::ZERO, |made| made.2)
        };
        let mut made = entries
            .iter()
            .filter(since)
            .filter_map(|entry| entry.made.as_ref())
            .peekable();
        made.peek().is_some() && made.all(|made| self.adjusted(made))
    }

    fn adjusted_all(&self) -> bool {
        self.kept() && self.made.iter().all(|made| self.adjusted(made))
    }

    /// Whether it had no part in this container and some later ones, and was then told what there is.
    fn spared_and_told(&self, number: usize) -> bool {
        let told = self
            .records
            .iter()
            .filter(|record| *record == "synchronized");
        let made = self.made.iter().find(|made| made.0 == number);
        made.is_some_and(|made| !self.adjusted(made))
            && self.skipped() > 0
            && self.did("answered").len() == 1
            && told.count() >= 2
    }

    /// The containers for which somebody was waited for.
    fn waited_for(&self) -> Vec<usize> {
        let waited = self.made.iter().filter(|made| made.2 >= LIMIT);
        waited.map(|made| made.0).collect()
    }

    fn kept(&self) -> bool {
        let lost = |record: &String| record == "disconnected";
        self.did("gone").is_empty() && !self.records.iter().any(lost)
    }
}

/// Prints each claim and whether it holds; returns whether all do.
pub(crate) fn print(entries: &[Entry], records: &Records) -> bool {
    let part = |name| {
        let records = records.iter().find(|(other, _)| *other == name);
        Part::of(name, entries, records.map_or(&[], |(_, records)| records))
    };
    let [prompt, slow, wedged, frozen] = PLUGINS.map(part);
    let dead = frozen.did("gone").first().map(|entry| entry.at);
    let stopped = frozen.did("(SIGSTOP)").first().map(|entry| entry.at);
    // Its time began with the PING of the late event; a pause of this machine makes its death later.
    let due = |(dead, stopped): (Duration, Duration)| {
        dead >= stopped + TIMEOUT && dead <= stopped + LIMIT + 2 * TIMEOUT + MARGIN
    };
    let again = "was never disconnected, and adjusts again";
    let spared = "was sent nothing until it answered, then told what it missed";
    let claims = [
        (&prompt, "adjusted every container", prompt.adjusted_all()),
        (
            &slow,
            "was called slow after 2 s",
            slow.late(SLOW_IN, "Slow"),
        ),
        (&slow, spared, slow.spared_and_told(SLOW_IN)),
        (&slow, again, slow.kept() && slow.served_again(entries)),
        (
            &wedged,
            "was said to have handlers that are stalled, after 2 s",
            wedged.late(WEDGED_IN, "HandlersStalled"),
        ),
        (&wedged, spared, wedged.spared_and_told(WEDGED_IN)),
        (
            &wedged,
            again,
            wedged.kept() && wedged.served_again(entries),
        ),
        (
            &frozen,
            "was called unresponsive after 2 s",
            frozen.late(FROZEN_IN, "Unresponsive"),
        ),
        (
            &frozen,
            "was found dead 5 s after the PING that it did not answer",
            dead.zip(stopped).is_some_and(due),
        ),
        (
            &frozen,
            "registered anew when it was continued, and adjusts again",
            frozen.did("registered").len() == 2 && frozen.served_again(entries),
        ),
        (
            &prompt,
            "waited 2 s for each of the others once, and never again",
            prompt.waited_for() == [SLOW_IN, WEDGED_IN, FROZEN_IN],
        ),
    ];
    line("\n  Checked, also against what the plugins recorded themselves:");
    let mut all_hold = true;
    for (part, text, holds) in claims {
        let mark = if holds { "ok    " } else { "FAILED" };
        line(&format!("  {mark}  {:<10} {text}", part.name));
        all_hold &= holds;
    }
    if !all_hold {
        for (name, records) in records {
            line(&format!("  {name} recorded: {}", records.join(", ")));
        }
    }
    all_hold
}

const BEGIN: &str =
    "<!-- Written by `cargo run -p ttrpc-keepalive-nri --example runtime -- --write`. -->\n";
const END: &str = "<!-- End of what is written. -->";

/// Writes the table of what happened to the README, between its marks.
pub(crate) fn write_table(entries: &[Entry]) -> Result<()> {
    let rows = [
        ("answers at once", PLUGINS[0], 1),
        ("takes 5 s", PLUGINS[1], SLOW_IN),
        (
            "blocks the thread of its handlers for 5 s",
            PLUGINS[2],
            WEDGED_IN,
        ),
        (
            "is stopped, and continued after it was found dead",
            PLUGINS[3],
            FROZEN_IN,
        ),
    ];
    let mut table = String::from(
        "| your plugin | the event | the container | the plugin afterwards |\n|---|---|---|---|\n",
    );
    for (text, name, number) in rows {
        let part = Part::of(name, entries, &[]);
        let made = part.made.iter().find(|made| made.0 == number);
        let took = made.map_or(0.0, |made| made.2.as_secs_f64());
        let adjusted = match made.is_some_and(|made| part.adjusted(made)) {
            true => "adjusted",
            false => "made without it",
        };
        let spared = part
            .made
            .iter()
            .filter(|made| made.0 > number && !part.adjusted(made))
            .count();
        let verdict = part
            .did("late")
            .first()
            .map(|late| late.detail.clone())
            .unwrap_or_default();
        let verdict = match verdict.split(':').next() {
            Some("Slow") => "slow",
            Some("HandlersStalled") => "its handlers are stalled",
            Some("Unresponsive") => "unresponsive",
            other => other.unwrap_or_default(),
        };
        let afterwards = match (part.did("gone").first(), part.did("answered").first()) {
            (Some(_), _) => format!(
                "*{verdict}*; {spared} events skipped at no cost, found dead meanwhile; registers anew, and is served"
            ),
            (None, Some(_)) => format!(
                "*{verdict}*; kept; {spared} events skipped at no cost, until it has answered and been synchronized"
            ),
            (None, None) => "served".to_owned(),
        };
        table += &format!("| {text} | {took:.1} s | {adjusted} | {afterwards} |\n");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = fs::read_to_string(&path)?;
    let (before, rest) = readme.split_once(BEGIN).ok_or("no mark in the README")?;
    let (_, after) = rest.split_once(END).ok_or("no end mark in the README")?;
    fs::write(&path, format!("{before}{BEGIN}\n{table}\n{END}{after}"))?;
    Ok(())
}
