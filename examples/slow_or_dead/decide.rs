//! How a runtime decides about its plugins. This is the file to take along; all others are stage.
//!
//! Three questions, each with its own source:
//!
//! - *Is it worth asking now?* [`Client::peer`], and whether it is still at work on a late event.
//! - *It is late: what now?* The error's verdict and its late answer. Nobody is disconnected.
//! - *Is it gone?* The liveness stream, beside the calls and no matter whether there are any.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use protobuf::well_known_types::empty::Empty;
use ttrpc_keepalive::{Client, ConnectionError, Error, Liveness, Peer};

use crate::runtime::Runtime;
use crate::timeline::{Happening, Timeline};
use crate::{HANDLE_EVENT, LIMIT, PLUGIN_SERVICE, number};

/// A plugin that has registered. It is one connection: whoever reconnects is registered anew.
pub(crate) struct Plugin {
    pub(crate) name: &'static str,
    pub(crate) client: Client,
    /// It is still at work on an event whose time has run out.
    set_aside: AtomicBool,
    timeline: Arc<Timeline>,
}

/// What came of one event for one plugin.
#[derive(Debug)]
pub(crate) enum Outcome {
    Applied,
    /// Not asked, and so at no cost: it is doubtful or set aside.
    Skipped,
    Late(Error),
    Failed(Error),
    /// No such plugin is registered.
    Absent,
}

impl Plugin {
    pub(crate) fn new(name: &'static str, client: Client, timeline: Arc<Timeline>) -> Self {
        Self {
            name,
            client,
            set_aside: AtomicBool::new(false),
            timeline,
        }
    }

    /// Sends it one event and decides by what comes back.
    pub(crate) async fn deliver(self: &Arc<Self>, event: u32) -> Outcome {
        if self.client.peer() != Peer::Alive || self.set_aside.load(Ordering::Relaxed) {
            return Outcome::Skipped; // costs the node nothing
        }
        let request = number(event);
        let call = self
            .client
            .call::<_, Empty>(PLUGIN_SERVICE, HANDLE_EVENT, &request);
        match call.timeout(LIMIT).await {
            Ok(_) => Outcome::Applied,
            Err(error) if error.is_deadline() => {
                self.note_late(event, &error); // nobody is disconnected here
                Outcome::Late(error)
            }
            Err(error) => Outcome::Failed(error),
        }
    }

    /// Sets it aside until it has answered: it would queue the next event behind this one, and the
    /// node would wait in vain each time.
    fn note_late(self: &Arc<Self>, event: u32, error: &Error) {
        // None if the request never left: then there is nothing that it could be at work on.
        let Some(answer) = error.late_answer() else {
            return;
        };
        self.set_aside.store(true, Ordering::Relaxed);
        let plugin = Arc::clone(self);
        tokio::spawn(async move {
            let outcome = answer.await;
            plugin.set_aside.store(false, Ordering::Relaxed);
            let happening = Happening::LateAnswer { event, outcome };
            plugin.timeline.tell(plugin.name, happening);
        });
    }
}

/// Follows a plugin's liveness until it is gone, and evicts it then.
///
/// It holds no client: a connection stays open as long as somebody holds one.
pub(crate) async fn watch(name: &'static str, mut liveness: Liveness, runtime: Arc<Runtime>) {
    let (mut before, mut overdue) = (Peer::Alive, false);
    while let Some(seen) = liveness.next().await {
        let peer = seen.peer();
        match peer {
            Peer::Alive if before == Peer::Alive => {}
            Peer::Alive => {
                overdue = false;
                runtime.timeline.tell(name, Happening::Heard(seen));
            }
            Peer::Doubtful if seen.overdue() => {
                if !overdue && runtime.decide_overdue(name).await {
                    return;
                }
                overdue = true;
            }
            Peer::Doubtful => runtime.timeline.tell(name, Happening::Doubtful(seen)),
            Peer::Gone => {
                runtime.evict_gone(name);
                let happening = match seen.end() {
                    Some(ConnectionError::Dead { evidence, .. }) => Happening::Dead(**evidence),
                    Some(end) => Happening::Gone(end.clone()),
                    None => return,
                };
                runtime.timeline.tell(name, happening);
            }
        }
        before = peer;
    }
}
