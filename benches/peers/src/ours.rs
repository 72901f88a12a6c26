//! This crate, with each setting of keepalive.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use protobuf::well_known_types::wrappers::BytesValue;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use ttrpc_keepalive::{
    Client, Code, Context, Dispatch, Keepalive, Listener, Responses, Server, Status,
};

use self::generated::echo_ttrpc::{Echo as Service, EchoClient, echo_service};
use crate::Result;
use crate::contender::{BURST, CALL_TIMEOUT, Contender, LATE, StreamOrder};

#[allow(clippy::unwrap_used, reason = "rust-protobuf writes it")]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/ours/mod.rs"));
}

/// How both sides watch each other, and where handlers are polled first.
pub(crate) trait Settings: Send + Sync + 'static {
    fn keepalive() -> Keepalive;

    fn dispatch() -> Dispatch {
        Dispatch::Spawn
    }
}

/// As it comes: a PING shortly before a call's deadline.
pub(crate) struct OnDemand;

/// A PING whenever nothing has come for 10 s.
pub(crate) struct Every10s;

pub(crate) struct Off;

/// As it comes, but that the driver polls handlers before it spawns them.
pub(crate) struct Inline;

impl Settings for OnDemand {
    fn keepalive() -> Keepalive {
        Keepalive::on_demand()
    }
}

impl Settings for Every10s {
    fn keepalive() -> Keepalive {
        Keepalive::every(Duration::from_secs(10))
    }
}

impl Settings for Inline {
    fn keepalive() -> Keepalive {
        Keepalive::on_demand()
    }

    fn dispatch() -> Dispatch {
        Dispatch::Inline
    }
}

impl Settings for Off {
    fn keepalive() -> Keepalive {
        Keepalive::off()
    }
}

pub(crate) struct Echo<S> {
    client: EchoClient,
    request: BytesValue,
    settings: PhantomData<S>,
}

impl<S: Settings> Contender for Echo<S> {
    type Server = JoinHandle<()>;
    type Reply = Vec<u8>;

    async fn serve(address: &str) -> Result<Self::Server> {
        let server = Server::builder()
            .keepalive(S::keepalive())
            .dispatch(S::dispatch())
            // For a burst.
            .handler_limit(BURST)
            .service(echo_service(Arc::new(Served)))
            .build()?;
        let listener = Listener::bind(address).await?;
        Ok(tokio::spawn(async move { server.serve(listener).await }))
    }

    async fn connect(address: &str, payload: Vec<u8>) -> Result<Self> {
        let client = Client::builder()
            .keepalive(S::keepalive())
            .connect(address)
            .await?;
        Ok(Self {
            client: EchoClient::new(client),
            request: message(payload),
            settings: PhantomData,
        })
    }

    async fn echo(&self) -> Result<Vec<u8>> {
        let call = self.client.echo(&self.request);
        Ok(call.timeout(CALL_TIMEOUT).await?.value)
    }

    async fn stream(&self, order: StreamOrder) -> Result<()> {
        let request = message(order.to_payload());
        let call = self.client.repeat(&request);
        let mut messages = call.timeout(CALL_TIMEOUT).await?;
        let mut received = 0;
        while let Some(message) = messages.next().await {
            order.check(received, message?.value.len())?;
            received += 1;
        }
        order.check_end(received)
    }

    async fn late(&self) -> Result<bool> {
        let call = self.client.wait(&self.request);
        match call.timeout(LATE.0).await {
            Ok(_) => Ok(false),
            Err(error) if error.is_deadline() => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}

struct Served;

impl Service for Served {
    async fn echo(&self, _: Context, request: BytesValue) -> Answer<BytesValue> {
        Ok(request)
    }

    async fn wait(&self, _: Context, request: BytesValue) -> Answer<BytesValue> {
        sleep(LATE.1).await;
        Ok(request)
    }

    async fn repeat(
        &self,
        _: Context,
        request: BytesValue,
        responses: Responses<BytesValue>,
    ) -> Answer<()> {
        let order = StreamOrder::from_payload(&request.value)
            .ok_or_else(|| Status::new(Code::INVALID_ARGUMENT, "not an order"))?;
        let message = message(order.message());
        for _ in 0..order.messages {
            responses.send(&message).await?;
        }
        Ok(())
    }
}

type Answer<R> = std::result::Result<R, Status>;

fn message(payload: Vec<u8>) -> BytesValue {
    let mut message = BytesValue::new();
    message.value = payload;
    message
}
