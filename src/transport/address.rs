//! Addresses as ttrpc writes them.

use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::str::FromStr;
use std::task::Poll;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpStream, UnixStream, lookup_host};

use super::Socket;
use super::descriptor::is_its_own_peer;
use crate::clock::{Alarm, within};
use crate::error::ConnectError;
use crate::panics::catch;
use crate::tuning::{BACKLOG_RETRY, SHORTEST_RETRY};

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// `unix:///path`, or the path alone if it is absolute
    Path(PathBuf),
    /// `unix://@name`: a name of Linux's abstract namespace, which leaves no file.
    Abstract(String),
    /// `tcp://host:port`
    Tcp(String),
    /// `vsock://CID:PORT`
    #[cfg(feature = "vsock")]
    Vsock { cid: u32, port: u32 },
}

impl Socket {
    /// Connects to an address as [`ClientBuilder::connect`](crate::ClientBuilder::connect) does, for
    /// whoever drives the connection by itself.
    ///
    /// # Errors
    ///
    /// If the address is none, or if no connection was made within `timeout`.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with I/O and time enabled.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped there is no connection.
    pub async fn connect(address: &str, timeout: Duration) -> Result<Self, ConnectError> {
        let address = address.parse::<Address>()?;
        address
            .connect(timeout, None, async |socket| Ok(socket))
            .await
    }
}

impl Address {
    /// Makes attempts within `limit`, one each `interval` if there is one.
    ///
    /// A connection that the kernel queued counts as made: nobody may have accepted it yet.
    pub(crate) async fn connect<F, T>(
        &self,
        limit: Duration,
        interval: Option<Duration>,
        mut handshake: impl FnMut(Socket) -> F,
    ) -> Result<T, ConnectError>
    where
        F: Future<Output = io::Result<T>>,
    {
        let mut last = None;
        let trying = async {
            loop {
                match self.attempt(&mut handshake).await {
                    Ok(connected) => return Ok(connected),
                    Err(error) => {
                        let Some(pause) = pause(&error, interval) else {
                            return Err(error);
                        };
                        last = Some(error);
                        Alarm::after(pause).await;
                    }
                }
            }
        };
        match within(limit, trying).await {
            Some(Ok(connected)) => Ok(connected),
            Some(Err(source)) => Err(ConnectError::Io {
                address: self.to_string(),
                source,
            }),
            None => Err(ConnectError::TimedOut {
                address: self.to_string(),
                timeout: limit,
                source: last,
            }),
        }
    }

    async fn attempt<F, T>(&self, handshake: impl FnOnce(Socket) -> F) -> io::Result<T>
    where
        F: Future<Output = io::Result<T>>,
    {
        handshake(self.dial().await?).await
    }

    async fn dial(&self) -> io::Result<Socket> {
        Ok(match self {
            Self::Path(path) => Socket::unix(UnixStream::connect(path).await?),
            Self::Abstract(name) => Socket::unix(UnixStream::connect(abstract_path(name)).await?),
            Self::Tcp(address) => {
                let stream = TcpStream::connect(&*resolve(address).await?).await?;
                if is_its_own_peer(&stream) {
                    // Otherwise its port would be kept from the server that is waited for.
                    let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
                    return Err(ErrorKind::ConnectionRefused.into());
                }
                Socket::tcp(stream)
            }
            #[cfg(feature = "vsock")]
            Self::Vsock { cid, port } => Socket::vsock(super::vsock::connect(*cid, *port).await?),
        })
    }
}

/// The addresses of a `host:port`.
///
/// The runtime asks the system for them on a thread that it starts for such work, and panics where the
/// system lets it start none.
pub(super) async fn resolve(address: &str) -> io::Result<Vec<SocketAddr>> {
    let mut lookup = pin!(lookup_host(address));
    let found = poll_fn(|cx| match catch(|| lookup.as_mut().poll(cx)) {
        Some(poll) => poll.map_ok(Vec::from_iter),
        None => Poll::Ready(Err(io::Error::other(
            "no thread can be started to resolve it",
        ))),
    });
    found.await
}

/// How long to wait before the next attempt. `None` if there is none.
fn pause(error: &io::Error, interval: Option<Duration>) -> Option<Duration> {
    match error.kind() {
        // Where a blocking connect would wait for room: the server is there.
        ErrorKind::WouldBlock => Some(interval.unwrap_or(BACKLOG_RETRY).max(SHORTEST_RETRY)),
        // No such address can ever be reached.
        ErrorKind::InvalidInput | ErrorKind::Unsupported => None,
        // Any other may pass while a server or a machine starts, denied permission too: a file gets
        // its mode after its name.
        _ => interval.map(|interval| interval.max(SHORTEST_RETRY)),
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
        if address.starts_with('/') && !address.contains('\0') {
            return Ok(Self::Path(address.into()));
        }
        if let Some(host) = address.strip_prefix("tcp://") {
            return match host.rsplit_once(':') {
                Some((name, port)) if !name.is_empty() && port.parse::<u16>().is_ok() => {
                    Ok(Self::Tcp(host.to_owned()))
                }
                _ => refused("expected host:port after tcp://"),
            };
        }
        if let Some(numbers) = address.strip_prefix("vsock://") {
            return match vsock(numbers) {
                #[cfg(feature = "vsock")]
                Some((cid, port)) => Ok(Self::Vsock { cid, port }),
                #[cfg(not(feature = "vsock"))]
                Some(_) => refused(super::descriptor::NO_VSOCK),
                None => refused("expected CID:PORT after vsock://, two numbers, or -1 for any CID"),
            };
        }
        refused("expected /path, unix:///path, unix://@name, tcp://host:port or vsock://CID:PORT")
    }
}

/// The context id of a machine and a port. -1 is how C writes the largest id, which means any.
fn vsock(numbers: &str) -> Option<(u32, u32)> {
    let (cid, port) = numbers.split_once(':')?;
    let cid = match cid {
        "-1" => u32::MAX,
        cid => number(cid)?,
    };
    Some((cid, number(port)?))
}

/// Digits alone: a sign would be taken too.
fn number(text: &str) -> Option<u32> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Path(path) => write!(f, "unix://{}", path.display()),
            Self::Abstract(name) => write!(f, "unix://@{name}"),
            Self::Tcp(host) => write!(f, "tcp://{host}"),
            #[cfg(feature = "vsock")]
            Self::Vsock {
                cid: u32::MAX,
                port,
            } => write!(f, "vsock://-1:{port}"),
            #[cfg(feature = "vsock")]
            Self::Vsock { cid, port } => write!(f, "vsock://{cid}:{port}"),
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
        let bare: Address = "/run/a.sock".parse().unwrap();
        assert_eq!(bare.to_string(), "unix:///run/a.sock");
    }

    // F1
    #[test]
    fn a_vsock_address_has_a_context_id_and_a_port() {
        for (text, numbers) in [
            ("2:1024", Some((2, 1024))),
            ("-1:1024", Some((u32::MAX, 1024))),
            ("4294967295:1024", Some((u32::MAX, 1024))),
            ("3:4294967295", Some((3, u32::MAX))),
            ("0:0", Some((0, 0))),
            ("2", None),
            ("2:", None),
            (":1024", None),
            ("-2:1024", None),
            ("2:-1", None),
            ("+2:1024", None),
            ("2:+1024", None),
            ("2:1024:1", None),
            ("4294967296:1", None),
            ("host:1024", None),
            ("2:port", None),
            ("2:1024/", None),
        ] {
            assert_eq!(vsock(text), numbers, "{text}");
            let address = format!("vsock://{text}").parse::<Address>();
            #[cfg(feature = "vsock")]
            assert_eq!(
                address.ok(),
                numbers.map(|(cid, port)| Address::Vsock { cid, port })
            );
            #[cfg(not(feature = "vsock"))]
            assert_eq!(
                address
                    .unwrap_err()
                    .to_string()
                    .contains("the feature `vsock`"),
                numbers.is_some(),
                "{text}"
            );
        }
    }

    #[test]
    fn a_bad_address_is_refused_with_itself_and_the_reason() {
        for text in [
            "",
            "run/a.sock",
            "/run/a\0b",
            "unix://",
            "unix://@",
            "tcp://host",
            "tcp://:80",
            "tcp://h:99999",
            "vsock://2",
            "http://x",
            "unix://a\0b",
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }
}
