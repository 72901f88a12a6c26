//! Who is done, and when the stream is.

use std::io;
use std::mem;
use std::task::{Context, Poll};

use ttrpc_keepalive::ConnectionError;
use ttrpc_keepalive::transport::Transport;

use super::{Place, State, other};

impl State {
    /// One connection has ended. An end of its own is that of the stream only if both have.
    pub(in crate::multiplexer) fn handle_end(&mut self, place: Place, end: &ConnectionError) {
        let own = matches!(
            end,
            ConnectionError::LocalClose | ConnectionError::Abandoned
        );
        self.leave(place);
        if (!own || self.has_nobody()) && self.end.is_none() {
            self.end = Some(end.clone());
        }
        self.tell();
    }

    pub(super) fn leave(&mut self, place: Place) {
        self.left[place] = true;
        self.incoming.drop_for(place);
        self.wakes[other(place)] = true;
    }

    pub(super) fn has_nobody(&self) -> bool {
        self.left.iter().all(|left| *left)
    }

    pub(super) fn end_for_nobody(&mut self) -> Option<Box<dyn Transport>> {
        if !self.has_nobody() {
            return None;
        }
        self.end.get_or_insert(ConnectionError::LocalClose);
        self.tell();
        self.transport.take()
    }

    /// Tells the stream how it ends.
    fn tell(&mut self) {
        if let (Some(end), Some(transport)) = (&self.end, &mut self.transport) {
            if !mem::replace(&mut self.is_told, true) {
                transport.handle_end(end);
            }
        }
    }

    pub(in crate::multiplexer) fn shutdown(
        &mut self,
        place: Place,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.push(place, cx)?;
        if self.is_held(place) {
            return Poll::Pending;
        }
        match &mut self.transport {
            Some(transport) if self.end.is_some() && !self.is_shut => {
                let shut = transport.poll_shutdown(cx);
                self.is_shut = shut.is_ready();
                shut
            }
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Closes the stream if it has ended. What one connection gives up may leave the other in the middle
    /// of its work.
    pub(in crate::multiplexer) fn abort(&mut self) -> Option<Box<dyn Transport>> {
        self.end.as_ref()?;
        let mut transport = self.transport.take()?;
        transport.abort();
        Some(transport)
    }
}
