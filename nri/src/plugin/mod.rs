//! The plugin's side: a builder of handlers, and what serves them to a runtime.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::watch;
use ttrpc_keepalive::{Backoff, DriverThread, IntoTransport, Keepalive};

mod asked;
mod deliveries;
mod end;
mod error;
mod handlers;
mod identity;
mod late;
mod methods;
mod progress;
mod run;
mod runtime;
mod session;

pub use end::{End, EndReason};
pub use error::PluginError;
pub use late::{Late, LateResult};
pub use runtime::{Runtime, UpdateError};
pub use session::{EventContext, RuntimeInfo};

use self::asked::has_result;
use self::identity::Named;
use self::methods::{Add, Configure, Shutdown};
use crate::EventMask;
use crate::api::*;
use crate::services::RuntimeClient;

/// Where runtimes listen for plugins.
pub const DEFAULT_SOCKET: &str = "/var/run/nri/nri.sock";

/// A plugin: handlers of events that share a state.
///
/// The events for which it asks its runtime are those for which it has handlers. Each handler is given
/// the state, the circumstances of the event and its request, and returns what is to be adjusted or
/// changed, or `()` for nothing. A status that it returns fails the event. A handler may be a closure, or
/// an associated function of the state:
///
/// ```
/// use std::error::Error;
/// use std::sync::Arc;
///
/// use ttrpc_keepalive::Status;
/// use ttrpc_keepalive_nri::api::{ContainerAdjustment, CreateContainerRequest};
/// use ttrpc_keepalive_nri::{EventContext, Late, LateResult, Plugin};
///
/// struct Shares(u64);
///
/// impl Shares {
///     async fn adjust(
///         self: Arc<Self>,
///         _: EventContext,
///         event: CreateContainerRequest,
///     ) -> Result<ContainerAdjustment, Status> {
///         let mut adjustment = ContainerAdjustment::new();
///         if event.pod.annotations.contains_key("shares.example.com") {
///             adjustment.add_env("ADJUSTED", "yes");
///             adjustment.resources_mut().set_cpu_shares(self.0);
///         }
///         Ok(adjustment)
///     }
/// }
///
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn Error>> {
///     let plugin = Plugin::new("10", "shares", Arc::new(Shares(512)))
///         .create_container(Shares::adjust)
///         .late(Late::empty().then(LateResult::into_updates));
/// # let (plugin, played) = play(plugin).await?;
///     println!("{}", plugin.run().await?);
/// # played.await?;
///     Ok(())
/// }
/// #
/// # /// A runtime that has this plugin for one container.
/// # async fn play(plugin: Plugin<Arc<Shares>>) -> Result<(Plugin<Arc<Shares>>, tokio::task::JoinHandle<()>), Box<dyn Error>> {
/// #     use ttrpc_keepalive_nri::api::{Container, PodSandbox};
/// #     let folder = tempfile::tempdir()?;
/// #     let socket = folder.path().join("nri.sock").display().to_string();
/// #     let runtime = ttrpc_keepalive_nri::runtime::Runtime::builder("documentation", "1").listen(&socket).await?;
/// #     let plugin = plugin.socket(socket).once();
/// #     let played = tokio::spawn(async move {
/// #         let _folder = folder;
/// #         let mut pod = PodSandbox::new();
/// #         pod.annotations.insert("shares.example.com".into(), String::new());
/// #         for _ in 0..1000 {
/// #             let created = runtime.create_container(pod.clone(), Container::new()).await.expect("nobody refuses");
/// #             if let Some(linux) = created.adjustment.linux.as_ref() {
/// #                 assert_eq!(linux.resources.cpu.shares.value, 512);
/// #                 return;
/// #             }
/// #             tokio::time::sleep(std::time::Duration::from_millis(20)).await;
/// #         }
/// #         panic!("the plugin is not served");
/// #     });
/// #     Ok((plugin, played))
/// # }
/// ```
///
/// # What it does without being asked
///
/// - It answers in time: a handler that needs longer than the runtime waits is answered for, even if it
///   blocks its thread ([`late`](Self::late)). For this the connection is driven by a thread of its own.
/// - It asks to be kept when it is late all the same ([`failure_policy`](Self::failure_policy)), and
///   registers again when it is not ([`reconnect`](Self::reconnect)).
/// - It handles nothing that is for nobody: a request that lay in the socket while the process did not
///   run ([`refuse_waited`](Self::refuse_waited)), or behind which the next event or the connection's end
///   has come.
/// - It answers PINGs whatever its handlers do, so a runtime that asks knows that it is slow and not dead.
/// - It takes events in both shapes in which runtimes send them, collects a Synchronize in parts, and
///   does without events that an old runtime does not know.
///
/// Handlers run on the tokio runtime on which [`run`](Self::run) is called, at the same time where one is
/// late.
#[must_use = "a plugin does nothing until it is run"]
pub struct Plugin<S> {
    named: Named,
    state: S,
    settings: Settings,
    configure: Option<Configure<S>>,
    shutdown: Option<Shutdown<S>>,
    handlers: Vec<Entry<S>>,
    on_end: Option<OnEnd>,
    current: watch::Sender<Option<RuntimeClient>>,
}

type OnEnd = Box<dyn Fn(&End) + Send + Sync>;

#[derive(Debug)]
struct Settings {
    socket: PathBuf,
    reconnect: Option<Backoff>,
    registration_timeout: Duration,
    refuse_waited: Duration,
    failure_policy: Option<FailurePolicy>,
    driver_thread: DriverThread,
    keepalive: Keepalive,
}

/// What an event is handled by.
struct Entry<S> {
    /// `None` is Synchronize.
    event: Option<Event>,
    late: Late,
    add: Add<S>,
}

impl<S: Clone + Send + Sync + 'static> Plugin<S> {
    /// A plugin without handlers. The state is cloned for each event: mostly it is in an `Arc`, and `()` is none.
    /// `index` has two digits, and plugins get events in their order; `name` is
    /// of letters, digits, `-`, `_`, `.` and `+`. Where a runtime has started the plugin it says both, and
    /// these do not count.
    pub fn new(index: &str, name: &str, state: S) -> Self {
        let named = Named::Given {
            index: index.to_owned(),
            name: name.to_owned(),
        };
        Self::with(named, state)
    }

    /// A plugin that has its index and name from the file of its program, as it was called: `10-devices`
    /// is plugin `devices` with index 10. So one program can be installed under several names. What a runtime says of a
    /// plugin that it has started goes before it here too.
    ///
    /// [`run`](Self::run) fails with [`PluginError::InvalidFileName`] if the file is not called so.
    pub fn named_by_file(state: S) -> Self {
        Self::with(Named::ByFile, state)
    }

    fn with(named: Named, state: S) -> Self {
        let failure_policy = FailurePolicy {
            keep_connected: true,
            ..FailurePolicy::default()
        };
        let reconnect = Backoff::new(Duration::from_millis(20), Duration::from_secs(10));
        Self {
            named,
            state,
            settings: Settings {
                socket: PathBuf::from(DEFAULT_SOCKET),
                reconnect: Some(reconnect.settled_after(Duration::from_secs(2))),
                registration_timeout: Duration::from_secs(20),
                refuse_waited: Duration::from_secs(1),
                failure_policy: Some(failure_policy),
                driver_thread: DriverThread::Dedicated,
                keepalive: Keepalive::on_demand(),
            },
            configure: None,
            shutdown: None,
            handlers: Vec::new(),
            on_end: None,
            current: watch::Sender::new(None),
        }
    }

    /// Where the runtime listens: [`DEFAULT_SOCKET`] by default. Not for a plugin that its runtime has
    /// started, which is given a connection.
    pub fn socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.settings.socket = path.into();
        self
    }

    /// How long to wait before each attempt to connect anew: 20 ms at first and 10 s at most by default.
    /// A plugin that a runtime has dropped misses the events until it is back, and is synchronized then.
    pub fn reconnect(mut self, backoff: Backoff) -> Self {
        self.settings.reconnect = Some(backoff);
        self
    }

    /// Ends with the first connection.
    pub fn once(mut self) -> Self {
        self.settings.reconnect = None;
        self
    }

    /// Calls this function at each end of a connection, behind its line in the log: for plugins that keep
    /// something for as long as they are connected.
    pub fn on_end(mut self, told: impl Fn(&End) + Send + Sync + 'static) -> Self {
        self.on_end = Some(Box::new(told));
        self
    }

    /// How long to wait for the answer to a registration: 20 s by default. Runtimes take registrations one
    /// by one, and each that stays silent takes them 5 s.
    pub fn registration_timeout(mut self, timeout: Duration) -> Self {
        self.settings.registration_timeout = timeout;
        self
    }

    /// Refuses events that may have waited for longer than this while the process did not run, 1 s by
    /// default: their time, which is counted from when they are read, is almost over or was before. The
    /// event fails where the runtime still waits, which is better than an answer that it does not. See
    /// [`MethodOptions::refuse_waited`](ttrpc_keepalive::MethodOptions::refuse_waited).
    pub fn refuse_waited(mut self, limit: Duration) -> Self {
        self.settings.refuse_waited = limit;
        self
    }

    /// What the runtime is to do when the plugin is late all the same: from release 0.12.4, and older ones
    /// do not look at it. By default the plugin is kept and the event goes on without it. `None` says
    /// nothing, so that the plugin is dropped.
    pub fn failure_policy(mut self, policy: impl Into<Option<FailurePolicy>>) -> Self {
        self.settings.failure_policy = policy.into();
        self
    }

    /// Which thread reads, writes and answers PINGs: [`DriverThread::Dedicated`] by default, so that
    /// handlers which block theirs are answered for.
    pub fn driver_thread(mut self, thread: DriverThread) -> Self {
        self.settings.driver_thread = thread;
        self
    }

    /// When to ask whether the runtime is alive. [`Keepalive::on_demand`] by default; a runtime that knows
    /// no PING is never judged.
    pub fn keepalive(mut self, keepalive: Keepalive) -> Self {
        self.settings.keepalive = keepalive;
        self
    }

    /// The runtime, for what the plugin does beside its handlers.
    pub fn runtime(&self) -> Runtime {
        Runtime::new(self.current.subscribe())
    }

    /// Connects, registers and handles events, again and again. Yields only for a plugin that its runtime
    /// has started, when the connection ends, and after [`once`](Self::once).
    ///
    /// Each end is logged in one line.
    ///
    /// # Errors
    ///
    /// If the plugin cannot run as it is built, and if [`reconnect`](Self::reconnect) sets a number of
    /// attempts and none of them came to something.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with I/O and time enabled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the connection. Handlers run on to their end.
    pub async fn run(self) -> Result<End, PluginError> {
        self.run_until(std::future::pending::<()>()).await
    }

    /// The same until `stop` is ready. Handlers that are at work then have 2 s to answer.
    ///
    /// # Errors
    ///
    /// As for [`run`](Self::run).
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with I/O and time enabled.
    ///
    /// # Cancel safety
    ///
    /// As of [`run`](Self::run).
    pub async fn run_until(self, stop: impl Future) -> Result<End, PluginError> {
        run::run(self, stop).await
    }

    /// Registers on this stream and handles events until it ends: for a runtime in the same process, or
    /// one that is reached in a way of its own.
    ///
    /// # Errors
    ///
    /// If the plugin cannot run as it is built.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with time enabled.
    ///
    /// # Cancel safety
    ///
    /// As of [`run`](Self::run).
    pub async fn run_on(self, stream: impl IntoTransport) -> Result<End, PluginError> {
        run::run_on(self, stream).await
    }
}

impl<S> Plugin<S> {
    /// The events for which the runtime is asked.
    fn events(&self) -> EventMask {
        let handled = self.handlers.iter().filter_map(|entry| entry.event);
        let delivers = self.handlers.iter().any(|entry| {
            // That a container exists is told by the event behind its creation.
            entry.event == Some(Event::CREATE_CONTAINER) && entry.late.delivery().is_some()
        });
        let told = delivers.then_some(Event::POST_CREATE_CONTAINER);
        handled.chain(told).collect()
    }

    /// Refuses a plugin that cannot do what it says.
    fn check(&self) -> Result<(), PluginError> {
        for entry in &self.handlers {
            if entry.event == Some(Event::UNKNOWN) {
                return Err(PluginError::LateWithoutEvent);
            }
            let event = entry.event.filter(|event| !has_result(*event));
            if let Some(event) = event.filter(|_| entry.late.delivery().is_some()) {
                let event = event.method_name();
                return Err(PluginError::NothingToDeliver { event });
            }
        }
        if self.events().is_empty() {
            return Err(PluginError::NoEvents);
        }
        Ok(())
    }
}

impl<S> fmt::Debug for Plugin<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plugin")
            .field("named", &self.named)
            .field("events", &self.events())
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
