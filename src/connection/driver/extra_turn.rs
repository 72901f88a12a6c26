//! One turn of the scheduler, in which it asks the kernel what has come.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use tokio::task::yield_now;

/// A turn that the driver has given away before it believes a look.
///
/// The driver may be polled before it is over, since anybody may wake it: a handle, a timer. So that
/// it runs again proves nothing, and the turn has a waker of its own.
#[derive(Debug)]
pub(super) struct ExtraTurn {
    over: AtomicBool,
    driver: Waker,
}

impl ExtraTurn {
    /// Wakes the driver when it is over.
    pub(super) fn begin(driver: &Waker) -> Arc<Self> {
        let turn = Arc::new(Self {
            over: AtomicBool::new(false),
            driver: driver.clone(),
        });
        let waker = Waker::from(Arc::clone(&turn));
        // The scheduler has the waker from here on, and the future has done its work.
        let _ = pin!(yield_now()).poll(&mut Context::from_waker(&waker));
        turn
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

impl Wake for ExtraTurn {
    fn wake(self: Arc<Self>) {
        self.over.store(true, Ordering::Release);
        self.driver.wake_by_ref();
    }
}
