//! The reply slot: room for one PONG that waits to be written.

use bytes::Bytes;

/// Holds the newest PING that has not been answered yet.
///
/// A peer that floods PINGs and never reads costs this one slot and nothing else: the newest PING
/// replaces an older one, and one PONG answers them all. So a flood needs no rate limit, and nobody
/// is disconnected for asking often (RFC KA-20).
#[derive(Debug, Default)]
pub struct ReplySlot {
    waiting: Option<Reply>,
}

/// The PONG to write: what the PING carried, to be sent back unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reply {
    /// The stream id of the PING, echoed and never interpreted.
    pub stream_id: u32,
    /// The payload of the PING, echoed and never interpreted.
    pub payload: Bytes,
}

impl ReplySlot {
    /// An empty slot.
    #[must_use]
    pub const fn new() -> Self {
        Self { waiting: None }
    }

    /// Notes a PING to answer. Returns true if an older one had not been answered yet and is
    /// replaced.
    pub fn put(&mut self, stream_id: u32, payload: Bytes) -> bool {
        self.waiting.replace(Reply { stream_id, payload }).is_some()
    }

    /// Takes the PONG to write next, which must go out before the next data frame.
    pub fn take(&mut self) -> Option<Reply> {
        self.waiting.take()
    }

    /// Whether no PONG waits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.waiting.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_ping_replaces_the_older_one() {
        let mut slot = ReplySlot::new();
        assert!(slot.is_empty());
        assert!(!slot.put(u32::MAX, Bytes::from_static(b"one")));
        assert!(slot.put(7, Bytes::from_static(b"two")));
        let reply = slot.take().unwrap();
        assert_eq!((reply.stream_id, &reply.payload[..]), (7, &b"two"[..]));
        assert_eq!(slot.take(), None);
        assert!(slot.is_empty());
    }
}
