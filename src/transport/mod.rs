//! What yields byte streams: unix sockets, TCP, vsock, and any stream in memory.
//!
//! The invariant: a transport moves bytes and answers what the kernel holds; it knows nothing of
//! frames, and none waits.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::BytesMut;

use crate::error::ConnectionError;

mod accept;
mod address;
mod byte_stream;
mod credentials;
mod descriptor;
mod fault;
mod into;
mod listener;
mod process;
mod socket;
mod socket_file;
mod socket_stream;
#[cfg(feature = "vsock")]
mod vsock;

pub use accept::Accept;
pub(crate) use address::Address;
pub use byte_stream::ByteStream;
pub use credentials::PeerCredentials;
pub(crate) use credentials::Remote;
pub(crate) use fault::Fault;
pub use into::IntoTransport;
pub use listener::{Listener, ListenerBuilder};
pub use process::PeerProcess;
pub use socket::Socket;

/// What a [`Transport::poll_look`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Look {
    /// The kernel holds no unread byte.
    Empty,
    /// It holds some, or the end of the stream, or an error: a read will tell, if not the next then
    /// one a few turns of the scheduler later. A transport whose reads go on finding nothing is
    /// believed neither way: its peer is not convicted by that look, and nothing waits for it.
    Readable,
    /// This transport cannot ask. The driver then gives the scheduler one turn and reads again.
    Blind,
}

/// A byte stream that carries a connection.
///
/// Sockets and [`ByteStream`] are ready-made; implement it for a stream that sits on a descriptor
/// of its own kind, or for one side of a multiplexer, whose look is answered by the owner of the
/// descriptor.
///
/// # Contract
///
/// One task calls all methods, the connection's driver; only a [`Shortcut`] is used by others too.
/// None of them may block its thread or wait in another way than by `Pending`. A method that
/// panics ends its connection, as [`ConnectionError::Abandoned`].
///
/// **The beginning.** [`peer_credentials`](Self::peer_credentials),
/// [`peer_process`](Self::peer_process), [`remote_address`](Self::remote_address) and [`shortcut`](Self::shortcut) are asked once, in the task that makes the connection; before them
/// [`enter`](Self::enter), if the driver is to run on another runtime.
///
/// **A turn** of the driver calls, in this order:
///
/// 1. [`poll_read`](Self::poll_read), until it is pending or the turn's share is read: at most
///    sixteen times. What has come is known before anything is written or judged. A server whose
///    peer takes no answers leaves it out.
/// 2. [`poll_write`](Self::poll_write), until it is pending or nothing is left, and
///    [`poll_flush`](Self::poll_flush) behind it.
/// 3. Only if something is to be judged: [`try_send`](Self::try_send) if the last write was
///    refused, [`poll_look`](Self::poll_look) if the last read found nothing.
/// 4. [`last_heard`](Self::last_heard), and `poll_write` and `poll_flush` for a PING that is due.
///
/// **Bytes.** A slice of a write is a frame, or what is left of one, or several small frames; it is
/// never empty, a frame never begins in the middle of one that has not ended, and there are 64
/// slices at most. A transport need not look into them: frames are for
/// [`wire`](crate::wire), and [`Cutter`](crate::wire::Cutter) finds where they begin for who has to
/// know. What is taken by a write goes to the peer in this order and whole. What is read may be in
/// pieces of any size.
///
/// **What it may hold back.** It may take bytes and hold them until `poll_flush`, which is called
/// after each turn's writes and directly behind a PING, and polled again until it is ready. Bytes
/// count as written when they are taken; a PING's time and a server's last answer count from the
/// flush. While that is pending nothing is taken of what is held back, and for the verdict on a call and for the
/// peer this is as a write that is refused. So it may hold back as much as it is willing to lose: what it cannot pass on is to be
/// refused by `poll_write` before that grows. Nothing may be held back on the way in: bytes that
/// it has read for this connection are given by the next `poll_read`, and what it reads ahead is
/// [`Look::Readable`].
///
/// **Wakers.** What is pending wakes the task of its last poll when it may go on. `poll_read`,
/// `poll_write` and `poll_look` are all pending at the same time, with the same waker.
///
/// **The end** comes once: [`handle_end`](Self::handle_end) with the reason, then
/// [`poll_shutdown`](Self::poll_shutdown), or [`abort`](Self::abort) for a peer that was convicted
/// and for a driver that was dropped, then the drop. Nothing is read or written any more, so what
/// was taken and not flushed is for `poll_shutdown` to pass on.
///
/// There is no way to end one direction alone: a half-close would lose calls in flight (RFC KA-41).
///
/// # A shared stream
///
/// Several connections on one stream are one process at the other end, and in what concerns that
/// process they know the same (RFC KA-21): each says by `last_heard` what was heard on any of them,
/// and hands the reason of an end on, as the error of reads on the others. An [`io::Error`] that is
/// made [of a `ConnectionError`](ConnectionError#impl-From<ConnectionError>-for-Error) ends a
/// connection with that very reason.
pub trait Transport: Send + 'static {
    /// Appends at most `limit` bytes to `buffer`, which has room for them.
    ///
    /// `Ok(0)` is the end of the stream. It is not called again after that.
    ///
    /// # Errors
    ///
    /// An error ends the connection, behind all that was read before it. It is asked again at once
    /// after [`Interrupted`](io::ErrorKind::Interrupted), and a little later after what
    /// passes: `WouldBlock`, and a lack of memory (ENOMEM, ENOBUFS).
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
        limit: usize,
    ) -> Poll<io::Result<usize>>;

    /// Writes from the front of `slices`, as much as is taken without waiting.
    ///
    /// After `Pending` nothing has been taken, and the next call may offer other bytes in front:
    /// a PING, or the frames behind a call that was given up.
    ///
    /// # Errors
    ///
    /// An error stops writing; what has been received is still delivered, for a second at most. The
    /// same ones as in [`poll_read`](Self::poll_read) stop nothing, and none of them says anything
    /// of the peer.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>>;

    /// Passes on what the stream itself holds back. Sockets hold nothing back.
    ///
    /// # Errors
    ///
    /// As for [`Transport::poll_write`].
    fn poll_flush(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Asks whether the kernel holds unread bytes: the descriptor itself, not a cache of its
    /// readiness, which says *empty* for bytes that are there.
    ///
    /// It is asked after a read found nothing, before silence is held against the peer. It may be
    /// pending until the owner of a shared descriptor has looked, for 10 ms: after that
    /// the driver goes on as if the transport were [blind](Look::Blind), and a call that is judged
    /// then has the verdict [`Unknown`](crate::Verdict::Unknown) in place of one against the peer.
    fn poll_look(&mut self, _cx: &mut Context<'_>) -> Poll<Look> {
        Poll::Ready(Look::Blind)
    }

    /// How much of what was taken from here the *process* at the other end has not read, or `None` if
    /// that cannot be told: by TCP and by vsock, whose kernel takes the bytes whatever its processes
    /// do, and on systems other than Linux.
    ///
    /// Counted as Linux counts, in buffers: each byte that was taken counts for at least one, also if
    /// the transport itself holds it back, and each write that was taken for 256 or more beside its
    /// bytes. A transport that joins several writes to one adds that for each of them, until nothing is
    /// unread. A value that is one too high is tolerated. It may fall only when that process reads, or
    /// when its end is closed, which [`poll_look`](Self::poll_look) then sees: it is asked after this.
    fn unread(&self) -> Option<usize> {
        None
    }

    /// Offers the kernel bytes that it refused before, past every cache. `None` if this transport
    /// cannot; then the last [`Transport::poll_write`] is believed.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if nothing was taken. The driver's next read or write must meet any other again:
    /// it ends nothing by itself, and says nothing of the peer.
    fn try_send(&mut self, _bytes: &[u8]) -> Option<io::Result<usize>> {
        None
    }

    /// When the process at the other end last gave a sign of life on any connection that
    /// shares the stream: a byte came, or one was taken after a refusal. By tokio's clock, as
    /// `tokio::time::Instant::now().into_std()`.
    ///
    /// It is asked before the peer is judged or a PING is sent for its silence. `None`, as by
    /// default, for a stream that carries this connection alone.
    fn last_heard(&self) -> Option<Instant> {
        None
    }

    /// A way to write from the task of a caller, without a hop to the driver's. `None` if there
    /// is none.
    fn shortcut(&self) -> Option<Arc<dyn Shortcut>> {
        None
    }

    /// Who is at the other end, if the operating system tells. It is asked once, when the connection
    /// begins.
    fn peer_credentials(&self) -> Option<PeerCredentials> {
        None
    }

    /// The process at the other end, for what it [does](PeerProcess::state), if that can be told. It is
    /// asked once, when the connection begins.
    fn peer_process(&self) -> Option<PeerProcess> {
        None
    }

    /// The address of the other end, where it has one. It is asked once, when the connection begins.
    fn remote_address(&self) -> Option<SocketAddr> {
        None
    }

    /// Moves to the runtime that is entered: registers there what is registered with a reactor. It
    /// is called at most once, before anything else.
    ///
    /// # Errors
    ///
    /// Any error ends the connection.
    fn enter(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// The connection has ended, for this reason, and all who wait for something on it have been
    /// told. Called once, and first of what ends the stream, so that the others on a shared one can
    /// be told the same.
    fn handle_end(&mut self, _end: &ConnectionError) {}

    /// Ends the stream in order: passes on what was taken, says farewell as the stream does (the
    /// `close_notify` of TLS, for example), and closes it for both directions, whoever else
    /// has a copy of its descriptor.
    ///
    /// It is polled until it is ready, for a second at most, and not again after that. If
    /// the stream itself has failed, or this side ends the connection
    /// [at once](crate::Client::abort), it is polled once and not waited for. What is not done
    /// then is given up by [`abort`](Self::abort).
    ///
    /// # Errors
    ///
    /// They change nothing.
    fn poll_shutdown(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Gives up at once: no flush, no farewell. The stream is closed for both directions, whoever
    /// else has a copy of its descriptor. The transport is dropped next.
    fn abort(&mut self) {}
}

/// Writes to a connection from outside its driver's task.
pub trait Shortcut: Send + Sync + 'static {
    /// Writes without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if nothing is taken now. Any other is dropped, so the driver's next read or write
    /// must meet it again: an error that the operating system tells only once has to be kept.
    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize>;
}

impl std::fmt::Debug for dyn Shortcut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shortcut")
    }
}

impl<T: Transport + ?Sized> Transport for Box<T> {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        (**self).poll_read(cx, buffer, limit)
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        (**self).poll_write(cx, slices)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        (**self).poll_flush(cx)
    }

    fn poll_look(&mut self, cx: &mut Context<'_>) -> Poll<Look> {
        (**self).poll_look(cx)
    }

    fn unread(&self) -> Option<usize> {
        (**self).unread()
    }

    fn try_send(&mut self, bytes: &[u8]) -> Option<io::Result<usize>> {
        (**self).try_send(bytes)
    }

    fn shortcut(&self) -> Option<Arc<dyn Shortcut>> {
        (**self).shortcut()
    }

    fn peer_credentials(&self) -> Option<PeerCredentials> {
        (**self).peer_credentials()
    }

    fn peer_process(&self) -> Option<PeerProcess> {
        (**self).peer_process()
    }

    fn remote_address(&self) -> Option<SocketAddr> {
        (**self).remote_address()
    }

    fn enter(&mut self) -> io::Result<()> {
        (**self).enter()
    }

    fn last_heard(&self) -> Option<Instant> {
        (**self).last_heard()
    }

    fn handle_end(&mut self, end: &ConnectionError) {
        (**self).handle_end(end);
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        (**self).poll_shutdown(cx)
    }

    fn abort(&mut self) {
        (**self).abort();
    }
}
