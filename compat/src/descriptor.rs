//! Numbers of descriptors that users hand over.
//!
//! The API of the crate `ttrpc` takes them by their numbers alone, and from a number to an owner there is
//! no safe way. So a second descriptor of the same socket is made, which has an owner from the beginning,
//! and a number that is no open descriptor is refused, where an owner of it would close somebody else's.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd, RawFd};

use filedescriptor::{Error, FileDescriptor};

/// Takes a descriptor that is given away by its number, which is free from then on.
pub(crate) fn take(number: RawFd) -> io::Result<OwnedFd> {
    let taken = copy(number)?;
    // It is open, and an interrupted `close` has closed it all the same.
    let _ = nix::unistd::close(number);
    Ok(taken)
}

/// Takes a second descriptor of what stays the caller's.
pub(crate) fn copy(number: RawFd) -> io::Result<OwnedFd> {
    match FileDescriptor::dup(&number) {
        Ok(second) => second.as_fd().try_clone_to_owned(),
        Err(Error::Dup { source, .. }) => Err(source),
        Err(other) => Err(io::Error::other(other)),
    }
}
