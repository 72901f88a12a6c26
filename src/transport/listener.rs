//! Sockets that accept connections.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::task::{Context, Poll};

use socket2::{Domain, SockAddr, SockRef, Type};
use tokio::net::{TcpListener, UnixListener};

use super::address::{Address, abstract_path, resolve};
use super::descriptor::{Family, wrong};
use super::socket_file::{SocketFile, remove_stale};
use super::{Accept, Socket};
use crate::error::ConnectError;

/// As many connections may wait to be accepted as the system allows.
const BACKLOG: i32 = i32::MAX;

/// A bound socket that yields connections to a server.
///
/// Dropping it closes the socket. One that was bound here is shut down, so that a child that was forked
/// accepts nothing more by a copy of the descriptor that it has without knowing it; who hands it on
/// [says so](Self::hand_on). A file that it made is removed, unless another file has got its name.
#[derive(Debug)]
pub struct Listener {
    /// What goes with the listener that has bound it.
    bound: Option<Bound>,
    kind: Kind,
}

/// What a listener has made.
#[derive(Debug)]
struct Bound {
    file: Option<SocketFile>,
}

#[derive(Debug)]
enum Kind {
    Unix(UnixListener),
    Tcp(TcpListener),
    #[cfg(feature = "vsock")]
    Vsock(tokio_vsock::VsockListener),
}

impl Listener {
    /// Binds `unix:///path` or the bare path, `unix://@name`, `tcp://host:port` or, with the feature
    /// `vsock`, `vsock://CID:PORT`, where the CID -1 is any.
    ///
    /// An existing file is not replaced: it may belong to a server that runs. For another choice
    /// see [`builder`](Self::builder).
    ///
    /// # Errors
    ///
    /// If the address cannot be read, or the operating system refuses it.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with I/O enabled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn bind(address: &str) -> Result<Self, ConnectError> {
        Self::builder().bind(address).await
    }

    /// Begins with the default settings.
    pub fn builder() -> ListenerBuilder {
        ListenerBuilder::default()
    }

    /// A listening socket that exists already: one of the standard library, or a descriptor that
    /// was passed on to this process. It is made non-blocking here, and is not inherited by
    /// children that are started later. Its file, if it has one, stays.
    ///
    /// # Errors
    ///
    /// If it is not a stream socket of unix, TCP or vsock, if it is a connected one, or if the
    /// operating system refuses. Without the feature `vsock` such a socket is refused with the
    /// feature's name.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with I/O enabled, or if such a runtime refuses a vsock socket.
    pub fn from_fd(descriptor: impl Into<OwnedFd>) -> io::Result<Self> {
        let descriptor = descriptor.into();
        let family = Family::adopt(&descriptor)?;
        if SockRef::from(&descriptor).peer_addr().is_ok() {
            return Err(wrong("it is connected, and does not listen"));
        }
        Ok(match family {
            Family::Unix => UnixListener::from_std(descriptor.into())?.into(),
            Family::Tcp => TcpListener::from_std(descriptor.into())?.into(),
            #[cfg(feature = "vsock")]
            Family::Vsock => tokio_vsock::VsockListener::from(descriptor).into(),
            #[cfg(not(feature = "vsock"))]
            Family::Vsock => return Err(super::descriptor::vsock_is_missing()),
        })
    }

    /// Another process goes on with the socket, by a copy of the [descriptor](AsFd) that it was given
    /// or has inherited: it stays open when this listener is dropped, and so does its file.
    ///
    /// ```
    /// # use std::os::fd::AsFd;
    /// # use ttrpc_keepalive::{Client, Listener, Server};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("s");
    /// # let address = path.to_str().ok_or("no text")?;
    /// let mut listener = Listener::bind(address).await?;
    /// let copy = listener.as_fd().try_clone_to_owned()?; // for a child, or over a socket
    /// listener.hand_on();
    /// drop(listener);
    ///
    /// let successor = Listener::from_fd(copy)?; // in the other process
    /// # let client = Client::builder().connect(address).await?;
    /// # let _ = (client, successor); Ok(()) }
    /// ```
    pub fn hand_on(&mut self) {
        if let Some(file) = self.bound.take().and_then(|bound| bound.file) {
            file.keep();
        }
    }

    /// The TCP or vsock port that was bound; `None` for unix sockets.
    pub fn port(&self) -> Option<u32> {
        match &self.kind {
            Kind::Unix(_) => None,
            Kind::Tcp(listener) => Some(listener.local_addr().ok()?.port().into()),
            #[cfg(feature = "vsock")]
            Kind::Vsock(listener) => Some(listener.local_addr().ok()?.port()),
        }
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    ///
    /// What the operating system reports; most such errors pass, so a server waits and goes on.
    ///
    /// # Cancel safety
    ///
    /// No connection is lost when the future is dropped.
    pub async fn accept(&self) -> io::Result<Socket> {
        std::future::poll_fn(|cx| self.poll_socket(cx)).await
    }

    fn poll_socket(&self, cx: &mut Context<'_>) -> Poll<io::Result<Socket>> {
        match &self.kind {
            Kind::Unix(listener) => listener
                .poll_accept(cx)
                .map_ok(|(stream, _)| Socket::unix(stream)),
            Kind::Tcp(listener) => listener
                .poll_accept(cx)
                .map_ok(|(stream, _)| Socket::tcp(stream)),
            #[cfg(feature = "vsock")]
            Kind::Vsock(listener) => listener
                .poll_accept(cx)
                .map_ok(|(stream, _)| Socket::vsock(stream)),
        }
    }
}

impl Accept for Listener {
    type Stream = Socket;

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Socket>>> {
        self.poll_socket(cx).map(Some)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The file first: as long as the socket is open it cannot be mistaken for another.
        if self.bound.take().is_some() {
            shut_down(&SockRef::from(&self.as_fd()));
        }
    }
}

/// Nobody can connect any more, and who has and was not accepted is told.
fn shut_down(socket: &SockRef<'_>) {
    // There is nobody to tell of an error.
    if socket.shutdown(Shutdown::Both).is_ok() {
        while let Ok((waiting, _)) = socket.accept() {
            let _ = waiting.shutdown(Shutdown::Both);
        }
    }
}

/// For options of the socket, and for [handing it on](Listener::hand_on).
impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.kind {
            Kind::Unix(listener) => listener.as_fd(),
            Kind::Tcp(listener) => listener.as_fd(),
            #[cfg(feature = "vsock")]
            Kind::Vsock(listener) => listener.as_fd(),
        }
    }
}

/// A listener that exists already; its file, if it has one, stays.
impl From<UnixListener> for Listener {
    fn from(listener: UnixListener) -> Self {
        Kind::Unix(listener).into()
    }
}

/// A listener that exists already.
impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Kind::Tcp(listener).into()
    }
}

/// A listener that exists already.
#[cfg(feature = "vsock")]
#[cfg_attr(docsrs, doc(cfg(feature = "vsock")))]
impl From<tokio_vsock::VsockListener> for Listener {
    fn from(listener: tokio_vsock::VsockListener) -> Self {
        Kind::Vsock(listener).into()
    }
}

impl From<Kind> for Listener {
    fn from(kind: Kind) -> Self {
        Self { bound: None, kind }
    }
}

/// Collects the settings of a [`Listener`]. They are for unix sockets with a path, and change
/// nothing for others.
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until it binds"]
pub struct ListenerBuilder {
    replace_stale: bool,
    mode: Option<u32>,
}

impl ListenerBuilder {
    /// Whether a socket file that a dead server has left is replaced. It is not by default, and
    /// binding then fails as long as the file is there.
    ///
    /// A file is stale if it is a socket that refuses a connection, and does so again 100 ms later.
    /// A server that runs is never displaced, nor is a file that is no socket: it fails as by
    /// default. A server that runs sees one connection that is closed at once.
    ///
    /// Of several processes that find the same stale file one gets its place, and the others fail.
    /// No lock is left behind: who decides gives the file a second name meanwhile, `.stale-` and its
    /// number, which others respect. One of a process that was killed then is removed by the next
    /// one, 3 s later. Who does not own the file, and is not privileged, may not be allowed to
    /// replace it.
    pub fn replace_stale(mut self, replace: bool) -> Self {
        self.replace_stale = replace;
        self
    }

    /// The permissions of the file, as 0o600: to connect takes permission to write. By default what
    /// the process's `umask` leaves. Nobody can connect before they are set.
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = Some(mode);
        self
    }

    /// Binds as [`Listener::bind`] does.
    ///
    /// # Errors
    ///
    /// As for [`Listener::bind`].
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with I/O enabled, and with time for
    /// [`replace_stale`](Self::replace_stale).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn bind(self, address: &str) -> Result<Listener, ConnectError> {
        let address: Address = address.parse()?;
        let bound = match &address {
            Address::Path(path) => self.bind_path(path).await,
            Address::Abstract(name) => UnixListener::bind(abstract_path(name)).map(Listener::from),
            Address::Tcp(host) => match resolve(host).await {
                Ok(addresses) => TcpListener::bind(&*addresses).await.map(Listener::from),
                Err(error) => Err(error),
            },
            #[cfg(feature = "vsock")]
            Address::Vsock { cid, port } => super::vsock::bind(*cid, *port).map(Listener::from),
        };
        let bound = bound.map(|mut listener| {
            listener.bound.get_or_insert(Bound { file: None });
            listener
        });
        bound.map_err(|source| ConnectError::Io {
            address: address.to_string(),
            source,
        })
    }

    async fn bind_path(&self, path: &Path) -> io::Result<Listener> {
        match self.bind_free(path) {
            Err(error) if self.replace_stale && error.kind() == ErrorKind::AddrInUse => {
                remove_stale(path).await?;
                self.bind_free(path)
            }
            bound => bound,
        }
    }

    /// Binds a path that no file has.
    fn bind_free(&self, path: &Path) -> io::Result<Listener> {
        let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.bind(&SockAddr::unix(path)?)?;
        let file = SocketFile::new(path)?;
        if let Some(mode) = self.mode {
            // Until the socket listens it refuses everybody.
            fs::set_permissions(path, Permissions::from_mode(mode))?;
        }
        socket.listen(BACKLOG)?;
        let mut listener = Listener::from_fd(socket)?;
        listener.bound = Some(Bound { file: Some(file) });
        Ok(listener)
    }
}
