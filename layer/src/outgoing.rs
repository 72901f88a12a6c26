//! From the wrapped side to the peer, with PING and PONG put between its frames.

use std::io::IoSlice;

use ttrpc_keepalive::keepalive::ReplySlot;
use ttrpc_keepalive::wire::{
    Cut, Cutter, Flags, HEADER_LENGTH, Header, MessageType, ProtocolError, ping, pong,
};

/// What is to be written, in the order in which it may be.
///
/// It holds at most one PING, one PONG that is being written and one that waits, and one header:
/// about 200 bytes, whatever comes. Payloads go from the wrapped side's buffer to the stream.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    cutter: Cutter,
    frame: Option<Frame>,
    /// PING and PONG that are next, or are being written.
    front: Vec<u8>,
    front_written: usize,
    front_has_ping: bool,
    reply: ReplySlot,
    ping: Option<u64>,
    closed: bool,
}

/// The frame of the wrapped side that is being written.
#[derive(Clone, Copy, Debug)]
struct Frame {
    header: Header,
    head: [u8; HEADER_LENGTH],
    /// How many bytes of `head` the stream has. A frame of which it has none has not begun: what
    /// is to go ahead of it still can.
    written: usize,
    /// A PING or PONG of the wrapped side, which is dropped.
    hidden: bool,
}

/// Whether a frame begins of which only the header is here.
///
/// A frame that has begun holds up every PONG until the wrapped side has written the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    Now,
    /// If that is all of it.
    IfWhole,
}

/// What the stream took, and of it what the wrapped side may be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) payload: usize,
    /// There was something of PING or PONG in it.
    pub(crate) control: bool,
    /// The last byte of a PING was in it.
    pub(crate) ping: bool,
}

impl Outgoing {
    /// Notes a PING of the peer.
    pub(crate) fn reply(&mut self, ping: Header, payload: &[u8]) -> bool {
        let payload = payload.to_vec();
        self.reply.put(ping.stream_id, payload.into())
    }

    /// Notes a PING of ours.
    pub(crate) fn set_ping(&mut self, number: u64) {
        self.ping = Some(number);
    }

    /// Takes a header, or a part of one, from the front of what the wrapped side writes, if one is
    /// what comes next. Says when one is complete.
    pub(crate) fn take_head(&mut self, bytes: &mut &[u8]) -> Result<Option<Header>, ProtocolError> {
        if self.frame.is_some() {
            return Ok(None);
        }
        let Cut::Header(header) = self.cutter.cut(bytes, 0)? else {
            return Ok(None);
        };
        let hidden = matches!(header.message_type, MessageType::PING | MessageType::PONG);
        self.frame = Some(Frame {
            header,
            head: header.encode(),
            written: 0,
            hidden,
        });
        self.end_frame();
        Ok(Some(header))
    }

    /// Drops what belongs to a frame that is hidden.
    pub(crate) fn drop_hidden(&mut self, bytes: &mut &[u8]) {
        if self.frame.is_some_and(|frame| frame.hidden) {
            // Within a payload there is no header that could be refused.
            let _ = self.cutter.cut(bytes, usize::MAX);
            self.end_frame();
        }
    }

    /// The payload of the present frame that is at the front of these bytes.
    pub(crate) fn payload<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        if self.frame.is_none() {
            return &[];
        }
        &bytes[..self.cutter.remaining().min(bytes.len())]
    }

    /// The frame that the wrapped side is at: all of it has not been written.
    pub(crate) fn unwritten(&self) -> Option<Header> {
        self.frame.map(|frame| frame.header)
    }

    /// Whether something waits that can be written without more bytes of the wrapped side.
    pub(crate) fn has_own(&self, begin: Begin) -> bool {
        self.front_written < self.front.len()
            || (self.has_control() && self.is_between_frames())
            || !self.head(begin).is_empty()
    }

    /// What to offer to the stream: PING and PONG first, then the header, then this payload.
    pub(crate) fn slices<'a>(&'a mut self, payload: &'a [u8], begin: Begin) -> [IoSlice<'a>; 3] {
        if self.front_written == self.front.len() {
            self.front.clear();
            self.front_written = 0;
            if self.is_between_frames() {
                self.fill_front();
            }
        }
        let front = &self.front[self.front_written..];
        // RFC KA-14: a PONG that came to wait while the front was stuck goes ahead of a frame that
        // has not begun. It is not put behind the front, which a flood of PINGs would lengthen.
        let (head, payload) = if self.has_control() && self.is_between_frames() {
            (&[][..], &[][..])
        } else {
            (self.head(begin), payload)
        };
        [front, head, payload].map(IoSlice::new)
    }

    /// What can be written of the present frame's header.
    fn head(&self, begin: Begin) -> &[u8] {
        match &self.frame {
            Some(frame) if frame.hidden => &[],
            Some(frame) => {
                let whole = self.cutter.remaining() == 0;
                let begins = frame.written > 0 || whole || begin == Begin::Now;
                if begins {
                    &frame.head[frame.written..]
                } else {
                    &[]
                }
            }
            None => &[],
        }
    }

    fn fill_front(&mut self) {
        if let Some(reply) = self.reply.take() {
            let pong = pong(reply.stream_id, Flags::NONE, &reply.payload);
            self.front.extend_from_slice(&pong);
        }
        if let Some(number) = self.ping.take() {
            self.front.extend_from_slice(&ping(number));
            self.front_has_ping = true;
        }
    }

    /// Notes how many bytes of [`slices`](Self::slices) the stream took.
    pub(crate) fn advance(&mut self, count: usize, payload: &[u8]) -> Taken {
        let mut count = count;
        let mut taken = Taken::default();
        let front = count.min(self.front.len() - self.front_written);
        self.front_written += front;
        taken.control = front > 0;
        count -= front;
        if self.front_has_ping && self.front_written == self.front.len() {
            self.front_has_ping = false;
            taken.ping = true;
        }
        if let Some(frame) = &mut self.frame {
            let head = count.min(HEADER_LENGTH - frame.written);
            frame.written += head;
            count -= head;
        }
        taken.payload = count.min(payload.len());
        // As in `drop_hidden`.
        let _ = self.cutter.cut(&mut &payload[..taken.payload], usize::MAX);
        self.end_frame();
        taken
    }

    /// The wrapped side writes no more. A header that it did not complete goes out as it is, so
    /// that a stream which it has torn looks torn to the peer.
    pub(crate) fn close(&mut self) {
        if self.closed {
            return;
        }
        if self.is_between_frames() {
            self.fill_front();
        }
        self.closed = true;
        self.front.extend_from_slice(self.cutter.partial_header());
    }

    fn has_control(&self) -> bool {
        !self.reply.is_empty() || self.ping.is_some()
    }

    /// RFC KA-15: not inside a frame.
    fn is_between_frames(&self) -> bool {
        !self.closed && self.frame.is_none_or(|frame| frame.written == 0)
    }

    fn end_frame(&mut self) {
        let ended = self.frame.is_some_and(|frame| {
            self.cutter.remaining() == 0 && (frame.hidden || frame.written == HEADER_LENGTH)
        });
        if ended {
            self.frame = None;
        }
    }
}
