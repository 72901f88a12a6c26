//! Methods and the tasks that run them.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::mem;
use std::sync::Arc;

use bytes::Bytes;
use protobuf::Message;
use tracing::error;

use super::context::Context;
use super::requests::Command;
use crate::buffers;
use crate::connection::{Messages, Outlet, Shared, half_close};
use crate::status::{Code, Status};
use crate::wire::{Encode, Raw, encode_response, encode_status};

/// A method that is served.
pub(super) enum Method {
    Unary(Box<dyn Unary>),
    /// One request, many responses.
    ServerStream(Box<dyn Start<Bytes>>),
    /// Many requests.
    Upload(Box<dyn Start<Messages<Status>>>),
}

/// Starts a streaming method with what it takes. As [`Unary::start`] it must return at once.
pub(super) trait Start<I>: Fn(Context, I, Responder) + Send + Sync {}

impl<I, F: Fn(Context, I, Responder) + Send + Sync> Start<I> for F {}

/// A method with one request and one response. It is given no way to send on a stream, and none of
/// these is given one before its REQUEST has come (RFC KA-40).
pub(super) trait Unary: Send + Sync {
    /// Runs the method in a task of its own and answers. It must return at once: it is called by
    /// the driver, and what holds up the driver makes this process look dead.
    fn start(&self, context: Context, payload: Bytes, responder: Responder);
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
}

/// The methods of a server, by service and name.
#[derive(Default)]
pub(super) struct Methods {
    services: HashMap<String, HashMap<String, Arc<Served>>>,
}

impl Methods {
    pub(super) fn add(&mut self, service: &str, name: &str, method: Method) {
        let methods = self.services.entry(service.to_owned()).or_default();
        let served = Served {
            service: service.to_owned(),
            name: name.to_owned(),
            method,
        };
        methods.insert(name.to_owned(), Arc::new(served));
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

impl fmt::Debug for Methods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let services = self.services.iter();
        f.debug_map()
            .entries(services.map(|(service, methods)| (service, methods.keys())))
            .finish()
    }
}

/// A handler of messages.
pub(super) struct Typed<F, Q> {
    handler: Arc<F>,
    request: PhantomData<fn(Q)>,
}

impl<F, Q> Typed<F, Q> {
    pub(super) fn new(handler: F) -> Self {
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
    fn start(&self, context: Context, payload: Bytes, responder: Responder) {
        let handler = Arc::clone(&self.handler);
        tokio::spawn(async move {
            let request = Q::parse_from_tokio_bytes(&payload);
            // The frame, which is not needed any more, may be large and the handler slow.
            let size = payload.len();
            buffers::give(payload, size);
            match request {
                Ok(request) => match handler(context, request).await {
                    Ok(reply) => responder.reply(&reply),
                    Err(status) => responder.refuse(&status),
                },
                Err(error) => responder.refuse(&Status::new(
                    Code::INVALID_ARGUMENT,
                    format!("the request's message cannot be decoded: {error}"),
                )),
            }
        });
    }
}

/// A handler of bytes.
pub(super) struct Untyped<F> {
    handler: Arc<F>,
}

impl<F> Untyped<F> {
    pub(super) fn new(handler: F) -> Self {
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
    fn start(&self, context: Context, payload: Bytes, responder: Responder) {
        let handler = Arc::clone(&self.handler);
        tokio::spawn(async move {
            match handler(context, payload).await {
                Ok(reply) => responder.reply(&Raw(&reply)),
                Err(status) => responder.refuse(&status),
            }
        });
    }
}

/// The duty to answer one request. Whatever ends the handler, a panic too, ends the call.
pub(super) struct Responder {
    shared: Arc<Shared<Command>>,
    stream_id: u32,
    duty: Duty,
}

/// What is owed on a stream.
#[derive(Clone, Copy)]
enum Duty {
    /// One response.
    Response,
    /// The last frame of a stream whose messages wait at so many unwritten bytes.
    End {
        limit: usize,
    },
    Done,
}

impl Responder {
    pub(super) fn new(shared: Arc<Shared<Command>>, stream_id: u32) -> Self {
        Self {
            shared,
            stream_id,
            duty: Duty::Response,
        }
    }

    pub(super) fn of_stream(shared: Arc<Shared<Command>>, stream_id: u32, limit: usize) -> Self {
        Self {
            shared,
            stream_id,
            duty: Duty::End { limit },
        }
    }

    /// Sends messages in front of the end.
    pub(super) fn outlet(&self) -> Outlet<Command> {
        let limit = match self.duty {
            Duty::End { limit } => limit,
            Duty::Response | Duty::Done => 0,
        };
        Outlet::new(Arc::clone(&self.shared), self.stream_id, limit)
    }

    /// Ends a stream of responses.
    pub(super) fn end(mut self, result: Result<(), Status>) {
        match result {
            Ok(()) => self.answer(half_close(self.stream_id)),
            Err(status) => self.refuse(&status),
        }
    }

    pub(super) fn reply(mut self, message: &dyn Encode) {
        match encode_response(self.stream_id, message) {
            Ok(frame) => self.answer(frame),
            Err(oversized) => self.refuse(&Status::new(
                Code::RESOURCE_EXHAUSTED,
                format!("the response cannot be sent: {oversized}"),
            )),
        }
    }

    pub(super) fn refuse(mut self, status: &Status) {
        let frame = if status.code() == Code::OK {
            // RFC KA-35: the caller would take it for the answer, an empty message.
            let message = format!("the handler failed with the status {status}");
            encode_status(self.stream_id, &Status::new(Code::INTERNAL, message))
        } else {
            encode_status(self.stream_id, status)
        };
        self.answer(frame);
    }

    fn answer(&mut self, frame: Vec<u8>) {
        let stream_id = self.stream_id;
        match mem::replace(&mut self.duty, Duty::Done) {
            Duty::Response => self.shared.answer(stream_id, frame, Command::Answered),
            Duty::End { .. } => {
                let ended = Command::StreamEnded { stream_id };
                self.shared.answer_stream(stream_id, frame, ended);
            }
            Duty::Done => {}
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if let Duty::Done = self.duty {
            return;
        }
        let message = if std::thread::panicking() {
            "the handler panicked"
        } else {
            "the handler was stopped before it answered"
        };
        error!(stream_id = self.stream_id, message);
        let status = Status::new(Code::INTERNAL, message);
        self.answer(encode_status(self.stream_id, &status));
    }
}
