//! What becomes of an event whose handler needs longer than the runtime waits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use protobuf::Message;
use ttrpc_keepalive::{Code, MethodOptions, SoftReply, Status};

use crate::api::{ContainerAdjustment, ContainerUpdate};

/// How long before the runtime gives up a late handler is answered for.
const MARGIN: Duration = Duration::from_millis(200);

/// What the runtime is told in time about an event whose handler is still at work, and what becomes of
/// the handler's result. See [`Plugin::late`](crate::Plugin::late).
///
/// A runtime waits for an answer for 2 s unless it is configured otherwise. What it does with a plugin
/// that takes longer depends on its release; most close the connection. An answer in time keeps the
/// plugin with all of them. The handler runs on in any case, so **events that follow from this answer may
/// come while it does**: PostCreateContainer, StartContainer and PostStartContainer of the same container
/// behind an empty answer, StopContainer and RemoveContainer behind a failing one.
///
/// The answer is given 200 ms before the runtime gives up, and to a request that comes with less than
/// twice that when half of its time is over. Handlers that block their thread are answered for too.
#[derive(Clone)]
#[must_use = "it does nothing until it is given to a plugin"]
pub struct Late {
    reply: Reply,
    margin: Duration,
    then: Option<Then>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Empty,
    Fail(String),
    Never,
}

/// Makes updates of what a handler returned too late.
pub(super) type Then = Arc<dyn Fn(LateResult) -> Vec<ContainerUpdate> + Send + Sync>;

impl Late {
    /// The event goes on as if this plugin had nothing to adjust. The default of all events but
    /// ValidateContainerAdjustment, where it would be consent.
    pub fn empty() -> Self {
        Self::with(Reply::Empty)
    }

    /// The event fails with this text: a container is not created, and the kubelet tries again. For
    /// what must not run without its adjustment. The status is ABORTED.
    ///
    /// Not for StopContainer and the like, of which a runtime wants no failure.
    pub fn fail(text: impl Into<String>) -> Self {
        Self::with(Reply::Fail(text.into()))
    }

    /// Nothing is answered before the handler has ended. Runtimes of today go on without the
    /// adjustment when their time is over, as with [`empty`](Self::empty), and drop the plugin, unless
    /// they know the [failure policy](crate::Plugin::failure_policy).
    pub fn never() -> Self {
        Self::with(Reply::Never)
    }

    /// How long before the runtime gives up the answer is given: 200 ms by default. It has to travel,
    /// and the runtime's clock began before ours.
    ///
    /// Runtimes before release 0.12.0 tell nine of the events by one call; for these the largest margin
    /// of the nine counts.
    pub fn margin(mut self, margin: Duration) -> Self {
        self.margin = margin;
        self
    }

    /// Delivers a result that came too late, by the updates that `make` makes of it, over
    /// [`UpdateContainers`](crate::Runtime::update_containers). [`LateResult::into_updates`] is such a
    /// function.
    ///
    /// For CreateContainer it waits for the container to exist, which PostCreateContainer tells: the
    /// plugin subscribes to that event too. If it never does, the result is dropped. Only for events
    /// that have a result: CreateContainer, UpdateContainer, StopContainer and Synchronize.
    pub fn then(
        mut self,
        make: impl Fn(LateResult) -> Vec<ContainerUpdate> + Send + Sync + 'static,
    ) -> Self {
        self.then = Some(Arc::new(make));
        self
    }

    fn with(reply: Reply) -> Self {
        Self {
            reply,
            margin: MARGIN,
            then: None,
        }
    }

    pub(super) fn delivery(&self) -> Option<&Then> {
        self.then.as_ref()
    }

    /// The reply and its margin, if there is one in time.
    pub(super) fn reply(&self) -> &Reply {
        &self.reply
    }

    pub(super) fn lead(&self) -> Option<Duration> {
        (self.reply != Reply::Never).then_some(self.margin)
    }

    /// For a call whose empty answer is `empty`.
    pub(super) fn options<R: Message>(&self, empty: &R) -> MethodOptions {
        let reply = match &self.reply {
            Reply::Never => return MethodOptions::new(),
            Reply::Empty => SoftReply::message(empty),
            Reply::Fail(text) => SoftReply::status(failure(text)),
        };
        MethodOptions::new().soft_deadline(self.margin, reply)
    }
}

pub(super) fn failure(text: &str) -> Status {
    Status::new(Code::ABORTED, text)
}

impl fmt::Debug for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Late")
            .field("reply", &self.reply)
            .field("margin", &self.margin)
            .field("then", &self.then.is_some())
            .finish()
    }
}

/// What a handler returned after its event was answered without it.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct LateResult {
    /// The container of the event; empty for Synchronize.
    pub container_id: String,
    /// What was to be adjusted in it, for CreateContainer.
    pub adjustment: Option<ContainerAdjustment>,
    /// What was to be changed in containers.
    pub updates: Vec<ContainerUpdate>,
}

impl LateResult {
    /// The updates, and in front of them the resources of the adjustment as an update of its container.
    /// Nothing else of a container can be adjusted once it exists.
    pub fn into_updates(self) -> Vec<ContainerUpdate> {
        let adjustment = self.adjustment.unwrap_or_default();
        let resources = adjustment.linux.into_option();
        let resources = resources.and_then(|linux| linux.resources.into_option());
        let adjusted = resources.map(|resources| {
            let mut update = ContainerUpdate::of(&self.container_id);
            *update.resources_mut() = resources;
            update
        });
        adjusted.into_iter().chain(self.updates).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_resources_of_an_adjustment_become_an_update() {
        let mut adjustment = ContainerAdjustment::new();
        adjustment.add_env("A", "1");
        let result = |adjustment| LateResult {
            container_id: "one".to_owned(),
            adjustment: Some(adjustment),
            updates: vec![ContainerUpdate::of("other")],
        };
        let updates = result(adjustment.clone()).into_updates();
        assert_eq!(updates, [ContainerUpdate::of("other")]);
        adjustment.resources_mut().set_cpu_shares(512);
        let updates = result(adjustment).into_updates();
        let mut expected = ContainerUpdate::of("one");
        expected.resources_mut().set_cpu_shares(512);
        assert_eq!(updates, [expected, ContainerUpdate::of("other")]);
    }
}
