//! One plugin's part of the run, looked up: what the runtime saw of it, and what it recorded itself.

use std::time::Duration;

use ttrpc_keepalive::{Error, Evidence};

use crate::cast::Testimony;
use crate::decide::Outcome;
use crate::record::{Deed, Record};
use crate::timeline::{Entry, Happening, Timeline, is_gone, say};

pub(crate) struct Part<'a> {
    pub(crate) name: &'static str,
    /// Whether its process ended by itself, and without an error.
    pub(crate) ended_well: bool,
    entries: Vec<&'a Entry>,
    records: &'a [Record],
}

impl<'a> Part<'a> {
    pub(crate) fn of(name: &'static str, entries: &'a [Entry], left: &'a [Testimony]) -> Self {
        let testimony = left.iter().find(|testimony| testimony.name == name);
        let exit = testimony.and_then(|testimony| testimony.exit);
        Self {
            entries: entries.iter().filter(|entry| entry.name == name).collect(),
            records: testimony.map_or(&[], |testimony| &testimony.records),
            ended_well: exit.is_some_and(|exit| exit.success()),
            name,
        }
    }

    pub(crate) fn at(&self, such: impl Fn(&Happening) -> bool) -> Option<Duration> {
        let found = self.entries.iter().find(|entry| such(&entry.happening));
        found.map(|entry| entry.at)
    }

    pub(crate) fn did(&self, deed: Deed) -> Option<Duration> {
        self.did_once(|other| *other == deed)
    }

    /// When it did that, if it did so exactly once.
    pub(crate) fn did_once(&self, such: impl Fn(&Deed) -> bool) -> Option<Duration> {
        let mut found = self.records.iter().filter(|record| such(&record.deed));
        let first = found.next()?;
        found.next().is_none().then_some(first.at)
    }

    pub(crate) fn got(&self) -> Vec<u32> {
        let got = self.records.iter().filter_map(|record| match record.deed {
            Deed::Got(event) => Some(event),
            _ => None,
        });
        got.collect()
    }

    pub(crate) fn got_times(&self) -> impl Iterator<Item = Duration> {
        let got = |record: &&Record| matches!(record.deed, Deed::Got(_));
        self.records.iter().filter(got).map(|record| record.at)
    }

    /// Every event that was due: its number, how long it kept the node waiting, what came of it.
    pub(crate) fn events(&self) -> impl Iterator<Item = (u32, Duration, &'a Outcome)> {
        self.entries
            .iter()
            .filter_map(|entry| match &entry.happening {
                Happening::Event {
                    event,
                    took,
                    outcome,
                } => Some((*event, *took, outcome)),
                _ => None,
            })
    }

    /// The numbers of the events that it answered in time.
    pub(crate) fn applied(&self) -> Vec<u32> {
        let applied = self
            .events()
            .filter(|(_, _, outcome)| matches!(outcome, Outcome::Applied));
        applied.map(|(event, ..)| event).collect()
    }

    /// When it was found to be late with that event, after how long, and with which error.
    pub(crate) fn late(&self, late: u32) -> Option<(Duration, Duration, &'a Error)> {
        self.entries
            .iter()
            .find_map(|entry| match &entry.happening {
                Happening::Event {
                    event,
                    took,
                    outcome: Outcome::Late(error),
                } if *event == late => Some((entry.at, *took, error)),
                _ => None,
            })
    }

    /// When it was convicted, and on which evidence.
    pub(crate) fn death(&self) -> Option<(Duration, Evidence)> {
        self.entries
            .iter()
            .find_map(|entry| match &entry.happening {
                Happening::Dead(evidence) => Some((entry.at, *evidence)),
                _ => None,
            })
    }

    /// When it registered, each time.
    pub(crate) fn registered(&self) -> Vec<Duration> {
        let registered = self
            .entries
            .iter()
            .filter(|entry| matches!(entry.happening, Happening::Registered { .. }));
        registered.map(|entry| entry.at).collect()
    }

    /// Whether it was sent each event from then on, and answered it in time; at least one.
    pub(crate) fn served_from(&self, from: Duration) -> bool {
        let got = self.got();
        let mut since = self
            .entries
            .iter()
            .filter_map(|entry| match &entry.happening {
                Happening::Event {
                    event,
                    took,
                    outcome,
                } if entry.at >= from + *took => Some((event, outcome)),
                _ => None,
            });
        let served = |(event, outcome): (&u32, &Outcome)| {
            matches!(outcome, Outcome::Applied) && got.contains(event)
        };
        since.next().is_some_and(served) && since.all(served)
    }

    /// Whether it kept its one connection.
    pub(crate) fn kept(&self) -> bool {
        let lost = |record: &Record| matches!(record.deed, Deed::Disconnected(_));
        self.did(Deed::Connected).is_some() && !self.records.iter().any(lost)
    }

    /// The same, and whether nothing ever spoke against it.
    pub(crate) fn unharmed(&self) -> bool {
        let accused = |happening: &_| matches!(happening, Happening::Doubtful(_));
        self.kept() && self.at(accused).is_none() && self.at(is_gone).is_none()
    }

    /// Prints its own record, to find out what went wrong.
    pub(crate) fn print_records(&self, timeline: &Timeline) {
        for Record { at, deed } in self.records {
            let (at, name) = (timeline.seconds(*at), self.name);
            say(format_args!("  {at:>8.3} s  {name:<7} recorded: {deed:?}"));
        }
    }
}
