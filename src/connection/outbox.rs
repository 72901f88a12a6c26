//! Frames that wait to be written, and the rules of their order.
//!
//! The invariant: whoever writes takes its frames by [`Outbox::begin`] and brings back what is
//! left by [`Outbox::end`], so that a frame that has begun is finished before any other byte, a
//! PONG and a PING go next, and data follows in the order in which it was queued.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::mem;
use std::time::Duration;

use bytes::Bytes;

use super::sending::Sending;
use crate::buffers;
use crate::keepalive::{Reply, ReplySlot};
use crate::wire::{Flags, HEADER_LENGTH, Header, ping, pong};

/// Frames in one write: enough that the cost of a system call is small for each, few enough that
/// their slices stay on the stack.
const SLICES: usize = 64;

/// Bytes in one write, about: beyond it a larger batch saves nothing and only puts off the next
/// look at what has come in.
const BATCH_BYTES: usize = 256 << 10;

/// What a frame takes beside its bytes, about. Counted, or a limit in bytes would let ten times as
/// much memory wait in frames of ten bytes.
const OVERHEAD: usize = 64;

/// A message up to this size is copied behind the one before it, if that is of the same stream:
/// cheaper than a buffer of its own, and than a piece of its own in a write.
const SMALL: usize = 1 << 10;

/// Bytes of messages that are joined, at most.
const JOINED: usize = 16 << 10;

#[derive(Debug)]
struct Queued {
    kind: Kind,
    /// Streams' frames are numbered in their order, from 1 on.
    number: u64,
    /// One frame, or several of data that are joined.
    frame: Vec<u8>,
    /// Bytes of it that are written.
    written: usize,
}

#[derive(Debug)]
enum Kind {
    /// A request or an answer of this stream.
    Stream(u32),
    /// A message on this stream, or a half-close.
    Data(u32),
    Ping(u64),
    Pong(Reply),
}

impl Queued {
    fn new(kind: Kind, frame: Vec<u8>) -> Self {
        Self {
            kind,
            number: 0,
            frame,
            written: 0,
        }
    }

    fn unwritten(&self) -> &[u8] {
        &self.frame[self.written..]
    }

    /// Whether this frame may be joined to those that are here.
    fn joins(&self, stream_id: u32, frame: &[u8]) -> bool {
        matches!(self.kind, Kind::Data(id) if id == stream_id)
            && frame.len() <= SMALL
            && self.frame.len() + frame.len() <= JOINED
    }

    /// Takes off the frames of which nothing is written, if there are any.
    fn split_unbegun(&mut self) -> Option<Self> {
        let mut end = 0;
        while end < self.written {
            let header = self.frame[end..].first_chunk()?;
            end += HEADER_LENGTH + Header::decode(header).payload_length();
        }
        if end >= self.frame.len() {
            return None;
        }
        let Kind::Data(id) = self.kind else {
            return None;
        };
        Some(Self {
            number: self.number,
            ..Self::new(Kind::Data(id), self.frame.split_off(end))
        })
    }
}

/// Frames waiting to be written on one connection.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// A frame of which some bytes are written: what is left of it.
    begun: Option<Queued>,
    /// The one PONG that waits. One slot bounds a flood of PINGs by construction
    /// (RFC KA-16).
    replies: ReplySlot,
    /// The flags of that PONG.
    pong_flags: Flags,
    ping: Option<u64>,
    frames: VecDeque<Queued>,
    /// Frames of handles of which the rules have not heard. The rules may want a PING in front of
    /// one, or its call may have run out of time.
    arrived: VecDeque<Queued>,
    /// The number of the newest frame of a stream.
    newest: u64,
    /// Unwritten bytes of streams' frames, those on their way included, and the overhead of each.
    bytes: usize,
    /// Those of them that are stream data.
    data_bytes: usize,
    /// The streams that may still add data.
    pub(super) sending: Sending,
    /// Whether somebody holds a batch. Two writers would tear each other's frames.
    writing: bool,
    /// An emptied batch, kept so that the next one takes no memory.
    spare: VecDeque<Queued>,
    last_offer: Option<Duration>,
    last_taken: Option<Duration>,
}

/// Frames taken out of the outbox by the one who writes them.
#[derive(Debug)]
pub(super) struct Batch {
    frames: VecDeque<Queued>,
    /// Whether some bytes of the frame in front are written.
    begun: bool,
    /// Bytes that were taken in all, and those of them that belong to streams.
    taken: usize,
    taken_of_streams: usize,
    taken_of_data: usize,
    written_ping: bool,
}

impl Outbox {
    /// Appends a frame that opens or ends a stream. Returns its number.
    pub(super) fn push(&mut self, stream_id: u32, frame: Vec<u8>) -> u64 {
        let queued = self.queued(Kind::Stream(stream_id), frame);
        self.frames.push_back(queued);
        self.newest
    }

    /// Keeps a frame of a handle until [`Outbox::admit`]. Returns its number.
    pub(super) fn arrive(&mut self, stream_id: u32, frame: Vec<u8>) -> u64 {
        let queued = self.queued(Kind::Stream(stream_id), frame);
        self.arrived.push_back(queued);
        self.newest
    }

    /// Keeps a frame of data, behind the request that it follows, and leaves its buffer empty.
    /// Returns its number.
    pub(super) fn arrive_data(&mut self, stream_id: u32, frame: &mut Vec<u8>) -> u64 {
        if let Some(last) = self.arrived.back_mut() {
            if last.joins(stream_id, frame) {
                self.bytes = self.bytes.saturating_add(frame.len());
                self.data_bytes = self.data_bytes.saturating_add(frame.len());
                last.frame.append(frame);
                return last.number;
            }
        }
        self.data_bytes = self.data_bytes.saturating_add(frame.len() + OVERHEAD);
        let queued = self.queued(Kind::Data(stream_id), mem::take(frame));
        self.arrived.push_back(queued);
        self.newest
    }

    /// Appends what has arrived: the rules hear of it before anything is written.
    pub(super) fn admit(&mut self) {
        self.frames.append(&mut self.arrived);
    }

    /// Whether frames wait to be admitted.
    pub(super) fn has_arrived(&self) -> bool {
        !self.arrived.is_empty()
    }

    fn queued(&mut self, kind: Kind, frame: Vec<u8>) -> Queued {
        self.bytes = self.bytes.saturating_add(frame.len() + OVERHEAD);
        self.newest += 1;
        Queued {
            number: self.newest,
            ..Queued::new(kind, frame)
        }
    }

    /// Keeps the answer to a PING. Returns whether it replaced an older one.
    pub(super) fn reply(&mut self, stream_id: u32, payload: Bytes, flags: Flags) -> bool {
        self.pong_flags = flags;
        self.replies.put(stream_id, payload)
    }

    pub(super) fn set_ping(&mut self, number: u64) {
        self.ping = Some(number);
    }

    /// Takes back a frame of which nothing is written. `false` if there is no such frame.
    pub(super) fn remove(&mut self, stream_id: u32) -> bool {
        let Some(at) = self.position(stream_id) else {
            return false;
        };
        if let Some(queued) = self.frames.remove(at) {
            self.bytes -= queued.frame.len() + OVERHEAD;
        }
        true
    }

    /// Takes back the data of a stream of which nothing is written.
    pub(super) fn remove_data(&mut self, stream_id: u32) {
        let (bytes, data_bytes) = (&mut self.bytes, &mut self.data_bytes);
        let mut keep = |queued: &Queued| {
            let removed = matches!(queued.kind, Kind::Data(id) if id == stream_id);
            if removed {
                *bytes -= queued.frame.len() + OVERHEAD;
                *data_bytes -= queued.frame.len() + OVERHEAD;
            }
            !removed
        };
        self.frames.retain(&mut keep);
        self.arrived.retain(&mut keep);
    }

    /// A client's frames with lower numbers have left, or were taken back. (A server's driver puts
    /// answers in front of what has arrived.)
    pub(super) fn first_unwritten(&self) -> u64 {
        let begun = self.begun.as_ref();
        let first = begun.or_else(|| self.frames.front());
        let first = first.or_else(|| self.arrived.front());
        first.map_or(self.newest + 1, |queued| queued.number)
    }

    /// Whether a byte of this stream's frame is still here.
    pub(super) fn holds(&self, stream_id: u32) -> bool {
        self.position(stream_id).is_some()
            || matches!(&self.begun, Some(Queued { kind: Kind::Stream(id), .. }) if *id == stream_id)
    }

    fn position(&self, stream_id: u32) -> Option<usize> {
        self.frames
            .iter()
            .position(|queued| matches!(queued.kind, Kind::Stream(id) if id == stream_id))
    }

    /// Unwritten bytes of streams' frames.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Unwritten bytes of requests and answers. Stream data is not among them: it waits in its
    /// senders.
    pub(super) fn owed_bytes(&self) -> usize {
        self.bytes - self.data_bytes
    }

    /// Whether nothing waits and nothing is on its way: a batch that is out may come back.
    pub(super) fn is_empty(&self) -> bool {
        !self.writing && self.arrived.is_empty() && self.has_nothing_to_write()
    }

    fn has_nothing_to_write(&self) -> bool {
        self.begun.is_none()
            && self.frames.is_empty()
            && self.ping.is_none()
            && self.replies.is_empty()
    }

    /// Whether the kernel was last offered something at `since` or later, and whether it then
    /// took some of it.
    pub(super) fn offered_and_taken_since(&self, since: Duration) -> (bool, bool) {
        let not_before = |at: Option<Duration>| at.is_some_and(|at| at >= since);
        (not_before(self.last_offer), not_before(self.last_taken))
    }

    /// Takes what is to be written next. `None` if there is nothing, or somebody is writing.
    pub(super) fn begin(&mut self) -> Option<Batch> {
        if self.writing || self.has_nothing_to_write() {
            return None;
        }
        let mut frames = mem::take(&mut self.spare);
        let begun = self.begun.is_some();
        frames.extend(self.begun.take());
        // In front of every frame that has not begun: the order by which a client learns that
        // its peer knows PING (RFC KA-14, KA-15).
        if let Some(reply) = self.replies.take() {
            let frame = pong(reply.stream_id, self.pong_flags, &reply.payload);
            frames.push_back(Queued::new(Kind::Pong(reply), frame));
        }
        if let Some(number) = self.ping.take() {
            frames.push_back(Queued::new(Kind::Ping(number), ping(number).to_vec()));
        }
        let mut bytes = 0;
        while frames.len() < SLICES && bytes < BATCH_BYTES {
            let Some(queued) = self.frames.pop_front() else {
                break;
            };
            bytes += queued.unwritten().len();
            frames.push_back(queued);
        }
        self.writing = true;
        Some(Batch {
            frames,
            begun,
            taken: 0,
            taken_of_streams: 0,
            taken_of_data: 0,
            written_ping: false,
        })
    }

    /// Brings a batch back. A frame that has begun stays in front; the rest returns to its place,
    /// which is behind a PONG or PING that came meanwhile. Returns whether the PING was written.
    pub(super) fn end(&mut self, mut batch: Batch, now: Duration) -> bool {
        self.writing = false;
        self.bytes = self.bytes.saturating_sub(batch.taken_of_streams);
        self.data_bytes = self.data_bytes.saturating_sub(batch.taken_of_data);
        self.last_offer = Some(now);
        if batch.taken > 0 {
            self.last_taken = Some(now);
        }
        let mut begun = if batch.begun {
            batch.frames.pop_front()
        } else {
            None
        };
        let unbegun = begun.as_mut().and_then(Queued::split_unbegun);
        self.begun = begun.filter(|begun| !begun.unwritten().is_empty());
        if self.begun.is_some() && unbegun.is_some() {
            // There are two now.
            self.bytes += OVERHEAD;
            self.data_bytes += OVERHEAD;
        }
        while let Some(queued) = batch.frames.pop_back() {
            match queued.kind {
                Kind::Stream(_) | Kind::Data(_) => self.frames.push_front(queued),
                Kind::Ping(number) => self.ping = self.ping.or(Some(number)),
                Kind::Pong(reply) if self.replies.is_empty() => {
                    self.replies.put(reply.stream_id, reply.payload);
                }
                Kind::Pong(_) => {}
            }
        }
        if let Some(queued) = unbegun {
            self.frames.push_front(queued);
        }
        self.spare = batch.frames;
        let first_unwritten = self.first_unwritten();
        self.sending.forget(first_unwritten);
        batch.written_ping
    }

    /// Drops everything: the connection has ended.
    pub(super) fn clear(&mut self) {
        *self = Self {
            writing: self.writing,
            ..Self::default()
        };
    }
}

impl Batch {
    /// The bytes to write, by `write`, in one go.
    pub(super) fn write<R>(&self, write: impl FnOnce(&[IoSlice<'_>]) -> R) -> R {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let mut count = 0;
        for (slice, queued) in slices.iter_mut().zip(&self.frames) {
            *slice = IoSlice::new(queued.unwritten());
            count += 1;
        }
        write(&slices[..count])
    }

    /// The bytes of the frame in front.
    pub(super) fn front(&self) -> &[u8] {
        self.frames.front().map_or(&[], Queued::unwritten)
    }

    /// So many bytes from the front were taken.
    pub(super) fn advance(&mut self, mut taken: usize) {
        self.taken += taken;
        while let Some(queued) = self.frames.front_mut() {
            let of_frame = taken.min(queued.unwritten().len());
            queued.written += of_frame;
            taken -= of_frame;
            let overhead = if queued.unwritten().is_empty() {
                OVERHEAD
            } else {
                0
            };
            match queued.kind {
                Kind::Stream(_) => self.taken_of_streams += of_frame + overhead,
                Kind::Data(_) => {
                    self.taken_of_streams += of_frame + overhead;
                    self.taken_of_data += of_frame + overhead;
                }
                Kind::Ping(_) | Kind::Pong(_) => {}
            }
            if !queued.unwritten().is_empty() {
                self.begun |= of_frame > 0;
                return;
            }
            self.written_ping |= matches!(queued.kind, Kind::Ping(_));
            self.begun = false;
            if let Some(written) = self.frames.pop_front() {
                buffers::give(written.frame);
            }
        }
    }
}

#[cfg(test)]
mod tests;
