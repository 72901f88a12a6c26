//! What a client could not send before it closed.

use std::fmt;
use std::time::Duration;

use super::ConnectionError;

/// Not all that was queued has been sent when a client [closed](crate::Client::close).
///
/// It tells of requests and messages for which nobody waits any more, and of those for which somebody
/// does: their own errors say the same, by [`Error::request`](crate::Error::request).
#[derive(Clone, Debug)]
pub struct CloseError {
    pub(crate) unsent: Unsent,
    pub(crate) end: Option<ConnectionError>,
    pub(crate) limit: Duration,
}

/// Frames of streams that were not written whole, and the bytes of them that were not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unsent {
    pub(crate) frames: usize,
    pub(crate) bytes: usize,
}

impl Unsent {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            frames: self.frames.saturating_add(other.frames),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }
}

impl CloseError {
    /// How many requests and messages were not sent, or not whole; the end of a stream's messages
    /// counts as one.
    pub fn frames(&self) -> usize {
        self.unsent.frames
    }

    /// The bytes of them that were not sent.
    pub fn bytes(&self) -> usize {
        self.unsent.bytes
    }

    /// Why the connection ended before. `None` if the [time](crate::Close::timeout) was over.
    pub fn end(&self) -> Option<&ConnectionError> {
        self.end.as_ref()
    }
}

impl fmt::Display for CloseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unsent { frames, bytes } = self.unsent;
        let things = if frames == 1 {
            "request or message"
        } else {
            "requests and messages"
        };
        write!(f, "{frames} {things}, {bytes} bytes, not sent")?;
        match &self.end {
            Some(end) => write!(f, ": {end}"),
            None => write!(f, " within {:?}", self.limit),
        }
    }
}

impl std::error::Error for CloseError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.end.as_ref().map(|end| {
            let end: &(dyn std::error::Error + 'static) = end;
            end
        })
    }
}
