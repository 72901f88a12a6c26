//! The runtime's side of the stage: it accepts plugins, registers them, and has an event for each
//! of them every second.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protobuf::well_known_types::empty::Empty;
use protobuf::well_known_types::wrappers::StringValue;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval_at};
use ttrpc_keepalive::{Client, Keepalive, Listener, OnSilence, ProcessState, Socket};

use crate::decide::{Outcome, Plugin, watch};
use crate::record::now;
use crate::timeline::{Happening, Timeline};
use crate::{
    INTERVAL, LIMIT, PERIOD, PLUGIN_SERVICE, PLUGINS, REGISTER, Result, Rules, TIMEOUT, today,
};

/// How long one that is overdue may take to answer once more.
const PATIENCE: Duration = Duration::from_millis(100);

/// The runtime.
pub(crate) struct Runtime {
    pub(crate) timeline: Arc<Timeline>,
    rules: Rules,
    plugins: Mutex<HashMap<&'static str, Arc<Plugin>>>,
}

impl Runtime {
    pub(crate) fn new(timeline: Arc<Timeline>, rules: Rules) -> Self {
        Self {
            timeline,
            rules,
            plugins: Mutex::default(),
        }
    }

    /// Accepts plugins for ever. Each registers in a task of its own: one that connects and then
    /// says nothing must not keep the others out.
    pub(crate) async fn accept(self: Arc<Self>, listener: Listener) {
        let mut connections = JoinSet::new();
        loop {
            match listener.accept().await {
                Ok(stream) => {
                    connections.spawn(Arc::clone(&self).serve(stream));
                }
                Err(error) => {
                    eprintln!("accepting a plugin failed: {error}");
                    tokio::time::sleep(LIMIT).await;
                }
            }
        }
    }

    /// Serves one connection from its registration until its plugin is gone.
    async fn serve(self: Arc<Self>, stream: Socket) {
        match self.register(stream).await {
            Ok(plugin) => {
                let (name, liveness) = (plugin.name, plugin.client.liveness());
                drop(plugin);
                watch(name, liveness, self).await;
            }
            Err(error) => eprintln!("a plugin could not register: {error}"),
        }
    }

    /// A new connection and its first call are the registration. The plugin has dialled, and is
    /// the server on the stream all the same.
    async fn register(&self, stream: Socket) -> Result<Arc<Plugin>> {
        let keepalive = match self.rules {
            Rules::Evidence => Keepalive::every(INTERVAL).timeout(TIMEOUT),
            Rules::OldPeers | Rules::OldPeersInGo => Keepalive::every(INTERVAL)
                .timeout(TIMEOUT)
                .watch_by_receipts(true)
                .on_silence(OnSilence::Report),
            Rules::Today => Keepalive::off(),
        };
        let client = Client::builder().keepalive(keepalive).attach(stream)?;
        let registration: StringValue = client
            .call(PLUGIN_SERVICE, REGISTER, &Empty::new())
            .timeout(LIMIT)
            .await?;
        let (name, pid) = registered(&registration.value)
            .ok_or_else(|| format!("{:?} is not a registration", registration.value))?;

        let seen = client.snapshot();
        let plugin = Arc::new(Plugin::new(name, client, Arc::clone(&self.timeline)));
        self.plugins().insert(name, Arc::clone(&plugin));
        self.timeline
            .tell(name, Happening::Registered { pid, seen });
        Ok(plugin)
    }

    /// Has an event for one plugin every second until `ended`; the next one waits while one is in
    /// flight.
    pub(crate) async fn send_events(
        self: Arc<Self>,
        name: &'static str,
        start: Instant,
        mut ended: watch::Receiver<bool>,
    ) {
        let mut due = interval_at(start + PERIOD, PERIOD);
        for event in 1.. {
            tokio::select! {
                _ = due.tick() => {}
                _ = ended.wait_for(|ended| *ended) => return,
            }
            let began = now();
            let plugin = self.plugins().get(name).map(Arc::clone);
            let outcome = match (plugin, self.rules) {
                (None, _) => Outcome::Absent,
                (Some(plugin), Rules::Today) => today::deliver(&plugin, event, &self).await,
                (Some(plugin), _) => plugin.deliver(event).await,
            };
            let took = now().saturating_sub(began);
            let happening = Happening::Event {
                event,
                took,
                outcome,
            };
            self.timeline.tell(name, happening);
        }
    }

    /// Forgets a plugin whose connection is over, unless it has registered anew meanwhile.
    pub(crate) fn evict_gone(&self, name: &str) {
        let mut plugins = self.plugins();
        if plugins
            .get(name)
            .is_some_and(|plugin| plugin.client.snapshot().end().is_some())
        {
            plugins.remove(name);
        }
    }

    /// Decides about a plugin that has been silent for all of its time, and was left to this. One that runs
    /// may be held up by its only thread, and come back: it is skipped meanwhile, which costs nothing. One
    /// that is stopped is evicted. Returns whether it was.
    pub(crate) async fn decide_overdue(&self, name: &'static str) -> bool {
        let Some(plugin) = self.plugins().get(name).map(Arc::clone) else {
            return false;
        };
        // It has no answer; what is asked for is what the error says of its process.
        let asked = plugin.client.probe(PATIENCE).await;
        let Some(evidence) = asked.err().and_then(|error| error.evidence().copied()) else {
            return false;
        };
        if evidence.process == Some(ProcessState::Running) {
            self.timeline.tell(name, Happening::Spared(evidence));
            return false;
        }
        self.disconnect(&plugin);
        plugin.client.abort();
        self.timeline.tell(name, Happening::Dead(evidence));
        true
    }

    /// Forgets a plugin; its connection closes with the last client.
    pub(crate) fn disconnect(&self, plugin: &Arc<Plugin>) {
        let mut plugins = self.plugins();
        if plugins
            .get(plugin.name)
            .is_some_and(|present| Arc::ptr_eq(present, plugin))
        {
            plugins.remove(plugin.name);
        }
    }

    fn plugins(&self) -> MutexGuard<'_, HashMap<&'static str, Arc<Plugin>>> {
        self.plugins.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the name and the process id that a plugin registers with.
fn registered(registration: &str) -> Option<(&'static str, u32)> {
    let (name, pid) = registration.split_once(' ')?;
    let name = PLUGINS.into_iter().find(|known| *known == name)?;
    Some((name, pid.parse().ok()?))
}
