//! Where a model check may let another thread go on.
//!
//! All threads of a model are played on one, and none is left while it holds a lock. So a point in front
//! of each lock stands for all orders in which real threads could take it.

use std::cell::Cell;
use std::sync::{Mutex, TryLockError};
use std::thread;
use std::time::Duration;

thread_local! {
    static MODELLED: Cell<bool> = const { Cell::new(false) };
    static ALONE: Cell<bool> = const { Cell::new(false) };
}

/// The thread plays a model from here on.
pub(super) fn begin() {
    MODELLED.set(true);
}

/// Whether a model is played, and has not failed.
pub(super) fn goes_on() -> bool {
    MODELLED.get() && !thread::panicking()
}

/// Runs it with no point within.
pub(super) fn alone<R>(run: impl FnOnce() -> R) -> R {
    ALONE.set(true);
    let result = run();
    ALONE.set(false);
    result
}

/// Others may go on here. Free of charge where no model is played.
pub(super) fn point() {
    if goes_on() && !ALONE.get() {
        shuttle::thread::sleep(Duration::ZERO);
    }
}

/// The same in front of a lock. It is free: whoever holds it calls no waker and no system (law 2).
pub(super) fn point_before<T>(lock: &Mutex<T>) {
    if goes_on() {
        point();
        let is_held = || matches!(lock.try_lock(), Err(TryLockError::WouldBlock));
        let was_held = is_held();
        // What a panic unwinds would wait for it for ever.
        while is_held() {
            shuttle::thread::yield_now();
        }
        assert!(!was_held, "a waker or a stream is called under the lock");
    }
}
