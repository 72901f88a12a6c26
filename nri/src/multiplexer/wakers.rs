//! The waker of the shared stream.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};

use super::trunk::{Place, SIDES};

/// Wakes the drivers of the connections. The stream remembers the waker of its last poll only, and
/// whichever driver runs moves the bytes of both.
///
/// A driver that has nothing to do takes a microsecond to find that out. Where one connection is busy
/// and the other is not, the other stands by: it is not woken, and looks after a while by itself
/// whether the busy one has been stuck.
#[derive(Debug, Default)]
pub(super) struct Wakers {
    drivers: Mutex<[Driver; SIDES]>,
}

#[derive(Debug, Default)]
struct Driver {
    waker: Option<Waker>,
    stands_by: bool,
}

impl Wakers {
    /// Before the stream is polled for this connection, or a wake-up in between would be lost.
    pub(super) fn set(&self, place: Place, cx: &Context<'_>) {
        let driver = &mut self.lock()[place];
        if !(driver.waker.as_ref()).is_some_and(|known| known.will_wake(cx.waker())) {
            driver.waker = Some(cx.waker().clone());
        }
        driver.stands_by = false;
    }

    pub(super) fn stand_by(&self, place: Place) {
        self.lock()[place].stands_by = true;
    }

    pub(super) fn forget(&self, place: Place) {
        let waker = self.lock()[place].waker.take();
        drop(waker);
    }

    pub(super) fn wake(&self, place: Place) {
        let waker = self.lock()[place].waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, [Driver; SIDES]> {
        self.drivers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Wakers {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let wakers = {
            let mut drivers = self.lock();
            // One that is busy and has no waker here has been called already, or is stuck.
            let all = drivers.iter().all(|driver| driver.stands_by);
            (drivers.each_mut()).map(|driver| {
                if all || !driver.stands_by {
                    driver.waker.take()
                } else {
                    None
                }
            })
        };
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}
