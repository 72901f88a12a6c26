//! The layout of the house: which room may know which, and who may read the clock.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::fs;
use std::path::{Path, PathBuf};

/// The rooms from the bottom to the top. A room uses those in front of it, and itself.
const STOREYS: &[&str] = &[
    "buffers",
    "panics",
    "status",
    "wire",
    "keepalive",
    "streams",
    "clock",
    "seed",
    "backoff",
    "error",
    "hook",
    "liveness",
    "config",
    "transport",
    "connection",
    "codec",
    "call",
    "streaming",
    "client",
    "server",
];

/// Rooms without I/O, without a runtime and without a clock.
const RULES: &[&str] = &["status", "wire", "keepalive", "streams", "backoff"];

/// What reads a clock or waits for one.
const CLOCKS: &[&str] = &["Instant::now", "SystemTime", ".elapsed()"];

#[test]
fn imports_point_down() {
    let mut wrong = Vec::new();
    for (file, room) in sources() {
        let height = storey(&room);
        for (line, used) in mentions(&file, "crate::") {
            let own = used == room || room == "lib";
            // Names from the crate's root would hide in which room they are.
            if !own && storey(&used) > height {
                wrong.push(format!("{}:{line} uses {used}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_room_has_its_storey() {
    for (file, room) in sources() {
        assert!(
            room == "lib" || STOREYS.contains(&room.as_str()),
            "{} is in no storey",
            file.display()
        );
    }
}

#[test]
fn rules_know_no_runtime_and_no_clock() {
    let forbidden = [
        "tokio::",
        "Instant",
        "std::net",
        "std::fs",
        "io::Read",
        "io::Write",
        "socket2",
    ];
    let mut wrong = Vec::new();
    for (file, _) in sources().filter(|(_, room)| RULES.contains(&room.as_str())) {
        for (line, text) in code(&file) {
            if forbidden
                .iter()
                .chain(CLOCKS)
                .any(|word| text.contains(word))
            {
                wrong.push(format!("{}:{line}: {text}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_clock_is_read_in_one_place() {
    let mut readers: Vec<PathBuf> = sources()
        .filter(|(file, _)| {
            code(file).any(|(_, text)| CLOCKS.iter().any(|clock| text.contains(clock)))
        })
        .map(|(file, _)| file)
        .collect();
    readers.dedup();
    let clock = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/clock.rs");
    assert_eq!(readers, [clock]);
}

#[test]
fn no_lock_and_no_spawn_in_the_rules() {
    for (file, _) in sources().filter(|(_, room)| RULES.contains(&room.as_str())) {
        for (line, text) in code(&file) {
            for word in ["Mutex", "RwLock", "async ", "spawn"] {
                assert!(!text.contains(word), "{}:{line}: {text}", file.display());
            }
        }
    }
}

#[test]
fn the_library_neither_prints_nor_exits() {
    for (file, _) in sources() {
        for (line, text) in code(&file) {
            for word in ["println!", "eprintln!", "process::exit", "process::abort"] {
                assert!(!text.contains(word), "{}:{line}: {text}", file.display());
            }
        }
    }
}

fn storey(room: &str) -> usize {
    STOREYS
        .iter()
        .position(|storey| *storey == room)
        .unwrap_or(STOREYS.len())
}

/// Every source file with the room it is in.
fn sources() -> impl Iterator<Item = (PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files.into_iter().map(move |file| {
        let inside = file.strip_prefix(&root).unwrap();
        let first = inside.components().next().unwrap();
        let room = Path::new(first.as_os_str()).with_extension("");
        let room = room.to_str().unwrap().to_owned();
        (file, room)
    })
}

/// The lines of code, without comments and without the tests at the end of a file.
fn code(file: &Path) -> impl Iterator<Item = (usize, String)> + use<> {
    let text = fs::read_to_string(file).unwrap();
    let lines: Vec<(usize, String)> = text
        .lines()
        .take_while(|line| !line.starts_with("#[cfg(test)]"))
        .enumerate()
        .map(|(at, line)| (at + 1, line.split("//").next().unwrap().to_owned()))
        .collect();
    lines.into_iter()
}

/// Where `prefix` stands in the code, with the word behind it.
fn mentions(file: &Path, prefix: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, text) in code(file) {
        for (at, _) in text.match_indices(prefix) {
            let behind = &text[at + prefix.len()..];
            let end = behind
                .find(|letter: char| !letter.is_alphanumeric() && letter != '_')
                .unwrap_or(behind.len());
            found.push((line, behind[..end].to_owned()));
        }
    }
    found
}
