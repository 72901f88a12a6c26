//! How much time a REQUEST gives its server, read while the REQUEST passes.

use std::time::Duration;

/// Finds `timeout_nano` in an envelope that comes in pieces, and keeps none of it.
///
/// The field may stand behind 4 MiB of message. What is no envelope has no timeout; it is for the
/// peer to refuse.
#[derive(Debug, Default)]
pub(crate) struct TimeoutScan {
    place: Place,
    number: u64,
    shift: u32,
    /// Groups that are open: fields in them are not ours.
    groups: u32,
    found: u64,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Place {
    #[default]
    Tag,
    Number {
        wanted: bool,
    },
    Length,
    Skip(u64),
    Lost,
}

/// The tag of field 4 as a number.
const TIMEOUT_NANO: u64 = 4 << 3;

impl TimeoutScan {
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) {
        while let Some((&byte, rest)) = bytes.split_first() {
            match self.place {
                Place::Skip(count) => {
                    let here = u64::try_from(bytes.len()).unwrap_or(u64::MAX).min(count);
                    bytes = &bytes[usize::try_from(here).unwrap_or(bytes.len())..];
                    self.place = skip(count - here);
                }
                Place::Lost => return,
                Place::Tag | Place::Number { .. } | Place::Length => {
                    bytes = rest;
                    self.take(byte);
                }
            }
        }
    }

    /// The limit, if there is one. An envelope without, with 0, or with a time that had passed
    /// before it was sent, has none (RFC KA-33).
    pub(crate) fn timeout(&self) -> Option<Duration> {
        // What is negative on the wire is larger than any positive number.
        let limit = i64::try_from(self.found).ok().filter(|&limit| limit > 0)?;
        let whole = self.place == Place::Tag && self.shift == 0 && self.groups == 0;
        whole.then(|| Duration::from_nanos(limit.unsigned_abs()))
    }

    /// Takes a byte of a number, and what the number says when it was the last.
    fn take(&mut self, byte: u8) {
        if self.shift > 63 {
            self.place = Place::Lost;
            return;
        }
        self.number |= u64::from(byte & 0x7F) << self.shift;
        self.shift += 7;
        if byte & 0x80 != 0 {
            return;
        }
        let number = std::mem::take(&mut self.number);
        self.shift = 0;
        self.place = match self.place {
            Place::Tag => self.after_tag(number),
            Place::Length => skip(number),
            Place::Number { wanted } => {
                if wanted {
                    self.found = number;
                }
                Place::Tag
            }
            Place::Skip(_) | Place::Lost => Place::Lost,
        };
    }

    fn after_tag(&mut self, tag: u64) -> Place {
        match tag & 7 {
            _ if tag >> 3 == 0 => Place::Lost,
            0 => Place::Number {
                wanted: tag == TIMEOUT_NANO && self.groups == 0,
            },
            1 => Place::Skip(8),
            2 => Place::Length,
            3 => {
                self.groups = self.groups.saturating_add(1);
                Place::Tag
            }
            4 if self.groups > 0 => {
                self.groups -= 1;
                Place::Tag
            }
            5 => Place::Skip(4),
            _ => Place::Lost,
        }
    }
}

fn skip(count: u64) -> Place {
    if count == 0 {
        Place::Tag
    } else {
        Place::Skip(count)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use ttrpc_keepalive::wire::{Flags, HEADER_LENGTH, Raw, RequestHead, encode_request};

    use super::*;

    fn scanned(envelope: &[u8], piece: usize) -> Option<Duration> {
        let mut scan = TimeoutScan::default();
        for bytes in envelope.chunks(piece) {
            scan.feed(bytes);
        }
        scan.timeout()
    }

    #[test]
    fn what_is_no_envelope_has_no_timeout() {
        let limit = [0x20, 5];
        for (bytes, why) in [
            (&[0x20, 0x85][..], "a number is cut"),
            (&[0x20, 5, 0x1A, 9, 1], "a message is cut"),
            (&[0x20, 5, 0x02, 0], "field 0"),
            (&[0x20, 5, 0x7E], "wire type 6"),
            (&[0x23, 0x20, 5, 0x20, 5], "a group without an end"),
            (&[0x23, 0x20, 5, 0x24], "in a group"),
            (&[0x22, 1, 5], "another wire type"),
            (&[0x20, 5, 0x20, 0], "the last one is 0"),
        ] {
            for piece in 1..=bytes.len() {
                assert_eq!(scanned(bytes, piece), None, "{why}");
            }
        }
        assert_eq!(scanned(&limit, 2), Some(Duration::from_nanos(5)));
    }

    proptest! {
        #[test]
        fn the_limit_of_a_request_is_found_however_it_comes(
            timeout_nano in prop_oneof![Just(0), any::<i64>(), 1..9_i64],
            message in vec(any::<u8>(), 0..300),
            texts in vec(".{0,9}", 4),
            piece in 1..50_usize,
        ) {
            let metadata = [(texts[2].clone(), texts[3].clone())];
            let head = RequestHead {
                service: &texts[0],
                method: &texts[1],
                timeout_nano,
                metadata: &metadata,
            };
            let frame = encode_request(1, Flags::NONE, &head, &Raw(&message)).unwrap();
            let limit = u64::try_from(timeout_nano).ok().filter(|&limit| limit > 0);
            let found = scanned(&frame[HEADER_LENGTH..], piece);
            prop_assert_eq!(found, limit.map(Duration::from_nanos));
        }
    }
}
