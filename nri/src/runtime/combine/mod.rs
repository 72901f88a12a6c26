//! What several plugins want of one event, combined field by field.
//!
//! Plugins are asked in the order of their index, and each sees the container as those before it have
//! adjusted it. A field belongs to the plugin that sets it, and a second one that sets it too is a
//! [`Conflict`], unless it removes it first. Pure rules: nothing here is sent or waited for.
//!
//! The rules are those of Go's runtime side (`interop/run` compares the two), but for removals, where that one
//! loses what a plugin asked for: here a variable or a device that is only removed keeps its mark, so that the
//! runtime removes it, and an annotation, a sysctl or a network device that is removed is gone although an
//! earlier plugin had set it.

mod adjustment;
mod keyed;
mod owners;
mod resources;
#[cfg(test)]
mod tests;
mod updates;

use owners::Owners;
use updates::Updates;

pub use owners::Conflict;

use crate::api::{
    Container, ContainerAdjustment, ContainerEviction, ContainerUpdate, CreateContainerRequest,
    CreateContainerResponse, LinuxResources, OwningPlugins, PluginInstance, PodSandbox,
    StopContainerResponse, UpdateContainerRequest, UpdateContainerResponse,
    ValidateContainerAdjustmentRequest,
};

/// The creation of a container, while its plugins are asked one after another.
#[derive(Clone, Debug)]
pub(crate) struct Creation {
    /// As the runtime gave it: validators see that.
    pristine: Container,
    request: CreateContainerRequest,
    adjustment: ContainerAdjustment,
    updates: Updates,
    evictions: Vec<ContainerEviction>,
    owners: Owners,
}

/// What all plugins together want of a container that is being created, and of others.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Adjustment {
    /// Of the new container. What is to be removed is marked by a `-` in front of its key, whichever field
    /// it is; what is set replaces what was there under the same key.
    pub adjustment: ContainerAdjustment,
    /// Of others, one a container.
    pub updates: Vec<ContainerUpdate>,
    /// Containers that are to be ended.
    pub evictions: Vec<ContainerEviction>,
    /// Which plugin wants what.
    pub owners: OwningPlugins,
}

impl Creation {
    pub(crate) fn new(pod: PodSandbox, container: Container) -> Self {
        let mut request = CreateContainerRequest::new();
        request.pod = Some(pod).into();
        request.container = Some(container.clone()).into();
        Self {
            pristine: container,
            request,
            adjustment: ContainerAdjustment::new(),
            updates: Updates::default(),
            evictions: Vec::new(),
            owners: Owners::default(),
        }
    }

    /// What the next plugin is asked.
    pub(crate) fn request(&self) -> &CreateContainerRequest {
        &self.request
    }

    /// Adds the answer of one plugin.
    ///
    /// # Errors
    ///
    /// It cannot be had together with those before it. The event has failed then.
    pub(crate) fn add(
        &mut self,
        answer: &CreateContainerResponse,
        plugin: &str,
    ) -> Result<(), Conflict> {
        if let Some(adjustment) = answer.adjust.as_ref() {
            let mut claims = self.owners.claims(&self.pristine.id, plugin);
            adjustment::claim(adjustment, &mut claims)?;
            adjustment::add(adjustment, &mut self.adjustment);
            adjustment::apply_to(adjustment, self.request.container.mut_or_insert_default());
        }
        for update in &answer.update {
            if update.container_id == self.pristine.id {
                return Err(Conflict::creation(plugin, &self.pristine.id));
            }
            self.updates.add(update, &mut self.owners, plugin)?;
        }
        self.evictions.extend(answer.evict.iter().cloned());
        Ok(())
    }

    /// What validators are asked, once all plugins have answered.
    pub(crate) fn validation(
        &self,
        asked: Vec<PluginInstance>,
    ) -> ValidateContainerAdjustmentRequest {
        let mut request = ValidateContainerAdjustmentRequest::new();
        request.pod = self.request.pod.clone();
        request.container = Some(self.pristine.clone()).into();
        request.adjust = Some(self.adjustment.clone()).into();
        request.update = self.updates.all().to_vec();
        request.owners = Some(self.owners.message()).into();
        request.plugins = asked;
        request
    }

    pub(crate) fn finish(self) -> Adjustment {
        Adjustment {
            adjustment: self.adjustment,
            updates: self.updates.into_all(),
            evictions: self.evictions,
            owners: self.owners.message(),
        }
    }
}

/// The update of a container, while its plugins are asked one after another.
#[derive(Clone, Debug)]
pub(crate) struct Updating {
    request: UpdateContainerRequest,
    /// The resources that the runtime wants to set.
    wanted: LinuxResources,
    updates: Updates,
    evictions: Vec<ContainerEviction>,
    owners: Owners,
}

/// What all plugins together make of the update of a container.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Update {
    /// What the container is to get: what the runtime wanted, as plugins have changed it.
    pub resources: LinuxResources,
    /// Updates of others, one a container.
    pub updates: Vec<ContainerUpdate>,
    /// Containers that are to be ended.
    pub evictions: Vec<ContainerEviction>,
}

impl Updating {
    pub(crate) fn new(pod: PodSandbox, container: Container, wanted: LinuxResources) -> Self {
        let mut request = UpdateContainerRequest::new();
        request.pod = Some(pod).into();
        request.container = Some(container).into();
        request.linux_resources = Some(wanted.clone()).into();
        Self {
            request,
            wanted,
            updates: Updates::default(),
            evictions: Vec::new(),
            owners: Owners::default(),
        }
    }

    /// What the next plugin is asked: with the resources as those before it have changed them.
    pub(crate) fn request(&self) -> &UpdateContainerRequest {
        &self.request
    }

    /// Adds the answer of one plugin.
    ///
    /// # Errors
    ///
    /// As [`Creation::add`].
    pub(crate) fn add(
        &mut self,
        answer: &UpdateContainerResponse,
        plugin: &str,
    ) -> Result<(), Conflict> {
        for update in &answer.update {
            self.updates.add(update, &mut self.owners, plugin)?;
        }
        if let Some(changes) = self.updates.get(&self.request.container.id) {
            let mut resources = self.wanted.clone();
            resources::overlay(changes, &mut resources);
            self.request.linux_resources = Some(resources).into();
        }
        self.evictions.extend(answer.evict.iter().cloned());
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Update {
        let mut resources = self.wanted;
        if let Some(changes) = self.updates.take(&self.request.container.id) {
            resources::overlay(&changes, &mut resources);
        }
        Update {
            resources,
            updates: self.updates.into_all(),
            evictions: self.evictions,
        }
    }
}

/// The end of a container, while its plugins are asked one after another.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stopping {
    updates: Updates,
    owners: Owners,
}

impl Stopping {
    /// Adds the answer of one plugin.
    ///
    /// # Errors
    ///
    /// As [`Creation::add`].
    pub(crate) fn add(
        &mut self,
        answer: &StopContainerResponse,
        plugin: &str,
    ) -> Result<(), Conflict> {
        for update in &answer.update {
            self.updates.add(update, &mut self.owners, plugin)?;
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> Vec<ContainerUpdate> {
        self.updates.into_all()
    }
}
