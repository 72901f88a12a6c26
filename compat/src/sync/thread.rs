//! The thread that drives all connections, and waiting for it.

use std::future::{Future, pending};
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use tokio::runtime::{Builder, Handle, Runtime};

/// Handlers that run at one time in the process. Each is a thread while it runs.
const HANDLER_THREADS: usize = 4096;

/// The runtime on that thread. It is started at the first use, and runs as long as the process.
pub(super) fn runtime() -> io::Result<Handle> {
    static RUNTIME: Mutex<Option<Handle>> = Mutex::new(None);
    let mut started = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(runtime) = &*started {
        return Ok(runtime.clone());
    }
    let runtime = Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(HANDLER_THREADS)
        .thread_name("ttrpc-handler")
        .build()?;
    let handle = runtime.handle().clone();
    let (sender, receiver) = mpsc::channel::<Runtime>();
    thread::Builder::new()
        .name("ttrpc".to_owned())
        .spawn(move || {
            if let Ok(runtime) = receiver.recv() {
                runtime.block_on(pending::<()>());
            }
        })?;
    let _ = sender.send(runtime);
    *started = Some(handle.clone());
    Ok(handle)
}

struct Parked(Thread);

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits on this thread. Within a runtime too, where blocking is the caller's affair: users of `ttrpc` do
/// so, and tokio's own way to wait would panic.
pub(super) fn wait<F: Future>(future: F) -> F::Output {
    thread_local! {
        static WAKER: Waker = Waker::from(Arc::new(Parked(thread::current())));
    }
    let waker = WAKER.with(Waker::clone);
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
        thread::park();
    }
}
