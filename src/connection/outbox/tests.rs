//! The order of frames, whoever writes them.

use super::*;
use crate::wire::{Header, MessageType};

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
    outbox.push(1, request(1, 100));
    outbox.push(3, request(3, 100));
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
    outbox.push(1, request(1, 100));
    outbox.push(3, request(3, 100));
    let mut wire = written(&mut outbox, 1);
    assert!(!outbox.remove(1));
    assert!(outbox.holds(1));
    assert!(outbox.remove(3));
    assert!(!outbox.holds(3));
    wire.extend(written(&mut outbox, usize::MAX));
    assert_eq!(types(&wire), [(MessageType::REQUEST, 1)]);
}

#[test]
fn one_writer_at_a_time() {
    let mut outbox = Outbox::default();
    outbox.push(1, request(1, 0));
    let batch = outbox.begin().unwrap();
    assert!(!outbox.is_empty(), "what is being written may come back");
    outbox.push(3, request(3, 0));
    assert!(outbox.begin().is_none());
    outbox.end(batch, NOW);
    assert!(outbox.begin().is_some());
}

#[test]
fn any_split_of_writes_gives_the_same_frames() {
    let whole = {
        let mut outbox = Outbox::default();
        for id in 0..5 {
            outbox.push(2 * id + 1, request(2 * id + 1, id * 7));
        }
        written(&mut outbox, usize::MAX)
    };
    for step in 1..20 {
        let mut outbox = Outbox::default();
        for id in 0..5 {
            outbox.push(2 * id + 1, request(2 * id + 1, id * 7));
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
    outbox.push(1, request(1, 0));
    outbox.push(3, request(3, 0));
    outbox.arrive_data(3, &mut request(3, 0));
    assert_eq!((outbox.bytes(), outbox.owed_bytes()), (3 * 74, 2 * 74));
    assert!(outbox.remove(1));
    assert_eq!(outbox.bytes(), 2 * 74);
    written(&mut outbox, 9);
    assert_eq!(outbox.bytes(), 2 * 74 - 9);
    written(&mut outbox, usize::MAX);
    assert_eq!((outbox.bytes(), outbox.owed_bytes()), (74, 0));
    outbox.remove_data(3);
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
    for content in 0..100 {
        outbox.arrive_data(1, &mut data(content, 100));
    }
    assert_eq!(outbox.bytes(), 100 * 110 + 64);
    outbox.arrive_data(1, &mut data(100, 2000));
    outbox.arrive_data(1, &mut data(101, 10));
    outbox.arrive_data(3, &mut data(102, 10));
    outbox.arrive(5, request(5, 10));
    outbox.arrive_data(3, &mut data(103, 10));
    outbox.admit();
    // What has been admitted may be on its way.
    outbox.arrive_data(3, &mut data(104, 10));
    outbox.admit();
    assert_eq!(pieces(&mut outbox), 6);

    let wire = written(&mut outbox, usize::MAX);
    let contents = (0..100).flat_map(|content| data(content, 100));
    let rest = [
        data(100, 2000),
        data(101, 10),
        data(102, 10),
        request(5, 10),
    ];
    let rest = rest.into_iter().chain([data(103, 10), data(104, 10)]);
    assert_eq!(wire, contents.chain(rest.flatten()).collect::<Vec<_>>());
    assert_eq!((outbox.bytes(), outbox.owed_bytes()), (0, 0));
}

#[test]
fn joined_messages_are_cut_by_nothing_but_between_two_of_them() {
    let all: Vec<u8> = (0..5).flat_map(|content| data(content, 7)).collect();
    for room in 0..all.len() {
        let mut outbox = Outbox::default();
        for content in 0..5 {
            outbox.arrive_data(1, &mut data(content, 7));
        }
        outbox.admit();
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
fn joined_messages_that_have_not_begun_are_taken_back() {
    for room in 0..5 * 17 {
        let mut outbox = Outbox::default();
        for content in 0..5 {
            outbox.arrive_data(1, &mut data(content, 7));
        }
        outbox.admit();
        let mut wire = written(&mut outbox, room);
        outbox.remove_data(1);
        let left = (17 - room % 17) % 17;
        let owed = if left > 0 { left + OVERHEAD } else { 0 };
        assert_eq!(outbox.bytes(), owed, "after {room} bytes");
        wire.extend(written(&mut outbox, usize::MAX));
        assert_eq!(types(&wire).len(), room.div_ceil(17), "after {room} bytes");
        assert_eq!((outbox.bytes(), outbox.owed_bytes()), (0, 0));
    }
}
