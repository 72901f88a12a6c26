//! Sockets that accept connections.

use std::io;
use std::path::PathBuf;

use tokio::net::{TcpListener, UnixListener};

use super::Socket;
use super::address::{Address, abstract_path};
use crate::error::ConnectError;

/// A bound socket that yields connections to a server.
///
/// Dropping it closes the socket; a file that it made is removed.
#[derive(Debug)]
pub struct Listener {
    kind: Kind,
    _file: Option<SocketFile>,
}

#[derive(Debug)]
enum Kind {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// Removes the socket's file. A file that stays makes the next bind fail.
#[derive(Debug)]
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // It may have been removed by somebody else; there is nobody to tell.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Listener {
    /// Binds `unix:///path`, `unix://@name` or `tcp://host:port`.
    ///
    /// An existing file is not replaced: it may belong to a server that runs.
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
        let address: Address = address.parse()?;
        let bound = match &address {
            Address::Path(path) => UnixListener::bind(path).map(|listener| Self {
                kind: Kind::Unix(listener),
                _file: Some(SocketFile(path.clone())),
            }),
            Address::Abstract(name) => UnixListener::bind(abstract_path(name)).map(Self::from),
            Address::Tcp(host) => TcpListener::bind(host).await.map(Self::from),
        };
        bound.map_err(|source| ConnectError::Io {
            address: address.to_string(),
            source,
        })
    }

    /// The TCP port that was bound; `None` for unix sockets.
    pub fn port(&self) -> Option<u16> {
        match &self.kind {
            Kind::Tcp(listener) => listener.local_addr().ok().map(|address| address.port()),
            Kind::Unix(_) => None,
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
        Ok(match &self.kind {
            Kind::Unix(listener) => Socket::unix(listener.accept().await?.0),
            Kind::Tcp(listener) => Socket::tcp(listener.accept().await?.0),
        })
    }
}

/// A listener that exists already; its file, if it has one, stays.
impl From<UnixListener> for Listener {
    fn from(listener: UnixListener) -> Self {
        Self {
            kind: Kind::Unix(listener),
            _file: None,
        }
    }
}

/// A listener that exists already.
impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self {
            kind: Kind::Tcp(listener),
            _file: None,
        }
    }
}
