//! Calls with messages of prost.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::collections::HashMap;
use std::sync::Arc;

use protobuf::well_known_types::{empty::Empty, wrappers::StringValue};
use ttrpc_keepalive::{Client, Code, Context, Raw, Requests, Responses, Server, Status};
use ttrpc_keepalive_codegen_odd::prost::{echo_ttrpc, messages};

use echo_ttrpc::{Echo, EchoClient, echo_service};
use messages::demo::v1::{Self_, Text, Type, text::Part};

fn text(value: &str) -> Text {
    Text {
        value: value.to_owned(),
        parts: HashMap::new(),
    }
}

struct Loud;

impl Echo for Loud {
    async fn say(&self, _: Context, mut request: Text) -> Result<Text, Status> {
        request.value.make_ascii_uppercase();
        Ok(request)
    }

    async fn spell(
        &self,
        _: Context,
        request: Text,
        responses: Responses<Part>,
    ) -> Result<(), Status> {
        for letter in request.value.chars() {
            let value = letter.to_string();
            responses.send(&Part { value }).await?;
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
            value: first.r#type,
        })
    }
}

#[tokio::test(start_paused = true)]
async fn messages_of_prost_are_sent_and_received_and_what_is_none_is_refused() {
    let service = echo_service(Arc::new(Loud));
    let server = Server::builder().service(service).build().unwrap();
    let (here, there) = tokio::io::duplex(4096);
    tokio::spawn(async move { server.serve_connection(there).await });
    let client = Client::builder().attach(here).unwrap();
    let echo = EchoClient::new(client.clone());

    let part = Part {
        value: "b".to_owned(),
    };
    let said = Text {
        parts: HashMap::from([("a".to_owned(), part)]),
        ..text("say")
    };
    let answer = echo.say(&said).await.unwrap();
    assert_eq!((answer.value.as_str(), &answer.parts), ("SAY", &said.parts));

    let mut letters = echo.spell(&text("ab")).await.unwrap();
    let mut spelled = Vec::new();
    while let Some(letter) = letters.next().await {
        spelled.push(letter.unwrap().value);
    }
    assert_eq!(spelled, ["a", "b"]);

    let (sender, reply) = echo.move_().await.unwrap();
    let r#type = "moved".to_owned();
    sender.send(&Self_ { r#type }).await.unwrap();
    sender.finish();
    assert_eq!(reply.await.unwrap().value, "moved");

    assert_eq!(echo.type_(&Empty::new()).await.unwrap().value, "");

    let none = client.call::<_, Raw>("demo.v1.Echo", "Say", &Raw(b"\xff"));
    let refused = none.await.unwrap_err();
    let status = refused.status().unwrap();
    assert_eq!(status.code(), Code::INVALID_ARGUMENT);
}
