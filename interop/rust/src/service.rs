//! The services that each side serves; `interop/go/peer` has the same.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protobuf::Message;
use protobuf::well_known_types::any::Any;
use protobuf::well_known_types::wrappers::{BytesValue, Int64Value, StringValue};
use ttrpc_keepalive::{Client, Code, Context, Keepalive, Requests, Responses, Server, Status};

use crate::Result;
use generated::services_ttrpc::{
    Streams, StreamsClient, Unary, UnaryClient, streams_service, unary_names, unary_service,
};

#[allow(clippy::unwrap_used, reason = "rust-protobuf writes it")]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/mod.rs"));
}

pub(crate) const UNARY: &str = unary_names::SERVICE;

pub(crate) fn server(keepalive: Keepalive) -> Result<Server> {
    let server = Server::builder()
        .keepalive(keepalive)
        .service(unary_service(Arc::new(Served)))
        .service(streams_service(Arc::new(Served)));
    Ok(server.build()?)
}

/// Calls the services of a peer.
pub(crate) fn unary_of(client: &Client) -> UnaryClient {
    UnaryClient::new(client.clone())
}

pub(crate) fn streams_of(client: &Client) -> StreamsClient {
    StreamsClient::new(client.clone())
}

struct Served;

impl Unary for Served {
    async fn say(&self, _: Context, text: StringValue) -> Answer<StringValue> {
        Ok(text)
    }

    async fn bytes(&self, _: Context, bytes: BytesValue) -> Answer<BytesValue> {
        Ok(bytes)
    }

    async fn grow(&self, _: Context, size: Int64Value) -> Answer<BytesValue> {
        Ok(zeros(usize::try_from(size.value).unwrap_or_default()))
    }

    async fn sleep(&self, _: Context, ms: Int64Value) -> Answer<Int64Value> {
        tokio::time::sleep(millis(&ms)).await;
        Ok(ms)
    }

    async fn remaining(&self, call: Context, _: StringValue) -> Answer<Int64Value> {
        let left = call.remaining().map_or(0, |left| left.as_nanos());
        Ok(int(i64::try_from(left).unwrap_or(i64::MAX)))
    }

    async fn metadata(&self, call: Context, key: StringValue) -> Answer<StringValue> {
        Ok(text(&call.values(&key.value).collect::<Vec<_>>().join(",")))
    }

    async fn fail(&self, _: Context, code: Int64Value) -> Answer<StringValue> {
        Err(failure(i32::try_from(code.value).unwrap_or_default()))
    }
}

impl Streams for Served {
    async fn sum(&self, _: Context, mut numbers: Requests<Int64Value>) -> Answer<Int64Value> {
        let mut sum = 0;
        while let Some(number) = numbers.next().await {
            sum += number?.value;
        }
        Ok(int(sum))
    }

    async fn count(&self, _: Context, limit: Int64Value, out: Responses<Int64Value>) -> Answer<()> {
        for number in 0..limit.value {
            out.send(&int(number)).await?;
        }
        Ok(())
    }

    async fn chat(
        &self,
        _: Context,
        mut texts: Requests<StringValue>,
        out: Responses<StringValue>,
    ) -> Answer<()> {
        while let Some(text) = texts.next().await {
            let text = text?;
            if text.value == "fail" {
                return Err(failure(Code::ABORTED.value()));
            }
            out.send(&text).await?;
        }
        Ok(())
    }

    async fn refuse(&self, _: Context, _: Requests<StringValue>) -> Answer<StringValue> {
        Err(failure(Code::PERMISSION_DENIED.value()))
    }
}

type Answer<R> = std::result::Result<R, Status>;

fn failure(code: i32) -> Status {
    let detail = Any {
        type_url: "type.googleapis.com/google.protobuf.StringValue".into(),
        value: text("detail").write_to_bytes().unwrap_or_default(),
        ..Default::default()
    };
    Status::new(code.into(), format!("failed with {code}")).with_details(vec![detail])
}

pub(crate) fn text(value: &str) -> StringValue {
    let mut message = StringValue::new();
    message.value = value.to_owned();
    message
}

pub(crate) fn int(value: i64) -> Int64Value {
    let mut message = Int64Value::new();
    message.value = value;
    message
}

pub(crate) fn zeros(size: usize) -> BytesValue {
    let mut message = BytesValue::new();
    message.value = Bytes::from(vec![0; size]).into();
    message
}

fn millis(ms: &Int64Value) -> Duration {
    Duration::from_millis(u64::try_from(ms.value).unwrap_or_default())
}
