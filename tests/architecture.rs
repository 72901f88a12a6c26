//! The layout of the house: which room may know which, and who may read the clock.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The rooms from the bottom to the top. A room uses those in front of it, and itself.
const STOREYS: &[&str] = &[
    "tuning",
    "buffers",
    "panics",
    "text",
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
    "call",
    "streaming",
    "close",
    "client",
    "server",
    "testing",
    "ends",
];

/// Rooms without I/O, without a runtime and without a clock.
const RULES: &[&str] = &["text", "status", "wire", "keepalive", "streams", "backoff"];

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

// A file that is used by what it uses can be understood and changed only together with it. A parent that
// declares and re-exports is none of these: what it re-exports is looked for where it is defined.
#[test]
fn no_file_is_used_by_what_it_uses() {
    let modules = Module::all();
    let mut uses: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, module) in &modules {
        let used = module
            .mentions
            .iter()
            .filter_map(|path| find(&modules, name, path));
        let used = used.filter(|used| used != name);
        uses.insert(name, used.collect());
    }
    let (mut done, mut circles) = (BTreeSet::new(), Vec::new());
    for name in uses.keys() {
        follow(&uses, name, &mut Vec::new(), &mut done, &mut circles);
    }
    assert!(circles.is_empty(), "{}", circles.join("\n"));
}

/// Follows what `name` uses. Where that is on the way here already, a circle is found.
fn follow<'a>(
    uses: &BTreeMap<&'a str, BTreeSet<&'a str>>,
    name: &'a str,
    way: &mut Vec<&'a str>,
    done: &mut BTreeSet<&'a str>,
    circles: &mut Vec<String>,
) {
    if let Some(begin) = way.iter().position(|before| *before == name) {
        circles.push([&way[begin..], &[name]].concat().join(" uses "));
    } else if done.insert(name) {
        way.push(name);
        for used in &uses[name] {
            follow(uses, used, way, done, circles);
        }
        way.pop();
    }
}

/// The file of a module: the paths in it, and the names that it has from elsewhere.
struct Module {
    mentions: Vec<String>,
    names: BTreeMap<String, String>,
}

impl Module {
    /// All of the crate by their names, as `server::guard`. That of the root is empty.
    fn all() -> BTreeMap<String, Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let files = sources().filter(|(file, _)| !file.ends_with("tests.rs"));
        files
            .map(|(file, _)| {
                let inside = file.strip_prefix(&root).unwrap().with_extension("");
                let name = inside.to_str().unwrap().replace('/', "::");
                let name = match name.as_str() {
                    "lib" => "",
                    name => name.strip_suffix("::mod").unwrap_or(name),
                };
                (name.to_owned(), Self::of(&file))
            })
            .collect()
    }

    fn of(file: &Path) -> Self {
        let (mut mentions, mut names) = (Vec::new(), BTreeMap::new());
        let mut lines = code(file).map(|(_, text)| text.trim().to_owned());
        while let Some(line) = lines.next() {
            let import = line.split_once("use ");
            let import =
                import.filter(|(before, _)| before.is_empty() || before.starts_with("pub"));
            let Some((visibility, tree)) = import else {
                let is_path = |letter: char| letter.is_alphanumeric() || "_:".contains(letter);
                let words = line.split(|letter| !is_path(letter));
                let from = ["crate::", "super::", "self::"];
                let paths = words.filter(|word| from.iter().any(|from| word.starts_with(from)));
                mentions.extend(paths.map(str::to_owned));
                continue;
            };
            let mut tree = tree.to_owned();
            while !tree.ends_with(';') {
                tree += &lines.next().unwrap();
            }
            for path in paths(tree.trim_end_matches(';')) {
                let end = path.rsplit("::").next().unwrap();
                let (path, name) = path.split_once(" as ").unwrap_or((&path, end));
                names.insert(name.to_owned(), path.to_owned());
                if visibility.is_empty() {
                    mentions.push(path.to_owned());
                }
            }
        }
        Self { mentions, names }
    }
}

/// The single paths of a tree as `a::{b, c::{self, d}}`.
fn paths(tree: &str) -> Vec<String> {
    let Some((prefix, inside)) = tree.split_once('{') else {
        return vec![tree.trim().trim_end_matches("::self").to_owned()];
    };
    let inside = &inside[..inside.rfind('}').unwrap()];
    let (mut found, mut depth, mut begin) = (Vec::new(), 0, 0);
    for (at, letter) in inside.char_indices().chain([(inside.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let part = inside[begin..at].trim();
                begin = at + 1;
                if !part.is_empty() {
                    found.extend(paths(&format!("{prefix}{part}")));
                }
            }
            _ => {}
        }
    }
    found
}

/// The module in which that is defined which the module `from` calls `path`.
fn find<'a>(modules: &'a BTreeMap<String, Module>, from: &str, path: &str) -> Option<&'a str> {
    let parent = |module: &str| match module.rsplit_once("::") {
        Some((parent, _)) => parent.to_owned(),
        None => String::new(),
    };
    let mut at = from.to_owned();
    let mut is_inside = false;
    for segment in path.split("::") {
        let child = format!("{at}::{segment}");
        let child = child.trim_start_matches("::");
        match segment {
            "crate" => at.clear(),
            "self" => {}
            "super" => at = parent(&at),
            _ if modules.contains_key(child) => at = child.to_owned(),
            // Of another crate.
            _ if !is_inside => return None,
            _ => match modules[&at].names.get(segment) {
                Some(path) => return find(modules, &at, path),
                None => break,
            },
        }
        is_inside = true;
    }
    modules.get_key_value(&at).map(|(name, _)| name.as_str())
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

// What resolves to an older release has a fault that a peer can use: one of nested groups ends the
// process, and a length that overflows writes where it must not.
#[test]
fn dependencies_are_no_older_than_their_last_mended_fault() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let manifest = fs::read_to_string(manifest).unwrap();
    for (name, floor) in [("protobuf", "\">=3.7.2, <4\""), ("bytes", "\"1.11.1\"")] {
        let name = format!("{name} = ");
        let line = manifest.lines().find(|line| line.starts_with(&name));
        let line = line.expect("it is a dependency");
        assert!(line.contains(floor), "{line}");
    }
}
