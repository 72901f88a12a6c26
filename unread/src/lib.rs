//! How much of what was written to a unix stream socket its peer has not read.
//!
//! A byte that is written to a unix socket is at once in the receive queue of the other end, and
//! Linux counts it against its writer until a process has read it. So the writer can ask whether the
//! process at the other end reads, without its help: it need not know that it is asked.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::os::unix::net::UnixStream;
//!
//! use ttrpc_keepalive_unread::unread;
//!
//! # #[cfg(target_os = "linux")] {
//! let (mut here, mut there) = UnixStream::pair()?;
//! here.write_all(b"are you there?")?;
//! assert!(unread(&here)? > 0);
//! there.read_exact(&mut [0; 14])?;
//! assert_eq!(unread(&here)?, 0);
//! # }
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # What the number counts
//!
//! - The memory of buffers, not bytes: each byte counts for at least one, and each write for some
//!   hundred beside its bytes.
//! - A buffer counts until its last byte is read. Of a large write, which is cut into buffers of
//!   some 32 KiB, the number falls in steps; a process that reads a few bytes of it changes nothing.
//! - While the other end is reading the number may be one too high for a moment.
//! - Where the other end has been closed it is 0. To tell that from *read*, look for the end of the
//!   stream after this question, not before it: the kernel makes the end visible first.
//! - A connection that nobody has accepted yet holds what was written to it, unread.
//!
//! # Other kinds of sockets
//!
//! | of what | the answer |
//! |---|---|
//! | unix socket, stream, connected | what the process at the other end has not read |
//! | unix socket, listening or not connected | 0 |
//! | TCP | what the other *kernel* has not acknowledged: it says nothing of a process |
//! | TCP, listening | an error |
//! | what is no socket | an error, or a number of another meaning: terminals have one |
//!
//! On systems other than Linux and Android the answer is [`ErrorKind::Unsupported`](std::io::ErrorKind::Unsupported).

use std::io;
use std::os::fd::AsFd;

/// How much of what was written to this socket has not been read, as the kernel counts it. It takes
/// one system call and never waits.
///
/// # Errors
///
/// What the kernel says of a descriptor that cannot be asked, and
/// [`ErrorKind::Unsupported`](io::ErrorKind::Unsupported) where no kernel can be.
pub fn unread(socket: impl AsFd) -> io::Result<usize> {
    system::unread(socket.as_fd())
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod system {
    use std::io;
    use std::os::fd::{AsRawFd, BorrowedFd};

    pub(super) fn unread(socket: BorrowedFd<'_>) -> io::Result<usize> {
        let mut count: libc::c_int = 0;
        // SAFETY: the descriptor is borrowed, so it is open during the call. For this request the
        // kernel writes one `int` through the pointer, which is to a live one that nothing else uses
        // meanwhile, and keeps nothing of it. A descriptor that does not know the request is
        // answered by an error.
        #[expect(unsafe_code, reason = "no safe crate offers this request")]
        let answer = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut count) };
        if answer < 0 {
            return Err(io::Error::last_os_error());
        }
        // The kernel counts up, so that a negative number is none.
        usize::try_from(count).map_err(|_| io::ErrorKind::InvalidData.into())
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod system {
    use std::io;
    use std::os::fd::BorrowedFd;

    pub(super) fn unread(_: BorrowedFd<'_>) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
