//! What a unary call costs, with client and server in one process over a unix socket.
//!
//! For a comparison with other implementations, in separate processes, see `benches/peers`.

#![allow(
    missing_docs,
    reason = "criterion's macros make public items without any"
)]
#![allow(
    clippy::unwrap_used,
    reason = "a bench of something that fails measures nothing"
)]

use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use protobuf::well_known_types::wrappers::BytesValue;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;
use ttrpc_keepalive::{Client, Keepalive, Server, Service};

const SIZES: [usize; 4] = [0, 1 << 10, 64 << 10, 1 << 20];
const IN_FLIGHT: [u64; 3] = [1, 16, 256];
const TIMEOUT: Duration = Duration::from_secs(20);

fn connect(runtime: &Runtime, keepalive: Keepalive) -> Client {
    let _context = runtime.enter();
    let server = Server::builder()
        .service(Service::new("bench.Echo", ()).unary(
            "Echo",
            |(), _, request: BytesValue| async move { Ok(request) },
        ))
        .build()
        .unwrap();
    let (here, there) = UnixStream::pair().unwrap();
    runtime.spawn(async move { server.serve_connection(there).await });
    Client::builder().keepalive(keepalive).attach(here).unwrap()
}

/// Makes `calls` calls, `in_flight` at a time.
async fn calls(client: &Client, request: &BytesValue, calls: u64, in_flight: u64) -> Duration {
    let start = Instant::now();
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..in_flight {
        let share = calls / in_flight + u64::from(caller < calls % in_flight);
        let (client, request) = (client.clone(), request.clone());
        callers.spawn(async move {
            for _ in 0..share {
                let call = client.call::<_, BytesValue>("bench.Echo", "Echo", &request);
                call.timeout(TIMEOUT).await.unwrap();
            }
        });
    }
    callers.join_all().await;
    start.elapsed()
}

fn unary(criterion: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let mut group = criterion.benchmark_group("unary");
    group.sample_size(10).throughput(Throughput::Elements(1));
    for size in SIZES {
        for in_flight in IN_FLIGHT {
            let client = connect(&runtime, Keepalive::on_demand());
            let mut request = BytesValue::new();
            request.value = vec![b'x'; size];
            group.bench_function(
                BenchmarkId::new(format!("{size} B"), in_flight),
                |bencher| {
                    bencher.iter_custom(|count| {
                        runtime.block_on(calls(&client, &request, count, in_flight))
                    });
                },
            );
        }
    }
    group.finish();
}

/// The same small call without keepalive, on demand, and watched: the difference is its price.
fn keepalive(criterion: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let mut group = criterion.benchmark_group("keepalive");
    let settings = [
        ("off", Keepalive::off()),
        ("on demand", Keepalive::on_demand()),
        ("every 10 s", Keepalive::every(Duration::from_secs(10))),
    ];
    for (name, keepalive) in settings {
        let client = connect(&runtime, keepalive);
        let request = BytesValue::new();
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|count| runtime.block_on(calls(&client, &request, count, 16)));
        });
    }
    group.finish();
}

criterion_group!(benches, unary, keepalive);
criterion_main!(benches);
