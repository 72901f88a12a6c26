//! Unmodified ttrpc-rust on both ends of a unix socket, with a layer under each.
//!
//! ```text
//! cargo run -p ttrpc-keepalive-layer --example slow_or_frozen
//! ```
//!
//! The server is this program, started again. One call takes it longer than the client allows; for
//! another it is stopped with SIGSTOP. To ttrpc-rust both are late. The layer tells them apart: the
//! slow server is kept, the frozen one is found dead. The run is checked, and exits with 1 if it
//! did not come out so.

#![expect(clippy::print_stdout, reason = "it is there to be watched")]

use std::collections::HashMap;
use std::pin::Pin;
use std::process::{Child, Command};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protobuf::Message;
use protobuf::well_known_types::wrappers::UInt64Value;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{sleep, timeout};
use ttrpc::r#async::transport::{Listener, Socket};
use ttrpc::r#async::{Client, MethodHandler, Server, Service, TtrpcContext};
use ttrpc_keepalive_layer::{Keepalive, Layered, Liveness, Peer, State};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// What the client allows for a call.
const LIMIT: Duration = Duration::from_secs(1);
/// What the slow call takes.
const SLOW: Duration = Duration::from_millis(2500);
const INTERVAL: Duration = Duration::from_millis(500);
const TIMEOUT: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() -> Result<()> {
    match std::env::args().nth(1) {
        Some(socket) => serve(&socket).await,
        None => watch().await,
    }
}

async fn watch() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("socket");
    let server = Process(
        Command::new(std::env::current_exe()?)
            .arg(&socket)
            .spawn()?,
    );
    let stream = connect(&socket).await?;

    let keepalive = Keepalive::every(INTERVAL).timeout(TIMEOUT);
    let stream = Layered::client(stream, &keepalive)?; // the one line that is new
    let mut liveness = stream.liveness();
    let client = Client::new(Socket::new(stream));

    work(&client, Duration::ZERO).await?;
    println!("a quick call      answered");

    let slow = say("a slow call", work(&client, SLOW).await, &liveness);
    check("the slow server is kept", slow.1 == Peer::Alive)?;
    sleep(SLOW).await;
    work(&client, Duration::ZERO).await?;
    println!("the next call     answered, on the same connection");

    server.signal(Signal::SIGSTOP)?;
    let stopped = Instant::now();
    let frozen = say(
        "server stopped",
        work(&client, Duration::ZERO).await,
        &liveness,
    );
    let late = |said: &str| said != "answered";
    check(
        "to ttrpc-rust both are late",
        late(&slow.0) && late(&frozen.0),
    )?;
    check(
        "the frozen server is doubted at the deadline",
        frozen.1 != Peer::Alive,
    )?;
    let dead = async {
        while let Some(seen) = liveness.next().await {
            if let State::Dead(reason) = seen.state() {
                let after = stopped.elapsed();
                println!("the layer         dead ({reason}) {after:.1?} after it was stopped");
                return Some(after);
            }
        }
        None
    };
    let after = timeout(2 * (INTERVAL + TIMEOUT), dead).await?;
    check("the frozen server is found dead", after.is_some())?;
    let begun = Instant::now();
    let failed = work(&client, Duration::ZERO).await;
    let quickly = failed.is_err() && begun.elapsed() < LIMIT / 2;
    check("later calls fail at once", quickly)
}

/// Prints how a call ended; yields what ttrpc-rust said of it and what the layer knows.
fn say(what: &str, call: Result<()>, liveness: &Liveness) -> (String, Peer) {
    let error = call.map_or_else(|error| error.to_string(), |()| "answered".into());
    let seen = liveness.snapshot();
    let silent = seen.silent_for();
    println!("{what:<17} ttrpc-rust: {error}");
    println!(
        "{:<17} the layer: {:?}, heard {silent:.1?} ago",
        "",
        seen.peer()
    );
    (error, seen.peer())
}

fn check(claim: &str, holds: bool) -> Result<()> {
    println!("{} {claim}", if holds { "ok  " } else { "FAIL" });
    if holds { Ok(()) } else { Err(claim.into()) }
}

/// Has the server work for so long.
async fn work(client: &Client, time: Duration) -> Result<()> {
    let mut message = UInt64Value::new();
    message.value = u64::try_from(time.as_millis())?;
    let request = ttrpc::Request {
        service: "demo.Work".into(),
        method: "Do".into(),
        payload: message.write_to_bytes()?,
        timeout_nano: i64::try_from(LIMIT.as_nanos())?,
        ..Default::default()
    };
    client.request(request).await?;
    Ok(())
}

async fn connect(socket: &std::path::Path) -> Result<UnixStream> {
    for _ in 0..200 {
        if let Ok(stream) = UnixStream::connect(socket).await {
            return Ok(stream);
        }
        sleep(Duration::from_millis(20)).await;
    }
    Err("the server does not listen".into())
}

/// A process that does not outlive the run.
struct Process(Child);

impl Process {
    fn signal(&self, signal: Signal) -> Result<()> {
        let id = Pid::from_raw(i32::try_from(self.0.id())?);
        Ok(kill(id, signal)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn serve(socket: &str) -> Result<()> {
    let work: Box<dyn MethodHandler + Send + Sync> = Box::new(Work);
    let service = Service {
        methods: HashMap::from([("Do".to_owned(), work)]),
        streams: HashMap::new(),
    };
    let mut server = Server::new()
        .add_listener(Listener::new(Accepted(UnixListener::bind(socket)?)))
        .register_service(HashMap::from([("demo.Work".to_owned(), service)]));
    server.start().await?;
    std::future::pending().await
}

/// Connections with a layer each.
struct Accepted(UnixListener);

impl futures_core::Stream for Accepted {
    type Item = std::io::Result<Layered<UnixStream>>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_accept(cx).map(|accepted| {
            let layered = accepted.and_then(|(stream, _)| {
                Layered::server(stream, &Keepalive::on_demand()).map_err(std::io::Error::other)
            });
            Some(layered)
        })
    }
}

struct Work;

#[async_trait]
impl MethodHandler for Work {
    async fn handler(
        &self,
        _: TtrpcContext,
        request: ttrpc::Request,
    ) -> ttrpc::Result<ttrpc::Response> {
        let time = UInt64Value::parse_from_bytes(&request.payload).unwrap_or_default();
        sleep(Duration::from_millis(time.value)).await;
        Ok(ttrpc::Response::default())
    }
}
