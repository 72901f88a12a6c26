//! Rules of streams that need no state of a connection: which ids a request may have, and what a frame of
//! data brings.

use crate::wire::{Flags, PING_STREAM_ID};

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

/// The ids of requests that a server has taken on one connection.
#[derive(Debug, Default)]
pub(crate) struct RequestIds {
    newest: u32,
}

/// Why a server does not take a request on an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error("stream id {id} is even: a client uses odd ones")]
    Even { id: u32 },
    #[error("stream id {id} is not larger than {newest}, the newest one")]
    NotLarger { id: u32, newest: u32 },
    #[error("stream id {id} is reserved for PING")]
    Reserved { id: u32 },
}

impl RequestIds {
    /// Judges the id of a request. An id is used once, so that a late frame of an old stream can
    /// never be taken for one of a new stream (RFC KA-31).
    pub(crate) fn accept(&mut self, id: u32) -> Result<(), Refused> {
        if id % 2 == 0 {
            return Err(Refused::Even { id });
        }
        // RFC KA-30. Remembering this id would refuse every later request.
        if id == PING_STREAM_ID {
            return Err(Refused::Reserved { id });
        }
        if id <= self.newest {
            return Err(Refused::NotLarger {
                id,
                newest: self.newest,
            });
        }
        self.newest = id;
        Ok(())
    }

    /// The id of the newest request, 0 before the first.
    pub(crate) fn newest(&self) -> u32 {
        self.newest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_of_a_data_frame_say_what_it_brings() {
        let (closed, no_data) = (Flags::REMOTE_CLOSED, Flags::NO_DATA);
        for (flags, expected) in [
            (Flags::NONE, Data::Message),
            (closed, Data::Last),
            (closed | no_data, Data::End),
            (no_data, Data::Nothing),
            (Flags::REMOTE_OPEN, Data::Message),
            (Flags::from(0xF8), Data::Message),
        ] {
            assert_eq!(Data::of(flags), expected, "{flags:?}");
        }
    }

    #[test]
    fn a_request_needs_an_odd_and_larger_id() {
        let mut requests = RequestIds::default();
        for (id, expected) in [
            (1, Ok(())),
            (1, Err(Refused::NotLarger { id: 1, newest: 1 })),
            (2, Err(Refused::Even { id: 2 })),
            (7, Ok(())),
            (5, Err(Refused::NotLarger { id: 5, newest: 7 })),
            (
                PING_STREAM_ID,
                Err(Refused::Reserved { id: PING_STREAM_ID }),
            ),
            (9, Ok(())),
        ] {
            assert_eq!(requests.accept(id), expected, "id {id}");
        }
    }
}
