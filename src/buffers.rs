//! Buffers of frames, used again.
//!
//! Memory that is fresh from the operating system costs a page fault for every 4 KiB, which is more
//! than copying into it; an allocator that gives large pieces back each time makes every frame pay
//! that. Pieces of a few KiB cost it a search. The invariant: what is kept has a bound for each
//! thread and for the whole process, whatever the number of connections, so an idle one holds
//! nothing.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use crate::tuning::{
    BUFFERS_TRIED, KEPT_LARGE_BYTES, KEPT_MEDIUM_BYTES, LARGE_BUFFER, MEDIUM_BUFFER,
};
use bytes::{Buf, Bytes, BytesMut};

static LARGE_ONES: Mutex<Spare> = Mutex::new(Spare::new(KEPT_LARGE_BYTES));

thread_local! {
    static MEDIUM_ONES: RefCell<Spare> = const { RefCell::new(Spare::new(KEPT_MEDIUM_BYTES)) };
}

/// Empty buffers, the oldest in front.
#[derive(Debug)]
struct Spare {
    buffers: VecDeque<Vec<u8>>,
    bytes: usize,
    limit: usize,
}

/// An empty buffer with room for `size` bytes.
pub(crate) fn take(size: usize) -> Vec<u8> {
    spare(size).unwrap_or_else(|| Vec::with_capacity(size))
}

/// One that was kept.
fn spare(size: usize) -> Option<Vec<u8>> {
    if size <= MEDIUM_BUFFER {
        None
    } else if size <= LARGE_BUFFER {
        MEDIUM_ONES.with_borrow_mut(|spare| spare.take(size))
    } else {
        lock(|spare| spare.take(size))
    }
}

/// An empty buffer to read `size` bytes into.
pub(crate) fn take_mut(size: usize) -> BytesMut {
    into_mut(take(size))
}

/// The same, if one was kept.
pub(crate) fn spare_mut(size: usize) -> Option<BytesMut> {
    spare(size).map(into_mut)
}

fn into_mut(buffer: Vec<u8>) -> BytesMut {
    match Bytes::from(buffer).try_into_mut() {
        Ok(buffer) => buffer,
        // It was made just now, so nobody else has it.
        Err(shared) => BytesMut::from(&shared[..]),
    }
}

/// Keeps a buffer that was read into.
pub(crate) fn give_mut(buffer: BytesMut) {
    give_bytes(buffer.freeze());
}

/// Keeps a buffer that is done with.
pub(crate) fn give(mut buffer: Vec<u8>) {
    buffer.clear();
    if buffer.capacity() > LARGE_BUFFER {
        lock(|spare| spare.give(buffer));
    } else if buffer.capacity() > MEDIUM_BUFFER {
        MEDIUM_ONES.with_borrow_mut(|spare| spare.give(buffer));
    }
}

/// Keeps the memory of bytes that are done with, unless somebody else still reads them.
pub(crate) fn give_bytes(mut bytes: Bytes) {
    if bytes.len() > MEDIUM_BUFFER && bytes.is_unique() {
        // Or what is left of a frame would be moved to its front.
        bytes.advance(bytes.len());
        give(bytes.into());
    }
}

/// Both critical sections leave the list as it should be, so a panic elsewhere has broken nothing.
fn lock<R>(run: impl FnOnce(&mut Spare) -> R) -> R {
    run(&mut LARGE_ONES.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Spare {
    const fn new(limit: usize) -> Self {
        Self {
            buffers: VecDeque::new(),
            bytes: 0,
            limit,
        }
    }

    /// A buffer that is large enough, and not so large that a small frame would keep it busy.
    fn take(&mut self, size: usize) -> Option<Vec<u8>> {
        let fits = size..=size.saturating_mul(2);
        // Frames of one size come and go in turn, and then it is the newest.
        let last = self.buffers.pop_back()?;
        if fits.contains(&last.capacity()) {
            self.bytes -= last.capacity();
            return Some(last);
        }
        self.buffers.push_back(last);
        let mut newest = self.buffers.iter().rev().take(BUFFERS_TRIED);
        let from_end = newest.position(|buffer| fits.contains(&buffer.capacity()))?;
        let buffer = self.buffers.remove(self.buffers.len() - 1 - from_end)?;
        self.bytes -= buffer.capacity();
        Some(buffer)
    }

    fn give(&mut self, buffer: Vec<u8>) {
        if buffer.capacity() > self.limit {
            return;
        }
        self.bytes += buffer.capacity();
        self.buffers.push_back(buffer);
        // The oldest go first, so that what is kept follows the sizes in use.
        while self.bytes > self.limit {
            match self.buffers.pop_front() {
                Some(oldest) => self.bytes -= oldest.capacity(),
                None => self.bytes = 0,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded_and_follows_the_sizes_in_use() {
        let mut spare = Spare::new(KEPT_LARGE_BYTES);
        for _ in 0..1000 {
            spare.give(Vec::with_capacity(64 << 10));
        }
        assert!(spare.bytes <= KEPT_LARGE_BYTES);
        assert_eq!(spare.buffers.len(), KEPT_LARGE_BYTES / (64 << 10));
        for _ in 0..8 {
            spare.give(Vec::with_capacity(1 << 20));
        }
        assert!(spare.take(1 << 20).is_some());
        assert!(spare.take(64 << 10).is_none());
    }

    #[test]
    fn a_buffer_is_given_only_where_it_fits() {
        let mut spare = Spare::new(KEPT_LARGE_BYTES);
        spare.give(Vec::with_capacity(100_000));
        assert!(spare.take(100_001).is_none(), "too small");
        assert!(spare.take(40_000).is_none(), "far too large");
        assert_eq!(
            spare.take(60_000).map(|buffer| buffer.capacity()),
            Some(100_000)
        );
        assert_eq!((spare.bytes, spare.buffers.len()), (0, 0));
    }

    #[test]
    fn memory_that_is_still_read_is_not_used_again() {
        let bytes = Bytes::from(vec![7; 1 << 20]);
        let reader = bytes.slice(5..10);
        give_bytes(bytes);
        let mut other = take(1 << 20);
        other.resize(1 << 20, 1);
        assert_eq!(&reader[..], [7; 5]);
    }

    #[test]
    fn a_slice_gives_the_whole_buffer_back() {
        let mut bytes = Bytes::from(vec![7; 333_333]);
        let payload = bytes.split_off(100_000);
        drop(bytes);
        give_bytes(payload);
        let buffer = take_mut(333_333);
        assert!(buffer.is_empty() && buffer.capacity() >= 333_333);
    }

    #[test]
    fn a_thread_keeps_medium_buffers_and_no_small_ones() {
        for (size, kept) in [
            (MEDIUM_BUFFER, false),
            (MEDIUM_BUFFER + 1, true),
            (LARGE_BUFFER, true),
        ] {
            let buffer = Vec::with_capacity(size);
            let place = buffer.as_ptr();
            give(buffer);
            let found = MEDIUM_ONES.with_borrow_mut(|spare| spare.take(size));
            assert_eq!(found.map(|buffer| buffer.as_ptr()), kept.then_some(place));
        }
    }
}
