//! Updates of containers that are there, which plugins ask for in their answers.

use super::owners::{Conflict, Owners};
use super::resources;
use crate::api::{ContainerUpdate, LinuxResources};

/// The updates of all plugins so far, one a container, in the order in which they were first asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Updates {
    updates: Vec<ContainerUpdate>,
}

impl Updates {
    /// Adds one plugin's. One that says that its failure is to be ignored is left out if it cannot be
    /// had, and changes nothing then.
    pub(super) fn add(
        &mut self,
        update: &ContainerUpdate,
        owners: &mut Owners,
        plugin: &str,
    ) -> Result<(), Conflict> {
        if let Some(resources) = update.linux.resources.as_ref() {
            let before = update.ignore_failure.then(|| owners.clone());
            let claimed =
                resources::claim(resources, &mut owners.claims(&update.container_id, plugin));
            match (claimed, before) {
                (Ok(()), _) => {}
                (Err(_), Some(before)) => {
                    *owners = before;
                    return Ok(());
                }
                (Err(conflict), None) => return Err(conflict),
            }
        }
        let collected = self.of(update);
        collected.ignore_failure &= update.ignore_failure;
        if let Some(resources) = update.linux.resources.as_ref() {
            let linux = collected.linux.mut_or_insert_default();
            resources::overlay(resources, linux.resources.mut_or_insert_default());
        }
        Ok(())
    }

    fn of(&mut self, update: &ContainerUpdate) -> &mut ContainerUpdate {
        let id = &update.container_id;
        let place = self
            .updates
            .iter()
            .position(|known| known.container_id == *id);
        let place = place.unwrap_or_else(|| {
            let mut new = ContainerUpdate::new();
            id.clone_into(&mut new.container_id);
            new.ignore_failure = update.ignore_failure;
            self.updates.push(new);
            self.updates.len() - 1
        });
        &mut self.updates[place]
    }

    /// What was asked for one container, taken out.
    pub(super) fn take(&mut self, container: &str) -> Option<LinuxResources> {
        let place = self
            .updates
            .iter()
            .position(|update| update.container_id == container)?;
        let update = self.updates.remove(place);
        Some(update.linux.resources.clone().unwrap_or_default())
    }

    /// What was asked for one container so far.
    pub(super) fn get(&self, container: &str) -> Option<&LinuxResources> {
        let update = self
            .updates
            .iter()
            .find(|update| update.container_id == container)?;
        update.linux.resources.as_ref()
    }

    pub(super) fn all(&self) -> &[ContainerUpdate] {
        &self.updates
    }

    pub(super) fn into_all(self) -> Vec<ContainerUpdate> {
        self.updates
    }
}
