//! One plugin that has registered, as long as its connection lasts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use ttrpc_keepalive::{Client, ConnectionError, Peer, Snapshot};

use super::error::Absence;
use super::name::PluginName;
use super::standing::{Standing, Step};
use crate::EventMask;
use crate::api::{ConfigureResponse, Event, FailurePolicy};
use crate::services::PluginClient;

/// A plugin's connection and what is decided about it.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: PluginName,
    pub(super) plugin: PluginClient,
    /// How long it may take for an event.
    pub(super) limit: Duration,
    pub(super) policy: FailurePolicy,
    /// If there is none in it, it wants all, and may not know all of them.
    events: EventMask,
    /// It is told of what changes by `StateChange`: it does not know the methods for it.
    state_change: AtomicBool,
    standing: Mutex<Standing>,
    /// It is to be synchronized.
    pub(super) join: Notify,
}

impl Member {
    /// # Errors
    ///
    /// It asks for an event that there is not.
    pub(super) fn new(
        name: PluginName,
        client: Client,
        limit: Duration,
        configured: &ConfigureResponse,
    ) -> Result<Self, String> {
        let events = EventMask::from_bits(configured.events);
        let unknown = events.without(EventMask::ALL);
        if !unknown.is_empty() {
            return Err(format!("it asks for events that there are not: {unknown}"));
        }
        Ok(Self {
            name,
            plugin: PluginClient::new(client),
            limit,
            policy: configured.failure_policy.clone().unwrap_or_default(),
            events,
            state_change: AtomicBool::new(false),
            standing: Mutex::new(Standing::Joining),
            join: Notify::new(),
        })
    }

    pub(super) fn client(&self) -> &Client {
        self.plugin.client()
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.client().snapshot()
    }

    pub(super) fn wants(&self, event: Event) -> bool {
        self.wants_all() || self.events.contains(event)
    }

    /// Whether it was only assumed that it knows all events.
    pub(super) fn wants_all(&self) -> bool {
        self.events.is_empty()
    }

    pub(super) fn takes_state_change(&self) -> bool {
        self.state_change.load(Ordering::Relaxed)
    }

    pub(super) fn use_state_change(&self) {
        self.state_change.store(true, Ordering::Relaxed);
    }

    pub(super) fn standing(&self) -> Standing {
        self.with(|standing, _| *standing)
    }

    /// Whether it is sent the event that is there now, and why not.
    pub(super) fn admit(&self) -> Result<(), Absence> {
        self.with(|standing, peer| match standing.admits(peer) {
            true => Ok(()),
            false => Err(self.why(*standing)),
        })
    }

    /// Changes how this runtime stands to it, by what happened.
    pub(super) fn decide(&self, rule: impl FnOnce(&mut Standing, Peer) -> Step) -> Step {
        let step = self.with(rule);
        if step == Step::Join {
            self.join.notify_one();
        }
        step
    }

    pub(super) fn handle_joined(&self) {
        self.with(|standing, _| standing.handle_joined());
    }

    /// Why its connection has ended: this side ends it if it has not yet.
    pub(super) fn end(&self) -> ConnectionError {
        let snapshot = self.snapshot();
        snapshot
            .end()
            .cloned()
            .unwrap_or(ConnectionError::LocalClose)
    }

    /// Why it is sent no events. `None` if it is.
    pub(super) fn absence(&self) -> Option<Absence> {
        self.with(|standing, peer| match (*standing, peer) {
            (_, Peer::Gone) => Some(Absence::Gone(self.end())),
            (Standing::Serving, Peer::Doubtful) => Some(Absence::Silent),
            (Standing::Serving, _) => None,
            (standing, _) => Some(self.why(standing)),
        })
    }

    fn why(&self, standing: Standing) -> Absence {
        match standing {
            Standing::Joining => Absence::Synchronizing,
            Standing::Aside(aside) => aside.verdict.map_or(Absence::Silent, Absence::SetAside),
            Standing::Serving | Standing::Gone => Absence::Gone(self.end()),
        }
    }

    fn with<T>(&self, rule: impl FnOnce(&mut Standing, Peer) -> T) -> T {
        // Asked before the lock, which is for bookkeeping alone.
        let peer = self.client().peer();
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        rule(&mut standing, peer)
    }
}
