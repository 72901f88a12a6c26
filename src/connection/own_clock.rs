//! The clock of a caller.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;

use tokio::runtime::Handle;

use super::calls::Calls;
use super::dedicated::dedicated;
use super::shared::Shared;
use crate::clock::Alarm;
use crate::keepalive::CallDeadline;
use crate::tuning::OWN_CLOCK_MARGIN;

/// Ends a call at its deadline if the driver does not (law 9): the runtime of the driver may not run, or
/// another task may keep its thread.
#[derive(Default)]
pub(crate) struct OwnClock(Option<Alarm>);

impl OwnClock {
    /// For a call without a limit, or before it has begun.
    pub(super) fn none() -> Self {
        Self::default()
    }

    pub(crate) fn start(shared: &Shared<Calls>, deadline: Option<&CallDeadline>) -> Self {
        let Some(deadline) = deadline else {
            return Self::none();
        };
        // On the one thread of its runtime a caller is never earlier than the driver.
        if shared.is_at_home() {
            return Self::none();
        }
        // Outside of all runtimes there is no timer but that of the crate's own thread.
        let elsewhere = match Handle::try_current() {
            Ok(_) => None,
            Err(_) => match dedicated() {
                Ok(runtime) => Some(runtime),
                // The driver's time is all that is left.
                Err(_) => return Self::none(),
            },
        };
        let _entered = elsewhere.as_ref().map(Handle::enter);
        // The driver has its time first: it looks at the socket before it says something of the peer.
        let margin = OWN_CLOCK_MARGIN.max(deadline.lead() / 4);
        let at = deadline.deadline().saturating_add(margin);
        let at = shared.clock().instant(at);
        Self(at.map(Alarm::at))
    }

    /// Ends what has run out of time, if the driver has had its time to do so.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, shared: &Shared<Calls>) {
        let Some(alarm) = &mut self.0 else { return };
        if Pin::new(alarm).poll(cx).is_ready() {
            self.0 = None;
            let now = shared.now();
            shared.with(|state, effects| state.run_for_driver(now, effects));
        }
    }
}
