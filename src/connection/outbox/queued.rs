//! One entry of the outbox: a frame, or several of one stream that are joined.

use crate::error::Unsent;
use crate::keepalive::Reply;
use crate::tuning::{JOINED_BYTES, JOINED_MESSAGE};
use crate::wire::{HEADER_LENGTH, Header};

#[derive(Debug)]
pub(super) struct Queued {
    pub(super) kind: Kind,
    /// Frames of streams are numbered in their order, from 1 on.
    pub(super) number: u64,
    /// One frame, or several of data that are joined.
    pub(super) frame: Vec<u8>,
    pub(super) written: usize,
}

#[derive(Debug)]
pub(super) enum Kind {
    /// A request or an answer.
    Call,
    /// A message or a half-close. `previous` is the number of the stream's frame before it: by these
    /// links the data of one stream is taken back without a search among all others.
    Data {
        stream_id: u32,
        previous: u64,
    },
    Ping(u64),
    Pong(Reply),
    /// Taken back. It keeps its place, or those behind it would have to move.
    Withdrawn,
}

impl Queued {
    pub(super) fn new(kind: Kind, number: u64, frame: Vec<u8>) -> Self {
        Self {
            kind,
            number,
            frame,
            written: 0,
        }
    }

    pub(super) fn unwritten(&self) -> &[u8] {
        &self.frame[self.written..]
    }

    pub(super) fn is_withdrawn(&self) -> bool {
        matches!(self.kind, Kind::Withdrawn)
    }

    /// Whether a message may be joined to those that are here.
    pub(super) fn joins(&self, stream: u32, frame: &[u8]) -> bool {
        matches!(self.kind, Kind::Data { stream_id, .. } if stream_id == stream)
            && frame.len() <= JOINED_MESSAGE
            && self.frame.len() + frame.len() <= JOINED_BYTES
    }

    /// Its frames that are not written whole.
    pub(super) fn unsent(&self) -> Unsent {
        let frames = match self.kind {
            Kind::Call => 1,
            Kind::Data { .. } => {
                let ends = frame_ends(&self.frame);
                ends.filter(|end| *end > self.written).count()
            }
            Kind::Ping(_) | Kind::Pong(_) | Kind::Withdrawn => return Unsent::default(),
        };
        Unsent {
            frames,
            bytes: self.unwritten().len(),
        }
    }

    /// Takes off the frames of which nothing is written, if there are any.
    pub(super) fn split_unbegun(&mut self) -> Option<Self> {
        let Kind::Data {
            stream_id,
            previous,
        } = self.kind
        else {
            return None;
        };
        let end = match self.written {
            0 => 0,
            written => frame_ends(&self.frame).find(|end| *end >= written)?,
        };
        (end < self.frame.len()).then(|| {
            let kind = Kind::Data {
                stream_id,
                previous,
            };
            Self::new(kind, self.number, self.frame.split_off(end))
        })
    }
}

/// Where each of the frames ends that are joined in here.
fn frame_ends(joined: &[u8]) -> impl Iterator<Item = usize> {
    let mut end = 0;
    std::iter::from_fn(move || {
        let header = joined.get(end..)?.first_chunk()?;
        end += HEADER_LENGTH + Header::decode(header).payload_length();
        Some(end)
    })
}
