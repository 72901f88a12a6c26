//! Handlers, and what they are told.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use crossbeam::channel::{self, Receiver, Sender};
use protobuf::Message as _;
use ttrpc_keepalive::{self as native, Context, Raw};

use crate::convert::{Called, answer, request};
use crate::error::{Error, Result};
use crate::proto::{MessageHeader, Request, Response};

/// What a handler is told of its call, and what it answers by.
#[derive(Debug)]
pub struct TtrpcContext {
    /// -1: the connection is driven by another thread, and its descriptor is not a handler's to use.
    pub fd: RawFd,
    /// Disconnected when the connection has ended.
    pub cancel_rx: Receiver<()>,
    /// The header of the request; of it the stream id and the type.
    pub mh: MessageHeader,
    /// What takes the one response, encoded.
    pub res_tx: mpsc::Sender<(MessageHeader, Vec<u8>)>,
    /// Values by key.
    pub metadata: HashMap<String, Vec<String>>,
    /// What is left of the caller's time when the handler begins, in nanoseconds; 0 if it has none.
    pub timeout_nano: i64,
    /// Nothing: there are no hooks of connections here.
    #[cfg(feature = "v0_10")]
    pub conn_ctx: Arc<ConnectionContext>,
}

/// Stands for what hooks of a connection have found. There are none here.
#[cfg(feature = "v0_10")]
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ConnectionContext {}

impl TtrpcContext {
    /// Answers the call.
    ///
    /// # Errors
    ///
    /// If nobody waits for the answer any more.
    pub fn respond(&self, stream_id: u32, res: Response) -> Result<()> {
        response_to_channel(stream_id, res, self.res_tx.clone())
    }
}

/// A unary method. Generated code implements it.
pub trait MethodHandler {
    /// Handles a request, and answers it by the context.
    ///
    /// # Errors
    ///
    /// If it cannot be answered otherwise: the caller is told by UNKNOWN.
    fn handler(&self, ctx: TtrpcContext, req: Request) -> Result<()>;
}

/// Answers a call by what is in its context.
///
/// # Errors
///
/// If nobody waits for the answer any more.
pub fn response_to_channel(
    stream_id: u32,
    res: Response,
    tx: mpsc::Sender<(MessageHeader, Vec<u8>)>,
) -> Result<()> {
    let encoded = res.write_to_bytes();
    let encoded = encoded.map_err(crate::err_to_others!(e, ""))?;
    // What is larger is refused when it is sent.
    let length = u32::try_from(encoded.len()).unwrap_or(u32::MAX);
    let header = MessageHeader::new_response(stream_id, length);
    tx.send((header, encoded))
        .map_err(crate::err_to_others!(e, "Send response to channel error "))
}

/// The same, with what hooks have found.
///
/// # Errors
///
/// The same.
#[cfg(feature = "v0_10")]
pub fn send_response(
    stream_id: u32,
    res: Response,
    tx: mpsc::Sender<(MessageHeader, Vec<u8>)>,
    _ctx: &ConnectionContext,
) -> Result<()> {
    response_to_channel(stream_id, res, tx)
}

/// Says to the handlers of one connection, which may wait for that, when it has ended.
#[derive(Debug)]
pub(super) struct Connected {
    receiver: Receiver<()>,
    /// Until somebody waits for the end.
    sender: Mutex<Option<Sender<()>>>,
}

impl Default for Connected {
    fn default() -> Self {
        let (sender, receiver) = channel::bounded(0);
        let sender = Mutex::new(Some(sender));
        Self { receiver, sender }
    }
}

impl Connected {
    /// The receiver of a handler. The first one has a task wait for the connection's end, for all of them.
    fn receiver(context: &Context) -> Receiver<()> {
        let Some(connected) = context.connection_state::<Self>() else {
            return channel::never();
        };
        let sender = connected
            .sender
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(sender) = sender {
            let context = context.clone();
            tokio::spawn(async move {
                context.cancelled().await;
                drop(sender);
            });
        }
        connected.receiver.clone()
    }
}

/// Runs a handler, on this thread, which is its own.
pub(super) async fn run(
    handler: Arc<dyn MethodHandler + Send + Sync>,
    context: Context,
    Raw(payload): Raw,
) -> std::result::Result<Raw, native::Status> {
    let called = Called::of(&context);
    let request = request(&context, &called, payload);
    let (res_tx, responses) = mpsc::channel();
    let ctx = TtrpcContext {
        fd: -1,
        cancel_rx: Connected::receiver(&context),
        mh: called.header,
        res_tx,
        metadata: called.metadata,
        timeout_nano: called.timeout_nano,
        #[cfg(feature = "v0_10")]
        conn_ctx: Arc::default(),
    };
    drop(context);
    let response = handler.handler(ctx, request).and_then(|()| {
        // It may have given its context to another thread, which answers later.
        let (_, response) = responses
            .recv()
            .map_err(|_| Error::Others("the handler has ended without an answer".to_owned()))?;
        Response::parse_from_bytes(&response).map_err(crate::err_to_others!(e, ""))
    });
    answer(response)
}
