//! The run as a picture: a lane for each plugin, with its events, its silence and what was said of it.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use ttrpc_keepalive::{LateOutcome, Peer, State};

use crate::decide::Outcome;
use crate::timeline::{Entry, Happening, Timeline, is_gone, verdict};
use crate::{PLUGINS, Result, Rules};

/// Where lanes begin and how long a second is, in pixels.
const LEFT: f64 = 76.0;
const SECOND: f64 = 46.0;
const TOP: f64 = 62.0;
const LANE: f64 = 50.0;

/// It follows the colours of whoever looks at it.
const STYLE: &str = "\
text { font: 12px ui-sans-serif, system-ui, sans-serif; fill: #1f2328 }
.head { font-size: 15px; font-weight: 600 } .small { font-size: 11px }
path { fill: none; stroke: #d0d7de } .wait, .doubt { stroke-width: 1.5; stroke-dasharray: 2 3 }
.good { fill: #1a7f37 } .late { fill: #9a6700 } .bad { fill: #cf222e } .dim { fill: #6e7781 }
.wait { stroke: #9a6700 } .doubt, .end { stroke: #cf222e } .end { stroke-width: 2 }
.skip { fill: none; stroke: #8c959f } .absent { stroke: #8c959f } .stop { fill: #eaeef2 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } path { stroke: #3d444d }
.good { fill: #3fb950 } .late { fill: #d29922 } .bad { fill: #f85149 } .dim { fill: #9198a1 }
.wait { stroke: #d29922 } .doubt, .end { stroke: #f85149 }
.skip { stroke: #848d97 } .absent { stroke: #848d97 } .stop { fill: #2a313c }
}";

/// Draws what has happened into a file.
pub(crate) fn draw(timeline: &Timeline, entries: &[Entry], file: &Path) -> Result<()> {
    let last = entries
        .last()
        .map_or(0.0, |entry| timeline.seconds(entry.at));
    let end = (last + 0.6).ceil();
    let (width, bottom) = (x(end) + 14.0, lane(PLUGINS.len()));
    let height = bottom + 44.0;
    let mut svg = String::new();
    writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\">\n\
         <title>{}</title>\n<style>\n{STYLE}\n</style>",
        title(timeline.rules)
    )?;
    writeln!(
        svg,
        "<text class=\"head\" x=\"6\" y=\"20\">{}</text>",
        title(timeline.rules)
    )?;
    for second in (0..).map(f64::from).take_while(|second| *second <= end) {
        let (x, y) = (x(second), TOP - 24.0);
        writeln!(
            svg,
            "<path class=\"lane\" opacity=\".5\" d=\"M{x:.1} {y:.0}V{bottom:.0}\"/>"
        )?;
        if second % 2.0 == 0.0 {
            writeln!(
                svg,
                "<text class=\"small dim\" x=\"{x:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{second} s</text>",
                y - 4.0
            )?;
        }
    }
    for (row, name) in PLUGINS.into_iter().enumerate() {
        let lane = Lane {
            timeline,
            entries: entries.iter().filter(|entry| entry.name == name).collect(),
            y: lane(row) + 30.0,
            end: x(end),
        };
        writeln!(svg, "<text x=\"6\" y=\"{:.0}\">{name}</text>", lane.y + 4.0)?;
        lane.draw(&mut svg)?;
    }
    legend(&mut svg, bottom + 26.0)?;
    svg += "</svg>\n";
    Ok(std::fs::write(file, svg)?)
}

fn title(rules: Rules) -> &'static str {
    match rules {
        Rules::Evidence => "An event a second, 2 s to answer: late plugins are judged by evidence",
        Rules::OldPeers | Rules::OldPeersInGo => {
            "Plugins that know no PING, judged by what their processes read"
        }
        Rules::Today => "As runtimes are today: who is late is thrown out, slow or dead",
    }
}

fn x(seconds: f64) -> f64 {
    LEFT + seconds * SECOND
}

#[expect(
    clippy::cast_precision_loss,
    clippy::as_conversions,
    reason = "there are four"
)]
fn lane(row: usize) -> f64 {
    TOP - 14.0 + row as f64 * LANE
}

/// One plugin.
struct Lane<'a> {
    timeline: &'a Timeline,
    entries: Vec<&'a Entry>,
    y: f64,
    end: f64,
}

impl Lane<'_> {
    fn draw(&self, svg: &mut String) -> Result<()> {
        let y = self.y;
        if let Some(stopped) = self.first(|what| matches!(what, Happening::Stopped)) {
            let until = self.first(|what| matches!(what, Happening::Continued));
            let width = until.unwrap_or(self.end) - stopped;
            writeln!(
                svg,
                "<rect class=\"stop\" x=\"{stopped:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"46\" rx=\"4\"/>",
                y - 24.0
            )?;
            self.label(svg, "dim", stopped + 4.0, y - 12.0, "SIGSTOP")?;
        }
        writeln!(
            svg,
            "<path class=\"lane\" d=\"M{LEFT:.0} {y:.1}H{:.1}\"/>",
            self.end
        )?;
        let mut registered = false;
        for entry in &self.entries {
            let at = self.at(entry.at);
            match &entry.happening {
                Happening::Event {
                    event,
                    took,
                    outcome,
                } => {
                    self.event(
                        svg,
                        *event,
                        self.at(entry.at.saturating_sub(*took)),
                        at,
                        outcome,
                    )?;
                }
                Happening::LateAnswer {
                    outcome: LateOutcome::Answered { .. },
                    ..
                } => self.dot(svg, "good", at, 5.0)?,
                Happening::Doubtful(seen) if matches!(seen.state(), State::Suspect) => {
                    self.label(svg, "late", at, y - 10.0, "suspect")?;
                }
                Happening::Spared(_) => {
                    self.label(svg, "late", at, y - 10.0, "given longer")?;
                }
                gone if is_gone(gone) => {
                    writeln!(
                        svg,
                        "<path class=\"end\" d=\"M{at:.1} {:.1}v24\"/>",
                        y - 12.0
                    )?;
                    let what = match self.timeline.rules {
                        Rules::Today => "disconnected",
                        _ => "DEAD, evicted",
                    };
                    self.label(svg, "bad", at + 4.0, y - 10.0, what)?;
                }
                Happening::Registered { .. } => {
                    if std::mem::replace(&mut registered, true) {
                        self.label(svg, "good", at + 2.0, y - 10.0, "registered anew")?;
                    }
                    self.dot(svg, "good", at, 2.5)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn event(
        &self,
        svg: &mut String,
        event: u32,
        begun: f64,
        at: f64,
        outcome: &Outcome,
    ) -> Result<()> {
        let y = self.y;
        match outcome {
            Outcome::Applied => self.dot(svg, "good", begun, 4.0)?,
            Outcome::Skipped => {
                writeln!(
                    svg,
                    "<circle class=\"skip\" cx=\"{begun:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>"
                )?;
            }
            Outcome::Absent => {
                let (x, y) = (begun - 3.0, y - 3.0);
                writeln!(
                    svg,
                    "<path class=\"absent\" d=\"M{x:.1} {y:.1}l6 6m0 -6l-6 6\"/>"
                )?;
            }
            Outcome::Late(error) => {
                let lives = error.peer() == Peer::Alive && self.timeline.rules != Rules::Today;
                let class = if lives { "late" } else { "bad" };
                let wait = if lives { "wait" } else { "doubt" };
                let until = self.answer_of(event).unwrap_or(at);
                writeln!(
                    svg,
                    "<path class=\"{wait}\" d=\"M{at:.1} {y:.1}H{until:.1}\"/>"
                )?;
                let width = at - begun;
                writeln!(
                    svg,
                    "<rect class=\"{class}\" x=\"{begun:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"9\" rx=\"3\"/>",
                    y - 4.5
                )?;
                let told = match self.timeline.rules {
                    Rules::Today => "deadline exceeded".to_owned(),
                    _ => verdict(error),
                };
                self.label(svg, class, begun, y + 18.0, &told)?;
            }
            Outcome::Failed(_) => self.dot(svg, "bad", begun, 4.0)?,
        }
        Ok(())
    }

    /// Until when nothing came of a late event: its answer, or the end.
    fn answer_of(&self, late: u32) -> Option<f64> {
        let ends = |what: &Happening| match what {
            Happening::LateAnswer { event, .. } => *event == late,
            other => is_gone(other),
        };
        self.first(ends)
    }

    fn first(&self, such: impl Fn(&Happening) -> bool) -> Option<f64> {
        let entry = self.entries.iter().find(|entry| such(&entry.happening))?;
        Some(self.at(entry.at))
    }

    fn at(&self, at: Duration) -> f64 {
        x(self.timeline.seconds(at))
    }

    fn dot(&self, svg: &mut String, class: &str, x: f64, radius: f64) -> Result<()> {
        let y = self.y;
        Ok(writeln!(
            svg,
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"/>"
        )?)
    }

    #[expect(clippy::unused_self, reason = "it is drawn as a dot is")]
    fn label(&self, svg: &mut String, class: &str, x: f64, y: f64, text: &str) -> Result<()> {
        Ok(writeln!(
            svg,
            "<text class=\"small {class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>"
        )?)
    }
}

fn legend(svg: &mut String, y: f64) -> Result<()> {
    let middle = y - 4.0;
    writeln!(
        svg,
        "<circle class=\"good\" cx=\"{LEFT}\" cy=\"{middle}\" r=\"4\"/><text class=\"small\" x=\"{}\" y=\"{y}\">answered</text>\n\
         <rect class=\"late\" x=\"{}\" y=\"{}\" width=\"30\" height=\"9\" rx=\"3\"/><text class=\"small\" x=\"{}\" y=\"{y}\">late, and what is said of the plugin</text>\n\
         <circle class=\"skip\" cx=\"{}\" cy=\"{middle}\" r=\"3.5\"/><text class=\"small\" x=\"{}\" y=\"{y}\">skipped, which costs the node nothing</text>\n\
         <path class=\"absent\" d=\"M{} {}l6 6m0 -6l-6 6\"/><text class=\"small\" x=\"{}\" y=\"{y}\">not there</text>",
        LEFT + 10.0,
        LEFT + 90.0,
        middle - 4.5,
        LEFT + 126.0,
        LEFT + 340.0,
        LEFT + 350.0,
        LEFT + 578.0,
        middle - 3.0,
        LEFT + 592.0,
    )?;
    Ok(())
}
