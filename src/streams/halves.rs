//! The two halves of a streaming call: what each side may still send.
//!
//! ```text
//!   client                  half-close            the server's last frame
//!   Open ----------------------> Closed ----------------------> no entry
//!     \________________ the server's last frame ________________/
//! ```
//!
//! The server's last frame ends a stream whole (RFC KA-39), so a client never sees a stream of
//! which only the peer's half is closed, and a server never one of which only its own is.

use std::collections::HashMap;

use crate::wire::Flags;

/// What a DATA frame brings, by its flags alone: that it is empty says nothing (RFC KA-42).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    Message,
    /// A message, and none will follow it (RFC KA-43).
    Last,
    /// No message, and none will follow.
    End,
    Nothing,
}

impl Data {
    pub(crate) fn of(flags: Flags) -> Self {
        let closed = flags.contains(Flags::REMOTE_CLOSED);
        match (closed, flags.contains(Flags::NO_DATA)) {
            (false, false) => Self::Message,
            (true, false) => Self::Last,
            (true, true) => Self::End,
            (false, true) => Self::Nothing,
        }
    }
}

/// What the server may send on a client's open stream, and where it goes.
#[derive(Debug)]
pub(crate) enum PeerHalf<A, M> {
    /// One RESPONSE: the call is unary or client-streaming.
    Answer(A),
    /// Messages, and then its last frame.
    Messages(M),
}

impl<A, M> PeerHalf<A, M> {
    /// A DATA frame has come. `None` if the server may not send any: it breaks the protocol.
    pub(crate) fn handle_data(&self, flags: Flags) -> Option<(&M, Data)> {
        match self {
            Self::Answer(_) => None,
            Self::Messages(messages) => Some((messages, Data::of(flags))),
        }
    }
}

/// This side's half of a stream. Absent: nothing may be sent any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LocalHalf {
    /// Messages may follow the frame with this number.
    Open { newest: u64 },
    /// The frame with this number is this side's last.
    Closed { newest: u64 },
}

impl LocalHalf {
    pub(crate) fn newest(self) -> u64 {
        match self {
            Self::Open { newest } | Self::Closed { newest } => newest,
        }
    }
}

/// The requests of which a server still takes messages, with where these go. A stream whose client
/// has sent its half-close is in here no more.
#[derive(Debug)]
pub(crate) struct Uploads<M> {
    open: HashMap<u32, M>,
}

/// What a DATA frame means to a server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Upload<'a, M> {
    Message(&'a M),
    Last(M),
    End(M),
    Nothing,
    /// The stream is unknown, takes no messages, or its client has said that none will follow.
    Unknown,
}

impl<M> Default for Uploads<M> {
    fn default() -> Self {
        Self {
            open: HashMap::new(),
        }
    }
}

impl<M> Uploads<M> {
    pub(crate) fn open(&mut self, id: u32, messages: M) {
        self.open.insert(id, messages);
    }

    pub(crate) fn handle_data(&mut self, id: u32, flags: Flags) -> Upload<'_, M> {
        let data = Data::of(flags);
        let taken = match data {
            Data::Message => return self.open.get(&id).map_or(Upload::Unknown, Upload::Message),
            Data::Nothing if self.open.contains_key(&id) => return Upload::Nothing,
            Data::Nothing => None,
            Data::Last | Data::End => self.open.remove(&id),
        };
        match taken {
            Some(messages) if data == Data::Last => Upload::Last(messages),
            Some(messages) => Upload::End(messages),
            None => Upload::Unknown,
        }
    }

    /// Takes no more messages of this stream: the server has ended it.
    pub(crate) fn close(&mut self, id: u32) -> Option<M> {
        self.open.remove(&id)
    }

    /// The connection has ended.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = M> + '_ {
        self.open.drain().map(|(_, messages)| messages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOSED: Flags = Flags::REMOTE_CLOSED;
    const NO_DATA: Flags = Flags::NO_DATA;

    #[test]
    fn every_data_frame_in_every_state_of_a_client() {
        let answer: PeerHalf<(), &str> = PeerHalf::Answer(());
        let messages: PeerHalf<(), &str> = PeerHalf::Messages("queue");
        for (flags, expected) in [
            (Flags::NONE, Data::Message),
            (CLOSED, Data::Last),
            (CLOSED | NO_DATA, Data::End),
            (NO_DATA, Data::Nothing),
            (Flags::REMOTE_OPEN, Data::Message),
            (Flags::from(0xF8), Data::Message),
        ] {
            assert_eq!(answer.handle_data(flags), None, "{flags:?}");
            let found = messages.handle_data(flags);
            assert_eq!(found, Some((&"queue", expected)), "{flags:?}");
        }
    }

    #[test]
    fn every_data_frame_in_every_state_of_a_server() {
        // In this order: a stream that is open, the same one after its half-close, an unknown one.
        let open = || {
            let mut uploads = Uploads::default();
            uploads.open(1, "queue");
            uploads
        };
        for (flags, expected, stays_open) in [
            (Flags::NONE, Upload::Message(&"queue"), true),
            (CLOSED, Upload::Last("queue"), false),
            (CLOSED | NO_DATA, Upload::End("queue"), false),
            (NO_DATA, Upload::Nothing, true),
        ] {
            let mut uploads = open();
            assert_eq!(uploads.handle_data(3, flags), Upload::Unknown, "{flags:?}");
            assert_eq!(uploads.handle_data(1, flags), expected, "{flags:?}");
            assert_eq!(uploads.close(1).is_some(), stays_open, "{flags:?}");
            for again in [Flags::NONE, CLOSED, CLOSED | NO_DATA, NO_DATA] {
                assert_eq!(uploads.handle_data(1, again), Upload::Unknown, "{again:?}");
            }
        }
    }
}
