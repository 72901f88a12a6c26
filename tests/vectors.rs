//! The vectors in `interop/vectors` against the wire layer: what frames they are, and that the same
//! frames are written.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

#[path = "support/vectors.rs"]
mod files;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use files::{Vector, bytes, fits, list, scripts, text, vectors};
use protobuf::well_known_types::any::Any;
use serde_json::{Value, json};
use ttrpc_keepalive::status::Status;
use ttrpc_keepalive::wire::{
    Decoded, Decoder, Flags, Frame, HEADER_LENGTH, Header, MessageType, PING_STREAM_ID, Raw,
    Request, RequestHead, Response, Skipped, encode_request, encode_response, encode_status, ping,
    ping_number, pong,
};

/// What the decoder says of a vector, in the words of the vector.
fn decode(vector: &Vector) -> (Vec<Value>, Vec<Frame>) {
    let mut decoder = Decoder::new();
    let (mut said, mut frames) = (Vec::new(), Vec::new());
    for piece in &vector.frames_in {
        let mut input = &piece[..];
        loop {
            match decoder.decode(&mut input) {
                Ok(Some(Decoded::Frame(frame))) => {
                    said.push(describe(&frame));
                    frames.push(frame);
                }
                Ok(Some(Decoded::Skipped { header, reason })) => {
                    said.push(describe_skipped(&header, reason));
                }
                Ok(Some(other)) => panic!("{other:?}"),
                Ok(None) => break,
                Err(error) => {
                    said.push(json!({"protocol_error": true, "length": error.length()}));
                    return (said, frames);
                }
            }
        }
    }
    assert!(!decoder.is_mid_frame(), "{}", vector.name);
    (said, frames)
}

fn describe_header(header: &Header) -> Value {
    let message_type = match header.message_type.value() {
        1..=5 => json!(header.message_type.to_string()),
        other => json!(other),
    };
    json!({
        "type": message_type,
        "stream_id": header.stream_id,
        "flags": header.flags.bits(),
        "length": header.length,
    })
}

fn describe_skipped(header: &Header, reason: Skipped) -> Value {
    let mut said = describe_header(header);
    said["skipped"] = json!(match reason {
        Skipped::Oversized => "oversized",
        Skipped::LongPing => "long_ping",
        Skipped::UnknownType => "unknown_type",
        _ => panic!("{reason:?}"),
    });
    said
}

fn describe(frame: &Frame) -> Value {
    let mut said = describe_header(&frame.header);
    match frame.header.message_type {
        MessageType::REQUEST => match Request::decode(&frame.payload) {
            Ok(request) => said["request"] = describe_request(&request),
            Err(_) => said["undecodable"] = json!(true),
        },
        MessageType::RESPONSE => match Response::decode(&frame.payload) {
            Ok(response) => said["response"] = describe_response(&response),
            Err(_) => said["undecodable"] = json!(true),
        },
        _ => said["payload"] = json!(&frame.payload[..]),
    }
    said
}

fn describe_request(request: &Request) -> Value {
    json!({
        "service": &request.service[..],
        "method": &request.method[..],
        "payload": &request.payload[..],
        "timeout_nano": request.timeout_nano.to_string(),
        "metadata": request.metadata,
    })
}

fn describe_response(response: &Response) -> Value {
    let status = response.status.as_ref();
    let details = status.map(Status::details).unwrap_or_default();
    let details: Vec<Value> = details
        .iter()
        .map(|any| json!({"type_url": any.type_url, "value": any.value}))
        .collect();
    json!({
        "code": status.map_or(0, |status| status.code().value()),
        "message": status.map_or("", Status::message),
        "details": details,
        "payload": &response.payload[..],
    })
}

/// A decoded frame as the file has it, with bytes for hexadecimal and without `canonical`.
fn expected(entry: &Value) -> Value {
    let mut entry = entry.clone();
    entry.as_object_mut().unwrap().remove("canonical");
    let messages = ["/payload", "/request/payload", "/response/payload"];
    for place in messages {
        if let Some(payload) = entry.pointer_mut(place) {
            *payload = json!(bytes(payload));
        }
    }
    if let Some(Value::Array(details)) = entry.pointer_mut("/response/details") {
        for detail in details {
            detail["value"] = json!(bytes(&detail["value"]));
        }
    }
    entry
}

/// The frame that we write to say what this entry says.
fn encode(entry: &Value) -> Vec<u8> {
    let stream_id = u32::try_from(entry["stream_id"].as_u64().unwrap()).unwrap();
    let flags = Flags::from(u8::try_from(entry["flags"].as_u64().unwrap()).unwrap());
    if let Some(request) = entry.get("request") {
        let pairs = list(&request["metadata"]).iter();
        let metadata: Vec<_> = pairs.map(|pair| (text(&pair[0]), text(&pair[1]))).collect();
        let head = RequestHead {
            service: request["service"].as_str().unwrap(),
            method: request["method"].as_str().unwrap(),
            timeout_nano: text(&request["timeout_nano"]).parse().unwrap(),
            metadata: &metadata,
        };
        return encode_request(stream_id, flags, &head, &Raw(&bytes(&request["payload"]))).unwrap();
    }
    let response = &entry["response"];
    let code = i32::try_from(response["code"].as_i64().unwrap()).unwrap();
    if code == 0 {
        return encode_response(stream_id, &Raw(&bytes(&response["payload"]))).unwrap();
    }
    let details = list(&response["details"]).iter().map(|detail| Any {
        type_url: text(&detail["type_url"]),
        value: bytes(&detail["value"]),
        ..Any::default()
    });
    let status = Status::new(code.into(), text(&response["message"]));
    encode_status(stream_id, &status.with_details(details.collect()))
}

fn whole(frame: &Frame) -> Vec<u8> {
    [&frame.header.encode()[..], &frame.payload].concat()
}

#[test]
fn every_vector_decodes_to_what_it_says() {
    for vector in vectors() {
        let (said, _) = decode(&vector);
        let expected: Vec<Value> = vector.decoded.iter().map(expected).collect();
        assert!(said == expected, "{}: {said:?}", vector.name);
        let failed = said
            .last()
            .is_some_and(|last| last.get("protocol_error").is_some());
        assert_eq!(failed, vector.ends, "{}", vector.name);
    }
}

#[test]
fn a_canonical_envelope_is_written_byte_for_byte() {
    let mut seen = 0;
    for vector in vectors() {
        let (_, frames) = decode(&vector);
        let entries = vector.decoded.iter().filter(|entry| {
            entry.get("skipped").is_none() && entry.get("protocol_error").is_none()
        });
        for (frame, entry) in frames.iter().zip(entries) {
            if entry["canonical"] == json!(true) {
                assert!(
                    encode(entry)[HEADER_LENGTH..] == frame.payload,
                    "{}",
                    vector.name
                );
                seen += 1;
            }
        }
    }
    assert!(seen > 0);
}

#[test]
fn every_ping_has_the_pong_that_its_vector_expects() {
    let mut seen = 0;
    for vector in vectors() {
        let (_, frames) = decode(&vector);
        // The hexadecimal answers: those that are optional, too.
        let answers = vector.frames_out.iter().filter_map(|answer| match answer {
            Value::String(_) => Some(bytes(answer)),
            _ => answer.get("hex").map(bytes),
        });
        let is_pong = |bytes: &Vec<u8>| bytes[8] == MessageType::PONG.value();
        let expected: Vec<_> = answers.filter(is_pong).collect();
        let pings = frames
            .iter()
            .filter(|frame| frame.header.message_type == MessageType::PING);
        let written: Vec<_> = pings
            .map(|frame| pong(frame.header.stream_id, Flags::NONE, &frame.payload))
            .collect();
        assert_eq!(written, expected, "{}", vector.name);
        seen += written.len();
    }
    assert!(seen > 0);
}

#[test]
fn a_ping_with_the_id_of_pings_and_a_number_is_the_one_we_send() {
    let mut seen = 0;
    for vector in vectors() {
        for frame in decode(&vector).1 {
            let Header {
                stream_id,
                flags,
                message_type,
                ..
            } = frame.header;
            if (message_type, stream_id, flags) != (MessageType::PING, PING_STREAM_ID, Flags::NONE)
            {
                continue;
            }
            if let Some(number) = ping_number(&frame.payload) {
                assert_eq!(ping(number)[..], whole(&frame), "{}", vector.name);
                seen += 1;
            }
        }
    }
    assert!(seen > 0);
}

#[test]
fn a_call_ends_as_the_first_frame_for_it_says() {
    let mut seen = 0;
    for vector in vectors() {
        let Some(call) = &vector.call else {
            continue;
        };
        let (said, _) = decode(&vector);
        let for_it = said.iter().find_map(|said| {
            let is_response = said["type"] == "RESPONSE" && said["stream_id"] == 1;
            if said.get("protocol_error").is_some() {
                return Some(json!("fails"));
            }
            is_response.then(|| outcome(said))
        });
        let for_it = for_it.unwrap_or_else(|| json!("waits"));
        let mut call = call.clone();
        if let Some(message) = call.get_mut("ok") {
            *message = json!(bytes(message));
        }
        assert!(fits(&for_it, &call), "{}: {for_it}", vector.name);
        seen += 1;
    }
    assert!(seen > 0);
}

/// What a RESPONSE means for its call.
fn outcome(said: &Value) -> Value {
    match said.get("response") {
        Some(response) if response["code"] == 0 => json!({"ok": response["payload"]}),
        Some(response) => json!({"code": response["code"], "message": response["message"]}),
        None => json!("fails"),
    }
}

#[test]
fn an_empty_response_frame_is_an_empty_message() {
    let response = Response::decode(&Bytes::new()).unwrap();
    assert_eq!((response.status, response.payload.len()), (None, 0));
    assert_eq!(encode_response(1, &Raw(b"")).unwrap().len(), HEADER_LENGTH);
}

#[test]
fn every_rule_and_section_that_is_cited_exists() {
    let rules = rules();
    let played = vectors()
        .into_iter()
        .map(|vector| (vector.name, vector.rules));
    let scripts = scripts()
        .into_iter()
        .map(|script| (script.name, script.rules));
    for (name, cited) in played.chain(scripts) {
        for rule in &cited {
            assert!(rules.contains(rule), "{name}: {rule}");
        }
    }
    let sections = sections();
    for source in sources(&["src", "tests", "fuzz", "layer", "interop"]) {
        for rule in cited(&source.text) {
            assert!(rules.contains(&rule), "{}: {rule}", source.path.display());
        }
        for section in ids(&source.text, "J-") {
            let path = source.path.display();
            assert!(sections.contains(&section), "{path}: {section}");
        }
    }
    for section in ids(include_str!("../RFC.md"), "J-") {
        assert!(sections.contains(&section), "RFC.md: {section}");
    }
    let texts = [
        include_str!("../docs/judging.md"),
        include_str!("../RFC.md"),
    ];
    for rule in texts.iter().flat_map(|text| cited(text)) {
        assert!(rules.contains(&rule), "{rule}");
    }
}

#[test]
fn the_proposal_is_read_in_ten_minutes() {
    let lines = include_str!("../RFC.md").lines();
    assert!(lines.clone().count() <= 300);
    for line in lines {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

#[test]
fn every_rule_is_cited_where_it_is_kept_and_where_it_is_tested() {
    let mut kept = BTreeSet::new();
    let mut tested = BTreeSet::new();
    for source in sources(&["src"]) {
        // A file ends with its unit tests.
        let (code, tests) = source
            .text
            .split_once("#[cfg(test)]")
            .unwrap_or((&source.text, ""));
        kept.extend(cited(code));
        tested.extend(cited(tests));
    }
    for source in sources(&["tests", "fuzz"]) {
        tested.extend(cited(&source.text));
    }
    // Played by the tests above, and to a live peer by `vectors_live.rs`.
    tested.extend(vectors().into_iter().flat_map(|vector| vector.rules));
    tested.extend(scripts().into_iter().flat_map(|script| script.rules));
    let missing =
        |cited: &BTreeSet<String>| -> Vec<String> { rules().difference(cited).cloned().collect() };
    assert_eq!(missing(&kept), [""; 0], "not cited in the code");
    assert_eq!(missing(&tested), [""; 0], "not cited in a test");
}

/// The ids of all rules, whichever of the two texts has them. Each has one place.
fn rules() -> BTreeSet<String> {
    let texts = [
        include_str!("../RFC.md"),
        include_str!("../docs/ttrpc-as-it-is.md"),
    ];
    let mut rules = BTreeSet::new();
    for part in texts.iter().flat_map(|text| text.split("**")) {
        if part.starts_with("KA-") && part[3..].parse::<u16>().is_ok() {
            assert!(rules.insert(part.to_owned()), "{part} stands twice");
        }
    }
    assert!(!rules.is_empty());
    rules
}

/// The sections of the text on judging.
fn sections() -> BTreeSet<String> {
    let text = include_str!("../docs/judging.md");
    let headings = text.lines().filter_map(|line| line.strip_prefix("## J-"));
    let numbers = headings.filter_map(|heading| heading.split(' ').next());
    numbers.map(|number| format!("J-{number}")).collect()
}

/// The rules that a text names.
fn cited(text: &str) -> impl Iterator<Item = String> + '_ {
    ids(text, "KA-")
}

fn ids<'a>(text: &'a str, letters: &'a str) -> impl Iterator<Item = String> + 'a {
    let numbers = text.split(letters).skip(1).map(|behind| {
        let end = behind.find(|letter: char| !letter.is_ascii_digit());
        &behind[..end.unwrap_or(behind.len())]
    });
    numbers
        .filter(|number| !number.is_empty())
        .map(move |number| format!("{letters}{number}"))
}

struct Source {
    path: PathBuf,
    text: String,
}

/// The Rust files in these folders of the repository. A package has not all of them.
fn sources(names: &[&str]) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders: Vec<PathBuf> = names.iter().map(|name| root.join(name)).collect();
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                sources.push(Source { path, text });
            }
        }
    }
    sources
}
