//! What a server is made of: its methods and its settings.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use protobuf::Message;
use tokio::sync::watch;

use super::context::Context;
use super::method::{Method, Methods, Responder, Typed, Untyped};
use super::streaming::{self, Requests, Responses};
use super::{Phase, Server, Serving};
use crate::config::{DriverThread, ServerConfig, check_limits};
use crate::error::ConfigError;
use crate::keepalive::Keepalive;
use crate::status::Status;
use crate::streaming::{decode_bytes, decode_message, encode_bytes, encode_message};
use crate::wire::Raw;

/// Collects the methods and settings of a [`Server`].
#[derive(Debug, Default)]
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
