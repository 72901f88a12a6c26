//! What idle connections cost that are watched: one PING and one PONG each interval.

#![allow(
    missing_docs,
    reason = "criterion's macros make public items without any"
)]
#![allow(
    clippy::unwrap_used,
    reason = "a bench of something that fails measures nothing"
)]

use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tokio::runtime::{Builder, Runtime};
use ttrpc_keepalive::{Client, Keepalive, Server};

const CONNECTIONS: u64 = 1000;
const INTERVAL: Duration = Duration::from_secs(10);

/// A runtime whose clock stands still until nothing is left to do, so that hours cost milliseconds.
fn runtime() -> Runtime {
    Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
}

fn connections(runtime: &Runtime, keepalive: &Keepalive) -> Vec<Client> {
    let _context = runtime.enter();
    let server = Server::builder().build().unwrap();
    (0..CONNECTIONS)
        .map(|_| {
            let (here, there) = tokio::io::duplex(4096);
            let server = server.clone();
            runtime.spawn(async move { server.serve_connection(there).await });
            Client::builder()
                .keepalive(keepalive.clone())
                .attach(here)
                .unwrap()
        })
        .collect()
}

fn idle(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("idle");
    group.throughput(Throughput::Elements(CONNECTIONS));
    for (name, keepalive) in [
        ("watched, an interval", Keepalive::every(INTERVAL)),
        ("on demand, the same time", Keepalive::on_demand()),
    ] {
        let runtime = runtime();
        let clients = connections(&runtime, &keepalive);
        runtime.block_on(tokio::time::sleep(INTERVAL));
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|intervals| {
                let start = Instant::now();
                runtime.block_on(async {
                    for _ in 0..intervals {
                        tokio::time::sleep(INTERVAL).await;
                    }
                });
                start.elapsed()
            });
        });
        drop(clients);
    }
    group.finish();
}

criterion_group!(benches, idle);
criterion_main!(benches);
