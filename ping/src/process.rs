//! What the system knows of a peer's process. It is shown beside an outcome and decides little: a
//! socket may have been given to another process than the one that began to listen, so that a process
//! which is gone says nothing while somebody reads.

use std::fmt;

/// The state of a process, in words on which an operator can act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Process {
    Runs,
    /// By a signal or a debugger.
    Stopped,
    /// By its cgroup.
    Frozen,
    /// Uninterruptibly, as for a disk.
    WaitsForDisk,
    Gone,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Runs => "runs",
            Self::Stopped => "stopped",
            Self::Frozen => "frozen by its cgroup",
            Self::WaitsForDisk => "waits for the disk",
            Self::Gone => "gone",
        })
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::fs;

    use procfs::ProcError;
    use procfs::net::UnixState;
    use procfs::process::{ProcState, Process as Entry};

    use super::Process;

    /// The state of a process, or `None` if this one may not know.
    pub(crate) fn state(pid: i32) -> Option<Process> {
        let entry = match Entry::new(pid) {
            Ok(entry) => entry,
            Err(ProcError::NotFound(_)) => return Some(Process::Gone),
            Err(_) => return None,
        };
        let state = entry.stat().ok()?.state().ok()?;
        Some(match state {
            ProcState::Stopped | ProcState::Tracing => Process::Stopped,
            ProcState::Zombie | ProcState::Dead => Process::Gone,
            _ if is_frozen(&entry) => Process::Frozen,
            ProcState::Waiting => Process::WaitsForDisk,
            _ => Process::Runs,
        })
    }

    /// By cgroup 2, where it is mounted at its usual place. A frozen process sleeps as any other does.
    fn is_frozen(entry: &Entry) -> bool {
        let Ok(groups) = entry.cgroups() else {
            return false;
        };
        let group = groups.into_iter().find(|group| group.hierarchy == 0);
        group.is_some_and(|group| {
            let events = format!("/sys/fs/cgroup{}/cgroup.events", group.pathname);
            let events = fs::read_to_string(events).unwrap_or_default();
            events.lines().any(|line| line == "frozen 1")
        })
    }

    /// The name of its program.
    pub(crate) fn name(pid: i32) -> Option<String> {
        Some(Entry::new(pid).ok()?.stat().ok()?.comm)
    }

    /// The abstract names of this host on which somebody listens, and which begin so.
    pub(crate) fn abstract_names(prefix: &str) -> Vec<String> {
        let sockets = procfs::net::unix().unwrap_or_default();
        let listening = sockets.into_iter().filter(|socket| {
            socket.socket_type == STREAM && socket.state == UnixState::UNCONNECTED
        });
        let names = listening.filter_map(|socket| Some(socket.path?.to_str()?.to_owned()));
        let mut names: Vec<_> = names
            .filter_map(|name| name.strip_prefix('@').map(str::to_owned))
            .filter(|name| name.starts_with(prefix))
            .collect();
        names.sort();
        names.dedup();
        names
    }

    /// `SOCK_STREAM`. One that has a name and no connection listens.
    const STREAM: u16 = 1;
}

#[cfg(not(target_os = "linux"))]
mod system {
    use super::Process;

    pub(crate) fn state(_pid: i32) -> Option<Process> {
        None
    }

    pub(crate) fn name(_pid: i32) -> Option<String> {
        None
    }

    pub(crate) fn abstract_names(_prefix: &str) -> Vec<String> {
        Vec::new()
    }
}

pub(crate) use system::{abstract_names, name, state};
