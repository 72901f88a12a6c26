//! What the kernel knows of the process at the other end of a unix socket.

use std::fmt;
use std::time::Duration;

use tokio::net::UnixStream;
use ttrpc_keepalive::keepalive::Unread;
use ttrpc_keepalive::{PeerProcess, ProcessState};
use ttrpc_keepalive_unread::unread;

use super::Layered;

/// Each write counts for so much beside its bytes, at the least.
const WRITE: u64 = 256;

/// How a stream is asked, and what was written on it.
pub(super) struct Kernel<S> {
    unread: fn(&S) -> Option<usize>,
    process: Option<PeerProcess>,
    written: u64,
    written_at: Option<Duration>,
}

impl<S> Kernel<S> {
    pub(super) fn note_write(&mut self, count: usize, now: Duration) {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.written = self.written.saturating_add(WRITE).saturating_add(count);
        self.written_at = Some(now);
    }

    /// To be asked before the stream is read: what a peer that closes leaves unread is gone when its end
    /// is found.
    pub(super) fn unread(&self, stream: &S) -> Unread {
        match (self.unread)(stream) {
            Some(held) => Unread::Known {
                held: u64::try_from(held).unwrap_or(u64::MAX),
                written: self.written,
                written_at: self.written_at,
            },
            None => Unread::Unknown,
        }
    }

    pub(super) fn process(&self) -> Option<ProcessState> {
        self.process.map(|process| process.state())
    }
}

impl<S> fmt::Debug for Kernel<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").finish_non_exhaustive()
    }
}

impl Layered<UnixStream> {
    /// Judges a peer that knows no PING by what its process *reads*, as Linux tells: of a call that is
    /// late [`Snapshot::peer`](crate::Snapshot::peer) then says that the peer is alive because it read a
    /// PING which it ignores, or doubtful because nobody did. It costs one PING for a late call, and
    /// [`Keepalive::read_receipts`](crate::Keepalive::read_receipts) turns it off.
    ///
    /// Before the stream is used. On other systems it changes nothing.
    #[must_use]
    pub fn with_receipts(mut self) -> Self {
        self.machine.handle_receipts(unread(&*self.stream).is_ok());
        self.kernel = Some(Kernel {
            unread: |stream| unread(stream).ok(),
            process: PeerProcess::of(&self.stream),
            written: 0,
            written_at: None,
        });
        self.tell(Duration::ZERO);
        self
    }
}
