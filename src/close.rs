//! Closing a client in order.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::connection::Handle;
use crate::error::CloseError;

/// The closing of a client: a future, of [`Client::close`](crate::Client::close).
///
/// # Cancel safety
///
/// Dropping it before it is awaited does nothing. Dropping it later ends the connection now, as
/// [`Client::abort`](crate::Client::abort) does.
#[must_use = "a client is closed when this is awaited"]
pub struct Close {
    handle: Handle,
    timeout: Duration,
    closing: Option<Closing>,
}

type Closing = Pin<Box<dyn Future<Output = Result<(), CloseError>> + Send>>;

/// How long it may take if nothing else is said.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

impl Close {
    pub(crate) fn new(handle: Handle) -> Self {
        Self {
            handle,
            timeout: CLOSE_TIMEOUT,
            closing: None,
        }
    }

    /// How long it may take, counted from when it is first awaited: 10 s by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

impl Future for Close {
    type Output = Result<(), CloseError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self {
            handle,
            timeout,
            closing,
        } = &mut *self;
        let closing = closing.get_or_insert_with(|| Box::pin(handle.clone().close(*timeout)));
        Poll::Ready(ready!(closing.as_mut().poll(cx)))
    }
}

impl fmt::Debug for Close {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Close")
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
