//! The requests of events, as one kind of thing.

use protobuf::{Message, MessageField};

use super::late::LateResult;
use crate::api::*;

/// The request of an event.
pub(super) trait Asked: Message {
    type Response: Message;

    const EVENT: Event;

    /// The container of which it tells.
    fn container(&self) -> Option<&Container>;

    /// The same event as it comes in a StateChange.
    fn of_state_change(event: StateChangeEvent) -> Option<Self>;

    /// What a response has to be delivered later, for events that have a result.
    fn late_result(_container: String, _response: Self::Response) -> Option<LateResult> {
        None
    }
}

/// Whether an event has a result that can be delivered later.
pub(super) fn has_result(event: Event) -> bool {
    matches!(
        event,
        Event::CREATE_CONTAINER | Event::UPDATE_CONTAINER | Event::STOP_CONTAINER
    )
}

/// The events that runtimes before release 0.12.0 tell by StateChange.
pub(super) const STATE_CHANGES: [Event; 9] = [
    Event::RUN_POD_SANDBOX,
    Event::POST_UPDATE_POD_SANDBOX,
    Event::STOP_POD_SANDBOX,
    Event::REMOVE_POD_SANDBOX,
    Event::POST_CREATE_CONTAINER,
    Event::START_CONTAINER,
    Event::POST_START_CONTAINER,
    Event::POST_UPDATE_CONTAINER,
    Event::REMOVE_CONTAINER,
];

macro_rules! asked {
    ($($request:ident => $response:ident, $event:ident, $of:ident;)*) => {$(
        impl Asked for $request {
            type Response = $response;

            const EVENT: Event = Event::$event;

            asked!(@$of $request $response);
        }

        impl From<()> for $response {
            fn from((): ()) -> Self {
                Self::default()
            }
        }
    )*};
    (@pod $request:ident $response:ident) => {
        fn container(&self) -> Option<&Container> {
            None
        }

        fn of_state_change(event: StateChangeEvent) -> Option<Self> {
            Some(Self { pod: event.pod, ..Self::default() })
        }
    };
    (@container $request:ident $response:ident) => {
        fn container(&self) -> Option<&Container> {
            self.container.as_ref()
        }

        fn of_state_change(event: StateChangeEvent) -> Option<Self> {
            let StateChangeEvent { pod, container, .. } = event;
            Some(Self { pod, container, ..Self::default() })
        }
    };
    (@updates $request:ident $response:ident) => {
        fn container(&self) -> Option<&Container> {
            self.container.as_ref()
        }

        fn of_state_change(_: StateChangeEvent) -> Option<Self> {
            None
        }

        fn late_result(container_id: String, response: $response) -> Option<LateResult> {
            Some(LateResult { container_id, updates: response.update, ..LateResult::default() })
        }
    };
    (@creation $request:ident $response:ident) => {
        fn container(&self) -> Option<&Container> {
            self.container.as_ref()
        }

        fn of_state_change(_: StateChangeEvent) -> Option<Self> {
            None
        }

        fn late_result(container_id: String, response: $response) -> Option<LateResult> {
            let adjustment = response.adjust.into_option();
            Some(LateResult { container_id, adjustment, updates: response.update })
        }
    };
    (@other $request:ident $response:ident) => {
        fn container(&self) -> Option<&Container> {
            None
        }

        fn of_state_change(_: StateChangeEvent) -> Option<Self> {
            None
        }
    };
}

asked! {
    RunPodSandboxRequest => RunPodSandboxResponse, RUN_POD_SANDBOX, pod;
    UpdatePodSandboxRequest => UpdatePodSandboxResponse, UPDATE_POD_SANDBOX, other;
    PostUpdatePodSandboxRequest => PostUpdatePodSandboxResponse, POST_UPDATE_POD_SANDBOX, pod;
    StopPodSandboxRequest => StopPodSandboxResponse, STOP_POD_SANDBOX, pod;
    RemovePodSandboxRequest => RemovePodSandboxResponse, REMOVE_POD_SANDBOX, pod;
    CreateContainerRequest => CreateContainerResponse, CREATE_CONTAINER, creation;
    PostCreateContainerRequest => PostCreateContainerResponse, POST_CREATE_CONTAINER, container;
    StartContainerRequest => StartContainerResponse, START_CONTAINER, container;
    PostStartContainerRequest => PostStartContainerResponse, POST_START_CONTAINER, container;
    UpdateContainerRequest => UpdateContainerResponse, UPDATE_CONTAINER, updates;
    PostUpdateContainerRequest => PostUpdateContainerResponse, POST_UPDATE_CONTAINER, container;
    StopContainerRequest => StopContainerResponse, STOP_CONTAINER, updates;
    RemoveContainerRequest => RemoveContainerResponse, REMOVE_CONTAINER, container;
    ValidateContainerAdjustmentRequest => ValidateContainerAdjustmentResponse,
        VALIDATE_CONTAINER_ADJUSTMENT, other;
}

impl From<ContainerAdjustment> for CreateContainerResponse {
    fn from(adjustment: ContainerAdjustment) -> Self {
        (adjustment, Vec::new()).into()
    }
}

impl From<(ContainerAdjustment, Vec<ContainerUpdate>)> for CreateContainerResponse {
    fn from((adjustment, update): (ContainerAdjustment, Vec<ContainerUpdate>)) -> Self {
        Self {
            adjust: MessageField::some(adjustment),
            update,
            ..Self::default()
        }
    }
}

impl From<()> for SynchronizeResponse {
    fn from((): ()) -> Self {
        Self::default()
    }
}

macro_rules! of_updates {
    ($($response:ident)*) => {$(
        impl From<Vec<ContainerUpdate>> for $response {
            fn from(update: Vec<ContainerUpdate>) -> Self {
                Self { update, ..Self::default() }
            }
        }
    )*};
}

of_updates! { UpdateContainerResponse StopContainerResponse SynchronizeResponse }
