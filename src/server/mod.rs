//! Serving calls: methods, listeners, single connections, and the way to stop.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::warn;

use crate::config::ServerConfig;
use crate::connection::Connection;
use crate::error::ConnectionError;
use crate::transport::{IntoTransport, Listener};

mod builder;
mod canary;
mod context;
mod method;
mod requests;
mod streaming;

pub use builder::ServerBuilder;
pub use context::Context;
pub use streaming::{Requests, Responses};

use canary::Canary;
use method::Methods;
use requests::ServerSide;

/// Waits between two failed accepts, growing: the usual cause is that descriptors are used up,
/// which passes, and a loop that does not wait makes it worse.
const ACCEPT_BACKOFF: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

/// How long a shutdown waits for what it has told to stop. A task needs one turn for that; a future
/// that nobody polls never has one, and must not hold up the process that wants to end.
const STOP_PATIENCE: Duration = Duration::from_secs(1);

/// Serves methods on listeners and on connected streams.
///
/// A clone is another handle of the same server.
#[derive(Clone, Debug)]
pub struct Server {
    shared: Arc<Serving>,
}

#[derive(Debug)]
struct Serving {
    methods: Arc<Methods>,
    config: ServerConfig,
    phase: watch::Sender<Phase>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Serving,
    /// Calls that run are ended, new ones refused.
    Draining,
    Stopped,
}

impl Server {
    /// Begins with no methods and the default settings.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// Accepts and serves connections until [`shutdown`](Self::shutdown), then until those
    /// connections have ended.
    ///
    /// Errors of accepting are logged and waited out, for 5 ms at first and 1 s at most. The number
    /// of connections has no limit here; the limits of [`ServerBuilder`] are for each of them.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with time enabled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the listener and ends its connections at once.
    pub async fn serve(&self, listener: Listener) {
        let mut phase = self.shared.phase.subscribe();
        let mut connections = JoinSet::new();
        let canary = Canary::new(Handle::current());
        let mut backoff = ACCEPT_BACKOFF.0;
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = phase.wait_for(|phase| *phase != Phase::Serving) => break,
                Some(_) = connections.join_next() => continue,
            };
            match accepted {
                Ok(socket) => {
                    backoff = ACCEPT_BACKOFF.0;
                    let (server, canary) = (self.clone(), canary.clone());
                    connections.spawn(async move { server.serve_one(socket, canary).await });
                }
                Err(error) => {
                    warn!(%error, wait = ?backoff, "accepting failed");
                    tokio::select! {
                        () = tokio::time::sleep(backoff) => {}
                        _ = phase.wait_for(|phase| *phase != Phase::Serving) => break,
                    }
                    backoff = (backoff * 2).min(ACCEPT_BACKOFF.1);
                }
            }
        }
        drop(listener);
        while connections.join_next().await.is_some() {}
    }

    /// Serves one connected stream until it ends, and yields why it did. A peer that is done
    /// closes: [`ConnectionError::PeerClosed`] is the ordinary end.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with time enabled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the connection at once, or as soon as the
    /// [thread](ServerBuilder::driver_thread) that drives it comes to it. Handlers that run see it
    /// by [`Context::cancelled`]; their answers are dropped.
    pub async fn serve_connection(&self, stream: impl IntoTransport) -> ConnectionError {
        self.serve_one(stream, Canary::new(Handle::current())).await
    }

    async fn serve_one(&self, stream: impl IntoTransport, canary: Canary) -> ConnectionError {
        let Serving {
            methods,
            config,
            phase,
        } = &*self.shared;
        let side = ServerSide::new(Arc::clone(methods), config.limits, canary);
        let connection = Connection::new(stream, side, &config.keepalive, config.driver_thread);
        let shared = Arc::clone(connection.shared());
        let mut driver = pin!(connection.run());
        let mut phase = phase.subscribe();
        tokio::select! {
            biased;
            end = &mut driver => return end,
            _ = phase.wait_for(|phase| *phase != Phase::Serving) => shared.close(),
        }
        tokio::select! {
            biased;
            end = &mut driver => return end,
            _ = phase.wait_for(|phase| *phase == Phase::Stopped) => shared.abort(),
        }
        driver.await
    }

    /// Stops accepting, lets calls that run end, refuses new ones with UNAVAILABLE, and closes
    /// each connection when its last answer is written. What is not done after `limit` is cut.
    ///
    /// Returns whether all ended in time. The server serves nothing afterwards.
    ///
    /// [`serve`](Self::serve) and [`serve_connection`](Self::serve_connection) do the work, so they
    /// must go on being polled: in tasks of their own, or joined with this future. If they are not,
    /// this returns false 1 s after the limit. A handler that stops its own server spawns this
    /// future, since one that awaited it would wait for itself.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with time enabled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the server draining, without a limit.
    pub async fn shutdown(&self, limit: Duration) -> bool {
        let phase = &self.shared.phase;
        phase.send_if_modified(|phase| {
            let serving = *phase == Phase::Serving;
            if serving {
                *phase = Phase::Draining;
            }
            serving
        });
        let drained = tokio::time::timeout(limit, phase.closed()).await.is_ok();
        phase.send_replace(Phase::Stopped);
        // Only so that their sockets are closed when this returns.
        let _ = tokio::time::timeout(STOP_PATIENCE, phase.closed()).await;
        drained
    }
}
