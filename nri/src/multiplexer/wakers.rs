//! The waker of the shared stream.

use std::mem;
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

/// How one driver is woken.
#[derive(Clone, Debug, Default)]
pub(super) struct Driver {
    waker: Option<Waker>,
    stands_by: bool,
}

impl Wakers {
    /// Before the stream is polled for this connection, or a wake-up in between would be lost.
    ///
    /// `known` is the connection's own copy of what is set: it polls several times for each call, mostly with
    /// the same waker, and needs no lock to find that out.
    pub(super) fn set(&self, place: Place, known: &mut Driver, cx: &Context<'_>) {
        let is_same = (known.waker.as_ref()).is_some_and(|waker| waker.will_wake(cx.waker()));
        if is_same && !known.stands_by {
            return;
        }
        known.waker = Some(cx.waker().clone());
        known.stands_by = false;
        let before = mem::replace(&mut self.lock()[place], known.clone());
        drop(before);
    }

    pub(super) fn stand_by(&self, place: Place, known: &mut Driver) {
        known.stands_by = true;
        self.lock()[place].stands_by = true;
    }

    pub(super) fn forget(&self, place: Place) {
        let waker = self.lock()[place].waker.take();
        drop(waker);
    }

    pub(super) fn wake(&self, place: Place) {
        let waker = self.lock()[place].waker.clone();
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
            let drivers = self.lock();
            let all = drivers.iter().all(|driver| driver.stands_by);
            (drivers.each_ref()).map(|driver| {
                if all || !driver.stands_by {
                    driver.waker.clone()
                } else {
                    None
                }
            })
        };
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}
