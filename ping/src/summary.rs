//! The lines of a run, and what they come to.

use std::time::Duration;

use serde_json::json;

use crate::outcome::{Health, Outcome, Time};
use crate::output;
use crate::process::{self, Seen};

pub(crate) struct Summary {
    address: String,
    json: bool,
    asked: u64,
    times: Vec<Duration>,
    counts: [u64; 3],
    newest: Option<Health>,
}

impl Summary {
    pub(crate) fn new(address: &str, json: bool) -> Self {
        Self {
            address: address.to_owned(),
            json,
            asked: 0,
            times: Vec::new(),
            counts: [0; 3],
            newest: None,
        }
    }

    pub(crate) fn connected(&self, pid: Option<i32>) {
        if self.json {
            return;
        }
        let peer = pid.map_or_else(String::new, |pid| match process::name(pid) {
            Some(name) => format!(", process {pid} ({name})"),
            None => format!(", process {pid}"),
        });
        output::line(format_args!("PING {}{peer}", self.address));
    }

    pub(crate) fn add(&mut self, outcome: &Outcome, process: Option<Seen>) {
        self.asked += 1;
        let health = outcome.health(process);
        self.newest = Some(health);
        self.times.extend(outcome.time());
        self.counts[usize::from(health.exit_status())] += 1;
        if self.json {
            output::line(outcome.json(self.asked, process));
            return;
        }
        let process = process.map_or_else(String::new, |seen| {
            format!("; its process is {}", seen.state)
        });
        output::line(format_args!("{}: {outcome}{process}", self.asked));
    }

    /// Says what all came to. The last outcome is the judgement: what was before may have passed.
    pub(crate) fn print(mut self) -> Health {
        let health = self.newest.unwrap_or(Health::Doubtful);
        self.times.sort();
        let [alive, doubtful, gone] = self.counts;
        let at = |percent: usize| {
            let last = self.times.len().checked_sub(1)?;
            self.times.get((last * percent).div_ceil(100)).copied()
        };
        if self.json {
            let seconds = |percent| at(percent).map(|time| time.as_secs_f64());
            let summary = json!({
                "address": self.address,
                "asked": self.asked,
                "alive": alive, "doubtful": doubtful, "gone": gone,
                "min": seconds(0), "p50": seconds(50), "p90": seconds(90), "p99": seconds(99), "max": seconds(100),
                "health": health.to_string(),
            });
            output::line(summary);
            return health;
        }
        output::line(format_args!(
            "\n{}: {health}. Of {} asked: {alive} alive, {doubtful} doubtful, {gone} gone",
            self.address, self.asked
        ));
        if let (Some(least), Some(half), Some(most)) = (at(0), at(50), at(100)) {
            let (p90, p99) = (at(90).unwrap_or(most), at(99).unwrap_or(most));
            output::line(format_args!(
                "min {}, p50 {}, p90 {}, p99 {}, max {}",
                Time(least),
                Time(half),
                Time(p90),
                Time(p99),
                Time(most)
            ));
        }
        health
    }
}
