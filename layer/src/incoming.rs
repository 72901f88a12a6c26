//! From the peer to the wrapped side, with PING and PONG taken out.

use std::mem;
use std::ops::Range;

use tokio::io::ReadBuf;
use ttrpc_keepalive::keepalive::Role;
use ttrpc_keepalive::wire::{
    Cut, Cutter, HEADER_LENGTH, Header, MAX_ECHO, MessageType, PING_STREAM_ID, ProtocolError,
};

/// Bytes that are read at once, and the memory that a connection holds for reading.
const CHUNK: usize = 16 << 10;

/// What has been read and not handed on.
#[derive(Debug)]
pub(crate) struct Incoming {
    role: Role,
    cutter: Cutter,
    chunk: Box<[u8]>,
    /// What of `chunk` was read and has not been looked at.
    unseen: Range<usize>,
    /// A header that is being handed on.
    head: Vec<u8>,
    fate: Fate,
}

/// What becomes of the payload of the present frame.
#[derive(Debug, Default)]
enum Fate {
    #[default]
    Pass,
    Drop,
    /// A PING or PONG that is not complete yet.
    Keep(Header, Vec<u8>),
}

/// What the peer said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// The header of a frame that is not PING or PONG.
    Head(Header),
    Ping(Header, Vec<u8>),
    Pong(Header, Vec<u8>),
}

impl Incoming {
    pub(crate) fn new(role: Role) -> Self {
        Self {
            role,
            cutter: Cutter::default(),
            chunk: Box::default(),
            unseen: 0..0,
            head: Vec::new(),
            fate: Fate::Pass,
        }
    }

    /// Room for what is read next, if all that was read before has been looked at.
    pub(crate) fn room(&mut self) -> Option<&mut [u8]> {
        if !self.unseen.is_empty() {
            return None;
        }
        if self.chunk.is_empty() {
            self.chunk = vec![0; CHUNK].into();
        }
        Some(&mut self.chunk)
    }

    /// Notes how much was read into the room.
    pub(crate) fn read(&mut self, count: usize) {
        self.unseen = 0..count;
    }

    /// Hands on what was read until the peer has said something, or there is nothing more, or no
    /// room in `out`.
    pub(crate) fn next(&mut self, out: &mut ReadBuf<'_>) -> Result<Option<Said>, ProtocolError> {
        loop {
            let ready = self.head.len().min(out.remaining());
            out.put_slice(&self.head[..ready]);
            self.head.drain(..ready);
            let most = match self.fate {
                // The header stands in front of it.
                Fate::Pass if !self.head.is_empty() => return Ok(None),
                Fate::Pass => out.remaining(),
                Fate::Drop | Fate::Keep(..) => usize::MAX,
            };
            let mut input = &self.chunk[self.unseen.clone()];
            let cut = self.cutter.cut(&mut input, most)?;
            self.unseen.start = self.unseen.end - input.len();
            match cut {
                Cut::Nothing => return Ok(None),
                Cut::Payload(payload) => match &mut self.fate {
                    Fate::Pass => out.put_slice(payload),
                    Fate::Drop => {}
                    Fate::Keep(_, kept) => kept.extend_from_slice(payload),
                },
                Cut::Header(header) => {
                    self.fate = self.fate(header);
                    match self.fate {
                        Fate::Pass => self.head.extend_from_slice(&header.encode()),
                        Fate::Drop => {}
                        Fate::Keep(..) if header.length > 0 => continue,
                        Fate::Keep(..) => return Ok(self.kept()),
                    }
                    return Ok(Some(Said::Head(header)));
                }
            }
            if self.cutter.is_between_frames() {
                if let Some(said) = self.kept() {
                    return Ok(Some(said));
                }
            }
        }
    }

    /// The peer has ended its side. What it left of a header is handed on.
    pub(crate) fn end(&mut self, out: &mut ReadBuf<'_>) {
        self.head.extend_from_slice(self.cutter.partial_header());
        self.cutter = Cutter::default();
        let ready = self.head.len().min(out.remaining());
        out.put_slice(&self.head[..ready]);
        self.head.drain(..ready);
    }

    /// Whether the end of the stream would cut a frame here.
    pub(crate) fn is_inside_a_frame(&self) -> bool {
        !self.cutter.is_between_frames()
    }

    fn fate(&self, header: Header) -> Fate {
        let length = usize::try_from(header.length).unwrap_or(usize::MAX);
        match header.message_type {
            // RFC KA-13: as if it had not come.
            MessageType::PING | MessageType::PONG if length > MAX_ECHO => Fate::Drop,
            MessageType::PING | MessageType::PONG => Fate::Keep(header, Vec::new()),
            // RFC KA-25: what an old peer makes of a PING belongs to no call. The wrapped side has
            // not sent the PING and would wonder.
            MessageType::RESPONSE
                if header.stream_id == PING_STREAM_ID && self.role == Role::Client =>
            {
                Fate::Drop
            }
            _ => Fate::Pass,
        }
    }

    fn kept(&mut self) -> Option<Said> {
        match mem::take(&mut self.fate) {
            Fate::Keep(header, payload) if header.message_type == MessageType::PING => {
                Some(Said::Ping(header, payload))
            }
            Fate::Keep(header, payload) => Some(Said::Pong(header, payload)),
            Fate::Pass | Fate::Drop => None,
        }
    }
}

/// A header goes to the wrapped side in one piece, if there is room.
const _: () = assert!(CHUNK > HEADER_LENGTH);
