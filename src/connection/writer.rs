//! From the outbox to the byte stream, and what the rules are told of it.

use std::io;
use std::mem;
use std::task::{Context, Poll};
use std::time::Duration;

use super::Shared;
use super::driver::STEPS;
use crate::error::ConnectionError;
use crate::keepalive::Machine;
use crate::transport::Transport;

/// Writes what the outbox holds. It never waits for a frame to be written whole.
#[derive(Debug, Default)]
pub(super) struct Writer {
    blocked: Option<By>,
    /// The stream itself holds bytes back.
    unflushed: bool,
    /// A PING was written to a stream that may hold it back.
    ping_unflushed: bool,
    failed: Option<ConnectionError>,
}

/// What is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// The stream takes no more bytes.
    Write,
    /// It took all, and cannot pass on what it holds.
    Flush,
}

/// What writing touches.
pub(super) struct Link<'a, C> {
    pub(super) now: Duration,
    pub(super) transport: &'a mut dyn Transport,
    pub(super) machine: &'a mut Machine,
    pub(super) shared: &'a Shared<C>,
}

impl Writer {
    /// Whether a write would be tried at once.
    pub(super) fn is_free(&self) -> bool {
        self.blocked.is_none() && self.failed.is_none()
    }

    /// Whether the stream has passed on all that it took.
    pub(super) fn is_flushed(&self) -> bool {
        !self.unflushed
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Nothing can be written any more.
    pub(super) fn fail(&mut self, error: io::Error) {
        self.failed = Some(error.into());
    }

    /// The PING was answered, so it has left. Returns whether that was not known.
    pub(super) fn ping_has_left(&mut self) -> bool {
        mem::take(&mut self.ping_unflushed)
    }

    pub(super) fn take_failure(&mut self) -> Option<ConnectionError> {
        self.failed.take()
    }

    /// Writes until nothing is left, or nothing is taken. `false` if this turn's share is used up.
    pub(super) fn write<C>(&mut self, cx: &mut Context<'_>, link: &mut Link<'_, C>) -> bool {
        for _ in 0..STEPS {
            if self.failed.is_some() {
                return true;
            }
            let Some(mut batch) = link.shared.desk().outbox.begin() else {
                // What was refused has been taken back: nothing is left that could be blocked.
                if self.blocked == Some(By::Write) {
                    self.blocked = None;
                    link.machine.handle_write_withdrawn(link.now);
                }
                self.flush(cx, link);
                return true;
            };
            let transport = &mut link.transport;
            let result = batch.write(|slices| transport.poll_write(cx, slices));
            if let Poll::Ready(Ok(taken)) = result {
                batch.advance(taken);
            }
            self.ping_unflushed |= link.shared.desk().outbox.end(batch, link.now);
            match result {
                Poll::Ready(Ok(0)) => {
                    self.fail(io::ErrorKind::WriteZero.into());
                }
                Poll::Ready(Ok(_)) => {
                    self.unflushed = true;
                    self.unblock(By::Write, link);
                }
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Poll::Ready(Err(error)) => self.fail(error),
                Poll::Pending => {
                    self.block(By::Write, link);
                    if self.ping_unflushed {
                        self.flush(cx, link);
                    }
                    return true;
                }
            }
            // What follows the PING may take long.
            if self.ping_unflushed {
                self.flush(cx, link);
            }
        }
        false
    }

    /// Passes on what the stream holds back. A trial begins when the kernel has the PING's last
    /// byte, not when a buffer of ours has it.
    fn flush<C>(&mut self, cx: &mut Context<'_>, link: &mut Link<'_, C>) {
        if !self.unflushed {
            return;
        }
        match link.transport.poll_flush(cx) {
            Poll::Ready(Ok(())) => {
                self.unflushed = false;
                self.unblock(By::Flush, link);
                if mem::take(&mut self.ping_unflushed) {
                    link.machine.handle_ping_flushed(link.now);
                }
            }
            Poll::Ready(Err(error)) => self.fail(error),
            Poll::Pending => self.block(By::Flush, link),
        }
    }

    fn block<C>(&mut self, by: By, link: &mut Link<'_, C>) {
        if self.blocked.is_none() {
            self.blocked = Some(by);
            link.machine.handle_write_blocked(link.now);
        }
    }

    fn unblock<C>(&mut self, by: By, link: &mut Link<'_, C>) {
        if self.blocked == Some(by) {
            self.blocked = None;
            link.machine.handle_write_progress(link.now, false);
        }
    }

    /// Offers the kernel what it refused before, past every cache. Returns whether it was refused
    /// again.
    pub(super) fn offer<C>(&mut self, link: &mut Link<'_, C>) -> bool {
        if self.blocked.is_none() {
            return false;
        }
        // With nothing left to write it is the stream that could not pass on what it holds.
        let Some(mut batch) = link.shared.desk().outbox.begin() else {
            return true;
        };
        let result = link.transport.try_send(batch.front());
        let refused = match result {
            Some(Ok(taken)) => {
                batch.advance(taken);
                taken == 0
            }
            // Another error is met by the next write; it is not the peer's silence.
            Some(Err(error)) => error.kind() == io::ErrorKind::WouldBlock,
            // The stream has no descriptor; this turn's write was refused.
            None => true,
        };
        self.ping_unflushed |= link.shared.desk().outbox.end(batch, link.now);
        if !refused {
            self.unflushed = true;
            link.machine.handle_write_progress(link.now, true);
        }
        refused
    }
}
