//! A handler's view of its call.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::method::Method;
use super::requests::OpenRequests;
use crate::clock::Clock;
use crate::connection::Shared;
use crate::error::ConnectionError;
use crate::hook::{CallStart, Hook, Hooked};
use crate::liveness::{Liveness, Snapshot};
use crate::status::Status;
use crate::text::ShownPairs;
use crate::transport::{PeerCredentials, PeerProcess};

/// The circumstances of one call, for its handler.
///
/// A handler is not stopped when its caller gives up: ttrpc has no message for that, and work that
/// was begun is often better ended. One that wants to stop looks at [`remaining`](Self::remaining)
/// and [`cancelled`](Self::cancelled); [`OnDeadline::Cancel`](crate::OnDeadline::Cancel) stops it
/// at its caller's deadline. A request that expired while it waited is answered DEADLINE_EXCEEDED
/// without its handler. One whose client has left before is dropped: the end of its connection lay
/// behind it, within 256 KiB, or came while it waited for a handler to end or for a thread.
///
/// A handler that waits for something rare, or serves an endless stream, looks at
/// [`draining`](Self::draining) too: a [shutdown](crate::Server::shutdown) waits for it.
#[derive(Clone)]
pub struct Context {
    shared: Arc<Shared<OpenRequests>>,
    method: Arc<Method>,
    stream_id: u32,
    metadata: Vec<(String, String)>,
    deadline: Option<Duration>,
    waited: Duration,
}

impl Context {
    pub(super) fn new(
        shared: Arc<Shared<OpenRequests>>,
        method: Arc<Method>,
        stream_id: u32,
        metadata: Vec<(String, String)>,
        deadline: Option<Duration>,
        waited: Duration,
    ) -> Self {
        Self {
            shared,
            method,
            stream_id,
            metadata,
            deadline,
            waited,
        }
    }

    /// The full name of the service that was called, as `demo.Echo`.
    pub fn service(&self) -> &str {
        &self.method.service
    }

    /// The bare name of the method that was called, as `Say`.
    pub fn method(&self) -> &str {
        &self.method.name
    }

    /// The id of the call's stream: odd, and used once on its connection. It is in what both sides log,
    /// and means nothing on another connection.
    pub fn stream_id(&self) -> u32 {
        self.stream_id
    }

    /// All metadata, in the order in which it came; keys may repeat.
    pub fn metadata(&self) -> &[(String, String)] {
        &self.metadata
    }

    /// The values of one key, which is compared without regard to case.
    pub fn values<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        let metadata = self.metadata.iter();
        metadata
            .filter(move |(other, _)| other.eq_ignore_ascii_case(key))
            .map(|(_, value)| value.as_str())
    }

    /// When the caller gives up, as told by its request, or a
    /// [`timeout`](crate::MethodOptions::timeout) stops the handler, whichever is earlier. `None`
    /// if there is neither.
    pub fn deadline(&self) -> Option<Instant> {
        self.shared.clock().instant(self.deadline?)
    }

    /// The time to the [deadline](Self::deadline): zero if it has passed, `None` if there is none.
    pub fn remaining(&self) -> Option<Duration> {
        let now = self.shared.clock().now();
        Some(self.deadline?.saturating_sub(now))
    }

    /// Whether the call has been answered while its handler runs on: at its
    /// [soft deadline](crate::MethodOptions::soft_deadline), or in the place of a handler that did not
    /// end at its own; for a stream also if its messages could not be taken.
    ///
    /// It is asked for by a handler while it runs. A context that is kept for longer does not know.
    pub fn is_answered(&self) -> bool {
        let (id, kind) = (self.stream_id, self.method.kind);
        self.shared.with(|state, _| state.is_answered(id, kind))
    }

    /// Leaves the answer to the handler: no [soft reply](crate::MethodOptions::soft_deadline) is given
    /// from now on, and what the handler returns is sent. `false` if it is too late for that, so that
    /// the result will be dropped and has to go another way.
    ///
    /// For the end of a handler that knows another way. [`is_answered`](Self::is_answered) does not do:
    /// the reply may be given between the question and the handler's return.
    pub fn leave_answer(&self) -> bool {
        let (id, kind) = (self.stream_id, self.method.kind);
        self.shared.with(|state, _| state.leave_answer(id, kind))
    }

    /// Whether no request was read from this connection behind this one.
    ///
    /// A caller that calls one at a time sends the next request when it has the answer, or when it has
    /// given up. So a request that is not answered and not the newest is for nobody: it lay in the socket
    /// while this process did not run. [`may_have_waited`](Self::may_have_waited) cannot tell so much.
    pub fn is_newest(&self) -> bool {
        self.shared.with(|state, _| state.is_newest(self.stream_id))
    }

    /// How long the request may have waited at most before it was read, since this process did not run:
    /// so much less may be left than [`remaining`](Self::remaining) says. Zero if no pause was seen,
    /// or the server does not [look for them](crate::ServerBuilder::observe_pauses).
    pub fn may_have_waited(&self) -> Duration {
        self.waited
    }

    /// The state of this connection, with which it is
    /// [served](crate::Server::serve_connection_with). `None` if there is none, or of another type.
    pub fn connection_state<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let own = self.shared.with(|state, _| state.side.own.clone());
        own?.downcast().ok()
    }

    /// The caller's process and user, on a unix socket. They were asked for once, when the
    /// connection was accepted.
    pub fn peer_credentials(&self) -> Option<PeerCredentials> {
        self.shared.remote().credentials
    }

    /// The caller's process, on a unix socket: what it is [doing](PeerProcess::state) now.
    pub fn peer_process(&self) -> Option<PeerProcess> {
        self.shared.remote().process
    }

    /// The caller's address, on a TCP socket.
    pub fn remote_address(&self) -> Option<SocketAddr> {
        self.shared.remote().address
    }

    /// Follows what is known about the caller's process.
    pub fn liveness(&self) -> Liveness {
        self.shared.liveness()
    }

    /// What is known about the caller's process now.
    pub fn snapshot(&self) -> Snapshot {
        self.shared.snapshot()
    }

    /// Says that the client is about to close the connection, which then ends with
    /// [`ConnectionError::Announced`]. For the handler of a method by which clients say so, since
    /// ttrpc itself has no frame for it.
    pub fn expect_close(&self) {
        self.shared.expect_close();
    }

    /// Waits until nobody can receive the answer any more: the connection is lost, the caller
    /// convicted, or the server stopped. Yields why. With
    /// [`OnDisconnect::Cancel`](crate::OnDisconnect::Cancel) the handler need not ask: it is dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn cancelled(&self) -> ConnectionError {
        self.shared.ended().await
    }

    /// Waits until the server begins to shut down; at once if it has. A handler that would run on
    /// for long ends then, with whatever answer says so: it has at most the limit that was given to
    /// [`Server::shutdown`](crate::Server::shutdown).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn draining(&self) {
        let mut draining = self.method.state.draining.subscribe();
        // The sender lives as long as `self`.
        let _ = draining.wait_for(|draining| *draining).await;
    }

    /// Whether the server has begun to shut down.
    pub fn is_draining(&self) -> bool {
        *self.method.state.draining.borrow()
    }

    pub(super) fn called(&self) -> &Arc<Method> {
        &self.method
    }

    pub(super) fn clock(&self) -> Clock {
        self.shared.clock()
    }

    pub(super) fn set_deadline(&mut self, deadline: Duration) {
        self.deadline = Some(deadline);
    }

    /// Shows the call to a hook.
    pub(super) fn begin(
        &mut self,
        hook: &Hook,
        remaining: Option<Duration>,
    ) -> Result<Option<Box<Hooked>>, Status> {
        let clock = self.clock();
        let start = CallStart {
            service: &self.method.service,
            method: &self.method.name,
            metadata: &mut self.metadata,
            remaining,
        };
        hook.begin(start, clock)
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("service", &self.service())
            .field("method", &self.method())
            .field("metadata", &ShownPairs(&self.metadata))
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
