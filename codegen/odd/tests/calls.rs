//! Calls of all kinds, through generated code on both sides.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::sync::Arc;
use std::time::Duration;

use protobuf::well_known_types::empty::Empty;
use protobuf::well_known_types::wrappers::StringValue;
use ttrpc_keepalive::{Client, Code, Context, Error, Requests, Responses, Server, Service, Status};
use ttrpc_keepalive_codegen_odd::{boxed, native};

use native::echo::{Self_, Text, Type, text::Part};
use native::echo_ttrpc::{Echo, EchoClient, SecondClient, echo_names, echo_service};

fn text(value: &str) -> Text {
    Text {
        value: value.to_owned(),
        ..Text::default()
    }
}

fn part(value: &str) -> Part {
    Part {
        value: value.to_owned(),
        ..Part::default()
    }
}

fn connected<S>(service: Service<S>) -> Client {
    let server = Server::builder().service(service).build().unwrap();
    let (here, there) = tokio::io::duplex(4096);
    tokio::spawn(async move { server.serve_connection(there).await });
    Client::builder().attach(here).unwrap()
}

struct Loud;

impl Echo for Loud {
    async fn say(&self, context: Context, request: Text) -> Result<Text, Status> {
        let times = context.values("times").count().max(1);
        Ok(text(&request.value.to_uppercase().repeat(times)))
    }

    async fn spell(
        &self,
        _: Context,
        request: Text,
        responses: Responses<Part>,
    ) -> Result<(), Status> {
        for letter in request.value.chars() {
            responses.send(&part(&letter.to_string())).await?;
        }
        Ok(())
    }

    async fn join(&self, _: Context, mut requests: Requests<Part>) -> Result<Text, Status> {
        let mut joined = String::new();
        while let Some(part) = requests.next().await {
            joined.push_str(&part?.value);
        }
        Ok(text(&joined))
    }

    async fn converse(
        &self,
        _: Context,
        mut requests: Requests<Text>,
        responses: Responses<Text>,
    ) -> Result<(), Status> {
        while let Some(request) = requests.next().await {
            responses
                .send(&text(&request?.value.to_uppercase()))
                .await?;
        }
        Ok(())
    }

    async fn type_(&self, _: Context, _: Empty) -> Result<StringValue, Status> {
        Ok(StringValue::default())
    }

    async fn move_(&self, _: Context, mut requests: Requests<Self_>) -> Result<Type, Status> {
        let first = requests.next().await;
        let first = first.ok_or_else(|| Status::new(Code::INVALID_ARGUMENT, "nothing"))??;
        Ok(Type {
            value: first.type_,
            ..Type::default()
        })
    }

    async fn into_(&self, _: Context, request: Text) -> Result<Text, Status> {
        Ok(request)
    }

    async fn get_it_(&self, context: Context, _: Text) -> Result<Text, Status> {
        Ok(text(context.method()))
    }
}

#[tokio::test(start_paused = true)]
async fn calls_of_all_kinds_go_through_what_is_generated() {
    let echo = EchoClient::new(connected(echo_service(Arc::new(Loud))));

    let said = echo.say(&text("a")).await.unwrap();
    assert_eq!(said.value, "A");

    let mut letters = echo.spell(&text("ab")).await.unwrap();
    assert_eq!(letters.next().await.unwrap().unwrap().value, "a");
    assert_eq!(letters.next().await.unwrap().unwrap().value, "b");
    assert!(letters.next().await.is_none());

    let (parts, joined) = echo.join().await.unwrap();
    parts.send(&part("a")).await.unwrap();
    parts.send(&part("b")).await.unwrap();
    parts.finish();
    assert_eq!(joined.await.unwrap().value, "ab");

    let (said, mut heard) = echo.converse().await.unwrap();
    said.send(&text("a")).await.unwrap();
    assert_eq!(heard.next().await.unwrap().unwrap().value, "A");
    said.finish();
    assert!(heard.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_call_keeps_its_timeout_and_its_metadata() {
    let echo = EchoClient::new(connected(echo_service(Arc::new(Loud))));
    let call = echo.say(&text("a")).timeout(Duration::from_secs(1));
    let said = call.metadata("times", "1").metadata("times", "2");
    // It owns what it needs.
    let said = tokio::spawn(said).await.unwrap();
    assert_eq!(said.unwrap().value, "AA");
}

#[tokio::test(start_paused = true)]
async fn odd_names_reach_their_own_handlers() {
    let echo = EchoClient::new(connected(echo_service(Arc::new(Loud))));
    echo.type_(&Empty::new()).await.unwrap();
    assert_eq!(echo.into_(&text("a")).await.unwrap().value, "a");
    // Two methods whose names are the same in Rust.
    assert_eq!(echo.get_it_(&text("")).await.unwrap().value, "Get_It");
    let (sender, reply) = echo.move_().await.unwrap();
    let request = Self_ {
        type_: "a".to_owned(),
        ..Self_::default()
    };
    sender.send(&request).await.unwrap();
    assert_eq!(reply.await.unwrap().value, "a");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_implemented_is_answered_unimplemented() {
    struct Mute;
    impl Echo for Mute {}
    let client = connected(echo_service(Arc::new(Mute)));
    let echo = EchoClient::new(client.clone());
    let is_unimplemented = |error: &Error| matches!(error, Error::Status(status) if status.code() == Code::UNIMPLEMENTED);
    let unary = echo.say(&text("a")).await.unwrap_err();
    assert!(is_unimplemented(&unary), "{unary:?}");
    assert!(
        unary
            .to_string()
            .contains("\"demo.v1.Echo\" does not implement \"Say\""),
        "{unary}"
    );
    let streamed = echo
        .spell(&text("a"))
        .await
        .unwrap()
        .next()
        .await
        .unwrap()
        .unwrap_err();
    assert!(is_unimplemented(&streamed), "{streamed:?}");
    let (_parts, reply) = echo.join().await.unwrap();
    let reply = reply.await.unwrap_err();
    assert!(is_unimplemented(&reply), "{reply:?}");
    let (_said, mut heard) = echo.converse().await.unwrap();
    let heard = heard.next().await.unwrap().unwrap_err();
    assert!(is_unimplemented(&heard), "{heard:?}");
    // A service that is not served at all says the same.
    let second = SecondClient::new(client).say(&text("a")).await.unwrap_err();
    assert!(is_unimplemented(&second), "{second:?}");
}

#[tokio::test(start_paused = true)]
async fn an_object_serves_what_its_implementation_does() {
    use boxed::echo::Text;
    use boxed::echo_ttrpc::{Echo, EchoClient, echo_service};

    struct Named(&'static str);

    #[async_trait::async_trait]
    impl Echo for Named {
        async fn say(&self, _: Context, _: Text) -> Result<Text, Status> {
            Ok(Text {
                value: self.0.to_owned(),
                ..Text::default()
            })
        }
    }

    let implementations: [Arc<dyn Echo>; 2] = [Arc::new(Named("a")), Arc::new(Named("b"))];
    let mut said = Vec::new();
    for implementation in implementations {
        let echo = EchoClient::new(connected(echo_service(implementation)));
        said.push(echo.say(&Text::default()).await.unwrap().value);
        let late = echo.join().await.unwrap().1.await.unwrap_err();
        assert!(
            late.to_string().contains("does not implement \"Join\""),
            "{late}"
        );
    }
    assert_eq!(said, ["a", "b"]);
}

#[test]
fn names_are_those_of_the_wire() {
    assert_eq!(echo_names::SERVICE, "demo.v1.Echo");
    assert_eq!(echo_names::GET_URL_OF_HTTP_SERVER, "GetURLOfHTTPServer");
    // Without a package there is no dot.
    assert_eq!(native::plain_ttrpc::plain_names::SERVICE, "Plain");
}
