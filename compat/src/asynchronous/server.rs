//! Serving.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, OnceLock};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use futures_core::Stream as _;
use tokio::sync::oneshot;
use ttrpc_keepalive::{
    self as native, Accept, Context, MethodOptions, OnDeadline, OnDisconnect, Raw, Requests,
    Responses,
};

use super::{MethodHandler, StreamHandler, StreamInner, TtrpcContext};
use crate::convert::{Called, answer, native_status, request};
use crate::error::{Error, Result, others};
use crate::keepalive;
use crate::transport::{Listener, Socket};

/// How long handlers may go on when their server stops.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);

/// The methods of a service, by their bare names.
#[derive(Default)]
pub struct Service {
    /// Those with one request and one response.
    pub methods: HashMap<String, Box<dyn MethodHandler + Send + Sync>>,
    /// Those with more.
    pub streams: HashMap<String, Arc<dyn StreamHandler + Send + Sync>>,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: Vec<_> = self.methods.keys().chain(self.streams.keys()).collect();
        names.sort();
        f.debug_tuple("Service").field(&names).finish()
    }
}

enum Method {
    Unary(Arc<dyn MethodHandler + Send + Sync>),
    Stream(Arc<dyn StreamHandler + Send + Sync>),
}

/// Serves services on a listener.
///
/// Dropping it closes the listener, and the connections when their handlers have ended, after 5 s at
/// most.
#[derive(Default)]
pub struct Server {
    listeners: Vec<Listener>,
    methods: HashMap<(String, String), Method>,
    /// Made when it is first needed, with the keepalive of that moment.
    native: OnceLock<native::Server>,
    /// Those that were made before methods were added.
    former: Vec<native::Server>,
    listening: Option<Listening>,
}

/// A task that listens, until this is dropped.
struct Listening {
    stop: oneshot::Sender<oneshot::Sender<Listener>>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

impl Server {
    /// Without listeners and services.
    pub fn new() -> Self {
        Self::default()
    }

    /// Listens on an address with its scheme.
    ///
    /// # Errors
    ///
    /// `Others`, with the words of the operating system.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn bind(self, sockaddr: &str) -> Result<Self> {
        let listener = Listener::bind(sockaddr).map_err(others("Listener::bind error "))?;
        Ok(self.add_listener(listener))
    }

    /// Listens on this. The last one that was added is served.
    #[must_use]
    pub fn add_listener(mut self, listener: Listener) -> Self {
        self.listeners.push(listener);
        self
    }

    /// Listens on a unix socket that is given away by its number.
    ///
    /// # Safety
    ///
    /// `fd` is an open descriptor of one that listens, and nobody else uses it.
    ///
    /// # Errors
    ///
    /// If the operating system refuses.
    #[allow(unsafe_code, reason = "the signature of the crate ttrpc")]
    pub unsafe fn add_unix_listener(self, fd: RawFd) -> Result<Self> {
        let listener = Listener::of_unix(fd).map_err(others("from_raw_unix_listener_fd error"))?;
        Ok(self.add_listener(listener))
    }

    /// Listens on a TCP socket that is given away by its number.
    ///
    /// # Safety
    ///
    /// `fd` is an open descriptor of one that listens, and nobody else uses it.
    ///
    /// # Errors
    ///
    /// If the operating system refuses.
    #[allow(unsafe_code, reason = "the signature of the crate ttrpc")]
    pub unsafe fn add_tcp_listener(self, fd: RawFd) -> Result<Self> {
        let listener = Listener::of_tcp(fd).map_err(others("from_raw_tcp_listener_fd error"))?;
        Ok(self.add_listener(listener))
    }

    /// Listens on a vsock socket that is given away by its number.
    ///
    /// # Safety
    ///
    /// `fd` is an open descriptor of one that listens, and nobody else uses it.
    ///
    /// # Errors
    ///
    /// If the operating system refuses.
    #[allow(unsafe_code, reason = "the signature of the crate ttrpc")]
    pub unsafe fn add_vsock_listener(self, fd: RawFd) -> Result<Self> {
        let listener =
            Listener::of_vsock(fd).map_err(others("from_raw_vsock_listener_fd error"))?;
        Ok(self.add_listener(listener))
    }

    /// The same for a release in which this is not said to be unsafe.
    #[doc(hidden)]
    pub fn add_descriptor(self, fd: RawFd, vsock: bool) -> Result<Self> {
        let listener = if vsock {
            Listener::of_vsock(fd)
        } else {
            Listener::of_unix(fd)
        };
        Ok(self.add_listener(listener.map_err(others("add_listener error "))?))
    }

    /// Adds services. Connections that are served already do not have them.
    #[must_use]
    pub fn register_service(mut self, new: HashMap<String, Service>) -> Self {
        for (service, Service { methods, streams }) in new {
            let unary = methods.into_iter();
            let unary = unary.map(|(name, method)| (name, Method::Unary(method.into())));
            let streams = streams.into_iter();
            let streams = streams.map(|(name, stream)| (name, Method::Stream(stream)));
            for (name, method) in unary.chain(streams) {
                self.methods.insert((service.clone(), name), method);
            }
        }
        self.former.extend(self.native.take());
        self
    }

    /// Serves the last listener, in a task.
    ///
    /// # Errors
    ///
    /// `Others` if there is none.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    #[expect(clippy::unused_async, reason = "the signature of the crate ttrpc")]
    pub async fn start(&mut self) -> Result<()> {
        let listener = self.listeners.pop().ok_or_else(|| {
            Error::Others("ttrpc-rust server started with no bound listener".to_owned())
        })?;
        let (stop, stopped) = oneshot::channel();
        let accepting = Accepting {
            listener: Some(listener),
            stopped,
        };
        let server = self.native().clone();
        tokio::spawn(async move { server.serve(accepting).await });
        self.listening = Some(Listening { stop });
        Ok(())
    }

    /// Serves one stream until it ends.
    ///
    /// # Errors
    ///
    /// Why it ended, unless the client has closed it or this server has.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the connection.
    pub fn start_connected(
        &self,
        conn: Socket,
    ) -> impl Future<Output = io::Result<()>> + Send + use<> {
        // The future has nothing of this server: listeners cannot be shared between threads.
        let server = self.native().clone();
        async move {
            let end = server.serve_connection(conn).await;
            let plain = matches!(end, native::ConnectionError::PeerClosed);
            if plain || end.is_local_close() || end.is_announced() {
                return Ok(());
            }
            Err(end.into())
        }
    }

    /// Serves one stream, in a task.
    ///
    /// # Errors
    ///
    /// None at present.
    pub fn accept(&self, conn: Socket) -> impl Future<Output = io::Result<()>> + Send + use<> {
        let server = self.native().clone();
        async move {
            tokio::spawn(async move { server.serve_connection(conn).await });
            Ok(())
        }
    }

    /// Stops listening, and closes connections when their handlers have ended, after 5 s at most.
    ///
    /// # Errors
    ///
    /// None.
    pub async fn shutdown(&mut self) -> Result<()> {
        self.stop_listen().await;
        self.disconnect().await;
        self.listeners.clear();
        Ok(())
    }

    /// Closes connections when their handlers have ended, after 5 s at most, and the listener, unless it
    /// was [stopped](Self::stop_listen).
    pub async fn disconnect(&mut self) {
        self.former.extend(self.native.take());
        for server in self.former.drain(..) {
            server.shutdown(SHUTDOWN_LIMIT).await;
        }
    }

    /// Stops accepting. The listener is kept open for [`start`](Self::start): clients that connect
    /// meanwhile wait. Connections go on.
    pub async fn stop_listen(&mut self) {
        let Some(Listening { stop }) = self.listening.take() else {
            return;
        };
        let (back, listener) = oneshot::channel();
        // It has ended by itself if its stream has.
        if stop.send(back).is_ok() {
            if let Ok(listener) = listener.await {
                self.listeners.clear();
                self.listeners.push(listener);
            }
        }
    }

    fn native(&self) -> &native::Server {
        self.native.get_or_init(|| build(&self.methods))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.former.extend(self.native.take());
        // Outside of a runtime its tasks have ended with theirs.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        for server in self.former.drain(..) {
            runtime.spawn(async move { server.shutdown(SHUTDOWN_LIMIT).await });
        }
    }
}

/// Accepts until it is stopped.
struct Accepting {
    listener: Option<Listener>,
    stopped: oneshot::Receiver<oneshot::Sender<Listener>>,
}

impl Accept for Accepting {
    type Stream = Socket;

    fn poll_accept(&mut self, cx: &mut TaskContext<'_>) -> Poll<Option<io::Result<Socket>>> {
        use std::future::Future as _;
        use std::pin::Pin;
        if let Poll::Ready(stopped) = Pin::new(&mut self.stopped).poll(cx) {
            if let (Ok(back), Some(listener)) = (stopped, self.listener.take()) {
                let _ = back.send(listener);
            }
            return Poll::Ready(None);
        }
        match &mut self.listener {
            Some(listener) => Pin::new(listener).poll_next(cx),
            None => Poll::Ready(None),
        }
    }
}

fn build(methods: &HashMap<(String, String), Method>) -> native::Server {
    let every = MethodOptions::new().on_disconnect(OnDisconnect::Cancel);
    let mut server = native::Server::builder()
        .keepalive(keepalive::settings())
        .every_method(every);
    for ((service, name), method) in methods {
        server = match method {
            Method::Unary(handler) => {
                let cancel = MethodOptions::new().on_deadline(OnDeadline::Cancel);
                let service = native::Service::new(service, Arc::clone(handler));
                server.service(service.unary(name, unary).method(name, cancel))
            }
            Method::Stream(handler) => {
                let service = native::Service::new(service, Arc::clone(handler));
                server.service(service.stream(name, stream))
            }
        };
    }
    server
        .build()
        .expect("the keepalive was found good when it was set, and nothing else is")
}

impl TtrpcContext {
    fn of(called: Called) -> Self {
        Self {
            mh: called.header,
            metadata: called.metadata,
            timeout_nano: called.timeout_nano,
        }
    }
}

async fn unary(
    handler: Arc<dyn MethodHandler + Send + Sync>,
    context: Context,
    Raw(payload): Raw,
) -> std::result::Result<Raw, native::Status> {
    let called = Called::of(&context);
    let request = request(&context, &called, payload);
    answer(handler.handler(TtrpcContext::of(called), request).await)
}

async fn stream(
    handler: Arc<dyn StreamHandler + Send + Sync>,
    context: Context,
    requests: Requests<Raw>,
    responses: Responses<Raw>,
) -> std::result::Result<Option<Raw>, native::Status> {
    let context = TtrpcContext::of(Called::of(&context));
    let stream = StreamInner::served(requests, responses);
    match handler.handler(context, stream).await {
        Ok(None) => Ok(None),
        Ok(Some(response)) => answer(Ok(response)).map(Some),
        Err(error) => Err(native_status(
            crate::proto::Response::from(error)
                .status
                .unwrap_or_default(),
        )),
    }
}
