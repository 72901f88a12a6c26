//! Clients and servers on tokio, by the names of `ttrpc::asynchronous`.

mod client;
mod server;
mod stream;
mod typed;

use std::collections::HashMap;

use async_trait::async_trait;

pub use crate::transport;
pub use client::Client;
pub use server::{Server, Service};
pub use stream::{StreamInner, StreamReceiver, StreamSender};
pub use typed::{
    CSReceiver, CSSender, ClientStream, ClientStreamReceiver, ClientStreamSender, SSReceiver,
    SSSender, ServerStream, ServerStreamReceiver, ServerStreamSender,
};

use crate::error::Result;
use crate::proto::{MessageHeader, Request, Response};

/// What a handler is told of its call.
#[derive(Debug, Default)]
pub struct TtrpcContext {
    /// The header of the request; of it the stream id and the type.
    pub mh: MessageHeader,
    /// Values by key.
    pub metadata: HashMap<String, Vec<String>>,
    /// What is left of the caller's time when the handler begins, in nanoseconds; 0 if it has none.
    pub timeout_nano: i64,
}

/// A unary method. Generated code implements it.
#[async_trait]
pub trait MethodHandler {
    /// Answers a request.
    async fn handler(&self, ctx: TtrpcContext, req: Request) -> Result<Response>;
}

/// A streaming method. Generated code implements it.
#[async_trait]
pub trait StreamHandler {
    /// Serves a stream, and ends it with a response or without.
    async fn handler(&self, ctx: TtrpcContext, stream: StreamInner) -> Result<Option<Response>>;
}

/// The end of a stream of responses.
#[doc(hidden)]
pub fn stream_end(result: Result<()>) -> Result<Option<Response>> {
    let Err(error) = result else { return Ok(None) };
    let mut response = Response::new();
    response.set_status(crate::proto::status_of(error));
    Ok(Some(response))
}
