//! Where a handler is polled first.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle;

use crate::config::{Dispatch, HandlerFuture};
use crate::panics::catch;
use crate::tuning::{INLINE_HANDLERS, INLINE_REQUEST};

/// Handlers that the driver may still poll in its present turn.
#[derive(Debug)]
pub(super) struct Budget {
    dispatch: Dispatch,
    left: usize,
}

/// Who polls a handler first.
#[derive(Clone, Copy, Debug)]
pub(super) enum First {
    Driver,
    Task,
    /// Whoever this is.
    By(fn(HandlerFuture)),
}

impl Budget {
    pub(super) fn new(dispatch: Dispatch) -> Self {
        Self { dispatch, left: 0 }
    }

    /// A turn of the driver begins.
    pub(super) fn renew(&mut self) {
        self.left = INLINE_HANDLERS;
    }

    /// For the handler of a request with so many bytes.
    pub(super) fn first(&mut self, bytes: usize) -> First {
        match self.dispatch {
            Dispatch::By(run) => First::By(run),
            Dispatch::Inline if self.left > 0 && bytes <= INLINE_REQUEST => {
                self.left -= 1;
                First::Driver
            }
            Dispatch::Inline | Dispatch::Spawn => First::Task,
        }
    }
}

/// Starts a handler, which belongs to the runtime `handlers` wherever the driver runs.
pub(super) fn start(
    handler: impl Future<Output = ()> + Send + 'static,
    first: First,
    handlers: &Handle,
) {
    // In a box: tasks are moved as they begin, and this one may be large.
    let mut handler = Caught(Box::pin(handler));
    match first {
        First::Driver => {
            // A wake meanwhile need not be heard: its task polls it once more in any case.
            let mut cx = Context::from_waker(Waker::noop());
            if Pin::new(&mut handler).poll(&mut cx).is_ready() {
                return;
            }
        }
        First::Task => {}
        First::By(run) => {
            let _entered = handlers.enter();
            return run(Box::pin(handler));
        }
    }
    handlers.spawn(handler);
}

/// A handler whose panic ends it and nothing else. It costs its call, which was answered as the
/// responder was dropped. The payload is dealt with here: a runtime drops it where a panic of that drop
/// takes a thread with it.
struct Caught<F>(Pin<Box<F>>);

impl<F: Future<Output = ()>> Future for Caught<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        catch(|| self.0.as_mut().poll(cx)).unwrap_or(Poll::Ready(()))
    }
}
