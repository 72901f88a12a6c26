//! The client's side of a connection: open calls, their deadlines, and the records of late ones.
//!
//! The invariant: a call's entry, its place among the deadlines and its frame end together,
//! whatever ends the call.

use std::time::Duration;

use bytes::Bytes;
use tracing::debug;

use super::call::{Call, Command, Key, OpenCalls, Probe};
use super::deadlines::{Deadlines, Wrote};
use super::inbox::{Overflow, Received};
use super::side::{Side, Turn};
use crate::error::{ConnectionError, DeadlineError, Error, LateOutcome, LateRecord};
use crate::keepalive::{CallDeadline, Role, Support, Unknown, Verdict, WriteFacts};
use crate::liveness::Traffic;
use crate::streams::{Data, Ended, PeerHalf};
use crate::wire::{Flags, Frame, Header, MAX_PAYLOAD, MessageType, Oversized, Response};

/// How far a request has come by its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Unsent,
    Begun,
    Written,
}

/// The client's side of one connection.
#[derive(Debug)]
pub(crate) struct ClientSide {
    open: OpenCalls,
    deadlines: Deadlines,
    late_responses: u64,
    repeated_responses: u64,
}

impl ClientSide {
    pub(crate) fn new(late_records: usize) -> Self {
        Self {
            open: OpenCalls::new(late_records),
            deadlines: Deadlines::default(),
            late_responses: 0,
            repeated_responses: 0,
        }
    }

    /// Takes a call out of every table, whichever it is in. `None` if it has ended already.
    fn close(&mut self, key: Key, turn: &mut Turn<'_, Command>) -> Option<Call> {
        let call = match key {
            Key::Stream(id) => {
                let call = self.open.queued.close(id)?;
                turn.shared.release();
                call
            }
            Key::Ticket(ticket) => self.open.waiting.remove(&ticket)?,
            Key::Probe(_) => return None,
        };
        if let Some(deadline) = &call.deadline {
            self.deadlines.remove(key, deadline);
        }
        Some(call)
    }

    fn close_probe(&mut self, ticket: u64, turn: &mut Turn<'_, Command>) -> Option<Probe> {
        let (_, probe) = self.open.probes.remove(&ticket)?;
        self.deadlines.remove(Key::Probe(ticket), &probe.deadline);
        turn.machine.handle_probe_ended(turn.now);
        Some(probe)
    }

    /// A RESPONSE has come, or one that was too large was skipped.
    fn handle_response(
        &mut self,
        id: u32,
        result: Result<Bytes, Error>,
        turn: &mut Turn<'_, Command>,
    ) {
        let now = turn.now;
        if result.as_ref().is_ok_and(announces_shutdown) {
            turn.shared.expect_close();
        }
        match self.open.queued.handle_end(id) {
            Ended::Call(call) => {
                decide_support(turn);
                turn.machine.handle_call_ended(now);
                if let Some(deadline) = &call.deadline {
                    self.deadlines.remove(Key::Stream(id), deadline);
                }
                turn.shared.release();
                if call.sends() {
                    turn.end_sending(id);
                }
                call.end(result);
            }
            Ended::Late(record) => {
                turn.end_sending(id);
                decide_support(turn);
                turn.machine.handle_late_call_ended(now);
                self.late_responses += 1;
                let after = record.answered(now);
                debug!(stream_id = id, ?after, "a late answer has come");
            }
            Ended::Again => {
                turn.end_sending(id);
                decide_support(turn);
                self.repeated_responses += 1;
                debug!(
                    stream_id = id,
                    "a response to a call that has ended is dropped"
                );
            }
            Ended::Ping => {
                decide_support(turn);
                // RFC KA-25: the PING's own id.
                debug!("the peer answered a PING with a response: it does not know PING");
            }
            Ended::Unknown => {
                // RFC KA-39: a call that expired as it found room may have left a half-close here.
                turn.end_sending(id);
                debug!(stream_id = id, "a response to no call is dropped");
            }
        }
    }

    /// Data of a stream that this side has given up, or never had (RFC KA-37).
    fn handle_late_data(&mut self, id: u32, flags: Flags, turn: &mut Turn<'_, Command>) {
        debug!(stream_id = id, "stream data for nobody is dropped");
        if let Data::Message | Data::Nothing = Data::of(flags) {
            return;
        }
        // Its end comes all the same, and may be the late answer that somebody waits for.
        turn.end_sending(id);
        if let Some(record) = self.open.queued.take_late(id) {
            turn.machine.handle_late_call_ended(turn.now);
            self.late_responses += 1;
            record.answered(turn.now);
        }
    }

    /// Ends a stream since its DATA frame with these flags cannot be taken.
    fn fail(&mut self, (id, flags): (u32, Flags), error: Error, turn: &mut Turn<'_, Command>) {
        let Some(call) = self.close(Key::Stream(id), turn) else {
            return;
        };
        debug!(stream_id = id, %error, "a call fails");
        turn.machine.handle_call_ended(turn.now);
        if call.sends() {
            match Data::of(flags) {
                Data::Message | Data::Nothing => turn.give_up(id),
                // It was the server's last frame all the same: no half-close may follow it.
                Data::Last | Data::End => turn.end_sending(id),
            }
        }
        call.end(Err(error));
    }

    /// Ends a call that has run out of time, with the verdict on its peer.
    fn expire(
        &mut self,
        (key, deadline, wrote): (Key, CallDeadline, Wrote),
        progress: Progress,
        turn: &mut Turn<'_, Command>,
    ) {
        let now = turn.now;
        let facts = WriteFacts {
            written: progress == Progress::Written,
            offered_since_asked: wrote.offered,
            taken_since_asked: wrote.taken,
        };
        let verdict = turn.machine.verdict(now, &deadline, facts);
        turn.machine.handle_verdict(now, verdict);
        let mut late = late(verdict, None, turn);
        if let Key::Probe(ticket) = key {
            if let Some(probe) = self.close_probe(ticket, turn) {
                late.timeout = Some(probe.budget);
                let _ = probe.reply.send(Err(Error::Deadline(Box::new(late))));
            }
            return;
        }
        let Some(call) = self.close(key, turn) else {
            return;
        };
        debug!(?key, timeout = ?call.timeout, %verdict, evidence = %late.evidence, "a call is late");
        late.timeout = call.timeout;
        match key {
            Key::Stream(id) if progress != Progress::Unsent => {
                turn.machine.handle_call_late(now);
                let record = LateRecord::new(call.started);
                late.late_answer = Some(record.answer());
                if let Some(oldest) = self.open.queued.keep_late(id, record) {
                    turn.machine.handle_late_call_ended(now);
                    oldest.end(LateOutcome::Forgotten);
                }
            }
            // No answer will come.
            _ => turn.machine.handle_call_ended(now),
        }
        if let (Key::Stream(id), true) = (key, call.sends()) {
            match progress {
                // Its request was taken back, and so is what follows it.
                Progress::Unsent => turn.end_sending(id),
                Progress::Begun | Progress::Written => turn.give_up(id),
            }
        }
        call.end(Err(Error::Deadline(Box::new(late))));
    }

    fn expired(&mut self, turn: &Turn<'_, Command>) -> Vec<(Key, CallDeadline, Wrote)> {
        self.deadlines
            .expired(turn.now, &self.open, |p| turn.wrote_since(p))
    }

    fn start_probe(&mut self, ticket: u64, probe: Probe, turn: &mut Turn<'_, Command>) {
        // A peer of which nothing is known is asked: the probe may be what comes first.
        if !turn.machine.may_ask() {
            let verdict = Verdict::Unknown(Unknown::NoSupport);
            let late = late(verdict, Some(probe.budget), turn);
            let _ = probe.reply.send(Err(Error::Deadline(Box::new(late))));
            return;
        }
        let number = turn.machine.handle_probe_started(turn.now);
        self.deadlines.insert(Key::Probe(ticket), &probe.deadline);
        self.open.probes.insert(ticket, (number, probe));
    }
}

/// Whether a response says that the peer is about to close the connection. Asked here and not by
/// who waits for the response: the end may have been read together with it.
fn announces_shutdown(envelope: &Bytes) -> bool {
    // A success does not begin with a status, so it costs one comparison.
    envelope.first() == Some(&STATUS)
        && envelope.len() <= SHORT
        && Response::decode(envelope)
            .is_ok_and(|response| response.status.is_some_and(|it| it.announces_shutdown()))
}

/// The tag of the field `status` in a Response.
const STATUS: u8 = 0x0a;

/// Bytes of a refusal at most. Longer statuses are not taken apart twice.
const SHORT: usize = 1024;

/// RFC KA-23: a response decides, and so does data of a stream, which may never see one. Told at once
/// and not at the end of the turn: on another thread, who is answered may look before that.
fn decide_support(turn: &mut Turn<'_, Command>) {
    if turn.machine.support() == Support::Unknown {
        turn.machine.handle_response(turn.now);
        turn.shared.publisher.learn_support(turn.machine.support());
    }
}

/// What is known about the peer, as the error of a call that has run out of time.
fn late<C>(verdict: Verdict, timeout: Option<Duration>, turn: &Turn<'_, C>) -> DeadlineError {
    DeadlineError {
        timeout,
        verdict,
        evidence: turn.machine.evidence(turn.now),
        peer: turn.machine.peer(),
        status: None,
        late_answer: None,
    }
}

impl Side for ClientSide {
    type Command = Command;

    const ROLE: Role = Role::Client;

    fn handle_command(&mut self, command: Command, turn: &mut Turn<'_, Command>) {
        match command {
            Command::Open { id, call } => {
                turn.machine.handle_call_started(turn.now);
                if let Some(deadline) = &call.deadline {
                    self.deadlines.insert(Key::Stream(id), deadline);
                }
                self.open.queued.open(id, call);
            }
            Command::Wait { ticket, call } => {
                turn.machine.handle_call_started(turn.now);
                if let Some(deadline) = &call.deadline {
                    self.deadlines.insert(Key::Ticket(ticket), deadline);
                }
                self.open.waiting.insert(ticket, call);
            }
            Command::Promote { ticket, id } => match self.open.waiting.remove(&ticket) {
                Some(call) => {
                    if let Some(deadline) = &call.deadline {
                        self.deadlines
                            .rename(Key::Ticket(ticket), Key::Stream(id), deadline);
                    }
                    self.open.queued.open(id, call);
                }
                // It expired while its future found room: nobody waits for it any more.
                None => {
                    turn.give_up(id);
                    turn.shared.release();
                }
            },
            Command::Probe { ticket, probe } => self.start_probe(ticket, probe, turn),
            Command::Drop {
                key: Key::Probe(ticket),
            } => drop(self.close_probe(ticket, turn)),
            Command::Drop { key } => {
                if self.close(key, turn).is_some() {
                    turn.machine.handle_call_ended(turn.now);
                    if let Key::Stream(id) = key {
                        turn.give_up(id);
                    }
                }
            }
        }
    }

    fn handle_frame(&mut self, frame: Frame, turn: &mut Turn<'_, Command>) {
        let id = frame.header.stream_id;
        match frame.header.message_type {
            MessageType::RESPONSE => self.handle_response(id, Ok(frame.payload), turn),
            other => debug!(stream_id = id, message_type = ?other, "a frame for nobody is dropped"),
        }
    }

    fn handle_data(&mut self, header: Header, message: Received<'_>, turn: &mut Turn<'_, Command>) {
        let (id, flags) = (header.stream_id, header.flags);
        let Some(call) = self.open.queued.find(id) else {
            return self.handle_late_data(id, flags, turn);
        };
        decide_support(turn);
        let Some((inbox, data)) = call.peer.handle_data(flags) else {
            return self.fail((id, flags), Error::UnexpectedData, turn);
        };
        if let Data::Message | Data::Last = data {
            if let Err(overflow) = inbox.push(message) {
                let Overflow { size, limit } = overflow;
                return self.fail((id, flags), Error::StreamOverflow { size, limit }, turn);
            }
        }
        if let Data::Last | Data::End = data {
            inbox.close();
            if self.close(Key::Stream(id), turn).is_some() {
                turn.end_sending(id);
                turn.machine.handle_call_ended(turn.now);
            }
        }
    }

    fn handle_oversized(&mut self, header: Header, turn: &mut Turn<'_, Command>) {
        let error = || {
            Error::ResponseTooLarge(Oversized {
                size: header.payload_length(),
                max: MAX_PAYLOAD,
            })
        };
        let id = header.stream_id;
        match header.message_type {
            MessageType::RESPONSE => self.handle_response(id, Err(error()), turn),
            // RFC KA-4: its call fails. One that expects no data fails as by DATA of any other size.
            MessageType::DATA => {
                let error = match self.open.queued.find(id).map(|call| &call.peer) {
                    None => return self.handle_late_data(id, header.flags, turn),
                    Some(PeerHalf::Messages(_)) => error(),
                    Some(PeerHalf::Answer(_)) => Error::UnexpectedData,
                };
                decide_support(turn);
                self.fail((id, header.flags), error, turn);
            }
            _ => {}
        }
    }

    fn handle_pong(&mut self, round_trip: Option<Duration>, turn: &mut Turn<'_, Command>) {
        if self.open.probes.is_empty() {
            return;
        }
        let newest = turn.machine.answered_number();
        let answered = self.open.probes.iter();
        let answered: Vec<u64> = answered
            .filter(|(_, (number, _))| *number <= newest)
            .map(|(ticket, _)| *ticket)
            .collect();
        for ticket in answered {
            if let Some(probe) = self.close_probe(ticket, turn) {
                let waited = turn.now.saturating_sub(probe.started);
                // A PONG that measured nothing came after a pause, or was given up before: what
                // the caller waited is the truth then, an older round trip is not.
                let _ = probe.reply.send(Ok(round_trip.unwrap_or(waited)));
            }
        }
    }

    fn handle_run(&mut self, previous_run: Duration, now: Duration) {
        self.deadlines.handle_run(previous_run, now, &self.open);
    }

    fn handle_unsent(&mut self, turn: &mut Turn<'_, Command>) {
        for expired in self.expired(turn) {
            let unsent = match expired.0 {
                Key::Stream(id) => turn.take_back(id),
                Key::Ticket(_) => true,
                Key::Probe(_) => false,
            };
            if unsent {
                self.expire(expired, Progress::Unsent, turn);
            }
        }
    }

    fn handle_look(&mut self, turn: &mut Turn<'_, Command>) {
        for expired in self.expired(turn) {
            let progress = match expired.0 {
                // Unsent ones have ended before this turn's write.
                Key::Stream(id) if turn.holds(id) => Progress::Begun,
                Key::Ticket(_) => Progress::Unsent,
                Key::Stream(_) | Key::Probe(_) => Progress::Written,
            };
            self.expire(expired, progress, turn);
        }
    }

    fn ask(&mut self, turn: &mut Turn<'_, Command>) {
        for p in self.deadlines.ask(turn.now) {
            turn.machine.handle_ping_wish(turn.now, p);
        }
    }

    fn look_due(&self, now: Duration) -> bool {
        self.deadlines.is_due(now)
    }

    fn next_run(&mut self, previous_run: Duration) -> Option<Duration> {
        self.deadlines.next_run(previous_run, &self.open)
    }

    fn shortest_lead(&self) -> Option<Duration> {
        self.deadlines.shortest_lead()
    }

    fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    fn count(&mut self, traffic: &mut Traffic) {
        traffic.calls_in_flight = self.open.queued.len() + self.open.waiting.len();
        traffic.oldest_call = self.open.queued.oldest().map(|call| call.started);
        traffic.late_calls_unanswered = self.open.queued.late_len();
        traffic.counters.late_responses = self.late_responses;
        traffic.counters.repeated_responses = self.repeated_responses;
    }

    fn end(&mut self, end: &ConnectionError) {
        let error = || Error::Connection(end.clone());
        for (_, call) in self.open.waiting.drain() {
            call.end(Err(error()));
        }
        for (_, (_, probe)) in self.open.probes.drain() {
            let _ = probe.reply.send(Err(error()));
        }
        let (calls, late) = self.open.queued.drain();
        for call in calls {
            call.end(Err(error()));
        }
        for record in late {
            record.end(LateOutcome::Ended(end.clone()));
        }
    }
}
