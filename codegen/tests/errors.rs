//! Mistakes are told with their file and line, and nothing is written.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::fs;
use std::process::Command;

use tempfile::TempDir;
use ttrpc_keepalive_codegen::{Codegen, Error};

/// The files by name and text; the first is generated from.
fn refused(files: &[(&str, &str)]) -> (String, Error) {
    let folder = TempDir::new().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let output = folder.path().join("output");
    let codegen = Codegen::new()
        .include(folder.path())
        .input(folder.path().join(files[0].0));
    let error = codegen.write(&output).unwrap_err();
    assert!(!output.exists(), "something was written");
    let shown = error.to_string();
    let within = format!("{}/", folder.path().display());
    (shown.replace(&within, ""), error)
}

fn assert_refused(files: &[(&str, &str)], expected: &str) {
    let (shown, _) = refused(files);
    assert_eq!(shown, expected);
}

#[test]
fn a_mistake_of_syntax_is_told_where_it_is() {
    let file = "syntax = \"proto3\";\nservice A {\n  rpc B(C) return (C);\n}\n";
    assert_refused(
        &[("a.proto", file)],
        "a.proto:3:12: Expecting identifier `returns`",
    );
    let (_, error) = refused(&[("a.proto", file)]);
    assert_eq!((error.line(), error.column()), (Some(3), Some(12)));
    assert!(error.file().unwrap().ends_with("a.proto"));
    // A `main` that returns it shows it so.
    assert_eq!(format!("{error:?}"), error.to_string());
}

#[test]
fn an_edition_is_named_as_what_is_missing() {
    let file = "// A licence.\nedition = \"2023\";\nmessage A {}\n";
    assert_refused(
        &[("a.proto", file)],
        "a.proto:2:1: editions cannot be read, only proto2 and proto3",
    );
}

#[test]
fn a_type_that_is_not_there_is_told_where_it_is_named() {
    let service = "syntax = \"proto3\";\npackage a;\nmessage C {}\nservice A {\n  rpc B(C) returns (Txet);\n}\n";
    assert_refused(
        &[("a.proto", service)],
        "a.proto:5:21: there is no type `Txet` in this file or in its imports",
    );
    let field = "syntax = \"proto3\";\nmessage C {\n  b.Txet d = 1;\n}\n";
    assert_refused(
        &[("a.proto", field)],
        "a.proto:3:3: there is no type `b.Txet` in this file or in its imports",
    );
    let imported = "syntax = \"proto3\";\nimport \"b/c.proto\";\n";
    assert_refused(
        &[("a.proto", imported), ("b/c.proto", field)],
        "b/c.proto:3:3: there is no type `b.Txet` in this file or in its imports",
    );
}

#[test]
fn a_method_takes_messages_only() {
    let file = "syntax = \"proto3\";\nenum C { D = 0; }\nservice A {\n  rpc B(C) returns (C);\n}\n";
    assert_refused(&[("a.proto", file)], "a.proto:4:9: `C` is no message");
}

#[test]
fn an_import_that_is_not_there_is_told_where_it_is_named() {
    let file = "syntax = \"proto3\";\n\nimport \"b/c.proto\";\n";
    let (shown, _) = refused(&[("a.proto", file)]);
    let expected = "a.proto:3:8: `b/c.proto` is in none of the folders for imports: ";
    assert!(shown.starts_with(expected), "{shown}");
}

#[test]
fn an_import_of_oneself_is_an_error_and_not_without_end() {
    let a = "syntax = \"proto3\";\nimport \"b.proto\";\n";
    let b = "syntax = \"proto3\";\n\nimport \"a.proto\";\n";
    assert_refused(
        &[("a.proto", a), ("b.proto", b)],
        "b.proto:3:8: `a.proto`, which imports `b.proto` imports itself",
    );
    assert_refused(
        &[("a.proto", "syntax = \"proto3\"; import \"a.proto\";")],
        "a.proto:1:27: `a.proto` imports itself",
    );
}

#[test]
fn what_is_declared_twice_is_told_at_its_second_place() {
    let file = "syntax = \"proto3\";\nmessage C {}\nservice A {\n  rpc B(C) returns (C);\n  rpc B(C) returns (C);\n}\n";
    assert_refused(
        &[("a.proto", file)],
        "a.proto:5:7: `A.B` is declared a second time, after line 4",
    );
}

#[test]
fn two_files_with_one_name_are_an_error_and_not_one_file() {
    let a = "syntax = \"proto3\";\nimport \"b/a.proto\";\n";
    assert_refused(
        &[("a.proto", a), ("b/a.proto", "syntax = \"proto3\";\n")],
        "a.proto: would be module `a`, which is that of b/a.proto already",
    );
    let services = "syntax = \"proto3\"; service A {}";
    assert_refused(
        &[
            (
                "a.proto",
                "syntax = \"proto3\"; service A {} import \"a_ttrpc.proto\";",
            ),
            ("a_ttrpc.proto", services),
        ],
        "a.proto: would be module `a_ttrpc`, which is that of a_ttrpc.proto already",
    );
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Codegen::new()
        .input("no/such.proto")
        .write("unused")
        .unwrap_err();
    let shown = error.to_string();
    assert!(
        shown.starts_with("no/such.proto: cannot be read: "),
        "{shown}"
    );
}

#[test]
fn the_command_says_what_it_wants() {
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_ttrpc-keepalive-codegen"))
            .args(arguments)
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let (code, help) = run(&["--help"]);
    assert_eq!(code, Some(0));
    assert!(help.contains("--out DIR [OPTIONS] FILE.proto..."), "{help}");
    assert_eq!(
        run(&["a.proto"]),
        (Some(2), "--out is missing; see --help\n".to_owned())
    );
    assert_eq!(
        run(&["--out"]),
        (Some(2), "--out needs a value; see --help\n".to_owned())
    );
    assert_eq!(
        run(&["--out=a"]),
        (Some(2), "no .proto file is named; see --help\n".to_owned())
    );
    assert_eq!(
        run(&["-x"]),
        (Some(2), "unknown option -x; see --help\n".to_owned())
    );
    let (code, error) = run(&["--out", "unused", "no/such.proto"]);
    assert_eq!(code, Some(1));
    assert!(
        error.starts_with("no/such.proto: cannot be read: "),
        "{error}"
    );
}
