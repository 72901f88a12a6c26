//! Instructions of one process, counted by callgrind.

use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::child::{Order, Placement};
use crate::goals::Work;
use crate::idle::as_float;
use crate::instructions::{Cell, Side};
use crate::pair::Pair;
use crate::{Result, entry};

/// Fails if valgrind is missing.
pub(crate) fn find() -> Result<()> {
    let mut version = Command::new("valgrind");
    match version.arg("--version").stdout(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(
            "valgrind is missing, which counts instructions; Debian's package is `valgrind`".into(),
        ),
        other => Err(format!("valgrind does not work: {other:?}").into()),
    }
}

impl Cell {
    /// The least of three counts, since waking by a timer adds to some; of fewer if one is `enough`.
    pub(crate) fn least(&self, name: &str, enough: f64, folder: &Path) -> Result<f64> {
        let mut least = f64::INFINITY;
        for _ in 0..3 {
            least = least.min(self.count(name, folder)?);
            if least <= enough {
                break;
            }
        }
        Ok(least)
    }

    /// Instructions for each call or message of the contender `name`. That is the difference between
    /// many of them and few, so starting, connecting and ending are not in it.
    fn count(&self, name: &str, folder: &Path) -> Result<f64> {
        let [few, many] = match self.work {
            Work::Calls => [2_000, 12_000],
            // Whole streams.
            Work::Streams => [5_000, 25_000],
        };
        let instructions = self.total(many, name, folder)? - self.total(few, name, folder)?;
        Ok(as_float(instructions) / f64::from(many - few))
    }

    /// Those of one side's whole life. The other side runs natively, on the same core.
    fn total(&self, count: u16, name: &str, folder: &Path) -> Result<i64> {
        let file = folder.join("callgrind.out");
        let program = std::env::current_exe()?;
        let plain = Command::new(&program);
        let mut counted = Command::new("valgrind");
        counted
            .args(["--quiet", "--tool=callgrind"])
            .arg(format!("--callgrind-out-file={}", file.display()))
            .arg(&program);
        let commands = match self.side {
            Side::Client => [counted, plain],
            Side::Server => [plain, counted],
        };
        let mut pair = Pair::start_by(
            commands,
            entry(name)?,
            self.bytes,
            Placement::OneCore,
            folder,
        )?;
        pair.order(&match self.work {
            Work::Calls => Order::Exactly {
                calls: count.into(),
                in_flight: self.in_flight,
            },
            Work::Streams => Order::Messages {
                messages: count.into(),
            },
        })?;
        pair.end()?;
        let profile = std::fs::read_to_string(&file)?;
        let total = profile
            .lines()
            .find_map(|line| line.strip_prefix("totals: "));
        Ok(total.ok_or("callgrind has told no total")?.parse()?)
    }
}
