//! An echo server on a unix socket, and a client that watches one, to try against peers in other
//! languages.
//!
//! ```text
//! cargo run --example echo -- serve SOCKET [MILLISECONDS a call takes]
//! cargo run --example echo -- watch SOCKET
//! ```
//!
//! The client makes one call of half a second at most and prints how it ended, then each change of
//! what it knows about the peer, until the connection ends.

#![expect(clippy::print_stdout, reason = "it is there to be watched")]

use std::time::Duration;

use protobuf::well_known_types::wrappers::StringValue;
use ttrpc_keepalive::{Client, Context, Keepalive, Listener, Server, Service, Status};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", socket] => serve(socket, Duration::ZERO).await,
        ["serve", socket, delay] => serve(socket, Duration::from_millis(delay.parse()?)).await,
        ["watch", socket] => watch(socket).await,
        _ => Err("say `serve SOCKET`, `serve SOCKET MILLISECONDS` or `watch SOCKET`".into()),
    }
}

async fn serve(socket: &str, delay: Duration) -> Result<()> {
    let say = move |_: Context, request: StringValue| async move {
        tokio::time::sleep(delay).await;
        Ok::<_, Status>(request)
    };
    let server = Server::builder()
        .service(
            Service::new("demo.Echo", ())
                .unary("Say", move |(), context, request| say(context, request)),
        )
        .build()?;
    let listener = Listener::bind(&format!("unix://{socket}")).await?;
    println!("listening");
    server.serve(listener).await;
    Ok(())
}

async fn watch(socket: &str) -> Result<()> {
    let keepalive =
        Keepalive::every(Duration::from_millis(100)).timeout(Duration::from_millis(300));
    let client = Client::builder()
        .keepalive(keepalive)
        .connect(&format!("unix://{socket}"))
        .await?;
    let mut liveness = client.liveness();

    let mut request = StringValue::new();
    request.value = "hi".into();
    let call = client.call::<_, StringValue>("demo.Echo", "Say", &request);
    match call.timeout(Duration::from_millis(500)).await {
        Ok(reply) => println!("answer: {}", reply.value),
        Err(error) => println!("{error}"),
    }
    while let Some(seen) = liveness.next().await {
        println!("{}, support {:?}", seen.state(), seen.support());
    }
    Ok(())
}
