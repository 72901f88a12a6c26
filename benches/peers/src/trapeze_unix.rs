//! trapeze, unary calls only. What its generator would write, which needs protoc, is written here.

use std::sync::Arc;

use trapeze::__codegen_prelude::{MethodHandler, RequestHandler, Service, UnaryMethod};
use trapeze::{Client, ClientExt, Server, ServerHandle};

use crate::Result;
use crate::contender::{CALL_TIMEOUT, Contender};

pub(crate) struct Echo {
    client: Client,
    payload: Vec<u8>,
}

impl Contender for Echo {
    type Server = ServerHandle;
    type Reply = Vec<u8>;

    async fn serve(address: &str) -> Result<Self::Server> {
        Ok(Server::new().register(Handler).bind(address).await?)
    }

    async fn connect(address: &str, payload: Vec<u8>) -> Result<Self> {
        let client = Client::connect(address).await?.with_timeout(CALL_TIMEOUT);
        Ok(Self { client, payload })
    }

    async fn echo(&self) -> Result<Self::Reply> {
        let (service, method) = ("bench.Echo".to_owned(), "Echo".to_owned());
        let call = self
            .client
            .handle_unary_request(service, method, self.payload.clone());
        call.await.map_err(|status| status.message.into())
    }
}

struct Handler;

impl Service for Handler {
    fn methods(&self) -> Vec<(&'static str, Arc<dyn MethodHandler + Send + Sync>)> {
        let echo = UnaryMethod::new(|request: Vec<u8>| async move { Ok(request) });
        vec![("/bench.Echo/Echo", Arc::new(echo))]
    }
}
