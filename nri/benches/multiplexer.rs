//! What the multiplexer costs: calls over a plain socket and over one of two connections that share
//! one, in the same run, in turns. The time is that of the processor: other work on the machine does not
//! count.
//!
//!     cargo bench -p ttrpc-keepalive-nri --bench multiplexer [-- --rounds N]
//!
//! For `perf stat` or `valgrind --tool=callgrind`, which count what other work does not change: so many calls of 64 B, one
//! at a time, on one thread, over one of the two.
//!
//!     cargo bench -p ttrpc-keepalive-nri --bench multiplexer -- --plain N | --multiplexed N

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench prints what it finds, and says what it expects by panicking"
)]

use std::sync::Arc;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use protobuf::well_known_types::wrappers::BytesValue;
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use ttrpc_keepalive::transport::IntoTransport;
use ttrpc_keepalive::{Client, Context, Server, Service, Status};
use ttrpc_keepalive_nri::multiplexer::Multiplexer;

/// Payload, calls in flight, calls in a round, and the ratio that is allowed.
const ROWS: [(usize, usize, usize, f64); 3] = [
    (64, 1, 2_000, 1.10),
    (64, 64, 12_800, 1.10),
    (1 << 20, 1, 60, 1.25),
];

fn main() {
    let number = |option: &str| {
        let mut arguments = std::env::args().skip_while(|argument| argument != option);
        arguments.nth(1).map(|number| number.parse().unwrap())
    };
    let rounds = number("--rounds").unwrap_or(30);
    for (option, is_shared) in [("--plain", false), ("--multiplexed", true)] {
        if let Some(calls) = number(option) {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            let runtime = builder.enable_all().build().unwrap();
            return runtime.block_on(async {
                let (plain, shared) = both().await;
                let client = if is_shared { shared } else { plain };
                say(&client, 1, calls, 64).await;
            });
        }
    }
    for workers in [1, 2] {
        let mut builder = match workers {
            1 => tokio::runtime::Builder::new_current_thread(),
            _ => tokio::runtime::Builder::new_multi_thread(),
        };
        let runtime = builder
            .worker_threads(workers)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(run(workers, rounds));
    }
}

async fn run(workers: usize, rounds: usize) {
    for (length, in_flight, calls, allowed) in ROWS {
        let (plain, shared) = both().await;
        let (mut alone, mut together) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            alone.push(say(&plain, in_flight, calls, length).await);
            together.push(say(&shared, in_flight, calls, length).await);
        }
        let (alone, together) = (median(alone), median(together));
        let each =
            |time: Duration| time.as_secs_f64() * 1e6 / f64::from(u32::try_from(calls).unwrap());
        println!(
            "{workers} threads, {length:>7} B, {in_flight:>2} in flight: {:8.2} us a call plain, {:8.2} us multiplexed, ratio {:.3} (allowed {allowed})",
            each(alone),
            each(together),
            together.as_secs_f64() / alone.as_secs_f64(),
        );
    }
}

/// A client over a plain socket, and one over one of two connections. The other of these is there, and has nothing
/// to say.
async fn both() -> (Client, Client) {
    let (here, there) = UnixStream::pair().unwrap();
    let plain = connect(here, there);
    let (here, there) = UnixStream::pair().unwrap();
    let plugin = Multiplexer::new().split(here);
    let runtime = Multiplexer::new().split(there);
    let shared = connect(runtime.plugin_service, plugin.plugin_service);
    let idle = connect(plugin.runtime_service, runtime.runtime_service);
    say(&idle, 1, 1, 64).await;
    std::mem::forget(idle);
    (plain, shared)
}

fn connect(here: impl IntoTransport, there: impl IntoTransport) -> Client {
    let echo =
        |_: Arc<()>, _: Context, request: BytesValue| async move { Ok::<_, Status>(request) };
    let service = Service::new("demo.Echo", Arc::new(())).unary("Say", echo);
    let server = Server::builder().service(service).build().unwrap();
    let there = there.into_transport();
    tokio::spawn(async move { server.serve_connection(there).await });
    Client::builder().attach(here).unwrap()
}

async fn say(client: &Client, in_flight: usize, calls: usize, length: usize) -> Duration {
    let mut request = BytesValue::new();
    request.value = vec![7; length];
    let start = processor();
    let mut callers = JoinSet::new();
    for _ in 0..in_flight {
        let (client, request) = (client.clone(), request.clone());
        callers.spawn(async move {
            for _ in 0..calls / in_flight {
                let reply: BytesValue = client.call("demo.Echo", "Say", &request).await.unwrap();
                assert_eq!(reply.value.len(), request.value.len());
            }
        });
    }
    while let Some(ended) = callers.join_next().await {
        ended.unwrap();
    }
    processor() - start
}

fn processor() -> Duration {
    Duration::from(clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).unwrap())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
