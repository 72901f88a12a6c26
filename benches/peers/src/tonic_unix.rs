//! tonic over a unix socket, with the client and server that tonic-build writes.

use std::iter::{self, RepeatN};

use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_stream::{Iter, iter};
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

use crate::Result;
use crate::contender::{CALL_TIMEOUT, Contender, StreamOrder};
use generated::echo_client::EchoClient;
use generated::echo_server::{self, EchoServer};

#[allow(clippy::as_conversions, clippy::use_self, unused_qualifications)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/bench.Echo.rs"));
}

pub(crate) struct Echo {
    client: EchoClient<Channel>,
    payload: Vec<u8>,
}

impl Contender for Echo {
    type Server = JoinHandle<std::result::Result<(), tonic::transport::Error>>;
    type Reply = Vec<u8>;

    async fn serve(address: &str) -> Result<Self::Server> {
        let incoming = UnixListenerStream::new(UnixListener::bind(crate::path(address)?)?);
        let server = Server::builder().serve_with_incoming(EchoServer::new(Handler), incoming);
        Ok(tokio::spawn(server))
    }

    async fn connect(address: &str, payload: Vec<u8>) -> Result<Self> {
        let channel = Endpoint::from_shared(address.to_owned())?.connect().await?;
        let client = EchoClient::new(channel);
        Ok(Self { client, payload })
    }

    async fn echo(&self) -> Result<Self::Reply> {
        let request = request(self.payload.clone());
        Ok(self.client.clone().echo(request).await?.into_inner())
    }

    async fn stream(&self, order: StreamOrder) -> Result<()> {
        let request = request(order.to_payload());
        let mut messages = self.client.clone().repeat(request).await?.into_inner();
        let mut received = 0;
        while let Some(message) = messages.message().await? {
            order.check(received, message.len())?;
            received += 1;
        }
        order.check_end(received)
    }
}

fn request(payload: Vec<u8>) -> Request<Vec<u8>> {
    let mut request = Request::new(payload);
    request.set_timeout(CALL_TIMEOUT);
    request
}

struct Handler;

#[tonic::async_trait]
impl echo_server::Echo for Handler {
    async fn echo(
        &self,
        request: Request<Vec<u8>>,
    ) -> std::result::Result<Response<Vec<u8>>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    type RepeatStream = Iter<RepeatN<std::result::Result<Vec<u8>, Status>>>;

    /// The messages are all there at once, which lets tonic write many of them together.
    async fn repeat(
        &self,
        request: Request<Vec<u8>>,
    ) -> std::result::Result<Response<Self::RepeatStream>, Status> {
        let order = StreamOrder::from_payload(request.get_ref())
            .ok_or_else(|| Status::invalid_argument("not an order"))?;
        let messages = usize::try_from(order.messages).unwrap_or(usize::MAX);
        let messages = iter::repeat_n(Ok(order.message()), messages);
        Ok(Response::new(iter(messages)))
    }
}
