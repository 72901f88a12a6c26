//! `peers instructions --check` and `--write`: what this crate's instructions are held to.

use crate::instructions::{CELLS, Cell};
use crate::{EVERY, INLINE, OURS, Result, callgrind, pair};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/instructions.txt");

/// Another compiler makes other code, so the counts are those of one.
const COMPILER: &str = env!("COMPILER");

const HELD: [&str; 3] = [OURS, INLINE, EVERY];

/// How many more than those of the baseline are a regression, and how many fewer are told.
const SLACK: f64 = 0.02;

fn cells() -> impl Iterator<Item = (&'static str, Cell)> {
    HELD.into_iter()
        .flat_map(|name| CELLS.into_iter().flatten().map(move |cell| (name, cell)))
}

/// Returns whether no cell takes more instructions than the baseline allows.
pub(crate) fn check() -> Result<bool> {
    callgrind::find()?;
    let folder = pair::folder()?;
    let baseline = std::fs::read_to_string(FILE)?;
    if !baseline.contains(COMPILER) {
        println!(
            "The baseline is of another compiler than {COMPILER}, which alone can change counts.\n"
        );
    }
    let mut regressed = 0;
    for (name, cell) in cells() {
        let title = title(name, &cell);
        let line = baseline.lines().find_map(|line| line.strip_prefix(&title));
        let line = line.ok_or_else(|| format!("{FILE} lacks this line: {title}"))?;
        let before: f64 = line.trim().parse()?;
        let now = cell.least(name, before * (1.0 + SLACK), folder.path())?;
        let change = now / before - 1.0;
        let verdict = if change > SLACK {
            regressed += 1;
            "REGRESSED"
        } else if change < -SLACK {
            "improved: renew the baseline with --write"
        } else {
            ""
        };
        println!(
            "{title}{before:>7.0} {now:>7.0} {:>+6.1} %  {verdict}",
            change * 100.0
        );
    }
    println!("\n{regressed} of the counts regressed");
    Ok(regressed == 0)
}

/// Renews the baseline.
pub(crate) fn write() -> Result<()> {
    callgrind::find()?;
    let folder = pair::folder()?;
    let mut baseline = format!(
        "# Instructions for each call or message. Written, and not to be edited, by\n\
         # cargo bench --bench peers -- --instructions --write\n\
         # with {COMPILER}.\n"
    );
    for (name, cell) in cells() {
        let count = cell.least(name, 0.0, folder.path())?;
        baseline.push_str(&format!("{}{count:>7.0}\n", title(name, &cell)));
    }
    std::fs::write(FILE, baseline)?;
    Ok(())
}

fn title(name: &str, cell: &Cell) -> String {
    format!("{:<60}", format!("{name}: {cell}:"))
}
