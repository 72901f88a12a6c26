//! Who is at the other end.

use std::net::SocketAddr;

use super::{PeerProcess, Transport};

/// The process at the other end of a unix socket, by the word of the kernel.
///
/// It is the process that connected, or on a client's side the one that began to listen, as it was
/// at that moment: it may have changed its user since, given the socket away, or ended, and its
/// number may belong to another process by now. Both ends of a socket pair tell of the process that
/// made the pair. So the user is good for deciding who may call, and the number for a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    pid: Option<i32>,
    uid: u32,
    gid: u32,
}

impl PeerCredentials {
    /// For a [`Transport`] that knows them from elsewhere, as one side of a
    /// multiplexer does from the socket below.
    pub fn new(pid: Option<i32>, uid: u32, gid: u32) -> Self {
        Self { pid, uid, gid }
    }

    /// The number of the process. `None` if this process cannot see that one, as in another
    /// container.
    pub fn pid(&self) -> Option<i32> {
        self.pid
    }

    /// The user, as this process's user namespace numbers it.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The group, as this process's user namespace numbers it.
    pub fn gid(&self) -> u32 {
        self.gid
    }
}

impl From<tokio::net::unix::UCred> for PeerCredentials {
    fn from(told: tokio::net::unix::UCred) -> Self {
        // The kernel says 0 for a process that has no number here.
        let pid = told.pid().filter(|pid| *pid > 0);
        Self::new(pid, told.uid(), told.gid())
    }
}

/// What is known of the other end when the connection begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remote {
    pub(crate) credentials: Option<PeerCredentials>,
    pub(crate) process: Option<PeerProcess>,
    pub(crate) address: Option<SocketAddr>,
}

impl Remote {
    pub(crate) fn of(transport: &impl Transport) -> Self {
        Self {
            credentials: transport.peer_credentials(),
            process: transport.peer_process(),
            address: transport.remote_address(),
        }
    }
}
