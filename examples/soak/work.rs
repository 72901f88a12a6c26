//! One call or stream, and what a caller may do to it.

use std::error::Error as _;
use std::fmt::Write as _;
use std::future::{IntoFuture, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use protobuf::well_known_types::wrappers::{BytesValue, UInt32Value};
use ttrpc_keepalive::{Client, ConnectError, Error};

use crate::service::{SERVICE, message};

/// For work that is to be done; nothing here takes as long.
const LIMIT: Duration = Duration::from_secs(20);

/// Why the run has failed.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) String);

impl From<String> for Failure {
    fn from(reason: String) -> Self {
        Self(reason)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let mut reason = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            // Writing to a string does not fail.
            let _ = write!(reason, ": {error}");
            source = error.source();
        }
        Self(reason)
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        Self(format!("cannot connect: {error}"))
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

/// Numbers that look random and are the same in each run (splitmix64).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: usize) -> Self {
        Self(u64::try_from(seed).unwrap_or(0))
    }

    /// One of `0..sides`.
    pub(crate) fn throw(&mut self, sides: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let mixed = (mixed ^ (mixed >> 31)) % u64::from(sides);
        u32::try_from(mixed).unwrap_or(0)
    }
}

pub(crate) async fn call(client: &Client, dice: &mut Dice) -> Result<(), Failure> {
    match dice.throw(100) {
        // Most are answered.
        0..70 => echo(client, small(dice)).await,
        70 => echo(client, 1 << 16).await,
        // Dropped before, while and after it is written.
        71..86 => {
            let polls = dice.throw(4);
            drop_after(polls, echo(client, small(dice))).await;
            Ok(())
        }
        // Late, and nobody cares for the answer; or somebody waits for it.
        kind => {
            let takes = message(3 + dice.throw(12));
            let limit = Duration::from_millis(1 + u64::from(dice.throw(3)));
            let call = client.call::<_, UInt32Value>(SERVICE, "Wait", &takes);
            match call.timeout(limit).await {
                Ok(_) => Ok(()),
                Err(error) if error.is_deadline() => {
                    if let (true, Some(answer)) = (kind > 95, error.late_answer()) {
                        answer.await;
                    }
                    Ok(())
                }
                Err(error) => Err(error.into()),
            }
        }
    }
}

pub(crate) async fn stream(client: &Client, dice: &mut Dice) -> Result<(), Failure> {
    let messages = 1 + dice.throw(30);
    match dice.throw(6) {
        // Read whole, or in part.
        kind @ 0..2 => {
            let request = message(messages);
            let call = client.server_stream::<_, UInt32Value>(SERVICE, "Count", &request);
            let mut responses = call.timeout(LIMIT).await?;
            let read = if kind == 0 { messages } else { messages / 2 };
            for number in 0..read {
                let response = responses.next().await.ok_or_else(|| ended(number))??;
                check(response.value, number)?;
            }
            if kind == 0 && responses.next().await.is_some() {
                return Err(ended(messages + 1));
            }
            Ok(())
        }
        // Both halves to the end; or one of them dropped in between.
        kind @ 2..5 => {
            let call = client.bidi_stream::<UInt32Value, UInt32Value>(SERVICE, "Converse");
            let (sender, mut receiver) = call.timeout(LIMIT).await?;
            for number in 0..messages {
                sender.send(&message(number)).await?;
                let response = receiver.next().await.ok_or_else(|| ended(number))??;
                check(response.value, number)?;
            }
            match kind {
                2 => {
                    sender.finish();
                    receiver.next().await.transpose()?;
                }
                3 => drop(receiver),
                _ => drop(sender),
            }
            Ok(())
        }
        _ => {
            let call = client.client_stream::<UInt32Value, UInt32Value>(SERVICE, "Gather");
            let (sender, reply) = call.timeout(LIMIT).await?;
            for number in 0..messages {
                sender.send(&message(number)).await?;
            }
            // Or the reply is dropped with its call, as it is.
            if dice.throw(2) == 0 {
                sender.finish();
                check(reply.await?.value, messages)?;
            }
            Ok(())
        }
    }
}

pub(crate) async fn echo(client: &Client, bytes: usize) -> Result<(), Failure> {
    let mut request = BytesValue::new();
    request.value = vec![b'x'; bytes];
    let call = client.call::<_, BytesValue>(SERVICE, "Echo", &request);
    let response = call.timeout(LIMIT).await?;
    if response != request {
        return Err(format!("an echo of {bytes} bytes is another").into());
    }
    Ok(())
}

/// How many requests the server of this connection is at.
pub(crate) async fn served(client: &Client) -> Result<usize, Failure> {
    let request = message(0);
    let call = client.call::<_, UInt32Value>(SERVICE, "Served", &request);
    let served = call.timeout(LIMIT).await?.value;
    Ok(usize::try_from(served).unwrap_or(usize::MAX))
}

fn small(dice: &mut Dice) -> usize {
    usize::try_from(dice.throw(1024)).unwrap_or(0)
}

/// Polls so often, unless it is done before, and drops.
async fn drop_after(mut polls: u32, work: impl Future) {
    let mut work = pin!(work.into_future());
    poll_fn(|cx| {
        if polls == 0 || work.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        polls -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn check(received: u32, expected: u32) -> Result<(), Failure> {
    if received != expected {
        return Err(format!("message {received} where {expected} was expected").into());
    }
    Ok(())
}

fn ended(number: u32) -> Failure {
    Failure(format!(
        "a stream does not end where it should, at {number}"
    ))
}
