// @generated from api.proto by ttrpc-keepalive-codegen. Do not edit.

//! The services of `api.proto`: a trait for servers and a client for each.

#![allow(dead_code)]

use std::future::Future;
use std::sync::Arc;

use ttrpc_keepalive::{Call, Client, Code, Context, Service, Status};

use super::api::{
    ConfigureRequest, ConfigureResponse, CreateContainerRequest, CreateContainerResponse, Empty,
    PostCreateContainerRequest, PostCreateContainerResponse, PostStartContainerRequest,
    PostStartContainerResponse, PostUpdateContainerRequest, PostUpdateContainerResponse,
    PostUpdatePodSandboxRequest, PostUpdatePodSandboxResponse, RegisterPluginRequest,
    RemoveContainerRequest, RemoveContainerResponse, RemovePodSandboxRequest,
    RemovePodSandboxResponse, RunPodSandboxRequest, RunPodSandboxResponse, StartContainerRequest,
    StartContainerResponse, StateChangeEvent, StopContainerRequest, StopContainerResponse,
    StopPodSandboxRequest, StopPodSandboxResponse, SynchronizeRequest, SynchronizeResponse,
    UpdateContainerRequest, UpdateContainerResponse, UpdateContainersRequest,
    UpdateContainersResponse, UpdatePodSandboxRequest, UpdatePodSandboxResponse,
    ValidateContainerAdjustmentRequest, ValidateContainerAdjustmentResponse,
};

/// What a runtime serves for its plugins.
///
/// A method that is not implemented is answered UNIMPLEMENTED.
pub trait Runtime: Send + Sync + 'static {
    /// The first call of a plugin. The runtime answers it, and configures the plugin before or after.
    fn register_plugin(
        &self,
        context: Context,
        request: RegisterPluginRequest,
    ) -> impl Future<Output = Result<Empty, Status>> + Send {
        let _ = request;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// Changes resources of containers that are there, at any time after the plugin was synchronized.
    fn update_containers(
        &self,
        context: Context,
        request: UpdateContainersRequest,
    ) -> impl Future<Output = Result<UpdateContainersResponse, Status>> + Send {
        let _ = request;
        std::future::ready(Err(unimplemented(&context)))
    }
}

/// Serves an implementation of `Runtime` as `nri.pkg.api.v1alpha1.Runtime`; for
/// [`ServerBuilder::service`](ttrpc_keepalive::ServerBuilder::service).
pub fn runtime_service<S: Runtime>(implementation: Arc<S>) -> Service<Arc<S>> {
    Service::new(runtime_names::SERVICE, implementation)
        .unary(
            runtime_names::REGISTER_PLUGIN,
            |service, context, request| async move {
                S::register_plugin(&service, context, request).await
            },
        )
        .unary(
            runtime_names::UPDATE_CONTAINERS,
            |service, context, request| async move {
                S::update_containers(&service, context, request).await
            },
        )
}

/// Calls `nri.pkg.api.v1alpha1.Runtime`, the other side of `Runtime`.
#[derive(Clone, Debug)]
pub struct RuntimeClient {
    client: Client,
}

impl RuntimeClient {
    /// Calls over this connection, which others may use too.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// The connection.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The first call of a plugin. The runtime answers it, and configures the plugin before or after.
    pub fn register_plugin(&self, request: &RegisterPluginRequest) -> Call<Empty> {
        self.client.call(
            runtime_names::SERVICE,
            runtime_names::REGISTER_PLUGIN,
            request,
        )
    }

    /// Changes resources of containers that are there, at any time after the plugin was synchronized.
    pub fn update_containers(
        &self,
        request: &UpdateContainersRequest,
    ) -> Call<UpdateContainersResponse> {
        self.client.call(
            runtime_names::SERVICE,
            runtime_names::UPDATE_CONTAINERS,
            request,
        )
    }
}

/// The names of `nri.pkg.api.v1alpha1.Runtime` and of its methods.
pub mod runtime_names {
    /// The service.
    pub const SERVICE: &str = "nri.pkg.api.v1alpha1.Runtime";
    /// The method `RegisterPlugin`.
    pub const REGISTER_PLUGIN: &str = "RegisterPlugin";
    /// The method `UpdateContainers`.
    pub const UPDATE_CONTAINERS: &str = "UpdateContainers";
}

/// What a plugin serves for its runtime.
///
/// A method that is not implemented is answered UNIMPLEMENTED.
pub trait Plugin: Send + Sync + 'static {
    /// The first call of the runtime: what it is, and which events the plugin wants.
    fn configure(
        &self,
        context: Context,
        request: ConfigureRequest,
    ) -> impl Future<Output = Result<ConfigureResponse, Status>> + Send {
        let _ = request;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// All pods and containers that are there. Comes after each registration, perhaps in several
    /// parts.
    fn synchronize(
        &self,
        context: Context,
        request: SynchronizeRequest,
    ) -> impl Future<Output = Result<SynchronizeResponse, Status>> + Send {
        let _ = request;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// Announces that the runtime ends. No release sends it.
    fn shutdown(
        &self,
        context: Context,
        request: Empty,
    ) -> impl Future<Output = Result<Empty, Status>> + Send {
        let _ = request;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// A pod is being started.
    fn run_pod_sandbox(
        &self,
        context: Context,
        request: RunPodSandboxRequest,
    ) -> impl Future<Output = Result<RunPodSandboxResponse, Status>> + Send {
        let _ = request;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// Resources of a pod are being changed. From release 0.10.0.
    fn update_pod_sandbox(
        &self,
        context: Context,
        request: UpdatePodSandboxRequest,
    ) -> impl Future<Output = Result<UpdatePodSandboxResponse, Status>> + Send {
        let _ = request;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// Resources of a pod have been changed.
    fn post_update_pod_sandbox(
        &self,
        context: Context,
        request: PostUpdatePodSandboxRequest,
    ) -> impl Future<Output = Result<PostUpdatePodSandboxResponse, Status>> + Send {
        let _ = request;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// A pod has been stopped.
    fn stop_pod_sandbox(
        &self,
        context: Context,
        request: StopPodSandboxRequest,
    ) -> impl Future<Output = Result<StopPodSandboxResponse, Status>> + Send {
        let _ = request;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// A pod is gone.
    fn remove_pod_sandbox(
        &self,
        context: Context,
        request: RemovePodSandboxRequest,
    ) -> impl Future<Output = Result<RemovePodSandboxResponse, Status>> + Send {
        let _ = request;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// A container is being created, and can be adjusted.
    fn create_container(
        &self,
        context: Context,
        request: CreateContainerRequest,
    ) -> impl Future<Output = Result<CreateContainerResponse, Status>> + Send {
        let _ = request;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// A container has been created.
    fn post_create_container(
        &self,
        context: Context,
        request: PostCreateContainerRequest,
    ) -> impl Future<Output = Result<PostCreateContainerResponse, Status>> + Send {
        let _ = request;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// A container is being started.
    fn start_container(
        &self,
        context: Context,
        request: StartContainerRequest,
    ) -> impl Future<Output = Result<StartContainerResponse, Status>> + Send {
        let _ = request;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// A container has been started.
    fn post_start_container(
        &self,
        context: Context,
        request: PostStartContainerRequest,
    ) -> impl Future<Output = Result<PostStartContainerResponse, Status>> + Send {
        let _ = request;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// Resources of a container are being changed, and can be changed further.
    fn update_container(
        &self,
        context: Context,
        request: UpdateContainerRequest,
    ) -> impl Future<Output = Result<UpdateContainerResponse, Status>> + Send {
        let _ = request;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// Resources of a container have been changed.
    fn post_update_container(
        &self,
        context: Context,
        request: PostUpdateContainerRequest,
    ) -> impl Future<Output = Result<PostUpdateContainerResponse, Status>> + Send {
        let _ = request;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// A container is being stopped. Resources of others can be changed.
    fn stop_container(
        &self,
        context: Context,
        request: StopContainerRequest,
    ) -> impl Future<Output = Result<StopContainerResponse, Status>> + Send {
        let _ = request;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// A container is gone.
    fn remove_container(
        &self,
        context: Context,
        request: RemoveContainerRequest,
    ) -> impl Future<Output = Result<RemoveContainerResponse, Status>> + Send {
        let _ = request;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// Nine of the events in one call. Runtimes before release 0.12.0 have no other for them, later
    /// ones call it where a plugin does not know the call of the event.
    fn state_change(
        &self,
        context: Context,
        request: StateChangeEvent,
    ) -> impl Future<Output = Result<Empty, Status>> + Send {
        let _ = request;
        std::future::ready(Err(unimplemented(&context)))
    }

    /// What all plugins together adjusted in a container: may it be created so? From release 0.10.0.
    fn validate_container_adjustment(
        &self,
        context: Context,
        request: ValidateContainerAdjustmentRequest,
    ) -> impl Future<Output = Result<ValidateContainerAdjustmentResponse, Status>> + Send {
        let _ = request;
        std::future::ready(Err(unimplemented(&context)))
    }
}

/// Serves an implementation of `Plugin` as `nri.pkg.api.v1alpha1.Plugin`; for
/// [`ServerBuilder::service`](ttrpc_keepalive::ServerBuilder::service).
pub fn plugin_service<S: Plugin>(implementation: Arc<S>) -> Service<Arc<S>> {
    Service::new(plugin_names::SERVICE, implementation)
        .unary(
            plugin_names::CONFIGURE,
            |service, context, request| async move {
                S::configure(&service, context, request).await
            },
        )
        .unary(
            plugin_names::SYNCHRONIZE,
            |service, context, request| async move {
                S::synchronize(&service, context, request).await
            },
        )
        .unary(
            plugin_names::SHUTDOWN,
            |service, context, request| async move {
                S::shutdown(&service, context, request).await
            },
        )
        .unary(
            plugin_names::RUN_POD_SANDBOX,
            |service, context, request| async move {
                S::run_pod_sandbox(&service, context, request).await
            },
        )
        .unary(
            plugin_names::UPDATE_POD_SANDBOX,
            |service, context, request| async move {
                S::update_pod_sandbox(&service, context, request).await
            },
        )
        .unary(
            plugin_names::POST_UPDATE_POD_SANDBOX,
            |service, context, request| async move {
                S::post_update_pod_sandbox(&service, context, request).await
            },
        )
        .unary(
            plugin_names::STOP_POD_SANDBOX,
            |service, context, request| async move {
                S::stop_pod_sandbox(&service, context, request).await
            },
        )
        .unary(
            plugin_names::REMOVE_POD_SANDBOX,
            |service, context, request| async move {
                S::remove_pod_sandbox(&service, context, request).await
            },
        )
        .unary(
            plugin_names::CREATE_CONTAINER,
            |service, context, request| async move {
                S::create_container(&service, context, request).await
            },
        )
        .unary(
            plugin_names::POST_CREATE_CONTAINER,
            |service, context, request| async move {
                S::post_create_container(&service, context, request).await
            },
        )
        .unary(
            plugin_names::START_CONTAINER,
            |service, context, request| async move {
                S::start_container(&service, context, request).await
            },
        )
        .unary(
            plugin_names::POST_START_CONTAINER,
            |service, context, request| async move {
                S::post_start_container(&service, context, request).await
            },
        )
        .unary(
            plugin_names::UPDATE_CONTAINER,
            |service, context, request| async move {
                S::update_container(&service, context, request).await
            },
        )
        .unary(
            plugin_names::POST_UPDATE_CONTAINER,
            |service, context, request| async move {
                S::post_update_container(&service, context, request).await
            },
        )
        .unary(
            plugin_names::STOP_CONTAINER,
            |service, context, request| async move {
                S::stop_container(&service, context, request).await
            },
        )
        .unary(
            plugin_names::REMOVE_CONTAINER,
            |service, context, request| async move {
                S::remove_container(&service, context, request).await
            },
        )
        .unary(
            plugin_names::STATE_CHANGE,
            |service, context, request| async move {
                S::state_change(&service, context, request).await
            },
        )
        .unary(
            plugin_names::VALIDATE_CONTAINER_ADJUSTMENT,
            |service, context, request| async move {
                S::validate_container_adjustment(&service, context, request).await
            },
        )
}

/// Calls `nri.pkg.api.v1alpha1.Plugin`, the other side of `Plugin`.
#[derive(Clone, Debug)]
pub struct PluginClient {
    client: Client,
}

impl PluginClient {
    /// Calls over this connection, which others may use too.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// The connection.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The first call of the runtime: what it is, and which events the plugin wants.
    pub fn configure(&self, request: &ConfigureRequest) -> Call<ConfigureResponse> {
        self.client
            .call(plugin_names::SERVICE, plugin_names::CONFIGURE, request)
    }

    /// All pods and containers that are there. Comes after each registration, perhaps in several
    /// parts.
    pub fn synchronize(&self, request: &SynchronizeRequest) -> Call<SynchronizeResponse> {
        self.client
            .call(plugin_names::SERVICE, plugin_names::SYNCHRONIZE, request)
    }

    /// Announces that the runtime ends. No release sends it.
    pub fn shutdown(&self, request: &Empty) -> Call<Empty> {
        self.client
            .call(plugin_names::SERVICE, plugin_names::SHUTDOWN, request)
    }

    /// A pod is being started.
    pub fn run_pod_sandbox(&self, request: &RunPodSandboxRequest) -> Call<RunPodSandboxResponse> {
        self.client.call(
            plugin_names::SERVICE,
            plugin_names::RUN_POD_SANDBOX,
            request,
        )
    }

    /// Resources of a pod are being changed. From release 0.10.0.
    pub fn update_pod_sandbox(
        &self,
        request: &UpdatePodSandboxRequest,
    ) -> Call<UpdatePodSandboxResponse> {
        self.client.call(
            plugin_names::SERVICE,
            plugin_names::UPDATE_POD_SANDBOX,
            request,
        )
    }

    /// Resources of a pod have been changed.
    pub fn post_update_pod_sandbox(
        &self,
        request: &PostUpdatePodSandboxRequest,
    ) -> Call<PostUpdatePodSandboxResponse> {
        self.client.call(
            plugin_names::SERVICE,
            plugin_names::POST_UPDATE_POD_SANDBOX,
            request,
        )
    }

    /// A pod has been stopped.
    pub fn stop_pod_sandbox(
        &self,
        request: &StopPodSandboxRequest,
    ) -> Call<StopPodSandboxResponse> {
        self.client.call(
            plugin_names::SERVICE,
            plugin_names::STOP_POD_SANDBOX,
            request,
        )
    }

    /// A pod is gone.
    pub fn remove_pod_sandbox(
        &self,
        request: &RemovePodSandboxRequest,
    ) -> Call<RemovePodSandboxResponse> {
        self.client.call(
            plugin_names::SERVICE,
            plugin_names::REMOVE_POD_SANDBOX,
            request,
        )
    }

    /// A container is being created, and can be adjusted.
    pub fn create_container(
        &self,
        request: &CreateContainerRequest,
    ) -> Call<CreateContainerResponse> {
        self.client.call(
            plugin_names::SERVICE,
            plugin_names::CREATE_CONTAINER,
            request,
        )
    }

    /// A container has been created.
    pub fn post_create_container(
        &self,
        request: &PostCreateContainerRequest,
    ) -> Call<PostCreateContainerResponse> {
        self.client.call(
            plugin_names::SERVICE,
            plugin_names::POST_CREATE_CONTAINER,
            request,
        )
    }

    /// A container is being started.
    pub fn start_container(&self, request: &StartContainerRequest) -> Call<StartContainerResponse> {
        self.client.call(
            plugin_names::SERVICE,
            plugin_names::START_CONTAINER,
            request,
        )
    }

    /// A container has been started.
    pub fn post_start_container(
        &self,
        request: &PostStartContainerRequest,
    ) -> Call<PostStartContainerResponse> {
        self.client.call(
            plugin_names::SERVICE,
            plugin_names::POST_START_CONTAINER,
            request,
        )
    }

    /// Resources of a container are being changed, and can be changed further.
    pub fn update_container(
        &self,
        request: &UpdateContainerRequest,
    ) -> Call<UpdateContainerResponse> {
        self.client.call(
            plugin_names::SERVICE,
            plugin_names::UPDATE_CONTAINER,
            request,
        )
    }

    /// Resources of a container have been changed.
    pub fn post_update_container(
        &self,
        request: &PostUpdateContainerRequest,
    ) -> Call<PostUpdateContainerResponse> {
        self.client.call(
            plugin_names::SERVICE,
            plugin_names::POST_UPDATE_CONTAINER,
            request,
        )
    }

    /// A container is being stopped. Resources of others can be changed.
    pub fn stop_container(&self, request: &StopContainerRequest) -> Call<StopContainerResponse> {
        self.client
            .call(plugin_names::SERVICE, plugin_names::STOP_CONTAINER, request)
    }

    /// A container is gone.
    pub fn remove_container(
        &self,
        request: &RemoveContainerRequest,
    ) -> Call<RemoveContainerResponse> {
        self.client.call(
            plugin_names::SERVICE,
            plugin_names::REMOVE_CONTAINER,
            request,
        )
    }

    /// Nine of the events in one call. Runtimes before release 0.12.0 have no other for them, later
    /// ones call it where a plugin does not know the call of the event.
    pub fn state_change(&self, request: &StateChangeEvent) -> Call<Empty> {
        self.client
            .call(plugin_names::SERVICE, plugin_names::STATE_CHANGE, request)
    }

    /// What all plugins together adjusted in a container: may it be created so? From release 0.10.0.
    pub fn validate_container_adjustment(
        &self,
        request: &ValidateContainerAdjustmentRequest,
    ) -> Call<ValidateContainerAdjustmentResponse> {
        self.client.call(
            plugin_names::SERVICE,
            plugin_names::VALIDATE_CONTAINER_ADJUSTMENT,
            request,
        )
    }
}

/// The names of `nri.pkg.api.v1alpha1.Plugin` and of its methods.
pub mod plugin_names {
    /// The service.
    pub const SERVICE: &str = "nri.pkg.api.v1alpha1.Plugin";
    /// The method `Configure`.
    pub const CONFIGURE: &str = "Configure";
    /// The method `Synchronize`.
    pub const SYNCHRONIZE: &str = "Synchronize";
    /// The method `Shutdown`.
    pub const SHUTDOWN: &str = "Shutdown";
    /// The method `RunPodSandbox`.
    pub const RUN_POD_SANDBOX: &str = "RunPodSandbox";
    /// The method `UpdatePodSandbox`.
    pub const UPDATE_POD_SANDBOX: &str = "UpdatePodSandbox";
    /// The method `PostUpdatePodSandbox`.
    pub const POST_UPDATE_POD_SANDBOX: &str = "PostUpdatePodSandbox";
    /// The method `StopPodSandbox`.
    pub const STOP_POD_SANDBOX: &str = "StopPodSandbox";
    /// The method `RemovePodSandbox`.
    pub const REMOVE_POD_SANDBOX: &str = "RemovePodSandbox";
    /// The method `CreateContainer`.
    pub const CREATE_CONTAINER: &str = "CreateContainer";
    /// The method `PostCreateContainer`.
    pub const POST_CREATE_CONTAINER: &str = "PostCreateContainer";
    /// The method `StartContainer`.
    pub const START_CONTAINER: &str = "StartContainer";
    /// The method `PostStartContainer`.
    pub const POST_START_CONTAINER: &str = "PostStartContainer";
    /// The method `UpdateContainer`.
    pub const UPDATE_CONTAINER: &str = "UpdateContainer";
    /// The method `PostUpdateContainer`.
    pub const POST_UPDATE_CONTAINER: &str = "PostUpdateContainer";
    /// The method `StopContainer`.
    pub const STOP_CONTAINER: &str = "StopContainer";
    /// The method `RemoveContainer`.
    pub const REMOVE_CONTAINER: &str = "RemoveContainer";
    /// The method `StateChange`.
    pub const STATE_CHANGE: &str = "StateChange";
    /// The method `ValidateContainerAdjustment`.
    pub const VALIDATE_CONTAINER_ADJUSTMENT: &str = "ValidateContainerAdjustment";
}

fn unimplemented(context: &Context) -> Status {
    let (service, method) = (context.service(), context.method());
    let message = format!("{service:?} does not implement {method:?}");
    Status::new(Code::UNIMPLEMENTED, message)
}
