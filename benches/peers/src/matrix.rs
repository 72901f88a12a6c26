//! The run: every cell of the matrix, all contenders in turn, medians of ratios.

use std::path::Path;
use std::time::Duration;

use crate::child::{Order, Placement};
use crate::pair::{self, Pair, Sample, median};
use crate::{CONTENDERS, Result, entry};

const PAYLOADS: [(&str, usize); 4] = [
    ("0B", 0),
    ("1KiB", 1 << 10),
    ("64KiB", 1 << 16),
    ("1MiB", 1 << 20),
];
const IN_FLIGHT: [usize; 3] = [1, 16, 256];
const ROUNDS: usize = 5;

pub(crate) struct Plan {
    pub(crate) placement: Placement,
    pub(crate) warm_up: Duration,
    pub(crate) slice: Duration,
    pub(crate) only: Vec<String>,
}

pub(crate) fn run(plan: &Plan) -> Result<()> {
    let folder = pair::folder()?;
    let cells = cells(&plan.only)?;
    print_heading(plan);
    for cell in cells {
        let columns = cell
            .measure(plan, folder.path())
            .map_err(|error| format!("{}, {} in flight: {error}", cell.payload, cell.in_flight))?;
        cell.print_row(&columns);
    }
    Ok(())
}

fn cells(only: &[String]) -> Result<Vec<Cell>> {
    let all = PAYLOADS.iter().flat_map(|&(payload, bytes)| {
        IN_FLIGHT.map(|in_flight| Cell {
            payload,
            bytes,
            in_flight,
        })
    });
    let cells: Vec<Cell> = all
        .filter(|cell| only.is_empty() || only.iter().any(|filter| cell.matches(filter)))
        .collect();
    if cells.is_empty() {
        return Err("--only leaves no cell of 0B, 1KiB, 64KiB, 1MiB at 1, 16, 256".into());
    }
    Ok(cells)
}

struct Cell {
    payload: &'static str,
    bytes: usize,
    in_flight: usize,
}

impl Cell {
    fn matches(&self, filter: &str) -> bool {
        let in_flight = self.in_flight.to_string();
        filter
            .split(',')
            .all(|part| part == self.payload || part == in_flight)
    }

    /// The samples of each contender, round by round. The contenders take turns, so that whatever
    /// else the machine does meets all of them alike.
    fn measure(&self, plan: &Plan, folder: &Path) -> Result<Vec<Vec<Sample>>> {
        let mut pairs = Vec::new();
        for name in CONTENDERS {
            let mut pair = Pair::start(entry(name)?, self.bytes, plan.placement, folder)?;
            pair.measure(&self.order(plan.warm_up))?;
            pairs.push(pair);
        }
        let mut columns: Vec<Vec<Sample>> = pairs.iter().map(|_| Vec::new()).collect();
        for _ in 0..ROUNDS {
            for (pair, column) in pairs.iter_mut().zip(&mut columns) {
                column.push(pair.measure(&self.order(plan.slice))?);
            }
        }
        Ok(columns)
    }

    fn order(&self, slice: Duration) -> Order {
        let in_flight = self.in_flight;
        Order::Calls { slice, in_flight }
    }

    fn print_row(&self, columns: &[Vec<Sample>]) {
        let base = &columns[0];
        let absolute = |of: fn(&Sample) -> f64| median(base.iter().map(of));
        print!(
            "{:>7} {:>9} | {:>8.0} {:>8.1} {}",
            self.payload,
            self.in_flight,
            absolute(|sample| sample.rate),
            absolute(|sample| sample.cpu * 1e6),
            self.if_one(absolute(|sample| sample.latency * 1e6), 8, 1)
        );
        for column in &columns[1..] {
            let ratios =
                |of: fn(&Sample) -> f64| column.iter().zip(base).map(move |(a, b)| of(a) / of(b));
            let rates = || ratios(|sample| sample.rate);
            print!(
                " | {:>7.2} {:>6.2}-{:<6.2} {:>6.2} {}",
                median(rates()),
                rates().fold(f64::INFINITY, f64::min),
                rates().fold(0.0, f64::max),
                median(ratios(|sample| sample.cpu)),
                self.if_one(median(ratios(|sample| sample.latency)), 6, 2)
            );
        }
        println!();
    }

    /// Latency says nothing new with many calls in flight, so it is measured with one only.
    fn if_one(&self, value: f64, width: usize, digits: usize) -> String {
        if self.in_flight == 1 {
            format!("{value:>width$.digits$}")
        } else {
            format!("{:>width$}", "")
        }
    }
}

fn print_heading(plan: &Plan) {
    println!(
        "{}; medians of {ROUNDS} rounds of {} ms; ratios to {}",
        plan.placement.name(),
        plan.slice.as_millis(),
        CONTENDERS[0]
    );
    print!("\n{:>17} | {:<26}", "", CONTENDERS[0]);
    for name in &CONTENDERS[1..] {
        print!(" | {name:<35}");
    }
    print!(
        "\n{:>7} {:>9} | {:>8} {:>8} {:>8}",
        "payload", "in flight", "calls/s", "CPU us", "p50 us"
    );
    for _ in &CONTENDERS[1..] {
        print!(
            " | {:>7} {:>13} {:>6} {:>6}",
            "calls/s", "(least-most)", "CPU", "p50"
        );
    }
    println!();
}
