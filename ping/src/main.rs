//! Asks ttrpc peers whether they are alive, as ping asks hosts.
//!
//! It sends PINGs and no request, so it needs no service and does nothing on the other side. A peer
//! that knows PING answers. Of one that does not, Linux tells on a unix socket whether its process has
//! read the PING, which says that it runs.

mod address;
mod arguments;
mod connection;
mod frame;
mod one;
mod outcome;
mod output;
mod process;
mod scan;
mod summary;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::arguments::{Arguments, Command};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and the version are no misuse.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { USAGE } else { 0 });
        }
    };
    let health = match (&arguments.command, &arguments.address) {
        (Some(Command::Scan { place }), _) => scan::run(place, &arguments.asking).await,
        (Some(Command::Completions { shell }), _) => {
            let mut command = Arguments::command();
            clap_complete::generate(*shell, &mut command, "ttrpc-ping", &mut std::io::stdout());
            return ExitCode::SUCCESS;
        }
        (None, Some(address)) => one::run(address, &arguments.asking).await,
        // Clap asks for one of them.
        (None, None) => return ExitCode::from(USAGE),
    };
    match health {
        Ok(health) => ExitCode::from(health.exit_status()),
        Err(misuse) => {
            eprintln!("ttrpc-ping: {misuse}");
            ExitCode::from(USAGE)
        }
    }
}

/// The exit status of a call that makes no sense.
const USAGE: u8 = 3;
