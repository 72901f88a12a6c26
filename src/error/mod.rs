//! Why a call or a connection ended, graded by whose fault it was.

use std::time::Duration;

use crate::keepalive::{Evidence, Peer, Verdict};
use crate::status::{Code, Status};
use crate::wire::{EnvelopeError, Oversized};

mod close;
mod connection;
mod late;
mod request;

pub use close::CloseError;
pub(crate) use close::Unsent;
use connection::Reason;
pub use connection::{ConfigError, ConnectError, ConnectionError};
pub(crate) use late::LateRecord;
pub use late::{LateAnswer, LateOutcome};
pub use request::RequestProgress;
pub(crate) use request::Room;

/// Why a call did not return a message.
///
/// The variants say whose fault it was; the predicates answer what a caller decides by. A failure
/// on this side is never dressed as a [`Status`] of the peer.
///
/// What it displays is one line with the reason in it, so that `{error}` is enough for a log: *the
/// connection has ended: the peer closed it*.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer answered with a status other than OK.
    #[error("the peer answered {0}")]
    Status(#[source] Status),
    /// The [hook](crate::ClientBuilder::hook) of this client refused the call with this status, or
    /// panicked. Nothing was sent, and the peer has no part in it.
    #[error("the hook refused the call: {0}")]
    Refused(#[source] Status),
    /// The call ran out of time, here or at the peer. The connection goes on.
    #[error(transparent)]
    Deadline(Box<DeadlineError>),
    /// The connection ended before an answer came, or had ended before the call; and how far the
    /// request had come, which is what [`Error::request`] says.
    #[error("the connection has ended: {0}")]
    Connection(#[source] ConnectionError, RequestProgress),
    /// The request, or a message of a stream, is larger than a frame may be. It was not sent; a
    /// stream goes on.
    #[error("the request cannot be sent: {0}")]
    RequestTooLarge(#[source] Oversized),
    /// The peer's answer, or a message of a stream, was larger than a frame may be. It was skipped;
    /// the connection goes on.
    #[error("the response is too large: {0}")]
    ResponseTooLarge(#[source] Oversized),
    /// The peer's answer could not be decoded: what ttrpc puts around the message. The connection
    /// goes on.
    #[error("the response cannot be decoded: {0}")]
    InvalidResponse(#[source] EnvelopeError),
    /// The peer's answer is not the message that was expected. The connection goes on.
    #[error("the response's message cannot be decoded: {0}")]
    InvalidMessage(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The peer sent stream data in answer to a call that has one response. The connection goes
    /// on.
    #[error("the peer sent stream data in answer to a call that has one response")]
    UnexpectedData,
    /// Messages of a stream came faster than they were taken. Those that had been received are
    /// delivered before this error; later ones are dropped. The connection goes on.
    #[error("{size} bytes of messages that wait to be taken are more than the {limit} allowed")]
    StreamOverflow {
        /// What waited and what came, in bytes.
        size: usize,
        /// [`stream_limit`](crate::ClientBuilder::stream_limit) or
        /// [`download_limit`](crate::ClientBuilder::download_limit), whichever was met, in bytes.
        limit: usize,
    },
    /// The stream has ended, so nothing was sent. How it ended is told by the call's other half.
    #[error("the stream has ended")]
    StreamEnded,
    /// This connection has used all its stream ids (2^31 calls). Connect anew.
    #[error("all stream ids of this connection are used")]
    IdsExhausted,
}

impl Error {
    /// Whether the call ran out of time: here, or by the peer's own DEADLINE_EXCEEDED.
    ///
    /// It says nothing against the connection; [`Error::verdict`] does.
    pub fn is_deadline(&self) -> bool {
        matches!(self, Self::Deadline(_))
    }

    /// Whether the connection is over. Every later call on it fails the same way.
    pub fn is_connection(&self) -> bool {
        matches!(self, Self::Connection(..))
    }

    /// Whether the peer broke the protocol or answered nonsense in this call.
    pub fn is_peer_fault(&self) -> bool {
        match self {
            Self::ResponseTooLarge(_)
            | Self::InvalidResponse(_)
            | Self::InvalidMessage(_)
            | Self::UnexpectedData => true,
            Self::Connection(end, _) => matches!(end, ConnectionError::Protocol(_)),
            _ => false,
        }
    }

    /// What is known about the peer at the deadline of a late call. `None` for other errors.
    pub fn verdict(&self) -> Option<Verdict> {
        self.deadline().map(DeadlineError::verdict)
    }

    /// The evidence behind the verdict, or behind the conviction that ended the connection.
    pub fn evidence(&self) -> Option<&Evidence> {
        match self {
            Self::Deadline(late) => Some(&late.evidence),
            Self::Connection(ConnectionError::Dead { evidence, .. }, _) => Some(evidence),
            _ => None,
        }
    }

    /// What to make of the peer after this error: call it, spare it, or give it up.
    pub fn peer(&self) -> Peer {
        match self {
            Self::Deadline(late) => late.peer,
            Self::Connection(..) | Self::IdsExhausted => Peer::Gone,
            Self::Status(_)
            | Self::Refused(_)
            | Self::RequestTooLarge(_)
            | Self::ResponseTooLarge(_)
            | Self::InvalidResponse(_)
            | Self::InvalidMessage(_)
            | Self::UnexpectedData
            | Self::StreamOverflow { .. }
            | Self::StreamEnded => Peer::Alive,
        }
    }

    /// How far the request had come: whether the call may be made again although it must not be
    /// executed twice.
    ///
    /// ```
    /// use ttrpc_keepalive::{Error, RequestProgress};
    ///
    /// /// Whether a request to create something may be sent once more, on a new connection.
    /// fn may_repeat(error: &Error) -> bool {
    ///     match error.request() {
    ///         RequestProgress::NotSent | RequestProgress::PartlySent => true,
    ///         // The peer may have it, or has answered: ask what exists first.
    ///         RequestProgress::Sent | RequestProgress::Answered => false,
    ///     }
    /// }
    /// ```
    ///
    /// An error of [`Sender::send`](crate::Sender::send) is about its message, which was not sent; what
    /// became of the call is told by the other half. A probe has no request.
    pub fn request(&self) -> RequestProgress {
        match self {
            Self::Deadline(late) => late.request,
            Self::Connection(_, request) => *request,
            Self::Refused(_)
            | Self::RequestTooLarge(_)
            | Self::StreamEnded
            | Self::IdsExhausted => RequestProgress::NotSent,
            Self::Status(_)
            | Self::ResponseTooLarge(_)
            | Self::InvalidResponse(_)
            | Self::InvalidMessage(_)
            | Self::UnexpectedData
            | Self::StreamOverflow { .. } => RequestProgress::Answered,
        }
    }

    /// The status that the peer sent, if it sent one.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Status(status) => Some(status),
            Self::Deadline(late) => late.status.as_ref(),
            _ => None,
        }
    }

    /// A future that ends when the answer to this late call comes after all. `None` if there is
    /// nothing to wait for: the call is not late, was never sent, or was answered by the peer.
    pub fn late_answer(&self) -> Option<LateAnswer> {
        self.deadline()?.late_answer.clone()
    }

    /// Nothing was sent, since the connection has ended.
    pub(crate) fn not_sent(end: ConnectionError) -> Self {
        Self::Connection(end, RequestProgress::NotSent)
    }

    /// For what is seen when the caller is told.
    pub(crate) fn evidence_of_deadline(&mut self) -> Option<&mut Evidence> {
        match self {
            Self::Deadline(late) => Some(&mut late.evidence),
            _ => None,
        }
    }

    fn deadline(&self) -> Option<&DeadlineError> {
        match self {
            Self::Deadline(late) => Some(late),
            _ => None,
        }
    }

    /// The peer's status as an error: its own DEADLINE_EXCEEDED is a late call too, and the peer
    /// has just proved that it lives.
    pub(crate) fn from_status(
        status: Status,
        evidence: Evidence,
        timeout: Option<Duration>,
    ) -> Self {
        if status.code() != Code::DEADLINE_EXCEEDED {
            return Self::Status(status);
        }
        Self::Deadline(Box::new(DeadlineError {
            timeout,
            verdict: Verdict::Slow,
            evidence,
            peer: Peer::Alive,
            request: RequestProgress::Answered,
            room: None,
            status: Some(status),
            late_answer: None,
        }))
    }
}

/// For a handler that calls another server, so that it can end by `?`. The caller is told what kind of
/// failure it was, in words that name what failed:
///
/// | error | status |
/// |---|---|
/// | [`Status`](Error::Status), [`Refused`](Error::Refused) | the same, but without [the announcement of a shutdown](Status::shutting_down): it is the other server that shuts down |
/// | [`Deadline`](Error::Deadline) | DEADLINE_EXCEEDED |
/// | [`Connection`](Error::Connection), [`IdsExhausted`](Error::IdsExhausted) | UNAVAILABLE |
/// | [`RequestTooLarge`](Error::RequestTooLarge), [`ResponseTooLarge`](Error::ResponseTooLarge), [`StreamOverflow`](Error::StreamOverflow) | RESOURCE_EXHAUSTED |
/// | [`StreamEnded`](Error::StreamEnded) | CANCELLED |
/// | answers that are none | INTERNAL |
///
/// ```
/// # use protobuf::well_known_types::wrappers::StringValue;
/// # use ttrpc_keepalive::{Client, Context, Status};
/// async fn pass_on(next: Client, context: Context, request: StringValue) -> Result<StringValue, Status> {
///     let mut call = next.call("demo.Echo", "Say", &request);
///     if let Some(remaining) = context.remaining() {
///         call = call.timeout(remaining);
///     }
///     Ok(call.await?)
/// }
/// ```
impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let code = match error {
            Error::Status(status) | Error::Refused(status) => {
                return if status.announces_shutdown() {
                    status.with_details(Vec::new())
                } else {
                    status
                };
            }
            Error::Deadline(_) => Code::DEADLINE_EXCEEDED,
            Error::Connection(..) | Error::IdsExhausted => Code::UNAVAILABLE,
            Error::RequestTooLarge(_)
            | Error::ResponseTooLarge(_)
            | Error::StreamOverflow { .. } => Code::RESOURCE_EXHAUSTED,
            Error::StreamEnded => Code::CANCELLED,
            Error::InvalidResponse(_) | Error::InvalidMessage(_) | Error::UnexpectedData => {
                Code::INTERNAL
            }
        };
        Self::new(code, error.to_string())
    }
}

/// A call that ran out of time, with what is known about the peer at that moment.
#[derive(Debug, thiserror::Error)]
#[error("deadline exceeded: {}{} ({evidence}){}", told(self), Reason(*.room), Reason(.status.as_ref()))]
pub struct DeadlineError {
    pub(crate) timeout: Option<Duration>,
    pub(crate) verdict: Verdict,
    pub(crate) evidence: Evidence,
    pub(crate) peer: Peer,
    pub(crate) request: RequestProgress,
    /// What it waited for, if it waited for room.
    pub(crate) room: Option<Room>,
    #[source]
    pub(crate) status: Option<Status>,
    pub(crate) late_answer: Option<LateAnswer>,
}

/// The verdict in words. *Alive* would say too much of a peer that was only seen to read.
fn told(late: &DeadlineError) -> String {
    let slow = late.verdict == Verdict::Slow && late.status.is_none();
    if slow && late.evidence.only_reads() {
        "the peer's process reads, its answer is late; it cannot be asked for more".to_owned()
    } else {
        late.verdict.to_string()
    }
}

impl DeadlineError {
    /// Slow, dead or something on this side: the one word that the caller needs.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// How long the peer was silent, its round-trip time, which PING is unanswered.
    pub fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// What the caller had allowed. `None` if the peer ended a call that had no timeout here.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }
}
