//! The handlers of a plugin, as its builder takes them.

use std::future::Future;
use std::sync::Arc;

use ttrpc_keepalive::Status;

use super::asked::Asked;
use super::late::Late;
use super::session::{EventContext, RuntimeInfo};
use super::{Entry, Plugin};
use crate::EventMask;
use crate::api::*;

impl<S: Clone + Send + Sync + 'static> Plugin<S> {
    /// What becomes of the event in front of this when its handler needs longer than the runtime waits;
    /// of Synchronize too. [`Late::empty`] by default, and for ValidateContainerAdjustment a refusal.
    pub fn late(mut self, late: Late) -> Self {
        match self.handlers.last_mut() {
            Some(entry) => entry.late = late,
            None => self.handlers.push(Entry {
                event: Some(Event::UNKNOWN),
                late,
                add: Box::new(|methods, _| methods),
            }),
        }
        self
    }

    /// Tells what the runtime is, each time the plugin is configured by one. The handler may ask for fewer
    /// events than the plugin has handlers for, as the configuration says: `None` is all of them. An error
    /// ends the registration.
    pub fn configure<A>(
        mut self,
        handler: impl Fn(S, EventContext, RuntimeInfo) -> A + Send + Sync + 'static,
    ) -> Self
    where
        A: Future<Output = Result<Option<EventMask>, Status>> + Send + 'static,
    {
        self.configure = Some(Arc::new(move |state, event, info| {
            Box::pin(handler(state, event, info))
        }));
        self
    }

    /// The runtime says that it is about to close the connection, which then ends *as announced*. No runtime of today
    /// does; they just close, which [`on_end`](Self::on_end) tells in any case.
    ///
    /// The runtime waits for the handler as for that of an event.
    pub fn shutdown<A>(
        mut self,
        handler: impl Fn(S, EventContext) -> A + Send + Sync + 'static,
    ) -> Self
    where
        A: Future<Output = ()> + Send + 'static,
    {
        self.shutdown = Some(Arc::new(move |state, event| {
            Box::pin(handler(state, event))
        }));
        self
    }

    /// Tells all pods and containers that are there, after each registration, however many parts it takes
    /// the runtime. Yields `()` or updates of containers.
    pub fn synchronize<A, T>(
        mut self,
        handler: impl Fn(S, EventContext, SynchronizeRequest) -> A + Send + Sync + 'static,
    ) -> Self
    where
        A: Future<Output = Result<T, Status>> + Send + 'static,
        T: Into<SynchronizeResponse>,
    {
        let handler = Arc::new(handler);
        self.handlers.push(Entry {
            event: None,
            late: Late::empty(),
            add: Box::new(|methods, late| methods.synchronize(handler, late)),
        });
        self
    }

    /// The plugin is asked whether a container may be created as all plugins together adjust it. An error
    /// refuses it, with its text. From release 0.10.0.
    pub fn validate_container_adjustment<A>(
        self,
        handler: impl Fn(S, EventContext, ValidateContainerAdjustmentRequest) -> A
        + Send
        + Sync
        + 'static,
    ) -> Self
    where
        A: Future<Output = Result<(), Status>> + Send + 'static,
    {
        let verdict = move |state, event, request| {
            let verdict = handler(state, event, request);
            async move {
                Ok(match verdict.await {
                    Ok(()) => ValidateContainerAdjustmentResponse::new(),
                    Err(status) => ValidateContainerAdjustmentResponse {
                        reject: true,
                        reason: status.message().to_owned(),
                        ..ValidateContainerAdjustmentResponse::default()
                    },
                })
            }
        };
        self.on::<ValidateContainerAdjustmentRequest, _, _>(verdict)
            .late(Late::fail(
                "the validator needs longer than the runtime waits",
            ))
    }

    fn on<Q, A, T>(
        mut self,
        handler: impl Fn(S, EventContext, Q) -> A + Send + Sync + 'static,
    ) -> Self
    where
        Q: Asked,
        A: Future<Output = Result<T, Status>> + Send + 'static,
        T: Into<Q::Response>,
    {
        let handler = Arc::new(handler);
        self.handlers.push(Entry {
            event: Some(Q::EVENT),
            late: Late::empty(),
            add: Box::new(|methods, late| methods.event::<Q, A, T>(handler, late)),
        });
        self
    }
}

macro_rules! events {
    ($($(#[$docs:meta])* $name:ident: $request:ident => $response:ident;)*) => {
        impl<S: Clone + Send + Sync + 'static> Plugin<S> {$(
            $(#[$docs])*
            pub fn $name<A, T>(
                self,
                handler: impl Fn(S, EventContext, $request) -> A + Send + Sync + 'static,
            ) -> Self
            where
                A: Future<Output = Result<T, Status>> + Send + 'static,
                T: Into<$response>,
            {
                self.on::<$request, A, T>(handler)
            }
        )*}
    };
}

events! {
    /// A pod is being started. Yields `()`.
    run_pod_sandbox: RunPodSandboxRequest => RunPodSandboxResponse;
    /// Resources of a pod are being changed. Yields `()`. From release 0.10.0.
    update_pod_sandbox: UpdatePodSandboxRequest => UpdatePodSandboxResponse;
    /// Resources of a pod have been changed. Yields `()`. From release 0.10.0.
    post_update_pod_sandbox: PostUpdatePodSandboxRequest => PostUpdatePodSandboxResponse;
    /// A pod has been stopped. Yields `()`.
    stop_pod_sandbox: StopPodSandboxRequest => StopPodSandboxResponse;
    /// A pod is gone. Yields `()`.
    remove_pod_sandbox: RemovePodSandboxRequest => RemovePodSandboxResponse;
    /// A container is being created. Yields `()`, what is to be adjusted in it, or that and updates of other
    /// containers.
    create_container: CreateContainerRequest => CreateContainerResponse;
    /// A container has been created. Yields `()`.
    post_create_container: PostCreateContainerRequest => PostCreateContainerResponse;
    /// A container is being started. Yields `()`.
    start_container: StartContainerRequest => StartContainerResponse;
    /// A container has been started. Yields `()`.
    post_start_container: PostStartContainerRequest => PostStartContainerResponse;
    /// Resources of a container are being changed. Yields `()` or updates, of this container too.
    update_container: UpdateContainerRequest => UpdateContainerResponse;
    /// Resources of a container have been changed. Yields `()`.
    post_update_container: PostUpdateContainerRequest => PostUpdateContainerResponse;
    /// A container is being stopped. Yields `()` or updates of others.
    stop_container: StopContainerRequest => StopContainerResponse;
    /// A container is gone. Yields `()`.
    remove_container: RemoveContainerRequest => RemoveContainerResponse;
}
