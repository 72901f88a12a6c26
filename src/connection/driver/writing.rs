//! From the outbox to the byte stream, and what the rules are told of it.

use std::io;
use std::task::{Context, Poll};

use super::Driver;
use super::turn::By;
use crate::connection::outbox::Batch;
use crate::connection::shared::Permit;
use crate::connection::side::SideDriver;
use crate::transport::Fault;
use crate::tuning::{FAULT_PAUSE, TURN_STEPS};

impl<S: SideDriver> Driver<S> {
    /// Writes until nothing is left, or nothing is taken. `false` if this turn's share is used up.
    pub(super) fn write(&mut self, cx: &mut Context<'_>) -> bool {
        if self.pauses(cx) {
            return true;
        }
        for _ in 0..TURN_STEPS {
            if self.writing.has_failed() {
                return true;
            }
            let Some(batch) = self.begin_write() else {
                // The refused frames have been taken back: nothing is left that could be blocked.
                if self.writing.blocked == Some(By::Write) {
                    self.withdraw();
                }
                self.flush(cx);
                return true;
            };
            let permit = Permit::new(&self.shared, self.now, batch);
            let transport = &mut self.transport;
            let (written, left) = permit.write(|slices| match transport.poll_write(cx, slices) {
                Poll::Ready(result) => result.map_err(Some),
                Poll::Pending => Err(None),
            });
            match written {
                Ok(0) => self.fail(io::ErrorKind::WriteZero.into()),
                Ok(_) => {
                    self.writing.unflushed = true;
                    self.unblock(By::Write);
                }
                Err(None) => self.block(By::Write),
                Err(Some(error)) => self.meet(cx, error),
            }
            if self.writing.paused_until.is_some() {
                return true;
            }
            let blocked = self.writing.blocked == Some(By::Write);
            // The frames behind the PING may take long.
            if left.ping || !left.frames {
                self.flush(cx);
            }
            if blocked || !left.frames {
                return true;
            }
        }
        false
    }

    fn withdraw(&mut self) {
        let mut state = self.shared.lock();
        if state.has_written_all() {
            self.writing.blocked = None;
            state.machine.handle_write_withdrawn(self.now);
        }
    }

    fn begin_write(&mut self) -> Option<Batch> {
        let batch = {
            let mut state = self.shared.lock();
            let batch = state.begin_write(self.now, &mut self.effects);
            self.look_due |= state.look_due(self.now);
            // A handle may have written it.
            self.writing.unflushed |= state.has_unflushed_ping();
            batch
        };
        self.effects.run();
        batch
    }

    /// Passes on what the stream holds back, a PING perhaps.
    fn flush(&mut self, cx: &mut Context<'_>) {
        if !self.writing.unflushed {
            return;
        }
        for _ in 0..TURN_STEPS {
            match self.transport.poll_flush(cx) {
                Poll::Ready(Ok(())) => {
                    self.writing.unflushed = false;
                    self.unblock(By::Flush);
                    self.shared.lock().handle_flushed(self.now);
                    return;
                }
                Poll::Ready(Err(error)) if Fault::of(&error) == Fault::Interrupted => {}
                Poll::Ready(Err(error)) => return self.meet(cx, error),
                Poll::Pending => {
                    self.shared.lock().handle_flush_refused(self.now);
                    return self.block(By::Flush);
                }
            }
        }
        self.pause_writing(cx);
    }

    /// What a write or a flush has met.
    fn meet(&mut self, cx: &mut Context<'_>, error: io::Error) {
        match Fault::of(&error) {
            Fault::Interrupted => {}
            Fault::Passing => self.pause_writing(cx),
            Fault::Lasting => self.fail(error),
        }
    }

    /// Nothing is offered for a while. The peer has refused nothing, so nothing is held against it.
    fn pause_writing(&mut self, cx: &mut Context<'_>) {
        let until = self.now.saturating_add(FAULT_PAUSE);
        self.writing.paused_until = Some(until);
        self.arm_by(cx, until);
    }

    /// Whether such a while is not over.
    fn pauses(&mut self, cx: &mut Context<'_>) -> bool {
        let until = self.writing.paused_until.filter(|until| self.now < *until);
        self.writing.paused_until = until;
        if let Some(until) = until {
            self.arm_by(cx, until);
        }
        until.is_some()
    }

    fn block(&mut self, by: By) {
        if self.writing.blocked.is_none() {
            self.writing.blocked = Some(by);
            self.shared.lock().machine.handle_write_blocked(self.now);
        }
    }

    fn unblock(&mut self, by: By) {
        if self.writing.blocked == Some(by) {
            self.writing.blocked = None;
            let mut state = self.shared.lock();
            state.machine.handle_write_progress(self.now, false);
        }
    }

    /// Offers the kernel what it refused before, past every cache. Returns whether it was refused
    /// again.
    pub(super) fn offer(&mut self) -> bool {
        if self.writing.blocked.is_none() {
            return false;
        }
        // With nothing left to write it is the stream that could not pass on what it holds.
        let Some(batch) = self.shared.lock().begin_offer() else {
            return true;
        };
        let permit = Permit::new(&self.shared, self.now, batch);
        let transport = &mut self.transport;
        let taken = permit.write_front(|bytes| {
            for _ in 0..TURN_STEPS {
                match transport.try_send(bytes) {
                    Some(Ok(taken)) => return taken,
                    Some(Err(error)) if Fault::of(&error) == Fault::Interrupted => {}
                    // Another error is met by the next write; it is no sign of the peer's life. And
                    // without a descriptor this turn's write was refused.
                    Some(Err(_)) | None => break,
                }
            }
            0
        });
        if taken > 0 {
            self.writing.unflushed = true;
            let mut state = self.shared.lock();
            state.machine.handle_write_progress(self.now, true);
        }
        taken == 0
    }
}
