//! What a method does about deadlines, and how often it may run.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::refusal::invalid;
use crate::error::ConfigError;
use crate::hook::Hook;
use crate::panics::catch;
use crate::status::{Code, Status};
use crate::wire::{Decode, Encode, Part};

/// What is set for a method, or for all methods of a server. What is not set is as if this did not
/// exist: a call of a method without options costs no timer and no memory for them.
///
/// See [`ServerBuilder::method`](crate::ServerBuilder::method), [`Service::method`](crate::Service::method)
/// and [`ServerBuilder::every_method`](crate::ServerBuilder::every_method).
#[derive(Clone, Debug, Default)]
#[must_use = "options do nothing until they are given to a server"]
pub struct MethodOptions {
    timeout: Option<Duration>,
    on_deadline: Option<OnDeadline>,
    soft: Option<(Duration, SoftReply)>,
    on_disconnect: Option<OnDisconnect>,
    refuse_waited: Option<Duration>,
    call_limit: Option<usize>,
}

/// What becomes of a handler whose connection has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDisconnect {
    /// It runs to its end, which may be within the life of the next connection.
    /// [`Context::cancelled`](crate::Context::cancelled) tells it.
    #[default]
    Run,
    /// It is dropped, wherever it awaits. For work that is of use only to whom waits for it: a watch,
    /// or a lock held for the caller.
    Cancel,
}

/// What becomes of a handler whose caller has given up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDeadline {
    /// It runs to its end, since work that was begun is often better ended, and its answer is sent.
    ///
    /// By a late answer a caller of this crate learns that the peer is well again
    /// ([`Error::late_answer`](crate::Error::late_answer)), and some clients keep a call that timed
    /// out in memory until it comes. A Go client logs an error for each.
    #[default]
    AnswerLate,
    /// It runs to its end, and the answer of a unary call is dropped. For callers that log an error
    /// for each late answer and keep nothing until it comes, as Go does.
    DropAnswer,
    /// It is dropped at the deadline, wherever it awaits, and the call is answered
    /// DEADLINE_EXCEEDED.
    Cancel,
}

impl MethodOptions {
    /// Nothing is set.
    pub fn new() -> Self {
        Self::default()
    }

    /// How long a handler may run, at least 1 ns; none by default. Then it is dropped, wherever it
    /// awaits, and its call is answered DEADLINE_EXCEEDED unless it has been answered before. The
    /// call's [deadline](crate::Context::deadline) is never later.
    ///
    /// It begins when the handler is started; waiting for a thread counts. For callers without a
    /// deadline of their own, and against handlers that never come back. One that keeps its thread
    /// cannot be dropped before it gives way; its call is answered all the same, 5 ms later, if
    /// [another thread](Self::soft_deadline) attends to the connection.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// What becomes of a handler whose caller has given up. [`OnDeadline::AnswerLate`] by default.
    pub fn on_deadline(mut self, on_deadline: OnDeadline) -> Self {
        self.on_deadline = Some(on_deadline);
        self
    }

    /// What becomes of a handler whose connection has ended, for whatever reason.
    /// [`OnDisconnect::Run`] by default.
    pub fn on_disconnect(mut self, on_disconnect: OnDisconnect) -> Self {
        self.on_disconnect = Some(on_disconnect);
        self
    }

    /// Refuses a request that [may have waited](crate::Context::may_have_waited) for longer than this
    /// while this process did not run, with UNAVAILABLE: its caller may have given up, and done
    /// something else instead. None is refused by default.
    ///
    /// For methods that do harm if they are run late or twice. A sane `limit` is a part of what callers
    /// wait. It makes the server [observe pauses](crate::ServerBuilder::observe_pauses), which can
    /// tell from 0.3 s on.
    pub fn refuse_waited(mut self, limit: Duration) -> Self {
        self.refuse_waited = Some(limit);
        self
    }

    /// Answers a unary call with `reply` when so little is left of its time, while its handler runs
    /// on to its end. What the handler returns later is dropped, at debug level, and
    /// [counted](crate::ServerCounters::results_dropped).
    ///
    /// For callers that take a late answer for a lost connection, as a container runtime does that
    /// throws out a plugin which misses its 2 s. The reply travels, and the caller's clock began
    /// before ours: 100 to 200 ms are a sane `margin`. A call with less than twice the margin left
    /// is answered at half of its time, so that its handler always has the other half. One without
    /// a deadline, its caller's or a [`timeout`](Self::timeout), is not answered early, and neither
    /// is one that waits for a [handler](crate::ServerBuilder::handler_limit) to end.
    ///
    /// A handler that keeps its thread is answered for too, up to 5 ms later, by the connection's
    /// driver. That has to run for it: with [`DriverThread::Dedicated`](crate::DriverThread::Dedicated)
    /// it does whatever handlers do. On a [shared](crate::DriverThread::Shared) runtime it may not,
    /// even if other threads are free: the one that waits for timers and sockets may be the very one
    /// that the handler keeps, and nothing else is woken in its place. Handlers that are polled
    /// [inline](crate::Dispatch::Inline) keep the driver itself.
    ///
    /// [`Context::is_answered`](crate::Context::is_answered) tells the handler. It counts for the
    /// limits, and holds up a shutdown, until its own end. That of a
    /// [`timeout`](Self::timeout) or of [`OnDeadline::Cancel`] still stops it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use protobuf::well_known_types::wrappers::StringValue;
    /// # type CreateContainerRequest = StringValue;
    /// # type CreateContainerResponse = StringValue;
    /// # use ttrpc_keepalive::Status;
    /// use ttrpc_keepalive::{MethodOptions, Server, Service, SoftReply};
    ///
    /// # async fn adjust(_: CreateContainerRequest) -> Result<CreateContainerResponse, Status> {
    /// #     Ok(CreateContainerResponse::new())
    /// # }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // To a runtime an empty response in time means: nothing to adjust. The plugin stays.
    /// let nothing = SoftReply::message(&CreateContainerResponse::new());
    /// let in_time = MethodOptions::new().soft_deadline(Duration::from_millis(150), nothing);
    /// let plugin = Service::new("nri.pkg.api.v1alpha1.Plugin", ())
    ///     .unary("CreateContainer", |(), _, event: CreateContainerRequest| {
    ///         adjust(event) // may take longer than the runtime waits
    ///     })
    ///     .method("CreateContainer", in_time);
    /// let server = Server::builder().service(plugin).build()?;
    /// # let _ = server; Ok(()) }
    /// ```
    ///
    /// Inside of a handler, where the reply depends on how far it has come, no option is needed:
    /// one that waits at most until [`Context::deadline`](crate::Context::deadline) less a margin
    /// for a task that it has spawned returns what it has, and the task runs on.
    pub fn soft_deadline(mut self, margin: Duration, reply: SoftReply) -> Self {
        self.soft = Some((margin, reply));
        self
    }

    /// Calls of the method that run or wait at one time, on all connections of the server: at least
    /// 1, without a limit by default. Further ones are answered RESOURCE_EXHAUSTED at once. They do
    /// not wait, since behind them others would that could run.
    pub fn call_limit(mut self, calls: usize) -> Self {
        self.call_limit = Some(calls);
        self
    }

    /// What is set here goes before what is set in `other`.
    pub(super) fn or(self, other: &Self) -> Self {
        Self {
            timeout: self.timeout.or(other.timeout),
            on_deadline: self.on_deadline.or(other.on_deadline),
            soft: self.soft.or_else(|| other.soft.clone()),
            on_disconnect: self.on_disconnect.or(other.on_disconnect),
            refuse_waited: self.refuse_waited.or(other.refuse_waited),
            call_limit: self.call_limit.or(other.call_limit),
        }
    }

    /// Refuses options with which no call could be made.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if self.call_limit == Some(0) {
            let setting = "call_limit";
            return Err(ConfigError::ZeroLimit { setting });
        }
        if self.timeout == Some(Duration::ZERO) {
            let setting = "timeout";
            return Err(ConfigError::ZeroTimeout { setting });
        }
        Ok(())
    }

    pub(super) fn refuses_waited(&self) -> bool {
        self.refuse_waited.is_some()
    }

    pub(super) fn has_soft_deadline(&self) -> bool {
        self.soft.is_some()
    }

    /// For a method that cannot have one.
    pub(super) fn without_soft_deadline(mut self) -> Self {
        self.soft = None;
        self
    }
}

/// What is answered at a [soft deadline](MethodOptions::soft_deadline).
#[derive(Clone)]
pub struct SoftReply(ReplySource);

#[derive(Clone)]
enum ReplySource {
    Fixed(Result<Bytes, Status>),
    Made(Arc<Make>),
}

/// `None`: there is no reply for this request.
type Make = dyn Fn(Bytes) -> Option<Result<Bytes, Status>> + Send + Sync;

impl SoftReply {
    /// The same message for every call.
    pub fn message<R: Encode>(reply: &R) -> Self {
        Self(ReplySource::Fixed(Ok(encode(reply))))
    }

    /// A status for every call.
    pub fn status(status: Status) -> Self {
        Self(ReplySource::Fixed(Err(status)))
    }

    /// A message, or a status, made of the request, which is decoded once more when it comes to
    /// that. `make` must return at once: neither the handler nor, where that keeps its thread, the
    /// connection's driver runs meanwhile. A panic in it costs the call, which is answered INTERNAL.
    pub fn from_request<Q: Decode, R: Encode>(
        make: impl Fn(Q) -> Result<R, Status> + Send + Sync + 'static,
    ) -> Self {
        Self::for_some_requests(move |request| Some(make(request)))
    }

    /// The same, where there is a reply for some requests only. A call for which `make` yields `None` is
    /// not answered early. For a method that stands for several, as one that tells of all kinds of events.
    pub fn for_some_requests<Q: Decode, R: Encode>(
        make: impl Fn(Q) -> Option<Result<R, Status>> + Send + Sync + 'static,
    ) -> Self {
        Self(ReplySource::Made(Arc::new(move |request| {
            let request = match Q::decode_owned(request) {
                Ok(request) => request,
                Err(error) => return Some(Err(invalid(&*error))),
            };
            let reply = make(request)?;
            Some(reply.map(|reply| encode(&reply)))
        })))
    }

    /// What must be kept of a request. Nothing for a reply that does not need it: a frame is large.
    pub(super) fn keep(&self, request: &Part) -> Option<Bytes> {
        match self.0 {
            ReplySource::Fixed(_) => None,
            ReplySource::Made(_) => Some(request.to_bytes()),
        }
    }

    /// The reply, if there is one for this request. Behind no lock: it may be a user's code.
    pub(super) fn make(&self, request: Option<Bytes>) -> Option<Result<Bytes, Status>> {
        match &self.0 {
            ReplySource::Fixed(reply) => Some(reply.clone()),
            ReplySource::Made(make) => {
                catch(|| make(request.unwrap_or_default())).unwrap_or_else(|| {
                    let status = Status::new(Code::INTERNAL, "the soft reply panicked");
                    Some(Err(status))
                })
            }
        }
    }
}

fn encode(reply: &impl Encode) -> Bytes {
    let mut bytes = Vec::with_capacity(reply.encoded_len());
    reply.encode(&mut bytes);
    bytes.into()
}

impl fmt::Debug for SoftReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ReplySource::Fixed(Ok(message)) => write!(f, "SoftReply({} bytes)", message.len()),
            ReplySource::Fixed(Err(status)) => write!(f, "SoftReply({status})"),
            ReplySource::Made(_) => f.write_str("SoftReply(made of the request)"),
        }
    }
}

/// What holds for the calls of one method.
#[derive(Debug)]
pub(super) struct Policy {
    pub(super) hook: Option<Hook>,
    pub(super) timeout: Option<Duration>,
    pub(super) on_deadline: OnDeadline,
    pub(super) soft: Option<(Duration, SoftReply)>,
    pub(super) on_disconnect: OnDisconnect,
    pub(super) refuse_waited: Option<Duration>,
    pub(super) call_limit: Option<usize>,
}

impl Policy {
    /// `None` if nothing is set.
    pub(super) fn new(options: MethodOptions, hook: Option<Hook>) -> Option<Self> {
        let policy = Self {
            hook,
            timeout: options.timeout,
            on_deadline: options.on_deadline.unwrap_or_default(),
            soft: options.soft,
            on_disconnect: options.on_disconnect.unwrap_or_default(),
            refuse_waited: options.refuse_waited,
            call_limit: options.call_limit,
        };
        let is_set = policy.hook.is_some()
            || policy.timeout.is_some()
            || policy.on_deadline != OnDeadline::default()
            || policy.soft.is_some()
            || policy.on_disconnect != OnDisconnect::default()
            || policy.refuse_waited.is_some()
            || policy.call_limit.is_some();
        is_set.then_some(policy)
    }
}
