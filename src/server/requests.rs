//! The server's side of a connection: which requests are taken, which run, and which wait.
//!
//! The invariant: every request that is taken is answered once, and the reader waits for none.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tracing::debug;

use super::canary::{Canary, STALLED};
use super::context::Context;
use super::method::{Methods, Responder, Served};
use crate::config::ServerLimits;
use crate::connection::{Side, Turn};
use crate::error::ConnectionError;
use crate::keepalive::{Role, Support};
use crate::status::{Code, Status};
use crate::streams::Requests;
use crate::wire::{
    Flags, Frame, Header, MAX_PAYLOAD, MessageType, Oversized, Request, encode_status,
};

/// What handlers tell the driver.
#[derive(Debug)]
pub(crate) enum Command {
    /// One of them has answered.
    Answered,
}

#[derive(Debug)]
pub(super) struct ServerSide {
    methods: Arc<Methods>,
    limits: ServerLimits,
    requests: Requests,
    running: usize,
    /// Requests that wait for a handler to end, in their order.
    waiting: VecDeque<Incoming>,
    canary: Canary,
    /// When it is sent because of requests that are still unanswered then.
    canary_due: Option<Duration>,
}

/// A request that was taken.
#[derive(Debug)]
struct Incoming {
    served: Arc<Served>,
    stream_id: u32,
    request: Request,
    deadline: Option<Duration>,
}

impl ServerSide {
    pub(super) fn new(methods: Arc<Methods>, limits: ServerLimits, canary: Canary) -> Self {
        Self {
            methods,
            limits,
            requests: Requests::default(),
            running: 0,
            waiting: VecDeque::new(),
            canary,
            canary_due: None,
        }
    }

    fn handle_request(
        &mut self,
        frame: &Frame,
        turn: &mut Turn<'_, Command>,
    ) -> Result<(), Status> {
        let stream_id = frame.header.stream_id;
        let invalid = |message| Status::new(Code::INVALID_ARGUMENT, message);
        self.requests
            .accept(stream_id)
            .map_err(|refused| invalid(refused.to_string()))?;
        // RFC KA-32: it costs its own stream only.
        let request =
            Request::decode(&frame.payload).map_err(|error| invalid(error.to_string()))?;
        if turn.closing {
            return Err(Status::new(
                Code::UNAVAILABLE,
                "the server is shutting down",
            ));
        }
        let served = Arc::clone(self.methods.find(&request.service, &request.method)?);
        if frame.header.flags.contains(Flags::REMOTE_OPEN) {
            return Err(Status::new(
                Code::UNIMPLEMENTED,
                format!("method {:?} is not a streaming method", &*request.method),
            ));
        }
        let deadline = match request.timeout_nano {
            0 => None,
            // RFC KA-34: a negative one has expired.
            nanos => match u64::try_from(nanos) {
                Ok(nanos) => Some(turn.now.saturating_add(Duration::from_nanos(nanos))),
                Err(_) => {
                    return Err(Status::new(
                        Code::DEADLINE_EXCEEDED,
                        "the request had expired when it was sent",
                    ));
                }
            },
        };
        let incoming = Incoming {
            served,
            stream_id,
            request,
            deadline,
        };
        if self.running < self.limits.handlers {
            turn.shared.claim();
            turn.machine.handle_call_started(turn.now);
            self.start(incoming, turn);
        } else if self.waiting.len() < self.limits.waiting {
            turn.shared.claim();
            turn.machine.handle_call_started(turn.now);
            self.waiting.push_back(incoming);
        } else {
            return Err(Status::new(
                Code::RESOURCE_EXHAUSTED,
                format!(
                    "{} calls are running on this connection and {} are waiting",
                    self.running,
                    self.waiting.len()
                ),
            ));
        }
        // Nobody would see the flag on a connection on which no PING has come.
        if turn.machine.support() == Support::Yes {
            let due = turn.now.saturating_add(STALLED);
            self.canary_due.get_or_insert(due);
        }
        Ok(())
    }

    fn start(&mut self, incoming: Incoming, turn: &Turn<'_, Command>) {
        self.running += 1;
        let Incoming {
            served,
            stream_id,
            request,
            deadline,
        } = incoming;
        let shared = Arc::clone(turn.shared);
        let responder = Responder::new(Arc::clone(&shared), stream_id);
        let context = Context::new(shared, Arc::clone(&served), request.metadata, deadline);
        // Wherever the driver runs.
        let _handlers = self.canary.handlers().enter();
        served.method.start(context, request.payload, responder);
    }
}

impl Side for ServerSide {
    type Command = Command;

    const ROLE: Role = Role::Server;

    fn handle_command(&mut self, command: Command, turn: &mut Turn<'_, Command>) {
        match command {
            Command::Answered => {
                self.running -= 1;
                turn.machine.handle_call_ended(turn.now);
                match self.waiting.pop_front() {
                    // The last commands are taken after the end, where there may be no runtime
                    // left to start a handler on, and nobody to receive what it answers.
                    Some(incoming) if !turn.shared.has_ended() => self.start(incoming, turn),
                    _ => {}
                }
            }
        }
    }

    fn handle_frame(&mut self, frame: Frame, turn: &mut Turn<'_, Command>) {
        let Header {
            stream_id,
            message_type,
            ..
        } = frame.header;
        if message_type != MessageType::REQUEST {
            debug!(stream_id, ?message_type, "a frame for nobody is dropped");
            return;
        }
        if let Err(status) = self.handle_request(&frame, turn) {
            debug!(stream_id, %status, "a request is refused");
            turn.send(stream_id, encode_status(stream_id, &status));
        }
    }

    /// RFC KA-4: its own stream fails, and nothing else.
    fn handle_oversized(&mut self, header: Header, turn: &mut Turn<'_, Command>) {
        if header.message_type != MessageType::REQUEST {
            return;
        }
        let stream_id = header.stream_id;
        let status = match self.requests.accept(stream_id) {
            Ok(()) => Status::new(
                Code::RESOURCE_EXHAUSTED,
                format!(
                    "the request was skipped: {}",
                    Oversized {
                        size: header.payload_length(),
                        max: MAX_PAYLOAD,
                    }
                ),
            ),
            Err(refused) => Status::new(Code::INVALID_ARGUMENT, refused.to_string()),
        };
        turn.send(stream_id, encode_status(stream_id, &status));
    }

    /// RFC KA-12: a driver with a thread of its own must not hide that no handler runs.
    fn handle_ping(&mut self) -> Flags {
        let stalled = self.canary.is_overdue();
        self.canary.send();
        if stalled {
            Flags::HANDLERS_STALLED
        } else {
            Flags::NONE
        }
    }

    /// A caller that asks shortly before its only deadline asks once. So that this PING finds out,
    /// the canary is sent before it comes.
    fn handle_run(&mut self, _previous_run: Duration, now: Duration) {
        if self.canary_due.is_some_and(|due| due <= now) {
            self.canary_due = None;
            if !self.is_idle() {
                self.canary.send();
            }
        }
    }

    fn next_run(&self, _previous_run: Duration) -> Option<Duration> {
        self.canary_due
    }

    fn owed_limit(&self) -> usize {
        self.limits.owed_bytes
    }

    fn is_idle(&self) -> bool {
        self.running == 0 && self.waiting.is_empty()
    }

    fn end(&mut self, _end: &ConnectionError) {
        // Handlers that run see it by their context; those that wait never begin.
        self.waiting.clear();
    }
}
