//! From the peer to the wrapped side; here the rules run.

use std::future::Future;
use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use ttrpc_keepalive::ConnectionError;
use ttrpc_keepalive::keepalive::{Look, Role, Unread, Verdict, Writes};
use ttrpc_keepalive::wire::{Header, MessageType, PING_STREAM_ID, ping_number};

use super::{Layered, Looking, is_last};
use crate::calls::Ended;
use crate::incoming::Said;
use crate::wakers::Turn;

/// Polls in a row that found bytes while a judgement was due, before it is made all the same: a
/// peer that sends without end must not put it off for ever.
const PATIENCE: u32 = 16;

impl<S: AsyncRead + AsyncWrite> Layered<S> {
    pub(super) fn turn(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let now = self.publisher.now();
        let writes = Writes {
            // A stream that refuses would refuse again: that it was not asked is no fault of ours.
            offered: self.last_offered.max(self.is_refused().then_some(now)),
            taken: self.last_taken,
        };
        self.calls.handle_run(now, writes);
        self.machine.handle_run(now, self.calls.shortest_lead());

        let unread = self.unread(now);
        let read = self.read(cx, now, out);
        if self.end.is_some() {
            return read;
        }
        let looked = self.looked(read.is_pending(), now);
        if let Some(drained) = looked {
            let look = Look {
                drained,
                write_refused: self.is_refused(),
                unread,
            };
            self.machine.handle_look(now, look);
            self.publish(now)?;
            self.judge(now);
        }
        self.machine.handle_timeout(now);
        // Whether a PING would be read depends on what a look has found unread.
        if looked.is_some() || !self.wish_waits(now) {
            if let Some(ask_at) = self.calls.poll_wish() {
                self.machine.handle_ping_wish(now, ask_at);
            }
        }
        // RFC KA-19: before the wrapped side does anything with what it gets.
        self.write_own(now);
        self.publish(now)?;
        // A look that waits for the scheduler is woken by it. The timer, which has fired, would only
        // have this task run again before that.
        let looking = matches!(self.look, Looking::Yielding(_));
        if read.is_pending() && !looking && self.sleep(cx, now) {
            cx.waker().wake_by_ref();
        }
        read
    }

    fn is_look_due(&self, now: Duration) -> bool {
        self.machine.look_due(now) || self.calls.is_due(now) || self.wish_waits(now)
    }

    /// Whether a call may want a PING that depends on what the kernel says is unread.
    fn wish_waits(&self, now: Duration) -> bool {
        self.kernel.is_some() && self.calls.may_wish() && self.machine.wish_needs_look(now)
    }

    /// What the peer has not read, if a look is due that asks for it.
    fn unread(&self, now: Duration) -> Unread {
        match &self.kernel {
            Some(kernel) if self.is_look_due(now) && self.machine.asks_unread() => {
                kernel.unread(&self.stream)
            }
            _ => Unread::NotAsked,
        }
    }

    /// Hands on what the peer has sent.
    fn read(
        &mut self,
        cx: &mut Context<'_>,
        now: Duration,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = out.filled().len();
        loop {
            loop {
                match self.incoming.next(out) {
                    Ok(None) => break,
                    Ok(Some(said)) => self.hear(said, now),
                    Err(error) => {
                        let error = self.end_with(ConnectionError::Protocol(error), now);
                        // What came before it is handed on; the next read says the same.
                        let came = out.filled().len() > before;
                        return Poll::Ready(if came { Ok(()) } else { Err(error) });
                    }
                }
            }
            if out.filled().len() > before || out.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            let Some(room) = self.incoming.room() else {
                return Poll::Ready(Ok(()));
            };
            let mut room = ReadBuf::new(room);
            let read = ready!(self.stream.as_mut().poll_read(cx, &mut room));
            let count = room.filled().len();
            self.incoming.read(count);
            match read {
                Ok(()) if count > 0 => {
                    // RFC KA-21: bytes, not frames.
                    self.machine.handle_bytes(now);
                    if let Looking::Yielding(_) = self.look {
                        self.look = Looking::No;
                    }
                }
                Ok(()) => {
                    let torn = self.incoming.is_inside_a_frame();
                    self.incoming.end(out);
                    let end = if torn {
                        ConnectionError::Torn
                    } else {
                        ConnectionError::PeerClosed
                    };
                    self.end_with(end, now);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(self.end_with(error.into(), now))),
            }
        }
    }

    /// What the peer said.
    fn hear(&mut self, said: Said, now: Duration) {
        match said {
            Said::Ping(header, payload) => {
                self.machine.handle_ping(now);
                if self.outgoing.reply(header, &payload) {
                    self.traffic.counters.pongs_coalesced += 1;
                }
            }
            Said::Pong(header, payload) => {
                let number = ping_number(&payload);
                if number == Some(self.newest_ping) && std::mem::take(&mut self.ping_unflushed) {
                    // The stream holds back something later, but not the PING.
                    self.machine.handle_ping_flushed(now);
                    self.machine.handle_bytes(now);
                }
                self.machine.handle_pong(now, number, header.flags);
            }
            Said::Head(header) => match self.role {
                Role::Client => self.hear_server(header, now),
                Role::Server if header.message_type == MessageType::REQUEST => {
                    self.begin_call(header.stream_id, now);
                }
                Role::Server => {}
            },
        }
    }

    fn hear_server(&mut self, header: Header, now: Duration) {
        let id = header.stream_id;
        let is_response = header.message_type == MessageType::RESPONSE;
        // RFC KA-23, KA-25. No REQUEST passes before the first PING.
        if is_response && (id <= self.newest_request || id == PING_STREAM_ID) {
            self.machine.handle_response(now);
        }
        if is_last(header) {
            self.end_call(id, now);
        }
    }

    pub(super) fn begin_call(&mut self, id: u32, now: Duration) {
        if self.calls.begin(id, now) {
            self.machine.handle_call_started(now);
        }
    }

    pub(super) fn end_call(&mut self, id: u32, now: Duration) {
        match self.calls.end(id) {
            Ended::Call => self.machine.handle_call_ended(now),
            Ended::Late => {
                self.traffic.counters.late_responses += 1;
                self.machine.handle_late_call_ended(now);
            }
            Ended::Nothing => {}
        }
    }

    /// Whether a look that is due is over, and whether it found nothing.
    ///
    /// The stream has no descriptor that could be asked. Before silence is held against the peer,
    /// the scheduler gets one turn and the stream is read once more.
    fn looked(&mut self, found_nothing: bool, now: Duration) -> Option<bool> {
        if !self.is_look_due(now) {
            self.look = Looking::No;
            return None;
        }
        if !found_nothing {
            let reads = match self.look {
                Looking::Reading(reads) => reads + 1,
                _ => 1,
            };
            self.look = Looking::Reading(reads);
            if reads < PATIENCE {
                return None;
            }
            self.look = Looking::No;
            return Some(false);
        }
        if let Looking::No | Looking::Reading(_) = self.look {
            self.look = Looking::Yielding(Turn::begin(&self.wakers));
        }
        if matches!(&self.look, Looking::Yielding(turn) if !turn.is_over()) {
            return None;
        }
        self.look = Looking::No;
        Some(true)
    }

    /// Says what is to be said of the peers of calls that run out of time.
    fn judge(&mut self, now: Duration) {
        while let Some(call) = self.calls.poll_judged() {
            let unwritten = self.outgoing.unwritten();
            let written = unwritten.is_none_or(|header| header.stream_id != call.key.0);
            let facts = call.write_facts(written);
            let verdict = self.machine.verdict(now, &call.deadline, facts);
            if verdict == Verdict::LocalStall {
                let gap = call.deadline.longest_gap();
                self.machine.handle_local_stall(now, gap);
            }
            self.machine.handle_verdict(now, verdict);
        }
        let (late, forgotten) = self.calls.expire(now);
        for _ in 0..late {
            self.machine.handle_call_late(now);
        }
        for _ in 0..forgotten {
            self.machine.handle_late_call_ended(now);
        }
    }

    /// Sets the timer to the earliest deadline. Says whether it has passed.
    fn sleep(&mut self, cx: &mut Context<'_>, now: Duration) -> bool {
        let earlier = self
            .next_run()
            .filter(|next| self.armed.is_none_or(|armed| *next < armed));
        if let Some(next) = earlier {
            // What cannot be represented is never due.
            if let Some(at) = Instant::now().checked_add(next.saturating_sub(now)) {
                match &mut self.timer {
                    Some(timer) => timer.as_mut().reset(at),
                    None => self.timer = Some(Box::pin(tokio::time::sleep_until(at))),
                }
                self.armed = earlier;
            }
        }
        let Some(timer) = self.timer.as_mut().filter(|_| self.armed.is_some()) else {
            return false;
        };
        let fired = timer.as_mut().poll(cx).is_ready();
        if fired {
            self.armed = None;
        }
        fired
    }

    pub(super) fn next_run(&mut self) -> Option<Duration> {
        let rules = self.machine.poll_timeout();
        rules.into_iter().chain(self.calls.next_run()).min()
    }
}
