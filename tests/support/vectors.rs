//! The vectors in `interop/vectors`, as their files say them.

#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::collections::VecDeque;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use ttrpc_keepalive::wire::{
    Decoded, Decoder, Flags, Frame, MessageType, PING_STREAM_ID, Response,
};

/// An exchange; the keys are described in `interop/vectors/README.md`.
pub(crate) struct Vector {
    pub(crate) name: String,
    pub(crate) frames_in: Vec<Vec<u8>>,
    pub(crate) decoded: Vec<Value>,
    pub(crate) frames_out: Vec<Value>,
    pub(crate) ends: bool,
    /// What becomes of the call that waits; `None` where a server receives the frames.
    pub(crate) call: Option<Value>,
    pub(crate) rules: Vec<String>,
}

/// Steps, with times.
pub(crate) struct Script {
    pub(crate) name: String,
    pub(crate) role: String,
    /// The entry as it is, for the keys that only some have.
    pub(crate) entry: Value,
    pub(crate) rules: Vec<String>,
}

pub(crate) fn vectors() -> Vec<Vector> {
    let vector = |(name, entry): (String, Value)| Vector {
        name,
        frames_in: list(&entry["frames_in"]).iter().map(bytes).collect(),
        decoded: list(&entry["decoded"]).clone(),
        frames_out: list(&entry["frames_out"]).clone(),
        ends: entry["ends"].as_bool().unwrap(),
        call: match entry["role"].as_str().unwrap() {
            "client" => Some(entry["call"].clone()),
            "server" => None,
            other => panic!("{other}"),
        },
        rules: list(&entry["rules"]).iter().map(text).collect(),
    };
    entries("interop/vectors").map(vector).collect()
}

pub(crate) fn scripts() -> Vec<Script> {
    let script = |(name, entry): (String, Value)| Script {
        name,
        role: text(&entry["role"]),
        rules: list(&entry["rules"]).iter().map(text).collect(),
        entry,
    };
    entries("interop/vectors/scripts").map(script).collect()
}

/// The entries of all files in a folder, with their names.
fn entries(folder: &str) -> impl Iterator<Item = (String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let file = path.file_stem().unwrap().to_string_lossy().into_owned();
        let entries: Vec<Value> = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        for entry in entries {
            all.push((format!("{file}/{}", text(&entry["name"])), entry));
        }
    }
    assert!(!all.is_empty());
    all.into_iter()
}

/// One frame that is expected.
struct Answer {
    wanted: Value,
    /// These bytes exactly.
    exact: Option<Vec<u8>>,
    lane: Lane,
    place: usize,
}

/// Frames of one lane come in their order.
#[derive(Clone, Copy, PartialEq)]
enum Lane {
    Ping,
    Pong,
    Stream(u64),
}

impl Lane {
    fn of(frame: &Frame) -> Self {
        match frame.header.message_type {
            MessageType::PING => Self::Ping,
            MessageType::PONG => Self::Pong,
            _ => Self::Stream(frame.header.stream_id.into()),
        }
    }
}

impl Answer {
    fn new(wanted: &Value, place: usize) -> Self {
        let wanted = match wanted {
            Value::String(_) => json!({ "hex": wanted }),
            _ => wanted.clone(),
        };
        let exact = wanted.get("hex").map(bytes);
        let lane = match (
            &exact,
            wanted.get("stream_id").or_else(|| wanted.get("last")),
        ) {
            (Some(exact), _) => Lane::of(&frames(exact).pop().unwrap()),
            (None, Some(id)) => Lane::Stream(id.as_u64().unwrap()),
            (None, None) => Lane::Ping,
        };
        Self {
            wanted,
            exact,
            lane,
            place,
        }
    }

    fn is_optional(&self) -> bool {
        self.wanted["optional"] == true
    }

    fn is(&self, frame: &Frame) -> bool {
        let header = &frame.header;
        if let Some(exact) = &self.exact {
            return [&header.encode()[..], &frame.payload].concat() == *exact;
        }
        if self.lane == Lane::Ping {
            let ping = (PING_STREAM_ID, Flags::NONE, 8);
            return (header.stream_id, header.flags, header.length) == ping;
        }
        if header.message_type == MessageType::DATA {
            let end = Flags::REMOTE_CLOSED | Flags::NO_DATA;
            return self.wanted.get("last").is_some() && (header.flags, header.length) == (end, 0);
        }
        let response = Response::decode(&frame.payload).unwrap();
        let code = response.status.map_or(0, |status| status.code().value());
        self.wanted
            .get("code")
            .map_or(0, |code| code.as_i64().unwrap())
            == i64::from(code)
    }
}

/// What is wrong with these answers, if something is.
pub(crate) fn wrong_answers(came: &[Frame], listed: &[Value]) -> Option<String> {
    let mut expected: VecDeque<Answer> = VecDeque::new();
    for wanted in listed {
        let times = wanted
            .get("times")
            .map_or(1, |times| times.as_u64().unwrap());
        expected.extend((0..times).map(|_| Answer::new(wanted, 0)));
    }
    for (place, answer) in expected.iter_mut().enumerate() {
        answer.place = place;
    }
    let mut latest = 0;
    for frame in came {
        let lane = Lane::of(frame);
        let answer = loop {
            let Some(at) = expected.iter().position(|answer| answer.lane == lane) else {
                return Some(format!("{frame:?} is not expected"));
            };
            let answer = expected.remove(at).unwrap();
            if answer.is(frame) {
                break answer;
            }
            if !answer.is_optional() {
                return Some(format!("{frame:?} and not {}", answer.wanted));
            }
        };
        if !matches!(lane, Lane::Stream(_)) && answer.place < latest {
            return Some(format!("{frame:?} comes behind what is listed behind it"));
        }
        latest = latest.max(answer.place);
    }
    let missing = expected.iter().find(|answer| !answer.is_optional());
    missing.map(|answer| format!("{} does not come", answer.wanted))
}

/// Whole frames, as we write them.
pub(crate) fn frames(mut bytes: &[u8]) -> Vec<Frame> {
    let (mut decoder, mut frames) = (Decoder::new(), Vec::new());
    while let Some(decoded) = decoder.decode(&mut bytes).unwrap() {
        match decoded {
            Decoded::Frame(frame) => frames.push(frame),
            other => panic!("a frame that nobody may send: {other:?}"),
        }
    }
    assert!(!decoder.is_mid_frame(), "a frame is cut");
    frames
}

/// Whether this is the outcome that a vector has, or one of those.
pub(crate) fn fits(outcome: &Value, expected: &Value) -> bool {
    let one_of = expected.get("one_of").and_then(Value::as_array);
    one_of.map_or(outcome == expected, |all| all.contains(outcome))
}

pub(crate) fn list(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap()
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// Bytes as the vectors write them: hexadecimal with spaces, and `5a*65` for 65 times `5a`.
pub(crate) fn bytes(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    for token in value.as_str().unwrap().split_whitespace() {
        let (digits, count) = token.split_once('*').unwrap_or((token, "1"));
        let once: Vec<u8> = (0..digits.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
            .collect();
        bytes.extend(once.repeat(count.parse().unwrap()));
    }
    bytes
}
