//! The runtime, as its plugin calls it.

use std::time::Duration;

use tokio::sync::watch;
use ttrpc_keepalive::Error;

use crate::api::{ContainerUpdate, UpdateContainersRequest};
use crate::services::RuntimeClient;

/// How long updates may take. A runtime does them between events, each of which may take the whole time
/// of several plugins.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a plugin knows of its runtime and asks of it: a handle that outlives connections, for handlers
/// and for whatever else a plugin does.
#[derive(Clone, Debug)]
pub struct Runtime {
    current: watch::Receiver<Option<RuntimeClient>>,
}

/// Why containers were not updated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateError {
    /// There is no connection at this time, or the runtime has not synchronized the plugin yet.
    #[error("the plugin is not registered with a runtime at this time")]
    NotConnected,
    /// The call failed.
    #[error("the runtime has not updated the containers: {0}")]
    Call(#[from] Error),
}

impl Runtime {
    pub(super) fn new(current: watch::Receiver<Option<RuntimeClient>>) -> Self {
        Self { current }
    }

    /// Whether the plugin is registered and synchronized at this time.
    pub fn is_connected(&self) -> bool {
        self.current.borrow().is_some()
    }

    /// Changes resources of containers, on the plugin's own initiative. Yields those that could not be
    /// changed and are not marked with `ignore_failure`.
    ///
    /// Runtimes do it between events. So a handler must not wait for it before it answers: the event
    /// that it handles would have to end first. A handler that is to change other containers says so in
    /// its answer; one that is too late for that has [`Late::then`](crate::Late::then).
    ///
    /// # Errors
    ///
    /// If there is no connection, or if the call fails; it has 30 s.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped the runtime may do it or not.
    pub async fn update_containers(
        &self,
        updates: Vec<ContainerUpdate>,
    ) -> Result<Vec<ContainerUpdate>, UpdateError> {
        let client = self.current.borrow().clone();
        let client = client.ok_or(UpdateError::NotConnected)?;
        let request = UpdateContainersRequest {
            update: updates,
            ..UpdateContainersRequest::default()
        };
        let response = client.update_containers(&request).timeout(PATIENCE).await?;
        Ok(response.failed)
    }

    /// The same once there is a connection, if there is one in time.
    pub(super) async fn update_later(
        mut self,
        updates: Vec<ContainerUpdate>,
    ) -> Result<Vec<ContainerUpdate>, UpdateError> {
        let connected = self.current.wait_for(Option::is_some);
        // In an own statement: the value that is waited for is locked.
        let connected = tokio::time::timeout(PATIENCE, connected).await.is_ok();
        if !connected {
            return Err(UpdateError::NotConnected);
        }
        self.update_containers(updates).await
    }
}
