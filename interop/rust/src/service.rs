//! The services that each side serves; `interop/go/peer` has the same.

use std::time::Duration;

use bytes::Bytes;
use protobuf::Message;
use protobuf::well_known_types::any::Any;
use protobuf::well_known_types::wrappers::{BytesValue, Int64Value, StringValue};
use ttrpc_keepalive::{Code, Keepalive, Requests, Responses, Server, Service, Status};

use crate::Result;

pub(crate) const UNARY: &str = "interop.Unary";
pub(crate) const STREAMS: &str = "interop.Streams";

pub(crate) fn server(keepalive: Keepalive) -> Result<Server> {
    let server = Server::builder().keepalive(keepalive).service(
        Service::new(UNARY, ())
            .unary("Say", |(), _, text: StringValue| async { Ok(text) })
            .unary("Bytes", |(), _, bytes: BytesValue| async { Ok(bytes) })
            .unary("Grow", |(), _, size: Int64Value| async move {
                Ok(zeros(usize::try_from(size.value).unwrap_or_default()))
            })
            .unary("Sleep", |(), _, ms: Int64Value| async move {
                tokio::time::sleep(millis(&ms)).await;
                Ok(ms)
            })
            .unary("Remaining", |(), call, _: StringValue| async move {
                let left = call.remaining().map_or(0, |left| left.as_nanos());
                Ok(int(i64::try_from(left).unwrap_or(i64::MAX)))
            })
            .unary("Metadata", |(), call, key: StringValue| async move {
                Ok(text(&call.values(&key.value).collect::<Vec<_>>().join(",")))
            })
            .unary("Fail", |(), _, code: Int64Value| async move {
                Err::<StringValue, _>(failure(i32::try_from(code.value).unwrap_or_default()))
            }),
    );
    Ok(streams(server).build()?)
}

fn streams(server: ttrpc_keepalive::ServerBuilder) -> ttrpc_keepalive::ServerBuilder {
    server.service(
        Service::new(STREAMS, ())
            .client_stream(
                "Sum",
                |(), _, mut numbers: Requests<Int64Value>| async move {
                    let mut sum = 0;
                    while let Some(number) = numbers.next().await {
                        sum += number?.value;
                    }
                    Ok(int(sum))
                },
            )
            .server_stream(
                "Count",
                |(), _, limit: Int64Value, out: Responses<Int64Value>| async move {
                    for number in 0..limit.value {
                        out.send(&int(number)).await?;
                    }
                    Ok(())
                },
            )
            .bidi_stream(
                "Chat",
                |(), _, mut texts: Requests<StringValue>, out: Responses<StringValue>| async move {
                    while let Some(text) = texts.next().await {
                        let text = text?;
                        if text.value == "fail" {
                            return Err(failure(Code::ABORTED.value()));
                        }
                        out.send(&text).await?;
                    }
                    Ok(())
                },
            )
            .client_stream("Refuse", |(), _, _: Requests<StringValue>| async {
                Err::<StringValue, _>(failure(Code::PERMISSION_DENIED.value()))
            }),
    )
}

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
