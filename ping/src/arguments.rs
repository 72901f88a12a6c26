//! What can be said on the command line.

use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

/// Asks a ttrpc peer whether it is alive, slow or dead.
#[derive(Debug, Parser)]
#[command(
    version,
    subcommand_negates_reqs = true,
    arg_required_else_help = true,
    after_help = EXAMPLES
)]
pub(crate) struct Arguments {
    /// A path, @name, unix:///path, unix://@name, tcp://host:port, or with that feature vsock://CID:PORT
    #[arg(required = true)]
    pub(crate) address: Option<String>,

    #[command(flatten)]
    pub(crate) asking: Asking,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// How to ask.
#[derive(Args, Clone, Debug)]
pub(crate) struct Asking {
    /// Stop after so many PINGs
    #[arg(short = 'c', long, global = true, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,

    /// Seconds from one PING to the next
    #[arg(short, long, default_value = "1", value_parser = seconds, global = true)]
    pub(crate) interval: Duration,

    /// Seconds to wait for a connection, and for each answer
    #[arg(short = 'W', long, default_value = "2", value_parser = seconds, global = true)]
    pub(crate) wait: Duration,

    /// One JSON object a line
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Ask all sockets of a folder, or those whose abstract names begin so, side by side
    Scan {
        /// A folder, as /run/containerd/s, or @ and the beginning of abstract names
        place: String,
    },
    /// Print what a shell needs to complete the arguments
    Completions {
        /// bash, zsh, fish, ...
        shell: Shell,
    },
}

const EXAMPLES: &str = "\
Examples:
  ttrpc-ping scan /run/containerd/s             each shim of this host, the sick ones first
  ttrpc-ping /run/containerd/s/6a3f             one of them, each second until interrupted
  ttrpc-ping -c 3 -i 0.2 @/containerd-shim/abc.sock
  ttrpc-ping --json -c 1 tcp://127.0.0.1:7000   for a script
  ttrpc-ping completions bash >/etc/bash_completion.d/ttrpc-ping

Exit status:
  0  the peer is alive: at the last PING it answered, or its process read
  1  doubtful: it did neither within the time to wait, or it says that its handlers are stuck,
     or it could not be asked
  2  gone: nobody listens, or its process has ended
  3  the arguments make no sense";

/// The shortest distance, that of the protocol: more would be a flood.
const SHORTEST: Duration = Duration::from_millis(10);

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "expected seconds, as 0.5".to_owned())?;
    let duration = Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?;
    if duration < SHORTEST {
        return Err("at least 0.01 seconds".to_owned());
    }
    Ok(duration)
}
