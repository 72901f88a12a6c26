//! A plugin as plugins are today, served by ttrpc-rust as it is, which knows no PING.
//!
//! Its handlers compute, or block: those that wait are given up by ttrpc-rust when their caller's time is
//! over. It has threads to read on meanwhile, but for *wedged*, which has one for all: nobody reads while
//! its handler blocks that. With `go` plugins are served by Go instead, where somebody always reads.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::process;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use protobuf::Message;
use protobuf::well_known_types::empty::Empty;
use protobuf::well_known_types::wrappers::{StringValue, UInt32Value};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};
use ttrpc::r#async::transport::Listener;
use ttrpc::r#async::{MethodHandler, Server, Service, TtrpcContext};

use crate::plugin::{end_with_the_runtime, takes};
use crate::record::{Deed, note};
use crate::{HANDLE_EVENT, PLUGIN_SERVICE, REGISTER, Result, WEDGED_AND_SILENT_FOR};

/// Plays a plugin until the runtime is gone.
pub(crate) fn play(name: &str, socket: &Path) -> Result<()> {
    end_with_the_runtime();
    let mut threads = match name {
        "wedged" => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    threads.enable_all().build()?.block_on(serve(name, socket))
}

async fn serve(name: &str, socket: &Path) -> Result<()> {
    let (dialled, connections) = mpsc::unbounded_channel();
    let mut server = Server::new()
        .add_listener(Listener::new(Dialled(connections)))
        .register_service(HashMap::from([(PLUGIN_SERVICE.to_owned(), service(name))]));
    server.start().await?;
    loop {
        let Ok(stream) = UnixStream::connect(socket).await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        note(Deed::Connected);
        let (held, dropped) = oneshot::channel();
        dialled.send(Stream {
            stream,
            _held: held,
        })?;
        // Nothing is ever sent: it ends with the stream.
        let _ = dropped.await;
        note(Deed::Disconnected("the server has dropped it".to_owned()));
    }
}

fn service(name: &str) -> Service {
    let (register, handle) = (Register(name.to_owned()), HandleEvent(name.to_owned()));
    let methods: [(&str, Box<dyn MethodHandler + Send + Sync>); 2] = [
        (REGISTER, Box::new(register)),
        (HANDLE_EVENT, Box::new(handle)),
    ];
    Service {
        methods: methods
            .map(|(name, method)| (name.to_owned(), method))
            .into(),
        streams: HashMap::new(),
    }
}

struct Register(String);

#[async_trait::async_trait]
impl MethodHandler for Register {
    async fn handler(&self, _: TtrpcContext, _: ttrpc::Request) -> ttrpc::Result<ttrpc::Response> {
        let mut registration = StringValue::new();
        registration.value = format!("{} {}", self.0, process::id());
        answer(&registration)
    }
}

struct HandleEvent(String);

#[async_trait::async_trait]
impl MethodHandler for HandleEvent {
    async fn handler(
        &self,
        _: TtrpcContext,
        request: ttrpc::Request,
    ) -> ttrpc::Result<ttrpc::Response> {
        let event = UInt32Value::parse_from_bytes(&request.payload)
            .map_err(|error| ttrpc::Error::Others(error.to_string()))?
            .value;
        note(Deed::Got(event));
        let work = || thread::sleep(takes(&self.0, event, WEDGED_AND_SILENT_FOR));
        match self.0.as_str() {
            "wedged" => work(),
            _ => tokio::task::block_in_place(work),
        }
        note(Deed::Ended(event));
        answer(&Empty::new())
    }
}

fn answer(message: &impl Message) -> ttrpc::Result<ttrpc::Response> {
    let mut response = ttrpc::Response::new();
    response.payload = message
        .write_to_bytes()
        .map_err(|error| ttrpc::Error::Others(error.to_string()))?;
    Ok(response)
}

/// What was dialled, as a server takes what comes to a listener.
struct Dialled(mpsc::UnboundedReceiver<Stream>);

impl futures_core::Stream for Dialled {
    type Item = io::Result<Stream>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|stream| stream.map(Ok))
    }
}

/// A connection that tells when the server drops it.
struct Stream {
    stream: UnixStream,
    _held: oneshot::Sender<()>,
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, bytes)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
