//! Frames that wait to be written, and the rules of their order.
//!
//! The invariant: a writer takes a batch with [`Outbox::begin`] and returns what is left of it with
//! [`Outbox::end`], so that a frame that has begun is finished before any other byte, a PONG and a
//! PING go next, and all else follows in the order in which it was queued (law 6).

mod batch;
mod queued;

use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

use bytes::Bytes;

pub(super) use self::batch::Batch;
use self::queued::{Kind, Queued};

use crate::error::Unsent;
use crate::keepalive::{ReplySlot, Writes};
use crate::tuning::{BATCH_BYTES, BATCH_FRAMES, FRAME_OVERHEAD, KEPT_ENTRIES, WRITE_OVERHEAD};
use crate::wire::{Flags, ping, pong};

/// How far a frame has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing of it is written.
    Unsent,
    /// It is in a batch that is being written: nobody knows yet.
    Out,
    Begun,
    Written,
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
    /// The stream cannot pass on what it holds back.
    holds: bool,
    ping: Option<u64>,
    newest_ping: Option<u64>,
    /// The PING in the batch that is out, until its PONG has come: that may be before the batch is back.
    ping_out: Option<u64>,
    /// A PING that was written to a stream which may hold it back.
    unflushed_ping: Option<u64>,
    /// Their numbers follow one another, so each is found by its number.
    frames: VecDeque<Queued>,
    /// The number of the newest frame of a stream.
    newest: u64,
    /// Unwritten bytes of streams' frames, those on their way included, and the overhead of each.
    bytes: usize,
    /// Those of them that are stream data.
    data_bytes: usize,
    /// The first number of the batch that is out. Two writers would tear each other's frames.
    out: Option<u64>,
    /// An emptied batch, kept so that the next one takes no memory.
    spare: VecDeque<Queued>,
    writes: Writes,
    /// What was taken in all, at the least that it counts for until it is read.
    written: u64,
}

impl Outbox {
    /// Appends a frame that opens or ends a stream. Returns its number.
    pub(super) fn push(&mut self, frame: Vec<u8>) -> u64 {
        self.append(Kind::Call, frame)
    }

    /// Appends a message of a stream whose frame before it is `previous`, and leaves its buffer
    /// empty. Returns its number.
    pub(super) fn push_data(&mut self, stream_id: u32, previous: u64, frame: &mut Vec<u8>) -> u64 {
        if let Some(last) = self
            .frames
            .back_mut()
            .filter(|last| last.joins(stream_id, frame))
        {
            self.bytes = self.bytes.saturating_add(frame.len());
            self.data_bytes = self.data_bytes.saturating_add(frame.len());
            last.frame.append(frame);
            return last.number;
        }
        self.data_bytes = self.data_bytes.saturating_add(frame.len() + FRAME_OVERHEAD);
        let kind = Kind::Data {
            stream_id,
            previous,
        };
        self.append(kind, mem::take(frame))
    }

    fn append(&mut self, kind: Kind, frame: Vec<u8>) -> u64 {
        self.bytes = self.bytes.saturating_add(frame.len() + FRAME_OVERHEAD);
        self.newest += 1;
        self.frames.push_back(Queued::new(kind, self.newest, frame));
        self.newest
    }

    /// Keeps the answer to a PING. Returns whether it replaced an older one.
    pub(super) fn reply(&mut self, stream_id: u32, payload: Bytes, flags: Flags) -> bool {
        self.pong_flags = flags;
        self.replies.put(stream_id, payload)
    }

    pub(super) fn set_ping(&mut self, number: u64) {
        self.ping = Some(number);
        self.newest_ping = Some(number);
    }

    /// Whether the newest PING has this number.
    pub(super) fn has_sent_ping(&self, number: u64) -> bool {
        self.newest_ping == Some(number) && self.ping != Some(number)
    }

    /// The number of the PING that may not have left yet.
    pub(super) fn unflushed_ping(&self) -> Option<u64> {
        self.unflushed_ping
    }

    /// Its PONG has come. Returns whether it was not known to have left: the stream may hold back
    /// later bytes, and the writer of a batch is the last to learn that it is written.
    pub(super) fn answer_ping(&mut self, number: u64) -> bool {
        let mut pings = [&mut self.ping_out, &mut self.unflushed_ping].into_iter();
        pings.any(|ping| ping.take_if(|ping| *ping == number).is_some())
    }

    /// It has left. Returns whether there was one.
    pub(super) fn take_unflushed_ping(&mut self) -> bool {
        self.unflushed_ping.take().is_some()
    }

    pub(super) fn progress(&self, number: u64) -> Progress {
        if number >= self.first_queued() {
            Progress::Unsent
        } else if self.out.is_some_and(|first| number >= first) {
            Progress::Out
        } else if self
            .begun
            .as_ref()
            .is_some_and(|begun| begun.number == number)
        {
            Progress::Begun
        } else {
            Progress::Written
        }
    }

    /// Takes back a frame of which nothing is written, if that is so (law 6).
    pub(super) fn take_back(&mut self, number: u64) -> Option<Vec<u8>> {
        let frame = self.withdraw(number)?;
        self.trim();
        Some(frame)
    }

    /// Takes back the data of a stream of which nothing is written. `newest` is the number of the
    /// stream's last frame.
    pub(super) fn take_back_data(&mut self, newest: u64, mut free: impl FnMut(Vec<u8>)) {
        let mut number = newest;
        while let Some(&Kind::Data { previous, .. }) = self.find(number).map(|found| &found.kind) {
            if let Some(frame) = self.withdraw(number) {
                self.data_bytes -= frame.len() + FRAME_OVERHEAD;
                free(frame);
            }
            number = previous;
        }
        self.trim();
    }

    /// Takes the same time however many frames wait (law 2).
    fn withdraw(&mut self, number: u64) -> Option<Vec<u8>> {
        let queued = self.find(number).filter(|queued| !queued.is_withdrawn())?;
        queued.kind = Kind::Withdrawn;
        let frame = mem::take(&mut queued.frame);
        self.bytes -= frame.len() + FRAME_OVERHEAD;
        Some(frame)
    }

    fn find(&mut self, number: u64) -> Option<&mut Queued> {
        let at = number.checked_sub(self.first_queued())?;
        self.frames.get_mut(usize::try_from(at).ok()?)
    }

    /// The places of withdrawn frames go when nothing is in front of them. Not while a batch is out,
    /// which may come back there.
    fn trim(&mut self) {
        while self.out.is_none() && self.frames.front().is_some_and(Queued::is_withdrawn) {
            self.frames.pop_front();
        }
    }

    fn first_queued(&self) -> u64 {
        self.frames
            .front()
            .map_or(self.newest + 1, |first| first.number)
    }

    /// Frames with lower numbers have left, or were taken back.
    pub(super) fn first_unwritten(&self) -> u64 {
        let begun = self.begun.as_ref().map(|begun| begun.number);
        self.out.or(begun).unwrap_or_else(|| self.first_queued())
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
        self.out.is_none() && self.has_nothing_to_write()
    }

    /// Whether a write has something to do, and nobody is at it.
    pub(super) fn is_ready(&self) -> bool {
        self.out.is_none() && !self.has_nothing_to_write()
    }

    /// Whether somebody is writing.
    pub(super) fn is_out(&self) -> bool {
        self.out.is_some()
    }

    fn has_nothing_to_write(&self) -> bool {
        self.begun.is_none()
            && self.frames.is_empty()
            && self.ping.is_none()
            && self.replies.is_empty()
    }

    /// Frames of streams that are not written whole, and their bytes.
    pub(super) fn unsent(&self) -> Unsent {
        let queued = self.begun.iter().chain(&self.frames);
        queued.fold(Unsent::default(), |sum, queued| sum.plus(queued.unsent()))
    }

    /// When the kernel was last offered something, and when it last took some.
    pub(super) fn writes(&self) -> Writes {
        self.writes
    }

    /// The stream was asked to pass on what it holds back, and has done so or not.
    pub(super) fn handle_flush(&mut self, now: Duration, is_flushed: bool) {
        self.writes.offered = Some(now);
        self.holds = !is_flushed;
        if is_flushed {
            self.writes.taken = Some(now);
        }
    }

    /// Whether the stream holds back bytes that it took.
    pub(super) fn holds(&self) -> bool {
        self.holds
    }

    /// What was taken in all, as [`Unread::Known`](crate::keepalive::Unread::Known) counts. A batch that
    /// is out is not among it.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Takes what is to be written next. `None` if there is nothing, or somebody is writing.
    pub(super) fn begin(&mut self) -> Option<Batch> {
        if !self.is_ready() {
            return None;
        }
        self.out = Some(self.first_unwritten());
        let mut frames = mem::take(&mut self.spare);
        let begun = self.begun.take();
        let has_begun = begun.is_some();
        if let Some(begun) = begun {
            if let Kind::Ping(number) = begun.kind {
                self.ping_out = Some(number);
            }
            frames.push_back(begun);
        }
        // In front of every frame that has not begun: the order by which a client learns that
        // its peer knows PING (RFC KA-14, KA-15).
        if let Some(reply) = self.replies.take() {
            let frame = pong(reply.stream_id, self.pong_flags, &reply.payload);
            frames.push_back(Queued::new(Kind::Pong(reply), 0, frame));
        }
        if let Some(number) = self.ping.take() {
            self.ping_out = Some(number);
            frames.push_back(Queued::new(Kind::Ping(number), 0, ping(number).to_vec()));
        }
        let mut bytes = 0;
        while frames.len() < BATCH_FRAMES && bytes < BATCH_BYTES {
            // Not across the place of a withdrawn frame: what comes back must fit in front again.
            if self.frames.front().is_none_or(Queued::is_withdrawn) {
                break;
            }
            let Some(queued) = self.frames.pop_front() else {
                break;
            };
            bytes += queued.unwritten().len();
            frames.push_back(queued);
        }
        Some(Batch {
            frames,
            begun: has_begun,
            taken: 0,
            taken_of_streams: 0,
            taken_of_data: 0,
            written_ping: None,
        })
    }

    /// Brings a batch back. A frame that has begun stays in front; the rest returns to its place,
    /// which is behind a PONG or PING that came meanwhile.
    pub(super) fn end(&mut self, mut batch: Batch, now: Duration) {
        self.out = None;
        self.bytes = self.bytes.saturating_sub(batch.taken_of_streams);
        self.data_bytes = self.data_bytes.saturating_sub(batch.taken_of_data);
        self.writes.offered = Some(now);
        // What is only held back with the rest has not been taken by anybody.
        if batch.taken > 0 && !self.holds {
            self.writes.taken = Some(now);
        }
        if batch.taken > 0 {
            let bytes = u64::try_from(batch.taken).unwrap_or(u64::MAX);
            let least = bytes.saturating_add(WRITE_OVERHEAD);
            self.written = self.written.saturating_add(least);
        }
        let unanswered = self.ping_out.take().and(batch.written_ping);
        self.unflushed_ping = unanswered.or(self.unflushed_ping);
        let mut begun = if batch.begun {
            batch.frames.pop_front()
        } else {
            None
        };
        let unbegun = begun.as_mut().and_then(Queued::split_unbegun);
        self.begun = begun.filter(|begun| !begun.unwritten().is_empty());
        if self.begun.is_some() && unbegun.is_some() {
            // There are two now.
            self.bytes += FRAME_OVERHEAD;
            self.data_bytes += FRAME_OVERHEAD;
        }
        while let Some(queued) = batch.frames.pop_back() {
            match queued.kind {
                Kind::Ping(number) => self.ping = self.ping.or(Some(number)),
                Kind::Pong(reply) if self.replies.is_empty() => {
                    self.replies.put(reply.stream_id, reply.payload);
                }
                Kind::Pong(_) => {}
                Kind::Call | Kind::Data { .. } | Kind::Withdrawn => self.frames.push_front(queued),
            }
        }
        if let Some(queued) = unbegun {
            self.frames.push_front(queued);
        }
        self.spare = batch.frames;
        self.trim();
    }

    /// Gives back memory that a burst has left.
    pub(super) fn shrink(&mut self) {
        if self.is_empty() && self.frames.capacity() > KEPT_ENTRIES {
            self.frames = VecDeque::new();
        }
    }

    /// Lets go of everything: the connection has ended. A batch that is out may still come back.
    pub(super) fn clear(&mut self) -> Self {
        let out = self.out;
        mem::replace(
            self,
            Self {
                out,
                ..Self::default()
            },
        )
    }
}

#[cfg(test)]
mod tests;
