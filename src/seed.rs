//! A number that differs between connections, for the jitter of their PINGs.

use std::hash::{BuildHasher, RandomState};
use std::process;

use crate::clock;

/// Differs from connection to connection, so that many of them do not ask in step.
pub(crate) fn seed() -> u64 {
    mixed(&RandomState::new(), process::id(), clock::moment())
}

/// A process that was forked has the keys of its parent, and so have all of its siblings: its number
/// and the time make the difference.
fn mixed(keys: &RandomState, process: u32, moment: u128) -> u64 {
    keys.hash_one((process, moment))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn workers_that_were_forked_have_seeds_of_their_own() {
        let inherited = RandomState::new();
        let by_process = (0..8).map(|process| mixed(&inherited, process, 7));
        // In a namespace of its own each is the first process.
        let by_moment = (8..16).map(|moment| mixed(&inherited, 1, moment));
        let seeds: BTreeSet<u64> = by_process.chain(by_moment).collect();
        assert_eq!(seeds.len(), 16);
        assert_ne!(seed(), seed());
    }
}
