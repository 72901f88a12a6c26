//! What a kernel says of the process of a peer, in words on which an operator can act.

use std::fmt;

/// What the process at the other end of a unix socket is doing, as the kernel says.
///
/// It is shown beside a verdict, in [`Evidence::process`](super::Evidence::process), and no verdict
/// depends on it: a process that runs need not be well, and one that is stopped may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProcessState {
    /// It runs, or sleeps until something comes.
    Running,
    /// It was stopped, by a signal or a debugger: SIGCONT, or the debugger, lets it go on.
    Stopped,
    /// Its cgroup is frozen, as that of a container that was paused.
    Frozen,
    /// Its main thread waits uninterruptibly, for a disk or a file system that does not answer.
    WaitingForDisk,
    /// No process holds the other end any more.
    Gone,
    /// It cannot be known.
    Unknown(ProcessUnknown),
}

impl fmt::Display for ProcessState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Frozen => "frozen by its cgroup",
            Self::WaitingForDisk => "waiting for the disk",
            Self::Gone => "gone",
            Self::Unknown(reason) => return write!(f, "not known: {reason}"),
        })
    }
}

/// Why nothing can be said of a peer's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProcessUnknown {
    /// It has no number here, as a process of another container.
    OtherNamespace,
    /// The connection waits to be accepted, at a listener that is not seen from here.
    NotAccepted,
    /// The process that listened or connected does not hold this connection: it ended, or gave the
    /// socket to another. Its number may belong to anybody by now.
    HandedOn,
    /// Several processes hold it, as one and the children that it made, and they are not in the same
    /// state.
    Several,
    /// This process may not see what the other one has open.
    NotAllowed,
    /// It has more open than is looked through for this.
    ManyDescriptors,
    /// It is not stopped, and the state of its cgroup cannot be read here.
    CgroupHidden,
    /// The kernel does not tell who is at the other end of a socket.
    NotTold,
}

impl fmt::Display for ProcessUnknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::OtherNamespace => "it has no number here",
            Self::NotAccepted => "nobody has accepted the connection, and who listens is not seen",
            Self::HandedOn => "who listened or connected does not hold the connection",
            Self::Several => "several hold the connection",
            Self::NotAllowed => "what it has open may not be seen",
            Self::ManyDescriptors => "it has too much open",
            Self::CgroupHidden => "not stopped, and its cgroup cannot be seen",
            Self::NotTold => "the kernel does not tell whose the other end is",
        })
    }
}
