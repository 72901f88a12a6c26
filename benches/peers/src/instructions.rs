//! `peers instructions`: how many instructions of the processor a call takes on each side. They
//! repeat where time does not, so a regression cannot hide in them.

use std::array::from_fn;
use std::fmt;
use std::path::Path;

use crate::callgrind;
use crate::goals::Work;
use crate::{BARE, EVERY, INLINE, OFF, OURS, Result, TTRPC_RUST, pair};
use Side::{Client, Server};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// What is counted of a contender: for each call, or for each message of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) side: Side,
    pub(crate) work: Work,
    pub(crate) bytes: usize,
    pub(crate) in_flight: usize,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.side {
            Client => "client",
            Server => "server",
        };
        match self.work {
            Work::Calls => write!(f, "{side}, {} in flight, {} B", self.in_flight, self.bytes),
            Work::Streams => write!(f, "{side}, stream of {} B", self.bytes),
        }
    }
}

const fn calls(side: Side, in_flight: usize) -> [Cell; 2] {
    let empty = Cell {
        side,
        work: Work::Calls,
        bytes: 0,
        in_flight,
    };
    let bytes = 1 << 10;
    [empty, Cell { bytes, ..empty }]
}

const fn stream(side: Side) -> Cell {
    Cell {
        side,
        work: Work::Streams,
        bytes: 100,
        in_flight: 1,
    }
}

/// A value for each cell, two cells in each column.
type Row<T> = [[T; 2]; 5];

pub(crate) const CELLS: Row<Cell> = [
    calls(Client, 1),
    calls(Server, 1),
    calls(Client, 16),
    calls(Server, 16),
    [stream(Client), stream(Server)],
];

const HEADINGS: Row<&str> = [
    ["client, 1 in flight", "0 B / 1 KiB"],
    ["server, 1 in flight", "0 B / 1 KiB"],
    ["client, 16", "0 B / 1 KiB"],
    ["server, 16", "0 B / 1 KiB"],
    ["stream of 100 B", "client / server"],
];

const NO_GOAL: f64 = f64::INFINITY;

#[rustfmt::skip]
const GOALS: &[(&str, Row<f64>)] = &[
    (BARE, [[NO_GOAL; 2]; 5]),
    (TTRPC_RUST, [[NO_GOAL; 2]; 5]),
    (OURS, [[8500.0, 10000.0], [9500.0, 10500.0], [3600.0, 5000.0], [5000.0, 6000.0], [NO_GOAL; 2]]),
    (INLINE, [[8500.0, 10000.0], [7500.0, 8500.0], [3600.0, 5000.0], [3000.0, 4000.0], [NO_GOAL; 2]]),
];

/// To be watched is to cost next to nothing.
const KEEPALIVE: Row<f64> = [[1.015; 2]; 5];

/// Returns whether every goal was met.
pub(crate) fn run() -> Result<bool> {
    callgrind::find()?;
    let folder = pair::folder()?;
    println!("Instructions for each call or message; those with a * are more than their goal\n");
    for line in 0..2 {
        print_row("", HEADINGS.map(|heading| heading[line].to_owned()));
    }
    let mut missed = 0;
    for (name, goals) in GOALS {
        let row = measure(name, f64::INFINITY, folder.path())?;
        missed += judge(name, &row, goals, 0);
    }
    // The goal is near to what counts differ by.
    let every = measure(EVERY, 0.0, folder.path())?;
    let off = measure(OFF, 0.0, folder.path())?;
    let ratios = from_fn(|column| from_fn(|cell| every[column][cell] / off[column][cell]));
    missed += judge("keepalive every 10 s, to off", &ratios, &KEEPALIVE, 3);
    println!("\n{missed} of the goals missed");
    Ok(missed == 0)
}

fn measure(name: &str, enough: f64, folder: &Path) -> Result<Row<f64>> {
    let mut row = [[0.0; 2]; 5];
    for (count, cell) in row.as_flattened_mut().iter_mut().zip(CELLS.as_flattened()) {
        eprint!("\r{name}: {cell}                    \r");
        *count = cell.least(name, enough, folder)?;
    }
    Ok(row)
}

/// Prints, with the goals beneath if there are any. Returns how many of them are missed.
fn judge(title: &str, row: &Row<f64>, goals: &Row<f64>, digits: usize) -> usize {
    let is_missed = |column: usize, cell: usize| row[column][cell] > goals[column][cell];
    print_row(
        title,
        from_fn(|column| {
            let [first, second] = from_fn(|cell| {
                let mark = if is_missed(column, cell) { "*" } else { "" };
                format!("{:.digits$}{mark}", row[column][cell])
            });
            format!("{first} / {second}")
        }),
    );
    if goals.as_flattened().iter().any(|goal| goal.is_finite()) {
        let goals = goals.map(|[first, second]| format!("{first:.digits$} / {second:.digits$}"));
        print_row(
            "  goal, at most",
            goals.map(|goal| goal.replace("inf / inf", "-")),
        );
    }
    let cells = (0..5).flat_map(|column| [(column, 0), (column, 1)]);
    cells
        .filter(|&(column, cell)| is_missed(column, cell))
        .count()
}

fn print_row(title: &str, columns: [String; 5]) {
    print!("{title:<28}");
    for column in columns {
        print!(" {column:>19}");
    }
    println!();
}
