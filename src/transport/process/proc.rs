//! What `/proc` tells of a process that holds a socket.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Component, Path, PathBuf};

use crate::keepalive::{ProcessState, ProcessUnknown};

/// What a process may have open and is still looked through: that much takes some milliseconds.
const OPEN: usize = 4096;

/// Where the hierarchies of cgroups are mounted, of each version and of both beside each other.
const GROUPS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
const FREEZERS: [&str; 1] = ["/sys/fs/cgroup/freezer"];

/// What the process of this number is doing, if it holds the socket of that number.
pub(super) fn state(pid: i32, socket: u32) -> Result<ProcessState, ProcessUnknown> {
    // This file is of one process, and cannot be read when that has ended. It is opened first and read
    // last: as long as it can be read, nobody else has had the number.
    let mut stat = File::open(format!("/proc/{pid}/stat")).map_err(reason)?;
    if !holds(pid, socket)? {
        return Err(ProcessUnknown::HandedOn);
    }
    let frozen = is_frozen(pid);
    let mut text = String::new();
    stat.read_to_string(&mut text).map_err(reason)?;
    Ok(told(&text, frozen))
}

fn told(stat: &str, frozen: Option<bool>) -> ProcessState {
    // Behind its name, which may contain anything.
    let letter = stat
        .rsplit_once(") ")
        .and_then(|(_, behind)| behind.chars().next());
    match (letter, frozen) {
        (Some('T' | 't'), _) => ProcessState::Stopped,
        // It ends just now, and has let go of what it held.
        (Some('Z' | 'X'), _) => ProcessState::Gone,
        // One that has a processor is not frozen.
        (Some('R'), _) => ProcessState::Running,
        (_, Some(true)) => ProcessState::Frozen,
        (Some('D'), Some(false)) => ProcessState::WaitingForDisk,
        (Some(_), Some(false)) => ProcessState::Running,
        (Some(_), None) => ProcessState::Unknown(ProcessUnknown::CgroupHidden),
        (None, _) => ProcessState::Unknown(ProcessUnknown::NotTold),
    }
}

/// The process that holds the socket of this number: the first guess if it does.
pub(super) fn holder(guess: Option<i32>, socket: u32) -> Result<i32, ProcessUnknown> {
    if let Some(pid) = guess.filter(|pid| matches!(holds(*pid, socket), Ok(true))) {
        return Ok(pid);
    }
    let (mut found, mut missing) = (None, ProcessUnknown::HandedOn);
    let entries = fs::read_dir("/proc").map_err(reason)?;
    for pid in entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()) {
        match holds(pid, socket) {
            Ok(true) if found.is_some() => return Err(ProcessUnknown::Several),
            Ok(true) => found = Some(pid),
            Ok(false) | Err(ProcessUnknown::HandedOn) => {}
            Err(reason) => missing = reason,
        }
    }
    found.ok_or(missing)
}

/// Whether a process has a socket open.
fn holds(pid: i32, socket: u32) -> Result<bool, ProcessUnknown> {
    let wanted = format!("socket:[{socket}]");
    let mut seen = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).map_err(reason)? {
        // What is closed meanwhile is not there any more.
        let target = entry.and_then(|entry| fs::read_link(entry.path()));
        if target.is_ok_and(|target| target == Path::new(&wanted)) {
            return Ok(true);
        }
        seen += 1;
        if seen > OPEN {
            return Err(ProcessUnknown::ManyDescriptors);
        }
    }
    Ok(false)
}

/// Whether one of its cgroups is frozen: a process of such a one sleeps as any other does. `None` if
/// that cannot be seen, as from another namespace of cgroups.
fn is_frozen(pid: i32) -> Option<bool> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let mut hidden = false;
    for group in groups.lines() {
        let mut fields = group.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let answer = if controllers.is_empty() {
            read(&GROUPS, path, "cgroup.events").map(|events| events.contains("frozen 1"))
        } else if controllers.split(',').any(|name| name == "freezer") {
            read(&FREEZERS, path, "freezer.state").map(|state| state.trim() == "FROZEN")
        } else {
            continue;
        };
        match answer {
            Some(true) => return Some(true),
            Some(false) => {}
            // The root of a hierarchy cannot be frozen, and has no such file.
            None => hidden |= path != "/",
        }
    }
    (!hidden).then_some(false)
}

/// A file of the group of this path, wherever its hierarchy is mounted.
fn read(mounts: &[&str], group: &str, file: &str) -> Option<String> {
    let group = Path::new(group.trim_start_matches('/'));
    // One outside of what this process sees of the hierarchy.
    if group.components().any(|part| part == Component::ParentDir) {
        return None;
    }
    let files = mounts
        .iter()
        .map(|mount| [Path::new(mount), group, Path::new(file)].iter().collect());
    files
        .map(|file: PathBuf| fs::read_to_string(file))
        .find_map(Result::ok)
}

fn reason(error: io::Error) -> ProcessUnknown {
    match error.kind() {
        ErrorKind::PermissionDenied => ProcessUnknown::NotAllowed,
        // It has ended, or is hidden from this user.
        _ => ProcessUnknown::HandedOn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_and_cgroups_are_states() {
        let hidden = ProcessState::Unknown(ProcessUnknown::CgroupHidden);
        for (letter, frozen, state) in [
            ("R", None, ProcessState::Running),
            ("R", Some(true), ProcessState::Running),
            ("S", Some(false), ProcessState::Running),
            ("I", Some(false), ProcessState::Running),
            ("S", Some(true), ProcessState::Frozen),
            ("S", None, hidden),
            ("D", Some(false), ProcessState::WaitingForDisk),
            // As the freezer of the first version of cgroups leaves it.
            ("D", Some(true), ProcessState::Frozen),
            ("D", None, hidden),
            ("T", None, ProcessState::Stopped),
            ("t", Some(true), ProcessState::Stopped),
            ("Z", Some(false), ProcessState::Gone),
        ] {
            let stat = format!("7 (a) R (b) {letter} 1 7 7");
            assert_eq!(told(&stat, frozen), state, "{letter} {frozen:?}");
        }
        let nothing = ProcessState::Unknown(ProcessUnknown::NotTold);
        assert_eq!(told("", Some(false)), nothing);
    }

    #[test]
    fn a_group_outside_of_what_is_seen_is_hidden() {
        assert_eq!(read(&["/sys/fs/cgroup"], "/../../sys/fs", "x"), None);
        assert_eq!(read(&["/proc"], "/self", "no such file"), None);
        assert!(read(&["/nowhere", "/proc"], "/self", "stat").is_some());
    }
}
