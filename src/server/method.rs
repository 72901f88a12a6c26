//! Methods and the tasks that run them.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use protobuf::Message;

use super::admission::{CallLimit, CallPermit};
use super::context::Context;
use super::dispatch::Handling;
use super::guard::{self, Guard};
use super::options::Policy;
use super::responder::Responder;
use super::{ServerState, streaming};
use crate::buffers;
use crate::codec::decode_message;
use crate::connection::{Messages, Received};
use crate::status::{Code, Status};
use crate::wire::{Part, Raw};

/// A method that is served.
pub(super) enum Method {
    Unary(Box<dyn Unary>),
    /// One request, many responses.
    ServerStream(Box<dyn Start<Bytes>>),
    /// Many requests.
    Upload(Box<dyn Start<Messages<Status>>>),
}

/// Starts a streaming method with what it takes, in a task of its own. It must return at once: it is
/// called by the driver, and what holds up the driver makes this process look dead.
pub(super) trait Start<I>: Fn(Context, I, Responder) + Send + Sync {}

impl<I, F: Fn(Context, I, Responder) + Send + Sync> Start<I> for F {}

/// A method with one request and one response. It is given no way to send on a stream, and none of
/// these is given one before its REQUEST has come (RFC KA-40).
pub(super) trait Unary: Send + Sync {
    /// What runs the method and answers.
    fn handle(&self, context: Context, payload: Part, responder: Responder) -> Handling;
}

impl Method {
    pub(super) fn is_unary(&self) -> bool {
        matches!(self, Self::Unary(_))
    }
}

impl fmt::Debug for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unary(_) => "Unary",
            Self::ServerStream(_) => "ServerStream",
            Self::Upload(_) => "Upload",
        })
    }
}

/// A method that is served, with its names. A call has them from here: those in its request are
/// slices of the frame, and would keep all of it in memory for as long as the handler runs.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) service: String,
    pub(super) name: String,
    pub(super) method: Method,
    /// `None` where nothing is set: most methods need none, and their calls are not to pay for it.
    pub(super) policy: Option<Policy>,
    pub(super) state: Arc<ServerState>,
    call_limit: Option<Arc<CallLimit>>,
}

impl Served {
    pub(super) fn new(
        (service, name): (String, String),
        method: Method,
        policy: Option<Policy>,
        state: Arc<ServerState>,
    ) -> Self {
        let call_limit = policy.as_ref().and_then(|policy| policy.call_limit);
        Self {
            service,
            name,
            method,
            policy,
            state,
            call_limit: call_limit.map(CallLimit::new),
        }
    }

    /// Lets one more call in.
    pub(super) fn admit(&self) -> Result<Option<CallPermit>, Status> {
        let Some(calls) = &self.call_limit else {
            return Ok(None);
        };
        let permit = calls.permit().ok_or_else(|| {
            let message = format!(
                "{} calls of method {:?} run or wait",
                calls.limit(),
                self.name
            );
            Status::new(Code::RESOURCE_EXHAUSTED, message)
        })?;
        Ok(Some(permit))
    }
}

/// The methods of a server, by service and name. Both are found by comparing, which for the few that
/// there are is cheaper than hashing what a peer has sent.
#[derive(Default)]
pub(super) struct Methods {
    services: BTreeMap<String, BTreeMap<String, Arc<Served>>>,
}

impl Methods {
    pub(super) fn add(&mut self, served: Served) {
        let methods = self.services.entry(served.service.clone()).or_default();
        methods.insert(served.name.clone(), Arc::new(served));
    }

    /// RFC KA-49.
    pub(super) fn find(&self, service: &str, method: &str) -> Result<&Arc<Served>, Status> {
        let unimplemented = |message| Status::new(Code::UNIMPLEMENTED, message);
        let Some(methods) = self.services.get(service) else {
            return Err(unimplemented(format!(
                "service {service:?} is not served here"
            )));
        };
        let Some(found) = methods.get(method) else {
            return Err(unimplemented(format!(
                "service {service:?} has no method {method:?}"
            )));
        };
        Ok(found)
    }
}

/// By their full names, each with what is set for it.
impl fmt::Debug for Methods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let served = self.services.values().flat_map(BTreeMap::values);
        let entries = served.map(|served| {
            let name = format!("{}/{}", served.service, served.name);
            (name, &served.policy)
        });
        f.debug_map().entries(entries).finish()
    }
}

/// A unary method of messages.
pub(super) fn unary<Q, R, Answer>(
    handler: impl Fn(Context, Q) -> Answer + Send + Sync + 'static,
) -> Method
where
    Q: Message,
    R: Message,
    Answer: Future<Output = Result<R, Status>> + Send + 'static,
{
    Method::Unary(Box::new(Typed::<_, Q>::new(handler)))
}

/// A unary method of bytes.
pub(super) fn unary_bytes<Answer>(
    handler: impl Fn(Context, Bytes) -> Answer + Send + Sync + 'static,
) -> Method
where
    Answer: Future<Output = Result<Bytes, Status>> + Send + 'static,
{
    Method::Unary(Box::new(Untyped::new(handler)))
}

/// A request up to this size is copied where its message keeps bytes: cheaper than sharing it.
const SMALL: usize = 16 << 10;

/// The frame, which is not needed any more, may be large and the handler slow: it goes at once.
fn decode_part<Q: Message>(part: Part) -> protobuf::Result<Q> {
    if part.len() > SMALL {
        return decode_message(Received::Own(part.into_bytes()));
    }
    let message = Q::parse_from_bytes(&part);
    buffers::give_bytes(part.into_whole());
    message
}

/// A handler of messages.
struct Typed<F, Q> {
    handler: Arc<F>,
    request: PhantomData<fn(Q)>,
}

impl<F, Q> Typed<F, Q> {
    fn new(handler: F) -> Self {
        Self {
            handler: Arc::new(handler),
            request: PhantomData,
        }
    }
}

impl<F, Q, R, Answer> Unary for Typed<F, Q>
where
    F: Fn(Context, Q) -> Answer + Send + Sync + 'static,
    Q: Message,
    R: Message,
    Answer: Future<Output = Result<R, Status>> + Send + 'static,
{
    fn handle(&self, context: Context, payload: Part, responder: Responder) -> Handling {
        let handler = Arc::clone(&self.handler);
        Box::pin(async move {
            let Some((mut context, mut responder)) = guard::begin(context, responder) else {
                return;
            };
            let guard = Guard::of(&mut context, &payload);
            let request = decode_part::<Q>(payload);
            match request {
                Ok(request) => {
                    let answer = pin!(handler(context, request));
                    match guard::guarded(guard, &mut responder, answer).await {
                        Some(Ok(reply)) => responder.reply(&reply),
                        Some(Err(status)) => responder.refuse(&status),
                        None => {}
                    }
                }
                Err(error) => responder.refuse(&streaming::invalid(&error)),
            }
        })
    }
}

/// A handler of bytes.
struct Untyped<F> {
    handler: Arc<F>,
}

impl<F> Untyped<F> {
    fn new(handler: F) -> Self {
        Self {
            handler: Arc::new(handler),
        }
    }
}

impl<F, Answer> Unary for Untyped<F>
where
    F: Fn(Context, Bytes) -> Answer + Send + Sync + 'static,
    Answer: Future<Output = Result<Bytes, Status>> + Send + 'static,
{
    fn handle(&self, context: Context, payload: Part, responder: Responder) -> Handling {
        let handler = Arc::clone(&self.handler);
        Box::pin(async move {
            let Some((mut context, mut responder)) = guard::begin(context, responder) else {
                return;
            };
            let guard = Guard::of(&mut context, &payload);
            let answer = pin!(handler(context, payload.into_bytes()));
            match guard::guarded(guard, &mut responder, answer).await {
                Some(Ok(reply)) => responder.reply(&Raw(&reply)),
                Some(Err(status)) => responder.refuse(&status),
                None => {}
            }
        })
    }
}
