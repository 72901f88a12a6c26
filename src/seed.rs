//! A number that differs between connections, for the jitter of their PINGs.

use std::hash::{BuildHasher, RandomState};

/// Differs from connection to connection, so that many of them do not ask in step.
pub(crate) fn seed() -> u64 {
    RandomState::new().hash_one(())
}
