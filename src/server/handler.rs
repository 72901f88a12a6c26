//! A method from the bytes of its request to its answer. There is one way for all kinds of methods.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use tokio::runtime::Handle;

use super::context::Context;
use super::dispatch::{First, start};
use super::guard::{self, Guard};
use super::refusal::invalid;
use super::requests::Kind;
use super::responder::Responder;
use super::streaming::{Requests, Responses};
use crate::buffers;
use crate::status::Status;
use crate::tuning::COPIED_REQUEST;
use crate::wire::{Decode, Encode, Part};

/// The code of a method.
pub(super) struct Handler {
    kind: Kind,
    run: Box<Run>,
}

/// Starts a handler with its request. It returns at once: it is called by the driver, and what holds up
/// the driver makes this process look dead.
type Run = dyn Fn(Call<'_>, Part) + Send + Sync;

/// A call whose handler is about to start.
pub(super) struct Call<'a> {
    pub(super) context: Context,
    pub(super) responder: Responder,
    /// `None` where nothing is set for the method that needs a clock.
    pub(super) guard: Option<Box<Guard>>,
    pub(super) first: First,
    /// Where handlers run.
    pub(super) handlers: &'a Handle,
}

impl Handler {
    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// The messages of a method that takes many are not in its request.
    pub(super) fn start(&self, call: Call<'_>, request: Part) {
        (self.run)(call, request);
    }
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

pub(super) fn unary<Q, R, Answer>(
    handler: impl Fn(Context, Q) -> Answer + Send + Sync + 'static,
) -> Handler
where
    Q: Decode,
    R: Encode + 'static,
    Answer: Future<Output = Result<R, Status>> + Send + 'static,
{
    let begin = move |context, request, _: &Responder| {
        let request = decode_request(request)?;
        Ok(handler(context, request))
    };
    Handler::new(Kind::Unary, begin, reply)
}

pub(super) fn server_stream<Q, R, Answer>(
    handler: impl Fn(Context, Q, Responses<R>) -> Answer + Send + Sync + 'static,
) -> Handler
where
    Q: Decode,
    R: Encode,
    Answer: Future<Output = Result<(), Status>> + Send + 'static,
{
    let begin = move |context, request, responder: &Responder| {
        let request = decode_request(request)?;
        let responses = Responses::new(responder.outlet());
        Ok(handler(context, request, responses))
    };
    Handler::new(Kind::ServerStream, begin, end)
}

pub(super) fn client_stream<Q, R, Answer>(
    handler: impl Fn(Context, Requests<Q>) -> Answer + Send + Sync + 'static,
) -> Handler
where
    Q: Decode,
    R: Encode + 'static,
    Answer: Future<Output = Result<R, Status>> + Send + 'static,
{
    let begin = move |context, _: Part, responder: &Responder| {
        Ok(handler(context, Requests::new(responder.messages())))
    };
    Handler::new(Kind::Upload, begin, reply)
}

pub(super) fn bidi_stream<Q, R, Answer>(
    handler: impl Fn(Context, Requests<Q>, Responses<R>) -> Answer + Send + Sync + 'static,
) -> Handler
where
    Q: Decode,
    R: Encode,
    Answer: Future<Output = Result<(), Status>> + Send + 'static,
{
    both_ways(handler, end)
}

/// A method whose kind its handler decides when it ends. A request with a message and one that messages
/// follow are the same to it.
pub(super) fn stream<Q, R, Answer>(
    handler: impl Fn(Context, Requests<Q>, Responses<R>) -> Answer + Send + Sync + 'static,
) -> Handler
where
    Q: Decode,
    R: Encode + 'static,
    Answer: Future<Output = Result<Option<R>, Status>> + Send + 'static,
{
    both_ways(handler, end_with)
}

fn both_ways<Q, R, Last, Answer>(
    handler: impl Fn(Context, Requests<Q>, Responses<R>) -> Answer + Send + Sync + 'static,
    answer: Respond<Last>,
) -> Handler
where
    Last: 'static,
    Answer: Future<Output = Result<Last, Status>> + Send + 'static,
{
    let begin = move |context, _: Part, responder: &Responder| {
        let requests = Requests::new(responder.messages());
        let responses = Responses::new(responder.outlet());
        Ok(handler(context, requests, responses))
    };
    Handler::new(Kind::Upload, begin, answer)
}

/// Sends the one response of a call.
type Respond<R> = fn(&mut Responder, R);

fn reply<R: Encode>(responder: &mut Responder, response: R) {
    responder.reply(&response);
}

fn end(responder: &mut Responder, (): ()) {
    responder.end();
}

fn end_with<R: Encode>(responder: &mut Responder, response: Option<R>) {
    match response {
        Some(response) => reply(responder, response),
        None => responder.end(),
    }
}

impl Handler {
    /// `begin` decodes the request and calls the handler, `answer` sends what that returns.
    fn new<R, Answer>(
        kind: Kind,
        begin: impl Fn(Context, Part, &Responder) -> Result<Answer, Status> + Send + Sync + 'static,
        answer: Respond<R>,
    ) -> Self
    where
        R: 'static,
        Answer: Future<Output = Result<R, Status>> + Send + 'static,
    {
        let begin = Arc::new(begin);
        let run = move |call: Call<'_>, request: Part| {
            let Call {
                mut context,
                mut responder,
                guard,
                first,
                handlers,
            } = call;
            let begin = Arc::clone(&begin);
            let handler = async move {
                if !guard::begin(&mut context, &mut responder) {
                    return;
                }
                if let Some(guard) = &guard {
                    guard.show(&mut context);
                }
                let handler = match begin(context, request, &responder) {
                    Ok(handler) => pin!(handler),
                    Err(status) => return responder.refuse(&status),
                };
                match guard::guarded(guard, &mut responder, handler).await {
                    Some(Ok(response)) => answer(&mut responder, response),
                    Some(Err(status)) => responder.refuse(&status),
                    None => {}
                }
            };
            start(handler, first, handlers);
        };
        let run = Box::new(run);
        Self { kind, run }
    }
}

/// The frame, which is not needed any more, may be large and the handler slow: it goes at once.
fn decode_request<Q: Decode>(request: Part) -> Result<Q, Status> {
    let decoded = if request.len() > COPIED_REQUEST {
        Q::decode_owned(request.into_bytes())
    } else {
        let decoded = Q::decode(&request);
        buffers::give_bytes(request.into_whole());
        decoded
    };
    decoded.map_err(|error| invalid(&*error))
}
