//! The multiplexer under the crate's own clients and servers.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use protobuf::well_known_types::wrappers::BytesValue;
use tokio::net::UnixStream;
use ttrpc_keepalive::{Client, Context, Server, Service, Status};
use ttrpc_keepalive_nri::multiplexer::Multiplexer;

fn echo() -> Server {
    let say = |_: Context, request: BytesValue| async move { Ok::<_, Status>(request) };
    Server::builder()
        .service(
            Service::new("demo.Echo", ())
                .unary("Say", move |(), context, request| say(context, request)),
        )
        .build()
        .unwrap()
}

async fn say(client: &Client, length: usize) {
    let mut request = BytesValue::new();
    request.value = vec![7; length];
    let reply: BytesValue = client.call("demo.Echo", "Say", &request).await.unwrap();
    assert_eq!(reply, request);
}

#[tokio::test]
async fn both_ends_call_each_other_over_one_socket() {
    let (here, there) = UnixStream::pair().unwrap();
    let plugin = Multiplexer::new().split(here);
    let runtime = Multiplexer::new().split(there);
    let (server, other) = (echo(), echo());
    tokio::spawn(async move { server.serve_connection(plugin.plugin_service).await });
    tokio::spawn(async move { other.serve_connection(runtime.runtime_service).await });
    let to_plugin = Client::builder().attach(runtime.plugin_service).unwrap();
    let to_runtime = Client::builder().attach(plugin.runtime_service).unwrap();
    for length in [0, 1, 4000, 4075, 4096, 5000, 70_000, 1 << 20, 4_000_000] {
        tokio::join!(say(&to_plugin, length), say(&to_runtime, length));
    }
}
