//! Where frames begin and end in bytes that come in pieces of any size.

use ttrpc_keepalive::wire::{Decoder, HEADER_LENGTH, Header, LENGTH_LIMIT, ProtocolError};

/// Cuts a byte stream into headers and pieces of payload, and keeps no payload.
///
/// The [`Decoder`] of the crate below gives whole frames, and drops those that are not for it. A
/// layer passes on what it does not understand, and a frame of 4 MiB as it comes.
#[derive(Debug, Default)]
pub(crate) struct Cutter {
    head: [u8; HEADER_LENGTH],
    /// How many bytes of `head` are here; less than all of them between calls.
    filled: usize,
    /// Bytes of the present frame's payload that are still to come.
    remaining: usize,
}

/// What the front of the input was.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Cut<'a> {
    /// Nothing, or a part of a header: the input is used up.
    Nothing,
    /// A header is complete. If its length is 0, so is its frame.
    Head(Header),
    /// A piece of the payload of the present frame.
    Payload(&'a [u8]),
}

impl Cutter {
    /// Takes one header, or at most `most` bytes of one payload, from the front of the input.
    pub(crate) fn cut<'a>(
        &mut self,
        input: &mut &'a [u8],
        most: usize,
    ) -> Result<Cut<'a>, ProtocolError> {
        if self.remaining > 0 {
            let payload = take(input, self.remaining.min(most));
            self.remaining -= payload.len();
            return Ok(if payload.is_empty() {
                Cut::Nothing
            } else {
                Cut::Payload(payload)
            });
        }
        let bytes = take(input, HEADER_LENGTH - self.filled);
        let end = self.filled + bytes.len();
        self.head[self.filled..end].copy_from_slice(bytes);
        self.filled = end;
        if end < HEADER_LENGTH {
            return Ok(Cut::Nothing);
        }
        let header = Header::decode(&self.head);
        if header.length >= LENGTH_LIMIT {
            // RFC KA-5. The header stays: whatever comes is refused for the same reason.
            return Err(refusal(&self.head));
        }
        self.filled = 0;
        self.remaining = usize::try_from(header.length).unwrap_or(usize::MAX);
        Ok(Cut::Head(header))
    }

    /// Whether the present frame, if there is one, has come as a whole.
    pub(crate) fn is_between_frames(&self) -> bool {
        self.filled == 0 && self.remaining == 0
    }

    /// Bytes of the present frame's payload that are still to come.
    pub(crate) fn remaining(&self) -> usize {
        self.remaining
    }

    /// The bytes of a header that is not complete.
    pub(crate) fn partial_head(&self) -> &[u8] {
        &self.head[..self.filled]
    }
}

/// What the crate below says of such a header.
fn refusal(head: &[u8; HEADER_LENGTH]) -> ProtocolError {
    match Decoder::new().decode(&mut &head[..]) {
        Err(refusal) => refusal,
        Ok(_) => unreachable!("a length of {LENGTH_LIMIT} or more is refused"),
    }
}

fn take<'a>(input: &mut &'a [u8], most: usize) -> &'a [u8] {
    let (taken, rest) = input.split_at(most.min(input.len()));
    *input = rest;
    taken
}
