//! Calls and streams without end, most of them ill-treated: dropped, late, half read, cut off by a
//! new connection. Says whether anything grows. Or connections without any, that are watched: says what
//! either side pays for them, and whether one was convicted. Or very many calls at once: says what
//! others pay for them.
//!
//! ```text
//! cargo run --release --example soak -- --calls 1000000 --streams 100000
//! cargo run --release --example soak -- --idle 10000
//! cargo run --release --example soak -- --peaks
//! ```
//!
//! Exits with 1 if memory, file descriptors or a table grow, if a call or a connection ends as it should
//! not, or if nothing moves any more.

#![allow(
    clippy::print_stdout,
    reason = "a program says what it does on its standard output"
)]

mod costs;
mod gauges;
mod idle;
mod lanes;
mod peaks;
mod plan;
mod service;
mod soak;
mod work;

use std::process::ExitCode;

use plan::Plan;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.first().map(String::as_str) {
        Some(idle::SERVE) => idle::serve(&arguments[1..].concat()),
        Some(peaks::PEAKS) => peaks::run(),
        Some(idle::HOLD) => idle::run(&arguments),
        _ => Plan::from_arguments(arguments.into_iter())
            .map_err(str::to_owned)
            .and_then(|plan| soak::run(&plan)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            println!("FAILED: {reason}");
            ExitCode::FAILURE
        }
    }
}
