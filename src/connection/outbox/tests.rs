//! The order of frames, whoever writes them.

use super::*;
use crate::wire::{HEADER_LENGTH, Header, MessageType};

const NOW: Duration = Duration::from_secs(1);

/// Writes up to `room` bytes and returns the ids or types of the frames in their order.
fn written(outbox: &mut Outbox, room: usize) -> Vec<u8> {
    let mut wire = Vec::new();
    while let Some(mut batch) = outbox.begin() {
        let left = room - wire.len();
        let before = wire.len();
        batch.write(|slices| {
            for slice in slices {
                let free = left - (wire.len() - before);
                wire.extend_from_slice(&slice[..slice.len().min(free)]);
            }
        });
        let taken = wire.len() - before;
        batch.advance(taken);
        outbox.end(batch, NOW);
        if taken == 0 || wire.len() == room {
            break;
        }
    }
    wire
}

/// Appends a message behind the stream's newest frame.
fn message(outbox: &mut Outbox, stream_id: u32, newest: &mut u64, mut frame: Vec<u8>) {
    *newest = outbox.push_data(stream_id, *newest, &mut frame);
}

fn types(mut wire: &[u8]) -> Vec<(MessageType, u32)> {
    let mut types = Vec::new();
    while let Some((header, rest)) = wire.split_first_chunk() {
        let header = Header::decode(header);
        types.push((header.message_type, header.stream_id));
        wire = &rest[usize::try_from(header.length).unwrap()..];
    }
    types
}

fn request(stream_id: u32, length: u32) -> Vec<u8> {
    let header = Header {
        length,
        stream_id,
        message_type: MessageType::REQUEST,
        flags: Flags::default(),
    };
    let mut frame = header.encode().to_vec();
    frame.resize(frame.len() + usize::try_from(length).unwrap(), 7);
    frame
}

#[test]
fn pong_and_ping_overtake_queued_frames_but_never_cut_one() {
    let mut outbox = Outbox::default();
    outbox.push(request(1, 100));
    outbox.push(request(3, 100));
    let mut wire = written(&mut outbox, 50);
    assert_eq!(wire.len(), 50);

    outbox.reply(9, Bytes::from_static(b"ask"), Flags::NONE);
    outbox.set_ping(1);
    wire.extend(written(&mut outbox, usize::MAX));
    assert_eq!(
        types(&wire),
        [
            (MessageType::REQUEST, 1),
            (MessageType::PONG, 9),
            (MessageType::PING, crate::wire::PING_STREAM_ID),
            (MessageType::REQUEST, 3),
        ]
    );
    assert_eq!(outbox.bytes(), 0);
    assert!(outbox.is_empty());
}

#[test]
fn a_flood_of_pings_leaves_one_pong() {
    let mut outbox = Outbox::default();
    let coalesced = (0..1000)
        .filter(|id| outbox.reply(*id, Bytes::new(), Flags::NONE))
        .count();
    assert_eq!(coalesced, 999);
    let wire = written(&mut outbox, usize::MAX);
    assert_eq!(types(&wire), [(MessageType::PONG, 999)]);
}

#[test]
fn a_pong_has_the_flags_of_the_ping_it_answers() {
    let mut outbox = Outbox::default();
    for (id, flags) in [(1, Flags::HANDLERS_STALLED), (3, Flags::NONE)] {
        outbox.reply(id, Bytes::new(), flags);
        let wire = written(&mut outbox, usize::MAX);
        assert_eq!(wire[9], flags.bits());
    }
    // That of the newest, which the one PONG answers.
    outbox.reply(5, Bytes::new(), Flags::NONE);
    let batch = outbox.begin().unwrap();
    outbox.reply(7, Bytes::new(), Flags::HANDLERS_STALLED);
    outbox.end(batch, NOW);
    let wire = written(&mut outbox, usize::MAX);
    assert_eq!(types(&wire), [(MessageType::PONG, 7)]);
    assert_eq!(wire[9], Flags::HANDLERS_STALLED.bits());
}

#[test]
fn a_pong_that_was_not_taken_gives_way_to_a_newer_one() {
    let mut outbox = Outbox::default();
    outbox.reply(1, Bytes::new(), Flags::NONE);
    let batch = outbox.begin().unwrap();
    outbox.reply(3, Bytes::new(), Flags::NONE);
    outbox.end(batch, NOW);
    let wire = written(&mut outbox, usize::MAX);
    assert_eq!(types(&wire), [(MessageType::PONG, 3)]);
}

#[test]
fn a_frame_is_taken_back_only_before_it_has_begun() {
    let mut outbox = Outbox::default();
    let first = outbox.push(request(1, 100));
    let second = outbox.push(request(3, 100));
    let third = outbox.push(request(5, 100));
    let mut wire = written(&mut outbox, 1);
    assert_eq!(outbox.progress(first), Progress::Begun);
    assert_eq!(outbox.take_back(first), None);
    assert_eq!(outbox.progress(second), Progress::Unsent);
    assert!(outbox.take_back(second).is_some());
    assert_eq!(outbox.take_back(second), None, "only once");
    let batch = outbox.begin().unwrap();
    assert_eq!(outbox.progress(first), Progress::Out);
    assert_eq!(outbox.progress(third), Progress::Out);
    assert_eq!(
        outbox.take_back(third),
        None,
        "nobody knows how far it has come"
    );
    outbox.end(batch, NOW);
    wire.extend(written(&mut outbox, usize::MAX));
    assert_eq!(outbox.progress(third), Progress::Written);
    assert_eq!(
        types(&wire),
        [(MessageType::REQUEST, 1), (MessageType::REQUEST, 5)]
    );
    assert_eq!(outbox.bytes(), 0);
}

#[test]
fn frames_are_taken_back_in_any_order_while_a_batch_comes_and_goes() {
    let mut outbox = Outbox::default();
    let numbers: Vec<u64> = (0..200)
        .map(|id| outbox.push(request(2 * id + 1, 10)))
        .collect();
    let mut taken_back = Vec::new();
    let mut wire = Vec::new();
    for round in 0..60_usize {
        let at = round * 37 % 200;
        let batch = outbox.begin();
        if outbox.take_back(numbers[at]).is_some() {
            taken_back.push(u32::try_from(2 * at + 1).unwrap());
        }
        if let Some(mut batch) = batch {
            let room = round % 45;
            let sent = batch.write(|slices| {
                let all: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
                all[..all.len().min(room)].to_vec()
            });
            batch.advance(sent.len());
            wire.extend(sent);
            outbox.end(batch, NOW);
        }
        // Frames are found by their places, which must fit again.
        let at = (at + 90) % 200;
        if outbox.take_back(numbers[at]).is_some() {
            taken_back.push(u32::try_from(2 * at + 1).unwrap());
        }
    }
    wire.extend(written(&mut outbox, usize::MAX));
    let sent: Vec<u32> = types(&wire).into_iter().map(|(_, id)| id).collect();
    assert!(sent.is_sorted(), "{sent:?}");
    assert_eq!(sent.len() + taken_back.len(), 200);
    assert!(taken_back.iter().all(|id| !sent.contains(id)));
    assert_eq!((outbox.bytes(), outbox.frames.len()), (0, 0));
}

#[test]
fn one_writer_at_a_time() {
    let mut outbox = Outbox::default();
    outbox.push(request(1, 0));
    let batch = outbox.begin().unwrap();
    assert!(!outbox.is_empty(), "what is being written may come back");
    outbox.push(request(3, 0));
    assert!(outbox.begin().is_none());
    outbox.end(batch, NOW);
    assert!(outbox.begin().is_some());
}

#[test]
fn any_split_of_writes_gives_the_same_frames() {
    let whole = {
        let mut outbox = Outbox::default();
        for id in 0..5 {
            outbox.push(request(2 * id + 1, id * 7));
        }
        written(&mut outbox, usize::MAX)
    };
    for step in 1..20 {
        let mut outbox = Outbox::default();
        for id in 0..5 {
            outbox.push(request(2 * id + 1, id * 7));
        }
        let mut wire = Vec::new();
        while !outbox.is_empty() {
            wire.extend(written(&mut outbox, step));
        }
        assert_eq!(wire, whole, "in steps of {step}");
    }
}

#[test]
fn what_a_frame_takes_beside_its_bytes_counts_until_it_has_left() {
    let mut outbox = Outbox::default();
    let first = outbox.push(request(1, 0));
    let mut newest = outbox.push(request(3, 0));
    message(&mut outbox, 3, &mut newest, request(3, 0));
    assert_eq!((outbox.bytes(), outbox.owed_bytes()), (3 * 74, 2 * 74));
    assert!(outbox.take_back(first).is_some());
    assert_eq!(outbox.bytes(), 2 * 74);
    written(&mut outbox, 9);
    assert_eq!(outbox.bytes(), 2 * 74 - 9);
    written(&mut outbox, 10);
    assert_eq!((outbox.bytes(), outbox.owed_bytes()), (74 - 9, 0));
    outbox.take_back_data(newest, drop);
    written(&mut outbox, usize::MAX);
    assert_eq!((outbox.bytes(), outbox.owed_bytes()), (0, 0));
}

/// A message of stream 1 with this content.
fn data(content: u8, length: u32) -> Vec<u8> {
    let mut frame = request(1, length);
    frame[8] = MessageType::DATA.value();
    frame[HEADER_LENGTH..].fill(content);
    frame
}

fn pieces(outbox: &mut Outbox) -> usize {
    let batch = outbox.begin().unwrap();
    let pieces = batch.write(|slices| slices.len());
    outbox.end(batch, NOW);
    pieces
}

#[test]
fn small_messages_of_a_stream_go_out_in_one_piece() {
    let mut outbox = Outbox::default();
    let (mut one, mut three) = (0, 0);
    for content in 0..100 {
        message(&mut outbox, 1, &mut one, data(content, 100));
    }
    assert_eq!(outbox.bytes(), 100 * 110 + 64);
    message(&mut outbox, 1, &mut one, data(100, 2000));
    message(&mut outbox, 1, &mut one, data(101, 10));
    message(&mut outbox, 3, &mut three, data(102, 10));
    outbox.push(request(5, 10));
    message(&mut outbox, 3, &mut three, data(103, 10));
    message(&mut outbox, 3, &mut three, data(104, 10));
    assert_eq!(pieces(&mut outbox), 5);
    // What is on its way is not added to.
    let batch = outbox.begin().unwrap();
    message(&mut outbox, 3, &mut three, data(105, 10));
    outbox.end(batch, NOW);
    assert_eq!(pieces(&mut outbox), 6);

    let wire = written(&mut outbox, usize::MAX);
    let contents = (0..100).flat_map(|content| data(content, 100));
    let rest = [
        data(100, 2000),
        data(101, 10),
        data(102, 10),
        request(5, 10),
    ];
    let rest = rest
        .into_iter()
        .chain((103..106).map(|content| data(content, 10)));
    assert_eq!(wire, contents.chain(rest.flatten()).collect::<Vec<_>>());
    assert_eq!((outbox.bytes(), outbox.owed_bytes()), (0, 0));
}

#[test]
fn joined_messages_are_cut_by_nothing_but_between_two_of_them() {
    let all: Vec<u8> = (0..5).flat_map(|content| data(content, 7)).collect();
    for room in 0..all.len() {
        let mut outbox = Outbox::default();
        let mut newest = 0;
        for content in 0..5 {
            message(&mut outbox, 1, &mut newest, data(content, 7));
        }
        let mut wire = written(&mut outbox, room);
        outbox.reply(9, Bytes::from_static(b"ask"), Flags::NONE);
        let begun = room.div_ceil(17);
        wire.extend(written(&mut outbox, usize::MAX));
        let pong = begun * 17;
        assert_eq!(wire[..pong], all[..pong], "after {room} bytes");
        assert_eq!(types(&wire)[begun], (MessageType::PONG, 9));
        assert_eq!(wire[pong + 13..], all[pong..], "after {room} bytes");
        assert_eq!((outbox.bytes(), outbox.owed_bytes()), (0, 0));
    }
}

#[test]
fn messages_that_have_not_begun_are_taken_back_and_those_of_others_stay() {
    for room in 0..5 * 17 {
        let mut outbox = Outbox::default();
        let (mut one, mut three) = (0, 0);
        for content in 0..5 {
            message(&mut outbox, 1, &mut one, data(content, 7));
        }
        message(&mut outbox, 3, &mut three, data(5, 7));
        message(&mut outbox, 1, &mut one, data(6, 7));
        let mut wire = written(&mut outbox, room);
        outbox.take_back_data(one, drop);
        let left = (17 - room % 17) % 17;
        let owed = if left > 0 { left + FRAME_OVERHEAD } else { 0 };
        let other = 17 + FRAME_OVERHEAD;
        assert_eq!(outbox.bytes(), owed + other, "after {room} bytes");
        wire.extend(written(&mut outbox, usize::MAX));
        assert_eq!(
            types(&wire).len(),
            room.div_ceil(17) + 1,
            "after {room} bytes"
        );
        assert_eq!(wire[wire.len() - 1], 5, "that of the other stream");
        assert_eq!((outbox.bytes(), outbox.owed_bytes()), (0, 0));
    }
}
