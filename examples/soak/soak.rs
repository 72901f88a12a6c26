//! The run: callers at work, samples of everything that could grow, and the judgement.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{interval, sleep};
use ttrpc_keepalive::{Client, Keepalive, Listener};

use crate::gauges;
use crate::lanes::{LANES, Lanes, Tables};
use crate::plan::Plan;
use crate::service::{self, Running};
use crate::work::{self, Dice, Failure};

/// Calls and streams at a time.
const CALLERS: usize = 64;

/// After so many of them a connection is replaced.
const RENEWAL: usize = 1_000;

/// How often everything is looked at, and how often that is printed.
const SAMPLE: Duration = Duration::from_millis(10);
const PRINTED: u32 = 500;

/// Samples that the second half must have, or the line through them says nothing.
const ENOUGH: usize = 4;

/// For how long answers may come late when all is done.
const SETTLE: Duration = Duration::from_secs(10);

/// Makes the calls and streams of the plan.
///
/// # Errors
///
/// The first reason why the run has failed.
pub(crate) fn run(plan: &Plan) -> Result<(), String> {
    let done = Arc::new(Done::default());
    watch(&done, plan.patience);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let result = runtime.block_on(soak(plan, &done));
    done.over.store(true, Relaxed);
    // Not dropped, which would wait for a thread that does not come back.
    runtime.shutdown_timeout(Duration::from_secs(1));
    result.map_err(|failure| failure.0)
}

/// What has been done so far.
#[derive(Default)]
struct Done {
    work: AtomicUsize,
    cut_off: AtomicUsize,
    over: AtomicBool,
}

/// Ends the process if nothing moves: on a thread of its own, which no wedged runtime stops.
fn watch(done: &Arc<Done>, patience: Duration) {
    let done = Arc::clone(done);
    thread::spawn(move || {
        let (mut seen, mut since) = (0, Instant::now());
        while !done.over.load(Relaxed) {
            let now = done.work.load(Relaxed);
            if now != seen {
                (seen, since) = (now, Instant::now());
            } else if since.elapsed() > patience {
                println!(
                    "FAILED: nothing has moved for {patience:?}, after {now} calls and streams"
                );
                std::process::exit(1);
            }
            thread::sleep(SAMPLE);
        }
    });
}

async fn soak(plan: &Plan, done: &Arc<Done>) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let address = format!("unix://{}", folder.path().join("soak.sock").display());
    let running = Running::default();
    let keepalive = Keepalive::every(Duration::from_secs(10)).timeout(Duration::from_secs(20));
    let server = service::server(keepalive, &running).map_err(|error| error.to_string())?;
    let listener = Listener::bind(&address).await?;
    let serving = tokio::spawn(async move { server.serve(listener).await });
    let lanes = Arc::new(Lanes::connect(address).await?);

    lanes.greet().await?;
    let connected = gauges::descriptors()?;

    let mut callers = JoinSet::new();
    for seed in 0..CALLERS {
        let caller = Caller {
            lanes: Arc::clone(&lanes),
            done: Arc::clone(done),
            calls: plan.calls,
            streams: plan.streams,
            leak: plan.leak,
        };
        callers.spawn(caller.run(Dice::new(seed)));
    }
    let mut samples = Samples::new(plan);
    let mut ticks = interval(SAMPLE);
    loop {
        tokio::select! {
            _ = ticks.tick() => samples.take(done, &lanes, &running)?,
            finished = callers.join_next() => match finished {
                None => break,
                Some(Ok(result)) => result?,
                Some(Err(error)) => return Err(error.to_string().into()),
            },
        }
    }
    samples.take(done, &lanes, &running)?;
    let grown = samples.judge();
    let left = settle(&lanes, &running, connected).await;
    serving.abort();
    grown.and(left)
}

struct Caller {
    lanes: Arc<Lanes>,
    done: Arc<Done>,
    calls: usize,
    streams: usize,
    leak: usize,
}

impl Caller {
    async fn run(self, mut dice: Dice) -> Result<(), Failure> {
        let all = self.calls + self.streams;
        loop {
            let number = self.done.work.fetch_add(1, Relaxed);
            if number >= all {
                return Ok(());
            }
            let lane = number % LANES;
            if number % RENEWAL == RENEWAL - 1 {
                let lane = number / RENEWAL;
                self.lanes.renew(lane, dice.throw(2) == 0).await?;
            }
            let client = self.lanes.client(lane);
            // Spread evenly among the calls.
            let is_stream = (number + 1) * self.streams / all > number * self.streams / all;
            let outcome = if is_stream {
                work::stream(&client, &mut dice).await
            } else {
                // What is forgotten is never freed.
                std::mem::forget(vec![1_u8; self.leak]);
                work::call(&client, &mut dice).await
            };
            if outcome.is_err() && was_aborted(&client).await {
                self.done.cut_off.fetch_add(1, Relaxed);
            } else {
                outcome?;
            }
        }
    }
}

/// Whether the connection was aborted. A call fails as soon as that is asked for, and its end is known
/// a little later.
async fn was_aborted(client: &Client) -> bool {
    let end = tokio::time::timeout(Duration::from_secs(1), client.closed()).await;
    end.is_ok_and(|end| end.is_local_close())
}

/// All that was seen over time.
struct Samples {
    all: f64,
    growth: f64,
    /// What was done, and bytes of memory then.
    memory: Vec<(f64, f64)>,
    begun: Instant,
    taken: u32,
}

impl Samples {
    fn new(plan: &Plan) -> Self {
        Self {
            all: counted(plan.calls + plan.streams),
            growth: plan.growth,
            memory: Vec::new(),
            begun: Instant::now(),
            taken: 0,
        }
    }

    fn take(&mut self, done: &Done, lanes: &Lanes, running: &Running) -> Result<(), Failure> {
        let work = counted(done.work.load(Relaxed)).min(self.all);
        let memory = gauges::resident()?;
        let descriptors = gauges::descriptors()?;
        self.memory.push((work, memory));
        if self.taken % PRINTED == 0 {
            let Tables {
                in_flight,
                late,
                oldest,
            } = lanes.tables();
            println!(
                "{:>4} s  {:>5.1} %  {work:>9} done, {:>5} cut off; {in_flight:>3} in flight, oldest \
                 {:>4} ms, {late:>3} late; {:>3} handlers; {descriptors:>3} descriptors; {:>6.1} MiB",
                self.begun.elapsed().as_secs(),
                100.0 * work / self.all,
                done.cut_off.load(Relaxed),
                oldest.unwrap_or_default().as_millis(),
                running.now(),
                memory / f64::from(1_u32 << 20)
            );
        }
        self.taken += 1;
        Ok(())
    }

    /// Whether memory grew in the second half, by the line through its samples.
    fn judge(&self) -> Result<(), Failure> {
        let half = self.all / 2.0;
        let second = self.memory.iter().filter(|(work, _)| *work >= half);
        let second: Vec<_> = second.copied().collect();
        if second.len() < ENOUGH {
            return Err("it was over too soon to see whether memory grows"
                .to_owned()
                .into());
        }
        let slope = gauges::slope(&second);
        let growth = slope * half;
        println!(
            "{} s; memory in the second half: {slope:+.2} B for each call or stream, {:+.2} MiB in all",
            self.begun.elapsed().as_secs(),
            growth / f64::from(1_u32 << 20)
        );
        if growth > self.growth {
            return Err(format!("memory grows by {slope:.1} B for each call or stream").into());
        }
        Ok(())
    }
}

/// When all is done and the late answers have come, nothing may be left but the connections.
async fn settle(lanes: &Lanes, running: &Running, connected: usize) -> Result<(), Failure> {
    let begun = Instant::now();
    loop {
        let served = lanes.served().await?;
        let Tables {
            in_flight, late, ..
        } = lanes.tables();
        let (handlers, descriptors) = (running.now(), gauges::descriptors()?);
        let clean = in_flight + late + served + handlers == 0 && descriptors <= connected;
        if clean || begun.elapsed() > SETTLE {
            println!(
                "left: {in_flight} in flight, {late} late, {served} served, {handlers} handlers, \
                 {descriptors} descriptors of {connected}"
            );
            let left = Failure("something is left although nothing is done".to_owned());
            return if clean { Ok(()) } else { Err(left) };
        }
        sleep(SAMPLE).await;
    }
}

fn counted(number: usize) -> f64 {
    gauges::as_float(u64::try_from(number).unwrap_or(u64::MAX))
}
