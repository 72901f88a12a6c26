//! What a message costs on its way to the wire and back, without a socket.

#![allow(
    missing_docs,
    reason = "criterion's macros make public items without any"
)]
#![allow(
    clippy::unwrap_used,
    reason = "a bench of something that fails measures nothing"
)]

use std::hint::black_box;

use bytes::{BufMut, Bytes};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use protobuf::well_known_types::wrappers::BytesValue;
use ttrpc_keepalive::wire::{
    Decoder, Flags, HEADER_LENGTH, Request, RequestHead, encode_request, ping, pong,
};

const SIZES: [usize; 4] = [0, 1 << 10, 64 << 10, 1 << 20];

fn message(size: usize) -> BytesValue {
    BytesValue {
        value: vec![b'x'; size],
        ..BytesValue::default()
    }
}

fn request_frame(message: &BytesValue) -> Vec<u8> {
    let head = RequestHead {
        service: "bench.Echo",
        method: "Echo",
        timeout_nano: 2_000_000_000,
        metadata: &[],
    };
    encode_request(1, Flags::NONE, &head, message).unwrap()
}

/// From a message to a whole frame.
fn encode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("encode_request");
    for size in SIZES {
        let message = message(size);
        group.throughput(Throughput::Bytes(
            request_frame(&message).len().try_into().unwrap(),
        ));
        group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
            bencher.iter(|| request_frame(black_box(&message)));
        });
    }
    group.finish();
}

/// One read that holds 64 frames of 1 KiB.
fn decode_batch(criterion: &mut Criterion) {
    const FRAMES: u64 = 64;
    let batch: Vec<u8> = (0..FRAMES)
        .flat_map(|_| request_frame(&message(1 << 10)))
        .collect();
    let mut group = criterion.benchmark_group("decode_batch");
    group.throughput(Throughput::Elements(FRAMES));
    group.bench_function("64_frames_of_1_KiB", |bencher| {
        let mut decoder = Decoder::new();
        bencher.iter(|| {
            let mut input = black_box(&batch[..]);
            while let Some(decoded) = decoder.decode(&mut input).unwrap() {
                black_box(decoded);
            }
        });
    });
    group.finish();
}

/// One frame of 1 MiB that comes in reads of 64 KiB, straight into its place.
fn decode_in_place(criterion: &mut Criterion) {
    let frame = request_frame(&message(1 << 20));
    let mut group = criterion.benchmark_group("decode_in_place");
    group.throughput(Throughput::Bytes(frame.len().try_into().unwrap()));
    group.bench_function("1_MiB", |bencher| {
        let mut decoder = Decoder::new();
        bencher.iter(|| {
            let (mut header, mut rest) = frame.split_at(HEADER_LENGTH);
            assert!(decoder.decode(&mut header).unwrap().is_none());
            while let Some((payload, missing)) = decoder.partial_payload() {
                let (read, behind) = rest.split_at(missing.min(64 << 10));
                payload.put_slice(read);
                rest = behind;
            }
            let last = decoder.take_complete();
            let decoded = last.or_else(|| decoder.decode(&mut rest).unwrap());
            black_box(decoded.unwrap());
        });
    });
    group.finish();
}

/// From a frame's payload to service, method and message bytes.
fn decode_envelope(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode_envelope");
    for size in SIZES {
        let payload = Bytes::from(request_frame(&message(size))).split_off(HEADER_LENGTH);
        group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
            bencher.iter(|| Request::decode(black_box(&payload)).unwrap());
        });
    }
    group.finish();
}

/// A PING and its answer.
fn ping_pong(criterion: &mut Criterion) {
    criterion.bench_function("ping_pong", |bencher| {
        let mut number = 0_u64;
        bencher.iter(|| {
            number += 1;
            let ping = ping(black_box(number));
            pong(u32::MAX, Flags::NONE, black_box(&ping[HEADER_LENGTH..]))
        });
    });
}

criterion_group!(
    codec,
    encode,
    decode_batch,
    decode_in_place,
    decode_envelope,
    ping_pong
);
criterion_main!(codec);
