//! Serving calls: methods, listeners, single connections, and the way to stop.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protobuf::Message;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::warn;

use crate::config::{DriverThread, ServerConfig, check_limits};
use crate::connection::Connection;
use crate::error::{ConfigError, ConnectionError};
use crate::keepalive::Keepalive;
use crate::status::Status;
use crate::streaming::{decode_bytes, decode_message, encode_bytes, encode_message};
use crate::transport::{IntoTransport, Listener};
use crate::wire::Raw;

mod canary;
mod context;
mod method;
mod requests;
mod streaming;

pub use context::Context;
pub use streaming::{Requests, Responses};

use canary::Canary;
use method::{Method, Methods, Responder, Typed, Untyped};
use requests::ServerSide;

/// Waits between two failed accepts, growing: the usual cause is that descriptors are used up,
/// which passes, and a loop that does not wait makes it worse.
const ACCEPT_BACKOFF: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

/// How long a shutdown waits for what it has told to stop. A task needs one turn for that; a future
/// that nobody polls never has one, and must not hold up the process that wants to end.
const STOP_PATIENCE: Duration = Duration::from_secs(1);

/// Serves methods on listeners and on connected streams.
///
/// A clone is another handle of the same server.
#[derive(Clone, Debug)]
pub struct Server {
    shared: Arc<Serving>,
}

#[derive(Debug)]
struct Serving {
    methods: Arc<Methods>,
    config: ServerConfig,
    phase: watch::Sender<Phase>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Serving,
    /// Calls that run are ended, new ones refused.
    Draining,
    Stopped,
}

impl Server {
    /// Begins with no methods and the default settings.
    pub fn builder() -> ServerBuilder {
        ServerBuilder {
            methods: Methods::default(),
            config: ServerConfig::default(),
        }
    }

    /// Accepts and serves connections until [`shutdown`](Self::shutdown), then until those
    /// connections have ended.
    ///
    /// Errors of accepting are logged and waited out, for 5 ms at first and 1 s at most. The number
    /// of connections has no limit here; the limits of [`ServerBuilder`] are for each of them.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with time enabled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the listener and ends its connections at once.
    pub async fn serve(&self, listener: Listener) {
        let mut phase = self.shared.phase.subscribe();
        let mut connections = JoinSet::new();
        let canary = Canary::new(Handle::current());
        let mut backoff = ACCEPT_BACKOFF.0;
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = phase.wait_for(|phase| *phase != Phase::Serving) => break,
                Some(_) = connections.join_next() => continue,
            };
            match accepted {
                Ok(socket) => {
                    backoff = ACCEPT_BACKOFF.0;
                    let (server, canary) = (self.clone(), canary.clone());
                    connections.spawn(async move { server.serve_one(socket, canary).await });
                }
                Err(error) => {
                    warn!(%error, wait = ?backoff, "accepting failed");
                    tokio::select! {
                        () = tokio::time::sleep(backoff) => {}
                        _ = phase.wait_for(|phase| *phase != Phase::Serving) => break,
                    }
                    backoff = (backoff * 2).min(ACCEPT_BACKOFF.1);
                }
            }
        }
        drop(listener);
        while connections.join_next().await.is_some() {}
    }

    /// Serves one connected stream until it ends, and yields why it did. A peer that is done
    /// closes: [`ConnectionError::PeerClosed`] is the ordinary end.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with time enabled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the connection at once, or as soon as the
    /// [thread](ServerBuilder::driver_thread) that drives it comes to it. Handlers that run see it
    /// by [`Context::cancelled`]; their answers are dropped.
    pub async fn serve_connection(&self, stream: impl IntoTransport) -> ConnectionError {
        self.serve_one(stream, Canary::new(Handle::current())).await
    }

    async fn serve_one(&self, stream: impl IntoTransport, canary: Canary) -> ConnectionError {
        let Serving {
            methods,
            config,
            phase,
        } = &*self.shared;
        let side = ServerSide::new(Arc::clone(methods), config.limits, canary);
        let connection = Connection::new(stream, side, &config.keepalive, config.driver_thread);
        let shared = Arc::clone(connection.shared());
        let mut driver = pin!(connection.run());
        let mut phase = phase.subscribe();
        tokio::select! {
            biased;
            end = &mut driver => return end,
            _ = phase.wait_for(|phase| *phase != Phase::Serving) => shared.close(),
        }
        tokio::select! {
            biased;
            end = &mut driver => return end,
            _ = phase.wait_for(|phase| *phase == Phase::Stopped) => shared.abort(),
        }
        driver.await
    }

    /// Stops accepting, lets calls that run end, refuses new ones with UNAVAILABLE, and closes
    /// each connection when its last answer is written. What is not done after `limit` is cut.
    ///
    /// Returns whether all ended in time. The server serves nothing afterwards.
    ///
    /// [`serve`](Self::serve) and [`serve_connection`](Self::serve_connection) do the work, so they
    /// must go on being polled: in tasks of their own, or joined with this future. If they are not,
    /// this returns false 1 s after the limit. A handler that stops its own server spawns this
    /// future, since one that awaited it would wait for itself.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with time enabled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the server draining, without a limit.
    pub async fn shutdown(&self, limit: Duration) -> bool {
        let phase = &self.shared.phase;
        phase.send_if_modified(|phase| {
            let serving = *phase == Phase::Serving;
            if serving {
                *phase = Phase::Draining;
            }
            serving
        });
        let drained = tokio::time::timeout(limit, phase.closed()).await.is_ok();
        phase.send_replace(Phase::Stopped);
        // Only so that their sockets are closed when this returns.
        let _ = tokio::time::timeout(STOP_PATIENCE, phase.closed()).await;
        drained
    }
}

/// Collects the methods and settings of a [`Server`].
#[derive(Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct ServerBuilder {
    methods: Methods,
    config: ServerConfig,
}

impl ServerBuilder {
    /// Serves a unary method with messages of rust-protobuf.
    ///
    /// `service` is the full name, as `demo.Echo`, `method` the bare one, as `Say`. Of two handlers
    /// for one method the later one serves it.
    ///
    /// The handler runs in a task of its own on the runtime. A status it returns goes to the
    /// caller, but OK, which is no failure, as INTERNAL; a panic costs its call, which is answered
    /// INTERNAL, and nothing else. A request that cannot be decoded is answered INVALID_ARGUMENT
    /// without it, a message too large for a frame RESOURCE_EXHAUSTED.
    pub fn unary<Q, R, Answer>(
        mut self,
        service: &str,
        method: &str,
        handler: impl Fn(Context, Q) -> Answer + Send + Sync + 'static,
    ) -> Self
    where
        Q: Message,
        R: Message,
        Answer: Future<Output = Result<R, Status>> + Send + 'static,
    {
        let run = Method::Unary(Box::new(Typed::<_, Q>::new(handler)));
        self.methods.add(service, method, run);
        self
    }

    /// Serves a unary method with bytes, for messages that are encoded elsewhere. Otherwise as
    /// [`unary`](Self::unary).
    pub fn unary_bytes<Answer>(
        mut self,
        service: &str,
        method: &str,
        handler: impl Fn(Context, Bytes) -> Answer + Send + Sync + 'static,
    ) -> Self
    where
        Answer: Future<Output = Result<Bytes, Status>> + Send + 'static,
    {
        let run = Method::Unary(Box::new(Untyped::new(handler)));
        self.methods.add(service, method, run);
        self
    }

    /// Serves a method with one request and many responses. The handler sends these by
    /// [`Responses`]; the stream ends with it, with its status if it returns one.
    ///
    /// As for every method, the handler runs in a task of its own, and a panic costs its call.
    pub fn server_stream<Q, R, Answer>(
        mut self,
        service: &str,
        method: &str,
        handler: impl Fn(Context, Q, Responses<R>) -> Answer + Send + Sync + 'static,
    ) -> Self
    where
        Q: Message,
        R: Message,
        Answer: Future<Output = Result<(), Status>> + Send + 'static,
    {
        let run = streaming::server_stream(handler, (decode_message, encode_message));
        self.methods.add(service, method, run);
        self
    }

    /// Serves a method with many requests and one response, which the handler may give before the
    /// requests have ended; what comes after it is dropped.
    pub fn client_stream<Q, R, Answer>(
        mut self,
        service: &str,
        method: &str,
        handler: impl Fn(Context, Requests<Q>) -> Answer + Send + Sync + 'static,
    ) -> Self
    where
        Q: Message,
        R: Message,
        Answer: Future<Output = Result<R, Status>> + Send + 'static,
    {
        let reply = |responder: Responder, response: R| responder.reply(&response);
        let run = streaming::client_stream(handler, decode_message, reply);
        self.methods.add(service, method, run);
        self
    }

    /// Serves a method with many requests and many responses. The stream ends with the handler,
    /// with its status if it returns one.
    pub fn bidi_stream<Q, R, Answer>(
        mut self,
        service: &str,
        method: &str,
        handler: impl Fn(Context, Requests<Q>, Responses<R>) -> Answer + Send + Sync + 'static,
    ) -> Self
    where
        Q: Message,
        R: Message,
        Answer: Future<Output = Result<(), Status>> + Send + 'static,
    {
        let run = streaming::bidi_stream(handler, (decode_message, encode_message));
        self.methods.add(service, method, run);
        self
    }

    /// [`server_stream`](Self::server_stream) with bytes, for messages that are encoded elsewhere.
    pub fn server_stream_bytes<Answer>(
        mut self,
        service: &str,
        method: &str,
        handler: impl Fn(Context, Bytes, Responses<[u8]>) -> Answer + Send + Sync + 'static,
    ) -> Self
    where
        Answer: Future<Output = Result<(), Status>> + Send + 'static,
    {
        let run = streaming::server_stream(handler, (decode_bytes, encode_bytes));
        self.methods.add(service, method, run);
        self
    }

    /// [`client_stream`](Self::client_stream) with bytes, for messages that are encoded elsewhere.
    pub fn client_stream_bytes<Answer>(
        mut self,
        service: &str,
        method: &str,
        handler: impl Fn(Context, Requests<Bytes>) -> Answer + Send + Sync + 'static,
    ) -> Self
    where
        Answer: Future<Output = Result<Bytes, Status>> + Send + 'static,
    {
        let reply = |responder: Responder, response: Bytes| responder.reply(&Raw(&response));
        let run = streaming::client_stream(handler, decode_bytes, reply);
        self.methods.add(service, method, run);
        self
    }

    /// [`bidi_stream`](Self::bidi_stream) with bytes, for messages that are encoded elsewhere.
    pub fn bidi_stream_bytes<Answer>(
        mut self,
        service: &str,
        method: &str,
        handler: impl Fn(Context, Requests<Bytes>, Responses<[u8]>) -> Answer + Send + Sync + 'static,
    ) -> Self
    where
        Answer: Future<Output = Result<(), Status>> + Send + 'static,
    {
        let run = streaming::bidi_stream(handler, (decode_bytes, encode_bytes));
        self.methods.add(service, method, run);
        self
    }

    /// When to ask whether clients are alive. [`Keepalive::on_demand`] by default.
    ///
    /// A server answers every PING, whatever is set here, and sends one itself only to a client
    /// that has sent one before (RFC KA-28).
    pub fn keepalive(mut self, keepalive: Keepalive) -> Self {
        self.config.keepalive = keepalive;
        self
    }

    /// Which thread reads, writes and answers PINGs. [`DriverThread::Shared`] by default.
    ///
    /// In either case handlers run on the runtime that serves, and connections are accepted there:
    /// one that is blocked accepts none.
    pub fn driver_thread(mut self, thread: DriverThread) -> Self {
        self.config.driver_thread = thread;
        self
    }

    /// Handlers that run at one time on one connection: at least 1, 1,024 by default. Further
    /// requests wait.
    pub fn handler_limit(mut self, handlers: usize) -> Self {
        self.config.limits.handlers = handlers;
        self
    }

    /// Requests that wait for a handler to end, on one connection: at least 1, 1,024 by default.
    /// Further ones are answered RESOURCE_EXHAUSTED at once.
    ///
    /// Each may be as large as a frame, 4 MiB: lower this for clients that are not trusted.
    pub fn waiting_limit(mut self, waiting: usize) -> Self {
        self.config.limits.waiting = waiting;
        self
    }

    /// Bytes of one stream's requests that were received and not taken by the handler yet: at least
    /// 1, 16 MiB by default. Beyond it that call is answered RESOURCE_EXHAUSTED; a message always
    /// fits into an empty queue. Each message counts as 64 bytes more than it has.
    pub fn stream_limit(mut self, bytes: usize) -> Self {
        self.config.limits.stream_bytes = bytes;
        self
    }

    /// Bytes of answers that a client has not taken, on one connection: at least 1, 16 MiB by
    /// default. Beyond it no more of its requests are read until it takes some. Responses of
    /// streams wait in their senders before it comes to that.
    pub fn owed_limit(mut self, bytes: usize) -> Self {
        self.config.limits.owed_bytes = bytes;
        self
    }

    /// Makes the server.
    ///
    /// # Errors
    ///
    /// If a setting is out of its range; the error names it.
    pub fn build(self) -> Result<Server, ConfigError> {
        let Self { methods, config } = self;
        config.keepalive.validate()?;
        check_limits(&[
            ("handler_limit", config.limits.handlers),
            ("waiting_limit", config.limits.waiting),
            ("owed_limit", config.limits.owed_bytes),
            ("stream_limit", config.limits.stream_bytes),
        ])?;
        Ok(Server {
            shared: Arc::new(Serving {
                methods: Arc::new(methods),
                config,
                phase: watch::Sender::new(Phase::Serving),
            }),
        })
    }
}
