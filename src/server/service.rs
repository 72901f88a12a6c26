//! The methods of a service.

use std::fmt;
use std::future::Future;

use super::context::Context;
use super::handler::{self, Handler};
use super::options::MethodOptions;
use super::streaming::{Requests, Responses};
use crate::status::Status;
use crate::wire::{Decode, Encode};

/// The methods of one service, for [`ServerBuilder::service`].
///
/// Each handler is given a clone of the service's state as its first argument. That is an [`Arc`](std::sync::Arc) as a
/// rule, or `()` where there is none. A handler may be a closure, or an associated function of the state:
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
/// The state may be a trait object in an `Arc`, for one service with several implementations.
///
/// [`ServerBuilder::service`]: crate::ServerBuilder::service
#[must_use = "a service does nothing until it is given to a server"]
pub struct Service<S> {
    name: String,
    state: S,
    methods: Vec<(String, Handler)>,
    options: Vec<(String, MethodOptions)>,
}

impl<S: Clone + Send + Sync + 'static> Service<S> {
    /// A service with no methods. `name` is its full name, as `demo.Echo`.
    pub fn new(name: &str, state: S) -> Self {
        Self {
            name: name.to_owned(),
            state,
            methods: Vec::new(),
            options: Vec::new(),
        }
    }

    /// Serves a unary method, whose name is the bare one, as `Say`.
    ///
    /// The handler runs in a task of its own, unless [`dispatch`](crate::ServerBuilder::dispatch) says
    /// otherwise. A status it returns goes to the caller, but OK, which is no failure, as INTERNAL; a
    /// panic costs its call, which is answered INTERNAL, and nothing else. A request that cannot be
    /// decoded is answered INVALID_ARGUMENT without it, a message too large for a frame
    /// RESOURCE_EXHAUSTED.
    pub fn unary<Q, R, Answer>(
        self,
        method: &str,
        handler: impl Fn(S, Context, Q) -> Answer + Send + Sync + 'static,
    ) -> Self
    where
        Q: Decode,
        R: Encode + 'static,
        Answer: Future<Output = Result<R, Status>> + Send + 'static,
    {
        let state = self.state.clone();
        let handler = move |context, request| handler(state.clone(), context, request);
        self.add(method, handler::unary(handler))
    }

    /// Serves a method with one request and many responses. The handler sends these by
    /// [`Responses`]; the stream ends with it, with its status if it returns one.
    ///
    /// The handler always runs in a task of its own, and a panic costs its call.
    pub fn server_stream<Q, R, Answer>(
        self,
        method: &str,
        handler: impl Fn(S, Context, Q, Responses<R>) -> Answer + Send + Sync + 'static,
    ) -> Self
    where
        Q: Decode,
        R: Encode + 'static,
        Answer: Future<Output = Result<(), Status>> + Send + 'static,
    {
        let state = self.state.clone();
        let handler =
            move |context, request, responses| handler(state.clone(), context, request, responses);
        self.add(method, handler::server_stream(handler))
    }

    /// Serves a method with many requests and one response, which the handler may give before the
    /// requests have ended; what comes after it is dropped.
    pub fn client_stream<Q, R, Answer>(
        self,
        method: &str,
        handler: impl Fn(S, Context, Requests<Q>) -> Answer + Send + Sync + 'static,
    ) -> Self
    where
        Q: Decode,
        R: Encode + 'static,
        Answer: Future<Output = Result<R, Status>> + Send + 'static,
    {
        let state = self.state.clone();
        let handler = move |context, requests| handler(state.clone(), context, requests);
        self.add(method, handler::client_stream(handler))
    }

    /// Serves a method with many requests and many responses. The stream ends with the handler,
    /// with its status if it returns one.
    pub fn bidi_stream<Q, R, Answer>(
        self,
        method: &str,
        handler: impl Fn(S, Context, Requests<Q>, Responses<R>) -> Answer + Send + Sync + 'static,
    ) -> Self
    where
        Q: Decode,
        R: Encode + 'static,
        Answer: Future<Output = Result<(), Status>> + Send + 'static,
    {
        let state = self.state.clone();
        let handler = move |context, requests, responses| {
            handler(state.clone(), context, requests, responses)
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
        handler: impl Fn(S, Context, Requests<Q>, Responses<R>) -> Answer + Send + Sync + 'static,
    ) -> Self
    where
        Q: Decode,
        R: Encode + 'static,
        Answer: Future<Output = Result<Option<R>, Status>> + Send + 'static,
    {
        let state = self.state.clone();
        let handler = move |context, requests, responses| {
            handler(state.clone(), context, requests, responses)
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

impl<S> Service<S> {
    pub(super) fn into_parts(self) -> Parts {
        Parts {
            name: self.name,
            methods: self.methods,
            options: self.options,
        }
    }
}

impl<S> fmt::Debug for Service<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("name", &self.name)
            .field("methods", &self.methods)
            .finish_non_exhaustive()
    }
}
