//! The two processes of one contender: a server that answers, a client that measures.

use std::io::BufRead;
use std::process;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time;

use crate::Result;

/// The deadline that contenders with deadlines give each call, so that all of them pay for one.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(20);

/// How much longer than its slice a measurement may take before the run is stopped.
const PATIENCE: Duration = Duration::from_secs(30);

/// One implementation of the echo: a connected client that holds its request.
pub(crate) trait Contender: Sized + Send + Sync + 'static {
    /// Serves for as long as it lives.
    type Server;

    /// The payload of a reply.
    type Reply: AsRef<[u8]>;

    /// Returns once `address` (`unix:///path`) accepts connections.
    fn serve(address: &str) -> impl Future<Output = Result<Self::Server>>;

    /// Connects and prepares the request that carries `payload`.
    fn connect(address: &str, payload: Vec<u8>) -> impl Future<Output = Result<Self>>;

    /// Makes one call.
    fn echo(&self) -> impl Future<Output = Result<Self::Reply>> + Send;
}

/// Where the two processes run.
#[derive(Clone, Copy)]
pub(crate) enum Placement {
    OneCore,
    TwoCores,
    TwoWorkers,
}

impl Placement {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::OneCore => "one core",
            Self::TwoCores => "two cores",
            Self::TwoWorkers => "two workers",
        }
    }

    /// Pins this process, and with it all threads it starts later, and builds its runtime.
    fn runtime(self, own_core: usize) -> Result<Runtime> {
        let core = match self {
            Self::OneCore => 0,
            Self::TwoCores => own_core,
            Self::TwoWorkers => {
                let mut builder = Builder::new_multi_thread();
                return Ok(builder.worker_threads(2).enable_all().build()?);
            }
        };
        let mut cores = CpuSet::new();
        cores.set(core)?;
        sched_setaffinity(Pid::from_raw(0), &cores)
            .map_err(|error| format!("cannot pin to core {core}: {error}"))?;
        Ok(Builder::new_current_thread().enable_all().build()?)
    }
}

impl FromStr for Placement {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        [Self::OneCore, Self::TwoCores, Self::TwoWorkers]
            .into_iter()
            .find(|placement| placement.name() == name)
            .ok_or_else(|| format!("unknown placement {name}"))
    }
}

/// What the parent tells a child; the payload's bytes and the calls in flight concern the client.
pub(crate) struct Setting<'a> {
    pub(crate) address: &'a str,
    pub(crate) placement: Placement,
    pub(crate) bytes: usize,
    pub(crate) in_flight: usize,
}

pub(crate) fn serve<C: Contender>(setting: &Setting<'_>) -> Result<()> {
    setting.placement.runtime(1)?.block_on(async {
        let mut orders = orders();
        let _serving = C::serve(setting.address).await?;
        println!("ready");
        orders.recv().await;
        Ok(())
    })
}

/// Answers each order, a slice in milliseconds, with the calls made, the nanoseconds they took and
/// the median of their latencies in nanoseconds (0 with more than one call in flight).
pub(crate) fn call<C: Contender>(setting: &Setting<'_>) -> Result<()> {
    setting.placement.runtime(0)?.block_on(async {
        let mut orders = orders();
        let contender = time::timeout(PATIENCE, connect::<C>(setting))
            .await
            .map_err(|_| format!("no first reply within {PATIENCE:?}"))??;
        println!("ready");
        while let Some(order) = orders.recv().await {
            let slice = Duration::from_millis(order.parse()?);
            let measured = measure(&contender, setting, slice);
            let (calls, taken, median) = time::timeout(slice + PATIENCE, measured)
                .await
                .map_err(|_| format!("calls without a reply for {PATIENCE:?}"))??;
            println!("{calls} {} {}", taken.as_nanos(), median.as_nanos());
        }
        Ok(())
    })
}

/// Connects and compares the first reply byte by byte; later ones are checked for their length.
async fn connect<C: Contender>(setting: &Setting<'_>) -> Result<Arc<C>> {
    let payload: Vec<u8> = (0..=u8::MAX).cycle().take(setting.bytes).collect();
    let contender = C::connect(setting.address, payload.clone()).await?;
    if contender.echo().await?.as_ref() != payload {
        return Err("the first reply is not an echo".into());
    }
    Ok(Arc::new(contender))
}

async fn measure<C: Contender>(
    contender: &Arc<C>,
    setting: &Setting<'_>,
    slice: Duration,
) -> Result<(usize, Duration, Duration)> {
    let begun = Instant::now();
    let mut callers = JoinSet::new();
    for _ in 0..setting.in_flight {
        let timed = setting.in_flight == 1;
        callers.spawn(repeat(
            contender.clone(),
            setting.bytes,
            begun + slice,
            timed,
        ));
    }
    let mut calls = 0;
    let mut latencies = Vec::new();
    while let Some(caller) = callers.join_next().await {
        let (made, measured) = caller??;
        calls += made;
        latencies.extend(measured);
    }
    let taken = begun.elapsed();
    let middle = latencies.len() / 2;
    let median = if latencies.is_empty() {
        Duration::ZERO
    } else {
        *latencies.select_nth_unstable(middle).1
    };
    Ok((calls, taken, median))
}

/// One caller: call after call until `end`, at least one.
async fn repeat<C: Contender>(
    contender: Arc<C>,
    bytes: usize,
    end: Instant,
    timed: bool,
) -> Result<(usize, Vec<Duration>)> {
    let mut calls = 0;
    let mut latencies = Vec::new();
    let mut begun = Instant::now();
    loop {
        let received = contender.echo().await?.as_ref().len();
        if received != bytes {
            return Err(format!("a reply of {received} bytes to a request of {bytes}").into());
        }
        let now = Instant::now();
        calls += 1;
        if timed {
            latencies.push(now - begun);
        }
        if now >= end {
            return Ok((calls, latencies));
        }
        begun = now;
    }
}

/// The lines of standard input. Its end ends the process, whatever it is doing, so that no child
/// outlives a parent, not even a killed one.
fn orders() -> mpsc::UnboundedReceiver<String> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for order in std::io::stdin().lock().lines().map_while(|line| line.ok()) {
            if sender.send(order).is_err() {
                return;
            }
        }
        process::exit(0);
    });
    receiver
}
