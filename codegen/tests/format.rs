//! What is written is what rustfmt would leave.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use ttrpc_keepalive_codegen::Codegen;

/// What rustfmt would change in a file, if anything.
fn changes(file: &Path, edition: &str) -> String {
    let rustfmt = Command::new("rustfmt")
        .args(["--check", "--color", "never", "--config-path", "/dev/null"])
        .args(["--edition", edition])
        .arg(file)
        .output()
        .expect("rustfmt is part of the toolchain");
    let output = [rustfmt.stdout, rustfmt.stderr].concat();
    String::from_utf8(output).unwrap()
}

fn assert_formatted(proto: &str, codegen: impl Fn(Codegen) -> Codegen) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("sample.proto");
    fs::write(&file, proto).unwrap();
    codegen(Codegen::new())
        .input(&file)
        .write(folder.path())
        .unwrap();
    let written = folder.path().join("sample_ttrpc.rs");
    let changes = changes(&written, "2024");
    assert!(changes.is_empty(), "{changes}");
}

/// Services whose names, methods and messages grow by a letter each, so that each line of each kind
/// of method passes its limits.
fn growing(lengths: std::ops::Range<usize>, rpcs: &[&str]) -> String {
    let mut proto = "syntax = 'proto3'; package a;\n".to_owned();
    for length in lengths {
        let name = format!("N{}", "a".repeat(length));
        writeln!(proto, "message M{name} {{}}\nservice {name} {{").unwrap();
        for (at, rpc) in rpcs.iter().enumerate() {
            let rpc = rpc.replace('M', &format!("M{name}"));
            writeln!(proto, "rpc R{at}{} {rpc};", "b".repeat(length)).unwrap();
        }
        proto.push_str("}\n");
    }
    proto
}

const KINDS: [&str; 4] = [
    "(M) returns (M)",
    "(M) returns (stream M)",
    "(stream M) returns (M)",
    "(stream M) returns (stream M)",
];

#[test]
fn lines_of_every_length_are_as_rustfmt_leaves_them() {
    for native in [true, false] {
        let codegen = |codegen: Codegen| {
            if native {
                codegen
            } else {
                codegen.object_safe()
            }
        };
        assert_formatted(&growing(0..45, &KINDS), codegen);
        for kind in KINDS {
            assert_formatted(&growing(0..45, &[kind]), codegen);
        }
    }
}

/// Those that are read as examples, too, whose names are as people choose them.
#[test]
fn no_edition_changes_what_is_checked_in() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for file in fs::read_dir(folder).unwrap() {
        let file = file.unwrap().path();
        // The modules that it names are not there.
        if file.ends_with("mod.rs") {
            continue;
        }
        for edition in ["2018", "2021", "2024"] {
            let changes = changes(&file, edition);
            assert!(changes.is_empty(), "{edition}: {changes}");
        }
    }
}

#[test]
fn imports_of_every_length_are_as_rustfmt_leaves_them() {
    for length in 0..40 {
        let mut proto = "syntax = 'proto3'; package a;\nservice S { \n".to_owned();
        for at in 1..12 {
            let name = format!("M{at}{}x", "a".repeat(length));
            writeln!(proto, "rpc R{at}({name}) returns ({name});").unwrap();
        }
        proto.push_str("}\n");
        for at in 1..12 {
            writeln!(proto, "message M{at}{}x {{}}", "a".repeat(length)).unwrap();
        }
        assert_formatted(&proto, |codegen| codegen);
    }
    for length in 0..100 {
        let name = format!("M{}x", "a".repeat(length / 2));
        let other = format!("N{}x", "a".repeat(length - length / 2));
        let proto = format!(
            "syntax = 'proto3'; service S {{ rpc R({name}) returns ({other}); }} message {name} {{}} message {other} {{}}"
        );
        assert_formatted(&proto, |codegen| codegen);
    }
}
