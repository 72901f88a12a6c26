//! The waker of the shared stream.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};

use super::trunk::{Place, SIDES};

/// Wakes the drivers of both connections. The stream remembers the waker of its last poll only, and
/// whichever driver runs first moves the bytes of both.
#[derive(Debug, Default)]
pub(super) struct Wakers {
    drivers: Mutex<[Option<Waker>; SIDES]>,
}

impl Wakers {
    /// Before the stream is polled for this connection, or a wake-up in between would be lost.
    pub(super) fn set(&self, place: Place, cx: &Context<'_>) {
        let driver = &mut self.lock()[place];
        if !(driver.as_ref()).is_some_and(|known| known.will_wake(cx.waker())) {
            *driver = Some(cx.waker().clone());
        }
    }

    pub(super) fn forget(&self, place: Place) {
        drop(self.lock()[place].take());
    }

    pub(super) fn wake(&self, place: Place) {
        let driver = self.lock()[place].take();
        if let Some(driver) = driver {
            driver.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, [Option<Waker>; SIDES]> {
        self.drivers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Wakers {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        for place in 0..SIDES {
            Self::wake(self, place);
        }
    }
}
