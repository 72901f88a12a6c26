// @generated from plain.proto by ttrpc-keepalive-codegen. Do not edit.

//! The services of `plain.proto`: a trait for servers and a client for each.

#![allow(dead_code)]

use std::sync::Arc;

use ttrpc_keepalive::{
    Call, Code, Context, Receiver, Reply, Requests, Responses, Sender, Service, Status, StreamCall,
};

use super::plain::Text;

/// The service `Plain`.
///
/// A method that is not implemented is answered UNIMPLEMENTED.
pub trait Plain: Send + Sync + 'static {
    /// `Say` of `Plain`.
    fn say(
        &self,
        context: Context,
        request: Text,
    ) -> impl std::future::Future<Output = std::result::Result<Text, Status>> + Send {
        let _ = request;
        std::future::ready(Err(unimplemented(&context)))
    }
}

/// Serves an implementation of `Plain` as `Plain`; for
/// [`ServerBuilder::service`](ttrpc_keepalive::ServerBuilder::service).
pub fn plain_service<S_: Plain>(implementation: Arc<S_>) -> Service<Arc<S_>> {
    Service::new(plain_names::SERVICE, implementation)
        .unary(plain_names::SAY, |service, context, request| async move {
            S_::say(&service, context, request).await
        })
}

/// Calls `Plain`, the other side of `Plain`.
#[derive(Clone, Debug)]
pub struct PlainClient {
    client: ttrpc_keepalive::Client,
}

impl PlainClient {
    /// Calls over this connection, which others may use too.
    pub fn new(client: ttrpc_keepalive::Client) -> Self {
        Self { client }
    }

    /// The connection.
    pub fn client(&self) -> &ttrpc_keepalive::Client {
        &self.client
    }

    /// `Say` of `Plain`.
    pub fn say(&self, request: &Text) -> Call<Text> {
        self.client
            .call(plain_names::SERVICE, plain_names::SAY, request)
    }
}

/// The names of `Plain` and of its methods.
pub mod plain_names {
    /// The service.
    pub const SERVICE: &str = "Plain";
    /// The method `Say`.
    pub const SAY: &str = "Say";
}

/// Services may be named like what is imported.
///
/// A method that is not implemented is answered UNIMPLEMENTED.
pub trait Client: Send + Sync + 'static {
    /// `Call` of `Client`.
    fn call(
        &self,
        context: Context,
        request: Text,
    ) -> impl std::future::Future<Output = std::result::Result<Text, Status>> + Send {
        let _ = request;
        std::future::ready(Err(unimplemented(&context)))
    }
}

/// Serves an implementation of `Client` as `Client`; for
/// [`ServerBuilder::service`](ttrpc_keepalive::ServerBuilder::service).
pub fn client_service<S_: Client>(implementation: Arc<S_>) -> Service<Arc<S_>> {
    Service::new(client_names::SERVICE, implementation)
        .unary(client_names::CALL, |service, context, request| async move {
            S_::call(&service, context, request).await
        })
}

/// Calls `Client`, the other side of `Client`.
#[derive(Clone, Debug)]
pub struct ClientClient {
    client: ttrpc_keepalive::Client,
}

impl ClientClient {
    /// Calls over this connection, which others may use too.
    pub fn new(client: ttrpc_keepalive::Client) -> Self {
        Self { client }
    }

    /// The connection.
    pub fn client(&self) -> &ttrpc_keepalive::Client {
        &self.client
    }

    /// `Call` of `Client`.
    pub fn call(&self, request: &Text) -> Call<Text> {
        self.client
            .call(client_names::SERVICE, client_names::CALL, request)
    }
}

/// The names of `Client` and of its methods.
pub mod client_names {
    /// The service.
    pub const SERVICE: &str = "Client";
    /// The method `Call`.
    pub const CALL: &str = "Call";
}

/// The service `Result`.
///
/// A method that is not implemented is answered UNIMPLEMENTED.
pub trait Result: Send + Sync + 'static {
    /// `Send` of `Result`.
    fn send(
        &self,
        context: Context,
        requests: Requests<Text>,
        responses: Responses<Text>,
    ) -> impl std::future::Future<Output = std::result::Result<(), Status>> + Send {
        let _ = (requests, responses);
        std::future::ready(Err(unimplemented(&context)))
    }
}

/// Serves an implementation of `Result` as `Result`; for
/// [`ServerBuilder::service`](ttrpc_keepalive::ServerBuilder::service).
pub fn result_service<S_: Result>(implementation: Arc<S_>) -> Service<Arc<S_>> {
    Service::new(result_names::SERVICE, implementation).bidi_stream(
        result_names::SEND,
        |service, context, requests, responses| async move {
            S_::send(&service, context, requests, responses).await
        },
    )
}

/// Calls `Result`, the other side of `Result`.
#[derive(Clone, Debug)]
pub struct ResultClient {
    client: ttrpc_keepalive::Client,
}

impl ResultClient {
    /// Calls over this connection, which others may use too.
    pub fn new(client: ttrpc_keepalive::Client) -> Self {
        Self { client }
    }

    /// The connection.
    pub fn client(&self) -> &ttrpc_keepalive::Client {
        &self.client
    }

    /// `Send` of `Result`.
    pub fn send(&self) -> StreamCall<(Sender<Text>, Receiver<Text>)> {
        self.client
            .bidi_stream(result_names::SERVICE, result_names::SEND)
    }
}

/// The names of `Result` and of its methods.
pub mod result_names {
    /// The service.
    pub const SERVICE: &str = "Result";
    /// The method `Send`.
    pub const SEND: &str = "Send";
}

/// The service `Future`.
///
/// A method that is not implemented is answered UNIMPLEMENTED.
pub trait Future: Send + Sync + 'static {
    /// `Poll` of `Future`.
    fn poll(
        &self,
        context: Context,
        request: Text,
        responses: Responses<Text>,
    ) -> impl std::future::Future<Output = std::result::Result<(), Status>> + Send {
        let _ = (request, responses);
        std::future::ready(Err(unimplemented(&context)))
    }
}

/// Serves an implementation of `Future` as `Future`; for
/// [`ServerBuilder::service`](ttrpc_keepalive::ServerBuilder::service).
pub fn future_service<S_: Future>(implementation: Arc<S_>) -> Service<Arc<S_>> {
    Service::new(future_names::SERVICE, implementation).server_stream(
        future_names::POLL,
        |service, context, request, responses| async move {
            S_::poll(&service, context, request, responses).await
        },
    )
}

/// Calls `Future`, the other side of `Future`.
#[derive(Clone, Debug)]
pub struct FutureClient {
    client: ttrpc_keepalive::Client,
}

impl FutureClient {
    /// Calls over this connection, which others may use too.
    pub fn new(client: ttrpc_keepalive::Client) -> Self {
        Self { client }
    }

    /// The connection.
    pub fn client(&self) -> &ttrpc_keepalive::Client {
        &self.client
    }

    /// `Poll` of `Future`.
    pub fn poll(&self, request: &Text) -> StreamCall<Receiver<Text>> {
        self.client
            .server_stream(future_names::SERVICE, future_names::POLL, request)
    }
}

/// The names of `Future` and of its methods.
pub mod future_names {
    /// The service.
    pub const SERVICE: &str = "Future";
    /// The method `Poll`.
    pub const POLL: &str = "Poll";
}

/// Or like a parameter, or a variable.
///
/// A method that is not implemented is answered UNIMPLEMENTED.
pub trait S: Send + Sync + 'static {
    /// `Service` of `S`.
    fn service(
        &self,
        context: Context,
        requests: Requests<Text>,
    ) -> impl std::future::Future<Output = std::result::Result<Text, Status>> + Send {
        let _ = requests;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// `Context` of `S`.
    fn context(
        &self,
        context: Context,
        request: Text,
    ) -> impl std::future::Future<Output = std::result::Result<Text, Status>> + Send {
        let _ = request;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// `Unimplemented` of `S`.
    fn unimplemented(
        &self,
        context: Context,
        request: Text,
    ) -> impl std::future::Future<Output = std::result::Result<Text, Status>> + Send {
        let _ = request;
        std::future::ready(Err(unimplemented(&context)))
    }
}

/// Serves an implementation of `S` as `S`; for
/// [`ServerBuilder::service`](ttrpc_keepalive::ServerBuilder::service).
pub fn s_service<S_: S>(implementation: Arc<S_>) -> Service<Arc<S_>> {
    Service::new(s_names::SERVICE, implementation)
        .client_stream(s_names::SERVICE_, |service, context, requests| async move {
            S_::service(&service, context, requests).await
        })
        .unary(s_names::CONTEXT, |service, context, request| async move {
            S_::context(&service, context, request).await
        })
        .unary(
            s_names::UNIMPLEMENTED,
            |service, context, request| async move {
                S_::unimplemented(&service, context, request).await
            },
        )
}

/// Calls `S`, the other side of `S`.
#[derive(Clone, Debug)]
pub struct SClient {
    client: ttrpc_keepalive::Client,
}

impl SClient {
    /// Calls over this connection, which others may use too.
    pub fn new(client: ttrpc_keepalive::Client) -> Self {
        Self { client }
    }

    /// The connection.
    pub fn client(&self) -> &ttrpc_keepalive::Client {
        &self.client
    }

    /// `Service` of `S`.
    pub fn service(&self) -> StreamCall<(Sender<Text>, Reply<Text>)> {
        self.client
            .client_stream(s_names::SERVICE, s_names::SERVICE_)
    }

    /// `Context` of `S`.
    pub fn context(&self, request: &Text) -> Call<Text> {
        self.client
            .call(s_names::SERVICE, s_names::CONTEXT, request)
    }

    /// `Unimplemented` of `S`.
    pub fn unimplemented(&self, request: &Text) -> Call<Text> {
        self.client
            .call(s_names::SERVICE, s_names::UNIMPLEMENTED, request)
    }
}

/// The names of `S` and of its methods.
pub mod s_names {
    /// The service.
    pub const SERVICE: &str = "S";
    /// The method `Service`.
    pub const SERVICE_: &str = "Service";
    /// The method `Context`.
    pub const CONTEXT: &str = "Context";
    /// The method `Unimplemented`.
    pub const UNIMPLEMENTED: &str = "Unimplemented";
}

/// The service `String`.
pub trait String: Send + Sync + 'static {}

/// Serves an implementation of `String` as `String`; for
/// [`ServerBuilder::service`](ttrpc_keepalive::ServerBuilder::service).
pub fn string_service<S_: String>(implementation: Arc<S_>) -> Service<Arc<S_>> {
    Service::new(string_names::SERVICE, implementation)
}

/// Calls `String`, the other side of `String`.
#[derive(Clone, Debug)]
pub struct StringClient {
    client: ttrpc_keepalive::Client,
}

impl StringClient {
    /// Calls over this connection, which others may use too.
    pub fn new(client: ttrpc_keepalive::Client) -> Self {
        Self { client }
    }

    /// The connection.
    pub fn client(&self) -> &ttrpc_keepalive::Client {
        &self.client
    }
}

/// The names of `String` and of its methods.
pub mod string_names {
    /// The service.
    pub const SERVICE: &str = "String";
}

/// The service `unimplemented`.
pub trait Unimplemented: Send + Sync + 'static {}

/// Serves an implementation of `Unimplemented` as `unimplemented`; for
/// [`ServerBuilder::service`](ttrpc_keepalive::ServerBuilder::service).
pub fn unimplemented_service<S_: Unimplemented>(implementation: Arc<S_>) -> Service<Arc<S_>> {
    Service::new(unimplemented_names::SERVICE, implementation)
}

/// Calls `unimplemented`, the other side of `Unimplemented`.
#[derive(Clone, Debug)]
pub struct UnimplementedClient {
    client: ttrpc_keepalive::Client,
}

impl UnimplementedClient {
    /// Calls over this connection, which others may use too.
    pub fn new(client: ttrpc_keepalive::Client) -> Self {
        Self { client }
    }

    /// The connection.
    pub fn client(&self) -> &ttrpc_keepalive::Client {
        &self.client
    }
}

/// The names of `unimplemented` and of its methods.
pub mod unimplemented_names {
    /// The service.
    pub const SERVICE: &str = "unimplemented";
}

fn unimplemented(context: &Context) -> Status {
    let (service, method) = (context.service(), context.method());
    let message = format!("{service:?} does not implement {method:?}");
    Status::new(Code::UNIMPLEMENTED, message)
}
