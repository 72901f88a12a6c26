//! The runtime's side: plugins connect, are told of the events of a node, and adjust its containers.
//!
//! ```no_run
//! # use ttrpc_keepalive_nri::api::{Container, PodSandbox};
//! # use ttrpc_keepalive_nri::runtime::Runtime;
//! # async fn example(pod: PodSandbox, container: Container) -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = Runtime::builder("my-runtime", "1.0")
//!     .required("10-devices")
//!     .hook(|plugin, change| println!("{plugin}: {change}"))
//!     .listen("/var/run/nri/nri.sock")
//!     .await?;
//!
//! // When a pod is created, and before its container is:
//! runtime.run_pod_sandbox(pod.clone()).await?;
//! let adjusted = runtime.create_container(pod, container).await?;
//! for variable in &adjusted.adjustment.env {
//!     println!("{}={}", variable.key, variable.value);
//! }
//! # Ok(()) }
//! ```
//!
//! # A plugin is late: what happens
//!
//! Nobody is disconnected for being late. The call's verdict says what is known of the plugin's process, and
//! by that the plugin is kept or [set aside](Change::SetAside): it is sent no events, so that none waits for
//! it, until it has answered what it was late with and then *Synchronize*, which tells it what it missed.
//! Only the end of its connection, a conviction among others, makes the runtime forget it.
//!
//! | it | this event | the next ones | until |
//! |---|---|---|---|
//! | is slow, or its handlers are stuck | goes on without it after its limit | skip it at no cost | it has answered, and *Synchronize* too |
//! | does not respond, or does not read | the same | the same | the same; or the watch finds it dead |
//! | knows no PING, and where it is cannot be told | the same | the same | the same |
//! | fell silent while nothing was asked | skips it at no cost | the same | it is heard |
//! | is late because this process did not run, or its request waits behind others of ours | goes on without it | ask it | |
//! | has closed, crashed, or was found dead | goes on without it | | it registers anew |
//!
//! *Goes on* is for plugins that are not [required](RuntimeBuilder::required). The error of an event that
//! fails for want of one says why: [`Absence`].
//!
//! # Others
//!
//! A plugin that answers an error in time fails its event, whatever the event is, and those behind it are not
//! asked. One that does not know the methods of release 0.12 is told of what changes by `StateChange`. A
//! validator is asked after all others, and creation fails without its consent. Who registers under the name of
//! one that is there takes its place.

use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinHandle, JoinSet};
use ttrpc_keepalive::{IntoTransport, Listener, Snapshot};

mod asking;
mod builder;
mod change;
mod combine;
mod error;
mod events;
mod joining;
mod launch;
mod member;
mod name;
mod parts;
mod registration;
mod shared;
mod standing;

pub use builder::RuntimeBuilder;
pub use change::Change;
pub use combine::{Adjustment, Conflict, Update};
pub use error::{Absence, EventError, StartError};
pub use shared::SynchronizeHold;

use launch::Found;
use shared::Shared;

/// How many plugins may be connected: more than a node has, and few enough to be served by a process that
/// somebody fills with connections. More wait to be accepted.
const CONNECTIONS: usize = 1024;

/// After an error of accepting, which most often is a lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A runtime and its plugins. A clone is the same one; with the last, plugins are disconnected.
#[derive(Clone, Debug)]
pub struct Runtime {
    shared: Arc<Shared>,
    serving: Arc<Serving>,
}

/// A plugin as it is now.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PluginStatus {
    /// Its index and name: `10-devices`.
    pub name: String,
    /// Why it is sent no events. `None` if it is sent them.
    pub absence: Option<Absence>,
    /// What is known of its process, and of the calls that it has not answered.
    pub snapshot: Snapshot,
}

/// Ends with the last handle of its runtime.
#[derive(Debug)]
struct Serving {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Serving {
    fn end(&self) {
        self.task.abort();
        self.shared.clear();
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.end();
    }
}

impl Runtime {
    /// Begins a runtime that tells its plugins this name and version.
    ///
    /// Plugins without a version of NRI in the runtime's request infer it from these two, so what is another
    /// runtime's name should not be used.
    pub fn builder(name: &str, version: &str) -> RuntimeBuilder {
        RuntimeBuilder::new(name, version)
    }

    async fn start(builder: RuntimeBuilder, socket: Option<&str>) -> Result<Self, StartError> {
        builder.settings.validate()?;
        let found = match &builder.plugins {
            Some(folder) => launch::find(folder, builder.configurations.as_deref())?,
            None => Vec::new(),
        };
        let listener = match socket {
            Some(socket) => Some(listen(socket).await?),
            None => None,
        };
        let server = registration::server()?;
        let settings = builder.settings;
        let shared = Arc::new_cyclic(|this| Shared::new(this.clone(), settings, server));
        let task = tokio::spawn(serve(Arc::clone(&shared), listener, found));
        let serving = Arc::new(Serving {
            shared: Arc::clone(&shared),
            task,
        });
        Ok(Self { shared, serving })
    }

    /// Serves a plugin that is connected by this stream, until its connection ends or the runtime is
    /// [shut down](Self::shutdown).
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future disconnects the plugin.
    pub async fn serve_plugin(&self, stream: impl IntoTransport) {
        self.shared.serve(stream, None).await;
    }

    /// Disconnects all plugins, ends those that it started, and closes the socket, as dropping the last handle
    /// does. Plugins are not told why: as with all releases of NRI, the connection just closes.
    ///
    /// An event that is under way goes on without them, or fails for want of one.
    pub fn shutdown(&self) {
        self.serving.end();
    }

    /// All plugins that are registered, in the order in which they are asked.
    ///
    /// It waits for no event, however long one takes: [`Snapshot::oldest_call_for`] says who is being waited
    /// for.
    pub fn plugins(&self) -> Vec<PluginStatus> {
        let members = self.shared.members();
        let status = |member: &Arc<member::Member>| PluginStatus {
            name: member.name.to_string(),
            absence: member.absence(),
            snapshot: member.snapshot(),
        };
        members.iter().map(status).collect()
    }

    /// Keeps plugins from being synchronized, and so from being let in, while this is held: from before an
    /// event is sent until [the state](RuntimeBuilder::state) has what it is about. A plugin that came in
    /// between would be told neither by the event nor by the state.
    ///
    /// Events go on meanwhile, and it may be held by several at a time, but not twice by one: the second would
    /// wait behind a plugin that waits for the first. Without it a plugin that comes during an event is
    /// synchronized after it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future holds nothing.
    pub async fn hold_synchronize(&self) -> SynchronizeHold<'_> {
        self.shared.hold_synchronize().await
    }
}

/// Binds the socket for plugins.
async fn listen(socket: &str) -> Result<Listener, StartError> {
    let path = Path::new(socket.strip_prefix("unix://").unwrap_or(socket));
    if let Some(folder) = path.parent().filter(|folder| folder.is_absolute()) {
        let made = std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder);
        made.map_err(|source| StartError::Folder {
            path: folder.to_owned(),
            source,
        })?;
    }
    let builder = Listener::builder().replace_stale(true).mode(0o600);
    Ok(builder.bind(socket).await?)
}

/// Serves plugins, each in a task of its own: one that says nothing must not keep others out.
async fn serve(shared: Arc<Shared>, listener: Option<Listener>, found: Vec<Found>) {
    let mut connections = JoinSet::new();
    for plugin in found {
        match plugin.start() {
            Ok((mut child, stream)) => {
                let shared = Arc::clone(&shared);
                connections.spawn(async move {
                    shared.serve(stream, Some(plugin.launched)).await;
                    // It was started for this connection, and may be stuck.
                    if let Err(error) = child.kill().await {
                        tracing::debug!("a plugin had ended: {error}");
                    }
                });
            }
            Err(error) => {
                let reason = format!("it could not be started: {error}");
                shared.tell(&plugin.launched.name, &Change::Refused(reason));
            }
        }
    }
    let Some(listener) = listener else {
        while connections.join_next().await.is_some() {}
        return;
    };
    loop {
        while connections.try_join_next().is_some() {}
        if connections.len() >= CONNECTIONS {
            connections.join_next().await;
        }
        match listener.accept().await {
            Ok(stream) => {
                let shared = Arc::clone(&shared);
                connections.spawn(async move { shared.serve(stream, None).await });
            }
            Err(error) => {
                tracing::warn!("a plugin could not be accepted: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
