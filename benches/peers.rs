//! Compares with other implementations, in separate processes: starts the `benches/peers` program,
//! which a plain build leaves alone.
//!
//! ```text
//! cargo bench --bench peers -- --ratios            # in time: 5 minutes, and up to 15 where floors seem missed
//! cargo bench --bench peers -- --ratios --awake    # only with cores that are kept awake: 2 to 6
//! cargo bench --bench peers -- --ratios --only 'two cores,1024,16'    # some of the cells
//! cargo bench --bench peers -- --facade            # the same for what stands in the place of ttrpc: 3 to 10
//! cargo bench --bench peers -- --counts            # what can be counted exactly, less than one
//! cargo bench --bench peers -- --instructions      # beside their goals, by valgrind: 3
//! cargo bench --bench peers -- --instructions --check    # against benches/peers/instructions.txt: 1
//! cargo bench --bench peers -- --instructions --write    # renews that file: 3
//! ```
//!
//! Without one of these it measures nothing, so that `cargo bench` does not take that long.

#![allow(
    clippy::print_stdout,
    reason = "a program says what it does on its standard output"
)]

use std::path::Path;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    // Cargo adds `--bench` by itself.
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let words: Vec<&str> = arguments
        .into_iter()
        .filter(|&word| word != "--bench")
        .collect();
    let (mode, options) = match words[..] {
        ["--ratios", ref options @ ..] => ("ratios", options),
        ["--facade", ref options @ ..] => ("facade", options),
        ["--counts"] => ("counts", &[][..]),
        ["--instructions", ref options @ ..] => ("instructions", options),
        [] => {
            println!(
                "peers: nothing measured; say `cargo bench --bench peers -- --ratios`, `--facade`, \
                 `--counts` or `--instructions`"
            );
            return ExitCode::SUCCESS;
        }
        _ => {
            println!(
                "peers: only `--ratios`, `--facade`, `--counts` or `--instructions`, not {words:?}"
            );
            return ExitCode::FAILURE;
        }
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    if !root.join("benches/peers/Cargo.toml").exists() {
        println!("peers: benches/peers is not here; it is in the repository, not in the package");
        return ExitCode::FAILURE;
    }
    let features: &[&str] = match mode {
        "facade" => &["--features", "facade"],
        _ => &[],
    };
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(root)
        .args(["run", "--quiet", "--release", "--locked"])
        .args(["--package", "ttrpc-keepalive-peers"])
        .args(features)
        .args(["--", mode])
        .args(options)
        .status();
    match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            println!("peers: cannot start cargo: {error}");
            ExitCode::FAILURE
        }
    }
}
