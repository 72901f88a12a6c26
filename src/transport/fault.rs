//! What an error of a read or a write means, whichever call met it.

use std::io::{self, ErrorKind};

/// ENOBUFS: the kernel has no room for its own buffers. The standard library has no kind for it.
const NO_BUFFERS: i32 = if cfg!(any(target_os = "linux", target_os = "android")) {
    105
} else {
    55
};

/// What becomes of a call that failed. None of it says anything of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A signal came in between: it is made again at once.
    Interrupted,
    /// The kernel lacks memory, or nothing can be done now: it is made again a little later.
    Passing,
    /// The stream has failed.
    Lasting,
}

impl Fault {
    pub(crate) fn of(error: &io::Error) -> Self {
        match error.kind() {
            ErrorKind::Interrupted => Self::Interrupted,
            ErrorKind::WouldBlock | ErrorKind::OutOfMemory => Self::Passing,
            _ if error.raw_os_error() == Some(NO_BUFFERS) => Self::Passing,
            _ => Self::Lasting,
        }
    }
}
