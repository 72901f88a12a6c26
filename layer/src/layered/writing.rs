//! From the wrapped side to the peer, PING and PONG between.

use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use ttrpc_keepalive::keepalive::Role;
use ttrpc_keepalive::wire::{Header, MessageType, ProtocolError};

use super::{By, Layered, Passing, is_last};
use crate::outgoing::Begin;
use crate::timeout::TimeoutScan;

impl<S: AsyncRead + AsyncWrite> Layered<S> {
    /// Writes what the wrapped side has, from the front. `Ok(0)` if only something of ours was
    /// written, or there is nothing.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let now = self.publisher.now();
        let mut rest = bytes;
        loop {
            let head = self.outgoing.take_head(&mut rest);
            if let Some(header) = head.map_err(refuse)? {
                self.pass(header, now);
            }
            self.outgoing.drop_hidden(&mut rest);
            let taken = bytes.len() - rest.len();
            let payload = self.outgoing.payload(rest);
            // A header waits for its payload: until the frame has begun a PONG can go ahead.
            if payload.is_empty() && !self.outgoing.has_own(Begin::IfWhole) {
                if rest.is_empty() {
                    return Poll::Ready(Ok(taken));
                }
                continue;
            }
            let begin = if payload.is_empty() {
                Begin::IfWhole
            } else {
                Begin::Now
            };
            match self.offer(payload, begin, now) {
                Poll::Ready(Ok(count)) => {
                    self.scan(&payload[..count]);
                    if taken + count > 0 {
                        return Poll::Ready(Ok(taken + count));
                    }
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending if taken > 0 => return Poll::Ready(Ok(taken)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// The wrapped side has begun a frame.
    fn pass(&mut self, header: Header, now: Duration) {
        let id = header.stream_id;
        match (self.role, header.message_type) {
            (Role::Client, MessageType::REQUEST) => {
                self.newest_request = self.newest_request.max(id);
                self.begin_call(id, now);
                self.queue_ping(now);
                self.request = Some(Passing {
                    id,
                    scan: TimeoutScan::default(),
                });
            }
            (Role::Server, _) if is_last(header) => self.end_call(id, now),
            _ => {}
        }
    }

    /// Reads in the payload of a REQUEST how much time it gives.
    fn scan(&mut self, payload: &[u8]) {
        let Some(request) = &mut self.request else {
            return;
        };
        request.scan.feed(payload);
        if self.outgoing.unwritten().is_some() {
            return;
        }
        if let Some(timeout) = request.scan.timeout() {
            self.calls.limit(request.id, timeout);
        }
        self.request = None;
    }

    /// Offers to the stream what waits here, and this payload behind it. Yields how much of the
    /// payload was taken.
    pub(super) fn offer(
        &mut self,
        payload: &[u8],
        begin: Begin,
        now: Duration,
    ) -> Poll<io::Result<usize>> {
        self.wakers.forget_wake();
        self.last_offered = Some(now);
        let mut cx = Context::from_waker(&self.both);
        let slices = self.outgoing.slices(payload, begin);
        let stream = &mut self.stream;
        let written = retried(|| stream.as_mut().poll_write_vectored(&mut cx, &slices));
        match written {
            Poll::Ready(Ok(0)) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            Poll::Ready(Ok(count)) => {
                let taken = self.outgoing.advance(count, payload);
                if let Some(kernel) = &mut self.kernel {
                    kernel.note_write(count, now);
                }
                self.last_taken = Some(now);
                self.unflushed |= taken.control;
                self.ping_unflushed |= taken.ping;
                self.unblock(By::Write, now);
                Poll::Ready(Ok(taken.payload))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                self.block(By::Write, now);
                Poll::Pending
            }
        }
    }

    /// Writes what needs no more bytes of the wrapped side, PING and PONG first, as far as the
    /// stream takes it.
    pub(super) fn write_own(&mut self, now: Duration) {
        self.queue_ping(now);
        while self.outgoing.has_own(Begin::IfWhole) {
            // An error is met by the wrapped side's next write, or its read.
            if !matches!(self.offer(&[], Begin::IfWhole, now), Poll::Ready(Ok(_))) {
                break;
            }
        }
        if self.unflushed {
            let _ = self.flush(now);
        }
    }

    /// Writes all that was taken from the wrapped side, and has the stream pass it on.
    pub(super) fn flush_all(&mut self) -> Poll<io::Result<()>> {
        let now = self.publisher.now();
        while self.outgoing.has_own(Begin::Now) {
            ready!(self.offer(&[], Begin::Now, now))?;
        }
        self.flush(now)
    }

    /// Has the stream pass on what it holds.
    pub(super) fn flush(&mut self, now: Duration) -> Poll<io::Result<()>> {
        if self.blocked != Some(By::Write) {
            self.wakers.forget_wake();
        }
        let mut cx = Context::from_waker(&self.both);
        let stream = &mut self.stream;
        let flushed = retried(|| stream.as_mut().poll_flush(&mut cx));
        match &flushed {
            Poll::Ready(Ok(())) => {
                self.unflushed = false;
                self.unblock(By::Flush, now);
                // A trial begins when the PING has left, not when a buffer has it.
                if std::mem::take(&mut self.ping_unflushed) {
                    self.machine.handle_ping_flushed(now);
                }
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.block(By::Flush, now),
        }
        flushed
    }

    fn block(&mut self, by: By, now: Duration) {
        if self.blocked.is_none() {
            self.blocked = Some(by);
            self.machine.handle_write_blocked(now);
        }
    }

    fn unblock(&mut self, by: By, now: Duration) {
        if self.blocked == Some(by) {
            self.blocked = None;
            self.machine.handle_write_progress(now, false);
        }
    }

    /// Whether the stream refused what it was offered, and has not called since.
    pub(super) fn is_refused(&self) -> bool {
        self.blocked.is_some() && !self.wakers.is_woken()
    }

    pub(super) fn queue_ping(&mut self, now: Duration) {
        if let Some(number) = self.machine.poll_ping(now) {
            self.newest_ping = number;
            self.outgoing.set_ping(number);
        }
    }

    /// What must be known after a write: to watchers, and to the timer.
    pub(super) fn settle_write(&mut self) -> io::Result<()> {
        let now = self.publisher.now();
        self.write_own(now);
        self.publish(now)?;
        let next = self.next_run();
        if next.is_some_and(|next| self.armed.is_none_or(|armed| next < armed)) {
            // It keeps the timer.
            self.wakers.wake_reader();
        }
        Ok(())
    }
}

/// A call that a signal came in between of is made again: what was written here is nobody's to repeat.
fn retried<T>(mut call: impl FnMut() -> Poll<io::Result<T>>) -> Poll<io::Result<T>> {
    for _ in 0..INTERRUPTIONS {
        match call() {
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
    call()
}

/// Signals that may come in between of one call. More of them are a stream that is broken.
const INTERRUPTIONS: u32 = 16;

/// The wrapped side wrote something that is not ttrpc.
fn refuse(error: ProtocolError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}
