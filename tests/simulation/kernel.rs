//! What the kernel of a writer counts as unread, and a reader that knows no PING.

use std::collections::VecDeque;

use ttrpc_keepalive::wire::{HEADER_LENGTH, Header, MessageType};

/// Buffers in the queue of a reader, as Linux counts them against their writer.
#[derive(Default)]
pub(crate) struct Kernel {
    buffers: VecDeque<Buffer>,
    last_read: u64,
}

struct Buffer {
    written_at: u64,
    unread: usize,
    size: usize,
}

impl Kernel {
    pub(crate) fn write(&mut self, now: u64, bytes: usize) {
        self.buffers.push_back(Buffer {
            written_at: now,
            unread: bytes,
            size: 768 + bytes / 256 * 256,
        });
    }

    /// A buffer counts until its last byte is read.
    pub(crate) fn read(&mut self, now: u64, mut bytes: usize) {
        while let Some(first) = self.buffers.front_mut().filter(|_| bytes > 0) {
            let of_first = bytes.min(first.unread);
            first.unread -= of_first;
            bytes -= of_first;
            self.last_read = now;
            if first.unread == 0 {
                self.buffers.pop_front();
            }
        }
    }

    pub(crate) fn held(&self) -> usize {
        self.buffers.iter().map(|buffer| buffer.size).sum()
    }

    pub(crate) fn last_read(&self) -> u64 {
        self.last_read
    }

    /// Since when something is unread and nobody has read anything.
    pub(crate) fn waits_since(&self) -> Option<u64> {
        let first = self.buffers.front()?;
        Some(first.written_at.max(self.last_read))
    }
}

/// Takes PINGs out of what a process reads that knows none.
#[derive(Default)]
pub(crate) struct Deaf {
    header: Vec<u8>,
    left: usize,
    drops: bool,
}

impl Deaf {
    /// What is left of these bytes. The bytes of a header are held back until it is whole.
    pub(crate) fn hear(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut heard = Vec::new();
        for &byte in bytes {
            if self.left > 0 {
                self.left -= 1;
                if !self.drops {
                    heard.push(byte);
                }
                continue;
            }
            self.header.push(byte);
            if let Ok(header) = <&[u8; HEADER_LENGTH]>::try_from(&self.header[..]) {
                let read = Header::decode(header);
                self.drops = read.message_type == MessageType::PING;
                self.left = usize::try_from(read.length).unwrap_or_default();
                if !self.drops {
                    heard.extend(&self.header);
                }
                self.header.clear();
            }
        }
        heard
    }
}
