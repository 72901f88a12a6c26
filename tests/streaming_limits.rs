//! Streams at their limits: what waits, what fails alone, and who is not held up.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

mod support;

use protobuf::well_known_types::wrappers::StringValue;
use support::*;
use tokio::time::timeout;
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::{Client, Code, Error, Raw, Requests, Responses, Server, Service};

#[tokio::test(start_paused = true)]
async fn a_stream_that_nobody_reads_fails_alone_and_holds_up_nothing() {
    let client = Client::builder().stream_limit(100_000);
    let server = streams().owed_limit(10_000).build().unwrap();
    let client = pair(server, client, 4096).0;
    let call = client.server_stream::<_, Raw>(SERVICE, "Flood", &Raw(""));
    let mut unread = call.await.unwrap();
    for _ in 0..100 {
        say_within(&client, secs(1)).await.unwrap();
        client.probe(secs(1)).await.unwrap();
    }
    let mut taken = 0;
    let error = loop {
        match unread.next().await.unwrap() {
            Ok(_) => taken += 1,
            Err(error) => break error,
        }
    };
    // 1,024 bytes and 64 beside them for each.
    assert_eq!(taken, 91);
    let Error::StreamOverflow { size, limit } = error else {
        panic!("{error}")
    };
    assert_eq!((size, limit), (92 * 1088, 100_000));
    assert!(unread.next().await.is_none());
    say_within(&client, secs(1)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_takes_nothing_costs_its_own_call() {
    let (told, mut seen) = tokio::sync::mpsc::channel(10);
    let server = streams()
        .stream_limit(10_000)
        .service(Service::new(SERVICE, ()).client_stream(
            "Slow",
            move |(), _, mut requests: Requests<Raw>| {
                let told = told.clone();
                async move {
                    tokio::time::sleep(secs(10)).await;
                    let mut taken = 0;
                    loop {
                        match requests.next().await {
                            Some(Ok(_)) => taken += 1,
                            Some(Err(status)) => {
                                told.send((taken, status.clone())).await.unwrap();
                                return Err(status);
                            }
                            None => return Ok(Raw("")),
                        }
                    }
                }
            },
        ));
    let client = client_of(server);
    let (sender, reply) = client
        .client_stream::<Raw, Raw>(SERVICE, "Slow")
        .await
        .unwrap();
    let sending = async {
        while sender.send(&raw([7; 936])).await.is_ok() {
            tokio::time::sleep(ms(1)).await;
        }
    };
    let ((), error) = tokio::join!(sending, reply);
    let error = error.unwrap_err();
    let status = error.status().unwrap();
    assert_eq!(status.code(), Code::RESOURCE_EXHAUSTED);
    assert!(status.message().contains("11000") && status.message().contains("10000"));
    say_within(&client, secs(1)).await.unwrap();
    let (taken, of_handler) = seen.recv().await.unwrap();
    assert_eq!((taken, &of_handler), (10, status));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_waits_for_room_learns_that_its_stream_has_ended() {
    let (here, there) = tokio::io::duplex(64);
    let client = Client::builder()
        .keepalive(Keepalive::off())
        .outbox_limit(200);
    let client = client.attach(here).unwrap();
    let mut peer = Peer::new(there);
    let (first, _first) = client
        .client_stream::<Raw, Raw>(SERVICE, "Up")
        .await
        .unwrap();
    let (second, reply) = client
        .client_stream::<Raw, Raw>(SERVICE, "Up")
        .await
        .unwrap();
    peer.request().await;
    peer.request().await;
    first.send(&raw([1; 300])).await.unwrap();
    let waiting = tokio::spawn(async move { first.send(&raw([1; 300])).await });
    let behind = tokio::spawn(async move { second.send(&raw([2; 300])).await });
    tokio::time::sleep(secs(1)).await;
    peer.send(ttrpc_keepalive::wire::encode_response(3, &text("early")).unwrap())
        .await;
    reply.await.unwrap();
    let ended = timeout(secs(1), behind).await.expect("it is told").unwrap();
    assert!(matches!(ended, Err(Error::StreamEnded)));
    assert!(!waiting.is_finished());
    client.abort();
    let end = timeout(secs(1), waiting)
        .await
        .expect("it is told")
        .unwrap();
    assert!(end.unwrap_err().is_connection());
}

#[tokio::test(start_paused = true)]
async fn a_message_that_waits_unpolled_keeps_no_place_when_its_stream_has_ended() {
    let client = Client::builder()
        .keepalive(Keepalive::off())
        .outbox_limit(200);
    let (client, mut peer) = attached(client, 64);
    let (first, reply) = client
        .client_stream::<Raw, Raw>(SERVICE, "Up")
        .await
        .unwrap();
    let (second, _second) = client
        .client_stream::<Raw, Raw>(SERVICE, "Up")
        .await
        .unwrap();
    peer.request().await;
    peer.request().await;
    first.send(&raw([1; 300])).await.unwrap();
    let message = raw([1; 300]);
    let mut unpolled = Box::pin(first.send(&message));
    poll_once(unpolled.as_mut());
    let behind = tokio::spawn(async move { second.send(&raw([2; 300])).await });
    tokio::time::sleep(secs(1)).await;
    peer.respond(1).await;
    reply.await.unwrap();
    // The first message had begun.
    assert_eq!(peer.expect_data().await.0, 1);
    let sent = timeout(secs(1), behind).await;
    sent.expect("there is room").unwrap().unwrap();
    assert!(matches!(unpolled.await, Err(Error::StreamEnded)));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_waits_unpolled_keeps_no_place_when_its_stream_has_run_out_of_time() {
    let client = Client::builder()
        .keepalive(Keepalive::off())
        .outbox_limit(200);
    let (client, mut peer) = attached(client, 64);
    let call = client
        .client_stream::<Raw, Raw>(SERVICE, "Up")
        .timeout(secs(1));
    let (first, reply) = call.await.unwrap();
    let (second, _second) = client
        .client_stream::<Raw, Raw>(SERVICE, "Up")
        .await
        .unwrap();
    peer.request().await;
    peer.request().await;
    first.send(&raw([1; 300])).await.unwrap();
    let message = raw([1; 300]);
    let mut unpolled = Box::pin(first.send(&message));
    poll_once(unpolled.as_mut());
    let behind = tokio::spawn(async move { second.send(&raw([2; 300])).await });
    tokio::time::sleep(secs(2)).await;
    // What was queued is sent.
    assert_eq!(peer.expect_data().await.0, 1);
    let sent = timeout(secs(1), behind).await;
    sent.expect("there is room").unwrap().unwrap();
    assert!(matches!(unpolled.await, Err(Error::StreamEnded)));
    assert!(reply.await.unwrap_err().is_deadline());
}

#[tokio::test(start_paused = true)]
async fn a_message_needs_no_room_among_the_calls() {
    let client = Client::builder().call_limit(1).outbox_limit(100);
    let client = pair(streams().build().unwrap(), client, 64).0;
    let (sender, mut receiver) = echoed(&client).await;
    // It waits for the stream to end, which cannot end before it has sent.
    let mut waiting = Box::pin(say(&client));
    poll_once(waiting.as_mut());
    let sending = async {
        for _ in 0..10 {
            sender.send(&text(&"x".repeat(100))).await.unwrap();
        }
        sender.finish();
    };
    let receiving = async {
        for _ in 0..10 {
            receiver.next().await.unwrap().unwrap();
        }
        assert!(receiver.next().await.is_none());
    };
    let both = async { tokio::join!(sending, receiving) };
    timeout(secs(60), both).await.expect("nothing is stuck");
    waiting.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_message_too_large_is_refused_and_the_stream_goes_on() {
    let client = client_of(streams());
    let (sender, reply) = join(&client).await;
    let large = text(&"x".repeat(4 << 20));
    let error = sender.send(&large).await.unwrap_err();
    assert!(matches!(error, Error::RequestTooLarge(_)), "{error}");
    sender.send(&text("a")).await.unwrap();
    sender.finish();
    assert_eq!(reply.await.unwrap().value, "a");
}

#[tokio::test(start_paused = true)]
async fn requests_that_nobody_receives_do_not_hold_up_the_answer() {
    let server = Server::builder().service(Service::new(SERVICE, ()).bidi_stream(
        "Deaf",
        |(), _, requests: Requests<StringValue>, out: Responses<StringValue>| async move {
            drop(requests);
            tokio::time::sleep(secs(5)).await;
            out.send(&text("done")).await
        },
    ));
    let client = client_of(server.stream_limit(1000));
    let call = client.bidi_stream::<StringValue, StringValue>(SERVICE, "Deaf");
    let (sender, mut receiver) = call.await.unwrap();
    tokio::time::sleep(secs(1)).await;
    for _ in 0..100 {
        sender.send(&text(&"x".repeat(1000))).await.unwrap();
    }
    assert_eq!(receiver.next().await.unwrap().unwrap().value, "done");
    assert!(receiver.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn responses_that_are_not_taken_wait_in_their_sender_and_requests_are_still_read() {
    let (sent, seen) = tokio::sync::watch::channel(0);
    let server = echo()
        .owed_limit(10_000)
        .service(Service::new(SERVICE, ()).server_stream(
            "Watch",
            move |(), _, _: Raw, out: Responses<Raw>| {
                let sent = sent.clone();
                async move {
                    loop {
                        out.send(&raw([7; 1000])).await?;
                        sent.send_modify(|sent| *sent += 1);
                    }
                }
            },
        ));
    let (here, there) = tokio::io::duplex(4096);
    let server = server.build().unwrap();
    tokio::spawn(async move { server.serve_connection(here).await });
    let mut peer = Peer::new(there);
    let flags = ttrpc_keepalive::wire::Flags::REMOTE_CLOSED;
    peer.open(1, "Watch", flags, b"").await;
    tokio::time::sleep(secs(60)).await;
    let waits_at = *seen.borrow();
    assert!((10..20).contains(&waits_at), "{waits_at}");
    // More than the pipe holds: it is read although nothing is taken.
    let message = "x".repeat(100);
    for id in 1..50 {
        let call = peer.call(2 * id + 1, "Say", &message);
        timeout(secs(1), call).await.expect("the server reads");
    }
}
