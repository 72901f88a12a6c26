//! The events of a node, as its runtime tells them.

use ttrpc_keepalive::{Call, Decode};

use super::Runtime;
use super::combine::{Adjustment, Creation, Stopping, Update, Updating};
use super::error::EventError;
use crate::api::{
    Container, ContainerUpdate, Event, LinuxResources, PluginInstance, PodSandbox,
    PostCreateContainerRequest, PostStartContainerRequest, PostUpdateContainerRequest,
    PostUpdatePodSandboxRequest, RemoveContainerRequest, RemovePodSandboxRequest,
    RunPodSandboxRequest, StartContainerRequest, StopContainerRequest, StopPodSandboxRequest,
    UpdatePodSandboxRequest,
};
use crate::services::PluginClient;

/// Each event is sent to the plugins that want it, one after another in the order of their index, and to the
/// end before the next event begins.
///
/// # Errors
///
/// They all fail for the same reasons, those of [`EventError`]. A plugin that is late, dead or not there fails
/// an event only if it is [required](super::RuntimeBuilder::required) or asks for it itself; all others go on
/// without it.
///
/// # Cancel safety
///
/// Dropping the future of an event leaves nothing behind here. The plugin that was being asked may have
/// handled it, those behind it were not asked. Nothing is learned of a plugin then, not even that it is late: a
/// caller that has less time gives it to the runtime, as its [limit](super::RuntimeBuilder::limit).
impl Runtime {
    /// A pod is to run.
    ///
    /// # Errors
    ///
    /// [`EventError`]; so in all of these.
    pub async fn run_pod_sandbox(&self, pod: PodSandbox) -> Result<(), EventError> {
        let mut request = RunPodSandboxRequest::new();
        request.pod = Some(pod.clone()).into();
        self.tell(Event::RUN_POD_SANDBOX, (&pod, None), |plugin| {
            plugin.run_pod_sandbox(&request)
        })
        .await
    }

    /// A pod is to have other resources: what it takes beside its containers, and their sum.
    ///
    /// # Errors
    ///
    /// [`EventError`].
    pub async fn update_pod_sandbox(
        &self,
        pod: PodSandbox,
        overhead: LinuxResources,
        resources: LinuxResources,
    ) -> Result<(), EventError> {
        let _turn = self.shared.turn().await;
        let asking = self.shared.begin(Event::UPDATE_POD_SANDBOX, &pod)?;
        let mut request = UpdatePodSandboxRequest::new();
        request.pod = Some(pod).into();
        request.overhead_linux_resources = Some(overhead).into();
        request.linux_resources = Some(resources).into();
        for member in &asking.members {
            let call = |plugin: &PluginClient| plugin.update_pod_sandbox(&request);
            self.shared.ask_if_known(member, &asking, call).await?;
        }
        Ok(())
    }

    /// A pod has them.
    ///
    /// # Errors
    ///
    /// [`EventError`].
    pub async fn post_update_pod_sandbox(&self, pod: PodSandbox) -> Result<(), EventError> {
        let mut request = PostUpdatePodSandboxRequest::new();
        request.pod = Some(pod.clone()).into();
        self.tell(Event::POST_UPDATE_POD_SANDBOX, (&pod, None), |plugin| {
            plugin.post_update_pod_sandbox(&request)
        })
        .await
    }

    /// A pod has stopped, or is to stop.
    ///
    /// # Errors
    ///
    /// [`EventError`].
    pub async fn stop_pod_sandbox(&self, pod: PodSandbox) -> Result<(), EventError> {
        let mut request = StopPodSandboxRequest::new();
        request.pod = Some(pod.clone()).into();
        self.tell(Event::STOP_POD_SANDBOX, (&pod, None), |plugin| {
            plugin.stop_pod_sandbox(&request)
        })
        .await
    }

    /// A pod is removed.
    ///
    /// # Errors
    ///
    /// [`EventError`].
    pub async fn remove_pod_sandbox(&self, pod: PodSandbox) -> Result<(), EventError> {
        let mut request = RemovePodSandboxRequest::new();
        request.pod = Some(pod.clone()).into();
        self.tell(Event::REMOVE_POD_SANDBOX, (&pod, None), |plugin| {
            plugin.remove_pod_sandbox(&request)
        })
        .await
    }

    /// A container is to be created. Each plugin sees it as those before it have adjusted it; validators see
    /// the whole, and may reject it.
    ///
    /// # Errors
    ///
    /// [`EventError`]. A validator that has no part in it fails it, as one that is required.
    pub async fn create_container(
        &self,
        pod: PodSandbox,
        container: Container,
    ) -> Result<Adjustment, EventError> {
        let _turn = self.shared.turn().await;
        let asking = self.shared.begin(Event::CREATE_CONTAINER, &pod)?;
        let mut creation = Creation::new(pod.clone(), container);
        let mut asked = Vec::new();
        for member in &asking.members {
            let call = |plugin: &PluginClient| plugin.create_container(creation.request());
            let answer = self.shared.ask_if_known(member, &asking, call).await?;
            if let Some(answer) = answer {
                creation.add(&answer, &member.name.to_string())?;
            }
            let mut instance = PluginInstance::new();
            instance.name.clone_from(&member.name.base);
            instance.index.clone_from(&member.name.index);
            asked.push(instance);
        }
        self.validate(&pod, &creation, asked).await?;
        Ok(creation.finish())
    }

    async fn validate(
        &self,
        pod: &PodSandbox,
        creation: &Creation,
        asked: Vec<PluginInstance>,
    ) -> Result<(), EventError> {
        let asking = self
            .shared
            .begin(Event::VALIDATE_CONTAINER_ADJUSTMENT, pod)?;
        if asking.members.is_empty() {
            return Ok(());
        }
        let request = creation.validation(asked);
        for member in &asking.members {
            let call = |plugin: &PluginClient| plugin.validate_container_adjustment(&request);
            let answer = self.shared.ask_if_known(member, &asking, call).await?;
            if let Some(answer) = answer.filter(|answer| answer.reject) {
                return Err(EventError::Rejected {
                    plugin: member.name.to_string(),
                    reason: answer.reason,
                });
            }
        }
        Ok(())
    }

    /// A container has been created.
    ///
    /// # Errors
    ///
    /// [`EventError`].
    pub async fn post_create_container(
        &self,
        pod: PodSandbox,
        container: Container,
    ) -> Result<(), EventError> {
        let mut request = PostCreateContainerRequest::new();
        request.pod = Some(pod.clone()).into();
        request.container = Some(container.clone()).into();
        let about = (&pod, Some(&container));
        self.tell(Event::POST_CREATE_CONTAINER, about, |plugin| {
            plugin.post_create_container(&request)
        })
        .await
    }

    /// A container is to be started.
    ///
    /// # Errors
    ///
    /// [`EventError`].
    pub async fn start_container(
        &self,
        pod: PodSandbox,
        container: Container,
    ) -> Result<(), EventError> {
        let mut request = StartContainerRequest::new();
        request.pod = Some(pod.clone()).into();
        request.container = Some(container.clone()).into();
        let about = (&pod, Some(&container));
        self.tell(Event::START_CONTAINER, about, |plugin| {
            plugin.start_container(&request)
        })
        .await
    }

    /// A container has been started.
    ///
    /// # Errors
    ///
    /// [`EventError`].
    pub async fn post_start_container(
        &self,
        pod: PodSandbox,
        container: Container,
    ) -> Result<(), EventError> {
        let mut request = PostStartContainerRequest::new();
        request.pod = Some(pod.clone()).into();
        request.container = Some(container.clone()).into();
        let about = (&pod, Some(&container));
        self.tell(Event::POST_START_CONTAINER, about, |plugin| {
            plugin.post_start_container(&request)
        })
        .await
    }

    /// A container is to have these resources. Each plugin sees them as those before it have changed them.
    ///
    /// # Errors
    ///
    /// [`EventError`].
    pub async fn update_container(
        &self,
        pod: PodSandbox,
        container: Container,
        resources: LinuxResources,
    ) -> Result<Update, EventError> {
        let _turn = self.shared.turn().await;
        let asking = self.shared.begin(Event::UPDATE_CONTAINER, &pod)?;
        let mut updating = Updating::new(pod, container, resources);
        for member in &asking.members {
            let call = |plugin: &PluginClient| plugin.update_container(updating.request());
            let answer = self.shared.ask_if_known(member, &asking, call).await?;
            if let Some(answer) = answer {
                updating.add(&answer, &member.name.to_string())?;
            }
        }
        Ok(updating.finish())
    }

    /// A container has them.
    ///
    /// # Errors
    ///
    /// [`EventError`].
    pub async fn post_update_container(
        &self,
        pod: PodSandbox,
        container: Container,
    ) -> Result<(), EventError> {
        let mut request = PostUpdateContainerRequest::new();
        request.pod = Some(pod.clone()).into();
        request.container = Some(container.clone()).into();
        let about = (&pod, Some(&container));
        self.tell(Event::POST_UPDATE_CONTAINER, about, |plugin| {
            plugin.post_update_container(&request)
        })
        .await
    }

    /// A container has stopped, or is to stop. Yields what plugins want of others then.
    ///
    /// # Errors
    ///
    /// [`EventError`].
    pub async fn stop_container(
        &self,
        pod: PodSandbox,
        container: Container,
    ) -> Result<Vec<ContainerUpdate>, EventError> {
        let _turn = self.shared.turn().await;
        let asking = self.shared.begin(Event::STOP_CONTAINER, &pod)?;
        let mut request = StopContainerRequest::new();
        request.pod = Some(pod).into();
        request.container = Some(container).into();
        let mut stopping = Stopping::default();
        for member in &asking.members {
            let call = |plugin: &PluginClient| plugin.stop_container(&request);
            let answer = self.shared.ask_if_known(member, &asking, call).await?;
            if let Some(answer) = answer {
                stopping.add(&answer, &member.name.to_string())?;
            }
        }
        Ok(stopping.finish())
    }

    /// A container is removed.
    ///
    /// # Errors
    ///
    /// [`EventError`].
    pub async fn remove_container(
        &self,
        pod: PodSandbox,
        container: Container,
    ) -> Result<(), EventError> {
        let mut request = RemoveContainerRequest::new();
        request.pod = Some(pod.clone()).into();
        request.container = Some(container.clone()).into();
        let about = (&pod, Some(&container));
        self.tell(Event::REMOVE_CONTAINER, about, |plugin| {
            plugin.remove_container(&request)
        })
        .await
    }

    /// Tells of what has changed, and takes no answer but an error.
    async fn tell<R: Decode>(
        &self,
        event: Event,
        about: (&PodSandbox, Option<&Container>),
        call: impl Fn(&PluginClient) -> Call<R>,
    ) -> Result<(), EventError> {
        let _turn = self.shared.turn().await;
        let asking = self.shared.begin(event, about.0)?;
        for member in &asking.members {
            self.shared
                .tell_change(member, &asking, about, &call)
                .await?;
        }
        Ok(())
    }
}
