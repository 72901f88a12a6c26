//! A runtime that does what a test says, and a plugin that tells what it is asked.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use ttrpc_keepalive::{
    Client, Code, Context, DriverThread, Error, IntoTransport, Server, Service, Status,
};
use ttrpc_keepalive_nri::api::*;
use ttrpc_keepalive_nri::multiplexer::{Connections, Multiplexer};
use ttrpc_keepalive_nri::services::{PluginClient, runtime_names as names};
use ttrpc_keepalive_nri::{End, EventContext, Plugin, PluginError};

pub(crate) type Call<R> = Result<R, Error>;

/// How long a runtime waits for the answer to an event.
pub(crate) const LIMIT: Duration = secs(2);

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Time in which this process does not run.
pub(crate) fn pause(duration: Duration) {
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    // The clock is moved by the first poll; what the rest of the future does is let others run.
    let _ = std::pin::Pin::new(&mut Box::pin(tokio::time::advance(duration))).poll(&mut cx);
}

/// A runtime at the other end of a plugin's connection.
pub(crate) struct Played {
    pub(crate) plugin: PluginClient,
    pub(crate) registered: mpsc::UnboundedReceiver<RegisterPluginRequest>,
    pub(crate) updates: mpsc::UnboundedReceiver<UpdateContainersRequest>,
    serving: JoinHandle<()>,
}

/// What the served side of a runtime does.
struct Takes {
    registered: mpsc::UnboundedSender<RegisterPluginRequest>,
    updates: mpsc::UnboundedSender<UpdateContainersRequest>,
    /// How long a registration waits for its answer.
    patience: Duration,
}

impl Played {
    pub(crate) fn on(stream: impl IntoTransport) -> Self {
        Self::slow_on(stream, Duration::ZERO)
    }

    /// One that answers a registration after so long.
    pub(crate) fn slow_on(stream: impl IntoTransport, patience: Duration) -> Self {
        let Connections {
            plugin_service,
            runtime_service,
            ..
        } = Multiplexer::new().split(stream);
        let (told, registered) = mpsc::unbounded_channel();
        let (asked, updates) = mpsc::unbounded_channel();
        let takes = Arc::new(Takes {
            registered: told,
            updates: asked,
            patience,
        });
        let register = |takes: Arc<Takes>, _: Context, request| async move {
            let _ = takes.registered.send(request);
            tokio::time::sleep(takes.patience).await;
            Ok::<_, Status>(Empty::new())
        };
        let update = |takes: Arc<Takes>, _: Context, request: UpdateContainersRequest| async move {
            // One with this id is not there.
            let failed = request
                .update
                .iter()
                .filter(|update| update.container_id == "gone");
            let failed = failed.cloned().collect();
            let _ = takes.updates.send(request);
            Ok(UpdateContainersResponse {
                failed,
                ..UpdateContainersResponse::default()
            })
        };
        let service = Service::new(names::SERVICE, takes)
            .unary(names::REGISTER_PLUGIN, register)
            .unary(names::UPDATE_CONTAINERS, update);
        let server = Server::builder().service(service).build().unwrap();
        let client = Client::builder().attach(plugin_service).unwrap();
        let serving = tokio::spawn(async move {
            server.serve_connection(runtime_service).await;
        });
        Self {
            plugin: PluginClient::new(client),
            registered,
            updates,
            serving,
        }
    }

    /// Waits for the registration, configures the plugin and synchronizes it with nothing.
    pub(crate) async fn start(&mut self) -> ConfigureResponse {
        self.start_as("v0.12.5").await
    }

    /// The same as a runtime with this release; none is told by an empty one.
    pub(crate) async fn start_as(&mut self, release: &str) -> ConfigureResponse {
        self.registered.recv().await.unwrap();
        let configured = self.configure(release).await.unwrap();
        self.synchronize(&[]).await.unwrap();
        configured
    }

    pub(crate) async fn configure(&self, release: &str) -> Call<ConfigureResponse> {
        let request = ConfigureRequest {
            config: "text = 1".to_owned(),
            runtime_name: "played".to_owned(),
            runtime_version: "1".to_owned(),
            registration_timeout: 5000,
            request_timeout: 2000,
            NRI_version: release.to_owned(),
            ..ConfigureRequest::default()
        };
        self.plugin.configure(&request).timeout(LIMIT).await
    }

    pub(crate) async fn synchronize(&self, containers: &[&str]) -> Call<SynchronizeResponse> {
        let containers = containers.iter().map(|id| container(id)).collect();
        let request = SynchronizeRequest {
            containers,
            ..SynchronizeRequest::default()
        };
        self.plugin.synchronize(&request).timeout(LIMIT).await
    }

    pub(crate) async fn create(&self, id: &str) -> Call<CreateContainerResponse> {
        let request = creation(id);
        self.plugin.create_container(&request).timeout(LIMIT).await
    }

    pub(crate) async fn post_create(&self, id: &str) -> Call<PostCreateContainerResponse> {
        let request = PostCreateContainerRequest {
            container: Some(container(id)).into(),
            ..PostCreateContainerRequest::default()
        };
        let call = self.plugin.post_create_container(&request);
        call.timeout(LIMIT).await
    }

    pub(crate) async fn change(&self, event: Event, id: &str) -> Call<Empty> {
        let event = StateChangeEvent {
            event: event.into(),
            pod: Some(pod(id)).into(),
            container: Some(container(id)).into(),
            ..StateChangeEvent::default()
        };
        self.plugin.state_change(&event).timeout(LIMIT).await
    }

    /// Closes the connection.
    pub(crate) fn close(self) {
        self.serving.abort();
        self.plugin.client().abort();
    }
}

pub(crate) fn pod(id: &str) -> PodSandbox {
    PodSandbox {
        id: id.to_owned(),
        ..PodSandbox::default()
    }
}

pub(crate) fn container(id: &str) -> Container {
    Container {
        id: id.to_owned(),
        name: id.to_owned(),
        ..Container::default()
    }
}

pub(crate) fn creation(id: &str) -> CreateContainerRequest {
    CreateContainerRequest {
        container: Some(container(id)).into(),
        ..CreateContainerRequest::default()
    }
}

/// What handlers were asked, in the order in which they began and ended.
#[derive(Debug, Default)]
pub(crate) struct Seen(Mutex<Vec<String>>);

impl Seen {
    pub(crate) fn add(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    /// A handler of creations: sleeps for as many milliseconds as the container's id has behind its
    /// dash, and adjusts resources.
    pub(crate) async fn create(
        self: Arc<Self>,
        _: EventContext,
        event: CreateContainerRequest,
    ) -> Result<ContainerAdjustment, Status> {
        let id = event.container.id.clone();
        self.add(format!("begin {id}"));
        let (_, millis) = id.split_once('-').unwrap_or(("", "0"));
        tokio::time::sleep(ms(millis.parse().unwrap())).await;
        self.add(format!("end {id}"));
        Ok(shares(512))
    }
}

pub(crate) fn shares(shares: u64) -> ContainerAdjustment {
    let mut adjustment = ContainerAdjustment::new();
    adjustment.resources_mut().set_cpu_shares(shares);
    adjustment
}

pub(crate) type Ran = JoinHandle<Result<End, PluginError>>;

/// Runs a plugin on a stream in memory whose other end is a played runtime.
pub(crate) fn played<S: Clone + Send + Sync + 'static>(plugin: Plugin<S>) -> (Played, Ran) {
    let (here, ran) = on_memory(plugin);
    (Played::on(here), ran)
}

/// Runs a plugin on a stream in memory.
pub(crate) fn on_memory<S: Clone + Send + Sync + 'static>(
    plugin: Plugin<S>,
) -> (DuplexStream, Ran) {
    let (here, there) = tokio::io::duplex(1 << 20);
    // The clock of a test is that of its own thread.
    let plugin = plugin.driver_thread(DriverThread::Shared);
    (here, tokio::spawn(plugin.run_on(there)))
}

/// The status with which a call was answered.
pub(crate) fn refusal<R: std::fmt::Debug>(call: Call<R>) -> (Code, String) {
    let error = call.unwrap_err();
    let status = error.status().unwrap_or_else(|| panic!("{error}"));
    (status.code(), status.message().to_owned())
}
