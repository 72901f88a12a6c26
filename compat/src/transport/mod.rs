//! Byte streams, and what accepts them.

mod listener;
mod socket;

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::SocketAddr;

use tokio_vsock::VsockAddr;

pub use listener::Listener;
pub use socket::Socket;

fn unsupported(address: &str) -> io::Error {
    io::Error::other(format!("Scheme of {address:?} is not supported"))
}

pub(crate) fn unix_address(address: &str) -> io::Result<SocketAddr> {
    match address.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(address),
    }
}

pub(crate) fn vsock_address(address: &str) -> io::Result<VsockAddr> {
    let wrong = || io::Error::other(format!("sockaddr {address} is not right for vsock"));
    let (cid, port) = address.split_once(':').ok_or_else(wrong)?;
    let number = |text: &str, name| {
        let parsed = text.parse();
        parsed.map_err(|e| io::Error::other(format!("failed to parse {name} from {text:?}: {e}")))
    };
    let cid = if cid.trim() == "-1" {
        tokio_vsock::VMADDR_CID_ANY
    } else {
        number(cid, "cid")?
    };
    Ok(VsockAddr::new(cid, number(port, "port")?))
}
