//! The messages that clients send on streams: which are taken, and what becomes of the others.

use std::sync::Arc;

use bytes::Bytes;
use tracing::debug;

use super::{Command, ServerSide};
use crate::connection::{Inbox, Messages, Received, Turn};
use crate::server::streaming::too_many;
use crate::status::Status;
use crate::streams::Upload;
use crate::wire::{Flags, Header, encode_status};

impl ServerSide {
    /// Takes messages of a stream from now on: they may come before its handler starts.
    pub(super) fn open_upload(
        &mut self,
        stream_id: u32,
        flags: Flags,
        payload: Bytes,
    ) -> Result<Messages<Status>, Status> {
        let uploaded = Some(Arc::clone(&self.uploaded));
        let (inbox, messages) = Inbox::new(self.limits.stream_bytes, uploaded);
        let open = flags.contains(Flags::REMOTE_OPEN) && !flags.contains(Flags::REMOTE_CLOSED);
        // Some clients put the first message into the request. RFC KA-44: an empty payload is none
        // if messages follow.
        let none = flags.contains(Flags::NO_DATA) || (open && payload.is_empty());
        if !none {
            inbox.push(Received::Own(payload)).map_err(too_many)?;
        }
        if open {
            self.uploads.open(stream_id, inbox);
        } else {
            inbox.close();
        }
        Ok(messages)
    }

    /// A DATA frame has come.
    pub(super) fn handle_message(
        &mut self,
        header: Header,
        message: Received<'_>,
        turn: &mut Turn<'_, Command>,
    ) {
        let (stream_id, flags) = (header.stream_id, header.flags);
        let admission = &mut self.admission;
        let push = |inbox: &Inbox<Status>| {
            admission.handle_message(stream_id, message.len())?;
            inbox.push(message)
        };
        let pushed = match self.uploads.handle_data(stream_id, flags) {
            Upload::Message(inbox) => push(inbox).map_err(|overflow| {
                let inbox = Arc::clone(inbox);
                (inbox, overflow)
            }),
            Upload::Last(inbox) => match push(&inbox) {
                Ok(()) => {
                    inbox.close();
                    Ok(())
                }
                Err(overflow) => Err((inbox, overflow)),
            },
            Upload::End(inbox) => {
                inbox.close();
                Ok(())
            }
            Upload::Nothing => Ok(()),
            Upload::Unknown => {
                // RFC KA-37.
                debug!(stream_id, "stream data for nobody is dropped");
                Ok(())
            }
        };
        if let Err((inbox, overflow)) = pushed {
            self.fail(stream_id, &inbox, too_many(overflow), turn);
        }
    }

    /// Ends a stream whose messages cannot be taken. Its handler sees the same status; one that has
    /// not begun never does.
    pub(super) fn fail(
        &mut self,
        stream_id: u32,
        inbox: &Inbox<Status>,
        status: Status,
        turn: &mut Turn<'_, Command>,
    ) {
        self.uploads.close(stream_id);
        debug!(stream_id, %status, "a stream fails");
        turn.end_stream(stream_id, encode_status(stream_id, &status));
        inbox.fail(status);
        if self.admission.remove(stream_id).is_some() {
            turn.shared.release();
            turn.machine.handle_call_ended(turn.now);
        }
    }
}
