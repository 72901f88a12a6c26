//! The server and the client of `interop/go/peer`, as far as the compatibility table needs them, on
//! an unmodified trapeze.

use std::time::Duration;

use futures::{Stream, StreamExt};
use generated::{Number, Streams, Text, Unary};
use tokio::io::{AsyncBufReadExt, BufReader};
use trapeze::{Client, Server};

#[rustfmt::skip]
#[allow(clippy::all, clippy::pedantic)]
mod generated;

include!("../logged.rs");

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    log_lines();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", socket] => serve(&format!("unix://{socket}")).await,
        ["script", socket] => script(&format!("unix://{socket}")).await,
        _ => Err("usage: peer serve|script SOCKET".into()),
    }
}

async fn serve(address: &str) -> Result<()> {
    let server = Server::new()
        .register(generated::Unary(Handler))
        .register(generated::Streams(Handler));
    let handle = server.bind(address).await?;
    let controller = handle.controller();
    let serving = tokio::spawn(handle);
    println!("ready");
    let mut serving = Some(serving);
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = input.next_line().await? {
        if line == "shutdown" {
            controller.shutdown();
            if let Some(serving) = serving.take() {
                println!("down {}", serving.await?.is_ok());
            }
        }
    }
    Ok(())
}

/// One call for each line, one after another.
async fn script(address: &str) -> Result<()> {
    let client = Client::connect(address).await?;
    println!("ready");
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = input.next_line().await? {
        let done = match line.split_once(' ').unwrap_or((&line, "")) {
            ("say", value) => say(&client, value).await,
            ("stream", _) => count(&client).await,
            _ => Err("no such call".into()),
        };
        match done {
            Ok(()) => println!("{line} ok"),
            Err(error) => println!("{line} error: {error}"),
        }
    }
    Ok(())
}

async fn say(client: &Client, value: &str) -> Result<()> {
    let value = value.to_owned();
    let request = Text {
        value: value.clone(),
    };
    let reply = client.say(request).await?.value;
    if reply == value {
        Ok(())
    } else {
        Err(format!("answered {reply:?}").into())
    }
}

async fn count(client: &Client) -> Result<()> {
    let mut numbers = std::pin::pin!(client.count(Number { value: 5 }));
    let mut want = 0;
    while let Some(number) = numbers.next().await {
        let number = number?.value;
        if number != want {
            return Err(format!("{number} came for {want}").into());
        }
        want += 1;
    }
    if want == 5 {
        Ok(())
    } else {
        Err(format!("{want} of 5 came").into())
    }
}

struct Handler;

impl Unary for Handler {
    async fn say(&self, text: Text) -> trapeze::Result<Text> {
        Ok(text)
    }

    async fn sleep(&self, ms: Number) -> trapeze::Result<Number> {
        tokio::time::sleep(Duration::from_millis(ms.value.unsigned_abs())).await;
        Ok(ms)
    }
}

impl Streams for Handler {
    fn count(&self, limit: Number) -> impl Stream<Item = trapeze::Result<Number>> + Send {
        futures::stream::iter((0..limit.value).map(|value| Ok(Number { value })))
    }
}
