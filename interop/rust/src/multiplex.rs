//! The multiplexer of the NRI crate at one end of a socket, and Go's at the other.

use std::sync::Arc;
use std::time::Duration;

use protobuf::well_known_types::wrappers::BytesValue;
use tokio::net::UnixListener;
use tokio::task::JoinSet;
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::{Client, Context, Server, Service, State, Status};
use ttrpc_keepalive_nri::multiplexer::Multiplexer;

use crate::Result;
use crate::process::Process;
use crate::report::{Report, World, claim};

/// What the runtimes on most nodes embed, and the newest.
const RELEASES: [&str; 2] = ["0.8.0", "0.12.5"];

/// How many calls at once: Go's multiplexer ends the connection when 256 pieces wait in it, and how fast its
/// program takes them nobody can promise. So many small ones never reach that.
const AT_ONCE: [usize; 2] = [1, 100];

/// The same of sizes of which some are cut into many pieces.
const LARGE_AT_ONCE: [usize; 2] = [1, 8];

/// Around the edges of the pieces here and there, and up to the largest message.
const SIZES: [usize; 15] = [
    0, 1, 100, 4000, 4050, 4096, 4100, 8180, 16_000, 65_536, 69_600, 70_000, 1_000_000, 4_000_000,
    4_194_240,
];

pub(crate) async fn all(world: &World, report: &mut Report) {
    for release in RELEASES {
        let name = format!("Go NRI multiplexer {release}: messages of all sizes, both ways");
        let plays = both_ways(world, release, &LARGE_AT_ONCE, sizes());
        report.pairing(&name, plays).await;
        let name = format!("Go NRI multiplexer {release}: 2,000 that each fill a piece, both ways");
        let sizes = [vec![3000; 1000], vec![2100; 1000]].concat();
        let plays = both_ways(world, release, &AT_ONCE, sizes);
        report.pairing(&name, plays).await;
    }
}

/// Each size between others.
fn sizes() -> Vec<usize> {
    let turned = (0..SIZES.len()).flat_map(|by| {
        let (front, back) = SIZES.split_at(by);
        [back, front].concat()
    });
    turned.step_by(3).collect()
}

async fn both_ways(
    world: &World,
    release: &str,
    at_once: &[usize],
    sizes: Vec<usize>,
) -> Result<String> {
    let socket = world.socket();
    let listener = UnixListener::bind(&socket)?;
    let program = world.program(&format!("interop/go/nri-multiplex-{release}"));
    let path = socket.display().to_string();
    let mut go = Process::start(&program, &[&path], &socket)?;
    let (stream, _) = listener.accept().await?;
    let connections = Multiplexer::new().split(stream);
    let say = |_: Arc<()>, _: Context, request: BytesValue| async { Ok::<_, Status>(request) };
    let service = Service::new("demo.Echo", Arc::new(())).unary("Say", say);
    let server = Server::builder().service(service).build()?;
    let served = connections.runtime_service;
    let serving = tokio::spawn(async move { server.serve_connection(served).await });
    let watch = Keepalive::every(Duration::from_millis(100)).timeout(Duration::from_secs(20));
    let client = Client::builder().keepalive(watch);
    let client = client.attach(connections.plugin_service)?;
    go.expect("ready").await?;

    let listed: Vec<String> = sizes.iter().map(ToString::to_string).collect();
    for at_once in at_once {
        go.tell(&format!("calls {at_once} {}", listed.join(" ")))
            .await?;
        calls(&client, *at_once, &sizes).await?;
        go.outcome().await?;
    }
    let state = client.snapshot().state();
    claim!(matches!(state, State::Alive), "it is {state:?}");
    client.close().await?;
    serving.abort();
    Ok(format!("{} calls each way", at_once.len() * sizes.len()))
}

async fn calls(client: &Client, at_once: usize, sizes: &[usize]) -> Result<()> {
    let mut running = JoinSet::new();
    for size in sizes.iter().copied() {
        if running.len() >= at_once {
            running.join_next().await.ok_or("none runs")???;
        }
        let client = client.clone();
        running.spawn(async move {
            let mut request = BytesValue::new();
            request.value = vec![5; size];
            let answer: BytesValue = client.call("demo.Echo", "Say", &request).await?;
            claim!(answer == request, "other bytes");
            Result::<()>::Ok(())
        });
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(())
}
