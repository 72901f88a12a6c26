//! How far a connection has come, and how its stream is ended.

use std::time::Duration;

use crate::connection::state::Closing;
use crate::error::ConnectionError;

/// How far the connection has come.
#[derive(Debug)]
pub(super) enum Stage {
    Open,
    /// It has ended for this reason, and the stream is being ended in order.
    Farewell(Farewell),
    Ended,
}

/// How a stream is ended whose connection has ended.
#[derive(Debug)]
pub(super) struct Farewell {
    pub(super) end: ConnectionError,
    pub(super) manner: Manner,
    /// When its time is over.
    pub(super) until: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// In order, and that may take a moment.
    Waits,
    /// In order as far as it goes at once.
    Once,
    /// Without a word.
    Silent,
}

impl Farewell {
    pub(super) fn new(end: &ConnectionError, closing: Closing) -> Self {
        let manner = match end {
            // Nothing is written to a peer that was convicted, and a driver that is dropped cannot
            // come back to it.
            ConnectionError::Dead { .. } | ConnectionError::Abandoned => Manner::Silent,
            _ if closing == Closing::Now => Manner::Once,
            ConnectionError::LocalClose
            | ConnectionError::PeerClosed
            | ConnectionError::Announced(None)
            | ConnectionError::Torn
            | ConnectionError::Protocol(_)
            | ConnectionError::NoRequest(_)
            | ConnectionError::HeaderTimeout(_)
            | ConnectionError::Echo => Manner::Waits,
            // The stream itself has failed.
            ConnectionError::Announced(Some(_))
            | ConnectionError::Reset(_)
            | ConnectionError::BrokenPipe(_)
            | ConnectionError::Io(_) => Manner::Once,
        };
        Self {
            end: end.clone(),
            manner,
            until: None,
        }
    }
}
