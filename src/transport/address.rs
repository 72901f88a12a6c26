//! Addresses as ttrpc writes them.

use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use tokio::net::{TcpStream, UnixStream};

use super::Socket;
use crate::error::ConnectError;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// `unix:///path`
    Path(PathBuf),
    /// `unix://@name`: a name of Linux's abstract namespace, which leaves no file.
    Abstract(String),
    /// `tcp://host:port`
    Tcp(String),
}

impl Address {
    /// Connects within `limit`.
    ///
    /// A connection that the kernel queued counts as made: nobody may have accepted it yet.
    pub(crate) async fn connect(&self, limit: Duration) -> Result<Socket, ConnectError> {
        match tokio::time::timeout(limit, self.dial()).await {
            Ok(Ok(socket)) => Ok(socket),
            Ok(Err(source)) => Err(ConnectError::Io {
                address: self.to_string(),
                source,
            }),
            Err(_) => Err(ConnectError::TimedOut {
                address: self.to_string(),
                timeout: limit,
            }),
        }
    }

    async fn dial(&self) -> io::Result<Socket> {
        Ok(match self {
            Self::Path(path) => Socket::unix(UnixStream::connect(path).await?),
            Self::Abstract(name) => Socket::unix(UnixStream::connect(abstract_path(name)).await?),
            Self::Tcp(address) => Socket::tcp(TcpStream::connect(address).await?),
        })
    }
}

/// Tokio takes a path that begins with a zero byte for an abstract name.
pub(super) fn abstract_path(name: &str) -> PathBuf {
    PathBuf::from(format!("\0{name}"))
}

impl FromStr for Address {
    type Err = ConnectError;

    fn from_str(address: &str) -> Result<Self, ConnectError> {
        let refused = |problem| {
            Err(ConnectError::Address {
                address: address.to_owned(),
                problem,
            })
        };
        if let Some(path) = address.strip_prefix("unix://") {
            return match path.strip_prefix('@') {
                Some("") => refused("the abstract name is empty"),
                Some(name) => Ok(Self::Abstract(name.to_owned())),
                None if path.is_empty() => refused("the path is empty"),
                None if path.contains('\0') => refused("the path contains a zero byte"),
                None => Ok(Self::Path(path.into())),
            };
        }
        if let Some(host) = address.strip_prefix("tcp://") {
            return match host.rsplit_once(':') {
                Some((name, port)) if !name.is_empty() && port.parse::<u16>().is_ok() => {
                    Ok(Self::Tcp(host.to_owned()))
                }
                _ => refused("expected host:port after tcp://"),
            };
        }
        if address.starts_with("vsock://") {
            return refused("vsock is not supported by this version");
        }
        refused("expected unix:///path, unix://@name or tcp://host:port")
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Path(path) => write!(f, "unix://{}", path.display()),
            Self::Abstract(name) => write!(f, "unix://@{name}"),
            Self::Tcp(host) => write!(f, "tcp://{host}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_ttrpc_writes_them() {
        for (text, address) in [
            ("unix:///run/a.sock", Address::Path("/run/a.sock".into())),
            ("unix://relative", Address::Path("relative".into())),
            ("unix://@name", Address::Abstract("name".into())),
            ("tcp://localhost:80", Address::Tcp("localhost:80".into())),
            ("tcp://[::1]:80", Address::Tcp("[::1]:80".into())),
        ] {
            let parsed: Address = text.parse().unwrap();
            assert_eq!(parsed, address);
            assert_eq!(parsed.to_string(), text);
        }
    }

    #[test]
    fn a_bad_address_is_refused_with_itself_and_the_reason() {
        for text in [
            "",
            "/run/a.sock",
            "unix://",
            "unix://@",
            "tcp://host",
            "tcp://:80",
            "tcp://h:99999",
            "vsock://2:1024",
            "http://x",
            "unix://a\0b",
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }
}
