//! A state of each connection, for its handlers.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use bytes::Bytes;
use support::*;
use tokio::sync::mpsc;
use ttrpc_keepalive::{
    Client, ConnectionError, Context, Raw, Requests, Responses, Server, Service,
};

/// Counts the calls of its connection, and tells when it goes.
struct Own {
    name: u32,
    calls: AtomicU32,
    gone: mpsc::UnboundedSender<u32>,
}

impl Own {
    fn new(name: u32, gone: &mpsc::UnboundedSender<u32>) -> Self {
        Self {
            name,
            calls: AtomicU32::new(0),
            gone: gone.clone(),
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = self.gone.send(self.name);
    }
}

/// `Count` and `CountStream` yield the name of the connection's state and how often it was asked.
fn counting() -> Server {
    let count = |context: &Context| match context.connection_state::<Own>() {
        Some(own) => format!("{}: {}", own.name, own.calls.fetch_add(1, Relaxed) + 1),
        None => "nobody".to_owned(),
    };
    Server::builder()
        .service(Service::new("demo.Own", ()).unary("Count", move |(), context, _: Raw| async move {
            assert!(
                context.connection_state::<String>().is_none(),
                "another type"
            );
            Ok(Raw(count(&context)))
        }).bidi_stream("CountStream", move |(), context,
                  mut requests: Requests<Raw>,
                  responses: Responses<Raw>| {
                async move {
                    while requests.next().await.is_some() {
                        responses.send(&raw(count(&context))).await?;
                    }
                    Ok(())
                }
            }).unary("Sleep", move |(), context, _: Raw| async move {
            tokio::time::sleep(secs(5)).await;
            count(&context);
            Ok(Raw(""))
        }))
        .build()
        .unwrap()
}

async fn count(client: &Client) -> Bytes {
    let call = client.call::<_, Raw>("demo.Own", "Count", &Raw(""));
    call.await.unwrap().0
}

#[tokio::test(start_paused = true)]
async fn handlers_of_one_server_see_the_state_of_their_own_connection() {
    let server = counting();
    let (gone, mut went) = mpsc::unbounded_channel();
    let mut clients = Vec::new();
    for name in [1, 2] {
        let (here, there) = tokio::io::duplex(4096);
        let (server, own) = (server.clone(), Own::new(name, &gone));
        tokio::spawn(async move { server.serve_connection_with(there, own).await });
        clients.push(Client::builder().attach(here).unwrap());
    }
    for times in 1..4 {
        for (name, client) in [1, 2].into_iter().zip(&clients) {
            assert_eq!(count(client).await, format!("{name}: {times}"));
        }
    }
    let stream = clients[0].bidi_stream::<Raw, Raw>("demo.Own", "CountStream");
    let (sender, mut receiver) = stream.await.unwrap();
    sender.send(&raw("")).await.unwrap();
    assert_eq!(*receiver.next().await.unwrap().unwrap(), "1: 4");
    assert!(went.try_recv().is_err());
    clients.pop();
    assert_eq!(went.recv().await, Some(2), "it goes with its connection");

    // One without a state has none.
    let (client, _) = pair(server, Client::builder(), 4096);
    assert_eq!(count(&client).await, "nobody");
}

#[tokio::test(start_paused = true)]
async fn it_lives_as_long_as_a_handler_that_runs_on() {
    let server = counting();
    let (gone, mut went) = mpsc::unbounded_channel();
    let (here, there) = tokio::io::duplex(4096);
    let own = Own::new(7, &gone);
    let serving = tokio::spawn(async move { server.serve_connection_with(there, own).await });
    let client = Client::builder().attach(here).unwrap();
    let call = {
        let client = client.clone();
        tokio::spawn(async move { client.call::<_, Raw>("demo.Own", "Sleep", &Raw("")).await })
    };
    tokio::time::sleep(secs(1)).await;
    client.abort();
    call.await.unwrap().unwrap_err();
    serving.await.unwrap();
    tokio::time::sleep(secs(3)).await;
    assert!(went.try_recv().is_err(), "its handler may still ask");
    assert_eq!(went.recv().await, Some(7));
}

#[tokio::test(start_paused = true)]
async fn a_server_of_a_listener_makes_one_for_each_that_it_accepts() {
    let (connect, incoming) = mpsc::channel(4);
    let (gone, mut went) = mpsc::unbounded_channel();
    let made = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&made);
    let serving = tokio::spawn(async move {
        let own = |_: &tokio::io::DuplexStream| Own::new(counter.fetch_add(1, Relaxed), &gone);
        counting().serve_with(incoming, own).await;
    });
    for name in 0..3 {
        let (here, there) = tokio::io::duplex(4096);
        connect.send(there).await.unwrap();
        let client = Client::builder().attach(here).unwrap();
        assert_eq!(count(&client).await, format!("{name}: 1"));
        drop(client);
        assert_eq!(went.recv().await, Some(name));
    }
    drop(connect);
    serving.await.unwrap();
    assert_eq!(made.load(Relaxed), 3);
}

#[tokio::test(start_paused = true)]
async fn one_that_cannot_be_made_costs_its_connection_and_no_other() {
    let (connect, incoming) = mpsc::channel(8);
    let (gone, _went) = mpsc::unbounded_channel();
    let mut name = 0;
    tokio::spawn(async move {
        let own = |_: &tokio::io::DuplexStream| {
            name += 1;
            if name == 2 {
                std::panic::panic_any(Bomb);
            }
            Own::new(name, &gone)
        };
        counting().serve_with(incoming, own).await;
    });
    let mut clients = Vec::new();
    for _ in 0..3 {
        let (here, there) = tokio::io::duplex(4096);
        connect.send(there).await.unwrap();
        clients.push(Client::builder().attach(here).unwrap());
    }
    let end = clients[1].closed().await;
    assert!(matches!(end, ConnectionError::PeerClosed), "{end}");
    assert_eq!(count(&clients[0]).await, "1: 1");
    assert_eq!(count(&clients[2]).await, "3: 1");
}
