//! The values that a turn of the driver passes on.

use std::io;
use std::ops::Range;

use bytes::Bytes;

use crate::error::ConnectionError;
use crate::wire::{Flags, Frame, Header};

/// How far reading has come in a turn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// There was nothing more.
    Drained,
    /// This turn's share is used up.
    More,
    /// Nothing is read before answers are taken.
    Parked,
}

/// A frame that was taken apart and is not applied yet.
pub(super) enum Incoming<I> {
    /// A REQUEST or RESPONSE.
    Input(I),
    Data(Header, Bytes),
    /// A small message: these bytes of what was read last.
    SmallData(Header, Range<usize>),
    Ping(Frame, Flags),
    Pong(Frame),
    Oversized(Header),
}

/// The answer of the kernel to a look.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LookResult {
    /// It holds nothing more that was there when the look was due.
    Drained,
    /// The look has lasted long enough, and there still is something: nothing is held against the
    /// peer, and nothing else waits.
    Undecided,
    /// Bytes may have come: read again after a turn of the scheduler.
    Yield,
    /// The transport answers later, and wakes the driver.
    Wait,
}

/// How writing goes. It never waits for a frame to be written whole.
#[derive(Debug, Default)]
pub(super) struct Writing {
    pub(super) blocked: Option<By>,
    /// The stream itself holds bytes back.
    pub(super) unflushed: bool,
    failed: Option<ConnectionError>,
}

/// What is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// The stream takes no more bytes.
    Write,
    /// It took all, and cannot pass on what it holds.
    Flush,
}

impl Writing {
    /// Whether a write would be tried at once.
    pub(super) fn is_free(&self) -> bool {
        self.blocked.is_none() && self.failed.is_none()
    }

    /// Whether the stream has passed on all that it took.
    pub(super) fn is_flushed(&self) -> bool {
        !self.unflushed
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Nothing can be written any more.
    pub(super) fn fail(&mut self, error: io::Error) {
        self.failed = Some(error.into());
    }

    pub(super) fn take_failure(&mut self) -> Option<ConnectionError> {
        self.failed.take()
    }
}
