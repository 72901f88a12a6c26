//! The requests of one connection: which ids are used, which requests run or wait, and where the
//! messages of their streams go. Data only: no handler, no runtime, no clock.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::admission::{Admission, CallPermit, Candidate, Offer};
use crate::config::ServerLimits;
use crate::connection::{Inbox, Messages, Overflow, Received, Total};
use crate::status::Status;
use crate::streams::{Requests, Upload, Uploads};
use crate::wire::{Flags, Part};

/// What handlers tell the driver.
#[derive(Debug)]
pub(crate) enum Command {
    /// One of them has answered.
    Answered,
    /// One of them has ended its stream.
    StreamEnded { stream_id: u32 },
    /// A call was answered while its handler runs on.
    AnsweredEarly,
    /// The handler of such a call has ended.
    HandlerEnded,
    /// It is this connection's turn to have a slot of the server.
    Granted,
    /// The server shuts down: no more requests for streams.
    EndRequests,
}

/// A request that was taken.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) stream_id: u32,
    /// Its place in the server's table.
    pub(super) method: usize,
    pub(super) permit: Option<CallPermit>,
    pub(super) input: Input,
    pub(super) metadata: Vec<(String, String)>,
    pub(super) deadline: Option<Duration>,
}

/// What a request brings to its handler.
#[derive(Debug)]
pub(super) enum Input {
    One(Part),
    Many(Messages<Status>),
}

/// Why a message of a stream is dropped.
#[derive(Debug)]
pub(super) enum NotTaken {
    /// The stream is unknown or takes no messages. RFC KA-37.
    ForNobody,
    /// The stream fails with it.
    Overflow(Arc<Inbox<Status>>, Overflow),
}

/// The requests of one connection.
#[derive(Debug)]
pub(super) struct OpenRequests {
    pub(super) ids: Requests,
    pub(super) admission: Admission<Request>,
    /// Where messages of streams go. They may come before the handler starts.
    uploads: Uploads<Arc<Inbox<Status>>>,
    /// What has come for them and was not taken.
    uploaded: Arc<Total>,
    stream_bytes: usize,
}

impl OpenRequests {
    pub(super) fn new(limits: ServerLimits) -> Self {
        Self {
            ids: Requests::default(),
            admission: Admission::new(limits),
            uploads: Uploads::default(),
            uploaded: Total::new(limits.upload_bytes),
            stream_bytes: limits.stream_bytes,
        }
    }

    /// The queue of a stream, and its end for messages, if any follow the request.
    #[expect(clippy::type_complexity, reason = "the two ends of one queue")]
    pub(super) fn queue(
        &self,
        flags: Flags,
        payload: Bytes,
    ) -> Result<(Messages<Status>, Option<Arc<Inbox<Status>>>), Overflow> {
        let (inbox, messages) = Inbox::new(self.stream_bytes, Some(Arc::clone(&self.uploaded)));
        let open = flags.contains(Flags::REMOTE_OPEN) && !flags.contains(Flags::REMOTE_CLOSED);
        // Some clients put the first message into the request. RFC KA-44: an empty payload is none
        // if messages follow.
        let none = flags.contains(Flags::NO_DATA) || (open && payload.is_empty());
        if !none {
            inbox.push(Received::Own(payload))?;
        }
        if !open {
            inbox.close();
        }
        Ok((messages, open.then_some(inbox)))
    }

    /// A request has come. Unless it is refused, messages of its stream go to `inbox`.
    pub(super) fn offer<S>(
        &mut self,
        candidate: Candidate<Request>,
        inbox: Option<Arc<Inbox<Status>>>,
        slot: impl FnOnce() -> Result<S, u64>,
    ) -> Offer<Request, S> {
        let stream_id = candidate.request.stream_id;
        let offer = self.admission.offer(stream_id, candidate, slot);
        if let (Some(inbox), Offer::Start(..) | Offer::Wait) = (inbox, &offer) {
            self.uploads.open(stream_id, inbox);
        }
        offer
    }

    /// A DATA frame has come.
    pub(super) fn handle_data(
        &mut self,
        stream_id: u32,
        flags: Flags,
        message: Received<'_>,
    ) -> Result<(), NotTaken> {
        let admission = &mut self.admission;
        let push = |inbox: &Arc<Inbox<Status>>| {
            let pushed = admission
                .handle_message(stream_id, message.len())
                .and_then(|()| inbox.push(message));
            pushed.map_err(|overflow| NotTaken::Overflow(Arc::clone(inbox), overflow))
        };
        match self.uploads.handle_data(stream_id, flags) {
            Upload::Message(inbox) => push(inbox),
            Upload::Last(inbox) => push(&inbox).inspect(|()| inbox.close()),
            Upload::End(inbox) => {
                inbox.close();
                Ok(())
            }
            Upload::Nothing => Ok(()),
            Upload::Unknown => Err(NotTaken::ForNobody),
        }
    }

    /// The stream has ended: what still comes is for nobody.
    pub(super) fn close(&mut self, stream_id: u32) -> Option<Arc<Inbox<Status>>> {
        self.uploads.close(stream_id)
    }

    /// No more messages are taken for any stream.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Arc<Inbox<Status>>> + '_ {
        self.uploads.drain()
    }
}
