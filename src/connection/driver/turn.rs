//! The values that a turn of the driver passes on.

use std::io;
use std::ops::Range;
use std::time::Duration;

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
    /// The stream could not be read just now, for a reason on this side.
    Failed,
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
    /// It cannot be asked, and a read after a turn of the scheduler found nothing.
    Blind,
    /// The look has lasted long enough, and there still is something: nothing is held against the
    /// peer, and nothing else waits.
    Undecided,
    /// The transport has not said in time, and a read after a turn of the scheduler found nothing.
    Unanswered,
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
    /// Nothing is written before that, for a reason on this side.
    pub(super) paused_until: Option<Duration>,
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
        self.blocked.is_none() && self.paused_until.is_none() && self.failed.is_none()
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

    /// Why a connection is over on which nothing could be written and whose stream has now `ended`. A
    /// peer that closes breaks the pipe too, and has closed. A reset, or what else a write met, is
    /// told once: what is read behind it is a plain end.
    pub(super) fn end_of(&mut self, ended: ConnectionError) -> ConnectionError {
        match (ended, self.failed.take()) {
            (ended, None | Some(ConnectionError::BrokenPipe(_))) => ended,
            (ConnectionError::PeerClosed | ConnectionError::Torn, Some(failed)) => failed,
            (ended, _) => ended,
        }
    }

    pub(super) fn take_failure(&mut self) -> Option<ConnectionError> {
        self.failed.take()
    }
}
