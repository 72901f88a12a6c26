//! The one thread of this crate.

use std::future::pending;
use std::io;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

use tokio::runtime::{Builder, Handle, Runtime};

/// The runtime of the dedicated thread, which is started at the first use and runs as long as the
/// process. It keeps nothing alive: each connection on it ends with its handles, or with the future
/// that serves it.
pub(super) fn dedicated() -> io::Result<Handle> {
    static RUNTIME: Mutex<Option<Handle>> = Mutex::new(None);
    // A thread that panics here has stored nothing.
    let mut started = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(runtime) = &*started {
        return Ok(runtime.clone());
    }
    // The thread first: a runtime that is left without one cannot be dropped within a task.
    let (sender, receiver) = mpsc::channel::<Runtime>();
    thread::Builder::new()
        .name("ttrpc-keepalive".to_owned())
        .spawn(move || {
            if let Ok(runtime) = receiver.recv() {
                runtime.block_on(pending::<()>());
            }
        })?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = started.insert(runtime.handle().clone()).clone();
    let _ = sender.send(runtime);
    Ok(handle)
}
