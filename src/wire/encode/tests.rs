//! Whole frames, against what is read of them.

use bytes::Bytes;
use protobuf::well_known_types::wrappers::StringValue;

use super::*;
use crate::status::Code;
use crate::wire::{Raw, Request, Response};

fn payload_of(frame: Vec<u8>) -> Bytes {
    Bytes::from(frame).split_off(HEADER_LENGTH)
}

fn head() -> RequestHead<'static> {
    RequestHead {
        service: "demo.Echo",
        method: "Say",
        timeout_nano: 0,
        metadata: &[],
    }
}

#[test]
fn a_request_is_one_frame_of_exactly_its_size() {
    let message = StringValue {
        value: "hi".into(),
        ..StringValue::default()
    };
    let metadata = [("k".to_owned(), "v".to_owned())];
    let head = RequestHead {
        timeout_nano: 300,
        metadata: &metadata,
        ..head()
    };
    let frame = encode_request(5, Flags::NONE, &head, &message).unwrap();
    let expected = b"\0\0\0\x21\0\0\0\x05\x01\0\
        \x0a\x09demo.Echo\x12\x03Say\x1a\x04\x0a\x02hi\x20\xac\x02\x2a\x06\x0a\x01k\x12\x01v";
    assert_eq!(frame, expected);
    assert_eq!(
        frame.capacity(),
        frame.len(),
        "one allocation, no spare room"
    );
}

#[test]
fn what_is_empty_or_zero_is_not_written() {
    let head = RequestHead {
        service: "",
        method: "",
        ..head()
    };
    let request = encode_request(1, Flags::NONE, &head, &Raw(b"")).unwrap();
    let response = encode_response(1, &Raw(b"")).unwrap();
    assert_eq!(request.len(), HEADER_LENGTH);
    assert_eq!(response.len(), HEADER_LENGTH);
    assert_eq!(Request::decode(&Bytes::new()).unwrap(), Request::default());
}

#[test]
fn a_timeout_keeps_its_sign() {
    for timeout_nano in [1, -1, i64::MAX, i64::MIN, 0] {
        let head = RequestHead {
            timeout_nano,
            ..head()
        };
        let frame = encode_request(1, Flags::NONE, &head, &Raw(b"")).unwrap();
        let request = Request::decode(&payload_of(frame)).unwrap();
        assert_eq!(request.timeout_nano, timeout_nano);
    }
}

#[test]
fn the_largest_payload_passes_and_one_byte_more_does_not() {
    // Tag and length of the message's field take five bytes.
    let payload = vec![0; MAX_PAYLOAD - 4];
    let (fits, too_long) = (&payload[1..], &payload[..]);
    let refused = Oversized {
        size: MAX_PAYLOAD + 1,
        max: MAX_PAYLOAD,
    };
    let frame = encode_response(1, &Raw(fits)).unwrap();
    assert_eq!(frame.len(), HEADER_LENGTH + MAX_PAYLOAD);
    assert_eq!(encode_response(1, &Raw(too_long)).unwrap_err(), refused);

    let bare = vec![0; MAX_PAYLOAD + 1];
    let frame = encode_data(1, Flags::NONE, &Raw(&bare[1..])).unwrap();
    assert_eq!(frame.len(), HEADER_LENGTH + MAX_PAYLOAD);
    let error = encode_data(1, Flags::NONE, &Raw(&bare)).unwrap_err();
    assert_eq!(error, refused);
}

#[test]
#[should_panic(expected = "another number of bytes than it announced")]
fn a_message_that_lies_about_its_size_does_not_reach_the_wire() {
    struct Liar;
    impl Encode for Liar {
        fn encoded_len(&self) -> usize {
            1
        }
        fn encode(&self, out: &mut Vec<u8>) {
            out.extend_from_slice(b"two");
        }
    }
    drop(encode_data(1, Flags::NONE, &Liar));
}

#[test]
fn a_status_comes_back_as_it_was_sent() {
    let detail = Any {
        type_url: "example.com/demo.Detail".into(),
        value: b"abc".into(),
        ..Any::default()
    };
    for code in [1, 16, 17, -1, i32::MIN, i32::MAX] {
        let status = Status::new(code.into(), "why").with_details(vec![detail.clone()]);
        let response = Response::decode(&payload_of(encode_status(3, &status))).unwrap();
        assert_eq!(response.status, Some(status));
    }
}

#[test]
fn a_status_with_code_zero_is_success() {
    let frame = encode_status(3, &Status::new(Code::OK, "all is well"));
    assert_eq!(Response::decode(&payload_of(frame)).unwrap().status, None);
}

#[test]
fn an_overlong_status_loses_its_details_then_the_end_of_its_message() {
    let detail = Any {
        value: vec![0; MAX_PAYLOAD],
        ..Any::default()
    };
    let with_detail = Status::new(Code::INTERNAL, "why").with_details(vec![detail]);
    let response = Response::decode(&payload_of(encode_status(3, &with_detail))).unwrap();
    assert_eq!(response.status, Some(Status::new(Code::INTERNAL, "why")));

    // Characters of two bytes, behind one of one byte or none: the room ends within one of them
    // in one of the two cases.
    for before in ["", "a"] {
        let message = before.to_owned() + &"é".repeat(MAX_PAYLOAD / 2);
        let frame = encode_status(3, &Status::new(Code::INTERNAL, message.as_str()));
        assert!(frame.len() <= HEADER_LENGTH + MAX_PAYLOAD);
        let status = Response::decode(&payload_of(frame))
            .unwrap()
            .status
            .unwrap();
        let lost = message.len() - status.message().len();
        assert!(
            message.starts_with(status.message()) && lost < 32,
            "{lost} bytes lost"
        );
    }
}

#[test]
fn a_status_that_just_fits_loses_nothing() {
    // Around the message: tag and length of the status, its code, tag and length of the message.
    let longest = MAX_PAYLOAD - (5 + 2 + 5);
    for (length, whole) in [(longest, true), (longest + 1, false)] {
        let sent = Status::new(Code::INTERNAL, "x".repeat(length));
        let frame = encode_status(3, &sent);
        let status = Response::decode(&payload_of(frame)).unwrap().status;
        assert_eq!(status == Some(sent), whole, "{length}");
    }
}

#[test]
fn a_draft_becomes_the_frame_that_is_encoded_at_one_time() {
    let pairs = [("key".to_owned(), "value".to_owned()), Default::default()];
    let payload = Raw(b"payload");
    let mut draft = RequestDraft::new(Flags::REMOTE_OPEN, "s", "m", &payload).unwrap();
    assert_eq!(draft.names(), ("s", "m"));
    for (timeout_nano, metadata) in [(i64::MAX, &[][..]), (1, &pairs), (0, &pairs[..1])] {
        let head = RequestHead {
            service: "s",
            method: "m",
            timeout_nano,
            metadata,
        };
        let whole = encode_request(0, Flags::REMOTE_OPEN, &head, &payload).unwrap();
        assert_eq!(*draft.finish(timeout_nano, metadata).unwrap(), whole);
    }
    // The time needs no further memory.
    let draft = RequestDraft::new(Flags::NONE, "s", "m", &payload).unwrap();
    assert!(draft.frame.capacity() >= draft.end + TIME_FIELD);

    let largest = Raw(&vec![0; MAX_PAYLOAD - 11]);
    let mut draft = RequestDraft::new(Flags::NONE, "s", "m", &largest).unwrap();
    assert!(draft.finish(0, &[]).is_ok());
    let oversized = draft.finish(1, &[]).unwrap_err();
    assert_eq!(
        (oversized.size, oversized.max),
        (MAX_PAYLOAD + 2, MAX_PAYLOAD)
    );
}
