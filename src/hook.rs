//! One hook around calls, the same on a client and on a server.
//!
//! The invariant: it runs in the task of the caller or of the handler, never in a driver and never
//! under a lock, and a panic in it costs its call only.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tracing::error;

use crate::clock::Clock;
use crate::error::Error;
use crate::panics::catch;
use crate::status::{Code, Status};

/// A call that is about to be sent, or to be handled, as a hook sees it.
///
/// A hook is a function that is called when a call begins, and yields what is to be called when it
/// ends: for authentication, tracing, metrics. The same function serves a
/// [client](crate::ClientBuilder::hook) and a [server](crate::ServerBuilder::hook).
///
/// ```
/// use ttrpc_keepalive::{AtEnd, CallStart, Client, Code, Server, Status};
///
/// fn observe(call: &mut CallStart<'_>) -> Result<AtEnd, Status> {
///     let method = format!("{}/{}", call.service(), call.method());
///     Ok(AtEnd::run(move |end| println!("{method}: {:?} in {:?}", end.outcome(), end.took())))
/// }
///
/// let client = Client::builder().hook(|call| {
///     call.set_metadata("authorization", "secret");
///     observe(call)
/// });
/// let server = Server::builder().hook(|call| {
///     if call.values("authorization").any(|value| value == "secret") {
///         return observe(call);
///     }
///     Err(Status::new(Code::UNAUTHENTICATED, "who are you?"))
/// });
/// # let _ = (client, server);
/// ```
///
/// It must not block: on a client the caller waits for it, on a server a thread that runs handlers.
/// A panic in it costs its call and nothing else, as if it had refused with INTERNAL; one when the
/// call ends is logged.
pub struct CallStart<'a> {
    pub(crate) service: &'a str,
    pub(crate) method: &'a str,
    pub(crate) metadata: &'a mut Vec<(String, String)>,
    pub(crate) remaining: Option<Duration>,
}

impl CallStart<'_> {
    /// The full name of the service, as `demo.Echo`.
    pub fn service(&self) -> &str {
        self.service
    }

    /// The bare name of the method, as `Say`.
    pub fn method(&self) -> &str {
        self.method
    }

    /// All metadata, in its order; keys may repeat.
    pub fn metadata(&self) -> &[(String, String)] {
        self.metadata
    }

    /// The values of one key, which is compared without regard to case.
    pub fn values<'b>(&'b self, key: &'b str) -> impl Iterator<Item = &'b str> {
        let metadata = self.metadata.iter();
        metadata
            .filter(move |(other, _)| other.eq_ignore_ascii_case(key))
            .map(|(_, value)| value.as_str())
    }

    /// Sets a key to this value, in place of all that it had. On a client it is sent, in lower case;
    /// on a server the handler sees it, and nothing that the caller may have sent under that key.
    pub fn set_metadata(&mut self, key: &str, value: &str) {
        self.metadata
            .retain(|(other, _)| !other.eq_ignore_ascii_case(key));
        let pair = (key.to_ascii_lowercase(), value.to_owned());
        self.metadata.push(pair);
    }

    /// How long the caller waits: on a client its timeout, on a server what is left of it. `None`
    /// if it waits for ever.
    pub fn remaining(&self) -> Option<Duration> {
        self.remaining
    }
}

impl fmt::Debug for CallStart<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallStart")
            .field("service", &self.service)
            .field("method", &self.method)
            .field("remaining", &self.remaining)
            .finish_non_exhaustive()
    }
}

/// What a hook wants to be called when the call ends. Dropped without a call only if the process
/// ends.
#[must_use = "a call is let through by returning it"]
pub struct AtEnd(Option<Tell>);

type Tell = Box<dyn FnOnce(&CallEnd<'_>) + Send>;

impl AtEnd {
    /// Calls this function, once, when the call has ended: a unary one with its answer, a stream
    /// with its last frame.
    pub fn run(at_end: impl FnOnce(&CallEnd<'_>) + Send + 'static) -> Self {
        Self(Some(Box::new(at_end)))
    }

    /// Calls nothing.
    pub fn nothing() -> Self {
        Self(None)
    }
}

impl fmt::Debug for AtEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AtEnd").field(&self.0.is_some()).finish()
    }
}

/// How a call has ended, as a hook sees it.
#[derive(Debug)]
pub struct CallEnd<'a> {
    outcome: Outcome<'a>,
    took: Duration,
}

impl<'a> CallEnd<'a> {
    /// What came of the call.
    pub fn outcome(&self) -> Outcome<'a> {
        self.outcome
    }

    /// The time since the hook was called at its beginning.
    pub fn took(&self) -> Duration {
        self.took
    }
}

/// What came of a call.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Outcome<'a> {
    /// It was answered with a message, or its stream ended plainly.
    Answered,
    /// On a server: it was answered with this status.
    Refused(&'a Status),
    /// On a client: it failed. The error says whether by the peer's status, and if not, by what.
    Failed(&'a Error),
    /// Nobody has the answer: the caller dropped the call, the connection ended before the server
    /// had answered, or the server had ended the stream for messages that it could not take.
    Dropped,
}

type Function = dyn Fn(&mut CallStart<'_>) -> Result<AtEnd, Status> + Send + Sync;

/// The hook of a client or of a server.
#[derive(Clone)]
pub(crate) struct Hook(Arc<Function>);

impl Hook {
    pub(crate) fn new(
        hook: impl Fn(&mut CallStart<'_>) -> Result<AtEnd, Status> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(hook))
    }

    /// Lets the hook see a call that begins. Yields whom to tell of its end.
    pub(crate) fn begin(
        &self,
        mut start: CallStart<'_>,
        clock: Clock,
    ) -> Result<Option<Box<Hooked>>, Status> {
        let started = clock.now();
        let Some(begun) = catch(|| (self.0)(&mut start)) else {
            return Err(Status::new(Code::INTERNAL, "the hook panicked"));
        };
        let at_end = begun?.0;
        Ok(at_end.map(|at_end| {
            Box::new(Hooked {
                at_end: Some(at_end),
                started,
                clock,
            })
        }))
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}

/// A call whose end somebody wants to hear of. Dropping it tells that the call was dropped.
pub(crate) struct Hooked {
    at_end: Option<Tell>,
    started: Duration,
    clock: Clock,
}

impl Hooked {
    pub(crate) fn end(mut self, outcome: Outcome<'_>) {
        self.tell(outcome);
    }

    fn tell(&mut self, outcome: Outcome<'_>) {
        let Some(at_end) = self.at_end.take() else {
            return;
        };
        let took = self.clock.now().saturating_sub(self.started);
        let end = CallEnd { outcome, took };
        // It may run while its task unwinds, where a second panic would end the process.
        if catch(|| at_end(&end)).is_none() {
            error!("the hook panicked at the end of a call");
        }
    }
}

impl Drop for Hooked {
    fn drop(&mut self) {
        self.tell(Outcome::Dropped);
    }
}

impl fmt::Debug for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hooked")
    }
}
