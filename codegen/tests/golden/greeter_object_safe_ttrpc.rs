// @generated from greeter.proto by ttrpc-keepalive-codegen. Do not edit.

//! The services of `greeter.proto`: a trait for servers and a client for each.

#![allow(dead_code)]

use std::sync::Arc;

use ttrpc_keepalive::{
    Call, Client, Code, Context, Receiver, Reply, Requests, Responses, Sender, Service, Status,
    StreamCall,
};

use super::greeter::{Greeting, Person};

/// Greets people.
///
/// A method that is not implemented is answered UNIMPLEMENTED.
#[async_trait::async_trait]
pub trait Greeter: Send + Sync + 'static {
    /// Greets one person.
    async fn greet(&self, context: Context, request: Person) -> Result<Greeting, Status> {
        let _ = request;
        Err(unimplemented(&context))
    }

    /// Greets everybody who lives with a person, one by one.
    async fn greet_household(
        &self,
        context: Context,
        request: Person,
        responses: Responses<Greeting>,
    ) -> Result<(), Status> {
        let _ = (request, responses);
        Err(unimplemented(&context))
    }

    /// Greets all of them at once, when the last one has come.
    async fn greet_together(
        &self,
        context: Context,
        requests: Requests<Person>,
    ) -> Result<Greeting, Status> {
        let _ = requests;
        Err(unimplemented(&context))
    }

    /// Greets each as they come.
    async fn greet_each(
        &self,
        context: Context,
        requests: Requests<Person>,
        responses: Responses<Greeting>,
    ) -> Result<(), Status> {
        let _ = (requests, responses);
        Err(unimplemented(&context))
    }
}

/// Serves an implementation of `Greeter` as `demo.Greeter`; for
/// [`ServerBuilder::service`](ttrpc_keepalive::ServerBuilder::service).
pub fn greeter_service<S: Greeter + ?Sized>(implementation: Arc<S>) -> Service<Arc<S>> {
    Service::new(greeter_names::SERVICE, implementation)
        .unary(
            greeter_names::GREET,
            |service, context, request| async move { S::greet(&service, context, request).await },
        )
        .server_stream(
            greeter_names::GREET_HOUSEHOLD,
            |service, context, request, responses| async move {
                S::greet_household(&service, context, request, responses).await
            },
        )
        .client_stream(
            greeter_names::GREET_TOGETHER,
            |service, context, requests| async move {
                S::greet_together(&service, context, requests).await
            },
        )
        .bidi_stream(
            greeter_names::GREET_EACH,
            |service, context, requests, responses| async move {
                S::greet_each(&service, context, requests, responses).await
            },
        )
}

/// Calls `demo.Greeter`, the other side of `Greeter`.
#[derive(Clone, Debug)]
pub struct GreeterClient {
    client: Client,
}

impl GreeterClient {
    /// Calls over this connection, which others may use too.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// The connection.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Greets one person.
    pub fn greet(&self, request: &Person) -> Call<Greeting> {
        self.client
            .call(greeter_names::SERVICE, greeter_names::GREET, request)
    }

    /// Greets everybody who lives with a person, one by one.
    pub fn greet_household(&self, request: &Person) -> StreamCall<Receiver<Greeting>> {
        self.client.server_stream(
            greeter_names::SERVICE,
            greeter_names::GREET_HOUSEHOLD,
            request,
        )
    }

    /// Greets all of them at once, when the last one has come.
    pub fn greet_together(&self) -> StreamCall<(Sender<Person>, Reply<Greeting>)> {
        self.client
            .client_stream(greeter_names::SERVICE, greeter_names::GREET_TOGETHER)
    }

    /// Greets each as they come.
    pub fn greet_each(&self) -> StreamCall<(Sender<Person>, Receiver<Greeting>)> {
        self.client
            .bidi_stream(greeter_names::SERVICE, greeter_names::GREET_EACH)
    }
}

/// The names of `demo.Greeter` and of its methods.
pub mod greeter_names {
    /// The service.
    pub const SERVICE: &str = "demo.Greeter";
    /// The method `Greet`.
    pub const GREET: &str = "Greet";
    /// The method `GreetHousehold`.
    pub const GREET_HOUSEHOLD: &str = "GreetHousehold";
    /// The method `GreetTogether`.
    pub const GREET_TOGETHER: &str = "GreetTogether";
    /// The method `GreetEach`.
    pub const GREET_EACH: &str = "GreetEach";
}

fn unimplemented(context: &Context) -> Status {
    let (service, method) = (context.service(), context.method());
    let message = format!("{service:?} does not implement {method:?}");
    Status::new(Code::UNIMPLEMENTED, message)
}
