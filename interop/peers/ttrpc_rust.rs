// The server and the client of `interop/go/peer`, as far as the compatibility table needs them, on
// an unmodified ttrpc-rust. Each version has a crate of its own, since its generated code says
// `::ttrpc::`; what differs between versions is in those.

use std::future::Future;
use std::time::Duration;

use async_trait::async_trait;
use generated::interop::{Number, Text};
use generated::interop_ttrpc::{Streams, StreamsClient, Unary, UnaryClient};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::runtime::Builder;
use ttrpc::r#async::{Client, Server, ServerStreamSender, TtrpcContext};

#[allow(clippy::all, clippy::pedantic, unused, renamed_and_removed_lints)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/mod.rs"));
}

include!("logged.rs");

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Result<()> {
    log_lines();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", socket] => run(&mut Builder::new_multi_thread(), serve(socket, false)),
        ["serve-on-one-thread", socket] => run(&mut Builder::new_current_thread(), serve(socket, true)),
        ["serve-sync", socket] => serve_sync(&format!("unix://{socket}")),
        ["script", socket] => {
            run(&mut Builder::new_multi_thread(), script(&format!("unix://{socket}")))
        }
        _ => Err("usage: peer serve|serve-on-one-thread|serve-sync|script SOCKET".into()),
    }
}

fn run(runtime: &mut Builder, does: impl Future<Output = Result<()>>) -> Result<()> {
    runtime.enable_all().build()?.block_on(does)
}

/// With handlers that block the thread which they sleep on, or not.
async fn serve(socket: &str, blocks: bool) -> Result<()> {
    let mut server = register(Server::new().bind(&format!("unix://{socket}"))?, blocks);
    server.start().await?;
    println!("ready");
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = input.next_line().await? {
        if line == "shutdown" {
            println!("down {}", server.shutdown().await.is_ok());
        }
    }
    Ok(())
}

/// One call for each line, one after another.
async fn script(address: &str) -> Result<()> {
    let client = connect(address).await?;
    let (unary, streams) = (UnaryClient::new(client.clone()), StreamsClient::new(client));
    println!("ready");
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = input.next_line().await? {
        let done = match line.split_once(' ').unwrap_or((&line, "")) {
            ("say", value) => say(&unary, value).await,
            ("stream", _) => count(&streams).await,
            _ => Err("no such call".into()),
        };
        match done {
            Ok(()) => println!("{line} ok"),
            Err(error) => println!("{line} error: {error}"),
        }
    }
    Ok(())
}

async fn say(client: &UnaryClient, value: &str) -> Result<()> {
    let mut request = Text::new();
    request.value = value.to_owned();
    let limit = ttrpc::context::with_duration(Duration::from_secs(10));
    let reply = client.say(limit, &request).await?;
    if reply.value == value { Ok(()) } else { Err(format!("answered {:?}", reply.value).into()) }
}

async fn count(client: &StreamsClient) -> Result<()> {
    let mut request = Number::new();
    request.value = 5;
    let limit = ttrpc::context::with_duration(Duration::from_secs(10));
    let mut numbers = client.count(limit, &request).await?;
    let mut want = 0;
    while let Some(number) = numbers.recv().await? {
        if number.value != want {
            return Err(format!("{} came for {want}", number.value).into());
        }
        want += 1;
    }
    if want == 5 { Ok(()) } else { Err(format!("{want} of 5 came").into()) }
}

struct Handler {
    blocks: bool,
}

#[async_trait]
impl Unary for Handler {
    async fn say(&self, _: &TtrpcContext, request: Text) -> ttrpc::Result<Text> {
        Ok(request)
    }

    async fn sleep(&self, _: &TtrpcContext, ms: Number) -> ttrpc::Result<Number> {
        let time = Duration::from_millis(ms.value.unsigned_abs());
        if self.blocks {
            std::thread::sleep(time);
        } else {
            tokio::time::sleep(time).await;
        }
        Ok(ms)
    }
}

#[async_trait]
impl Streams for Handler {
    async fn count(
        &self,
        _: &TtrpcContext,
        limit: Number,
        out: ServerStreamSender<Number>,
    ) -> ttrpc::Result<()> {
        for value in 0..limit.value {
            let mut number = Number::new();
            number.value = value;
            out.send(&number).await?;
        }
        Ok(())
    }
}
