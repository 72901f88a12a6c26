//! Numbers of descriptors that users hand over.

#![allow(
    unsafe_code,
    reason = "the API of the crate ttrpc takes ownership of descriptors by their numbers, and there is \
              no safe way from a number to an owner"
)]

use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};

/// Takes a descriptor that is given away by its number. A function of `ttrpc` that takes a number says
/// that whoever calls it gives the descriptor away, which nothing can check: of two owners of one number
/// the later one to close it closes somebody else's. That is a fault of that signature, which those
/// users have written already.
pub(crate) fn take(number: RawFd) -> OwnedFd {
    assert!(number >= 0, "{number} is no descriptor");
    // SAFETY: the caller has promised that the number is an open descriptor, and his alone to give.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// Takes a second descriptor of what stays the caller's.
#[cfg(feature = "sync")]
pub(crate) fn copy(number: RawFd) -> std::io::Result<OwnedFd> {
    assert!(number >= 0, "{number} is no descriptor");
    // SAFETY: the caller has promised that the number is an open descriptor, and it is used here only.
    unsafe { std::os::fd::BorrowedFd::borrow_raw(number) }.try_clone_to_owned()
}
