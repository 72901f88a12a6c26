//! What a runtime is told before it begins.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use ttrpc_keepalive::{Keepalive, Status};

use super::Runtime;
use super::change::{Change, Told};
use super::error::StartError;
use super::name::PluginName;
use crate::api::{Container, ContainerUpdate, PodSandbox, UpdateContainersRequest};

/// How long a plugin may take for an event, in every release of NRI.
const LIMIT: Duration = Duration::from_secs(2);
/// How long it may take to register.
const REGISTRATION_LIMIT: Duration = Duration::from_secs(5);
const INTERVAL: Duration = Duration::from_secs(10);

type Answer<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type StateOf = Box<dyn Fn() -> Answer<(Vec<PodSandbox>, Vec<Container>)> + Send + Sync>;
type UpdateBy = Box<
    dyn Fn(String, UpdateContainersRequest) -> Answer<Result<Vec<ContainerUpdate>, Status>>
        + Send
        + Sync,
>;
type Exempt = Box<dyn Fn(&PodSandbox) -> bool + Send + Sync>;

/// Settings of a [`Runtime`].
#[derive(Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct RuntimeBuilder {
    pub(super) settings: Settings,
    pub(super) plugins: Option<PathBuf>,
    pub(super) configurations: Option<PathBuf>,
}

pub(super) struct Settings {
    pub(super) name: String,
    pub(super) version: String,
    limit: Duration,
    plugin_limits: Vec<(String, Duration)>,
    pub(super) registration_limit: Duration,
    pub(super) keepalive: Keepalive,
    pub(super) required: Vec<String>,
    pub(super) exempt: Option<Exempt>,
    pub(super) state: Option<StateOf>,
    pub(super) update: Option<UpdateBy>,
    pub(super) told: Told,
}

impl RuntimeBuilder {
    pub(super) fn new(name: &str, version: &str) -> Self {
        Self {
            settings: Settings {
                name: name.to_owned(),
                version: version.to_owned(),
                limit: LIMIT,
                plugin_limits: Vec::new(),
                registration_limit: REGISTRATION_LIMIT,
                keepalive: Keepalive::every(INTERVAL).watch_by_receipts(true),
                required: Vec::new(),
                exempt: None,
                state: None,
                update: None,
                told: Told::default(),
            },
            plugins: None,
            configurations: None,
        }
    }

    /// How long a plugin may take for an event: 2 s by default. It is told so.
    ///
    /// An event goes to one plugin after another, so it may take as long as all of them together.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.settings.limit = limit;
        self
    }

    /// How long one plugin may take, by its name, with or without its index: `10-devices` or `devices`. The
    /// first that fits counts.
    pub fn plugin_limit(mut self, plugin: &str, limit: Duration) -> Self {
        self.settings.plugin_limits.push((plugin.to_owned(), limit));
        self
    }

    /// How long a plugin may take to register once it is connected, and again to answer *Configure*: 5 s by
    /// default. One that stays silent keeps nobody else out.
    pub fn registration_limit(mut self, limit: Duration) -> Self {
        self.settings.registration_limit = limit;
        self
    }

    /// How plugins are watched: a PING after 10 s without a sign of life, 10 s to answer it, and plugins that
    /// know no PING by what their processes [read](Keepalive::watch_by_receipts).
    ///
    /// A verdict on a late call needs none of that; it is how one that is dead is found and forgotten while
    /// nothing is asked of it.
    pub fn keepalive(mut self, keepalive: Keepalive) -> Self {
        self.settings.keepalive = keepalive;
        self
    }

    /// A plugin without which nothing is begun, by its name, with or without its index. Events that it has no
    /// part in, because it is late, set aside, gone, or has not registered, fail with an error that says why.
    ///
    /// What ends something never fails so, nor what only tells of something that was done: Stop, Remove and
    /// the Post events. If it has not registered, RunPodSandbox and CreateContainer fail.
    pub fn required(mut self, plugin: &str) -> Self {
        self.settings.required.push(plugin.to_owned());
        self
    }

    /// Pods that are begun although a required plugin is missing: the plugin's own pod above all, which could
    /// not start it otherwise.
    pub fn exempt(mut self, pod: impl Fn(&PodSandbox) -> bool + Send + Sync + 'static) -> Self {
        self.settings.exempt = Some(Box::new(pod));
        self
    }

    /// All pods and containers that there are: what a plugin is told when it comes, and when it comes back.
    /// Nothing by default.
    ///
    /// It may be asked at any time, and events wait for it where a plugin missed one while it was being told. So it
    /// must neither send events nor wait for [`Runtime::hold_synchronize`], which is for what is being changed
    /// meanwhile.
    pub fn state<F, Fut>(mut self, state: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = (Vec<PodSandbox>, Vec<Container>)> + Send + 'static,
    {
        self.settings.state = Some(Box::new(move || Box::pin(state())));
        self
    }

    /// Does what a plugin, which is named first, asks for beside events: it updates and evicts containers.
    /// Yields the updates that failed. UNIMPLEMENTED by default.
    ///
    /// A plugin may ask while it is handling an event, so this must not wait for the end of one.
    pub fn update<F, Fut>(mut self, update: F) -> Self
    where
        F: Fn(String, UpdateContainersRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<ContainerUpdate>, Status>> + Send + 'static,
    {
        self.settings.update = Some(Box::new(move |plugin, request| {
            Box::pin(update(plugin, request))
        }));
        self
    }

    /// Is told of all that happens to plugins, the name first. It is called where it happens, so it should
    /// return at once. A panic of it is logged.
    pub fn hook(mut self, hook: impl Fn(&str, &Change) + Send + Sync + 'static) -> Self {
        self.settings.told = Told(Some(Box::new(hook)));
        self
    }

    /// Starts the plugins in this folder, which are executables called `10-devices`, when the runtime begins.
    /// A folder that does not exist is an empty one.
    pub fn plugins(mut self, folder: impl Into<PathBuf>) -> Self {
        self.plugins = Some(folder.into());
        self
    }

    /// Where the configurations of plugins that are started lie: `10-devices.conf`, or else `devices.conf`.
    pub fn configurations(mut self, folder: impl Into<PathBuf>) -> Self {
        self.configurations = Some(folder.into());
        self
    }

    /// Begins, and lets plugins connect to this socket: a path, or an address as of
    /// [`Listener`](ttrpc_keepalive::Listener). A socket that nobody serves any more is replaced, the folder
    /// is made if need be, and both are for the user of this process alone.
    ///
    /// # Errors
    ///
    /// A setting that is out of its range, a socket that cannot be bound, a folder of plugins that cannot be
    /// read or has a file in it that is not called as a plugin is. A plugin that cannot be started is logged.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn listen(self, socket: &str) -> Result<Runtime, StartError> {
        Runtime::start(self, Some(socket)).await
    }

    /// Begins without a socket: with the plugins that it starts, and those that
    /// [`Runtime::serve_plugin`] is given.
    ///
    /// # Errors
    ///
    /// As of [`listen`](Self::listen).
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn start(self) -> Result<Runtime, StartError> {
        Runtime::start(self, None).await
    }
}

impl Settings {
    /// # Errors
    ///
    /// The first that is out of its range.
    pub(super) fn validate(&self) -> Result<(), StartError> {
        self.keepalive
            .validate()
            .map_err(ttrpc_keepalive::ConfigError::from)?;
        let own = self
            .plugin_limits
            .iter()
            .map(|(_, limit)| ("plugin_limit", *limit));
        let limits = [
            ("limit", self.limit),
            ("registration_limit", self.registration_limit),
        ];
        for (setting, limit) in limits.into_iter().chain(own) {
            if limit.is_zero() {
                return Err(StartError::Zero { setting });
            }
        }
        Ok(())
    }

    /// How long this plugin may take for an event.
    pub(super) fn limit_of(&self, plugin: &PluginName) -> Duration {
        let own = self
            .plugin_limits
            .iter()
            .find(|(name, _)| plugin.answers_to(name));
        own.map_or(self.limit, |(_, limit)| *limit)
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("name", &self.name)
            .field("version", &self.version)
            .field("limit", &self.limit)
            .field("plugin_limits", &self.plugin_limits)
            .field("registration_limit", &self.registration_limit)
            .field("keepalive", &self.keepalive)
            .field("required", &self.required)
            .finish_non_exhaustive()
    }
}
