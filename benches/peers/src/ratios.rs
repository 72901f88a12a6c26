//! `peers ratios`: every goal beside what was measured, and whether all are met.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::awake::Spinners;
use crate::child::{Order, Placement};
use crate::goals::{Goal, Measure, SLACK, Work};
use crate::pair::{self, Pair, Sample, median};
use crate::{FACADE, FACADE_THREADS, INLINE, OURS, Result, entry};

const ROUNDS: usize = 5;

/// How often they are measured before a floor is missed. On a machine that is not quiet rounds differ
/// by a factor of two, and a median of five by a fifth.
const MEASURED: usize = 4;

const WARM_UP: Duration = Duration::from_millis(100);
const SLICE: Duration = Duration::from_millis(300);

/// Whether cores sleep that have nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    AsTheHostIs,
    Awake,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::AsTheHostIs => "as the host is",
            Self::Awake => "with each core kept awake",
        }
    }

    /// With many calls in flight, in a stream, and where both sides share a core, none is idle.
    fn concerns(self, cell: &Cell) -> bool {
        self == Self::AsTheHostIs
            || (cell.work == Work::Calls
                && cell.in_flight <= 16
                && cell.placement != Placement::OneCore)
    }
}

pub(crate) struct Plan {
    pub(crate) goals: &'static [Goal],
    /// Judges connections that do nothing.
    pub(crate) idle: fn(&Path) -> Result<usize>,
    pub(crate) modes: &'static [Mode],
    /// Words that a cell's line begins with, separated by commas. Empty for all cells.
    pub(crate) only: Vec<String>,
}

/// Returns whether every floor was met, or missed within the slack.
pub(crate) fn run(plan: &Plan) -> Result<bool> {
    if plan.modes.iter().all(|&mode| plan.cells(mode).is_empty()) {
        return Err("--only leaves no cell".into());
    }
    let folder = pair::folder()?;
    println!(
        "Ratios: medians of {ROUNDS} rounds of {} ms, the contenders in turn, and the least and the \
         most.\nA floor is missed when it is by more than {:.0} %, of {} rounds then.\n",
        SLICE.as_millis(),
        SLACK * 100.0,
        MEASURED * ROUNDS,
    );
    println!(
        "{:<11} {:>6} {:>9}  {:<10} {:<27} {:>6} {:>15}  floor",
        "", "bytes", "in flight", "what", "to", "ratio", "(least-most)"
    );
    let begun = Instant::now();
    let mut missed = 0;
    for &mode in plan.modes {
        let cells = plan.cells(mode);
        println!("{}:", mode.name());
        let _spinners = match mode {
            Mode::AsTheHostIs => None,
            Mode::Awake => Some(Spinners::start()?),
        };
        for (number, cell) in cells.iter().enumerate() {
            eprint!(
                "\r[{:>2}/{} {:>3} s] {cell}          \r",
                number + 1,
                cells.len(),
                begun.elapsed().as_secs()
            );
            missed += cell
                .judge(plan.goals, folder.path())
                .unwrap_or_else(|error| {
                    // A contender that fails is named, and the rest is still measured.
                    println!("{cell}  NOT MEASURED: {error}");
                    1
                });
        }
    }
    if plan.modes.contains(&Mode::AsTheHostIs) && plan.only.is_empty() {
        missed += (plan.idle)(folder.path())?;
    }
    println!(
        "\n{missed} of the floors missed, {} s",
        begun.elapsed().as_secs()
    );
    Ok(missed == 0)
}

/// What is measured together.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Cell {
    placement: Placement,
    work: Work,
    bytes: usize,
    in_flight: usize,
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            bytes, in_flight, ..
        } = self;
        write!(f, "{:<11} {bytes:>6} {in_flight:>9}", self.place())
    }
}

impl Plan {
    fn cells(&self, mode: Mode) -> Vec<Cell> {
        let is_wanted =
            |cell: &Cell| self.only.is_empty() || self.only.iter().any(|only| cell.matches(only));
        let mut cells = cells(self.goals);
        cells.retain(|cell| mode.concerns(cell) && is_wanted(cell));
        cells
    }
}

/// Those of the goals, in their order.
fn cells(goals: &[Goal]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for goal in goals {
        for &in_flight in goal.in_flight {
            for &bytes in goal.bytes {
                let cell = Cell {
                    placement: goal.placement,
                    work: goal.work,
                    bytes,
                    in_flight,
                };
                if !cells.contains(&cell) {
                    cells.push(cell);
                }
            }
        }
    }
    cells
}

/// The samples of one contender, round by round.
type Column = (&'static str, Vec<Sample>);

impl Cell {
    fn place(&self) -> &'static str {
        match self.work {
            Work::Calls => self.placement.name(),
            Work::Streams => "streams",
        }
    }

    fn matches(&self, only: &str) -> bool {
        let (bytes, in_flight) = (self.bytes.to_string(), self.in_flight.to_string());
        only.split(',')
            .all(|word| [self.place(), &bytes, &in_flight].contains(&word))
    }

    fn among(&self, goals: &'static [Goal]) -> Vec<&'static Goal> {
        let cell = *self;
        let goals = goals.iter().filter(move |goal| {
            (goal.placement, goal.work) == (cell.placement, cell.work)
                && goal.bytes.contains(&cell.bytes)
                && goal.in_flight.contains(&cell.in_flight)
        });
        goals.collect()
    }

    /// Measures, and more if a floor seems to be missed, and prints. Returns how many are missed.
    fn judge(&self, goals: &'static [Goal], folder: &Path) -> Result<usize> {
        let goals = self.among(goals);
        let mut columns = contenders(&goals);
        let mut rows = Vec::new();
        for _ in 0..MEASURED {
            self.measure(&mut columns, folder)?;
            rows = self.rows(&goals, &columns);
            if rows.iter().all(|row| !row.missed) {
                break;
            }
        }
        for row in &rows {
            println!("{self}  {}", row.line);
        }
        Ok(rows.iter().filter(|row| row.missed).count())
    }

    /// Adds a round to each column for each of [`ROUNDS`]. The contenders take turns, so that
    /// whatever else the machine does meets all of them alike.
    fn measure(&self, columns: &mut [Column], folder: &Path) -> Result<()> {
        let mut pairs = Vec::new();
        for (name, _) in &*columns {
            let mut pair = Pair::start(entry(name)?, self.bytes, self.placement, folder)?;
            pair.measure(&self.order(WARM_UP))?;
            pairs.push(pair);
        }
        for _ in 0..ROUNDS {
            for (pair, (_, samples)) in pairs.iter_mut().zip(&mut *columns) {
                samples.push(pair.measure(&self.order(SLICE))?);
            }
        }
        Ok(())
    }

    fn order(&self, slice: Duration) -> Order {
        match self.work {
            Work::Calls => Order::Calls {
                slice,
                in_flight: self.in_flight,
            },
            Work::Streams => Order::Streams { slice },
        }
    }

    fn rows(&self, goals: &[&Goal], columns: &[Column]) -> Vec<Row> {
        let mut rows = Vec::new();
        for goal in goals {
            let (of, against) = (samples(columns, goal.of), samples(columns, goal.against));
            for &(measure, bound) in goal.bounds {
                let ratios = || {
                    let pairs = of.iter().zip(against);
                    pairs.map(move |(of, against)| measure.of(of) / measure.of(against))
                };
                let ratio = median(ratios());
                let (least, most) = ratios().fold((f64::INFINITY, 0.0_f64), |(least, most), r| {
                    (least.min(r), most.max(r))
                });
                let to = match goal.of {
                    OURS => goal.against.to_owned(),
                    FACADE | FACADE_THREADS => format!("{}, from facade", goal.against),
                    INLINE => format!("{}, from inline", goal.against),
                    // Watched, to not watched.
                    _ => "keepalive off, from on".to_owned(),
                };
                let verdict = match (bound.is_missed(ratio), bound.is_met(ratio)) {
                    (true, _) => "MISSED",
                    (false, false) => bound.shortfall(),
                    (false, true) => "",
                };
                let rounds = match of.len() {
                    ROUNDS => String::new(),
                    more => format!("({more} rounds)"),
                };
                rows.push(Row {
                    missed: bound.is_missed(ratio),
                    line: format!(
                        "{:<10} {to:<27} {ratio:>6.2} {:>15}  {bound:<13} {verdict} {rounds}",
                        measure.name(self.work),
                        format!("({least:.2}-{most:.2})"),
                    ),
                });
            }
        }
        rows
    }
}

fn contenders(goals: &[&Goal]) -> Vec<Column> {
    let mut columns: Vec<Column> = Vec::new();
    for name in goals.iter().flat_map(|goal| [goal.against, goal.of]) {
        if columns.iter().all(|(known, _)| *known != name) {
            columns.push((name, Vec::new()));
        }
    }
    columns
}

struct Row {
    missed: bool,
    line: String,
}

fn samples<'a>(columns: &'a [Column], name: &str) -> &'a [Sample] {
    let column = columns.iter().find(|(known, _)| *known == name);
    column.map_or(&[], |(_, samples)| samples)
}

impl Measure {
    fn of(self, sample: &Sample) -> f64 {
        match self {
            Self::Rate => sample.rate,
            Self::Cpu => sample.cpu,
            Self::Latency => sample.latency,
        }
    }

    fn name(self, work: Work) -> &'static str {
        match (self, work) {
            (Self::Rate, Work::Calls) => "calls/s",
            (Self::Rate, Work::Streams) => "messages/s",
            (Self::Cpu, _) => "CPU",
            (Self::Latency, _) => "p50",
        }
    }
}
