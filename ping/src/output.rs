//! Lines for who reads on.

use std::fmt::Display;
use std::io::{IsTerminal, Write, stdout};

/// As a shell reports a program that wrote to a pipe of which nobody reads the end, as behind `head`.
const NOBODY_READS: i32 = 128 + 13;

pub(crate) fn line(text: impl Display) {
    if writeln!(stdout(), "{text}").is_err() {
        std::process::exit(NOBODY_READS);
    }
}

/// Text that goes over what was there.
pub(crate) fn over(text: &str) {
    let mut out = stdout();
    // It is a terminal.
    let _ = write!(out, "\r{text}\x1b[K").and_then(|()| out.flush());
}

/// Whether colours are wanted: on a terminal that has them, unless the user says no.
pub(crate) fn is_coloured() -> bool {
    let says_no = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let has_none = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
    stdout().is_terminal() && !says_no && !has_none
}
