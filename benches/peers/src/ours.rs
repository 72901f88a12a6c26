//! This crate.

use protobuf::well_known_types::wrappers::BytesValue;
use tokio::task::JoinHandle;
use ttrpc_keepalive::{Client, Context, Keepalive, Listener, Server};

use crate::Result;
use crate::child::{CALL_TIMEOUT, Contender};

pub(crate) struct Echo {
    client: Client,
    request: BytesValue,
}

impl Contender for Echo {
    type Server = JoinHandle<()>;
    type Reply = Vec<u8>;

    async fn serve(address: &str) -> Result<Self::Server> {
        let server = Server::builder()
            .unary(
                "bench.Echo",
                "Echo",
                |_: Context, request: BytesValue| async move { Ok(request) },
            )
            .build()?;
        let listener = Listener::bind(address).await?;
        Ok(tokio::spawn(async move { server.serve(listener).await }))
    }

    async fn connect(address: &str, payload: Vec<u8>) -> Result<Self> {
        let client = Client::builder()
            .keepalive(Keepalive::on_demand())
            .connect(address)
            .await?;
        let mut request = BytesValue::new();
        request.value = payload;
        Ok(Self { client, request })
    }

    async fn echo(&self) -> Result<Vec<u8>> {
        let call = self
            .client
            .call::<_, BytesValue>("bench.Echo", "Echo", &self.request);
        Ok(call.timeout(CALL_TIMEOUT).await?.value)
    }
}
