//! The limits of a connection: every queue has a bound, and here is why each is what it is.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::ptr::fn_addr_eq;
use std::time::Duration;

use crate::error::ConfigError;
use crate::hook::Hook;
use crate::keepalive::Keepalive;

/// Which thread drives a connection: reads it, writes it, and answers PINGs on it.
///
/// Handlers run on the runtime that serves, whatever is set here, and calls are made from anywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DriverThread {
    /// A task of the runtime that is there already. It costs nothing, and code that blocks a thread
    /// of that runtime can keep PINGs from being answered: the process then looks dead.
    ///
    /// On a runtime with several threads too, even if the others have nothing to do: a driver that
    /// is woken by a task waits in a place of that task's own thread until the task gives way
    /// ([tokio#4941](https://github.com/tokio-rs/tokio/issues/4941)).
    #[default]
    Shared,
    /// The one thread of this process that drives all connections which ask for it. Whatever blocks
    /// elsewhere, PINGs are answered, and say whether handlers run (RFC KA-12).
    ///
    /// The thread is called `ttrpc-keepalive`, starts with the first such connection, sleeps while
    /// there is nothing to do, and runs as long as the process: after a `fork` the child does not
    /// have it. A connection on it does not end with the runtime from which it was made, but as
    /// every other, with its last handle or with the future that serves it. If the thread cannot be
    /// started, the connection ends at once with the operating system's error.
    ///
    /// Sockets move to it. A [`ByteStream`](crate::ByteStream) is polled there and stays what it
    /// is: one that needs a runtime of its own needs that to run. The thread has the time of the
    /// machine, also where a test has paused that of its runtime.
    Dedicated,
}

/// The handler of a call, and its answer. Panics of the handler are caught in it.
pub type HandlerFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Who polls the handler of a unary call first.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub enum Dispatch {
    /// A task of its own on the runtime that serves. Whatever handlers do, they hold up the driver
    /// and each other only if they keep all threads of the runtime.
    ///
    /// With one exception: what a handler wakes waits on the handler's own thread until the handler
    /// gives way ([tokio#4941](https://github.com/tokio-rs/tokio/issues/4941)). One that sends a
    /// message of a stream and then blocks may hold up a driver on the same runtime so;
    /// [`DriverThread::Dedicated`] has none of it.
    #[default]
    Spawn,
    /// The connection's driver, once, where it has read the request; a task of its own goes on with
    /// it unless it is ready by then. For handlers that are short and never block: it saves the task.
    ///
    /// **While a handler is polled there its connection neither reads nor answers PINGs.** One that
    /// blocks or computes for long makes this process look dead to that client. Of one turn of the
    /// driver 256 handlers are polled so, and none whose request is larger than 16 KiB; the others
    /// have tasks.
    ///
    /// There is no budget of tokio's around that first poll: a handler that takes from a channel
    /// which is never empty does not give way within it.
    ///
    /// Not together with [`DriverThread::Dedicated`], whose thread is kept free of all handlers.
    Inline,
    /// Whatever this function gives it to, from its beginning to its end: threads for handlers that block,
    /// for example, which need not send their work to such a thread and wait for it then, and whose
    /// answer is written from there. The function is called by the driver, and must not block.
    ///
    /// ```
    /// use tokio::runtime::Handle;
    /// use ttrpc_keepalive::{Dispatch, Server};
    ///
    /// let server = Server::builder().dispatch(Dispatch::By(|handler| {
    ///     let runtime = Handle::current();
    ///     runtime.clone().spawn_blocking(move || runtime.block_on(handler));
    /// }));
    /// ```
    ///
    /// A handler that is dropped before its end costs its call.
    By(fn(HandlerFuture)),
}

/// Two functions are the same if their addresses are.
impl PartialEq for Dispatch {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Spawn, Self::Spawn) | (Self::Inline, Self::Inline) => true,
            (Self::By(one), Self::By(other)) => fn_addr_eq(*one, *other),
            _ => false,
        }
    }
}

impl Eq for Dispatch {}

/// The settings of a client's connection, as they are in use. To be read from
/// [`Client::settings`](crate::Client::settings); each is described where it is set.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientSettings {
    /// [`ClientBuilder::keepalive`](crate::ClientBuilder::keepalive).
    pub keepalive: Keepalive,
    /// [`ClientBuilder::connect_timeout`](crate::ClientBuilder::connect_timeout).
    pub connect_timeout: Duration,
    /// [`ClientBuilder::connect_retry`](crate::ClientBuilder::connect_retry), `None` by default.
    pub connect_retry: Option<Duration>,
    /// [`ClientBuilder::call_timeout`](crate::ClientBuilder::call_timeout), `None` by default.
    pub call_timeout: Option<Duration>,
    /// [`ClientBuilder::driver_thread`](crate::ClientBuilder::driver_thread).
    pub driver_thread: DriverThread,
    /// [`ClientBuilder::header_timeout`](crate::ClientBuilder::header_timeout), `None` by default.
    pub header_timeout: Option<Duration>,
    /// The bounds of its queues.
    pub limits: ClientLimits,
    /// By service, then by method: borrowed names find their entry without being copied.
    pub(crate) method_timeouts: HashMap<String, HashMap<String, Option<Duration>>>,
    pub(crate) hook: Option<Hook>,
}

impl ClientSettings {
    /// How long a unary call of this method may take if it is not told otherwise. `None` if it may
    /// take for ever.
    pub fn timeout_of(&self, service: &str, method: &str) -> Option<Duration> {
        self.named(service, method).unwrap_or(self.call_timeout)
    }

    /// The same for a streaming call, to which the default does not apply.
    pub fn stream_timeout_of(&self, service: &str, method: &str) -> Option<Duration> {
        self.named(service, method).flatten()
    }

    fn named(&self, service: &str, method: &str) -> Option<Option<Duration>> {
        if self.method_timeouts.is_empty() {
            return None;
        }
        self.method_timeouts.get(service)?.get(method).copied()
    }
}

impl Default for ClientSettings {
    fn default() -> Self {
        Self {
            keepalive: Keepalive::on_demand(),
            connect_timeout: Duration::from_secs(10),
            connect_retry: None,
            call_timeout: None,
            driver_thread: DriverThread::default(),
            header_timeout: None,
            limits: ClientLimits::default(),
            method_timeouts: HashMap::new(),
            hook: None,
        }
    }
}

/// The bounds of a client's queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientLimits {
    /// Bytes of requests that wait to be written. Beyond it a call waits for room before it is
    /// encoded, so a peer that does not read costs this much and no more.
    pub outbox_bytes: usize,
    /// Calls that wait for an answer. Beyond it a call waits before it is sent, so that a peer
    /// that never answers calls without a timeout cannot make the table grow for ever.
    pub calls: usize,
    /// Bytes of one stream's messages that were received and not taken. Beyond it the stream fails:
    /// the reader never waits for a consumer, or everything else would wait with it.
    pub stream_bytes: usize,
    /// The same of all streams. A server that fills each would otherwise cost a client as many times
    /// as much as it has streams.
    pub download_bytes: usize,
    /// Late calls that are followed until their answer comes; the oldest makes room.
    pub late_records: usize,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            // Four frames of the largest size: enough to keep a socket busy.
            outbox_bytes: 16 << 20,
            calls: 1 << 16,
            stream_bytes: STREAM_BYTES,
            // Several consumers may be late at one time.
            download_bytes: 4 * STREAM_BYTES,
            late_records: 1024,
        }
    }
}

/// The settings of a server, as they are in use. To be read from
/// [`Server::settings`](crate::Server::settings); each is described where it is set.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerSettings {
    /// [`ServerBuilder::keepalive`](crate::ServerBuilder::keepalive).
    pub keepalive: Keepalive,
    /// [`ServerBuilder::driver_thread`](crate::ServerBuilder::driver_thread).
    pub driver_thread: DriverThread,
    /// [`ServerBuilder::dispatch`](crate::ServerBuilder::dispatch).
    pub dispatch: Dispatch,
    /// Connections of one listener at one time. Beyond it none is accepted: where the operating
    /// system allows a process a million descriptors, a client that opens connections and closes
    /// none would otherwise take the memory.
    pub connection_limit: usize,
    /// [`ServerBuilder::observe_pauses`](crate::ServerBuilder::observe_pauses), or that a method
    /// [needs it](crate::MethodOptions::refuse_waited). `false` by default.
    pub observe_pauses: bool,
    /// [`ServerBuilder::first_request_timeout`](crate::ServerBuilder::first_request_timeout), `None` by
    /// default.
    pub first_request_timeout: Option<Duration>,
    /// [`ServerBuilder::header_timeout`](crate::ServerBuilder::header_timeout), `None` by default.
    pub header_timeout: Option<Duration>,
    /// For each connection.
    pub limits: ServerLimits,
    /// Handlers that run at one time on all connections. `None` for no limit but that of each.
    pub total_handlers: Option<usize>,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            keepalive: Keepalive::default(),
            driver_thread: DriverThread::default(),
            dispatch: Dispatch::default(),
            connection_limit: 1 << 16,
            observe_pauses: false,
            first_request_timeout: None,
            header_timeout: None,
            limits: ServerLimits::default(),
            total_handlers: None,
        }
    }
}

/// The bounds of a server's queues, for each connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerLimits {
    /// Handlers that run at one time on one connection.
    pub handlers: usize,
    /// Requests that wait for a handler to end. Beyond it a request is answered
    /// RESOURCE_EXHAUSTED at once: the reader never waits for handlers, or PINGs would.
    pub waiting: usize,
    /// Bytes of these requests, and of the messages that have come for them: as many would be four
    /// GiB if each were as large as a frame.
    pub waiting_bytes: usize,
    /// Bytes of answers that wait to be written. Beyond it the server stops reading requests
    /// until the client has taken some: it alone does so, since two sides that both wait for the
    /// other to read would wait for ever. Stream messages beyond it wait in their senders.
    pub owed_bytes: usize,
    /// Bytes of one stream's messages that were received and not taken, as for a client.
    pub stream_bytes: usize,
    /// The same of all streams. A client opens as many as handlers run, and would fill each.
    pub upload_bytes: usize,
}

/// Four messages of the largest size: a consumer that is late for a moment loses nothing.
const STREAM_BYTES: usize = 16 << 20;

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            handlers: 1024,
            waiting: 1024,
            waiting_bytes: 16 << 20,
            owed_bytes: 16 << 20,
            stream_bytes: STREAM_BYTES,
            // Several consumers may be late at one time.
            upload_bytes: 4 * STREAM_BYTES,
        }
    }
}

/// Refuses a time of zero, in which nothing can be done.
pub(crate) fn check_timeouts(
    timeouts: &[(&'static str, Option<Duration>)],
) -> Result<(), ConfigError> {
    match timeouts
        .iter()
        .find(|(_, time)| *time == Some(Duration::ZERO))
    {
        Some((setting, _)) => Err(ConfigError::ZeroTimeout { setting }),
        None => Ok(()),
    }
}

/// Refuses a limit of zero: such a connection could never make progress.
pub(crate) fn check_limits(limits: &[(&'static str, usize)]) -> Result<(), ConfigError> {
    match limits.iter().find(|(_, value)| *value == 0) {
        Some((setting, _)) => Err(ConfigError::ZeroLimit { setting }),
        None => Ok(()),
    }
}
