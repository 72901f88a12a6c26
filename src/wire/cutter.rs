//! Where frames begin and end in bytes that come in pieces of any size.

use super::decoder::ProtocolError;
use super::header::{Header, LENGTH_LIMIT, PartialHeader};

/// Cuts a byte stream into headers and pieces of payload, and keeps no payload.
///
/// The [`Decoder`](super::Decoder) gives whole frames, and drops those that are not for it. This is
/// for who passes frames on: a layer, or a multiplexer that gives its connections turns between their
/// frames. A frame of 4 MiB passes as it comes, and one of an unknown type like the others.
///
/// ```
/// use ttrpc_keepalive::wire::{Cut, Cutter, ping};
///
/// // Two frames, written as a stream may take them.
/// let frames = [ping(1), ping(2)].concat();
/// let mut cutter = Cutter::new();
/// let mut begins = Vec::new();
/// for piece in frames.chunks(7) {
///     let mut input = piece;
///     loop {
///         match cutter.cut(&mut input, usize::MAX)? {
///             Cut::Header(header) => begins.push(header.message_type),
///             Cut::Payload(_) => {}
///             Cut::Nothing => break,
///         }
///     }
/// }
/// assert_eq!(begins.len(), 2);
/// assert!(cutter.is_between_frames(), "another connection may have its turn here");
/// # Ok::<(), ttrpc_keepalive::wire::ProtocolError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Cutter {
    header: PartialHeader,
    /// Bytes of the present frame's payload that are still to come.
    remaining: usize,
    failed: Option<ProtocolError>,
}

/// The front of what was given to a [`Cutter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "a frame has a header and a payload, and whoever passes it on must pass on all of it"
)]
pub enum Cut<'a> {
    /// Nothing, or a part of a header: the input is used up.
    Nothing,
    /// A header is complete. If its length is 0, so is its frame.
    Header(Header),
    /// A piece of the payload of the present frame.
    Payload(&'a [u8]),
}

impl Cutter {
    /// A cutter at the beginning of a connection, in one of its directions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes one header, or at most `most` bytes of one payload, from the front of the input.
    ///
    /// # Errors
    ///
    /// The bytes are not ttrpc, or not any more (RFC KA-5). The cutter repeats the error from then on
    /// and takes no more input.
    pub fn cut<'a>(&mut self, input: &mut &'a [u8], most: usize) -> Result<Cut<'a>, ProtocolError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if self.remaining > 0 {
            let length = self.remaining.min(most).min(input.len());
            let (payload, rest) = input.split_at(length);
            *input = rest;
            self.remaining -= length;
            return Ok(match payload {
                [] => Cut::Nothing,
                payload => Cut::Payload(payload),
            });
        }
        let Some(header) = self.header.fill(input) else {
            return Ok(Cut::Nothing);
        };
        if header.length >= LENGTH_LIMIT {
            let error = ProtocolError::new(&header);
            self.failed = Some(error);
            return Err(error);
        }
        self.remaining = header.payload_length();
        Ok(Cut::Header(header))
    }

    /// Whether the present frame, if there is one, has come as a whole.
    #[must_use]
    pub fn is_between_frames(&self) -> bool {
        self.header.is_empty() && self.remaining == 0 && self.failed.is_none()
    }

    /// Bytes of the present frame's payload that are still to come.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.remaining
    }

    /// The bytes of a header that is not complete.
    #[must_use]
    pub fn partial_header(&self) -> &[u8] {
        self.header.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::ping;
    use super::super::header::HEADER_LENGTH;
    use super::*;

    /// What passes through a cutter in these pieces: its bytes, and where frames begin.
    fn passed(pieces: &[&[u8]], most: usize) -> (Vec<u8>, Vec<usize>) {
        let mut cutter = Cutter::new();
        let (mut bytes, mut begins) = (Vec::new(), Vec::new());
        for piece in pieces {
            let mut input = *piece;
            loop {
                match cutter.cut(&mut input, most).unwrap() {
                    Cut::Nothing => break,
                    Cut::Header(header) => {
                        begins.push(bytes.len());
                        bytes.extend_from_slice(&header.encode());
                    }
                    Cut::Payload(payload) => {
                        assert!(payload.len() <= most);
                        bytes.extend_from_slice(payload);
                    }
                }
            }
            assert!(input.is_empty());
        }
        bytes.extend_from_slice(cutter.partial_header());
        (bytes, begins)
    }

    #[test]
    fn any_chunking_gives_the_same_frames_and_loses_no_byte() {
        let frames = [ping(1), ping(2)].concat();
        let second = HEADER_LENGTH + 8;
        for cut in 0..=frames.len() {
            for most in [1, 3, usize::MAX] {
                let (first, rest) = frames.split_at(cut);
                let (bytes, begins) = passed(&[first, rest], most);
                assert_eq!((bytes, begins), (frames.clone().to_vec(), vec![0, second]));
                let (bytes, _) = passed(&[first], most);
                assert_eq!(bytes, first, "a torn stream stays what it is");
            }
        }
    }

    // Who gives connections turns must know how long a frame is before it takes some of it.
    #[test]
    fn a_clone_looks_ahead_and_takes_nothing() {
        let frame = ping(1);
        let mut cutter = Cutter::new();
        assert_eq!(cutter.cut(&mut &frame[..7], 1), Ok(Cut::Nothing));
        let mut ahead = cutter.clone();
        let found = ahead.cut(&mut &frame[7..], usize::MAX);
        assert!(matches!(found, Ok(Cut::Header(_))), "{found:?}");
        assert_eq!((ahead.remaining(), cutter.remaining()), (8, 0));
        assert_eq!(cutter.partial_header(), &frame[..7]);
    }

    #[test]
    fn what_no_ttrpc_peer_sends_is_refused_from_there_on() {
        let mut cutter = Cutter::new();
        let mut input = &b"GET / HTTP/1.1"[..];
        let error = cutter.cut(&mut input, usize::MAX).unwrap_err();
        assert!(error.to_string().contains("HTTP"), "{error}");
        let good = ping(1);
        assert_eq!(cutter.cut(&mut &good[..], usize::MAX), Err(error));
        assert!(!cutter.is_between_frames());
    }
}
