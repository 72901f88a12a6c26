//! Letting others have the thread.

use std::future::{Future, poll_fn};
use std::mem;
use std::pin::pin;
use std::task::{Context, Poll};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::yield_now;

/// Has the task that is polled polled again, behind others.
pub(super) fn give_way(cx: &mut Context<'_>) {
    let flavor = Handle::try_current().map(|handle| handle.runtime_flavor());
    if let Ok(RuntimeFlavor::CurrentThread) = flavor {
        // Behind all of them: the task that runs such a runtime is none of those in the queue, and
        // would have to wait for many turns of this one.
        let _ = pin!(yield_now()).poll(cx);
    } else {
        // Where any thread may take it. What is put off like that waits for this very one, which the
        // next task may block.
        cx.waker().wake_by_ref();
    }
}

/// Gives all other tasks a turn.
pub(crate) async fn pause() {
    let mut paused = false;
    poll_fn(|cx| {
        if mem::replace(&mut paused, true) {
            return Poll::Ready(());
        }
        give_way(cx);
        Poll::Pending
    })
    .await;
}
