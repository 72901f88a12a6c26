//! This crate and unmodified implementations in Rust.

use std::time::Duration;

use ttrpc_keepalive::{Client, Keepalive, State, Support};

use crate::Result;
use crate::process::Process;
use crate::report::{Report, World, claim};
use crate::service::{int, streams_of};
use crate::to_go::{say, sleep_for};

/// Name and program. The crates' versions are those in `Cargo.lock`.
const OTHERS: &[(&str, &str)] = &[
    ("ttrpc-rust 0.8", "debug/peer-ttrpc-rust-0-8"),
    ("ttrpc-rust 0.9", "debug/peer-ttrpc-rust-0-9"),
    ("ttrpc-rust 0.10", "debug/peer-ttrpc-rust-0-10"),
    ("trapeze 0.7", "debug/peer-trapeze-0-7"),
];

// T52 to T55.
pub(crate) async fn all(world: &World, report: &mut Report) {
    for (other, program) in OTHERS {
        let name = format!("rust client, {other} server: calls and graceful shutdown");
        report.pairing(&name, calls(world, program)).await;
        let name = match *other {
            "trapeze 0.7" => {
                format!("rust client, {other} server: an error on the PING's id")
            }
            _ => format!("rust client, {other} server: slow calls, no PING known"),
        };
        report.pairing(&name, slow(world, program)).await;
        let name = format!("{other} client, rust server: calls, no PING unasked");
        report.pairing(&name, called(world, other, program)).await;
    }
}

async fn pair(world: &World, program: &str, keepalive: Keepalive) -> Result<(Process, Client)> {
    let socket = world.socket();
    let path = socket.to_str().ok_or("the path is not UTF-8")?;
    let mut server = Process::start(&world.program(program), &["serve", path], &socket)?;
    server.expect("ready").await?;
    let client = Client::builder().keepalive(keepalive);
    let client = client.connect(&format!("unix://{path}")).await?;
    Ok((server, client))
}

async fn calls(world: &World, program: &str) -> Result<String> {
    let (mut server, client) = pair(world, program, Keepalive::on_demand()).await?;
    for value in ["", "hello", &"x".repeat(1 << 20)] {
        say(&client, value).await?;
    }
    let request = int(100);
    let mut numbers = streams_of(&client).count(&request).await?;
    let mut want = 0;
    while let Some(number) = numbers.next().await {
        let number = number?.value;
        claim!(number == want, "{number} came for {want}");
        want += 1;
    }
    claim!(want == 100, "{want} of 100 came");
    let flight = tokio::spawn({
        let client = client.clone();
        async move { sleep_for(&client, 900).await }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    say(&client, "another").await?;
    server.tell("shutdown").await?;
    flight.await??;
    Ok("1 MiB, 100 messages of a stream, and the call in flight was answered".into())
}

/// Watched, and known not to know PING: silence is not death, and one PING was enough.
async fn slow(world: &World, program: &str) -> Result<String> {
    let keepalive =
        Keepalive::every(Duration::from_millis(100)).timeout(Duration::from_millis(200));
    let (_server, client) = pair(world, program, keepalive).await?;
    say(&client, "first").await?;
    sleep_for(&client, 3000).await?;
    let snapshot = client.snapshot();
    claim!(
        snapshot.support() == Support::No,
        "support {:?}",
        snapshot.support()
    );
    claim!(
        matches!(snapshot.state(), State::Alive),
        "{}",
        snapshot.state()
    );
    let pings = snapshot.counters().keepalive.pings_sent;
    claim!(pings == 1, "{pings} PINGs were sent");
    Ok("a call of 3 s with 0.1 s + 0.2 s of keepalive is answered, after one PING".into())
}

async fn called(world: &World, other: &str, program: &str) -> Result<String> {
    let (_server, socket) = world.own_server(&["50"]).await?;
    let path = socket.to_str().ok_or("the path is not UTF-8")?;
    let log = world.socket();
    let mut client = Process::start(&world.program(program), &["script", path], &log)?;
    client.expect("ready").await?;
    // Those before 0.10 take messages of a stream in any order.
    let streams = !matches!(other, "ttrpc-rust 0.8" | "ttrpc-rust 0.9");
    for call in ["say one", "stream", "say two"] {
        if call != "stream" || streams {
            let said = client.ask(call).await?;
            claim!(said == "ok", "{call}: {said}");
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    claim!(
        client.logged().is_empty(),
        "the client logs {}",
        client.logged()
    );
    Ok("calls and pauses, no line in the client's log".into())
}
