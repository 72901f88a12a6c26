//! Calls of each kind, by what each generator writes.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use protobuf::well_known_types::empty::Empty;
use ttrpc::r#async::{
    Client, ClientStream, Server, ServerStream, ServerStreamReceiver, ServerStreamSender,
    TtrpcContext,
};
use ttrpc::{Code, Error, context};

/// A client of a server in this process.
async fn connected(
    folder: &tempfile::TempDir,
    service: HashMap<String, ttrpc::r#async::Service>,
) -> (Server, Client) {
    let address = format!("unix://{}/socket", folder.path().display());
    let server = Server::new().bind(&address).unwrap();
    let mut server = server.register_service(service);
    server.start().await.unwrap();
    (server, Client::connect(&address).await.unwrap())
}

/// How a generator wants a service: in a box within an `Arc`, or in an `Arc`.
macro_rules! wrapped {
    (boxed, $service:path) => {
        Arc::new(Box::new(Handler) as Box<dyn $service + Send + Sync>)
    };
    (shared, $service:path) => {
        Arc::new(Handler) as Arc<dyn $service + Send + Sync>
    };
}

macro_rules! generator {
    ($version:ident, $wrapped:ident) => {
        mod $version {
            use super::*;
            use ttrpc_keepalive_compat_generated::$version::{
                kinds::Text, kinds_ttrpc, plain::Word, plain_ttrpc,
            };

            struct Handler;

            fn text(value: &str) -> Text {
                let mut text = Text::new();
                text.value = value.to_owned();
                text
            }

            #[async_trait]
            impl kinds_ttrpc::Kinds for Handler {
                async fn say(&self, context: &TtrpcContext, request: Text) -> ttrpc::Result<Text> {
                    match request.value.as_str() {
                        "fail" => Err(Error::RpcStatus(ttrpc::get_status(
                            Code::ABORTED,
                            "so it is",
                        ))),
                        "other" => Err(Error::Others("xx".to_owned())),
                        "panic" => panic!("as it was told"),
                        "metadata" => Ok(text(&context.metadata["key"].join("+"))),
                        _ => Ok(request),
                    }
                }

                async fn nothing(&self, _: &TtrpcContext, _: Empty) -> ttrpc::Result<Empty> {
                    Ok(Empty::new())
                }

                async fn collect(
                    &self,
                    _: &TtrpcContext,
                    mut requests: ServerStreamReceiver<Text>,
                ) -> ttrpc::Result<Text> {
                    let mut all = Text::new();
                    while let Some(request) = requests.recv().await? {
                        all.value += &request.value;
                    }
                    Ok(all)
                }

                async fn spell(
                    &self,
                    _: &TtrpcContext,
                    request: Text,
                    responses: ServerStreamSender<Text>,
                ) -> ttrpc::Result<()> {
                    for letter in request.value.chars() {
                        if letter == '!' {
                            return Err(Error::Others("no letter".to_owned()));
                        }
                        responses.send(&text(&letter.to_string())).await?;
                    }
                    Ok(())
                }

                async fn each(
                    &self,
                    _: &TtrpcContext,
                    stream: ServerStream<Text, Text>,
                ) -> ttrpc::Result<()> {
                    let (responses, mut requests) = stream.split();
                    while let Some(request) = requests.recv().await? {
                        responses.clone().send(&request).await?;
                    }
                    Ok(())
                }
            }

            #[tokio::test]
            async fn each_kind_of_method_is_called() {
                let folder = tempfile::tempdir().unwrap();
                let service = wrapped!($wrapped, kinds_ttrpc::Kinds);
                let service = kinds_ttrpc::create_kinds(service);
                let (mut server, client) = connected(&folder, service).await;
                let kinds = kinds_ttrpc::KindsClient::new(client);
                let none = context::Context::default;

                assert_eq!(kinds.say(none(), &text("a")).await.unwrap().value, "a");
                kinds.nothing(none(), &Empty::new()).await.unwrap();
                let mut metadata = context::with_timeout(10_000_000_000);
                metadata.add("Key".to_owned(), "1".to_owned());
                metadata.add("key".to_owned(), "2".to_owned());
                let told = kinds.say(metadata, &text("metadata")).await.unwrap();
                assert_eq!(told.value, "1+2");

                let mut collect = kinds.collect(none()).await.unwrap();
                collect.send(&text("a")).await.unwrap();
                collect.send(&text("b")).await.unwrap();
                assert_eq!(collect.close_and_recv().await.unwrap().value, "ab");
                assert_eq!(collect.close_and_recv().await, Err(Error::LocalClosed));

                let mut spell = kinds.spell(none(), &text("abc")).await.unwrap();
                for letter in ["a", "b", "c"] {
                    assert_eq!(spell.recv().await.unwrap().unwrap().value, letter);
                }
                assert_eq!(spell.recv().await, Ok(None));
                assert_eq!(spell.recv().await, Err(Error::RemoteClosed));

                let mut each: ClientStream<Text, Text> = kinds.each(none()).await.unwrap();
                each.send(&text("a")).await.unwrap();
                assert_eq!(each.recv().await.unwrap().value, "a");
                each.close_send().await.unwrap();
                assert_eq!(each.send(&text("b")).await, Err(Error::LocalClosed));
                assert_eq!(each.recv().await, Err(Error::Eof));
                assert_eq!(each.recv().await, Err(Error::RemoteClosed));
                server.shutdown().await.unwrap();
            }

            #[tokio::test]
            async fn failures_are_told_by_their_codes() {
                let folder = tempfile::tempdir().unwrap();
                let service = wrapped!($wrapped, kinds_ttrpc::Kinds);
                let service = kinds_ttrpc::create_kinds(service);
                let (_server, client) = connected(&folder, service).await;
                let kinds = kinds_ttrpc::KindsClient::new(client);
                let status = |error| match error {
                    Error::RpcStatus(status) => (status.code(), status.message().to_owned()),
                    other => panic!("{other:?}"),
                };
                let say = async |value| {
                    let context = context::Context::default();
                    status(kinds.say(context, &text(value)).await.unwrap_err())
                };
                assert_eq!(say("fail").await, (Code::ABORTED, "so it is".to_owned()));
                assert_eq!(
                    say("other").await,
                    (Code::UNKNOWN, "Others(\"xx\")".to_owned())
                );
                assert_eq!(say("panic").await.0, Code::INTERNAL);
                let context = context::Context::default();
                let missing = kinds.missing(context, &text("")).await.unwrap_err();
                assert_eq!(status(missing).0, Code::NOT_FOUND);
                let context = context::Context::default();
                let mut spell = kinds.spell(context, &text("a!")).await.unwrap();
                assert_eq!(spell.recv().await.unwrap().unwrap().value, "a");
                let failed = status(spell.recv().await.unwrap_err());
                assert_eq!(failed, (Code::UNKNOWN, "Others(\"no letter\")".to_owned()));
            }

            impl plain_ttrpc::Plain for Handler {
                fn say(&self, context: &ttrpc::TtrpcContext, request: Word) -> ttrpc::Result<Word> {
                    assert_eq!(context.mh.stream_id % 2, 1);
                    Ok(request)
                }
            }

            #[test]
            fn a_sync_service_is_called_by_a_sync_client() {
                let folder = tempfile::tempdir().unwrap();
                let address = format!("unix://{}/socket", folder.path().display());
                let service = wrapped!($wrapped, plain_ttrpc::Plain);
                let mut server = ttrpc::Server::new()
                    .bind(&address)
                    .unwrap()
                    .register_service(plain_ttrpc::create_plain(service));
                server.start().unwrap();
                let client = ttrpc::Client::connect(&address).unwrap();
                let plain = plain_ttrpc::PlainClient::new(client);
                let mut word = Word::new();
                word.value = "a".to_owned();
                for _ in 0..3 {
                    let reply = plain.say(context::with_timeout(10_000_000_000), &word);
                    assert_eq!(reply.unwrap().value, "a");
                }
                server.shutdown();
                let ended = plain.say(context::Context::default(), &word).unwrap_err();
                assert!(matches!(ended, Error::Socket(_)), "{ended:?}");
            }
        }
    };
}

generator!(v0_4, boxed);
generator!(v0_5, shared);
generator!(v0_6, shared);
generator!(v0_7, shared);
