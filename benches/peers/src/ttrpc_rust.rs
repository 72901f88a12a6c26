//! ttrpc-rust, async, with the client and server that ttrpc-codegen writes.

use std::sync::Arc;

use async_trait::async_trait;
use protobuf::well_known_types::wrappers::BytesValue;
use ttrpc::r#async::{Client, Server, TtrpcContext};
use ttrpc::context;

use crate::Result;
use crate::child::{CALL_TIMEOUT, Contender};
use generated::echo_ttrpc::{self, EchoClient};

#[allow(clippy::as_conversions, clippy::use_self)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/mod.rs"));
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
        let mut request = BytesValue::new();
        request.value = payload;
        Ok(Self { client, request })
    }

    async fn echo(&self) -> Result<Self::Reply> {
        let context = context::with_duration(CALL_TIMEOUT);
        Ok(self.client.echo(context, &self.request).await?.value)
    }
}

struct Handler;

#[async_trait]
impl echo_ttrpc::Echo for Handler {
    async fn echo(&self, _: &TtrpcContext, request: BytesValue) -> ttrpc::Result<BytesValue> {
        Ok(request)
    }
}
