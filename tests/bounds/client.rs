//! What waits in a client.

use tokio::time::timeout;
use ttrpc_keepalive::wire::{Flags, MessageType};
use ttrpc_keepalive::{Client, Error, LateOutcome, Raw};

use super::support::*;
use super::{MIB, client, raw};

// row: requests waiting to be written
#[tokio::test(start_paused = true)]
async fn with_16_mib_unwritten_calls_and_messages_wait_within_their_timeouts() {
    let (client, mut peer) = client(4096);
    let call = client.client_stream::<Raw, Raw>(SERVICE, "Up");
    let (sender, _reply) = call.await.unwrap();
    peer.request().await;
    // The pipe has a part of the first, so that the 17th makes it more than 16 MiB.
    for _ in 0..17 {
        let sent = timeout(secs(1), sender.send(&raw(vec![0; MIB]))).await;
        sent.expect("there is room").unwrap();
    }
    let last = raw("x");
    let mut message = Box::pin(sender.send(&last));
    poll_once(message.as_mut());
    assert!(
        say_within(&client, secs(1))
            .await
            .unwrap_err()
            .is_deadline()
    );
    let waiting = client.clone();
    let call = tokio::spawn(async move { say(&waiting).await });
    for _ in 0..2 {
        peer.expect_data().await;
    }
    timeout(secs(1), message).await.expect("room").unwrap();
    for _ in 0..15 {
        peer.expect_data().await;
    }
    let mut last = [peer.frame().await.header, peer.frame().await.header];
    last.sort_by_key(|header| header.message_type.value());
    assert_eq!(last[0].message_type, MessageType::REQUEST);
    assert_eq!(last[1].message_type, MessageType::DATA);
    peer.respond(last[0].stream_id).await;
    call.await.unwrap().unwrap();
    peer.silence(secs(10)).await;
}

// row: calls in flight
#[tokio::test(start_paused = true)]
async fn with_65_536_calls_in_flight_the_next_one_waits_within_its_timeout() {
    let (client, mut peer) = client(8 * MIB);
    let mut calls: Vec<_> = (0..1 << 16).map(|_| Box::pin(say(&client))).collect();
    calls.iter_mut().for_each(|call| poll_once(call.as_mut()));
    for number in 0..1 << 16 {
        assert_eq!(peer.frame().await.header.stream_id, 2 * number + 1);
    }
    assert!(
        say_within(&client, secs(1))
            .await
            .unwrap_err()
            .is_deadline()
    );
    let waiting = client.clone();
    let next = tokio::spawn(async move { say(&waiting).await });
    peer.silence(secs(10)).await;
    peer.respond(1).await;
    let (id, _) = peer.request().await;
    peer.respond(id).await;
    next.await.unwrap().unwrap();
}

// row: messages of all streams of a client that nobody has taken
#[tokio::test(start_paused = true)]
async fn at_64_mib_of_messages_of_all_streams_the_one_whose_message_comes_fails() {
    let (client, mut peer) = client(64 << 10);
    let mut receivers = Vec::new();
    let message = vec![0; MIB];
    // With the 64 bytes beside each message 63 fit.
    for number in 0..63 {
        if number % 9 == 0 {
            let call = client.server_stream::<_, Raw>(SERVICE, "Down", &Raw(""));
            receivers.push(call.await.unwrap());
            peer.request().await;
        }
        peer.data(number / 9 * 2 + 1, Flags::NONE, &message).await;
    }
    peer.data(5, Flags::NONE, &message).await;
    peer.silence(secs(1)).await;
    for _ in 0..9 {
        receivers[2].next().await.unwrap().unwrap();
    }
    let error = receivers[2].next().await.unwrap().unwrap_err();
    let Error::StreamOverflow { size, limit } = error else {
        panic!("{error}")
    };
    assert_eq!((size, limit), (64 * (MIB + 64), 64 * MIB));
    // What was taken, and what was dropped unread, makes room for the others.
    drop(receivers.remove(1));
    for stream in [1, 7, 9, 11, 13] {
        peer.data(stream, Flags::NONE, &message).await;
        peer.data(stream, Flags::NONE, &message).await;
    }
    peer.silence(secs(1)).await;
    for number in [0, 5] {
        for _ in 0..11 {
            receivers[number].next().await.unwrap().unwrap();
        }
    }
}

// row: those who wait for room, and probes
#[tokio::test(start_paused = true)]
async fn nothing_is_left_of_ten_thousand_who_waited_and_were_dropped() {
    let (here, there) = tokio::io::duplex(64);
    let client = Client::builder().outbox_limit(100).call_limit(2);
    let client = client.attach(here).unwrap();
    let mut peer = Peer::new(there);
    let call = client.client_stream::<Raw, Raw>(SERVICE, "Up");
    let (sender, reply) = call.await.unwrap();
    sender.send(&raw([0; 200])).await.unwrap();
    for _ in 0..100 {
        let mut calls: Vec<_> = (0..50).map(|_| Box::pin(say(&client))).collect();
        calls.iter_mut().for_each(|call| poll_once(call.as_mut()));
        let mut probes: Vec<_> = (0..50).map(|_| Box::pin(client.probe(secs(9)))).collect();
        probes
            .iter_mut()
            .for_each(|probe| poll_once(probe.as_mut()));
        poll_once(Box::pin(sender.send(&raw([0; 200]))).as_mut());
    }
    peer.answer_ping().await;
    assert_eq!(peer.request().await.0, 1);
    let rest = timeout(secs(60), peer.expect_data()).await;
    assert_eq!(rest.expect("the one message").2.len(), 200);
    drop((sender, reply));
    // A PING that the probes had asked for, at most, and the half-close.
    while let Ok(frame) = timeout(secs(60), peer.frame()).await {
        let known = [MessageType::PING, MessageType::DATA];
        assert!(known.contains(&frame.header.message_type), "{frame:?}");
    }
    let (reply, ()) = tokio::join!(say(&client), async {
        let (id, _) = peer.request().await;
        assert_eq!(id, 3, "none of them has an id");
        peer.respond(id).await;
    });
    reply.unwrap();
}

// row: late calls that are followed
#[tokio::test(start_paused = true)]
async fn of_1_025_late_calls_the_oldest_is_forgotten() {
    let (client, mut peer) = client(MIB);
    let mut late = Vec::new();
    for number in 0..1025 {
        let error = say_within(&client, ms(10)).await.unwrap_err();
        late.push(error.late_answer().expect("it was written"));
        assert_eq!(peer.request().await.0, 2 * number + 1);
        let followed = client.snapshot().late_calls_unanswered();
        assert_eq!(followed, late.len().min(1024));
    }
    let mut late = late.into_iter();
    assert!(matches!(late.next().unwrap().await, LateOutcome::Forgotten));
    peer.respond(3).await;
    let second = late.next().unwrap().await;
    assert!(matches!(second, LateOutcome::Answered { .. }));
}
