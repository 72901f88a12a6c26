//! Methods and the tasks that run them.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use protobuf::Message;
use tracing::error;

use super::context::Context;
use super::requests::Command;
use crate::buffers;
use crate::connection::Shared;
use crate::status::{Code, Status};
use crate::wire::{Encode, Raw, encode_response, encode_status};

/// A method that is served.
pub(super) trait Method: Send + Sync {
    /// Runs the method in a task of its own and answers. It must return at once: it is called by
    /// the driver, and what holds up the driver makes this process look dead.
    fn start(&self, context: Context, payload: Bytes, responder: Responder);
}

impl fmt::Debug for dyn Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Method")
    }
}

/// A method that is served, with its names. A call has them from here: those in its request are
/// slices of the frame, and would keep all of it in memory for as long as the handler runs.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) service: String,
    pub(super) name: String,
    pub(super) method: Box<dyn Method>,
}

/// The methods of a server, by service and name.
#[derive(Default)]
pub(super) struct Methods {
    services: HashMap<String, HashMap<String, Arc<Served>>>,
}

impl Methods {
    pub(super) fn add(&mut self, service: &str, name: &str, method: impl Method + 'static) {
        let methods = self.services.entry(service.to_owned()).or_default();
        let served = Served {
            service: service.to_owned(),
            name: name.to_owned(),
            method: Box::new(method),
        };
        methods.insert(name.to_owned(), Arc::new(served));
    }

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

impl<F, Q, R, Answer> Method for Typed<F, Q>
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

impl<F, Answer> Method for Untyped<F>
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
    answered: bool,
}

impl Responder {
    pub(super) fn new(shared: Arc<Shared<Command>>, stream_id: u32) -> Self {
        Self {
            shared,
            stream_id,
            answered: false,
        }
    }

    fn reply(self, message: &dyn Encode) {
        match encode_response(self.stream_id, message) {
            Ok(frame) => self.answer(frame),
            Err(oversized) => self.refuse(&Status::new(
                Code::RESOURCE_EXHAUSTED,
                format!("the response cannot be sent: {oversized}"),
            )),
        }
    }

    fn refuse(self, status: &Status) {
        let frame = if status.code() == Code::OK {
            // RFC KA-35: the caller would take it for the answer, an empty message.
            let message = format!("the handler failed with the status {status}");
            encode_status(self.stream_id, &Status::new(Code::INTERNAL, message))
        } else {
            encode_status(self.stream_id, status)
        };
        self.answer(frame);
    }

    fn answer(mut self, frame: Vec<u8>) {
        self.answered = true;
        self.shared.answer(self.stream_id, frame, Command::Answered);
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let message = if std::thread::panicking() {
            "the handler panicked"
        } else {
            "the handler was stopped before it answered"
        };
        error!(stream_id = self.stream_id, message);
        let status = Status::new(Code::INTERNAL, message);
        let frame = encode_status(self.stream_id, &status);
        self.shared.answer(self.stream_id, frame, Command::Answered);
    }
}
