//! The way in: a plugin connects, registers, and is configured.

use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use tokio::sync::oneshot;
use tokio::time::timeout;
use ttrpc_keepalive::{Client, Code, Context, IntoTransport, Keepalive, Server, Status};

use super::change::Change;
use super::member::Member;
use super::name::PluginName;
use super::shared::Shared;
use crate::api::{
    ConfigureRequest, Empty, RegisterPluginRequest, UpdateContainersRequest,
    UpdateContainersResponse,
};
use crate::multiplexer::Multiplexer;
use crate::services::{PluginClient, Runtime as RuntimeService, runtime_service};

/// The release of NRI whose messages these are, in the form in which Go's module tells its own.
const NRI_VERSION: &str = "v0.12.5";

/// A plugin that the runtime started: it is called as its file is, whatever it says.
#[derive(Debug)]
pub(super) struct Launched {
    pub(super) name: PluginName,
    pub(super) configuration: String,
}

/// One connection, as the service that runs on it sees it.
#[derive(Debug)]
struct Door {
    shared: Weak<Shared>,
    /// Its name, from the start if it was launched.
    name: OnceLock<PluginName>,
    launched: bool,
    registered: Mutex<Option<oneshot::Sender<Result<(), String>>>>,
}

/// What plugins call.
#[derive(Debug)]
struct Service;

/// The server for connection 2 of all plugins. It answers PINGs and asks nothing: whether the plugin lives is
/// asked on connection 1.
///
/// # Errors
///
/// None that these settings could have.
pub(super) fn server() -> Result<Server, ttrpc_keepalive::ConfigError> {
    Server::builder()
        .keepalive(Keepalive::off())
        .service(runtime_service(Arc::new(Service)))
        .build()
}

impl RuntimeService for Service {
    async fn register_plugin(
        &self,
        context: Context,
        request: RegisterPluginRequest,
    ) -> Result<Empty, Status> {
        door(&context)?.register(&request)?;
        Ok(Empty::new())
    }

    async fn update_containers(
        &self,
        context: Context,
        request: UpdateContainersRequest,
    ) -> Result<UpdateContainersResponse, Status> {
        let door = door(&context)?;
        let name = door.name.get().ok_or_else(|| {
            Status::new(Code::FAILED_PRECONDITION, "this plugin has not registered")
        })?;
        let shared = door.shared.upgrade().ok_or_else(Status::shutting_down)?;
        let mut response = UpdateContainersResponse::new();
        response.failed = shared.update(name, request).await?;
        Ok(response)
    }
}

/// # Errors
///
/// There is always one: this server is used in one way.
fn door(context: &Context) -> Result<Arc<Door>, Status> {
    let none = || Status::new(Code::INTERNAL, "a connection without a state");
    let door = context.connection_state::<Arc<Door>>().ok_or_else(none)?;
    Ok(Arc::clone(&door))
}

impl Door {
    fn register(&self, request: &RegisterPluginRequest) -> Result<(), Status> {
        let mut waiting = self
            .registered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(registered) = waiting.take() else {
            let message = "this plugin has registered already, or too late";
            return Err(Status::new(Code::FAILED_PRECONDITION, message));
        };
        let named = match self.launched {
            true => Ok(()),
            false => PluginName::new(&request.plugin_idx, &request.plugin_name)
                .map(|name| drop(self.name.set(name))),
        };
        // Nobody waits any more if it was too late; then the connection ends.
        let _ = registered.send(named.clone());
        named.map_err(|reason| Status::new(Code::INVALID_ARGUMENT, reason))
    }
}

impl Shared {
    /// Serves one plugin until its connection ends.
    pub(super) async fn serve(
        self: &Arc<Self>,
        stream: impl IntoTransport,
        launched: Option<Launched>,
    ) {
        let connections = Multiplexer::new().split(stream);
        let client = Client::builder()
            .keepalive(self.settings.keepalive.clone())
            .attach(connections.plugin_service);
        // Its settings were checked at the beginning.
        let Ok(client) = client else { return };
        let (registered, registration) = oneshot::channel();
        let is_launched = launched.is_some();
        let (name, configuration) = match launched {
            Some(launched) => (OnceLock::from(launched.name), launched.configuration),
            None => (OnceLock::new(), String::new()),
        };
        let door = Arc::new(Door {
            shared: Arc::downgrade(self),
            name,
            launched: is_launched,
            registered: Mutex::new(Some(registered)),
        });
        // It is served from the start: it may call before it is configured.
        let service = connections.runtime_service;
        let serving = self
            .server
            .serve_connection_with(service, Arc::clone(&door));
        let mut serving = pin!(serving);
        let entering = self.enter_by(&door, client, registration, configuration);
        let entered = tokio::select! {
            entered = entering => entered,
            end = &mut serving => {
                self.refuse(&door, format!("it was gone before it was configured: {end}"));
                return;
            }
        };
        let member = match entered {
            Ok(member) => member,
            Err(reason) => {
                self.refuse(&door, reason);
                // It is to read why, and may close by itself.
                let _ = timeout(self.settings.registration_limit, serving).await;
                return;
            }
        };
        let mut accompanying = pin!(self.accompany(member));
        tokio::select! {
            () = &mut accompanying => return,
            _ = serving => {}
        }
        accompanying.await;
    }

    /// Waits until it has registered, and configures it.
    ///
    /// # Errors
    ///
    /// Why it is not let in.
    async fn enter_by(
        &self,
        door: &Door,
        client: Client,
        registration: oneshot::Receiver<Result<(), String>>,
        configuration: String,
    ) -> Result<Arc<Member>, String> {
        let limit = self.settings.registration_limit;
        match timeout(limit, registration).await {
            Ok(Ok(registered)) => registered?,
            Ok(Err(_)) | Err(_) => return Err(format!("it has not registered within {limit:?}")),
        }
        let name = door.name.get().ok_or("it has no name")?.clone();
        let own_limit = self.settings.limit_of(&name);
        let mut request = ConfigureRequest::new();
        request.config = configuration;
        request.runtime_name.clone_from(&self.settings.name);
        request.runtime_version.clone_from(&self.settings.version);
        request.registration_timeout = milliseconds(limit);
        request.request_timeout = milliseconds(own_limit);
        request.NRI_version = NRI_VERSION.to_owned();
        let configuring = PluginClient::new(client.clone())
            .configure(&request)
            .timeout(limit);
        let configured = configuring
            .await
            .map_err(|error| format!("it could not be configured: {error}"))?;
        let member = Arc::new(Member::new(name, client, own_limit, &configured)?);
        self.enter(&member);
        self.tell(&member.name, &Change::Registered);
        Ok(member)
    }

    fn refuse(&self, door: &Door, reason: String) {
        match door.name.get() {
            Some(name) => self.tell(name, &Change::Refused(reason)),
            None => tracing::warn!("a plugin was refused: {reason}"),
        }
    }

    /// Has the runtime do what a plugin asks for.
    pub(super) async fn update(
        &self,
        plugin: &PluginName,
        request: UpdateContainersRequest,
    ) -> Result<Vec<crate::api::ContainerUpdate>, Status> {
        let Some(update) = &self.settings.update else {
            let message = "this runtime takes no updates";
            return Err(Status::new(Code::UNIMPLEMENTED, message));
        };
        update(plugin.to_string(), request).await
    }
}

fn milliseconds(limit: std::time::Duration) -> i64 {
    i64::try_from(limit.as_millis()).unwrap_or(i64::MAX)
}
