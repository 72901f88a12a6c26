//! Serving, by threads.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;
use ttrpc_keepalive::{self as native, Accept};

use super::handler::{Connected, MethodHandler, run};
use super::pool;
use super::thread::{runtime, wait};
use crate::descriptor::copy;
use crate::error::{Error, Result};
use crate::keepalive;
use crate::transport::{unix_address, vsock_address};

/// How long handlers may go on when their server stops.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);

/// Serves methods on a listener.
///
/// Dropping it stops nothing.
pub struct Server {
    listener: Option<Bound>,
    methods: HashMap<String, Arc<dyn MethodHandler + Send + Sync>>,
    native: Option<native::Server>,
    /// Stops listening.
    stop: Option<oneshot::Sender<()>>,
    threads: Threads,
}

struct Bound {
    /// As the user knows it.
    number: RawFd,
    descriptor: OwnedFd,
}

/// What `ttrpc` asks of these numbers is asked here too, although threads come and go with handlers.
struct Threads {
    default: usize,
    min: usize,
    max: usize,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listener: None,
            methods: HashMap::new(),
            native: None,
            stop: None,
            threads: Threads {
                default: 3,
                min: 1,
                max: 5,
            },
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

impl Server {
    /// Without a listener and methods.
    pub fn new() -> Self {
        Self::default()
    }

    /// Listens on an address with its scheme.
    ///
    /// # Errors
    ///
    /// `Others` with what the operating system says, or if there is a listener already.
    pub fn bind(self, sockaddr: &str) -> Result<Self> {
        let descriptor = listen(sockaddr).map_err(|error| {
            let number = error.raw_os_error().map(nix::Error::from_i32);
            Error::Others(number.map_or_else(|| error.to_string(), |number| number.to_string()))
        })?;
        let number = descriptor.as_raw_fd();
        self.listen_on(Bound { number, descriptor })
    }

    /// Listens on a socket that listens. The descriptor stays open as long as the process.
    ///
    /// # Errors
    ///
    /// `Others` if there is a listener already, `Socket` if the operating system refuses.
    pub fn add_listener(self, fd: RawFd) -> Result<Self> {
        let descriptor = copy(fd).map_err(|e| Error::Socket(e.to_string()))?;
        self.listen_on(Bound {
            number: fd,
            descriptor,
        })
    }

    fn listen_on(mut self, bound: Bound) -> Result<Self> {
        if self.listener.is_some() {
            let message = "ttrpc-rust just support 1 sockaddr now";
            return Err(Error::Others(message.to_owned()));
        }
        self.listener = Some(bound);
        Ok(self)
    }

    /// Adds methods, by their paths `/package.Service/Method`. They are served from the next start on.
    #[must_use]
    pub fn register_service(
        mut self,
        methods: HashMap<String, Box<dyn MethodHandler + Send + Sync>>,
    ) -> Self {
        let methods = methods.into_iter();
        self.methods
            .extend(methods.map(|(path, method)| (path, method.into())));
        self
    }

    /// Threads per connection to begin with. Checked by [`start`](Self::start), and not needed otherwise:
    /// a handler has a thread while it runs.
    #[must_use]
    pub fn set_thread_count_default(mut self, count: usize) -> Self {
        self.threads.default = count;
        self
    }

    /// Threads per connection at least, as [`set_thread_count_default`](Self::set_thread_count_default).
    #[must_use]
    pub fn set_thread_count_min(mut self, count: usize) -> Self {
        self.threads.min = count;
        self
    }

    /// Threads per connection at most, as [`set_thread_count_default`](Self::set_thread_count_default).
    #[must_use]
    pub fn set_thread_count_max(mut self, count: usize) -> Self {
        self.threads.max = count;
        self
    }

    /// How long to wait when accepting fails. Not needed: it is tried again after 5 ms at first, and 1 s
    /// at most.
    #[must_use]
    pub fn set_accept_retry_interval(self, _interval: Duration) -> Self {
        self
    }

    /// Serves the listener, on threads of its own.
    ///
    /// # Errors
    ///
    /// `Others` if there is no listener, or the numbers of threads contradict each other.
    pub fn start(&mut self) -> Result<()> {
        let Threads { default, min, max } = self.threads;
        let wrong = if default >= max {
            "thread_count_default should smaller than thread_count_max"
        } else if default <= min {
            "thread_count_default should bigger than thread_count_min"
        } else {
            return self.start_listen();
        };
        Err(Error::Others(wrong.to_owned()))
    }

    /// The same, whatever the numbers of threads are.
    ///
    /// # Errors
    ///
    /// `Others` if there is no listener, or the operating system refuses.
    pub fn start_listen(&mut self) -> Result<()> {
        let refused = |error: io::Error| Error::Others(error.to_string());
        let Some(bound) = &self.listener else {
            return Err(Error::Others("ttrpc-rust not bind".to_owned()));
        };
        let descriptor = bound.descriptor.try_clone().map_err(refused)?;
        let runtime = runtime().map_err(refused)?;
        let listener = {
            let _entered = runtime.enter();
            native::Listener::from_fd(descriptor).map_err(refused)?
        };
        let (stop, stopped) = oneshot::channel();
        let server = match self.native.take() {
            Some(server) => server,
            None => self.build(),
        };
        let serving = server.clone();
        let accepting = Accepting {
            listener,
            stopped: Some(stopped),
        };
        runtime.spawn(async move {
            serving
                .serve_with(accepting, |_| Connected::default())
                .await
        });
        self.native = Some(server);
        self.stop = Some(stop);
        Ok(())
    }

    fn build(&self) -> native::Server {
        let mut server = native::Server::builder()
            .keepalive(keepalive::settings())
            .dispatch(native::Dispatch::By(pool::run));
        for (path, handler) in &self.methods {
            let names = path
                .strip_prefix('/')
                .and_then(|path| path.rsplit_once('/'));
            // What is not a path cannot be called.
            let Some((service, method)) = names else {
                continue;
            };
            let service = native::Service::new(service, Arc::clone(handler));
            server = server.service(service.unary(method, run));
        }
        server
            .build()
            .expect("the keepalive was found good when it was set, and nothing else is")
    }

    /// Stops listening, and closes the listener. Connections go on.
    #[must_use]
    pub fn stop_listen(mut self) -> Self {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        self.listener = None;
        self
    }

    /// Closes connections when their handlers have ended, after 5 s at most.
    pub fn disconnect(mut self) {
        let server = self.native.take();
        if let (Some(server), Ok(runtime)) = (server, runtime()) {
            let down = runtime.spawn(async move { server.shutdown(SHUTDOWN_LIMIT).await });
            let _ = wait(down);
        }
    }

    /// Both.
    pub fn shutdown(self) {
        self.stop_listen().disconnect();
    }
}

#[allow(unsafe_code, reason = "the interface of the standard library")]
impl FromRawFd for Server {
    unsafe fn from_raw_fd(fd: RawFd) -> Self {
        let server = Self::default().add_listener(fd);
        server.expect("the descriptor is a socket that listens")
    }
}

impl AsRawFd for Server {
    fn as_raw_fd(&self) -> RawFd {
        self.listener.as_ref().map_or(-1, |bound| bound.number)
    }
}

/// Accepts until it is stopped, which closes the listener.
struct Accepting {
    listener: native::Listener,
    /// `None` when nobody can stop it any more.
    stopped: Option<oneshot::Receiver<()>>,
}

impl Accept for Accepting {
    type Stream = native::Socket;

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<native::Socket>>> {
        use std::future::Future as _;
        use std::pin::Pin;
        if let Some(stopped) = &mut self.stopped {
            match Pin::new(stopped).poll(cx) {
                Poll::Ready(Ok(())) => return Poll::Ready(None),
                // A server that is dropped stops nothing.
                Poll::Ready(Err(_)) => self.stopped = None,
                Poll::Pending => {}
            }
        }
        self.listener.poll_accept(cx)
    }
}

fn listen(address: &str) -> io::Result<OwnedFd> {
    if let Some(address) = address.strip_prefix("unix://") {
        return UnixListener::bind_addr(&unix_address(address)?).map(Into::into);
    }
    if let Some(address) = address.strip_prefix("tcp://") {
        let address: std::net::SocketAddr = address.parse().map_err(io::Error::other)?;
        return TcpListener::bind(address).map(Into::into);
    }
    if let Some(address) = address.strip_prefix("vsock://") {
        let address = vsock_address(address)?;
        let runtime = runtime()?;
        let _entered = runtime.enter();
        return tokio_vsock::VsockListener::bind(address).map(Into::into);
    }
    Err(io::Error::other(format!(
        "Scheme {address} is not supported"
    )))
}
