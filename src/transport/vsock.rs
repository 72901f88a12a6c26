//! Sockets between a machine and its virtual machines, behind the feature `vsock`.

use std::io;

use tokio_vsock::{VsockAddr, VsockListener, VsockStream};

pub(super) async fn connect(cid: u32, port: u32) -> io::Result<VsockStream> {
    VsockStream::connect(VsockAddr::new(cid, port)).await
}

pub(super) fn bind(cid: u32, port: u32) -> io::Result<VsockListener> {
    VsockListener::bind(VsockAddr::new(cid, port))
}
