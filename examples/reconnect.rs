//! A loop that connects anew: it belongs to the application, so that nothing is sent twice, or to a
//! peer that does not know us, behind its back.
//!
//! A publisher sends numbered events to a server that is restarted three times: once it shuts down,
//! once it crashes, once it stays away for a while. The publisher registers with each of them, and
//! sends an event again until it was taken. Exits with 1 if one is missing.

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::convert::Infallible;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use protobuf::well_known_types::wrappers::{StringValue, UInt64Value};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use ttrpc_keepalive::{Backoff, Client, Keepalive, Listener, Server, Service};

const EVENTS: &str = "demo.Events";
const RESTARTS: usize = 3;

/// Publishes until it is told to stop. Yields how many connections it has registered on.
async fn publish(address: String, mut stop: watch::Receiver<bool>) -> u32 {
    let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));
    // What outlives a connection: the event that is to be sent next.
    let (mut event, mut registered) = (1, 0);
    loop {
        let mut since = None;
        tokio::select! {
            Err(error) = connection(&address, &mut event, &mut since) => {
                println!("publisher: {error}");
            }
            _ = stop.wait_for(|stop| *stop) => return registered + u32::from(since.is_some()),
        }
        registered += u32::from(since.is_some());
        // Connecting may take long and come to nothing: what counts is how long it was of use.
        let lived = since.map_or(Duration::ZERO, |since: Instant| since.elapsed());
        let Some(wait) = backoff.delay_after(lived) else {
            return registered;
        };
        tokio::select! {
            () = sleep(wait) => {}
            _ = stop.wait_for(|stop| *stop) => return registered,
        }
    }
}

/// One connection, from its beginning to its end, and since when it is registered. All that is in it is made anew.
async fn connection(
    address: &str,
    event: &mut u64,
    since: &mut Option<Instant>,
) -> Result<Infallible, Box<dyn Error + Send + Sync>> {
    let client = Client::builder()
        .keepalive(Keepalive::every(Duration::from_secs(2)).timeout(Duration::from_secs(5)))
        .call_timeout(Duration::from_secs(2))
        .connect(address)
        .await?;
    let name = text("publisher");
    let _: StringValue = client.call(EVENTS, "Register", &name).await?;
    *since = Some(Instant::now());
    loop {
        tokio::select! {
            // With the reason, while there is nothing to send too.
            end = client.closed() => return Err(end.into()),
            () = sleep(Duration::from_millis(10)) => {}
        }
        let mut message = UInt64Value::new();
        message.value = *event;
        // A call that is made again is a new one: its two seconds begin when it is awaited.
        match client
            .call::<_, UInt64Value>(EVENTS, "Publish", &message)
            .await
        {
            Ok(_) => *event += 1,
            // The server is there and slow: it stays connected, and is asked again.
            Err(error) if error.is_deadline() => println!("publisher: {error}"),
            // Its source says why the connection ended.
            Err(_) if client.snapshot().end().is_some() => {
                return Err(client.closed().await.into());
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// What the servers have taken, all together.
#[derive(Default)]
struct Taken {
    registrations: u32,
    events: Vec<u64>,
}

fn server(taken: &Arc<Mutex<Taken>>) -> Result<Server, Box<dyn Error>> {
    let (registrations, events) = (Arc::clone(taken), Arc::clone(taken));
    let server = Server::builder().service(
        Service::new(EVENTS, ())
            .unary("Register", move |(), _, name: StringValue| {
                lock(&registrations).registrations += 1;
                async move { Ok(name) }
            })
            .unary("Publish", move |(), _, event: UInt64Value| {
                lock(&events).events.push(event.value);
                async move { Ok(event) }
            }),
    );
    Ok(server.build()?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = format!("unix://@ttrpc-keepalive-reconnect-{}", std::process::id());
    let taken = Arc::default();
    let (stop, stopped) = watch::channel(false);
    let publisher = tokio::spawn(publish(address.clone(), stopped));

    for start in 0..=RESTARTS {
        let server = server(&taken)?;
        let listener = Listener::bind(&address).await?;
        println!("server: start {}", start + 1);
        let serving = {
            let server = server.clone();
            tokio::spawn(async move { server.serve(listener).await })
        };
        let enough = lock(&taken).events.len() + 20;
        while lock(&taken).events.len() < enough {
            sleep(Duration::from_millis(10)).await;
        }
        if start == 1 {
            println!("server: crash");
            serving.abort();
        } else {
            println!("server: shutdown");
            server.shutdown(Duration::from_secs(1)).await;
        }
        let _ = serving.await;
        if start == 2 {
            println!("server: away for a while");
            sleep(Duration::from_millis(400)).await;
        }
    }
    stop.send(true)?;
    let connections = publisher.await?;

    let mut taken = std::mem::take(&mut *lock(&taken));
    // One that was taken by a server which ended before it answered was sent again.
    taken.events.dedup();
    let mut numbered = taken.events.iter().zip(1..);
    let complete = numbered.all(|(event, expected)| *event == expected);
    println!(
        "{} registrations, {} events, none missing: {complete}",
        taken.registrations,
        taken.events.len()
    );
    let registered = u32::try_from(RESTARTS + 1)?;
    if !complete || taken.registrations != registered || connections > registered {
        return Err("the publisher has lost something".into());
    }
    Ok(())
}

fn lock(taken: &Mutex<Taken>) -> std::sync::MutexGuard<'_, Taken> {
    // A handler that panicked has left a count and a list.
    taken
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn text(value: &str) -> StringValue {
    let mut message = StringValue::new();
    message.value = value.to_owned();
    message
}
