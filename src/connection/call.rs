//! A call as its future hands it to the driver, and what it is known by.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::inbox::Inbox;
use crate::error::{Error, LateRecord};
use crate::keepalive::CallDeadline;
use crate::streams::{Calls, PeerHalf};
use crate::wire::Flags;

/// A call as its future hands it over.
#[derive(Debug)]
pub(crate) struct Call {
    pub(super) started: Duration,
    pub(super) timeout: Option<Duration>,
    pub(super) deadline: Option<CallDeadline>,
    /// Those of its request.
    pub(super) flags: Flags,
    pub(super) peer: ServerHalf,
}

/// Where that goes which the server sends. A RESPONSE is decoded by who waits for it.
pub(super) type ServerHalf = PeerHalf<oneshot::Sender<Result<Bytes, Error>>, Arc<Inbox<StreamEnd>>>;

/// What ended a stream of messages, other than its plain end.
#[derive(Debug)]
pub(crate) enum StreamEnd {
    /// A RESPONSE, with this envelope.
    Response(Bytes),
    Failed(Error),
}

impl Call {
    /// Ends it for who waits for it; nobody does if it was dropped meanwhile.
    pub(super) fn end(self, result: Result<Bytes, Error>) {
        match (self.peer, result) {
            (PeerHalf::Answer(reply), result) => drop(reply.send(result)),
            (PeerHalf::Messages(inbox), Ok(envelope)) => inbox.fail(StreamEnd::Response(envelope)),
            (PeerHalf::Messages(inbox), Err(error)) => inbox.fail(StreamEnd::Failed(error)),
        }
    }

    /// Whether the client sends messages after the request. Behind that of a unary call it sends
    /// nothing, no half-close either (RFC KA-38).
    pub(super) fn sends(&self) -> bool {
        self.flags.contains(Flags::REMOTE_OPEN)
    }
}

impl Command {
    /// When the call began that this opens.
    pub(super) fn opened(&self) -> Option<Duration> {
        match self {
            Self::Open { call, .. } => Some(call.started),
            _ => None,
        }
    }
}

/// A wait for a PONG: a call without frames.
#[derive(Debug)]
pub(crate) struct Probe {
    pub(super) started: Duration,
    pub(super) budget: Duration,
    pub(super) deadline: CallDeadline,
    pub(super) reply: oneshot::Sender<Result<Duration, Error>>,
}

/// What a call is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// It was queued, under this id.
    Stream(u32),
    /// It waits for room.
    Ticket(u64),
    Probe(u64),
}

/// The calls of a client's connection, each in one of the tables.
#[derive(Debug)]
pub(super) struct OpenCalls {
    pub(super) queued: Calls<Call, LateRecord>,
    pub(super) waiting: HashMap<u64, Call>,
    /// With the number of the PING that each waits for.
    pub(super) probes: HashMap<u64, (u64, Probe)>,
}

impl OpenCalls {
    pub(super) fn new(late_records: usize) -> Self {
        Self {
            queued: Calls::new(late_records),
            waiting: HashMap::new(),
            probes: HashMap::new(),
        }
    }

    /// The deadline of a call that is open and has one.
    pub(super) fn deadline(&self, key: Key) -> Option<&CallDeadline> {
        match key {
            Key::Stream(id) => self.queued.find(id)?.deadline.as_ref(),
            Key::Ticket(ticket) => self.waiting.get(&ticket)?.deadline.as_ref(),
            Key::Probe(ticket) => Some(&self.probes.get(&ticket)?.1.deadline),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.queued.len() + self.waiting.len() + self.probes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What handles tell the driver.
#[derive(Debug)]
pub(crate) enum Command {
    /// A request was queued.
    Open { id: u32, call: Call },
    /// A call waits for room.
    Wait { ticket: u64, call: Call },
    /// It found room and was queued.
    Promote { ticket: u64, id: u32 },
    /// Somebody wants a PONG.
    Probe { ticket: u64, probe: Probe },
    /// The future was dropped.
    Drop { key: Key },
}
