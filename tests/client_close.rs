//! Closing a client: what is queued is sent first, within a limit, and what is not is told.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use protobuf::well_known_types::wrappers::StringValue;
use support::*;
use tokio::io::DuplexStream;
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep, timeout};
use ttrpc_keepalive::keepalive::{Keepalive, Support};
use ttrpc_keepalive::wire::MessageType;
use ttrpc_keepalive::{
    Client, ConnectionError, Raw, Reply, RequestProgress, Requests, Sender, Server, Service,
};

/// `Put` counts what comes, and once more when nothing follows.
fn counting() -> (Server, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let server = Server::builder().service(Service::new("demo.Log", ()).client_stream(
        "Put",
        move |(), _, mut lines: Requests<StringValue>| {
            let count = Arc::clone(&counted);
            async move {
                while let Some(line) = lines.next().await {
                    line?;
                    count.fetch_add(1, Ordering::Relaxed);
                }
                count.fetch_add(1000, Ordering::Relaxed);
                Ok(text(""))
            }
        },
    ));
    (server.build().unwrap(), count)
}

async fn put(client: &Client) -> (Sender<StringValue>, Reply<StringValue>) {
    let call = client.client_stream::<StringValue, StringValue>("demo.Log", "Put");
    call.await.unwrap()
}

/// Queues so many lines, and keeps nothing.
async fn put_lines(client: &Client, lines: usize, size: usize) {
    let (sender, reply) = put(client).await;
    let line = text(&"x".repeat(size));
    for _ in 0..lines {
        sender.send(&line).await.unwrap();
    }
    sender.finish();
    drop(reply);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_closed_sends_what_is_queued_and_one_that_is_dropped_does_not() {
    // More than fits into the pipe, and less than is read in one go.
    let sizes = [(100, 10_000), (5, 1), (1, 0)];
    // One that asks nothing cannot know that its request was read before the end.
    for (keepalive, sizes) in [
        (Keepalive::off(), &sizes[..1]),
        (Keepalive::on_demand(), &sizes),
    ] {
        for &(lines, size) in sizes {
            let (server, count) = counting();
            let builder = Client::builder().keepalive(keepalive.clone());
            let (client, _) = pair(server, builder, 4096);
            put_lines(&client, lines, size).await;
            client.close().await.unwrap();
            assert!(client.closed().await.is_local_close());
            sleep(ms(10)).await;
            assert_eq!(count.load(Ordering::Relaxed), lines + 1000, "{size}");
        }
    }
    let (server, count) = counting();
    let (client, _) = pair(server, Client::builder(), 4096);
    put_lines(&client, 100, 10_000).await;
    drop(client);
    sleep(ms(10)).await;
    assert!(count.load(Ordering::Relaxed) < 100);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_sent_in_time_is_told() {
    let (client, peer) = scripted(Keepalive::off(), 4096);
    put_lines(&client, 3, 10_000).await;
    let call = {
        let client = client.clone();
        tokio::spawn(async move { say(&client).await })
    };
    sleep(ms(1)).await;
    let start = Instant::now();
    let error = client.close().timeout(secs(2)).await.unwrap_err();
    assert_passed(start, secs(2));
    // The request of the stream is written; three messages, their end and a call are not.
    assert_eq!(error.frames(), 5, "{error}");
    assert!((26_000..30_000).contains(&error.bytes()), "{error}");
    assert!(error.end().is_none());
    let line = error.to_string();
    assert!(line.ends_with(" bytes, not sent within 2s"), "{line}");
    let unsent = call.await.unwrap().unwrap_err();
    assert_eq!(unsent.request(), RequestProgress::NotSent);
    assert!(client.closed().await.is_local_close());
    // It is told to whoever asks.
    let again = client.close().await.unwrap_err();
    assert_eq!((again.frames(), again.bytes()), (5, error.bytes()));
    drop(peer);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_sent_since_the_peer_has_gone_is_told_with_the_reason() {
    let (client, peer) = scripted(Keepalive::off(), 4096);
    put_lines(&client, 1, 10_000).await;
    let mut close = pin!(client.close());
    poll_once(close.as_mut());
    drop(peer);
    let error = close.await.unwrap_err();
    assert!(
        matches!(
            error.end(),
            Some(ConnectionError::PeerClosed | ConnectionError::BrokenPipe(_))
        ),
        "{error}"
    );
    assert_eq!(error.frames(), 3, "{error}");
    assert!(
        error.to_string().contains(" bytes, not sent: the peer "),
        "{error}"
    );

    // Nothing was queued.
    let (client, peer) = scripted(Keepalive::off(), 4096);
    drop(peer);
    client.closed().await;
    client.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nothing_more_is_let_in() {
    let builder = Client::builder().keepalive(Keepalive::off());
    let (client, mut peer) = attached(builder.call_limit(2).outbox_limit(20_000), 4096);
    let (sender, reply) = put(&client).await;
    let large = text(&"x".repeat(20_000));
    sender.send(&large).await.unwrap();
    let open = tokio::spawn({
        let call = client.call::<_, StringValue>("demo.Echo", "Say", &large);
        call.into_future()
    });
    let waiting = tokio::spawn(client.call::<_, StringValue>("demo.Echo", "Say", &large));
    let sending = tokio::spawn(async move { sender.send(&text("more")).await });
    sleep(ms(1)).await;
    let mut close = pin!(client.close());
    poll_once(close.as_mut());
    let refused = [
        say(&client).await.unwrap_err(),
        waiting.await.unwrap().unwrap_err(),
        sending.await.unwrap().unwrap_err(),
    ];
    for error in refused {
        assert!(error.is_connection(), "{error}");
        assert_eq!(error.request(), RequestProgress::NotSent, "{error}");
    }
    // What is queued is sent: the stream's first message, and its end.
    let all = async {
        while let Some(frame) = peer.next().await {
            assert!(frame.header.stream_id <= 3);
        }
    };
    let (closed, ()) = tokio::join!(close, all);
    closed.unwrap();
    let (open, reply) = (open.await.unwrap().unwrap_err(), reply.await.unwrap_err());
    for error in [open, reply] {
        assert!(matches!(
            error,
            ttrpc_keepalive::Error::Connection(ConnectionError::LocalClose, _)
        ));
    }
}

/// What the peer was sent until the end, by types.
async fn rest(mut peer: Peer<DuplexStream>, answers: bool) -> Vec<MessageType> {
    let mut types = Vec::new();
    while let Some(frame) = peer.next().await {
        types.push(frame.header.message_type);
        if answers && frame.header.message_type == MessageType::PING {
            peer.pong(&frame).await;
        }
    }
    types
}

#[tokio::test(start_paused = true)]
async fn the_peer_has_time_to_read_what_was_sent() {
    // It knows PING, and is asked behind all the rest.
    let (client, mut peer) = scripted(Keepalive::on_demand(), 64 << 10);
    let (reply, ()) = tokio::join!(say(&client), peer.first_exchange());
    reply.unwrap();
    put_lines(&client, 1, 1).await;
    let start = Instant::now();
    let (closed, types) = tokio::join!(client.close().into_future(), rest(peer, true));
    closed.unwrap();
    assert_eq!(types.last(), Some(&MessageType::PING), "{types:?}");
    assert_passed(start, secs(0));

    // It is frozen.
    let (client, mut peer) = scripted(Keepalive::on_demand(), 64 << 10);
    let (reply, ()) = tokio::join!(say(&client), peer.first_exchange());
    reply.unwrap();
    let start = Instant::now();
    client.close().await.unwrap();
    assert_passed(start, secs(1));
    drop(peer);

    // Of one that has answered nothing it is not known.
    let (client, peer) = scripted(Keepalive::on_demand(), 64 << 10);
    put_lines(&client, 1, 1).await;
    let start = Instant::now();
    let (closed, types) = tokio::join!(client.close().into_future(), rest(peer, false));
    closed.unwrap();
    assert!(types.contains(&MessageType::PING));
    assert_passed(start, secs(1));

    // One that knows no PING is not asked.
    let (client, mut peer) = scripted(Keepalive::on_demand(), 64 << 10);
    let (reply, ()) = tokio::join!(say(&client), async {
        peer.ping().await;
        let (id, _) = peer.request().await;
        peer.respond(id).await;
    });
    reply.unwrap();
    assert_eq!(client.snapshot().support(), Support::No);
    let start = Instant::now();
    let (closed, types) = tokio::join!(client.close().into_future(), rest(peer, false));
    closed.unwrap();
    assert_eq!(types, []);
    assert_passed(start, secs(0));
}

#[tokio::test(start_paused = true)]
async fn closing_needs_no_client_and_its_drop_ends_the_connection() {
    let (server, count) = counting();
    let (client, _) = pair(server, Client::builder(), 4096);
    put_lines(&client, 100, 10_000).await;
    let close = tokio::spawn(client.close());
    drop(client);
    close.await.unwrap().unwrap();
    sleep(ms(10)).await;
    assert_eq!(count.load(Ordering::Relaxed), 1100);

    let (client, _peer) = scripted(Keepalive::off(), 4096);
    put_lines(&client, 1, 10_000).await;
    drop(client.close());
    sleep(secs(1)).await;
    assert!(client.snapshot().end().is_none(), "it was not awaited");
    assert!(timeout(secs(1), client.close()).await.is_err());
    assert!(client.closed().await.is_local_close());

    // By two handles at one time; the shorter time counts.
    let (client, _peer) = scripted(Keepalive::off(), 4096);
    put_lines(&client, 1, 10_000).await;
    let start = Instant::now();
    let (one, other) = tokio::join!(
        client.close().timeout(secs(5)).into_future(),
        client.clone().close().timeout(secs(1)).into_future()
    );
    assert_passed(start, secs(1));
    assert_eq!(one.unwrap_err().frames(), other.unwrap_err().frames());
}

#[test]
fn closing_ends_in_time_although_no_driver_runs() {
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    let (driver, here) = (runtime(), runtime());
    let (ours, _theirs) = tokio::io::duplex(4096);
    let client = driver.block_on(async {
        let client = Client::builder().keepalive(Keepalive::off()).attach(ours);
        client.unwrap()
    });
    let ended = here.block_on(async {
        let call = client.client_stream::<Raw, Raw>("demo.Log", "Put");
        let (sender, _reply) = call.await.unwrap();
        sender.send(&raw("line")).await.unwrap();
        drop(sender);
        timeout(secs(5), client.close().timeout(ms(100))).await
    });
    let error = ended.expect("it has a limit").unwrap_err();
    assert_eq!(error.frames(), 3, "{error}");
    // The driver finds what it is to do.
    let end = driver.block_on(async { timeout(secs(5), client.closed()).await });
    assert!(end.unwrap().is_local_close());
}

#[test]
fn a_hundred_messages_arrive_over_a_socket_on_threads() {
    on_threads(async {
        for size in [1, 10_000] {
            for _ in 0..10 {
                let (server, count) = counting();
                let (here, there) = tokio::net::UnixStream::pair().unwrap();
                let serving = tokio::spawn(async move { server.serve_connection(there).await });
                let client = Client::builder().attach(here).unwrap();
                put_lines(&client, 100, size).await;
                client.close().await.unwrap();
                drop(client);
                serving.await.unwrap();
                while count.load(Ordering::Relaxed) < 1000 {
                    sleep(ms(1)).await;
                }
                assert_eq!(count.load(Ordering::Relaxed), 1100);
            }
        }
    });
}
