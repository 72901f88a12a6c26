//! The vectors in `interop/vectors`, as their files say them.

#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::fs;
use std::path::Path;

use serde_json::Value;

/// One entry of a file; the keys are described in `interop/vectors/README.md`.
pub(crate) struct Vector {
    pub(crate) name: String,
    pub(crate) frames_in: Vec<Vec<u8>>,
    pub(crate) decoded: Vec<Value>,
    pub(crate) frames_out: Vec<Value>,
    pub(crate) ends: bool,
    /// What becomes of the call that waits; `None` where a server receives the frames.
    pub(crate) call: Option<Value>,
    pub(crate) rules: Vec<String>,
}

pub(crate) fn vectors() -> Vec<Vector> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("interop/vectors");
    let mut vectors = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let file = path.file_stem().unwrap().to_string_lossy().into_owned();
        let entries: Vec<Value> = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        vectors.extend(entries.iter().map(|entry| Vector {
            name: format!("{file}/{}", text(&entry["name"])),
            frames_in: list(&entry["frames_in"]).iter().map(bytes).collect(),
            decoded: list(&entry["decoded"]).clone(),
            frames_out: list(&entry["frames_out"]).clone(),
            ends: entry["ends"].as_bool().unwrap(),
            call: match entry["role"].as_str().unwrap() {
                "client" => Some(entry["call"].clone()),
                "server" => None,
                other => panic!("{other}"),
            },
            rules: list(&entry["rules"]).iter().map(text).collect(),
        }));
    }
    assert!(!vectors.is_empty());
    vectors
}

pub(crate) fn list(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap()
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// Bytes as the vectors write them: hexadecimal with spaces, and `5a*65` for 65 times `5a`.
pub(crate) fn bytes(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    for token in value.as_str().unwrap().split_whitespace() {
        let (digits, count) = token.split_once('*').unwrap_or((token, "1"));
        let once: Vec<u8> = (0..digits.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
            .collect();
        bytes.extend(once.repeat(count.parse().unwrap()));
    }
    bytes
}
