// @generated from demo/v1/echo.proto by ttrpc-keepalive-codegen. Do not edit.

//! The services of `demo/v1/echo.proto`: a trait for servers and a client for each.

#![allow(dead_code)]

use std::future::Future;
use std::sync::Arc;

use protobuf::well_known_types::wrappers::StringValue;
use ttrpc_keepalive::{
    Call, Client, Code, Context, Receiver, Reply, Requests, Responses, Sender, Service, Status,
    StreamCall,
};

use super::echo::{
    AMessageWhoseNameIsLongerThanMost, AnotherMessageWhoseNameIsLongerThanMost, Type,
};
use super::my_types::Thing;

/// Says what it hears.
///
/// See <https://example.com/echo>, and \[nothing\]; a Vec\<u8\> is no HTML:
/// - one item
///   that goes on
/// - another
///
/// let indented = "this is no test in Rust";
///
/// A method that is not implemented is answered UNIMPLEMENTED.
pub trait Echo: Send + Sync + 'static {
    /// Says it once.
    fn say(
        &self,
        context: Context,
        request: super::echo::Text,
    ) -> impl Future<Output = Result<super::echo::Text, Status>> + Send {
        let _ = request;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// Says its letters,
    /// one by one.
    fn spell(
        &self,
        context: Context,
        request: super::echo::Text,
        responses: Responses<super::echo::text::Part>,
    ) -> impl Future<Output = Result<(), Status>> + Send {
        let _ = (request, responses);
        std::future::ready(Err(unimplemented(&context)))
    }

    /// Joins what it hears.
    fn join(
        &self,
        context: Context,
        requests: Requests<super::echo::text::Part>,
    ) -> impl Future<Output = Result<super::echo::Text, Status>> + Send {
        let _ = requests;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// Answers at once.
    fn converse(
        &self,
        context: Context,
        requests: Requests<super::echo::Text>,
        responses: Responses<super::echo::Text>,
    ) -> impl Future<Output = Result<(), Status>> + Send {
        let _ = (requests, responses);
        std::future::ready(Err(unimplemented(&context)))
    }

    /// `GetURLOfHTTPServer` of `demo.v1.Echo`.
    fn get_url_of_http_server(
        &self,
        context: Context,
        request: Thing,
    ) -> impl Future<Output = Result<super::my_types::thing::kind::Deep, Status>> + Send {
        let _ = request;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// Names that Rust has for itself.
    fn type_(
        &self,
        context: Context,
        request: protobuf::well_known_types::empty::Empty,
    ) -> impl Future<Output = Result<StringValue, Status>> + Send {
        let _ = request;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// `Move` of `demo.v1.Echo`.
    fn move_(
        &self,
        context: Context,
        requests: Requests<super::echo::Self_>,
    ) -> impl Future<Output = Result<Type, Status>> + Send {
        let _ = requests;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// `Self` of `demo.v1.Echo`.
    fn self_(
        &self,
        context: Context,
        request: Type,
        responses: Responses<super::echo::Self_>,
    ) -> impl Future<Output = Result<(), Status>> + Send {
        let _ = (request, responses);
        std::future::ready(Err(unimplemented(&context)))
    }

    /// Names that the client has for itself.
    fn new_(
        &self,
        context: Context,
        request: super::echo::Context,
    ) -> impl Future<Output = Result<super::echo::Result, Status>> + Send {
        let _ = request;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// `Client` of `demo.v1.Echo`.
    fn client_(
        &self,
        context: Context,
        request: super::echo::Result,
    ) -> impl Future<Output = Result<super::echo::Context, Status>> + Send {
        let _ = request;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// `Clone` of `demo.v1.Echo`.
    fn clone_(
        &self,
        context: Context,
        request: super::echo::Text,
    ) -> impl Future<Output = Result<super::echo::Text, Status>> + Send {
        let _ = request;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// `Into` of `demo.v1.Echo`.
    #[allow(clippy::wrong_self_convention)]
    fn into_(
        &self,
        context: Context,
        request: super::echo::Text,
    ) -> impl Future<Output = Result<super::echo::Text, Status>> + Send {
        let _ = request;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// Names that are taken for conversions.
    #[allow(clippy::wrong_self_convention)]
    fn from_file(
        &self,
        context: Context,
        request: super::echo::Text,
    ) -> impl Future<Output = Result<super::echo::Text, Status>> + Send {
        let _ = request;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// `IntoFile` of `demo.v1.Echo`.
    #[allow(clippy::wrong_self_convention)]
    fn into_file(
        &self,
        context: Context,
        request: super::echo::Text,
        responses: Responses<super::echo::Text>,
    ) -> impl Future<Output = Result<(), Status>> + Send {
        let _ = (request, responses);
        std::future::ready(Err(unimplemented(&context)))
    }

    /// `ToFile` of `demo.v1.Echo`.
    fn to_file(
        &self,
        context: Context,
        requests: Requests<super::echo::Text>,
    ) -> impl Future<Output = Result<super::echo::Text, Status>> + Send {
        let _ = requests;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// `AsRef` of `demo.v1.Echo`.
    fn as_ref(
        &self,
        context: Context,
        requests: Requests<super::echo::Text>,
        responses: Responses<super::echo::Text>,
    ) -> impl Future<Output = Result<(), Status>> + Send {
        let _ = (requests, responses);
        std::future::ready(Err(unimplemented(&context)))
    }

    /// `IsEmpty` of `demo.v1.Echo`.
    fn is_empty(
        &self,
        context: Context,
        request: super::echo::Text,
    ) -> impl Future<Output = Result<super::echo::Text, Status>> + Send {
        let _ = request;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// `Len` of `demo.v1.Echo`.
    fn len(
        &self,
        context: Context,
        requests: Requests<super::echo::Text>,
    ) -> impl Future<Output = Result<super::echo::Text, Status>> + Send {
        let _ = requests;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// `Next` of `demo.v1.Echo`.
    fn next(
        &self,
        context: Context,
        requests: Requests<super::echo::Text>,
    ) -> impl Future<Output = Result<super::echo::Text, Status>> + Send {
        let _ = requests;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// `Default` of `demo.v1.Echo`.
    fn default(
        &self,
        context: Context,
        requests: Requests<super::echo::Text>,
    ) -> impl Future<Output = Result<super::echo::Text, Status>> + Send {
        let _ = requests;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// The same name in Rust, twice.
    fn get_it(
        &self,
        context: Context,
        request: super::echo::Text,
    ) -> impl Future<Output = Result<super::echo::Text, Status>> + Send {
        let _ = request;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// `Get_It` of `demo.v1.Echo`.
    ///
    /// Deprecated.
    fn get_it_(
        &self,
        context: Context,
        request: super::echo::Text,
    ) -> impl Future<Output = Result<super::echo::Text, Status>> + Send {
        let _ = request;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// A name that is longer than most, so that lines are broken.
    fn announce_the_arrival_of_everybody_who_has_been_waiting_outside_for_too_long(
        &self,
        context: Context,
        requests: Requests<AMessageWhoseNameIsLongerThanMost>,
        responses: Responses<AnotherMessageWhoseNameIsLongerThanMost>,
    ) -> impl Future<Output = Result<(), Status>> + Send {
        let _ = (requests, responses);
        std::future::ready(Err(unimplemented(&context)))
    }

    /// `AnnounceTheArrival` of `demo.v1.Echo`.
    fn announce_the_arrival(
        &self,
        context: Context,
        requests: Requests<AMessageWhoseNameIsLongerThanMost>,
    ) -> impl Future<Output = Result<AnotherMessageWhoseNameIsLongerThanMost, Status>> + Send {
        let _ = requests;
        std::future::ready(Err(unimplemented(&context)))
    }
}

/// Serves an implementation of `Echo` as `demo.v1.Echo`; for
/// [`ServerBuilder::service`](ttrpc_keepalive::ServerBuilder::service).
pub fn echo_service<S: Echo>(implementation: Arc<S>) -> Service<Arc<S>> {
    Service::new(echo_names::SERVICE, implementation)
        .unary(echo_names::SAY, |service, context, request| async move {
            S::say(&service, context, request).await
        })
        .server_stream(
            echo_names::SPELL,
            |service, context, request, responses| async move {
                S::spell(&service, context, request, responses).await
            },
        )
        .client_stream(echo_names::JOIN, |service, context, requests| async move {
            S::join(&service, context, requests).await
        })
        .bidi_stream(
            echo_names::CONVERSE,
            |service, context, requests, responses| async move {
                S::converse(&service, context, requests, responses).await
            },
        )
        .unary(
            echo_names::GET_URL_OF_HTTP_SERVER,
            |service, context, request| async move {
                S::get_url_of_http_server(&service, context, request).await
            },
        )
        .unary(echo_names::TYPE, |service, context, request| async move {
            S::type_(&service, context, request).await
        })
        .client_stream(echo_names::MOVE, |service, context, requests| async move {
            S::move_(&service, context, requests).await
        })
        .server_stream(
            echo_names::SELF,
            |service, context, request, responses| async move {
                S::self_(&service, context, request, responses).await
            },
        )
        .unary(echo_names::NEW, |service, context, request| async move {
            S::new_(&service, context, request).await
        })
        .unary(echo_names::CLIENT, |service, context, request| async move {
            S::client_(&service, context, request).await
        })
        .unary(echo_names::CLONE, |service, context, request| async move {
            S::clone_(&service, context, request).await
        })
        .unary(echo_names::INTO, |service, context, request| async move {
            S::into_(&service, context, request).await
        })
        .unary(
            echo_names::FROM_FILE,
            |service, context, request| async move {
                S::from_file(&service, context, request).await
            },
        )
        .server_stream(
            echo_names::INTO_FILE,
            |service, context, request, responses| async move {
                S::into_file(&service, context, request, responses).await
            },
        )
        .client_stream(
            echo_names::TO_FILE,
            |service, context, requests| async move {
                S::to_file(&service, context, requests).await
            },
        )
        .bidi_stream(
            echo_names::AS_REF,
            |service, context, requests, responses| async move {
                S::as_ref(&service, context, requests, responses).await
            },
        )
        .unary(
            echo_names::IS_EMPTY,
            |service, context, request| async move {
                S::is_empty(&service, context, request).await
            },
        )
        .client_stream(echo_names::LEN, |service, context, requests| async move {
            S::len(&service, context, requests).await
        })
        .client_stream(echo_names::NEXT, |service, context, requests| async move {
            S::next(&service, context, requests).await
        })
        .client_stream(
            echo_names::DEFAULT,
            |service, context, requests| async move {
                S::default(&service, context, requests).await
            },
        )
        .unary(echo_names::GET_IT, |service, context, request| async move {
            S::get_it(&service, context, request).await
        })
        .unary(
            echo_names::GET_IT_,
            |service, context, request| async move { S::get_it_(&service, context, request).await },
        )
        .bidi_stream(
            echo_names::ANNOUNCE_THE_ARRIVAL_OF_EVERYBODY_WHO_HAS_BEEN_WAITING_OUTSIDE_FOR_TOO_LONG,
            |service, context, requests, responses| async move {
                S::announce_the_arrival_of_everybody_who_has_been_waiting_outside_for_too_long(
                    &service, context, requests, responses,
                )
                .await
            },
        )
        .client_stream(
            echo_names::ANNOUNCE_THE_ARRIVAL,
            |service, context, requests| async move {
                S::announce_the_arrival(&service, context, requests).await
            },
        )
}

/// Calls `demo.v1.Echo`, the other side of `Echo`.
#[derive(Clone, Debug)]
pub struct EchoClient {
    client: Client,
}

impl EchoClient {
    /// Calls over this connection, which others may use too.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// The connection.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Says it once.
    pub fn say(&self, request: &super::echo::Text) -> Call<super::echo::Text> {
        self.client
            .call(echo_names::SERVICE, echo_names::SAY, request)
    }

    /// Says its letters,
    /// one by one.
    pub fn spell(
        &self,
        request: &super::echo::Text,
    ) -> StreamCall<Receiver<super::echo::text::Part>> {
        self.client
            .server_stream(echo_names::SERVICE, echo_names::SPELL, request)
    }

    /// Joins what it hears.
    pub fn join(&self) -> StreamCall<(Sender<super::echo::text::Part>, Reply<super::echo::Text>)> {
        self.client
            .client_stream(echo_names::SERVICE, echo_names::JOIN)
    }

    /// Answers at once.
    pub fn converse(&self) -> StreamCall<(Sender<super::echo::Text>, Receiver<super::echo::Text>)> {
        self.client
            .bidi_stream(echo_names::SERVICE, echo_names::CONVERSE)
    }

    /// `GetURLOfHTTPServer` of `demo.v1.Echo`.
    pub fn get_url_of_http_server(
        &self,
        request: &Thing,
    ) -> Call<super::my_types::thing::kind::Deep> {
        self.client.call(
            echo_names::SERVICE,
            echo_names::GET_URL_OF_HTTP_SERVER,
            request,
        )
    }

    /// Names that Rust has for itself.
    pub fn type_(&self, request: &protobuf::well_known_types::empty::Empty) -> Call<StringValue> {
        self.client
            .call(echo_names::SERVICE, echo_names::TYPE, request)
    }

    /// `Move` of `demo.v1.Echo`.
    pub fn move_(&self) -> StreamCall<(Sender<super::echo::Self_>, Reply<Type>)> {
        self.client
            .client_stream(echo_names::SERVICE, echo_names::MOVE)
    }

    /// `Self` of `demo.v1.Echo`.
    pub fn self_(&self, request: &Type) -> StreamCall<Receiver<super::echo::Self_>> {
        self.client
            .server_stream(echo_names::SERVICE, echo_names::SELF, request)
    }

    /// Names that the client has for itself.
    pub fn new_(&self, request: &super::echo::Context) -> Call<super::echo::Result> {
        self.client
            .call(echo_names::SERVICE, echo_names::NEW, request)
    }

    /// `Client` of `demo.v1.Echo`.
    pub fn client_(&self, request: &super::echo::Result) -> Call<super::echo::Context> {
        self.client
            .call(echo_names::SERVICE, echo_names::CLIENT, request)
    }

    /// `Clone` of `demo.v1.Echo`.
    pub fn clone_(&self, request: &super::echo::Text) -> Call<super::echo::Text> {
        self.client
            .call(echo_names::SERVICE, echo_names::CLONE, request)
    }

    /// `Into` of `demo.v1.Echo`.
    #[allow(clippy::wrong_self_convention)]
    pub fn into_(&self, request: &super::echo::Text) -> Call<super::echo::Text> {
        self.client
            .call(echo_names::SERVICE, echo_names::INTO, request)
    }

    /// Names that are taken for conversions.
    #[allow(clippy::wrong_self_convention)]
    pub fn from_file(&self, request: &super::echo::Text) -> Call<super::echo::Text> {
        self.client
            .call(echo_names::SERVICE, echo_names::FROM_FILE, request)
    }

    /// `IntoFile` of `demo.v1.Echo`.
    #[allow(clippy::wrong_self_convention)]
    pub fn into_file(
        &self,
        request: &super::echo::Text,
    ) -> StreamCall<Receiver<super::echo::Text>> {
        self.client
            .server_stream(echo_names::SERVICE, echo_names::INTO_FILE, request)
    }

    /// `ToFile` of `demo.v1.Echo`.
    pub fn to_file(&self) -> StreamCall<(Sender<super::echo::Text>, Reply<super::echo::Text>)> {
        self.client
            .client_stream(echo_names::SERVICE, echo_names::TO_FILE)
    }

    /// `AsRef` of `demo.v1.Echo`.
    pub fn as_ref(&self) -> StreamCall<(Sender<super::echo::Text>, Receiver<super::echo::Text>)> {
        self.client
            .bidi_stream(echo_names::SERVICE, echo_names::AS_REF)
    }

    /// `IsEmpty` of `demo.v1.Echo`.
    pub fn is_empty(&self, request: &super::echo::Text) -> Call<super::echo::Text> {
        self.client
            .call(echo_names::SERVICE, echo_names::IS_EMPTY, request)
    }

    /// `Len` of `demo.v1.Echo`.
    pub fn len(&self) -> StreamCall<(Sender<super::echo::Text>, Reply<super::echo::Text>)> {
        self.client
            .client_stream(echo_names::SERVICE, echo_names::LEN)
    }

    /// `Next` of `demo.v1.Echo`.
    pub fn next(&self) -> StreamCall<(Sender<super::echo::Text>, Reply<super::echo::Text>)> {
        self.client
            .client_stream(echo_names::SERVICE, echo_names::NEXT)
    }

    /// `Default` of `demo.v1.Echo`.
    pub fn default(&self) -> StreamCall<(Sender<super::echo::Text>, Reply<super::echo::Text>)> {
        self.client
            .client_stream(echo_names::SERVICE, echo_names::DEFAULT)
    }

    /// The same name in Rust, twice.
    pub fn get_it(&self, request: &super::echo::Text) -> Call<super::echo::Text> {
        self.client
            .call(echo_names::SERVICE, echo_names::GET_IT, request)
    }

    /// `Get_It` of `demo.v1.Echo`.
    ///
    /// Deprecated.
    pub fn get_it_(&self, request: &super::echo::Text) -> Call<super::echo::Text> {
        self.client
            .call(echo_names::SERVICE, echo_names::GET_IT_, request)
    }

    /// A name that is longer than most, so that lines are broken.
    pub fn announce_the_arrival_of_everybody_who_has_been_waiting_outside_for_too_long(
        &self,
    ) -> StreamCall<(
        Sender<AMessageWhoseNameIsLongerThanMost>,
        Receiver<AnotherMessageWhoseNameIsLongerThanMost>,
    )> {
        self.client.bidi_stream(
            echo_names::SERVICE,
            echo_names::ANNOUNCE_THE_ARRIVAL_OF_EVERYBODY_WHO_HAS_BEEN_WAITING_OUTSIDE_FOR_TOO_LONG,
        )
    }

    /// `AnnounceTheArrival` of `demo.v1.Echo`.
    pub fn announce_the_arrival(
        &self,
    ) -> StreamCall<(
        Sender<AMessageWhoseNameIsLongerThanMost>,
        Reply<AnotherMessageWhoseNameIsLongerThanMost>,
    )> {
        self.client
            .client_stream(echo_names::SERVICE, echo_names::ANNOUNCE_THE_ARRIVAL)
    }
}

/// The names of `demo.v1.Echo` and of its methods.
pub mod echo_names {
    /// The service.
    pub const SERVICE: &str = "demo.v1.Echo";
    /// The method `Say`.
    pub const SAY: &str = "Say";
    /// The method `Spell`.
    pub const SPELL: &str = "Spell";
    /// The method `Join`.
    pub const JOIN: &str = "Join";
    /// The method `Converse`.
    pub const CONVERSE: &str = "Converse";
    /// The method `GetURLOfHTTPServer`.
    pub const GET_URL_OF_HTTP_SERVER: &str = "GetURLOfHTTPServer";
    /// The method `Type`.
    pub const TYPE: &str = "Type";
    /// The method `Move`.
    pub const MOVE: &str = "Move";
    /// The method `Self`.
    pub const SELF: &str = "Self";
    /// The method `New`.
    pub const NEW: &str = "New";
    /// The method `Client`.
    pub const CLIENT: &str = "Client";
    /// The method `Clone`.
    pub const CLONE: &str = "Clone";
    /// The method `Into`.
    pub const INTO: &str = "Into";
    /// The method `FromFile`.
    pub const FROM_FILE: &str = "FromFile";
    /// The method `IntoFile`.
    pub const INTO_FILE: &str = "IntoFile";
    /// The method `ToFile`.
    pub const TO_FILE: &str = "ToFile";
    /// The method `AsRef`.
    pub const AS_REF: &str = "AsRef";
    /// The method `IsEmpty`.
    pub const IS_EMPTY: &str = "IsEmpty";
    /// The method `Len`.
    pub const LEN: &str = "Len";
    /// The method `Next`.
    pub const NEXT: &str = "Next";
    /// The method `Default`.
    pub const DEFAULT: &str = "Default";
    /// The method `GetIt`.
    pub const GET_IT: &str = "GetIt";
    /// The method `Get_It`.
    pub const GET_IT_: &str = "Get_It";
    /// The method `AnnounceTheArrivalOfEverybodyWhoHasBeenWaitingOutsideForTooLong`.
    pub const ANNOUNCE_THE_ARRIVAL_OF_EVERYBODY_WHO_HAS_BEEN_WAITING_OUTSIDE_FOR_TOO_LONG: &str =
        "AnnounceTheArrivalOfEverybodyWhoHasBeenWaitingOutsideForTooLong";
    /// The method `AnnounceTheArrival`.
    pub const ANNOUNCE_THE_ARRIVAL: &str = "AnnounceTheArrival";
}

/// The service `demo.v1.Second`.
///
/// A method that is not implemented is answered UNIMPLEMENTED.
pub trait Second: Send + Sync + 'static {
    /// `Say` of `demo.v1.Second`.
    fn say(
        &self,
        context: Context,
        request: super::echo::Text,
    ) -> impl Future<Output = Result<super::my_types::Text, Status>> + Send {
        let _ = request;
        std::future::ready(Err(unimplemented(&context)))
    }
}

/// Serves an implementation of `Second` as `demo.v1.Second`; for
/// [`ServerBuilder::service`](ttrpc_keepalive::ServerBuilder::service).
pub fn second_service<S: Second>(implementation: Arc<S>) -> Service<Arc<S>> {
    Service::new(second_names::SERVICE, implementation)
        .unary(second_names::SAY, |service, context, request| async move {
            S::say(&service, context, request).await
        })
}

/// Calls `demo.v1.Second`, the other side of `Second`.
#[derive(Clone, Debug)]
pub struct SecondClient {
    client: Client,
}

impl SecondClient {
    /// Calls over this connection, which others may use too.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// The connection.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// `Say` of `demo.v1.Second`.
    pub fn say(&self, request: &super::echo::Text) -> Call<super::my_types::Text> {
        self.client
            .call(second_names::SERVICE, second_names::SAY, request)
    }
}

/// The names of `demo.v1.Second` and of its methods.
pub mod second_names {
    /// The service.
    pub const SERVICE: &str = "demo.v1.Second";
    /// The method `Say`.
    pub const SAY: &str = "Say";
}

/// Nothing is called here.
pub trait Empty: Send + Sync + 'static {}

/// Serves an implementation of `Empty` as `demo.v1.Empty`; for
/// [`ServerBuilder::service`](ttrpc_keepalive::ServerBuilder::service).
pub fn empty_service<S: Empty>(implementation: Arc<S>) -> Service<Arc<S>> {
    Service::new(empty_names::SERVICE, implementation)
}

/// Calls `demo.v1.Empty`, the other side of `Empty`.
#[derive(Clone, Debug)]
pub struct EmptyClient {
    client: Client,
}

impl EmptyClient {
    /// Calls over this connection, which others may use too.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// The connection.
    pub fn client(&self) -> &Client {
        &self.client
    }
}

/// The names of `demo.v1.Empty` and of its methods.
pub mod empty_names {
    /// The service.
    pub const SERVICE: &str = "demo.v1.Empty";
}

fn unimplemented(context: &Context) -> Status {
    let (service, method) = (context.service(), context.method());
    let message = format!("{service:?} does not implement {method:?}");
    Status::new(Code::UNIMPLEMENTED, message)
}
