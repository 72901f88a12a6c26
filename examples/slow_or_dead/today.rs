//! How runtimes of today decide, for comparison: they have a deadline and no other evidence.

use std::sync::Arc;

use protobuf::well_known_types::empty::Empty;

use crate::decide::{Outcome, Plugin};
use crate::runtime::Runtime;
use crate::{HANDLE_EVENT, LIMIT, PLUGIN_SERVICE, number};

/// Sends a plugin one event. Any failure is fatal for it, and a deadline is a failure.
pub(crate) async fn deliver(plugin: &Arc<Plugin>, event: u32, runtime: &Runtime) -> Outcome {
    let request = number(event);
    let call = plugin
        .client
        .call::<_, Empty>(PLUGIN_SERVICE, HANDLE_EVENT, &request);
    match call.timeout(LIMIT).await {
        Ok(_) => Outcome::Applied,
        Err(error) => {
            runtime.disconnect(plugin);
            if error.is_deadline() {
                Outcome::Late(error)
            } else {
                Outcome::Failed(error)
            }
        }
    }
}
