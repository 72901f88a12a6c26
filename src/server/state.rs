//! Shared by all connections and calls of one server.

use std::sync::Arc;

use tokio::sync::watch;

use super::counters::Counts;
use super::requests::OpenRequests;
use super::slots::SharedSlots;
use crate::config::ServerSettings;
use crate::connection::Shared;

#[derive(Debug)]
pub(super) struct ServerState {
    pub(super) settings: ServerSettings,
    /// Whoever serves holds a receiver, so that a shutdown sees when nobody does any more.
    pub(super) phase: watch::Sender<Phase>,
    /// Handlers are told by it. Apart from the phase: a handler may keep its receiver.
    pub(super) draining: watch::Sender<bool>,
    pub(super) counts: Arc<Counts>,
    /// `None` without a limit for the whole server.
    pub(super) slots: Option<Arc<SharedSlots<Shared<OpenRequests>>>>,
}

/// How far a shutdown has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Serving,
    /// Calls that run are ended, new ones refused.
    Draining,
    /// The requests of streams end too.
    Ending,
    Stopped,
}

impl ServerState {
    pub(super) fn new(settings: ServerSettings) -> Arc<Self> {
        let slots = settings.total_handlers.map(SharedSlots::new);
        Arc::new(Self {
            settings,
            phase: watch::Sender::new(Phase::Serving),
            draining: watch::Sender::new(false),
            counts: Arc::default(),
            slots,
        })
    }
}
