//! Whether memory and time follow the load: what a call takes beside very many others, what it takes to drop
//! very many, and what very many frames take that are announced and do not come. What memory a burst
//! leaves is counted exactly by `cargo bench --bench peers -- --counts`.

use std::fs;
use std::time::{Duration, Instant};

use protobuf::well_known_types::wrappers::{BytesValue, UInt32Value};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tokio::time::sleep;
use ttrpc_keepalive::wire::{Flags, Header, MAX_PAYLOAD, MessageType};
use ttrpc_keepalive::{Client, Keepalive, Server, Service};

use crate::gauges;
use crate::work::{Dice, Failure};

/// The option that chooses this run.
pub(crate) const PEAKS: &str = "--peaks";

const CALLS: u32 = 60_000;
const DROPPED: u32 = 50_000;
const CONNECTIONS: u32 = 1_000;

/// After which all is done that was asked for.
const QUIET: Duration = Duration::from_millis(1500);

const SERVICE: &str = "soak.Peaks";
const KIB: f64 = 1024.0;

/// Each peak, and what it takes.
///
/// # Errors
///
/// The first figure that is beyond its bound.
pub(crate) fn run() -> Result<(), String> {
    let peaks = async {
        // First, while there is no memory that others have left.
        announced().await?;
        crowd().await?;
        dropped().await
    };
    // One thread, so that whatever takes long holds up everything.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let result = runtime.block_on(peaks);
    result.map_err(|failure: Failure| failure.0)
}

/// `Echo` answers at once, `Wait` after so many milliseconds.
fn server() -> Result<Server, Failure> {
    let all = usize::MAX >> 8;
    let server = Server::builder().handler_limit(all).service(
        Service::new(SERVICE, ())
            .unary(
                "Echo",
                |(), _, request: BytesValue| async move { Ok(request) },
            )
            .unary("Wait", |(), _, request: UInt32Value| async move {
                sleep(Duration::from_millis(request.value.into())).await;
                Ok(request)
            }),
    );
    server.build().map_err(|error| error.to_string().into())
}

fn connected(server: &Server) -> Result<Client, Failure> {
    let (here, there) = UnixStream::pair()?;
    let server = server.clone();
    tokio::spawn(async move { server.serve_connection(there).await });
    let client = Client::builder().keepalive(Keepalive::on_demand());
    client
        .attach(here)
        .map_err(|error| error.to_string().into())
}

async fn echo(client: &Client) -> Result<Duration, Failure> {
    let begun = Instant::now();
    let call = client.call::<_, BytesValue>(SERVICE, "Echo", &BytesValue::new());
    call.await?;
    Ok(begun.elapsed())
}

fn judge(what: &str, value: f64, most: f64) -> Result<(), Failure> {
    if value > most {
        return Err(format!("{what}: {value:.1}, and at most {most} is allowed").into());
    }
    Ok(())
}

/// One call after another, beside 60,000 that are near their deadline.
async fn crowd() -> Result<(), Failure> {
    let client = connected(&server()?)?;
    echo(&client).await?;
    let alone = median(&client).await?;
    let takes = message(60_000);
    let mut calls = JoinSet::new();
    for _ in 0..CALLS {
        let call = client.call::<_, UInt32Value>(SERVICE, "Wait", &takes);
        // So that all are asked for from the first to the last moment of what is measured.
        let call = call.timeout(Duration::from_secs(20));
        calls.spawn(call.into_future());
    }
    while client.snapshot().calls_in_flight() < usize::try_from(CALLS).unwrap_or(usize::MAX) {
        tokio::task::yield_now().await;
    }
    sleep(QUIET).await;
    let beside = median(&client).await?;
    let ratio = beside.as_secs_f64() / alone.as_secs_f64();
    println!(
        "a call takes {alone:.1?}, and beside {CALLS} others {beside:.1?}: {ratio:.1} times as long"
    );
    judge("times as long", ratio, 3.0)
}

/// What a call takes, of a thousand.
async fn median(client: &Client) -> Result<Duration, Failure> {
    let mut took = Vec::new();
    for _ in 0..1000 {
        took.push(echo(client).await?);
    }
    took.sort();
    Ok(took[took.len() / 2])
}

/// 50,000 calls that wait to be written to a peer that reads nothing, dropped in any order.
async fn dropped() -> Result<(), Failure> {
    let (here, _there) = tokio::io::duplex(1);
    let client = Client::builder()
        .attach(here)
        .map_err(|error| error.to_string())?;
    let mut calls: Vec<_> = (0..DROPPED)
        .map(|_| {
            Box::pin(
                client
                    .call::<_, BytesValue>(SERVICE, "Echo", &BytesValue::new())
                    .into_future(),
            )
        })
        .collect();
    std::future::poll_fn(|cx| {
        for call in &mut calls {
            let _ = call.as_mut().poll(cx);
        }
        std::task::Poll::Ready(())
    })
    .await;
    let mut dice = Dice::new(1);
    let begun = Instant::now();
    while !calls.is_empty() {
        let sides = u32::try_from(calls.len()).unwrap_or(u32::MAX);
        let one = usize::try_from(dice.throw(sides)).unwrap_or(0);
        drop(calls.swap_remove(one));
    }
    let spent = begun.elapsed();
    println!("{DROPPED} calls that were not written, dropped in any order: {spent:.1?}");
    judge("milliseconds", spent.as_secs_f64() * 1e3, 1000.0)
}

/// 1,000 connections that announce a frame of 4 MiB and send a byte of it.
async fn announced() -> Result<(), Failure> {
    let server = server()?;
    let mut peers = Vec::new();
    for _ in 0..CONNECTIONS {
        let (here, there) = UnixStream::pair()?;
        let server = server.clone();
        tokio::spawn(async move { server.serve_connection(here).await });
        peers.push(there);
    }
    sleep(QUIET).await;
    let before = [gauges::resident()?, addresses()?];
    for peer in &mut peers {
        let header = Header {
            length: MAX_PAYLOAD.try_into().unwrap_or(u32::MAX),
            stream_id: 1,
            message_type: MessageType::REQUEST,
            flags: Flags::NONE,
        };
        peer.write_all(&[&header.encode()[..], b"x"].concat())
            .await?;
    }
    sleep(QUIET).await;
    let after = [gauges::resident()?, addresses()?];
    let [memory, addresses] =
        [0, 1].map(|at| (after[at] - before[at]) / KIB / f64::from(CONNECTIONS));
    println!(
        "{CONNECTIONS} connections that announce 4 MiB and send 11 bytes: {memory:.1} KiB of memory each, \
         {addresses:.1} KiB of addresses"
    );
    judge("KiB of addresses", addresses, 256.0)
}

/// Bytes of addresses that this process has.
fn addresses() -> Result<f64, Failure> {
    let statm = fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split(' ').next().and_then(|pages| pages.parse().ok());
    let pages: f64 = pages.ok_or_else(|| "there is no statm".to_owned())?;
    Ok(pages * 4096.0)
}

fn message(number: u32) -> UInt32Value {
    crate::service::message(number)
}
