//! What could grow, read from outside: memory, file descriptors, and whether memory has a slope.

use std::fs;
use std::io;

/// Bytes of memory of this process that are in use.
pub(crate) fn resident() -> io::Result<f64> {
    resident_of("self")
}

/// Bytes of memory of the process with this number that are in use.
pub(crate) fn resident_of(process: &str) -> io::Result<f64> {
    const PAGE: f64 = 4096.0;
    let statm = fs::read_to_string(format!("/proc/{process}/statm"))?;
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    let pages: f64 = pages.ok_or(io::ErrorKind::InvalidData)?;
    Ok(pages * PAGE)
}

/// Open file descriptors of this process.
pub(crate) fn descriptors() -> io::Result<usize> {
    // Without the one that reads the folder.
    Ok(fs::read_dir("/proc/self/fd")?.count() - 1)
}

/// The slope of the straight line through these points that is wrong by the least squares. 0 for
/// fewer than two.
pub(crate) fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.iter().fold(0.0, |count, _| count + 1.0);
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
    let (mut along, mut square) = (0.0, 0.0);
    for (x, y) in points {
        along += (x - mean_x) * (y - mean_y);
        square += (x - mean_x) * (x - mean_x);
    }
    if square == 0.0 { 0.0 } else { along / square }
}

/// Exact for every number that a run can count to.
#[expect(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "there is no other way to a float"
)]
pub(crate) fn as_float(number: u64) -> f64 {
    number as f64
}
