//! What is written, as a whole: a change of it is a change for everybody who has checked it in.
//!
//! `GOLDEN=write cargo test -p ttrpc-keepalive-codegen --test golden` takes what is written now.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use ttrpc_keepalive_codegen::Codegen;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(name)
}

fn codegen(files: &[&str]) -> Codegen {
    let files = files.iter().map(|file| folder("proto").join(file));
    Codegen::new().include(folder("proto")).inputs(files)
}

fn written(codegen: &Codegen, name: &str) -> String {
    let output = TempDir::new().unwrap();
    codegen.write(output.path()).unwrap();
    fs::read_to_string(output.path().join(name)).unwrap()
}

fn assert_golden(codegen: &Codegen, name: &str, golden: &str) {
    let written = written(codegen, name);
    let golden = folder("golden").join(golden);
    if std::env::var_os("GOLDEN").is_some() {
        return fs::write(golden, written).unwrap();
    }
    let expected = fs::read_to_string(&golden).unwrap();
    let line = written
        .lines()
        .zip(expected.lines())
        .position(|(a, b)| a != b);
    let line = line.map(|line| line + 1);
    assert!(
        written == expected,
        "{} differs, first in line {line:?}",
        golden.display()
    );
}

#[test]
fn a_service_with_all_kinds_of_methods_is_written_as_it_was() {
    let greeter = codegen(&["greeter.proto"]);
    assert_golden(&greeter, "greeter_ttrpc.rs", "greeter_ttrpc.rs");
    assert_golden(&greeter, "mod.rs", "mod.rs");
    assert_golden(
        &greeter.object_safe(),
        "greeter_ttrpc.rs",
        "greeter_object_safe_ttrpc.rs",
    );
}

#[test]
fn odd_names_are_written_as_they_were() {
    let odd = codegen(&["demo/v1/echo.proto", "plain.proto"]);
    assert_golden(&odd, "echo_ttrpc.rs", "echo_ttrpc.rs");
    assert_golden(&odd, "plain_ttrpc.rs", "plain_ttrpc.rs");
    let elsewhere = odd.messages_in("other_crate::messages");
    assert_golden(&elsewhere, "plain_ttrpc.rs", "plain_elsewhere_ttrpc.rs");
}

#[test]
fn comments_of_messages_are_written_by_rust_protobuf() {
    let text = written(&codegen(&["demo/v1/echo.proto"]), "echo.rs");
    for docs in [
        "/// What is said, in parts:\n/// 1. as a whole,\n///    or \\[another\\] Vec\\<way\\>.\n",
        "    /// All of it:\n    ///\n    /// let indented = ",
        "    /// A piece of it.\n",
        "        /// The piece.\n",
        "    /// How it is said.\n",
        "    /// By name.\n",
    ] {
        assert!(text.contains(docs), "{docs}");
    }
}

/// Maps and sets are in another order in each process, and files of a folder on each machine.
#[test]
fn the_same_input_gives_the_same_bytes_in_each_process_and_from_each_folder() {
    let files = ["greeter.proto", "demo/v1/echo.proto", "plain.proto"];
    let mut seen: Vec<Vec<(PathBuf, Vec<u8>)>> = Vec::new();
    for run in 0..6 {
        let output = TempDir::new().unwrap();
        let copy = TempDir::new().unwrap();
        let source = if run % 2 == 0 {
            folder("proto")
        } else {
            copy.path().to_owned()
        };
        for file in [
            "greeter.proto",
            "demo/v1/echo.proto",
            "plain.proto",
            "other/my-types.proto",
        ] {
            let file_copy = copy.path().join(file);
            fs::create_dir_all(file_copy.parent().unwrap()).unwrap();
            fs::copy(folder("proto").join(file), file_copy).unwrap();
        }
        let status = Command::new(env!("CARGO_BIN_EXE_ttrpc-keepalive-codegen"))
            .arg("--out")
            .arg(output.path())
            .arg("-I")
            .arg(&source)
            .args(files.iter().map(|file| source.join(file)))
            .status();
        assert!(status.unwrap().success());
        let mut found: Vec<_> = fs::read_dir(output.path())
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| {
                (
                    PathBuf::from(entry.file_name()),
                    fs::read(entry.path()).unwrap(),
                )
            })
            .collect();
        found.sort();
        assert_eq!(found.len(), 8);
        seen.push(found);
    }
    assert!(seen.iter().all(|found| *found == seen[0]));
}
