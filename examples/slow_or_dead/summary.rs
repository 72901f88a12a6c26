//! The run at a glance: every event of every plugin, and what they came to.

use std::time::Duration;

use crate::decide::Outcome;
use crate::timeline::{Colour, Entry, Happening, Timeline, say, verdict};
use crate::{PLUGINS, Rules};

/// What one plugin's entries add up to.
#[derive(Default)]
struct Sum {
    chart: Vec<(Colour, char)>,
    answered: usize,
    late: usize,
    missed: usize,
    lost: Duration,
    verdicts: Vec<String>,
    late_answers: usize,
    /// When it registered and when it was gone, in turn.
    comings: Vec<Duration>,
    goings: Vec<Duration>,
}

/// Prints the chart of all events and the table.
pub(crate) fn print(timeline: &Timeline, entries: &[Entry]) {
    let sums = PLUGINS.map(|name| (name, Sum::of(entries, name)));
    let events = sums.iter().map(|(_, sum)| sum.chart.len()).max();

    let numbers: String = (1..=events.unwrap_or(0))
        .map(|n| format!("{n:>3}"))
        .collect();
    say(format_args!("\n  event   {numbers}"));
    for (name, sum) in &sums {
        let marks = sum
            .chart
            .iter()
            .map(|(colour, mark)| timeline.paint(*colour, &format!("{mark:>3}")));
        say(format_args!("  {name:<8}{}", marks.collect::<String>()));
    }
    say("            o answered   L late   - skipped at no cost   x not there");

    say("\n  plugin   answered   late   missed   time the node lost   verdicts             end");
    for (name, sum) in &sums {
        let Sum {
            answered,
            late,
            missed,
            ..
        } = sum;
        let lost = format!("{:.2} s", sum.lost.as_secs_f64());
        let (verdicts, end) = (sum.verdicts(timeline.rules), sum.end(timeline));
        say(format_args!(
            "  {name:<8} {answered:>8} {late:>6} {missed:>8} {lost:>20}   {verdicts:<18}   {end}"
        ));
    }
    say("");
}

impl Sum {
    fn of(entries: &[Entry], name: &str) -> Self {
        let mut sum = Self::default();
        for entry in entries.iter().filter(|entry| entry.name == name) {
            match &entry.happening {
                Happening::Event { took, outcome, .. } => sum.add_event(*took, outcome),
                Happening::Registered { .. } => sum.comings.push(entry.at),
                Happening::LateAnswer { .. } => sum.late_answers += 1,
                Happening::Dead(_) => {
                    sum.goings.push(entry.at);
                    sum.verdicts.push("DEAD".to_owned());
                }
                Happening::Gone(_) => sum.goings.push(entry.at),
                _ => {}
            }
        }
        sum
    }

    fn add_event(&mut self, took: Duration, outcome: &Outcome) {
        if let Outcome::Late(_) | Outcome::Failed(_) = outcome {
            self.lost += took;
        }
        let (count, mark) = match outcome {
            Outcome::Applied => (&mut self.answered, (Colour::Good, 'o')),
            Outcome::Late(error) => {
                self.verdicts.push(verdict(error));
                (&mut self.late, (Colour::Late, 'L'))
            }
            Outcome::Failed(_) => (&mut self.missed, (Colour::Bad, 'F')),
            Outcome::Skipped => (&mut self.missed, (Colour::None, '-')),
            Outcome::Absent => (&mut self.missed, (Colour::Bad, 'x')),
        };
        *count += 1;
        self.chart.push(mark);
    }

    fn verdicts(&self, rules: Rules) -> String {
        match rules {
            // The errors have one all the same, but nobody looks at it.
            Rules::Today => "not asked for".to_owned(),
            _ if self.verdicts.is_empty() => "none".to_owned(),
            _ => self.verdicts.join(", "),
        }
    }

    fn end(&self, timeline: &Timeline) -> String {
        let at = |at: &Duration| format!("{:.2} s", timeline.seconds(*at));
        match (&self.comings[..], &self.goings[..]) {
            ([_], []) if self.late == 0 => "served throughout".to_owned(),
            ([_], []) if self.late_answers == self.late => "kept, served again".to_owned(),
            ([_], []) => "kept, still set aside".to_owned(),
            ([_], [gone]) => format!("disconnected at {}, never back", at(gone)),
            ([_, back], [gone]) => {
                format!("evicted at {}, back at {}", at(gone), at(back))
            }
            (comings, goings) => {
                format!(
                    "registered {} times, gone {} times",
                    comings.len(),
                    goings.len()
                )
            }
        }
    }
}
