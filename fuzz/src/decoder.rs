//! Any bytes, in any pieces, into the decoder; what it yields, into the envelopes.

use bytes::{BufMut, Bytes};
use ttrpc_keepalive::wire::{
    Decoded, Decoder, Flags, Frame, HEADER_LENGTH, MAX_ECHO, MAX_PAYLOAD, MessageType,
    ProtocolError, Raw, Request, RequestHead, Response, encode_request, encode_response,
    encode_status,
};

/// The first four bytes say how the others are cut, see [`sizes`]; the others are the stream.
pub fn check(data: &[u8]) {
    let Some((cuts, stream)) = data.split_first_chunk() else {
        return;
    };
    let whole = decode([stream].into_iter());
    assert!(whole == decode(pieces(stream, cuts)), "in pieces");
    assert!(whole == decode_in_place(stream, cuts), "in place");
    let mut taken = 0;
    for decoded in &whole.items {
        if let Decoded::Frame(frame) = decoded {
            taken += HEADER_LENGTH + frame.payload.len();
            check_frame(frame);
        }
    }
    assert!(taken <= stream.len(), "more came out than went in");
}

/// What a decoder has made of a stream.
#[derive(PartialEq)]
struct Outcome {
    items: Vec<Decoded>,
    /// Whether the stream ends within a frame, or how it fails.
    end: Result<bool, ProtocolError>,
}

/// Every piece through `decode`.
fn decode<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Outcome {
    let (mut decoder, mut items) = (Decoder::new(), Vec::new());
    for mut piece in pieces {
        if let Err(error) = drain(&mut decoder, &mut piece, &mut items) {
            return Outcome {
                items,
                end: Err(error),
            };
        }
    }
    Outcome {
        items,
        end: Ok(decoder.is_mid_frame()),
    }
}

/// Large payloads into their place, the rest through `decode`.
fn decode_in_place(mut stream: &[u8], cuts: &[u8; 4]) -> Outcome {
    let (mut decoder, mut items) = (Decoder::new(), Vec::new());
    for size in sizes(cuts) {
        if stream.is_empty() {
            break;
        }
        let size = size.min(stream.len());
        if let Some((payload, missing)) = decoder.partial_payload() {
            assert!(payload.capacity() - payload.len() >= missing, "no room");
            assert!(payload.len() + missing <= MAX_PAYLOAD);
            let (read, rest) = stream.split_at(size.min(missing));
            payload.put_slice(read);
            stream = rest;
            items.extend(decoder.take_complete());
            continue;
        }
        let (mut read, rest) = stream.split_at(size);
        stream = rest;
        if let Err(error) = drain(&mut decoder, &mut read, &mut items) {
            return Outcome {
                items,
                end: Err(error),
            };
        }
    }
    Outcome {
        items,
        end: Ok(decoder.is_mid_frame()),
    }
}

fn drain(
    decoder: &mut Decoder,
    input: &mut &[u8],
    items: &mut Vec<Decoded>,
) -> Result<(), ProtocolError> {
    while let Some(decoded) = decoder.decode(input)? {
        items.push(decoded);
    }
    assert!(input.is_empty(), "None says that the input is used up");
    Ok(())
}

/// Sizes of pieces, again and again: from 1 byte to 64 KiB, and small ones for small numbers.
fn sizes(cuts: &[u8; 4]) -> impl Iterator<Item = usize> + '_ {
    cuts.iter()
        .cycle()
        .map(|&cut| 1 + usize::from(cut) * usize::from(cut))
}

fn pieces<'a>(mut stream: &'a [u8], cuts: &'a [u8; 4]) -> impl Iterator<Item = &'a [u8]> {
    sizes(cuts).map_while(move |size| {
        if stream.is_empty() {
            return None;
        }
        let (piece, rest) = stream.split_at(size.min(stream.len()));
        stream = rest;
        Some(piece)
    })
}

fn check_frame(frame: &Frame) {
    let header = frame.header;
    assert_eq!(usize::try_from(header.length), Ok(frame.payload.len()));
    match header.message_type {
        MessageType::PING | MessageType::PONG => assert!(frame.payload.len() <= MAX_ECHO),
        MessageType::REQUEST => check_request(&frame.payload),
        MessageType::RESPONSE => check_response(&frame.payload),
        MessageType::DATA => assert!(frame.payload.len() <= MAX_PAYLOAD),
        other => panic!("{other} is not known and was not skipped"),
    }
}

/// What was read is read again when it is written.
fn check_request(payload: &Bytes) {
    let Ok(request) = Request::decode(payload) else {
        return;
    };
    let head = RequestHead {
        service: &request.service,
        method: &request.method,
        timeout_nano: request.timeout_nano,
        metadata: &request.metadata,
    };
    let frame = encode_request(1, Flags::NONE, &head, &Raw(&request.payload))
        .expect("written without what was skipped or written twice, it is not longer");
    let again = Request::decode(&payload_of(frame)).expect("what we write can be read");
    assert!(request == again);
}

fn check_response(payload: &Bytes) {
    let Ok(response) = Response::decode(payload) else {
        return;
    };
    // A negative code may have come in five bytes and is written in ten: a status that was nearly
    // too long is cut then.
    if payload.len() > MAX_PAYLOAD - 5 {
        return;
    }
    let frame = match &response.status {
        Some(status) => encode_status(1, status),
        None => encode_response(1, &Raw(&response.payload)).expect("not longer than it was"),
    };
    let again = Response::decode(&payload_of(frame)).expect("what we write can be read");
    assert!(response.status == again.status);
    assert!(response.status.is_some() || response.payload == again.payload);
}

fn payload_of(frame: Vec<u8>) -> Bytes {
    Bytes::from(frame).split_off(HEADER_LENGTH)
}
