//! One open stream, from its opening to its late record, and the table of them.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hasher};

use super::inbox::Inbox;

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
