//! What happens while the driver is in the middle of a turn.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use support::*;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::wire::{Flags, pong};
use ttrpc_keepalive::{Client, Verdict};

type Hook = Arc<Mutex<Option<Box<dyn FnMut() + Send>>>>;

/// A client whose every read lets a test do something that no other task could do just then.
fn meddled(keepalive: Keepalive) -> (Client, Peer<UnixStream>, Hook) {
    let (here, there) = UnixStream::pair().unwrap();
    let on_read = Hook::default();
    let hook = Arc::clone(&on_read);
    let transport = Hooked::new(here).on_read(move || {
        if let Some(hook) = &mut *hook.lock().unwrap() {
            hook();
        }
        None
    });
    let client = Client::builder()
        .keepalive(keepalive)
        .attach(transport)
        .unwrap();
    (client, Peer::new(there), on_read)
}

type Running<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Begins a future at the read with this number after `from`, and keeps it.
fn begin_at_read<T: Send + 'static>(
    hook: &Hook,
    from: Instant,
    number: u32,
    future: impl Future<Output = T> + Send + 'static,
) -> Arc<Mutex<Option<Running<T>>>> {
    let kept = Arc::new(Mutex::new(None));
    let begun = Arc::clone(&kept);
    let mut future: Option<Running<T>> = Some(Box::pin(future));
    let mut reads = 0;
    *hook.lock().unwrap() = Some(Box::new(move || {
        reads += u32::from(Instant::now() >= from);
        if reads == number {
            if let Some(mut future) = future.take() {
                poll_once(future.as_mut());
                *begun.lock().unwrap() = Some(future);
            }
        }
    }));
    kept
}

// RFC KA-22. The frame is queued behind the driver's back: the rules have not seen the call.
#[tokio::test(start_paused = true)]
async fn a_first_request_made_within_a_turn_goes_behind_its_ping() {
    let (client, mut peer, hook) = meddled(Keepalive::on_demand());
    let call = begin_at_read(&hook, Instant::now(), 1, async move { say(&client).await });
    peer.first_exchange().await;
    let call = call.lock().unwrap().take().unwrap();
    call.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_without_any_time_made_within_a_turn_is_not_sent() {
    let (client, mut peer, hook) = meddled(Keepalive::off());
    sleep(ms(100)).await;
    let caller = client.clone();
    let call = begin_at_read(&hook, Instant::now(), 1, async move {
        say_within(&caller, ms(0)).await
    });
    // Commands are taken after each read that finds something.
    peer.send(pong(1, Flags::NONE, &[])).await;
    peer.silence(secs(1)).await;
    let call = call.lock().unwrap().take().unwrap();
    let error = call.await.unwrap_err();
    assert!(error.is_deadline());
    assert!(error.late_answer().is_none(), "it was never sent");
}

// The driver has taken what it was told in this turn, and the timer was said to fire in time; the
// turn had just seen it fire.
#[tokio::test(start_paused = true)]
async fn a_call_made_within_a_turn_ends_at_its_deadline() {
    let (client, mut peer, hook) = meddled(Keepalive::on_demand());
    let start = Instant::now();
    let (reply, ()) = tokio::join!(say_within(&client, secs(2)), peer.first_exchange());
    reply.unwrap();
    // The timer for that call fires all the same, and costs two turns.
    let caller = client.clone();
    let call = begin_at_read(&hook, start + ms(1750), 2, async move {
        say_within(&caller, secs(1)).await
    });
    sleep(secs(2)).await;
    let call = call.lock().unwrap().take().unwrap();
    let error = timeout(secs(10), call).await.unwrap().unwrap_err();
    assert_passed(start, ms(2750));
    assert_eq!(error.verdict(), Some(Verdict::Unresponsive));
}
