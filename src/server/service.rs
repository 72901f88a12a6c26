//! Methods that share a state.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use super::context::Context;
use super::handler::{self, Handler};
use super::options::MethodOptions;
use super::streaming::{Requests, Responses};
use crate::status::Status;
use crate::wire::{Decode, Encode};

/// Methods of one service that share a state, for [`ServerBuilder::service`].
///
/// Each handler is given the state as its first argument; otherwise the methods are those of
/// [`ServerBuilder`]. A handler may be a closure, or an associated function of the state:
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use protobuf::well_known_types::wrappers::StringValue;
/// use ttrpc_keepalive::{Context, Server, Service, Status};
///
/// #[derive(Default)]
/// struct Echo {
///     said: AtomicU64,
/// }
///
/// impl Echo {
///     async fn say(self: Arc<Self>, _: Context, request: StringValue) -> Result<StringValue, Status> {
///         self.said.fetch_add(1, Ordering::Relaxed);
///         Ok(request)
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let service = Service::new("demo.Echo", Arc::new(Echo::default()))
///     .unary("Say", Echo::say)
///     .unary("Count", |echo, _, _: StringValue| async move {
///         let mut count = StringValue::new();
///         count.value = echo.said.load(Ordering::Relaxed).to_string();
///         Ok(count)
///     });
/// let server = Server::builder().service(service).build()?;
/// # let _ = server; Ok(()) }
/// ```
///
/// The state may be a trait object, for one service with several implementations:
/// `Service::new("demo.Echo", state)` with an `Arc<dyn Echo>` is a `Service<dyn Echo>`.
///
/// [`ServerBuilder`]: crate::ServerBuilder
/// [`ServerBuilder::service`]: crate::ServerBuilder::service
#[must_use = "a service does nothing until it is given to a server"]
pub struct Service<S: ?Sized> {
    name: String,
    state: Arc<S>,
    methods: Vec<(String, Handler)>,
    options: Vec<(String, MethodOptions)>,
}

impl<S: ?Sized + Send + Sync + 'static> Service<S> {
    /// A service with no methods. `name` is its full name, as `demo.Echo`.
    pub fn new(name: &str, state: Arc<S>) -> Self {
        Self {
            name: name.to_owned(),
            state,
            methods: Vec::new(),
            options: Vec::new(),
        }
    }

    /// As [`ServerBuilder::unary`](crate::ServerBuilder::unary).
    pub fn unary<Q, R, Answer>(
        self,
        method: &str,
        handler: impl Fn(Arc<S>, Context, Q) -> Answer + Send + Sync + 'static,
    ) -> Self
    where
        Q: Decode,
        R: Encode + 'static,
        Answer: Future<Output = Result<R, Status>> + Send + 'static,
    {
        let state = Arc::clone(&self.state);
        let handler = move |context, request| handler(Arc::clone(&state), context, request);
        self.add(method, handler::unary(handler))
    }

    /// As [`ServerBuilder::server_stream`](crate::ServerBuilder::server_stream).
    pub fn server_stream<Q, R, Answer>(
        self,
        method: &str,
        handler: impl Fn(Arc<S>, Context, Q, Responses<R>) -> Answer + Send + Sync + 'static,
    ) -> Self
    where
        Q: Decode,
        R: Encode + 'static,
        Answer: Future<Output = Result<(), Status>> + Send + 'static,
    {
        let state = Arc::clone(&self.state);
        let handler = move |context, request, responses| {
            handler(Arc::clone(&state), context, request, responses)
        };
        self.add(method, handler::server_stream(handler))
    }

    /// As [`ServerBuilder::client_stream`](crate::ServerBuilder::client_stream).
    pub fn client_stream<Q, R, Answer>(
        self,
        method: &str,
        handler: impl Fn(Arc<S>, Context, Requests<Q>) -> Answer + Send + Sync + 'static,
    ) -> Self
    where
        Q: Decode,
        R: Encode + 'static,
        Answer: Future<Output = Result<R, Status>> + Send + 'static,
    {
        let state = Arc::clone(&self.state);
        let handler = move |context, requests| handler(Arc::clone(&state), context, requests);
        self.add(method, handler::client_stream(handler))
    }

    /// As [`ServerBuilder::bidi_stream`](crate::ServerBuilder::bidi_stream).
    pub fn bidi_stream<Q, R, Answer>(
        self,
        method: &str,
        handler: impl Fn(Arc<S>, Context, Requests<Q>, Responses<R>) -> Answer + Send + Sync + 'static,
    ) -> Self
    where
        Q: Decode,
        R: Encode + 'static,
        Answer: Future<Output = Result<(), Status>> + Send + 'static,
    {
        let state = Arc::clone(&self.state);
        let handler = move |context, requests, responses| {
            handler(Arc::clone(&state), context, requests, responses)
        };
        self.add(method, handler::bidi_stream(handler))
    }

    /// Serves a streaming method of any kind, which its handler decides when it ends: with `None` the
    /// stream ends plainly, as that of a method with many responses, and with a message it ends by
    /// that response, as that of a method with one. A single request is the first of [`Requests`].
    ///
    /// For what stands in front of handlers whose kind it does not know: a proxy, or the methods of
    /// another implementation. Clients with many responses take a last one that is an empty message
    /// for the plain end.
    pub fn stream<Q, R, Answer>(
        self,
        method: &str,
        handler: impl Fn(Arc<S>, Context, Requests<Q>, Responses<R>) -> Answer + Send + Sync + 'static,
    ) -> Self
    where
        Q: Decode,
        R: Encode + 'static,
        Answer: Future<Output = Result<Option<R>, Status>> + Send + 'static,
    {
        let state = Arc::clone(&self.state);
        let handler = move |context, requests, responses| {
            handler(Arc::clone(&state), context, requests, responses)
        };
        self.add(method, handler::stream(handler))
    }

    /// Sets options of one method, as [`ServerBuilder::method`](crate::ServerBuilder::method).
    pub fn method(mut self, method: &str, options: MethodOptions) -> Self {
        self.options.push((method.to_owned(), options));
        self
    }

    fn add(mut self, method: &str, handler: Handler) -> Self {
        self.methods.push((method.to_owned(), handler));
        self
    }
}

/// The parts of a service that a server takes.
pub(super) struct Parts {
    pub(super) name: String,
    pub(super) methods: Vec<(String, Handler)>,
    pub(super) options: Vec<(String, MethodOptions)>,
}

impl<S: ?Sized> Service<S> {
    pub(super) fn into_parts(self) -> Parts {
        Parts {
            name: self.name,
            methods: self.methods,
            options: self.options,
        }
    }
}

impl<S: ?Sized> fmt::Debug for Service<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("name", &self.name)
            .field("methods", &self.methods)
            .finish_non_exhaustive()
    }
}
