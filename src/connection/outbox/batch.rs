//! What is being written, and how far that has come.

use std::collections::VecDeque;
use std::io::IoSlice;

use super::queued::{Kind, Queued};
use crate::buffers;
use crate::tuning::{BATCH_FRAMES, FRAME_OVERHEAD};

/// Frames taken out of the outbox by the one who writes them.
#[derive(Debug)]
pub(in crate::connection) struct Batch {
    pub(super) frames: VecDeque<Queued>,
    /// Whether some bytes of the frame in front are written.
    pub(super) begun: bool,
    /// Bytes that were taken in all, and those of them that belong to streams.
    pub(super) taken: usize,
    pub(super) taken_of_streams: usize,
    pub(super) taken_of_data: usize,
    pub(super) written_ping: Option<u64>,
}

impl Batch {
    /// The bytes to write, by `write`, in one go.
    pub(in crate::connection) fn write<R>(&self, write: impl FnOnce(&[IoSlice<'_>]) -> R) -> R {
        // One frame is written most often, and needs no list.
        if self.frames.len() == 1 {
            return write(&[IoSlice::new(self.front())]);
        }
        let mut slices = [IoSlice::new(&[]); BATCH_FRAMES];
        let mut count = 0;
        for (slice, queued) in slices.iter_mut().zip(&self.frames) {
            *slice = IoSlice::new(queued.unwritten());
            count += 1;
        }
        write(&slices[..count])
    }

    /// The bytes of the frame in front.
    pub(in crate::connection) fn front(&self) -> &[u8] {
        self.frames.front().map_or(&[], Queued::unwritten)
    }

    /// So many bytes from the front were taken.
    pub(in crate::connection) fn advance(&mut self, mut taken: usize) {
        self.taken += taken;
        while let Some(queued) = self.frames.front_mut() {
            let of_frame = taken.min(queued.unwritten().len());
            queued.written += of_frame;
            taken -= of_frame;
            let is_whole = queued.unwritten().is_empty();
            let counted = of_frame + if is_whole { FRAME_OVERHEAD } else { 0 };
            match queued.kind {
                Kind::Call => self.taken_of_streams += counted,
                Kind::Data { .. } => {
                    self.taken_of_streams += counted;
                    self.taken_of_data += counted;
                }
                Kind::Ping(_) | Kind::Pong(_) | Kind::Withdrawn => {}
            }
            if !is_whole {
                self.begun |= of_frame > 0;
                return;
            }
            if let Kind::Ping(number) = queued.kind {
                self.written_ping = Some(number);
            }
            self.begun = false;
            if let Some(written) = self.frames.pop_front() {
                buffers::give(written.frame);
            }
        }
    }
}
