//! The API of ttrpc-rust, by ttrpc-rust itself and by `ttrpc-keepalive-compat` in its place, with the
//! clients and servers that ttrpc-codegen writes: async, and of threads.

use protobuf::well_known_types::wrappers::BytesValue;

/// The same contenders by one of the two crates, and by what is generated for it in this folder.
macro_rules! contenders {
    ($name:ident, $ttrpc:ident, $folder:literal) => {
        pub(crate) mod $name {
            use std::sync::Arc;

            use async_trait::async_trait;
            use protobuf::well_known_types::wrappers::BytesValue;
            use $ttrpc::r#async::{Client, Server, ServerStreamSender, TtrpcContext};
            use $ttrpc::{Code, context, get_status};

            use super::message;
            use crate::Result;
            use crate::contender::{CALL_TIMEOUT, Contender, StreamOrder};
            use generated::echo_ttrpc::{self, EchoClient};

            #[allow(clippy::as_conversions, clippy::use_self)]
            mod generated {
                include!(concat!(env!("OUT_DIR"), "/", $folder, "/mod.rs"));
            }

            pub(crate) struct Echo {
                client: EchoClient,
                request: BytesValue,
            }

            impl Contender for Echo {
                type Server = Server;
                type Reply = Vec<u8>;

                async fn serve(address: &str) -> Result<Self::Server> {
                    let service = echo_ttrpc::create_echo(Arc::new(Handler));
                    let mut server = Server::new().bind(address)?.register_service(service);
                    server.start().await?;
                    Ok(server)
                }

                async fn connect(address: &str, payload: Vec<u8>) -> Result<Self> {
                    let client = EchoClient::new(Client::connect(address).await?);
                    Ok(Self {
                        client,
                        request: message(payload),
                    })
                }

                async fn echo(&self) -> Result<Self::Reply> {
                    let context = context::with_duration(CALL_TIMEOUT);
                    Ok(self.client.echo(context, &self.request).await?.value)
                }

                async fn stream(&self, order: StreamOrder) -> Result<()> {
                    let context = context::with_duration(CALL_TIMEOUT);
                    let request = message(order.to_payload());
                    let mut messages = self.client.repeat(context, &request).await?;
                    let mut received = 0;
                    while let Some(message) = messages.recv().await? {
                        order.check(received, message.value.len())?;
                        received += 1;
                    }
                    order.check_end(received)
                }
            }

            struct Handler;

            #[async_trait]
            impl echo_ttrpc::Echo for Handler {
                async fn echo(
                    &self,
                    _: &TtrpcContext,
                    request: BytesValue,
                ) -> $ttrpc::Result<BytesValue> {
                    Ok(request)
                }

                async fn repeat(
                    &self,
                    _: &TtrpcContext,
                    request: BytesValue,
                    sender: ServerStreamSender<BytesValue>,
                ) -> $ttrpc::Result<()> {
                    let order = StreamOrder::from_payload(&request.value).ok_or_else(|| {
                        $ttrpc::Error::RpcStatus(get_status(Code::INVALID_ARGUMENT, "not an order"))
                    })?;
                    let message = message(order.message());
                    for _ in 0..order.messages {
                        sender.send(&message).await?;
                    }
                    Ok(())
                }
            }

            /// With threads in the place of tasks.
            #[cfg(feature = "facade")]
            pub(crate) struct Threads {
                client: generated::threads_ttrpc::EchoClient,
                request: BytesValue,
            }

            #[cfg(feature = "facade")]
            impl Contender for Threads {
                type Server = $ttrpc::Server;
                type Reply = Vec<u8>;
                const BLOCKS: bool = true;

                async fn serve(address: &str) -> Result<Self::Server> {
                    let service = generated::threads_ttrpc::create_echo(Arc::new(Handler));
                    let server = $ttrpc::Server::new().bind(address)?;
                    let mut server = server.register_service(service);
                    server.start()?;
                    Ok(server)
                }

                async fn connect(address: &str, payload: Vec<u8>) -> Result<Self> {
                    let client = $ttrpc::Client::connect(address)?;
                    Ok(Self {
                        client: generated::threads_ttrpc::EchoClient::new(client),
                        request: message(payload),
                    })
                }

                async fn echo(&self) -> Result<Self::Reply> {
                    let context = context::with_duration(CALL_TIMEOUT);
                    Ok(self.client.echo(context, &self.request)?.value)
                }
            }

            #[cfg(feature = "facade")]
            impl generated::threads_ttrpc::Echo for Handler {
                fn echo(
                    &self,
                    _: &$ttrpc::TtrpcContext,
                    request: BytesValue,
                ) -> $ttrpc::Result<BytesValue> {
                    Ok(request)
                }
            }
        }
    };
}

contenders!(theirs, ttrpc, "ttrpc");
#[cfg(feature = "facade")]
contenders!(facade, ttrpc_keepalive_compat, "facade");

fn message(payload: Vec<u8>) -> BytesValue {
    let mut message = BytesValue::new();
    message.value = payload;
    message
}
