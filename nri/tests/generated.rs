//! The generated files are those that the protocol gives.
//!
//! `GENERATED=write cargo test -p ttrpc-keepalive-nri --test generated` writes them anew.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use ttrpc_keepalive_codegen::Codegen;

#[test]
fn what_is_checked_in_is_what_the_protocol_gives() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let checked_in = package.join("src/generated");
    let codegen = Codegen::new().input(package.join("proto/api.proto"));
    if std::env::var_os("GENERATED").is_some() {
        codegen.write(checked_in).unwrap();
        return;
    }
    let output = TempDir::new().unwrap();
    codegen.write(output.path()).unwrap();
    for name in ["api.rs", "api_ttrpc.rs", "mod.rs"] {
        let written = fs::read_to_string(output.path().join(name)).unwrap();
        let expected = fs::read_to_string(checked_in.join(name)).unwrap();
        let mut lines = written.lines().zip(expected.lines());
        let line = lines.position(|(written, expected)| written != expected);
        let line = line.map(|line| line + 1);
        assert!(
            written == expected,
            "{name} differs, first in line {line:?}"
        );
    }
}
