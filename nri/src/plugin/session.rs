//! What is true of one connection, from its registration to its end.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use ttrpc_keepalive::{Code, Context, Status};

use super::asked::Asked;
use super::deliveries::Deliveries;
use super::end::Stage;
use super::progress::{Progress, Running};
use super::runtime::Runtime;
use crate::EventMask;
use crate::api::{ConfigureRequest, Container, Event, SynchronizeRequest};
use crate::services::RuntimeClient;

/// What the handlers of one connection share: a handle.
#[derive(Clone, Debug)]
pub(super) struct Session(Arc<Facts>);

#[derive(Debug)]
struct Facts {
    deliveries: Arc<Deliveries>,
    events: Events,
    info: OnceLock<RuntimeInfo>,
    /// For which events the runtime was asked.
    configured: OnceLock<EventMask>,
    synchronized: watch::Sender<Option<Instant>>,
    parts: Mutex<Parts>,
    progress: Arc<Progress>,
    /// What is published once the plugin is synchronized.
    client: RuntimeClient,
    current: watch::Sender<Option<RuntimeClient>>,
}

/// Events of a plugin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Events {
    /// For which it asks this runtime.
    pub(super) asked: EventMask,
    /// For which it asks one that knows all of them.
    pub(super) handled: EventMask,
    /// Those of them that it has no handler for: what they tell is for late results.
    pub(super) told: EventMask,
}

/// The parts of a Synchronize that have come.
#[derive(Debug, Default)]
struct Parts {
    request: SynchronizeRequest,
    /// In bytes of the wire, about.
    size: u64,
}

/// How much a runtime may send in parts before the last one, in bytes: some 100,000 containers.
const SYNCHRONIZE_LIMIT: u64 = 512 << 20;

/// The runtime at the other end, as it has told when it configured the plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuntimeInfo {
    /// `containerd`, `cri-o`.
    pub name: String,
    /// The version of the runtime.
    pub version: String,
    /// The release of NRI that it has. `None` before release 0.12.0.
    pub nri_version: Option<String>,
    /// The text of this plugin's configuration file, where the runtime has one.
    pub config: String,
    /// How long it waits for a registration; zero if it has not told.
    pub registration_timeout: Duration,
    /// How long it waits for the answer to an event; zero if it has not told. See
    /// [`EventContext::remaining`] for the time of one event.
    pub request_timeout: Duration,
}

impl RuntimeInfo {
    fn of(request: ConfigureRequest) -> Self {
        let millis = |millis: i64| Duration::from_millis(u64::try_from(millis).unwrap_or(0));
        Self {
            name: request.runtime_name,
            version: request.runtime_version,
            nri_version: Some(request.NRI_version).filter(|version| !version.is_empty()),
            config: request.config,
            registration_timeout: millis(request.registration_timeout),
            request_timeout: millis(request.request_timeout),
        }
    }
}

impl Session {
    pub(super) fn new(
        deliveries: Arc<Deliveries>,
        events: Events,
        client: RuntimeClient,
        current: watch::Sender<Option<RuntimeClient>>,
    ) -> Self {
        Self(Arc::new(Facts {
            deliveries,
            events,
            info: OnceLock::new(),
            configured: OnceLock::new(),
            synchronized: watch::Sender::new(None),
            parts: Mutex::default(),
            progress: Arc::default(),
            client,
            current,
        }))
    }

    /// That of the connection on which a request came.
    pub(super) fn of(context: &Context) -> Result<Self, Status> {
        let session = context.connection_state::<Self>();
        let session = session.map(|session| (*session).clone());
        session.ok_or_else(|| Status::new(Code::INTERNAL, "the connection has no session"))
    }

    pub(super) fn deliveries(&self) -> &Arc<Deliveries> {
        &self.0.deliveries
    }

    pub(super) fn progress(&self) -> &Progress {
        &self.0.progress
    }

    pub(super) fn tell(&self, request: ConfigureRequest) -> &RuntimeInfo {
        self.0.info.get_or_init(|| RuntimeInfo::of(request))
    }

    pub(super) fn info(&self) -> Option<&RuntimeInfo> {
        self.0.info.get()
    }

    /// The events to ask for, of those that are `wanted`.
    pub(super) fn configure(&self, wanted: Option<EventMask>) -> Result<EventMask, Status> {
        let events = self.0.events;
        let asked = match wanted {
            None => events.asked,
            Some(wanted) if wanted.without(events.handled).is_empty() => {
                (wanted | events.told).intersection(events.asked)
            }
            Some(wanted) => {
                let message = format!("the plugin handles {} and not {wanted}", events.handled);
                return Err(Status::new(Code::INVALID_ARGUMENT, message));
            }
        };
        // On the wire no event stands for all of them.
        if asked.is_empty() {
            let message = "the plugin wants no event that this runtime knows";
            return Err(Status::new(Code::FAILED_PRECONDITION, message));
        }
        Ok(*self.0.configured.get_or_init(|| asked))
    }

    pub(super) fn stage(&self) -> Stage {
        if self.synchronized().is_some() {
            Stage::Synchronized
        } else if self.0.configured.get().is_some() {
            Stage::Configured
        } else {
            Stage::Registering
        }
    }

    /// Whether the runtime was asked for events that it may not know, and has told nothing since. From
    /// release 0.12.0 on a runtime names its release, and knows all of them.
    pub(super) fn may_be_refused(&self) -> bool {
        let asked = self.0.configured.get().copied().unwrap_or_default();
        let unknown = asked.without(EventMask::BEFORE_0_10);
        let is_old = self.info().is_some_and(|info| info.nri_version.is_none());
        is_old && !unknown.is_empty() && asked != unknown && self.synchronized().is_none()
    }

    /// Since when the plugin gets events, if it does.
    pub(super) fn synchronized(&self) -> Option<Instant> {
        *self.0.synchronized.borrow()
    }

    /// Begins to handle an event, unless it is for nobody.
    ///
    /// A runtime tells the events of a node one by one. So if the next one has come, and this one was not
    /// answered, the runtime has given up on it: it lay in the socket while this process did not run.
    pub(super) fn begin(&self, name: &'static str, context: &Context) -> Result<Running, Status> {
        if !context.is_newest() && !context.is_answered() {
            let message = "the next event has come, so nobody waits for this one";
            return Err(Status::new(Code::ABORTED, message));
        }
        Ok(self.0.progress.begin(name, context))
    }

    /// Takes what an event tells of containers for which results wait.
    pub(super) fn note<Q: Asked>(&self, request: &Q) {
        let Some(container) = request.container() else {
            return;
        };
        match Q::EVENT {
            Event::CREATE_CONTAINER => {}
            Event::STOP_CONTAINER | Event::REMOVE_CONTAINER => {
                self.0.deliveries.handle_gone(&container.id);
            }
            _ => self.0.deliveries.handle_exists(&container.id),
        }
    }

    /// Adds a part of a Synchronize. Yields the whole with the last one.
    pub(super) fn collect(
        &self,
        part: SynchronizeRequest,
    ) -> Result<Option<SynchronizeRequest>, Status> {
        let mut parts = self.0.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.size = parts
            .size
            .saturating_add(protobuf::Message::compute_size(&part));
        if parts.size > SYNCHRONIZE_LIMIT {
            *parts = Parts::default();
            let message = format!("a Synchronize may have {SYNCHRONIZE_LIMIT} bytes");
            return Err(Status::new(Code::RESOURCE_EXHAUSTED, message));
        }
        let more = part.more;
        parts.request.pods.extend(part.pods);
        parts.request.containers.extend(part.containers);
        Ok((!more).then(|| std::mem::take(&mut *parts).request))
    }

    /// The plugin is about to answer its Synchronize, in which these containers were.
    pub(super) fn handle_synchronized(&self, containers: &[Container]) {
        for container in containers {
            self.0.deliveries.handle_exists(&container.id);
        }
    }

    /// It has answered it, and can be used.
    pub(super) fn publish(&self) {
        self.0.synchronized.send_replace(Some(Instant::now()));
        self.0.current.send_replace(Some(self.0.client.clone()));
    }

    /// The connection has ended.
    pub(super) fn end(&self) {
        self.0.current.send_replace(None);
    }
}

/// The circumstances of one event, for its handler.
#[derive(Clone, Debug)]
pub struct EventContext {
    context: Context,
    session: Session,
}

impl EventContext {
    pub(super) fn new(context: Context, session: Session) -> Self {
        Self { context, session }
    }

    /// When the runtime gives up, as told by its request. `None` if it waits for ever.
    pub fn deadline(&self) -> Option<Instant> {
        self.context.deadline()
    }

    /// The time to the [deadline](Self::deadline): zero if it has passed, `None` if there is none. Runtimes
    /// wait 2 s unless they are configured otherwise.
    pub fn remaining(&self) -> Option<Duration> {
        self.context.remaining()
    }

    /// Whether the event has been answered while its handler runs on. From then on others may come that
    /// follow from the answer, see [`Late`](crate::Late).
    pub fn is_answered(&self) -> bool {
        self.context.is_answered()
    }

    /// The runtime, to be asked for updates of containers.
    pub fn runtime(&self) -> &Runtime {
        self.session.0.deliveries.runtime()
    }

    /// What the runtime has told of itself.
    pub fn runtime_info(&self) -> RuntimeInfo {
        self.session.info().cloned().unwrap_or_default()
    }

    /// The call by which the event came.
    pub fn call(&self) -> &Context {
        &self.context
    }
}
