//! One open stream, from its opening to its late record, and the table of them.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::mem;

use super::inbox::Inbox;
use crate::tuning::KEPT_ENTRIES;

/// The record that one side keeps of a stream beside its halves.
pub(crate) trait StreamRecord: fmt::Debug + Send + 'static {
    /// The failure of the stream's messages.
    type Failure: fmt::Debug + Send;

    /// Whether a stream that has ended is kept for this.
    fn is_needed(&self) -> bool;
}

/// All that is true of one stream (law 1).
#[derive(Debug)]
pub(crate) struct Stream<K: StreamRecord> {
    /// Whether its end is still to come: the peer's last frame on a client, this side's on a server.
    pub(crate) open: bool,
    /// This side's half: messages that are sent.
    pub(super) local: Local,
    /// Whether a message was queued.
    pub(super) has_sent: bool,
    /// The peer's half: what has come.
    pub(crate) inbox: Inbox<K::Failure>,
    /// The rest, which differs between the two sides.
    pub(crate) own: K,
}

/// This side's half of a stream.
///
/// ```text
///            half-close, or given up          the peer's last frame, or the frame has left
///   Open ------------------------> HalfClosed ------------------------> Closed
///     \__________________________ the peer's last frame ___________________/
/// ```
///
/// The last frame of a server ends a stream whole (RFC KA-39).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Local {
    /// Messages may follow the frame with this number. The sender may wait for room, with a ticket.
    Open { newest: u64, ticket: Option<u64> },
    /// The frame with this number is this side's last.
    HalfClosed { newest: u64 },
    /// Nothing may be sent, or not any more.
    Closed,
}

impl<K: StreamRecord> Stream<K> {
    pub(crate) fn new(local: Local, inbox: Inbox<K::Failure>, own: K) -> Self {
        Self {
            open: true,
            local,
            has_sent: false,
            inbox,
            own,
        }
    }

    /// Whether nothing is left that anybody waits for.
    pub(super) fn is_over(&self) -> bool {
        !self.open
            && !self.inbox.has_receiver()
            && self.local == Local::Closed
            && !self.own.is_needed()
    }
}

/// Streams by their ids.
pub(crate) type Table<K> = HashMap<u32, Stream<K>, Spread>;

/// A table that a burst has left almost empty, in exchange for a small one. What is moved is a small part
/// of what has gone since, so that a removal costs the same as ever. Not only when the last one goes: a
/// call that stays for days would keep the memory of a burst for as long.
pub(super) fn left_by_burst<V>(
    table: &mut HashMap<u32, V, Spread>,
) -> Option<HashMap<u32, V, Spread>> {
    if table.capacity() <= KEPT_ENTRIES || table.len() >= table.capacity() / 16 {
        return None;
    }
    let mut small = HashMap::with_capacity_and_hasher(2 * table.len(), table.hasher().clone());
    small.extend(table.drain());
    Some(mem::replace(table, small))
}

/// Spreads ids over a table. A server's are chosen by its peer, so that the place of each depends on a
/// number that no peer knows.
#[derive(Clone)]
pub(crate) struct Spread(u64);

impl Spread {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed | 1)
    }
}

impl fmt::Debug for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Spread")
    }
}

impl BuildHasher for Spread {
    type Hasher = Product;

    fn build_hasher(&self) -> Product {
        Product {
            factor: self.0,
            product: 0,
        }
    }
}

/// The upper half of a product with a secret factor.
#[derive(Debug)]
pub(crate) struct Product {
    factor: u64,
    product: u64,
}

impl Hasher for Product {
    fn finish(&self) -> u64 {
        self.product.swap_bytes()
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32((*byte).into());
        }
    }

    fn write_u32(&mut self, id: u32) {
        self.product = (self.product ^ u64::from(id)).wrapping_mul(self.factor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_leaves_no_memory_behind_although_some_streams_go_on() {
        for stay in [0, 1, 100] {
            let mut table = HashMap::with_hasher(Spread::new(0x9e37_79b9_7f4a_7c15));
            let mut exchanged = 0;
            table.extend((0..60_000).map(|id| (id, id)));
            for id in stay..60_000 {
                table.remove(&id);
                exchanged += usize::from(left_by_burst(&mut table).is_some());
            }
            assert!(table.capacity() <= KEPT_ENTRIES.max(16 * 100), "{stay}");
            assert!((0..stay).all(|id| table.get(&id) == Some(&id)));
            assert!(exchanged <= 5, "{exchanged} exchanges for {stay}");
        }
    }
}
