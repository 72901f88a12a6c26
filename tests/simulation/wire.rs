//! The rules of RFC.md and docs/ttrpc-as-it-is.md, as far as they can be seen on the wire.

use std::collections::BTreeMap;

use bytes::Bytes;
use ttrpc_keepalive::wire::{
    Decoded, Decoder, Flags, Frame, MessageType, PING_STREAM_ID, Request, Skipped,
};

use super::link::End;

/// Cuts one direction into frames.
#[derive(Default)]
pub(crate) struct Cutter {
    decoder: Option<Decoder>,
    failed: bool,
    began: u64,
}

/// A frame, and which call of a transport carried its first byte and its last one.
pub(crate) struct Seen {
    decoded: Option<Decoded>,
    began: u64,
    ended: u64,
}

impl Cutter {
    pub(crate) fn is_mid_frame(&self) -> bool {
        let decoder = self.decoder.as_ref();
        !self.failed && decoder.is_some_and(Decoder::is_mid_frame)
    }

    pub(crate) fn cut(&mut self, mut bytes: &[u8], order: u64) -> Vec<Seen> {
        let mut seen = Vec::new();
        let mid_frame = self.is_mid_frame();
        if !mid_frame {
            self.began = order;
        }
        let decoder = self.decoder.get_or_insert_with(Decoder::new);
        while !self.failed {
            let decoded = decoder.decode(&mut bytes);
            self.failed = decoded.is_err();
            let decoded = match decoded {
                Ok(None) => break,
                Ok(decoded) => decoded,
                Err(_) => None,
            };
            seen.push(Seen {
                decoded,
                began: self.began,
                ended: order,
            });
            self.began = order;
        }
        seen
    }
}

/// What one end has done and heard.
#[derive(Default)]
struct Heard {
    pings_sent: u64,
    pings: Vec<Ping>,
    /// How many of them are answered: a PONG stands for those before it (KA-16).
    answered: usize,
}

impl Heard {
    /// The oldest PING that was read and not answered.
    fn owes(&self) -> Option<&Ping> {
        self.pings.get(self.answered)
    }
}

/// A PING that was read.
struct Ping {
    id: u32,
    payload: Bytes,
    at: u64,
    /// The call of a transport that read its last byte.
    read: u64,
}

#[derive(Default)]
struct Stream {
    /// What the client may still do.
    is_open: bool,
    opened: bool,
    /// For each request that the server has read, and not answered: how many PINGs came before it.
    asked: Vec<usize>,
    /// When the client read the last frame.
    over: Option<u64>,
}

#[derive(Default)]
pub(crate) struct Wire {
    /// Whether each end asks at all.
    asks: [bool; 2],
    /// Whether the client does not know yet whether its peer knows PING.
    wants_to_know: bool,
    heard: [Heard; 2],
    streams: BTreeMap<u32, Stream>,
    last_id: u32,
    pub(crate) frames: u64,
    faults: Vec<String>,
}

impl Wire {
    pub(crate) fn new(asks: [bool; 2], client_assumes: bool) -> Self {
        Self {
            asks,
            wants_to_know: asks[0] && !client_assumes,
            ..Self::default()
        }
    }

    pub(crate) fn fault(&mut self, fault: String) {
        self.faults.push(fault);
    }

    pub(crate) fn take_faults(&mut self) -> Vec<String> {
        std::mem::take(&mut self.faults)
    }

    fn expect(&mut self, holds: bool, rule: &str, frame: &Frame) {
        if !holds {
            let header = frame.header;
            self.fault(format!("{rule}: {header:?}"));
        }
    }

    pub(crate) fn pings(&self) -> u64 {
        self.heard.iter().map(|heard| heard.pings_sent).sum()
    }

    /// Since when this end owes a PONG.
    pub(crate) fn owes_since(&self, end: End) -> Option<u64> {
        self.heard[end.index()].owes().map(|ping| ping.at)
    }

    /// Streams that the client neither ended nor saw ended (KA-43).
    pub(crate) fn left_open(&self) -> usize {
        let left = |stream: &&Stream| stream.is_open && stream.over.is_none();
        self.streams.values().filter(left).count()
    }

    pub(crate) fn wrote(&mut self, end: End, seen: Vec<Seen>) {
        for seen in seen {
            self.frames += 1;
            let Some(Decoded::Frame(frame)) = &seen.decoded else {
                // KA-2, KA-6, KA-13, KA-15: also what another frame was written into.
                self.fault(format!("{end:?} wrote no frame: {:?}", seen.decoded));
                continue;
            };
            let kind = frame.header.message_type;
            let heard = &self.heard[end.index()];
            let owes = heard.owes().is_some_and(|ping| seen.began > ping.read);
            let ahead = kind == MessageType::PONG || !owes;
            self.expect(ahead, "KA-15, a frame that began ahead of a PONG", frame);
            match (kind, end) {
                (MessageType::PING, _) => self.wrote_ping(end, frame),
                (MessageType::PONG, _) => self.wrote_pong(end, frame),
                (_, End::Client) => self.client_wrote(frame, seen.began),
                (_, End::Server) => self.server_wrote(frame),
            }
        }
    }

    fn wrote_ping(&mut self, end: End, frame: &Frame) {
        let header = frame.header;
        let form = header.stream_id == PING_STREAM_ID && header.flags == Flags::NONE;
        self.expect(form && frame.payload.len() == 8, "KA-9", frame);
        self.expect(self.asks[end.index()], "a PING of who asks nothing", frame);
        let may = end == End::Client || !self.heard[1].pings.is_empty();
        self.expect(may, "KA-28", frame);
        self.heard[end.index()].pings_sent += 1;
    }

    fn wrote_pong(&mut self, end: End, frame: &Frame) {
        let header = frame.header;
        let heard = &mut self.heard[end.index()];
        let unanswered = heard.pings.iter().enumerate().skip(heard.answered);
        let found = unanswered
            .rev()
            .find(|(_, ping)| ping.id == header.stream_id && ping.payload == frame.payload);
        let found = found.map(|(index, _)| index + 1);
        heard.answered = found.unwrap_or(heard.answered);
        self.expect(found.is_some(), "KA-11, KA-17, no PING for a PONG", frame);
        let flags = Flags::HANDLERS_STALLED | header.flags;
        self.expect(flags == Flags::HANDLERS_STALLED, "KA-12", frame);
    }

    fn client_wrote(&mut self, frame: &Frame, began: u64) {
        let header = frame.header;
        let id = header.stream_id;
        match header.message_type {
            MessageType::REQUEST => {
                let asked = self.heard[0].pings_sent > 0 || !self.wants_to_know;
                self.expect(asked, "KA-22, no PING before the first REQUEST", frame);
                let ordered = id % 2 == 1 && id > self.last_id && id < PING_STREAM_ID;
                self.expect(ordered, "KA-30", frame);
                self.last_id = id;
                let open = Flags::REMOTE_OPEN | Flags::NO_DATA;
                let kinds = [Flags::NONE, Flags::REMOTE_CLOSED, open];
                self.expect(kinds.contains(&header.flags), "KA-44, KA-48", frame);
                let decoded = Request::decode(&frame.payload);
                let timeout = decoded.as_ref().map(|request| request.timeout_nano);
                self.expect(timeout.is_ok_and(|left| left >= 0), "KA-33", frame);
                let stream = self.streams.entry(id).or_default();
                stream.is_open = header.flags == open;
                stream.opened = true;
            }
            MessageType::DATA => {
                let stream = self.streams.entry(id).or_default();
                let open = stream.is_open;
                let over = stream.over.is_some_and(|read| began > read);
                if header.flags.contains(Flags::REMOTE_CLOSED) {
                    stream.is_open = false;
                }
                self.expect(open, "KA-38, KA-43, DATA on no open stream", frame);
                self.expect(!over, "KA-39, DATA after the last frame", frame);
            }
            _ => self.expect(false, "no frame of a client", frame),
        }
    }

    fn server_wrote(&mut self, frame: &Frame) {
        let header = frame.header;
        let stream = self.streams.entry(header.stream_id).or_default();
        let asked = stream.asked.iter().min().copied();
        let last = match header.message_type {
            MessageType::RESPONSE => true,
            MessageType::DATA => header.flags.contains(Flags::REMOTE_CLOSED),
            _ => return self.expect(false, "no frame of a server", frame),
        };
        if last {
            stream.asked.pop();
        }
        let answered = self.heard[1].answered;
        self.expect(asked.is_some(), "KA-39, KA-40, an answer too many", frame);
        self.expect(asked.is_none_or(|pings| answered >= pings), "KA-14", frame);
    }

    pub(crate) fn read(&mut self, end: End, seen: Vec<Seen>, now: u64) {
        for seen in seen {
            let (header, payload) = match seen.decoded {
                Some(Decoded::Frame(frame)) => (frame.header, Some(frame.payload)),
                Some(Decoded::Skipped {
                    header,
                    reason: Skipped::Oversized,
                }) => (header, None),
                _ => continue,
            };
            let heard = &mut self.heard[end.index()];
            let kind = header.message_type;
            if end == End::Client && (kind == MessageType::PING || kind == MessageType::PONG) {
                // KA-24
                self.wants_to_know = false;
            }
            match (kind, end) {
                (MessageType::PING, _) => {
                    heard.pings.push(Ping {
                        id: header.stream_id,
                        payload: payload.unwrap_or_default(),
                        at: now,
                        read: seen.ended,
                    });
                }
                (MessageType::REQUEST, End::Server) => {
                    let pings = heard.pings.len();
                    let stream = self.streams.entry(header.stream_id).or_default();
                    stream.asked.push(pings);
                }
                (MessageType::RESPONSE | MessageType::DATA, End::Client) => {
                    let last = header.message_type == MessageType::RESPONSE
                        || header.flags.contains(Flags::REMOTE_CLOSED);
                    let stream = self.streams.get_mut(&header.stream_id);
                    let stream = stream.filter(|stream| stream.opened && last);
                    if let Some(stream) = stream.filter(|_| payload.is_some()) {
                        stream.over.get_or_insert(seen.ended);
                    }
                }
                _ => {}
            }
        }
    }
}
