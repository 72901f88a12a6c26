//! The speed of the API of `ttrpc` over `ttrpc-keepalive`, beside that of `ttrpc` itself: calls per second
//! of one caller and of sixteen, async and sync, client and server in this process. Rounds of both
//! alternate, and only the medians of their ratios are worth something.
//!
//!     cargo bench -p ttrpc-keepalive-compat --features async

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    missing_docs,
    reason = "a program that measures, and ends when something fails"
)]

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

const ROUND: Duration = Duration::from_millis(300);
const ROUNDS: usize = 7;

/// The same program over a crate.
macro_rules! program {
    ($name:ident, $ttrpc:ident) => {
        mod $name {
            use std::collections::HashMap;
            use std::path::Path;

            use async_trait::async_trait;
            use $ttrpc::asynchronous as run;
            use $ttrpc::{Request, Response};

            use super::{Sides, sustained};

            fn request(bytes: usize) -> Request {
                let mut request = Request::new();
                request.service = "bench.Echo".to_owned();
                request.method = "Echo".to_owned();
                request.payload = vec![b'x'; bytes];
                request.timeout_nano = 60_000_000_000;
                request
            }

            struct Echo;

            #[async_trait]
            impl run::MethodHandler for Echo {
                async fn handler(
                    &self,
                    _: run::TtrpcContext,
                    request: Request,
                ) -> $ttrpc::Result<Response> {
                    let mut response = Response::new();
                    response.payload = request.payload;
                    Ok(response)
                }
            }

            impl $ttrpc::MethodHandler for Echo {
                fn handler(
                    &self,
                    context: $ttrpc::TtrpcContext,
                    request: Request,
                ) -> $ttrpc::Result<()> {
                    let mut response = Response::new();
                    response.payload = request.payload;
                    context.respond(context.mh.stream_id, response)
                }
            }

            pub(super) struct Tasks {
                client: run::Client,
                _server: run::Server,
                runtime: tokio::runtime::Runtime,
                _serving: tokio::runtime::Runtime,
            }

            impl Tasks {
                pub(super) fn new(folder: &Path) -> Self {
                    let runtime = || {
                        let mut builder = tokio::runtime::Builder::new_multi_thread();
                        builder.worker_threads(1).enable_all().build().unwrap()
                    };
                    let (runtime, serving) = (runtime(), runtime());
                    let address = format!("unix://{}/{}", folder.display(), stringify!($name));
                    let server = serving.block_on(async {
                        let mut methods: HashMap<_, Box<dyn run::MethodHandler + Send + Sync>> =
                            HashMap::new();
                        methods.insert("Echo".to_owned(), Box::new(Echo));
                        let streams = HashMap::new();
                        let service = run::Service { methods, streams };
                        let services = HashMap::from([("bench.Echo".to_owned(), service)]);
                        let server = run::Server::new().bind(&address).unwrap();
                        let mut server = server.register_service(services);
                        server.start().await.unwrap();
                        server
                    });
                    let client = runtime.block_on(run::Client::connect(&address)).unwrap();
                    Self {
                        client,
                        _server: server,
                        runtime,
                        _serving: serving,
                    }
                }
            }

            impl Sides for Tasks {
                fn rate(&self, callers: usize, bytes: usize) -> f64 {
                    sustained(|stop, count| {
                        let tasks: Vec<_> = (0..callers)
                            .map(|_| {
                                let client = self.client.clone();
                                self.runtime.spawn(async move {
                                    while !stop() {
                                        client.request(request(bytes)).await.unwrap();
                                        count();
                                    }
                                })
                            })
                            .collect();
                        for task in tasks {
                            self.runtime.block_on(task).unwrap();
                        }
                    })
                }
            }

            pub(super) struct Threads {
                client: $ttrpc::Client,
                _server: $ttrpc::Server,
            }

            impl Threads {
                pub(super) fn new(folder: &Path) -> Self {
                    let address = format!("unix://{}/{}-sync", folder.display(), stringify!($name));
                    let mut methods: HashMap<_, Box<dyn $ttrpc::MethodHandler + Send + Sync>> =
                        HashMap::new();
                    methods.insert("/bench.Echo/Echo".to_owned(), Box::new(Echo));
                    let server = $ttrpc::Server::new().bind(&address).unwrap();
                    let mut server = server.register_service(methods);
                    server.start().unwrap();
                    Self {
                        client: $ttrpc::Client::connect(&address).unwrap(),
                        _server: server,
                    }
                }
            }

            impl Sides for Threads {
                fn rate(&self, callers: usize, bytes: usize) -> f64 {
                    sustained(|stop, count| {
                        let threads: Vec<_> = (0..callers)
                            .map(|_| {
                                let client = self.client.clone();
                                std::thread::spawn(move || {
                                    while !stop() {
                                        client.request(request(bytes)).unwrap();
                                        count();
                                    }
                                })
                            })
                            .collect();
                        for thread in threads {
                            thread.join().unwrap();
                        }
                    })
                }
            }
        }
    };
}

program!(facade, ttrpc_keepalive_compat);
program!(theirs, ttrpc);

trait Sides {
    /// Calls per second.
    fn rate(&self, callers: usize, bytes: usize) -> f64;
}

static STOP: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Has callers call for a round, and returns how often they did in a second.
fn sustained(call: impl FnOnce(fn() -> bool, fn())) -> f64 {
    STOP.store(false, Relaxed);
    COUNT.store(0, Relaxed);
    let begun = Instant::now();
    let timer = thread::spawn(|| {
        thread::sleep(ROUND);
        STOP.store(true, Relaxed);
    });
    call(
        || STOP.load(Relaxed),
        || {
            COUNT.fetch_add(1, Relaxed);
        },
    );
    let elapsed = begun.elapsed();
    timer.join().unwrap();
    let calls = u32::try_from(black_box(COUNT.load(Relaxed))).unwrap();
    f64::from(calls) / elapsed.as_secs_f64()
}

fn compare(name: &str, ours: &dyn Sides, theirs: &dyn Sides) {
    for (callers, bytes) in [(1, 0), (1, 1024), (16, 0), (16, 1024), (1, 65536)] {
        let mut rates: Vec<_> = (0..ROUNDS)
            .map(|_| {
                let ours = ours.rate(callers, bytes);
                let theirs = theirs.rate(callers, bytes);
                (ours / theirs, ours, theirs)
            })
            .collect();
        rates.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (ratio, ours, theirs) = rates[ROUNDS / 2];
        let (least, most) = (rates[0].0, rates[ROUNDS - 1].0);
        println!(
            "{name:<6} {callers:>2} callers {bytes:>6} B: {ratio:.2} ({least:.2}-{most:.2}) of ttrpc 0.10; \
             {ours:.0} calls/s against {theirs:.0}"
        );
    }
}

fn main() {
    // `cargo test` runs it too, and is not to wait for it.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    compare(
        "async",
        &facade::Tasks::new(path),
        &theirs::Tasks::new(path),
    );
    compare(
        "sync",
        &facade::Threads::new(path),
        &theirs::Threads::new(path),
    );
}
