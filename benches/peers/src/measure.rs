//! What a client process measures: calls and streams in one slice.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::Result;
use crate::contender::{Contender, StreamOrder};

/// How much is done.
#[derive(Clone, Copy)]
pub(crate) enum Slice {
    Time(Duration),
    /// Calls, or messages of streams.
    Count(usize),
}

/// Calls or messages, the time they took, and the median latency (0 if it was not measured).
pub(crate) struct Measured {
    count: usize,
    taken: Duration,
    median: Duration,
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            count,
            taken,
            median,
        } = self;
        write!(f, "{count} {} {}", taken.as_nanos(), median.as_nanos())
    }
}

/// Latencies are measured with one call in flight only.
pub(crate) async fn calls<C: Contender>(
    contender: &Arc<C>,
    bytes: usize,
    slice: Slice,
    in_flight: usize,
) -> Result<Measured> {
    let begun = Instant::now();
    let mut callers = JoinSet::new();
    for _ in 0..in_flight {
        let (end, limit) = match slice {
            Slice::Time(slice) => (Some(begun + slice), usize::MAX),
            Slice::Count(calls) => (None, calls / in_flight),
        };
        let timed = in_flight == 1 && end.is_some();
        let caller = repeat(contender.clone(), bytes, (end, limit), timed);
        if C::BLOCKS {
            callers.spawn_blocking(move || on_a_thread(caller));
        } else {
            callers.spawn(caller);
        }
    }
    let mut count = 0;
    let mut latencies = Vec::new();
    while let Some(caller) = callers.join_next().await {
        let (made, measured) = caller??;
        count += made;
        latencies.extend(measured);
    }
    let taken = begun.elapsed();
    let middle = latencies.len() / 2;
    let median = if latencies.is_empty() {
        Duration::ZERO
    } else {
        *latencies.select_nth_unstable(middle).1
    };
    Ok(Measured {
        count,
        taken,
        median,
    })
}

/// As a program does that has no runtime.
fn on_a_thread<T: Send + 'static>(
    caller: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let thread = std::thread::spawn(move || {
        let mut context = Context::from_waker(Waker::noop());
        match pin!(caller).poll(&mut context) {
            Poll::Ready(result) => result,
            Poll::Pending => Err("a call that blocks has not".into()),
        }
    });
    thread.join().map_err(|_| "a caller panicked")?
}

/// One caller: call after call until `end` or `limit`, at least one.
async fn repeat<C: Contender>(
    contender: Arc<C>,
    bytes: usize,
    (end, limit): (Option<Instant>, usize),
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
        if calls >= limit || end.is_some_and(|end| now >= end) {
            return Ok((calls, latencies));
        }
        begun = now;
    }
}

/// One stream after another until `slice` is over, each of 4 MiB or of 5,000 messages. That is less
/// than what implementations with a limit keep for a reader that is behind.
pub(crate) async fn streams<C: Contender>(
    contender: &C,
    bytes: usize,
    slice: Slice,
) -> Result<Measured> {
    let order = StreamOrder {
        messages: ((4 << 20) / bytes.max(1)).clamp(1, 5000).try_into()?,
        bytes: bytes.try_into()?,
    };
    let begun = Instant::now();
    let mut count = 0;
    while match slice {
        Slice::Time(slice) => begun.elapsed() < slice,
        Slice::Count(messages) => count < messages,
    } {
        contender.stream(order).await?;
        count += usize::try_from(order.messages)?;
    }
    Ok(Measured {
        count,
        taken: begun.elapsed(),
        median: Duration::ZERO,
    })
}
