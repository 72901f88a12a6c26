//! A method from the bytes of its request to its answer. There is one way for all kinds of methods, and
//! for messages as for bytes: these are two codecs.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use protobuf::Message;
use tokio::runtime::Handle;

use super::context::Context;
use super::dispatch::{First, start};
use super::guard::{self, Guard};
use super::method::Kind;
use super::refusal::invalid;
use super::requests::Input;
use super::responder::Responder;
use super::streaming::{Requests, Responses};
use crate::buffers;
use crate::codec::{Decode, Encode};
use crate::connection::{Messages, Received};
use crate::status::Status;
use crate::wire::{Part, Raw};

/// The code of a method.
pub(super) enum Handler {
    Unary(Box<Run<Part>>),
    ServerStream(Box<Run<Part>>),
    Upload(Box<Run<Messages<Status>>>),
}

/// Starts a handler with its input. It returns at once: it is called by the driver, and what holds up
/// the driver makes this process look dead.
type Run<I> = dyn Fn(Call<'_>, I) + Send + Sync;

/// A call whose handler is about to start.
pub(super) struct Call<'a> {
    pub(super) context: Context,
    pub(super) responder: Responder,
    pub(super) first: First,
    /// Where handlers run.
    pub(super) handlers: &'a Handle,
}

impl Handler {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Unary(_) => Kind::Unary,
            Self::ServerStream(_) => Kind::ServerStream,
            Self::Upload(_) => Kind::Upload,
        }
    }

    /// The input must be one of a method of this kind.
    pub(super) fn start(&self, call: Call<'_>, input: Input) {
        match (self, input) {
            (Self::Unary(run) | Self::ServerStream(run), Input::One(request)) => run(call, request),
            (Self::Upload(run), Input::Many(messages)) => run(call, messages),
            // The responder answers as it is dropped.
            _ => {}
        }
    }
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind().fmt(f)
    }
}

pub(super) fn unary<Q, R, Answer>(
    handler: impl Fn(Context, Q) -> Answer + Send + Sync + 'static,
    (decode, reply): (Decode<Q>, Reply<R>),
) -> Handler
where
    Q: 'static,
    R: 'static,
    Answer: Future<Output = Result<R, Status>> + Send + 'static,
{
    let begin = move |context, request, _: &Responder| {
        let request = decode_request(decode, request)?;
        Ok(handler(context, request))
    };
    Handler::Unary(run(|request| request, begin, reply))
}

pub(super) fn server_stream<Q, R, Answer>(
    handler: impl Fn(Context, Q, Responses<R>) -> Answer + Send + Sync + 'static,
    (decode, encode): (Decode<Q>, Encode<R>),
) -> Handler
where
    Q: 'static,
    R: ?Sized + 'static,
    Answer: Future<Output = Result<(), Status>> + Send + 'static,
{
    let begin = move |context, request, responder: &Responder| {
        let request = decode_request(decode, request)?;
        let responses = Responses::new(responder.outlet(), encode);
        Ok(handler(context, request, responses))
    };
    Handler::ServerStream(run(|request| request, begin, end))
}

pub(super) fn client_stream<Q, R, Answer>(
    handler: impl Fn(Context, Requests<Q>) -> Answer + Send + Sync + 'static,
    (decode, reply): (Decode<Q>, Reply<R>),
) -> Handler
where
    Q: 'static,
    R: 'static,
    Answer: Future<Output = Result<R, Status>> + Send + 'static,
{
    let begin = move |context, messages, _: &Responder| {
        Ok(handler(context, Requests::new(messages, decode)))
    };
    Handler::Upload(run(|_| &[], begin, reply))
}

pub(super) fn bidi_stream<Q, R, Answer>(
    handler: impl Fn(Context, Requests<Q>, Responses<R>) -> Answer + Send + Sync + 'static,
    (decode, encode): (Decode<Q>, Encode<R>),
) -> Handler
where
    Q: 'static,
    R: ?Sized + 'static,
    Answer: Future<Output = Result<(), Status>> + Send + 'static,
{
    let begin = move |context, messages, responder: &Responder| {
        let requests = Requests::new(messages, decode);
        let responses = Responses::new(responder.outlet(), encode);
        Ok(handler(context, requests, responses))
    };
    Handler::Upload(run(|_| &[], begin, end))
}

/// Sends the one response of a call.
type Reply<R> = fn(&mut Responder, R);

pub(super) fn reply_message<R: Message>(responder: &mut Responder, response: R) {
    responder.reply(&response);
}

pub(super) fn reply_bytes(responder: &mut Responder, response: Bytes) {
    responder.reply(&Raw(&response));
}

fn end(responder: &mut Responder, (): ()) {
    responder.end();
}

/// What runs a method: `begin` decodes its input and calls its handler, `answer` sends what that
/// returns. `payload` is what a soft reply may be made of.
fn run<I, R, Answer>(
    payload: fn(&I) -> &[u8],
    begin: impl Fn(Context, I, &Responder) -> Result<Answer, Status> + Send + Sync + 'static,
    answer: Reply<R>,
) -> Box<Run<I>>
where
    I: Send + 'static,
    R: 'static,
    Answer: Future<Output = Result<R, Status>> + Send + 'static,
{
    let begin = Arc::new(begin);
    Box::new(move |call: Call<'_>, input: I| {
        let Call {
            mut context,
            mut responder,
            first,
            handlers,
        } = call;
        let begin = Arc::clone(&begin);
        let handler = async move {
            if !guard::begin(&mut context, &mut responder) {
                return;
            }
            let guard = Guard::of(&mut context, payload(&input));
            let handler = match begin(context, input, &responder) {
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
    })
}

/// A request up to this size is copied where its message keeps bytes: cheaper than sharing it.
const SMALL: usize = 16 << 10;

/// The frame, which is not needed any more, may be large and the handler slow: it goes at once.
fn decode_request<Q>(decode: Decode<Q>, request: Part) -> Result<Q, Status> {
    let decoded = if request.len() > SMALL {
        decode(Received::Own(request.into_bytes()))
    } else {
        let decoded = decode(Received::Shared(&request));
        buffers::give_bytes(request.into_whole());
        decoded
    };
    decoded.map_err(|error| invalid(&error))
}
