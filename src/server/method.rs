//! The record of a method beside the code that handles it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::admission::{CallLimit, CallPermit};
use super::options::Policy;
use super::requests::Kind;
use super::state::ServerState;
use crate::status::{Code, Status};

/// A method that is served. A call has its names from here: those in its request are slices of the
/// frame, and would keep all of it in memory for as long as the handler runs.
#[derive(Debug)]
pub(super) struct Method {
    pub(super) service: String,
    pub(super) name: String,
    pub(super) kind: Kind,
    /// `None` where nothing is set: most methods need none, and their calls are not to pay for it.
    pub(super) policy: Option<Policy>,
    call_limit: Option<Arc<CallLimit>>,
    pub(super) state: Arc<ServerState>,
}

impl Method {
    pub(super) fn new(
        (service, name): (String, String),
        kind: Kind,
        policy: Option<Policy>,
        state: Arc<ServerState>,
    ) -> Self {
        let call_limit = policy.as_ref().and_then(|policy| policy.call_limit);
        Self {
            service,
            name,
            kind,
            policy,
            call_limit: call_limit.map(CallLimit::new),
            state,
        }
    }

    /// Refuses a call that may have waited for too long while this process did not run.
    pub(super) fn check_wait(&self, waited: Duration) -> Result<(), Status> {
        let policy = self.policy.as_ref();
        let limit = policy.and_then(|policy| policy.refuse_waited);
        if limit.is_none_or(|limit| waited <= limit) {
            return Ok(());
        }
        self.state.counts.waited.fetch_add(1, Relaxed);
        let message = format!("the server did not run for {waited:?} before it read the request");
        Err(Status::new(Code::UNAVAILABLE, message))
    }

    /// Lets one more call in.
    pub(super) fn permit(&self) -> Result<Option<CallPermit>, Status> {
        let Some(calls) = &self.call_limit else {
            return Ok(None);
        };
        let permit = calls.permit().ok_or_else(|| {
            let (limit, name) = (calls.limit(), &self.name);
            let message = format!("{limit} calls of method {name:?} run or wait");
            Status::new(Code::RESOURCE_EXHAUSTED, message)
        })?;
        Ok(Some(permit))
    }
}
