//! How servers of today are judged by what their processes read, and the table of it that stands in
//! `docs/judging.md`.

use std::path::Path;
use std::sync::Arc;

use protobuf::well_known_types::wrappers::Int64Value;
use tokio::time::{Duration, Instant, sleep};
use ttrpc_keepalive::{Call, Client, Error, Support, Verdict};

use crate::Result;
use crate::process::Process;
use crate::report::{World, claim};
use crate::service::{UNARY, int};
use crate::table::Place;
use crate::to_go::say;

const PLACE: Place = Place {
    file: "docs/judging.md",
    begin: "<!-- Written by `interop/run receipts --write`. -->",
};

/// The limit of a call, and how long its handler sleeps.
pub(crate) const LIMIT: Duration = Duration::from_secs(1);
const ASLEEP: i64 = 3000;

/// Late calls at one time.
pub(crate) const MANY: usize = 64;

/// How much later than its limit a call may end, on a busy machine.
const SLACK: Duration = Duration::from_millis(500);

/// Name and program of servers that know no PING, unmodified.
const PEERS: &[(&str, &str)] = &[
    ("containerd/ttrpc 1.0.2", "interop/go/peer-1.0.2"),
    ("containerd/ttrpc 1.1.2", "interop/go/peer-1.1.2"),
    ("containerd/ttrpc 1.2.2", "interop/go/peer-1.2.2"),
    ("containerd/ttrpc 1.2.5", "interop/go/peer-1.2.5"),
    ("containerd/ttrpc 1.2.10", "interop/go/peer-1.2.10"),
    ("ttrpc-rust 0.8.4", "debug/peer-ttrpc-rust-0-8"),
    ("ttrpc-rust 0.9.0", "debug/peer-ttrpc-rust-0-9"),
    ("ttrpc-rust 0.10.0", "debug/peer-ttrpc-rust-0-10"),
    ("trapeze 0.7.6", "debug/peer-trapeze-0-7"),
];

const HEAD: &str = "\
| server | its handler sleeps | 64 such calls | stopped while the handler sleeps | stopped before the request | continued | log |
|---|---|---|---|---|---|---|";

/// Measures all peers and prints the table, or writes it.
pub(crate) async fn show(world: &Arc<World>, write: bool) -> Result<()> {
    let table = measure(world).await?;
    if write {
        return PLACE.write(&table);
    }
    crate::print(&table);
    Ok(())
}

/// Measures all peers, and compares the table with the one in the text.
pub(crate) async fn check(world: &Arc<World>) -> Result<String> {
    PLACE.check(&measure(world).await?)?;
    Ok(format!("{} servers as it says there", PEERS.len()))
}

async fn measure(world: &Arc<World>) -> Result<String> {
    let mut measured = Vec::new();
    for (name, program) in PEERS {
        let world = Arc::clone(world);
        measured.push(tokio::spawn(
            async move { row(&world, name, program).await },
        ));
    }
    let mut rows = vec![HEAD.to_owned()];
    for row in measured {
        rows.push(row.await??);
    }
    Ok(rows.join("\n"))
}

/// One server, and a client with what it has by default.
async fn row(world: &World, name: &str, program: &str) -> Result<String> {
    let socket = world.socket();
    let path = socket.to_str().ok_or("the path is not UTF-8")?;
    let mut server = Process::start(&world.program(program), &["serve", path], &socket)?;
    server.expect("ready").await?;
    let client = connect(&socket).await?;
    let asleep = judged(late(&client)).await?;

    let many = connect(&socket).await?;
    let calls: Vec<_> = (0..MANY)
        .map(|_| tokio::spawn(judged(late(&many))))
        .collect();
    let mut burst = Vec::new();
    for call in calls {
        burst.push(call.await??);
    }
    burst.sort_unstable();
    burst.dedup();

    let other = connect(&socket).await?;
    let call = tokio::spawn(judged(late(&other)));
    sleep(LIMIT / 4).await;
    server.stop().await?;
    let within = call.await??;
    // All that this connection had been sent has been read.
    let before = judged(late(&client)).await?;
    server.go_on()?;
    for client in [&client, &other] {
        say(client, "still there").await?;
    }
    let pings: u64 = [&client, &many, &other]
        .map(|client| client.snapshot().counters().keepalive.pings_sent)
        .iter()
        .sum();
    let logged = match server.logged().lines().count() {
        0 => "no line",
        lines if u64::try_from(lines)? == pings => "a line a PING",
        _ => "some lines",
    };
    Ok(format!(
        "| {name} | {asleep} | {} | {within} | {before} | answers | {logged} |",
        burst.join(", ")
    ))
}

async fn connect(socket: &Path) -> Result<Client> {
    let client = Client::builder();
    let client = client
        .connect(&format!("unix://{}", socket.display()))
        .await?;
    say(&client, "first").await?;
    let support = client.snapshot().support();
    claim!(support == Support::No, "support {support:?}");
    Ok(client)
}

/// A call that cannot be answered in time.
fn late(client: &Client) -> Call<Int64Value> {
    let call = client.call::<_, Int64Value>(UNARY, "Sleep", &int(ASLEEP));
    call.timeout(LIMIT)
}

/// The verdict on its peer, if it came in time.
pub(crate) async fn judged(call: Call<Int64Value>) -> Result<&'static str> {
    let start = Instant::now();
    let Err(error) = call.await else {
        return Err("a call that was to be late was answered".into());
    };
    let took = start.elapsed();
    claim!(took < LIMIT + SLACK, "it took {took:?}");
    verdict(&error).ok_or_else(|| format!("{error}").into())
}

fn verdict(error: &Error) -> Option<&'static str> {
    Some(match error.verdict()? {
        Verdict::Slow => "slow",
        Verdict::NotReading => "not reading",
        Verdict::LocalStall => "local stall",
        Verdict::Unknown(_) => "unknown",
        _ => return None,
    })
}
