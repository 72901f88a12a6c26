//! Idle connections that are watched, and what they cost: clients here, their server in a process of
//! its own, so that each side has its own figures and its own limit of descriptors.

use std::fmt;
use std::io::{self, Read as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::task::JoinSet;
use tokio::time::{Instant as Moment, interval, sleep, sleep_until};
use ttrpc_keepalive::{Client, Keepalive, Listener, Support};

use crate::costs::Costs;
use crate::gauges;
use crate::plan::USAGE;
use crate::service::{self, Running};
use crate::work::{self, Failure};

/// The role of the process that serves, as the first argument. Its address follows.
pub(crate) const SERVE: &str = "--serve-idle";

/// The option that chooses this run. The number of connections follows.
pub(crate) const HOLD: &str = "--idle";

/// Descriptors of a process besides those of its connections.
const SPARE: u64 = 64;

/// Connections that are begun at a time.
const AT_A_TIME: usize = 32;

const PRINTED: Duration = Duration::from_secs(10);

/// How much memory a side may take on after the first interval.
const GROWTH: f64 = 4.0 * 1024.0 * 1024.0;

/// Serves until the process that has started this one is gone.
///
/// # Errors
///
/// Why it cannot.
pub(crate) fn serve(address: &str) -> Result<(), String> {
    runtime(async {
        allow_descriptors()?;
        let server = service::server(Keepalive::on_demand(), &Running::default());
        let server = server.map_err(|error| error.to_string())?;
        let listener = Listener::bind(address).await?;
        tokio::spawn(async move { server.serve(listener).await });
        let parent_is_gone = || io::stdin().read_to_end(&mut Vec::new());
        let waited = tokio::task::spawn_blocking(parent_is_gone).await;
        waited.map_err(|error| error.to_string())??;
        Ok(())
    })
}

/// Holds so many connections for so many seconds, each watched and without a call.
///
/// # Errors
///
/// The first reason why the run has failed.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let number = |at: usize| arguments.get(at).and_then(|number| number.parse().ok());
    let seconds = match arguments.get(2).map(String::as_str) {
        None => Some(600),
        Some("--seconds") if arguments.len() == 4 => number(3),
        Some(_) => None,
    };
    let (connections, seconds) = number(1).zip(seconds).ok_or(USAGE)?;
    runtime(hold(connections, Duration::from_secs(seconds)))
}

fn runtime(work: impl Future<Output = Result<(), Failure>>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let result = runtime.block_on(work);
    runtime.shutdown_background();
    result.map_err(|failure| failure.0)
}

/// As many as the system lets this process have.
fn allow_descriptors() -> Result<u64, Failure> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).map_err(io::Error::from)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).map_err(io::Error::from)?;
    Ok(most)
}

/// The process that serves. It ends with this one, whose end closes its input.
struct Serving(Child);

impl Serving {
    fn start(address: &str) -> Result<Self, Failure> {
        let child = Command::new(std::env::current_exe()?)
            .args([SERVE, address])
            .stdin(Stdio::piped())
            .spawn()?;
        Ok(Self(child))
    }

    fn costs(&self) -> io::Result<Costs> {
        Costs::of(&self.0.id().to_string())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn hold(connections: u64, time: Duration) -> Result<(), Failure> {
    let (most, needed) = (allow_descriptors()?, connections + SPARE);
    if most < needed {
        return Err(format!(
            "{connections} connections need {needed} descriptors in each process, and the hard limit \
             is {most} (`ulimit -Hn`)"
        )
        .into());
    }
    // So that even a short run has some of them.
    let interval = (time / 6).min(Duration::from_secs(10));
    let keepalive = Keepalive::every(interval).timeout(interval);
    println!("{connections} connections for {time:?}; interval and timeout {interval:?}");

    let folder = tempfile::tempdir()?;
    let address = format!("unix://{}", folder.path().join("idle.sock").display());
    let serving = Serving::start(&address)?;
    let first = Client::builder().connect_retry(Duration::from_millis(20));
    work::echo(&first.connect(&address).await?, 0).await?;
    let before = [Costs::of("self")?, serving.costs()?];

    let clients = connect(&address, &keepalive, connections).await?;
    let connected = [Costs::of("self")?, serving.costs()?];
    let begun = Instant::now();
    println!(
        "connected: processor time {}",
        Sides(since(&before, &connected))
    );

    // All have been asked, and have been given what they keep.
    sleep(interval).await;
    let settled = [Costs::of("self")?, serving.costs()?];
    watch(
        &clients,
        begun,
        Moment::now() + time.saturating_sub(interval),
    )
    .await?;
    let end = [Costs::of("self")?, serving.costs()?];

    let seen = Seen::of(&clients);
    println!("{:>4} s  {seen}", begun.elapsed().as_secs());
    println!("idle: processor time {}", Sides(since(&connected, &end)));
    for (side, at) in ["client", "server"].into_iter().zip(0..) {
        let of = |costs: &[Costs; 2]| costs[at].resident;
        let (each, grown) = (
            (of(&end) - of(&before)) / gauges::as_float(connections),
            of(&end) - of(&settled),
        );
        println!(
            "memory of a {side}: {:.2} KiB a connection, {:+.2} MiB since the first interval",
            each / 1024.0,
            grown / f64::from(1_u32 << 20)
        );
        if grown > GROWTH {
            return Err(format!("memory of the {side} grows").into());
        }
    }
    seen.judge(connections, time, interval)
}

async fn connect(
    address: &str,
    keepalive: &Keepalive,
    connections: u64,
) -> Result<Vec<Client>, Failure> {
    let mut clients = Vec::new();
    let mut connecting = JoinSet::new();
    for _ in 0..connections {
        if connecting.len() == AT_A_TIME {
            clients.extend(connected(&mut connecting).await?);
        }
        // The queue of those who are not accepted yet may be full.
        let client = Client::builder()
            .keepalive(keepalive.clone())
            .connect_retry(Duration::from_millis(20));
        let address = address.to_owned();
        connecting.spawn(async move { client.connect(&address).await });
    }
    while let Some(client) = connected(&mut connecting).await? {
        clients.push(client);
    }
    Ok(clients)
}

async fn connected(
    connecting: &mut JoinSet<Result<Client, ttrpc_keepalive::ConnectError>>,
) -> Result<Option<Client>, Failure> {
    match connecting.join_next().await {
        Some(Ok(client)) => Ok(Some(client?)),
        Some(Err(error)) => Err(error.to_string().into()),
        None => Ok(None),
    }
}

/// Tells now and then how they are, and ends at once if one of them does.
async fn watch(clients: &[Client], begun: Instant, until: Moment) -> Result<(), Failure> {
    let mut printed = interval(PRINTED);
    loop {
        tokio::select! {
            () = sleep_until(until) => return Ok(()),
            _ = printed.tick() => {}
        }
        let seen = Seen::of(clients);
        println!("{:>4} s  {seen}", begun.elapsed().as_secs());
        if let Some(end) = seen.end {
            return Err(format!("{} have ended, one of them since {end}", seen.ended).into());
        }
    }
}

/// What all connections together have come to.
#[derive(Default)]
struct Seen {
    ended: usize,
    end: Option<String>,
    unknown: usize,
    pings: u64,
    pongs: u64,
    suspicions: u64,
    stalls: u64,
    convictions: u64,
}

impl Seen {
    fn of(clients: &[Client]) -> Self {
        let mut seen = Self::default();
        for client in clients {
            let snapshot = client.snapshot();
            let counters = snapshot.counters().keepalive;
            seen.pings += counters.pings_sent;
            seen.pongs += counters.pongs_received;
            seen.suspicions += counters.suspect_entries;
            seen.stalls += counters.local_stalls;
            seen.convictions += counters.convictions_silent + counters.convictions_not_reading;
            seen.unknown += usize::from(snapshot.support() != Support::Yes);
            if let Some(end) = snapshot.end() {
                seen.ended += 1;
                seen.end.get_or_insert_with(|| end.to_string());
            }
        }
        seen
    }

    fn judge(&self, connections: u64, time: Duration, interval: Duration) -> Result<(), Failure> {
        if self.convictions > 0 || self.ended > 0 {
            return Err(format!(
                "{} were convicted, {} have ended",
                self.convictions, self.ended
            )
            .into());
        }
        // Half of what fits, since a machine with other work asks and answers late.
        let asked = u64::try_from(time.as_nanos() / interval.as_nanos()).unwrap_or(u64::MAX);
        if self.unknown > 0 || self.pongs < connections * asked / 2 {
            return Err("they were not watched".to_owned().into());
        }
        Ok(())
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            ended,
            unknown,
            pings,
            pongs,
            suspicions,
            stalls,
            convictions,
            ..
        } = self;
        write!(
            f,
            "{pings:>8} PINGs, {pongs:>8} PONGs; {suspicions} suspicions, {stalls} pauses of this side, \
             {convictions} convictions; {ended} ended, {unknown} not known to answer"
        )
    }
}

/// Processor time of clients and server.
struct Sides([Duration; 2]);

fn since(earlier: &[Costs; 2], later: &[Costs; 2]) -> [Duration; 2] {
    [0, 1].map(|side| {
        later[side]
            .processor
            .saturating_sub(earlier[side].processor)
    })
}

impl fmt::Display for Sides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [clients, server] = self.0;
        write!(
            f,
            "{clients:.2?} of the clients, {server:.2?} of the server"
        )
    }
}
