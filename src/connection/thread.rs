//! Which thread drives a connection.
//!
//! The invariant: whatever a driver needs of a runtime, its timer and its socket's registration, is
//! that of the runtime on which it runs.

use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::{JoinHandle, unconstrained};

use super::dedicated::dedicated;
use super::driver::Driver;
use super::patience::PeerLimits;
use super::shared::Shared;
use super::side::SideDriver;
use super::state::{Side, State};
use super::stream::Spread;
use crate::clock::Clock;
use crate::config::DriverThread;
use crate::error::ConnectionError;
use crate::keepalive::{Keepalive, Machine};
use crate::seed::seed;
use crate::transport::{IntoTransport, Remote, Transport};

/// A connection whose driver does not run yet.
pub(crate) struct Connection<S: SideDriver> {
    /// On the heap at once: a future keeps room for each place that a value is moved through before
    /// it rests, and an idle connection would hold its driver four times.
    driver: Pin<Box<Driver<S>>>,
    /// Where it will run, unless that is here.
    elsewhere: Option<Handle>,
    shared: Arc<Shared<S::Side>>,
}

impl<S: SideDriver> Connection<S> {
    /// `receive_limit` is for what waits in the queues of all streams. What the operating system refuses
    /// here ends the connection as soon as it is driven.
    pub(crate) fn new(
        stream: impl IntoTransport,
        (side, streams): (S, S::Side),
        receive_limit: usize,
        keepalive: &Keepalive,
        thread: DriverThread,
    ) -> Self {
        let mut transport = stream.into_transport();
        let (elsewhere, mut moved) = match thread {
            DriverThread::Shared => (None, Ok(())),
            DriverThread::Dedicated => match dedicated() {
                Ok(runtime) => (Some(runtime), Ok(())),
                Err(error) => (None, Err(error)),
            },
        };
        let entered = elsewhere.as_ref().map(Handle::enter);
        if entered.is_some() {
            moved = transport.enter();
        }
        let mut machine = Machine::new(keepalive, S::Side::ROLE, seed());
        machine.handle_receipts(transport.unread().is_some());
        machine.handle_connected(Duration::ZERO);
        let spread = Spread::new(seed());
        let state = State::new(
            machine,
            streams,
            spread,
            receive_limit,
            transport.shortcut(),
            seed(),
        );
        let remote = Remote::of(&transport);
        let runtime = Handle::current();
        let shared = Arc::new(Shared::new(state, Clock::start(), remote, &runtime));
        let mut driver = Driver::new(Box::new(transport), side, Arc::clone(&shared));
        drop(entered);
        if let Err(error) = moved {
            driver.fail(error);
        }
        Self {
            driver: Box::pin(driver),
            elsewhere,
            shared,
        }
    }

    /// Ends it if the peer takes longer than this.
    pub(crate) fn limit_peer(mut self, limits: PeerLimits) -> Self {
        self.driver.limit_peer(limits);
        self
    }

    pub(crate) fn shared(&self) -> &Arc<Shared<S::Side>> {
        &self.shared
    }

    /// Drives it to its end, whether anybody waits for that or not.
    pub(crate) fn spawn(self) -> JoinHandle<ConnectionError> {
        // The driver bounds its turns itself. Without this, "nothing to read" could mean that its
        // budget is used up.
        let driver = unconstrained(self.driver);
        match self.elsewhere {
            Some(runtime) => runtime.spawn(driver),
            None => tokio::spawn(driver),
        }
    }

    /// Drives it to its end, and yields why it ended. Dropping the future ends it.
    pub(crate) async fn run(self) -> ConnectionError {
        if self.elsewhere.is_none() {
            return unconstrained(self.driver).await;
        }
        let mut driving = AbortOnDrop(self.spawn());
        match (&mut driving.0).await {
            Ok(end) => end,
            // As if it had been driven here.
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            Err(_) => ConnectionError::Abandoned,
        }
    }
}

struct AbortOnDrop(JoinHandle<ConnectionError>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
