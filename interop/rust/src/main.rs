//! Runs this crate against other implementations of ttrpc; see `interop/README.md`.

mod compat;
mod from_go;
mod judge;
mod multiplex;
mod nri;
mod nri_answers;
mod nri_combine;
mod nri_messages;
mod nri_plugin;
mod old_peers;
mod others;
mod pings;
mod process;
mod raw;
mod receipts;
mod report;
mod service;
mod shim;
mod table;
mod to_go;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use report::{NEWEST, Report, World};
use tokio::io::{AsyncBufReadExt, BufReader};
use ttrpc_keepalive::{Keepalive, Listener};

type Failure = Box<dyn Error + Send + Sync>;
type Result<T> = std::result::Result<T, Failure>;

const USAGE: &str = "\
usage: interop run TARGET [NAMEPART]     all pairings, or those with this in their name
       interop compat TARGET [--write]   measures the compatibility table and prints it,
                                         or writes it into RFC.md
       interop receipts TARGET [--write] the same of servers judged by what they read, for docs/judging.md
       interop nri TARGET [--write]      the same of late NRI plugins of today, for nri/README.md
       interop shim ADDRESS CONTAINER PID
                                         a shim of containerd, judged in the same way; nri/e2e/run has one
       interop load TARGET CALLS         late calls to such servers while all processors are busy: fails
                                         if one that reads is said not to
       interop serve SOCKET [MS]         a server, until its input ends; asks its clients so often
       interop hold ADDRESS              a client that watches its server, and stays

TARGET is the folder with the programs; interop/run builds them.";

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments.as_slice() {
        ["run", target] => run(target, "").await,
        ["run", target, part] => run(target, part).await,
        ["compat", target] => compat(target, false).await.map(|()| true),
        ["compat", target, "--write"] => compat(target, true).await.map(|()| true),
        ["receipts", target] => receipts(target, false).await.map(|()| true),
        ["receipts", target, "--write"] => receipts(target, true).await.map(|()| true),
        ["nri", target] => nri(target, false).await.map(|()| true),
        ["nri", target, "--write"] => nri(target, true).await.map(|()| true),
        ["shim", address, container, pid] => {
            shim::judge(address, container, pid).await.map(|()| true)
        }
        ["load", target, calls] => load(target, calls).await.map(|()| true),
        ["serve", socket] => serve(socket, Keepalive::on_demand()).await,
        ["serve", socket, interval] => match interval.parse() {
            Ok(interval) => serve(socket, judge::watched(interval)).await,
            Err(error) => Err(error.into()),
        },
        ["hold", address] => judge::hold(address).await.map(|()| true),
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

async fn run(target: &str, part: &str) -> Result<bool> {
    let world = Arc::new(World::new(PathBuf::from(target))?);
    let mut report = Report::new(part);
    to_go::all(&world, &mut report).await;
    from_go::all(&world, &mut report).await;
    judge::all(&world, &mut report).await;
    others::all(&world, &mut report).await;
    multiplex::all(&world, &mut report).await;
    nri::all(&world, &mut report).await;
    nri_messages::all(&world, &mut report).await;
    nri_combine::all(&world, &mut report).await;
    nri_plugin::all(&world, &mut report).await;
    nri_answers::all(&world, &mut report).await;
    pings::all(&world, &mut report).await;
    let name = "everybody, raw frames: the compatibility table in RFC.md";
    report.pairing(name, compat::check(&world)).await;
    let name = "old servers, judged by what they read: the table in docs/judging.md";
    report.pairing(name, receipts::check(&world)).await;
    let name = "old servers, judged by what they read while all processors are busy";
    report.pairing(name, receipts::check_load(&world)).await;
    for (stopped, are) in [(false, "asleep"), (true, "stopped")] {
        let name = format!("go client {NEWEST} with keepalive judges old servers: {are}");
        let plays = receipts::judged_by_go(&world, stopped);
        report.pairing(&name, plays).await;
    }
    Ok(report.close())
}

async fn compat(target: &str, write: bool) -> Result<()> {
    let world = Arc::new(World::new(PathBuf::from(target))?);
    compat::show(&world, write).await
}

async fn receipts(target: &str, write: bool) -> Result<()> {
    let world = Arc::new(World::new(PathBuf::from(target))?);
    receipts::show(&world, write).await
}

async fn load(target: &str, calls: &str) -> Result<()> {
    let world = Arc::new(World::new(PathBuf::from(target))?);
    receipts::load(&world, calls.parse()?).await
}

async fn nri(target: &str, write: bool) -> Result<()> {
    let world = World::new(PathBuf::from(target))?;
    nri::show(&world, write).await
}

/// Serves until the input ends; the line "shutdown" on it shuts the server down.
async fn serve(socket: &str, keepalive: Keepalive) -> Result<bool> {
    let listener = Listener::bind(&format!("unix://{socket}")).await?;
    let server = service::server(keepalive)?;
    let serving = tokio::spawn({
        let server = server.clone();
        async move { server.serve(listener).await }
    });
    print("ready");
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = input.next_line().await? {
        if line == "shutdown" {
            print(&format!(
                "down {}",
                server.shutdown(Duration::from_secs(10)).await
            ));
        }
    }
    serving.abort();
    Ok(true)
}

/// Prints a line for who started this process.
#[expect(clippy::print_stdout, reason = "it is read there")]
fn print(line: &str) {
    println!("{line}");
}
