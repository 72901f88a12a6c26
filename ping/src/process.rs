//! What the system knows of a peer's process. It is shown beside an outcome and decides little: one
//! that is gone says nothing while somebody reads.

use ttrpc_keepalive::{PeerProcess, ProcessState, ProcessUnknown};

/// A process, as it was seen beside an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Of the one that holds the connection, if that could be seen.
    pub(crate) pid: Option<i32>,
    pub(crate) state: ProcessState,
}

/// Looks at the process at the other end, and for it if the connection was handed on.
pub(crate) async fn look(process: PeerProcess) -> Seen {
    let look = move || {
        let found = match process.state() {
            ProcessState::Unknown(ProcessUnknown::HandedOn) => process.find().unwrap_or(process),
            _ => process,
        };
        let state = found.state();
        let is_known = !matches!(state, ProcessState::Unknown(ProcessUnknown::HandedOn));
        Seen {
            pid: found.pid().filter(|_| is_known),
            state,
        }
    };
    // All processes of a host are many, and other peers wait for their answers meanwhile.
    let looked = tokio::task::spawn_blocking(look).await;
    looked.unwrap_or(Seen {
        pid: None,
        state: ProcessState::Unknown(ProcessUnknown::NotTold),
    })
}

#[cfg(target_os = "linux")]
mod system {
    use procfs::net::UnixState;
    use procfs::process::Process as Entry;

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
    pub(crate) fn name(_pid: i32) -> Option<String> {
        None
    }

    pub(crate) fn abstract_names(_prefix: &str) -> Vec<String> {
        Vec::new()
    }
}

pub(crate) use system::{abstract_names, name};
