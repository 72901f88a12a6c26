//! PING and PONG between frames, and hidden from the wrapped side.

use tokio::io::AsyncWriteExt;
use tokio::time::{sleep, timeout};
use ttrpc_keepalive::keepalive::Keepalive;
use ttrpc_keepalive::wire::MessageType;
use ttrpc_keepalive_layer::Layered;

use crate::peer::*;

#[tokio::test(start_paused = true)]
async fn a_ping_is_answered_and_hidden_and_its_bytes_come_back_as_they_were() {
    for (id, payload) in [(0, &b""[..]), (7, b"abc"), (u32::MAX, &[9; 64])] {
        let (mut side, mut peer) = server(&Keepalive::on_demand());
        let reading = side.read_on();
        peer.send(frame(4, id, 0xFF, payload)).await;
        let pong = peer.frame(MessageType::PONG).await;
        assert_eq!((pong.header.stream_id, &pong.payload[..]), (id, payload));
        assert_eq!(pong.header.flags.bits(), 0);
        drop(peer);
        assert_eq!(reading.await.unwrap().0, []);
    }
}

// RFC KA-13, KA-17
#[tokio::test(start_paused = true)]
async fn long_pings_and_pongs_are_hidden_and_not_answered() {
    let (mut side, mut peer) = server(&watch());
    let reading = side.read_on();
    peer.send(frame(4, 1, 0, &[1; 65])).await;
    peer.send(frame(5, 1, 0, &[1; 65])).await;
    peer.send(frame(5, 1, 0, &[1; 8])).await;
    peer.send(request(1, secs(0))).await;
    peer.silence(ms(900)).await;
    drop(peer);
    assert_eq!(reading.await.unwrap().0, request(1, secs(0)));
}

#[tokio::test(start_paused = true)]
async fn frames_that_are_not_understood_pass_both_ways() {
    let (mut side, mut peer) = client(&Keepalive::off());
    for odd in [
        frame(6, 2, 255, b"?"),
        frame(0, 0, 0, b""),
        frame(2, 1, 9, &vec![5; 5 << 20]),
    ] {
        let (sent, _) = tokio::join!(peer.send(&odd), side.expect(&odd));
        let () = sent;
    }
    side.write(frame(9, 4, 1, b"??")).await;
    side.write(response(1)).await;
    let mut came = vec![0; 12];
    tokio::io::AsyncReadExt::read_exact(&mut peer.stream, &mut came)
        .await
        .unwrap();
    assert_eq!(came, frame(9, 4, 1, b"??"));
    assert_eq!(peer.next().await.unwrap().header.stream_id, 1);
}

// RFC KA-22
#[tokio::test(start_paused = true)]
async fn the_first_request_goes_behind_a_ping_however_its_bytes_come() {
    let (mut side, mut peer) = client(&Keepalive::on_demand());
    let _reading = side.read_on();
    peer.silence(secs(60)).await;
    for byte in request(1, secs(0)) {
        side.write([byte]).await;
    }
    peer.ping().await;
    peer.frame(MessageType::REQUEST).await;
    side.write(request(3, secs(0))).await;
    peer.frame(MessageType::REQUEST).await;
}

#[tokio::test(start_paused = true)]
async fn pings_and_pongs_of_the_wrapped_side_do_not_reach_the_peer() {
    let (mut side, mut peer) = client(&Keepalive::off());
    let all = [
        ping_of(1),
        request(1, secs(0)),
        frame(5, 3, 0, b""),
        frame(4, 3, 0, &[1; 100]),
        request(3, secs(0)),
        pong_of(4),
    ];
    side.write(all.concat()).await;
    for byte in all.concat() {
        side.write([byte]).await;
    }
    for id in [1, 3, 1, 3] {
        assert_eq!(peer.frame(MessageType::REQUEST).await.header.stream_id, id);
    }
    peer.silence(secs(1)).await;
}

// RFC KA-15
#[tokio::test(start_paused = true)]
async fn a_pong_waits_for_the_frame_that_has_begun_and_for_no_other() {
    let (mut side, mut peer) = server(&Keepalive::on_demand());
    let _reading = side.read_on();
    let answer = response(1);
    // The header alone has not begun: it is held until there is more.
    side.writer.write_all(&answer[..10]).await.unwrap();
    peer.send(ping_of(1)).await;
    peer.frame(MessageType::PONG).await;
    side.write(&answer[10..12]).await;
    peer.send(ping_of(2)).await;
    peer.silence(secs(1)).await;
    // One write with the end of this frame and the whole of the next.
    side.write([&answer[12..], &response(3)].concat()).await;
    let order = [peer.next().await, peer.next().await, peer.next().await];
    let order = order.map(|frame| frame.unwrap().header.message_type);
    let (pong, response) = (MessageType::PONG, MessageType::RESPONSE);
    assert_eq!(order, [response, pong, response]);
}

#[tokio::test(start_paused = true)]
async fn a_header_alone_goes_out_when_it_is_flushed() {
    let (mut side, mut peer) = server(&Keepalive::on_demand());
    side.write(&response(1)[..10]).await;
    let mut header = [0; 10];
    tokio::io::AsyncReadExt::read_exact(&mut peer.stream, &mut header)
        .await
        .unwrap();
    assert_eq!(header, response(1)[..10]);
}

// RFC KA-16
#[tokio::test(start_paused = true)]
async fn a_flood_of_pings_to_a_side_that_cannot_write_is_answered_by_one_pong() {
    let (mut side, mut peer) = client_with_room(&Keepalive::on_demand(), 64);
    let _reading = side.read_on();
    let mut writer = side.writer;
    let writing =
        tokio::spawn(async move { writer.write_all(&frame(3, 1, 0, &[0; 200])).await.unwrap() });
    sleep(ms(1)).await;
    for number in 0..1000 {
        peer.send(ping_of(number)).await;
    }
    sleep(ms(1)).await;
    assert_eq!(side.liveness.snapshot().counters().pongs_coalesced, 999);
    peer.frame(MessageType::DATA).await;
    let pong = peer.frame(MessageType::PONG).await;
    assert_eq!(pong.payload, 999_u64.to_be_bytes()[..]);
    peer.silence(secs(1)).await;
    writing.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pong_that_waits_for_room_takes_no_wake_up_from_the_task_that_writes() {
    let (mut side, mut peer) = client_with_room(&Keepalive::off(), 64);
    let _reading = side.read_on();
    let mut writer = side.writer;
    writer.write_all(&frame(3, 1, 0, &[1; 54])).await.unwrap();
    // The pipe is full, and this one waits at its beginning.
    let writing = tokio::spawn(async move { writer.write_all(&frame(3, 1, 0, &[2; 54])).await });
    sleep(ms(1)).await;
    peer.send(ping_of(1)).await;
    sleep(ms(1)).await;
    let frames = async {
        peer.frame(MessageType::DATA).await;
        peer.frame(MessageType::PONG).await;
        peer.frame(MessageType::DATA).await;
    };
    timeout(secs(60), frames).await.expect("nobody sleeps on");
    writing.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_frame_without_payload_that_found_no_room_goes_out_by_itself() {
    let (mut side, mut peer) = client_with_room(&Keepalive::off(), 64);
    let _reading = side.read_on();
    side.writer
        .write_all(&frame(3, 1, 0, &[1; 54]))
        .await
        .unwrap();
    // Taken, although the pipe is full.
    side.writer.write_all(&frame(3, 1, 5, b"")).await.unwrap();
    peer.frame(MessageType::DATA).await;
    let last = peer.frame(MessageType::DATA).await;
    assert_eq!(last.header.flags.bits(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_sends_all_that_was_taken_and_leaves_a_torn_frame_torn() {
    let (mut side, mut peer) = client(&Keepalive::off());
    let torn = [response(1), response(3)[..4].to_vec()].concat();
    side.writer.write_all(&torn).await.unwrap();
    side.writer.shutdown().await.unwrap();
    let mut came = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut peer.stream, &mut came)
        .await
        .unwrap();
    assert_eq!(came, torn);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_behind_a_frame_that_a_shutdown_has_torn() {
    let (mut side, mut peer) = client(&Keepalive::off());
    let _reading = side.read_on();
    side.writer.write_all(&response(3)[..4]).await.unwrap();
    peer.send(ping_of(1)).await;
    peer.frame(MessageType::PONG).await;
    side.writer.shutdown().await.unwrap();
    peer.send(ping_of(2)).await;
    sleep(ms(1)).await;
    let mut came = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut peer.stream, &mut came)
        .await
        .unwrap();
    assert_eq!(came, response(3)[..4]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_holds_back_passes_on_pings_and_pongs_and_no_more_than_it_is_told() {
    let (here, there) = tokio::io::duplex(4096);
    let layered = Layered::client(tokio::io::BufStream::new(here), &watch()).unwrap();
    let (mut reader, mut writer) = tokio::io::split(layered);
    let mut peer = Peer::new(there);
    tokio::spawn(async move { tokio::io::AsyncReadExt::read_u8(&mut reader).await });
    peer.answer_ping().await;
    sleep(ms(1)).await;
    writer
        .write_all(&frame(3, 1, 0, b"held back"))
        .await
        .unwrap();
    peer.silence(ms(900)).await;
    writer.flush().await.unwrap();
    peer.frame(MessageType::DATA).await;
    peer.answer_ping().await;
    peer.send(ping_of(9)).await;
    peer.frame(MessageType::PONG).await;
}

// RFC KA-14
#[tokio::test(start_paused = true)]
async fn a_pong_goes_ahead_of_an_answer_even_if_the_pong_before_it_is_stuck() {
    let (here, there) = tokio::io::duplex(64);
    let layered = Layered::server(here, &Keepalive::on_demand()).unwrap();
    let (mut reader, mut writer) = tokio::io::split(layered);
    let mut peer = Peer::new(there);
    tokio::spawn(async move {
        tokio::io::AsyncReadExt::read_to_end(&mut reader, &mut Vec::new()).await
    });
    let data = frame(3, 1, 0, &[1; 54]);
    writer.write_all(&data).await.unwrap();
    let mut came = vec![0; 5];
    tokio::io::AsyncReadExt::read_exact(&mut peer.stream, &mut came)
        .await
        .unwrap();
    // Five bytes of its PONG find room.
    peer.send(ping_of(1)).await;
    sleep(ms(1)).await;
    peer.send(ping_of(2)).await;
    peer.send(request(3, secs(0))).await;
    sleep(ms(1)).await;
    // There is room again, and the task that writes runs before the one that reads.
    let mut rest = [0; 59];
    tokio::io::AsyncReadExt::read_exact(&mut peer.stream, &mut rest)
        .await
        .unwrap();
    came.extend_from_slice(&rest);
    writer.write_all(&response(3)).await.unwrap();
    writer.shutdown().await.unwrap();
    tokio::io::AsyncReadExt::read_to_end(&mut peer.stream, &mut came)
        .await
        .unwrap();
    let expected = [data, pong_of(1), pong_of(2), response(3)].concat();
    assert_eq!(came, expected);
}
