//! The two processes of one contender: a server that answers, a client that measures. Each obeys
//! orders, lines on its standard input, and answers each with a line.

use std::future::poll_fn;
use std::io::BufRead;
use std::pin::pin;
use std::process;
use std::str::FromStr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time;

use crate::Result;
use crate::contender::{Contender, LATE};
use crate::counting::Counts;
use crate::measure::{self, Slice};

/// How much longer than its slice a measurement may take before the run is stopped.
const PATIENCE: Duration = Duration::from_secs(70);

/// Where the two processes run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
        pin(core)?;
        Ok(Builder::new_current_thread().enable_all().build()?)
    }
}

/// Pins this thread, and all that it starts later.
pub(crate) fn pin(core: usize) -> Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core)?;
    sched_setaffinity(Pid::from_raw(0), &cores)
        .map_err(|error| format!("cannot pin to core {core}: {error}").into())
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

/// What the parent tells a child; the payload's bytes concern the client.
pub(crate) struct Setting<'a> {
    pub(crate) address: &'a str,
    pub(crate) placement: Placement,
    pub(crate) bytes: usize,
}

/// What a child is told to do. A server knows `counts` only.
pub(crate) enum Order {
    /// Calls for a slice of time, so many at once. Answered with what was measured.
    Calls { slice: Duration, in_flight: usize },
    /// Server streams for a slice of time, one after another.
    Streams { slice: Duration },
    /// So many calls, so many at once.
    Exactly { calls: usize, in_flight: usize },
    /// So many messages of server streams, one stream after another.
    Messages { messages: usize },
    /// So many calls that are late, and as many that are dropped.
    Abandon { calls: usize },
    /// So many tasks at once that do nothing: a runtime keeps room for them.
    Tasks { tasks: usize },
    /// So many connections more, each kept.
    Connect { connections: usize },
    /// One call on each of the connections that are kept.
    CallEach,
    /// The process's counts.
    Counts,
}

impl std::fmt::Display for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Calls { slice, in_flight } => {
                write!(f, "calls {} {in_flight}", slice.as_millis())
            }
            Self::Streams { slice } => write!(f, "streams {}", slice.as_millis()),
            Self::Exactly { calls, in_flight } => write!(f, "exactly {calls} {in_flight}"),
            Self::Messages { messages } => write!(f, "messages {messages}"),
            Self::Abandon { calls } => write!(f, "abandon {calls}"),
            Self::Tasks { tasks } => write!(f, "tasks {tasks}"),
            Self::Connect { connections } => write!(f, "connect {connections}"),
            Self::CallEach => f.write_str("call-each"),
            Self::Counts => f.write_str("counts"),
        }
    }
}

impl FromStr for Order {
    type Err = Box<dyn std::error::Error + Send + Sync>;

    fn from_str(line: &str) -> Result<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let slice = |word: &str| Ok::<_, Self::Err>(Duration::from_millis(word.parse()?));
        Ok(match words[..] {
            ["calls", of, in_flight] => Self::Calls {
                slice: slice(of)?,
                in_flight: in_flight.parse()?,
            },
            ["streams", of] => Self::Streams { slice: slice(of)? },
            ["exactly", calls, in_flight] => Self::Exactly {
                calls: calls.parse()?,
                in_flight: in_flight.parse()?,
            },
            ["messages", messages] => Self::Messages {
                messages: messages.parse()?,
            },
            ["abandon", calls] => Self::Abandon {
                calls: calls.parse()?,
            },
            ["tasks", tasks] => Self::Tasks {
                tasks: tasks.parse()?,
            },
            ["connect", connections] => Self::Connect {
                connections: connections.parse()?,
            },
            ["call-each"] => Self::CallEach,
            ["counts"] => Self::Counts,
            _ => return Err(format!("unknown order {line}").into()),
        })
    }
}

pub(crate) fn serve<C: Contender>(setting: &Setting<'_>) -> Result<()> {
    setting.placement.runtime(1)?.block_on(async {
        let mut orders = orders();
        let _serving = C::serve(setting.address).await?;
        println!("ready");
        while let Some(order) = orders.recv().await {
            let Order::Counts = order.parse()? else {
                return Err(format!("a server cannot do this: {order}").into());
            };
            println!("{}", Counts::now()?);
        }
        Ok(())
    })
}

pub(crate) fn call<C: Contender>(setting: &Setting<'_>) -> Result<()> {
    setting.placement.runtime(0)?.block_on(async {
        let mut orders = orders();
        let contender = within(PATIENCE, connect::<C>(setting)).await?;
        let mut kept = Vec::new();
        println!("ready");
        while let Some(order) = orders.recv().await {
            let obeyed = obey(order.parse()?, setting, &contender, &mut kept);
            println!("{}", Box::pin(obeyed).await?);
        }
        Ok(())
    })
}

async fn obey<C: Contender>(
    order: Order,
    setting: &Setting<'_>,
    contender: &Arc<C>,
    kept: &mut Vec<Arc<C>>,
) -> Result<String> {
    let bytes = setting.bytes;
    match order {
        Order::Calls { slice, in_flight } => {
            let calls = measure::calls(contender, bytes, Slice::Time(slice), in_flight);
            Ok(within(slice + PATIENCE, calls).await?.to_string())
        }
        Order::Streams { slice } => {
            let streams = measure::streams(&**contender, bytes, Slice::Time(slice));
            Ok(within(slice + PATIENCE, streams).await?.to_string())
        }
        Order::Messages { messages } => {
            let streams = measure::streams(&**contender, bytes, Slice::Count(messages));
            Ok(within(PATIENCE, streams).await?.to_string())
        }
        Order::Exactly { calls, in_flight } => {
            let calls = measure::calls(contender, bytes, Slice::Count(calls), in_flight);
            Ok(within(PATIENCE, calls).await?.to_string())
        }
        Order::Abandon { calls } => {
            within(PATIENCE, abandon(contender, calls)).await?;
            Ok("done".to_owned())
        }
        Order::Tasks { tasks } => {
            let all: Vec<_> = (0..tasks).map(|_| tokio::spawn(async {})).collect();
            for task in all {
                task.await?;
            }
            Ok("done".to_owned())
        }
        Order::Connect { connections } => {
            for _ in 0..connections {
                let contender = C::connect(setting.address, vec![0; bytes]);
                kept.push(Arc::new(within(PATIENCE, contender).await?));
            }
            Ok("done".to_owned())
        }
        Order::CallEach => {
            for contender in kept {
                within(PATIENCE, contender.echo()).await?;
            }
            Ok("done".to_owned())
        }
        Order::Counts => Ok(Counts::now()?.to_string()),
    }
}

async fn within<T>(limit: Duration, work: impl Future<Output = Result<T>>) -> Result<T> {
    time::timeout(limit, work)
        .await
        .map_err(|_| format!("no reply for {PATIENCE:?}"))?
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

/// Calls that run out of time, some at once, and as many that are dropped as soon as they were
/// polled. Ends when all of them were answered, if late.
async fn abandon<C: Contender>(contender: &Arc<C>, calls: usize) -> Result<()> {
    // So that fewer handlers run than a server allows.
    const AT_ONCE: usize = 20;
    let mut callers = JoinSet::new();
    for _ in 0..AT_ONCE {
        let contender = contender.clone();
        callers.spawn(async move {
            let mut late = 0;
            for _ in 0..calls / AT_ONCE {
                late += usize::from(contender.late().await?);
                let mut dropped = pin!(contender.echo());
                poll_fn(|cx| {
                    let _ = dropped.as_mut().poll(cx);
                    Poll::Ready(())
                })
                .await;
            }
            Result::Ok(late)
        });
    }
    let mut late = 0;
    while let Some(caller) = callers.join_next().await {
        late += caller??;
    }
    if late < calls / 2 {
        return Err(format!("only {late} of {calls} calls ran out of time").into());
    }
    time::sleep(LATE.1 * 4).await;
    contender.echo().await?;
    Ok(())
}

/// The lines of standard input. Its end ends the process, whatever it is doing, so that no child
/// outlives a parent, not even a killed one.
pub(crate) fn orders() -> mpsc::UnboundedReceiver<String> {
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
