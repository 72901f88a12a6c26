//! How far a request had come when its call failed.

use std::fmt;

/// How far a call's request had come when the call failed: what a caller needs to know before it makes
/// the call again, on a new connection perhaps.
///
/// A call that must not be executed twice, such as one that creates something, may be repeated after
/// [`NotSent`](Self::NotSent). So may a unary one after [`PartlySent`](Self::PartlySent), since a
/// request that is cut off is never executed. After [`Sent`](Self::Sent) nobody on this side knows
/// what became of it.
///
/// For a streaming call the request is all that was queued for it, messages included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(
    clippy::exhaustive_enums,
    reason = "whoever decides by it must have an answer for each case"
)]
pub enum RequestProgress {
    /// No byte of it was written, and none will be: the peer knows nothing of it.
    NotSent,
    /// The connection ended before all of it was written. A unary request was not executed. Of a
    /// stream the peer may have taken the messages in front.
    PartlySent,
    /// All of it was given to the operating system, or will be. Whether the peer has read it, and has
    /// executed it, is unknown.
    Sent,
    /// The peer has answered, if only by a first message of a stream: it has read the request.
    Answered,
}

impl fmt::Display for RequestProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotSent => "not sent",
            Self::PartlySent => "partly sent",
            Self::Sent => "sent",
            Self::Answered => "answered",
        })
    }
}

/// What a call lacked that waited for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// Another call had to end first.
    Call { limit: usize },
    /// Bytes in front of it had to be written.
    Outbox { limit: usize },
    /// Others were in front of it.
    Turn,
}

impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call { limit } => {
                write!(f, "it waited for a call to end, of {limit} (`call_limit`)")
            }
            Self::Outbox { limit } => write!(
                f,
                "it waited for bytes to be written, of {limit} (`outbox_limit`)"
            ),
            Self::Turn => f.write_str("it waited for calls in front of it"),
        }
    }
}
