//! A server of streams, and the opening of each kind.

use std::sync::Arc;

use bytes::Bytes;
use protobuf::well_known_types::wrappers::StringValue;
use ttrpc_keepalive::{
    Client, Context, Raw, Receiver, Reply, Requests, Responses, Sender, ServerBuilder, Service,
    Status,
};

use super::{echo, pair, raw, text};

pub(crate) const SERVICE: &str = "demo.Stream";

/// `Count` sends so many messages, `Join` answers with all requests in a row, `Echo` sends each
/// back, `Flood` sends 1 KiB each until it cannot.
pub(crate) fn streams() -> ServerBuilder {
    echo().service(
        Service::new(SERVICE, ())
            .server_stream(
                "Count",
                |(), _, to: StringValue, out: Responses<StringValue>| async move {
                    for number in 0..to.value.parse().unwrap_or(0u32) {
                        out.send(&text(&number.to_string())).await?;
                    }
                    Ok(())
                },
            )
            .client_stream(
                "Join",
                |(), _, mut requests: Requests<StringValue>| async move {
                    let mut all = String::new();
                    while let Some(request) = requests.next().await {
                        all.push_str(&request?.value);
                    }
                    Ok(text(&all))
                },
            )
            .bidi_stream(
                "Echo",
                |(), _, mut requests: Requests<StringValue>, out: Responses<_>| async move {
                    while let Some(request) = requests.next().await {
                        out.send(&request?).await?;
                    }
                    Ok::<_, Status>(())
                },
            )
            .server_stream("Flood", |(), _, _: Raw, out: Responses<Raw>| async move {
                loop {
                    out.send(&raw([7; 1024])).await?;
                }
            }),
    )
}

pub(crate) fn client_of(server: ServerBuilder) -> Client {
    pair(server.build().unwrap(), Client::builder(), 64 << 10).0
}

pub(crate) async fn count(client: &Client, to: &str) -> Receiver<StringValue> {
    let to = text(to);
    client.server_stream(SERVICE, "Count", &to).await.unwrap()
}

pub(crate) async fn join(client: &Client) -> (Sender<StringValue>, Reply<StringValue>) {
    client.client_stream(SERVICE, "Join").await.unwrap()
}

pub(crate) async fn echoed(client: &Client) -> (Sender<StringValue>, Receiver<StringValue>) {
    client.bidi_stream(SERVICE, "Echo").await.unwrap()
}
