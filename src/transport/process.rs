//! Which process is at the other end of a unix socket, and what it is doing.
//!
//! The number of a process says little by itself: credentials are of who listened or connected, who may
//! have ended or given the socket away, and the number may belong to another by now. So a process is
//! spoken of only while it is seen to hold the other end of this very socket.

#[cfg(target_os = "linux")]
mod diag;
#[cfg(target_os = "linux")]
mod proc;

use tokio::net::UnixStream;

use crate::keepalive::{ProcessState, ProcessUnknown};

/// The process at the other end of a unix socket: where to look for it. Nothing is looked at before it
/// is asked for.
///
/// It goes by the socket and not by a number alone. The number that the kernel gave with the connection
/// is of who listened or connected, and that process may have ended, its number may be another's, or it
/// may have given the socket away, as the launcher of a containerd shim does. So something is said of a
/// process only if it holds the other end of this very socket when it is asked, or, while nobody has
/// accepted the connection, the listener at which it waits.
///
/// All of it is Linux's word, from `/proc` and from the kernel's table of sockets. On other systems the
/// answer is [`ProcessUnknown::NotTold`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerProcess {
    pid: Option<i32>,
    /// Of the end on this side. The kernel counts sockets, and uses a number again after four thousand
    /// million.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "never asked"))]
    socket: u32,
}

impl PeerProcess {
    /// That of a connected unix socket, for a [`Transport`](super::Transport) that sits on one. `None`
    /// where the kernel has no numbers for sockets.
    pub fn of(stream: &UnixStream) -> Option<Self> {
        // The kernel says 0 of a process that has no number here.
        let pid = stream.peer_cred().ok().and_then(|peer| peer.pid());
        Some(Self {
            pid: pid.filter(|pid| *pid > 0),
            socket: number(stream)?,
        })
    }

    /// The number of the process: of the one that listened or connected, or the one that was
    /// [found](Self::find). `None` if it has none here.
    pub fn pid(&self) -> Option<i32> {
        self.pid
    }

    /// What this process is doing now, if it holds the other end.
    ///
    /// It takes some ten system calls and one for each thing that the process has open, up to 4,096,
    /// and waits for nothing. [`Evidence::process`](crate::Evidence::process) is this.
    pub fn state(&self) -> ProcessState {
        match self.try_state() {
            Ok(state) => state,
            Err(reason) => ProcessState::Unknown(reason),
        }
    }

    /// Looks among all processes of this host for the one that holds the other end: for a socket that
    /// was handed on. [`state`](Self::state) of what it yields is about that one.
    ///
    /// **It takes long**, milliseconds for each hundred processes, and blocks its thread meanwhile: call
    /// it where that is allowed, as in `tokio::task::spawn_blocking`.
    ///
    /// # Errors
    ///
    /// Why it cannot be known. Without the rights of root the processes of other users are not seen into.
    pub fn find(&self) -> Result<Self, ProcessUnknown> {
        let pid = self.holder()?;
        Ok(Self {
            pid: Some(pid),
            ..*self
        })
    }
}

#[cfg(target_os = "linux")]
impl PeerProcess {
    fn try_state(&self) -> Result<ProcessState, ProcessUnknown> {
        let Some(other) = self.other_end()? else {
            return Ok(ProcessState::Gone);
        };
        let pid = self.pid.ok_or(ProcessUnknown::OtherNamespace)?;
        proc::state(pid, other)
    }

    fn holder(&self) -> Result<i32, ProcessUnknown> {
        let other = self.other_end()?.ok_or(ProcessUnknown::HandedOn)?;
        proc::holder(self.pid, other)
    }

    /// The number of the other end, or of the listener at which it waits; `None` if it has been closed.
    fn other_end(&self) -> Result<Option<u32>, ProcessUnknown> {
        match diag::other_end(self.socket) {
            Ok(diag::OtherEnd::Held(socket)) => Ok(Some(socket)),
            Ok(diag::OtherEnd::Closed) => Ok(None),
            // Who listens is who does not accept it.
            Ok(diag::OtherEnd::Queued(listener)) => {
                listener.map(Some).ok_or(ProcessUnknown::NotAccepted)
            }
            Err(_) => Err(ProcessUnknown::NotTold),
        }
    }
}

#[cfg(target_os = "linux")]
fn number(stream: &UnixStream) -> Option<u32> {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;

    // A copy, since only a file of its own can be asked.
    let copy = File::from(stream.as_fd().try_clone_to_owned().ok()?);
    u32::try_from(copy.metadata().ok()?.ino()).ok()
}

#[cfg(not(target_os = "linux"))]
impl PeerProcess {
    fn try_state(&self) -> Result<ProcessState, ProcessUnknown> {
        Err(ProcessUnknown::NotTold)
    }

    fn holder(&self) -> Result<i32, ProcessUnknown> {
        Err(ProcessUnknown::NotTold)
    }
}

#[cfg(not(target_os = "linux"))]
fn number(_stream: &UnixStream) -> Option<u32> {
    Some(0)
}
