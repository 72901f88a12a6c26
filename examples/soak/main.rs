//! Calls and streams without end, most of them ill-treated: dropped, late, half read, cut off by a
//! new connection. Says whether anything grows.
//!
//! ```text
//! cargo run --release --example soak -- --calls 1000000 --streams 100000
//! ```
//!
//! Exits with 1 if memory, file descriptors or a table grow, if a call ends as it should not, or if
//! nothing moves any more.

#![allow(
    clippy::print_stdout,
    reason = "a program says what it does on its standard output"
)]

mod gauges;
mod lanes;
mod plan;
mod service;
mod soak;
mod work;

use std::process::ExitCode;

use plan::Plan;

fn main() -> ExitCode {
    let plan = match Plan::from_arguments(std::env::args().skip(1)) {
        Ok(plan) => plan,
        Err(usage) => {
            eprintln!("{usage}");
            return ExitCode::FAILURE;
        }
    };
    match soak::run(&plan) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            println!("FAILED: {reason}");
            ExitCode::FAILURE
        }
    }
}
