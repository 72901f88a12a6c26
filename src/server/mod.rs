//! Serving calls: methods, listeners, single connections, and the way to stop.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tracing::{debug, warn};

use crate::clock::within;
use crate::config::ServerSettings;
use crate::connection::{Connection, PeerLimits};
use crate::error::{ConfigError, ConnectionError};
use crate::panics::catch;
use crate::transport::{Accept, IntoTransport};

mod admission;
mod attention;
mod builder;
mod canary;
mod context;
mod counters;
mod dispatch;
mod early;
mod guard;
mod handler;
mod method;
mod methods;
mod options;
mod pulse;
mod refusal;
mod requests;
mod responder;
mod service;
mod side;
mod slots;
mod state;
mod streaming;

pub use builder::ServerBuilder;
pub use context::Context;
pub use counters::ServerCounters;
pub use options::{MethodOptions, OnDeadline, OnDisconnect, SoftReply};
pub use service::Service;
pub use streaming::{Requests, Responses};

use crate::tuning::{ACCEPT_BACKOFF, STOP_PATIENCE};
use canary::Canary;
use methods::Methods;
use requests::{ConnectionState, OpenRequests};
use side::ServerSide;
use state::{Phase, ServerState};

/// Serves methods on listeners and on connected streams.
///
/// A clone is another handle of the same server. Dropping the last one stops nothing: each future
/// that serves keeps the server, and serves until its own end. What stops it is
/// [`shutdown`](Self::shutdown), or dropping that future.
#[derive(Clone, Debug)]
pub struct Server {
    methods: Arc<Methods>,
    state: Arc<ServerState>,
}

impl ServerBuilder {
    /// Makes the server.
    ///
    /// # Errors
    ///
    /// If a setting is out of its range, two exclude each other, or options are set for a method
    /// that is not there or cannot have them; the error names it.
    pub fn build(self) -> Result<Server, ConfigError> {
        let (methods, state) = self.into_methods()?;
        debug!(settings = ?state.settings, ?methods, "a server is built");
        let methods = Arc::new(methods);
        Ok(Server { methods, state })
    }
}

impl Server {
    /// Begins with no methods and the default settings.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// The settings in use. They are logged once, when the server is built, with those of its
    /// methods.
    pub fn settings(&self) -> &ServerSettings {
        &self.state.settings
    }

    /// Accepts and serves connections until [`shutdown`](Self::shutdown) or until there will be no
    /// more of them, then until those that are open have ended.
    ///
    /// `incoming` is a [`Listener`](crate::Listener), or anything else that yields connections, see
    /// [`Accept`]. Errors of accepting are logged and waited out, for 5 ms at first and 1 s at most.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with time enabled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the listener and ends its connections at once.
    pub async fn serve(&self, incoming: impl Accept) {
        self.serve_each(incoming, |_| None).await;
    }

    /// The same, with a state for each connection that its handlers are given by
    /// [`Context::connection_state`]. It is made when the connection is accepted, before anything is
    /// read from it; `state` must not block. A panic of `state` costs the connection, which is closed.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with time enabled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the listener and ends its connections at once.
    pub async fn serve_with<A: Accept, T: Send + Sync + 'static>(
        &self,
        incoming: A,
        mut state: impl FnMut(&A::Stream) -> T,
    ) {
        let state = |stream: &A::Stream| {
            let state: ConnectionState = Arc::new(state(stream));
            Some(state)
        };
        self.serve_each(incoming, state).await;
    }

    async fn serve_each<A: Accept>(
        &self,
        mut incoming: A,
        mut state: impl FnMut(&A::Stream) -> Option<ConnectionState>,
    ) {
        let limit = self.state.settings.connection_limit;
        let mut phase = self.state.phase.subscribe();
        let mut connections = JoinSet::new();
        let canary = Canary::new(Handle::current());
        let mut backoff = ACCEPT_BACKOFF.0;
        loop {
            let accepting = poll_fn(|cx| incoming.poll_accept(cx));
            let accepted = tokio::select! {
                accepted = accepting, if connections.len() < limit => accepted,
                _ = phase.wait_for(|phase| *phase != Phase::Serving) => break,
                Some(_) = connections.join_next() => continue,
            };
            match accepted {
                None => break,
                Some(Ok(stream)) => {
                    backoff = ACCEPT_BACKOFF.0;
                    // Others are served whatever is wrong with this one's peer.
                    let Some(state) = catch(|| state(&stream)) else {
                        warn!("a connection is closed since its state cannot be made");
                        continue;
                    };
                    let (server, canary) = (self.clone(), canary.clone());
                    connections.spawn(async move { server.serve_one(stream, state, canary).await });
                    if connections.len() == limit {
                        warn!(
                            limit,
                            "no more connections are accepted until one has ended"
                        );
                    }
                }
                Some(Err(error)) => {
                    warn!(%error, wait = ?backoff, "accepting failed");
                    tokio::select! {
                        () = tokio::time::sleep(backoff) => {}
                        _ = phase.wait_for(|phase| *phase != Phase::Serving) => break,
                    }
                    backoff = (backoff * 2).min(ACCEPT_BACKOFF.1);
                }
            }
        }
        drop(incoming);
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
        let canary = Canary::new(Handle::current());
        self.serve_one(stream, None, canary).await
    }

    /// The same, with a state of this connection that its handlers are given by
    /// [`Context::connection_state`]: who the client is, what it has registered. It is dropped when
    /// the connection has ended and its last handler too.
    ///
    /// ```
    /// # use protobuf::well_known_types::wrappers::StringValue;
    /// use ttrpc_keepalive::{Client, Server, Service};
    ///
    /// struct Tenant(String);
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let names = Service::new("demo.Tenant", ())
    ///     .unary("Name", |(), context, mut reply: StringValue| async move {
    ///         let tenant = context.connection_state::<Tenant>();
    ///         reply.value = tenant.map_or_else(String::new, |tenant| tenant.0.clone());
    ///         Ok(reply)
    ///     });
    /// let server = Server::builder().service(names).build()?;
    /// let (here, there) = tokio::io::duplex(4096);
    /// let tenant = Tenant("one".to_owned());
    /// tokio::spawn(async move { server.serve_connection_with(there, tenant).await });
    ///
    /// let client = Client::builder().attach(here)?;
    /// let nothing = StringValue::new();
    /// let reply: StringValue = client.call("demo.Tenant", "Name", &nothing).await?;
    /// assert_eq!(reply.value, "one");
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with time enabled.
    ///
    /// # Cancel safety
    ///
    /// As of [`serve_connection`](Self::serve_connection).
    pub async fn serve_connection_with<T: Send + Sync + 'static>(
        &self,
        stream: impl IntoTransport,
        state: T,
    ) -> ConnectionError {
        let canary = Canary::new(Handle::current());
        self.serve_one(stream, Some(Arc::new(state)), canary).await
    }

    async fn serve_one(
        &self,
        stream: impl IntoTransport,
        own: Option<ConnectionState>,
        canary: Canary,
    ) -> ConnectionError {
        let ServerState {
            settings, phase, ..
        } = &*self.state;
        let limits = settings.limits;
        let requests = OpenRequests::new(limits, own, Arc::clone(&self.state.counts));
        let side = ServerSide::new(Arc::clone(&self.methods), Arc::clone(&self.state), canary);
        let connection = Connection::new(
            stream,
            (side, requests),
            limits.upload_bytes,
            &settings.keepalive,
            settings.driver_thread,
        )
        .limit_peer(PeerLimits {
            header: settings.header_timeout,
            first_request: settings.first_request_timeout,
        });
        let shared = Arc::clone(connection.shared());
        if let Some(slots) = &self.state.slots {
            let connection = Arc::downgrade(&shared);
            shared.with(|state, _| state.side.use_slots(Arc::clone(slots), connection));
        }
        let mut driver = pin!(connection.run());
        let mut phase = phase.subscribe();
        for next in [Phase::Draining, Phase::Ending, Phase::Stopped] {
            tokio::select! {
                // First, so that a connection that comes late is not served.
                biased;
                _ = phase.wait_for(|phase| *phase >= next) => {}
                end = &mut driver => return end,
            }
            match next {
                Phase::Draining => shared.close(),
                Phase::Ending => shared.with(|state, effects| state.end_requests(effects)),
                _ => shared.abort(),
            }
        }
        driver.await
    }

    /// What has become of calls so far, on all connections.
    pub fn counters(&self) -> ServerCounters {
        self.state.counts.now()
    }

    /// Stops accepting, lets calls that run or wait end, refuses new ones with UNAVAILABLE, and
    /// closes each connection when its last answer is written. What is not done after `limit` is
    /// cut.
    ///
    /// Handlers are told at once, by [`Context::draining`]: those that wait for something rare, or
    /// serve a stream without an end, should end then. For those of streams that do not look,
    /// [`Requests`] fail with UNAVAILABLE when half of the `limit` has passed, behind what was
    /// received: a stream that ends in time is not cut in its middle.
    ///
    /// Returns whether all ended in time. The server serves nothing afterwards. Handlers are not
    /// stopped: one whose connection was cut, or had ended before, runs on, and is not waited for.
    ///
    /// [`serve`](Self::serve) and [`serve_connection`](Self::serve_connection) do the work, so they
    /// must go on being polled: in tasks of their own, or joined with this future. If they are not,
    /// this returns false 1 s after the limit. A handler that stops its own server spawns this
    /// future, since one that awaited it would wait for itself. Its call is answered.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with time enabled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the server draining, without a limit.
    pub async fn shutdown(&self, limit: Duration) -> bool {
        let half = limit / 2;
        self.enter(Phase::Draining);
        self.state.draining.send_replace(true);
        let drained = self.closed_within(half).await || {
            self.enter(Phase::Ending);
            self.closed_within(limit - half).await
        };
        self.enter(Phase::Stopped);
        // Only so that their sockets are closed when this returns.
        self.closed_within(STOP_PATIENCE).await;
        drained
    }

    /// Goes on to this phase, unless another shutdown has come further.
    fn enter(&self, next: Phase) {
        self.state.phase.send_if_modified(|phase| {
            let earlier = *phase < next;
            *phase = next.max(*phase);
            earlier
        });
    }

    async fn closed_within(&self, limit: Duration) -> bool {
        let closed = self.state.phase.closed();
        within(limit, closed).await.is_some()
    }
}
