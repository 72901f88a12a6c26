//! What all parts of a runtime share: its settings, its plugins, and whose turn it is.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard as StdGuard, PoisonError, Weak};

use tokio::sync::{Mutex as Turn, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use ttrpc_keepalive::{ConnectionError, Server};

use super::builder::Settings;
use super::change::Change;
use super::member::Member;
use super::name::PluginName;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) this: Weak<Self>,
    pub(super) settings: Settings,
    /// Serves connection 2 of all plugins.
    pub(super) server: Server,
    plugins: Mutex<Plugins>,
    /// One event at a time: plugins take one behind which the next has come for a stale one. It guards no
    /// data, and is held across calls.
    turn: Turn<()>,
    /// Read by who changes what [`Settings::state`] tells, written by who needs it to stand still.
    changing: RwLock<()>,
    /// How many changes have begun.
    begun: AtomicU64,
}

#[derive(Debug, Default)]
struct Plugins {
    /// In the order in which they are asked.
    present: Vec<Arc<Member>>,
    /// How required ones ended that are not there, for the error of who misses them.
    lost: HashMap<String, ConnectionError>,
}

/// While it is held no plugin is [synchronized](super::Runtime::hold_synchronize).
#[derive(Debug)]
pub struct SynchronizeHold<'a> {
    _changing: RwLockReadGuard<'a, ()>,
}

/// Nothing changes while this is held, and no event is sent.
#[derive(Debug)]
pub(super) struct Quiet<'a> {
    _still: RwLockWriteGuard<'a, ()>,
    _turn: MutexGuard<'a, ()>,
    pub(super) begun: u64,
}

impl Shared {
    pub(super) fn new(this: Weak<Self>, settings: Settings, server: Server) -> Self {
        Self {
            this,
            settings,
            server,
            plugins: Mutex::default(),
            turn: Turn::new(()),
            changing: RwLock::new(()),
            begun: AtomicU64::new(0),
        }
    }

    /// Waits until it is this event's turn.
    pub(super) async fn turn(&self) -> MutexGuard<'_, ()> {
        let turn = self.turn.lock().await;
        self.begun.fetch_add(1, Ordering::Relaxed);
        turn
    }

    pub(super) async fn hold_synchronize(&self) -> SynchronizeHold<'_> {
        let changing = self.changing.read().await;
        self.begun.fetch_add(1, Ordering::Relaxed);
        SynchronizeHold {
            _changing: changing,
        }
    }

    /// Waits until nothing is changing. Who holds back Synchronize sends events meanwhile, so the turn comes
    /// second.
    pub(super) async fn quiet(&self) -> Quiet<'_> {
        let still = self.changing.write().await;
        let turn = self.turn.lock().await;
        Quiet {
            _still: still,
            _turn: turn,
            begun: self.begun.load(Ordering::Relaxed),
        }
    }

    /// Puts it where its index belongs. One of the same name goes: it is an earlier life of this plugin, and
    /// its connection may be one that nobody closed.
    pub(super) fn enter(&self, member: &Arc<Member>) {
        let mut plugins = self.plugins();
        let same = |known: &Arc<Member>| known.name == member.name;
        let replaced: Vec<_> = plugins
            .present
            .iter()
            .filter(|known| same(known))
            .cloned()
            .collect();
        plugins.present.retain(|known| !same(known));
        let place = plugins
            .present
            .partition_point(|known| known.name < member.name);
        plugins.present.insert(place, Arc::clone(member));
        plugins.lost.remove(&member.name.to_string());
        drop(plugins);
        for earlier in replaced {
            earlier.client().abort();
        }
    }

    /// Forgets a plugin whose connection is over, and what it said.
    pub(super) fn leave(&self, member: &Arc<Member>) {
        let end = member.end();
        let mut plugins = self.plugins();
        let before = plugins.present.len();
        plugins.present.retain(|known| !Arc::ptr_eq(known, member));
        // Not if it was replaced: then the newer one is there.
        if plugins.present.len() < before && self.is_required(&member.name) {
            plugins.lost.insert(member.name.to_string(), end.clone());
        }
        drop(plugins);
        self.tell(&member.name, &Change::Gone(end));
    }

    /// All that are registered, in the order in which they are asked.
    pub(super) fn members(&self) -> Vec<Arc<Member>> {
        self.plugins().present.clone()
    }

    /// The first required one that is not registered, and how it ended if it was.
    pub(super) fn missing(&self) -> Option<(String, Option<ConnectionError>)> {
        let plugins = self.plugins();
        let present = |name: &String| {
            plugins
                .present
                .iter()
                .any(|known| known.name.answers_to(name))
        };
        let missing = self.settings.required.iter().find(|name| !present(name))?;
        let lost = plugins
            .lost
            .iter()
            .find(|(name, _)| PluginName::parse(name).is_ok_and(|name| name.answers_to(missing)));
        Some((missing.clone(), lost.map(|(_, end)| end.clone())))
    }

    pub(super) fn is_required(&self, plugin: &PluginName) -> bool {
        let required = &self.settings.required;
        required.iter().any(|name| plugin.answers_to(name))
    }

    /// Forgets all of them, at the end.
    pub(super) fn clear(&self) {
        let members = std::mem::take(&mut self.plugins().present);
        for member in members {
            member.client().abort();
        }
    }

    pub(super) fn tell(&self, plugin: &PluginName, change: &Change) {
        self.settings.told.tell(plugin, change);
    }

    fn plugins(&self) -> StdGuard<'_, Plugins> {
        self.plugins.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
