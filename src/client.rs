//! Calling a server.

use std::collections::HashMap;
use std::fmt;
use std::future::{Future, ready};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tracing::debug;

use crate::call::Call;
use crate::close::Close;
use crate::config::{ClientSettings, DriverThread, check_limits, check_timeouts};
use crate::connection::{Calls, ClientSide, Connection, Handle, PeerLimits};
use crate::error::{ConfigError, ConnectError, ConnectionError, Error};
use crate::hook::{AtEnd, CallStart, Hook};
use crate::keepalive::{Keepalive, Peer};
use crate::liveness::{Liveness, Snapshot};
use crate::status::Status;
use crate::streaming::{Receiver, Reply, Sender, StreamCall};
use crate::transport::{Address, IntoTransport, PeerCredentials, PeerProcess, Socket};
use crate::wire::{Decode, Encode};

/// The client's end of one connection.
///
/// A clone is another handle of the same connection, which closes when the last handle and the
/// last call on it are gone. **What was queued and not written by then is lost**: messages of a stream
/// whose halves were dropped, and the ends of such streams. [`close`](Self::close) sends it first. A
/// connection that has ended is not made anew by itself: the
/// application decides when, and registers again.
#[derive(Clone)]
pub struct Client {
    handle: Handle,
}

impl Client {
    /// Begins with the default settings.
    pub fn builder() -> ClientBuilder {
        ClientBuilder {
            settings: ClientSettings::default(),
        }
    }

    /// Prepares a unary call. `service` is the full name, as `demo.Echo`, `method` the bare one, as
    /// `Say`.
    ///
    /// Its messages are those of rust-protobuf, bytes as [`Raw`](crate::Raw), or whatever else
    /// implements [`Encode`] and [`Decode`].
    ///
    /// Give it a [timeout](Call::timeout), or the [builder](ClientBuilder::call_timeout) one for all
    /// calls. **With no timeout and no [`Keepalive::every`] a call to a peer that is frozen never
    /// returns**: nothing then looks whether anybody is there.
    ///
    /// # Errors
    ///
    /// [`Error`] has one variant for each party at fault. A call that is late tells by
    /// [`Error::verdict`] whether the peer is slow or dead; it never ends the connection.
    pub fn call<Q: Encode, R: Decode>(&self, service: &str, method: &str, request: &Q) -> Call<R> {
        Call::new(&self.handle, (service, method), request)
    }

    /// Prepares a call with one request and many responses. Awaiting it yields the [`Receiver`] of
    /// these as soon as the request is queued.
    ///
    /// # Errors
    ///
    /// As for [`Client::call`]. What happens after the request is queued is told by the receiver.
    pub fn server_stream<Q: Encode, R: Decode>(
        &self,
        service: &str,
        method: &str,
        request: &Q,
    ) -> StreamCall<Receiver<R>> {
        StreamCall::server_stream(&self.handle, (service, method), request)
    }

    /// Prepares a call with many requests and one response. Awaiting it yields the [`Sender`] of
    /// the requests and the [`Reply`], which is the response when it is awaited.
    ///
    /// # Errors
    ///
    /// As for [`Client::server_stream`].
    pub fn client_stream<Q: Encode, R: Decode>(
        &self,
        service: &str,
        method: &str,
    ) -> StreamCall<(Sender<Q>, Reply<R>)> {
        StreamCall::client_stream(&self.handle, (service, method))
    }

    /// Prepares a call with many requests and many responses. Awaiting it yields the [`Sender`] of
    /// the former and the [`Receiver`] of the latter. Which follows which is the method's affair.
    ///
    /// # Errors
    ///
    /// As for [`Client::server_stream`].
    pub fn bidi_stream<Q: Encode, R: Decode>(
        &self,
        service: &str,
        method: &str,
    ) -> StreamCall<(Sender<Q>, Receiver<R>)> {
        StreamCall::bidi_stream(&self.handle, (service, method))
    }

    /// What to make of the peer now.
    pub fn peer(&self) -> Peer {
        self.snapshot().peer()
    }

    /// What is known about the peer now. Does not touch the connection.
    pub fn snapshot(&self) -> Snapshot {
        self.handle.shared().snapshot()
    }

    /// The server's process and user, on a unix socket. They were asked for once, when the
    /// connection was made.
    pub fn peer_credentials(&self) -> Option<PeerCredentials> {
        self.handle.shared().remote().credentials
    }

    /// The server's process, on a unix socket: what it is [doing](PeerProcess::state) now, whatever is
    /// known of the connection. A late call has it in its [`evidence`](Error::evidence).
    pub fn peer_process(&self) -> Option<PeerProcess> {
        self.handle.shared().remote().process
    }

    /// The server's address, on a TCP socket: which one of those that a name stands for.
    pub fn remote_address(&self) -> Option<SocketAddr> {
        self.handle.shared().remote().address
    }

    /// Follows what is known about the peer.
    pub fn liveness(&self) -> Liveness {
        self.handle.shared().liveness()
    }

    /// Asks the peer with a PING and waits at most `budget` for its PONG. Yields the round-trip
    /// time.
    ///
    /// # Errors
    ///
    /// A deadline error with the verdict if no PONG came in time. Of a peer that is known not to answer a
    /// PING it says at the end of the budget whether its process *reads*: [`Verdict::Slow`](crate::Verdict::Slow) with
    /// [`only_reads`](crate::Evidence::only_reads), or [`Verdict::NotReading`](crate::Verdict::NotReading). At once, with
    /// [`Unknown::NoSupport`](crate::Unknown::NoSupport), where the stream does not tell that either, or
    /// [`Keepalive::off`] forbids to send a PING. The connection's end, if it has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves at most the PING, which is answered or not.
    pub async fn probe(&self, budget: Duration) -> Result<Duration, Error> {
        self.handle.probe(budget).await
    }

    /// The settings in use.
    pub fn settings(&self) -> &ClientSettings {
        self.handle.settings()
    }

    /// Says that the peer is about to close the connection, which then ends with
    /// [`ConnectionError::Announced`] instead of [`ConnectionError::PeerClosed`].
    ///
    /// ttrpc has no frame for *I am going*, so only the application knows: a plugin, for example,
    /// whose runtime has called its `Shutdown` method. A server of this crate that shuts down says
    /// so by itself to a client that still calls it, see [`Status::shutting_down`](crate::Status::shutting_down);
    /// to one that does not it just closes.
    ///
    /// It changes nothing else: calls are made as before, and a peer that falls silent instead of
    /// closing is judged as before.
    pub fn expect_close(&self) {
        self.handle.shared().expect_close();
    }

    /// Closes the connection in order, whoever else holds it: sends what is queued, then ends it.
    ///
    /// Nothing is let in any more: calls and messages that come later, and those that wait for room,
    /// fail with [`ConnectionError::LocalClose`]. Answers are not waited for: who wants one awaits
    /// it before, and calls that are open when all is sent fail likewise.
    ///
    /// A peer that answers PING is given the time to read what was sent, up to a second: a server may
    /// leave requests alone right behind which their connection ends. With [`Keepalive::off`] it is not
    /// asked, and not given that time. Beyond that, that something
    /// was sent does not say that the peer has done something with it; only an answer does.
    ///
    /// ```
    /// # use protobuf::well_known_types::wrappers::StringValue;
    /// # use ttrpc_keepalive::{Client, Requests, Server, Service};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let log = Service::new("demo.Log", ())
    /// #     .client_stream("Put", |(), _, mut lines: Requests<StringValue>| async move {
    /// #         while let Some(line) = lines.next().await { line?; }
    /// #         Ok(StringValue::new())
    /// #     });
    /// # let server = Server::builder().service(log).build()?;
    /// # let (here, there) = tokio::io::duplex(4096);
    /// # tokio::spawn(async move { server.serve_connection(there).await });
    /// # let client = Client::builder().attach(here)?;
    /// # let line = StringValue::new();
    /// let call = client.client_stream::<StringValue, StringValue>("demo.Log", "Put");
    /// let (lines, _reply) = call.await?;
    /// lines.send(&line).await?;
    /// lines.finish();
    /// client.close().await?; // all is sent, or the error says how much is not
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`CloseError`](crate::CloseError) if something that was queued could not be sent within the
    /// [timeout](Close::timeout), 10 s by default, or the connection ended before. That nothing was
    /// queued is a success, also on a connection that has ended.
    ///
    /// # Panics
    ///
    /// When it is awaited outside of a tokio runtime with time enabled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future, once it has been polled, ends the connection now.
    pub fn close(&self) -> Close {
        Close::new(self.handle.clone())
    }

    /// Ends the connection now, whoever else holds it. Open calls fail with
    /// [`ConnectionError::LocalClose`], and what is queued is not sent.
    pub fn abort(&self) {
        self.handle.shared().abort();
    }

    /// Waits for the end of the connection and yields why it ended; at once if it has. The calls
    /// have failed with the same reason by then.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn closed(&self) -> ConnectionError {
        self.handle.shared().closed().await
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("state", &self.snapshot().state())
            .finish_non_exhaustive()
    }
}

/// Collects the settings of a [`Client`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it connects"]
pub struct ClientBuilder {
    settings: ClientSettings,
}

impl ClientBuilder {
    /// When to ask whether the server is alive. [`Keepalive::on_demand`] by default.
    pub fn keepalive(mut self, keepalive: Keepalive) -> Self {
        self.settings.keepalive = keepalive;
        self
    }

    /// How long [`connect`](Self::connect) may take, with all its attempts. 10 s by default.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect_timeout = timeout;
        self
    }

    /// How long a unary call may take that is not given a timeout of its own. None by default: such
    /// a call waits until it is answered or the connection ends, **for ever if the peer is frozen
    /// and [`keepalive`](Self::keepalive) does not watch it**.
    ///
    /// Streaming calls are not meant: theirs would be the time of the whole stream.
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.settings.call_timeout = Some(timeout);
        self
    }

    /// How long a call of this method may take, of whatever kind, that is not given a timeout of
    /// its own: for a method that needs more than [the others](Self::call_timeout), or `None` for
    /// one that is answered only when something happens.
    pub fn method_timeout(
        mut self,
        service: &str,
        method: &str,
        timeout: Option<Duration>,
    ) -> Self {
        let methods = &mut self.settings.method_timeouts;
        let methods = methods.entry(service.to_owned()).or_default();
        methods.insert(method.to_owned(), timeout);
        self
    }

    /// Tries again, so long after an attempt to connect that the operating system refused, until
    /// [`connect_timeout`](Self::connect_timeout) is over: for a server that is about to start, or
    /// a virtual machine that boots. At least 1 ms. By default the first refusal is the error: a
    /// server that is not there will not appear by itself.
    ///
    /// A socket that exists with a full queue of connections is tried again in any case.
    pub fn connect_retry(mut self, interval: Duration) -> Self {
        self.settings.connect_retry = Some(interval);
        self
    }

    /// How long the header of a frame may take from its first byte to its last, as
    /// [`ServerBuilder::header_timeout`](crate::ServerBuilder::header_timeout). Without a limit by
    /// default, and rarely wanted: a client knows whom it calls.
    pub fn header_timeout(mut self, timeout: Duration) -> Self {
        self.settings.header_timeout = Some(timeout);
        self
    }

    /// Which thread reads and writes. [`DriverThread::Shared`] by default.
    pub fn driver_thread(mut self, thread: DriverThread) -> Self {
        self.settings.driver_thread = thread;
        self
    }

    /// Bytes of requests that wait to be written: at least 1, 16 MiB by default. 64 are counted
    /// beside each, for its place in memory. Beyond it calls wait for room, within their timeouts.
    pub fn outbox_limit(mut self, bytes: usize) -> Self {
        self.settings.limits.outbox_bytes = bytes;
        self
    }

    /// Calls in flight on the connection: at least 1, 65,536 by default. Further ones wait for
    /// room, within their timeouts.
    pub fn call_limit(mut self, calls: usize) -> Self {
        self.settings.limits.calls = calls;
        self
    }

    /// Bytes of one stream's messages that were received and not taken yet: at least 1, 16 MiB by
    /// default. Beyond it that stream fails with [`Error::StreamOverflow`]; a message always fits
    /// into an empty queue. Each message counts as 64 bytes more than it has.
    pub fn stream_limit(mut self, bytes: usize) -> Self {
        self.settings.limits.stream_bytes = bytes;
        self
    }

    /// Bytes of all streams' messages on the connection that were received and not taken yet: at
    /// least 1, 64 MiB by default. Beyond it the stream whose message comes fails with
    /// [`Error::StreamOverflow`], however little of it waits; a message always fits if no other
    /// waits. Each message counts as 64 bytes more than it has.
    pub fn download_limit(mut self, bytes: usize) -> Self {
        self.settings.limits.download_bytes = bytes;
        self
    }

    /// Calls this function around every call, in the caller's task: when it is first polled, and
    /// when it has its answer. See [`CallStart`]. It may add metadata, and refuse the call: that
    /// then fails with [`Error::Refused`], and nothing is sent. None by default; the last one that
    /// is set counts.
    ///
    /// A stream ends for it when its responses do, or both halves are dropped.
    pub fn hook(
        mut self,
        hook: impl Fn(&mut CallStart<'_>) -> Result<AtEnd, Status> + Send + Sync + 'static,
    ) -> Self {
        self.settings.hook = Some(Hook::new(hook));
        self
    }

    /// Late calls that are followed until their answers come: at least 1, 1,024 by default. The
    /// oldest makes room.
    pub fn late_limit(mut self, calls: usize) -> Self {
        self.settings.limits.late_records = calls;
        self
    }

    /// Connects to `unix:///path` or the bare path, `unix://@name`, `tcp://host:port` or, with the
    /// feature `vsock`, `vsock://CID:PORT`.
    ///
    /// The connection is made when the operating system says so: the server may not have accepted
    /// it yet, nor ever do so. Whether it is there is told by the first answer.
    ///
    /// # Errors
    ///
    /// If a setting is out of its range, the address cannot be read, no connection is made in time,
    /// or the operating system refuses; its error is kept as the source.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with I/O and time enabled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn connect(self, address: &str) -> Result<Client, ConnectError> {
        self.connect_with(address, |socket| ready(Ok(socket))).await
    }

    /// Connects, and does what has to be done on the socket before ttrpc is spoken there. It is a part
    /// of each attempt: an error of it is one of connecting, waited for and
    /// [retried](Self::connect_retry) like others, and its time counts.
    ///
    /// It yields what carries the connection: the socket itself, or a stream around it such as TLS, in
    /// a [`ByteStream`](crate::ByteStream). It must not read beyond its own part.
    ///
    /// A virtual machine's port, for example, is reached over a unix socket of its monitor after a
    /// line has been sent and another has come:
    ///
    /// ```
    /// # use std::io;
    /// # use tokio::io::{AsyncReadExt, AsyncWriteExt};
    /// # use ttrpc_keepalive::{Client, Socket};
    /// async fn enter(mut socket: Socket) -> io::Result<Socket> {
    ///     socket.write_all(b"CONNECT 1024\n").await?;
    ///     let mut line = Vec::new();
    ///     while line.last() != Some(&b'\n') && line.len() < 64 {
    ///         line.push(socket.read_u8().await?); // no byte more than the line
    ///     }
    ///     match line.starts_with(b"OK ") {
    ///         true => Ok(socket),
    ///         false => Err(io::ErrorKind::ConnectionRefused.into()),
    ///     }
    /// }
    ///
    /// # async fn connect() -> Result<(), ttrpc_keepalive::ConnectError> {
    /// let client = Client::builder().connect_with("/run/vm/vsock.sock", enter).await?;
    /// # let _ = client; Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect).
    ///
    /// # Panics
    ///
    /// As for [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the step that is going on, with its socket.
    pub async fn connect_with<F, T>(
        self,
        address: &str,
        handshake: impl FnMut(Socket) -> F,
    ) -> Result<Client, ConnectError>
    where
        F: Future<Output = io::Result<T>>,
        T: IntoTransport,
    {
        self.check()?;
        let address: Address = address.parse()?;
        let (limit, retry) = (self.settings.connect_timeout, self.settings.connect_retry);
        let stream = address.connect(limit, retry, handshake).await?;
        Ok(self.attach(stream)?)
    }

    /// Makes the client of a stream that is connected already: an accepted socket, an in-memory
    /// pipe, one side of a multiplexer. See [`IntoTransport`] for what can be given, and
    /// [`ByteStream`](crate::ByteStream) for everything else.
    ///
    /// # Errors
    ///
    /// If a setting is out of its range; the error names it.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with time enabled, unless a thread of its own is
    /// [asked for](Self::driver_thread).
    pub fn attach(self, stream: impl IntoTransport) -> Result<Client, ConfigError> {
        self.check()?;
        let settings = self.settings;
        debug!(?settings, "a client has a connection");
        let limits = settings.limits;
        let side = (ClientSide, Calls::new(limits));
        let connection = Connection::new(
            stream,
            side,
            limits.download_bytes,
            &settings.keepalive,
            settings.driver_thread,
        )
        .limit_peer(PeerLimits {
            header: settings.header_timeout,
            ..PeerLimits::default()
        });
        let handle = Handle::new(connection.shared().clone(), settings);
        connection.spawn();
        Ok(Client { handle })
    }

    fn check(&self) -> Result<(), ConfigError> {
        let settings = &self.settings;
        settings.keepalive.validate()?;
        let methods = settings.method_timeouts.values();
        let shortest = methods.flat_map(HashMap::values).flatten().min().copied();
        check_timeouts(&[
            ("call_timeout", settings.call_timeout),
            ("method_timeout", shortest),
            ("header_timeout", settings.header_timeout),
        ])?;
        let limits = &settings.limits;
        check_limits(&[
            ("outbox_limit", limits.outbox_bytes),
            ("call_limit", limits.calls),
            ("stream_limit", limits.stream_bytes),
            ("download_limit", limits.download_bytes),
            ("late_limit", limits.late_records),
        ])
    }
}
