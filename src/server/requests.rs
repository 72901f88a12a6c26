//! The requests of one connection, as a part of its state: which ids are used, which requests run or
//! wait, and which streams are open. Data only: no handler, no runtime, no clock.
//!
//! The invariant: every request that is taken is answered once, and the reader waits for none.

use std::any::Any;
use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Weak};
use std::time::Duration;

mod answering;
mod starting;
mod taking;

use super::admission::{Admission, CallPermit};
use super::counters::Counts;
use super::early::{Due, EarlyAnswers};
use super::slots::{Grant, SharedSlots, Slot};
use crate::config::ServerLimits;
use crate::connection::{Shared, StreamRecord};
use crate::status::Status;
use crate::streams::RequestIds;
use crate::wire::{Header, Part};

/// The requests of one connection.
#[derive(Debug)]
pub(crate) struct OpenRequests {
    pub(super) own: Option<ConnectionState>,
    limits: ServerLimits,
    ids: RequestIds,
    admission: Admission<Request>,
    /// Requests that may run. The driver starts them.
    starts: VecDeque<Start>,
    /// Requests that were taken and are not answered.
    open: usize,
    /// Those that are answered without their handlers when their time comes.
    pub(super) early: EarlyAnswers,
    /// Whose time has come. The driver answers them.
    pub(super) overdue: Vec<(u32, Due)>,
    slots: Option<ConnectionSlots>,
    /// Nobody takes answers any more.
    abandoned: bool,
    /// When the canary is sent because of requests that are still unanswered then.
    canary_due: Option<Duration>,
    pub(super) counts: Arc<Counts>,
}

/// A user's state of one connection.
pub(super) type ConnectionState = Arc<dyn Any + Send + Sync>;

/// The slots of a server, as one of its connections uses them.
#[derive(Debug)]
struct ConnectionSlots {
    slots: Arc<SharedSlots<Shared<OpenRequests>>>,
    connection: Weak<Shared<OpenRequests>>,
    /// A slot is this connection's, and is not taken yet.
    granted: bool,
}

/// A request that was taken.
#[derive(Debug)]
pub(crate) struct Request {
    pub(super) stream_id: u32,
    /// The place of its method in the server's table.
    pub(super) method: usize,
    pub(super) kind: Kind,
    pub(super) permit: Option<CallPermit>,
    pub(super) payload: Part,
    pub(super) metadata: Vec<(String, String)>,
    pub(super) deadline: Option<Duration>,
    /// How long it may have lain unread while this process did not run.
    pub(super) waited: Duration,
}

/// A server keeps nothing of a stream beside its halves.
#[derive(Debug)]
pub(crate) struct RequestRecord;

impl StreamRecord for RequestRecord {
    type Failure = Status;

    fn is_needed(&self) -> bool {
        false
    }
}

/// How many messages go each way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Unary,
    /// One request, many responses.
    ServerStream,
    /// Many requests.
    Upload,
}

/// A request that starts now, with its slot where the server has slots.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) request: Request,
    pub(super) slot: Option<Slot<Shared<OpenRequests>>>,
}

/// A frame for the server, taken apart.
#[derive(Debug)]
pub(crate) struct ServerInput {
    pub(super) header: Header,
    /// With its size in memory, about.
    pub(super) request: Result<(Request, usize), Refusal>,
}

/// Why a request is not taken.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It cannot be read.
    Malformed(Status),
    /// Nor are others, while the server shuts down.
    Refused(Status),
}

impl OpenRequests {
    pub(super) fn new(
        limits: ServerLimits,
        own: Option<ConnectionState>,
        counts: Arc<Counts>,
    ) -> Self {
        Self {
            own,
            limits,
            ids: RequestIds::default(),
            admission: Admission::new(limits),
            starts: VecDeque::new(),
            open: 0,
            early: EarlyAnswers::default(),
            overdue: Vec::new(),
            slots: None,
            abandoned: false,
            canary_due: None,
            counts,
        }
    }

    /// The handlers of this connection need slots of the server.
    pub(super) fn use_slots(
        &mut self,
        slots: Arc<SharedSlots<Shared<Self>>>,
        connection: Weak<Shared<Self>>,
    ) {
        self.slots = Some(ConnectionSlots {
            slots,
            connection,
            granted: false,
        });
    }
}

impl ConnectionSlots {
    /// A slot, or a place in the queue for one.
    fn take(&mut self) -> Result<Option<Slot<Shared<OpenRequests>>>, u64> {
        if mem::take(&mut self.granted) {
            return Ok(Some(self.slots.granted()));
        }
        match self.connection.upgrade() {
            Some(connection) => self.slots.take_or_enter(connection).map(Some),
            // It is about to end, and starts nothing.
            None => Ok(None),
        }
    }
}

/// A slot for a handler of this connection, if the server has slots.
fn slot(slots: &mut Option<ConnectionSlots>) -> Result<Option<Slot<Shared<OpenRequests>>>, u64> {
    slots.as_mut().map_or(Ok(None), ConnectionSlots::take)
}

impl Grant for Shared<OpenRequests> {
    fn grant(&self) -> bool {
        self.with(|state, effects| {
            let ended = state.end().is_some();
            let Some(slots) = state.side.slots.as_mut().filter(|_| !ended) else {
                return false;
            };
            slots.granted = true;
            state.side.admission.handle_grant();
            state.call_driver(effects);
            true
        })
    }
}
