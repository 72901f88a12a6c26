//! Panics of code that is not ours, which cost a call and nothing else.

use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs it. `None` if it panics.
///
/// What a panic carries may panic in its turn where it is dropped, behind whatever has caught the first
/// one ([rust#86027](https://github.com/rust-lang/rust/issues/86027)).
pub(crate) fn catch<T>(run: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(run))
        .map_err(|payload| {
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(payload)));
            // This one is let go: its drop could do the same, and so on without an end.
            dropped.unwrap_or_else(forget);
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use std::panic::panic_any;

    use super::*;

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic_any(Self);
        }
    }

    #[test]
    fn a_payload_that_panics_when_it_is_dropped_is_caught_too() {
        assert_eq!(catch(|| 1), Some(1));
        assert_eq!(catch(|| panic_any(Bomb)), None::<()>);
    }
}
