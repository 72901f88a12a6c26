//! `ttrpc-keepalive-codegen`: writes clients and services into a folder, for code that is checked in.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;

use ttrpc_keepalive_codegen::Codegen;

const HELP: &str = "\
Writes typed clients and services of ttrpc-keepalive from .proto files, without protoc.

Usage: ttrpc-keepalive-codegen --out DIR [OPTIONS] FILE.proto...

  -o, --out DIR            the folder to write into; it is made if it is not there
  -I, --include DIR        a folder in which imports are looked for; may be given several times.
                           A file that is in none of them finds those beside it
      --object-safe        traits for `dyn`, by crate async-trait
      --messages-in PATH   services only, for messages in a module of this path, as crate::messages
      --prost-messages-in PATH
                           the same for messages of prost, in a module of the crate
  -h, --help               this text
  -V, --version            the version

For each file, and each that it imports, NAME.rs has the messages and NAME_ttrpc.rs the services;
mod.rs has all of them as modules. Mistakes are told as FILE:LINE:COLUMN: REASON, with exit code 1.
";

fn main() -> ExitCode {
    match command(std::env::args_os().skip(1)) {
        Ok(Command::Print(text)) => {
            // A reader that has gone wants nothing more.
            let _ = io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Ok(Command::Write(codegen, folder)) => match codegen.write(folder) {
            Ok(_) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        },
        Err(misuse) => {
            eprintln!("{misuse}; see --help");
            ExitCode::from(2)
        }
    }
}

enum Command {
    Print(String),
    Write(Codegen, OsString),
}

fn command(arguments: impl Iterator<Item = OsString>) -> Result<Command, String> {
    let mut arguments = arguments;
    let mut codegen = Codegen::new();
    let mut folder = None;
    let mut has_files = false;
    let mut only_files = false;
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy().into_owned();
        let (option, joined) = match text.split_once('=') {
            Some((option, value)) if text.starts_with("--") => {
                (option, Some(OsString::from(value)))
            }
            _ => (text.as_str(), None),
        };
        let mut value = || {
            let value = joined.clone().or_else(|| arguments.next());
            value.ok_or_else(|| format!("{option} needs a value"))
        };
        match option {
            _ if only_files || !option.starts_with('-') => {
                codegen = codegen.input(&argument);
                has_files = true;
            }
            "--" => only_files = true,
            "-h" | "--help" => return Ok(Command::Print(HELP.to_owned())),
            "-V" | "--version" => {
                let version = concat!("ttrpc-keepalive-codegen ", env!("CARGO_PKG_VERSION"), "\n");
                return Ok(Command::Print(version.to_owned()));
            }
            "-o" | "--out" => folder = Some(value()?),
            "-I" | "--include" => codegen = codegen.include(value()?),
            "--object-safe" => codegen = codegen.object_safe(),
            "--messages-in" => codegen = codegen.messages_in(&value()?.to_string_lossy()),
            "--prost-messages-in" => {
                codegen = codegen.prost_messages_in(&value()?.to_string_lossy());
            }
            other => return Err(format!("unknown option {other}")),
        }
    }
    let folder = folder.ok_or("--out is missing")?;
    if !has_files {
        return Err("no .proto file is named".to_owned());
    }
    Ok(Command::Write(codegen, folder))
}
