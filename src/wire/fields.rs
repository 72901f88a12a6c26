//! Fields of protobuf messages, read and written one by one.

use std::io;
use std::ops::Range;

/// The bytes of a message that is being read.
pub(super) struct Fields<'a> {
    bytes: &'a [u8],
    position: usize,
}

/// Calls `field` with each field's tag; it takes the field's value from the input.
pub(super) fn each_field<'a>(
    bytes: &'a [u8],
    mut field: impl FnMut(u32, &mut Fields<'a>) -> protobuf::Result<()>,
) -> protobuf::Result<()> {
    let mut input = Fields { bytes, position: 0 };
    while let Some(tag) = input.tag()? {
        field(tag, &mut input)?;
    }
    Ok(())
}

impl<'a> Fields<'a> {
    /// The tag of the next field, `None` at the end.
    fn tag(&mut self) -> protobuf::Result<Option<u32>> {
        if self.position == self.bytes.len() {
            return Ok(None);
        }
        self.small().map(Some)
    }

    pub(super) fn number(&mut self) -> protobuf::Result<i64> {
        let value = self.varint(10)?;
        Ok(i64::from_le_bytes(value.to_le_bytes()))
    }

    pub(super) fn text(&mut self) -> protobuf::Result<&'a str> {
        text(self.bytes()?)
    }

    pub(super) fn bytes(&mut self) -> protobuf::Result<&'a [u8]> {
        let span = self.span()?;
        Ok(&self.bytes[span])
    }

    /// Where the bytes of a field with a length are.
    pub(super) fn span(&mut self) -> protobuf::Result<Range<usize>> {
        let length = usize::try_from(self.small()?).unwrap_or(usize::MAX);
        self.take(length)
    }

    fn take(&mut self, count: usize) -> protobuf::Result<Range<usize>> {
        let start = self.position;
        if count > self.bytes.len() - start {
            return Err(malformed("the message is cut off"));
        }
        self.position += count;
        Ok(start..self.position)
    }

    /// A tag or a length.
    fn small(&mut self) -> protobuf::Result<u32> {
        u32::try_from(self.varint(5)?).map_err(|_| malformed("a number is too large"))
    }

    fn varint(&mut self, longest: usize) -> protobuf::Result<u64> {
        // Most are: tags, and lengths of names.
        if let Some(&byte @ 0..=0x7F) = self.bytes.get(self.position) {
            self.position += 1;
            return Ok(byte.into());
        }
        let mut value = 0;
        let bytes = self.bytes[self.position..].iter().take(longest);
        for (at, byte) in bytes.enumerate() {
            // The tenth byte holds the last of 64 bits.
            if at == 9 && *byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7F) << (7 * at);
            if *byte <= 0x7F {
                self.position += at + 1;
                return Ok(value);
            }
        }
        Err(malformed("a number does not end"))
    }
}

/// The value of a text field.
pub(super) fn text(bytes: &[u8]) -> protobuf::Result<&str> {
    std::str::from_utf8(bytes).map_err(|_| malformed("a text is not UTF-8"))
}

/// Skips the value of a field that is not known here, or has another type than here (RFC KA-46).
///
/// A loop, since groups nest: one level a byte, so that recursion would end in a stack overflow.
pub(super) fn skip(tag: u32, input: &mut Fields<'_>) -> protobuf::Result<()> {
    let mut open_groups = 0_usize;
    let mut tag = tag;
    loop {
        match tag & 7 {
            _ if tag >> 3 == 0 => return Err(malformed("field number 0")),
            0 => {
                input.varint(10)?;
            }
            1 => {
                input.take(8)?;
            }
            2 => {
                input.span()?;
            }
            3 => open_groups += 1,
            4 if open_groups > 0 => open_groups -= 1,
            5 => {
                input.take(4)?;
            }
            _ => return Err(malformed("a field of no known wire type")),
        }
        if open_groups == 0 {
            return Ok(());
        }
        let Some(next) = input.tag()? else {
            return Err(malformed("a group without an end"));
        };
        tag = next;
    }
}

/// Writes tag and length of a field, in front of its value.
pub(super) fn write_length(field: u32, size: usize, out: &mut Vec<u8>) {
    write_varint(text_tag(field).into(), out);
    write_varint(u64::try_from(size).unwrap_or(u64::MAX), out);
}

/// Writes a string field, unless it is empty, which is the same as absent.
pub(super) fn write_string(field: u32, text: &str, out: &mut Vec<u8>) {
    if !text.is_empty() {
        write_length(field, text.len(), out);
        out.extend_from_slice(text.as_bytes());
    }
}

/// Writes a number field, unless it is 0, which is the same as absent.
pub(super) fn write_integer(field: u32, value: i64, out: &mut Vec<u8>) {
    if value != 0 {
        write_varint((field << 3).into(), out);
        write_varint(u64::from_le_bytes(value.to_le_bytes()), out);
    }
}

fn write_varint(mut value: u64, out: &mut Vec<u8>) {
    loop {
        let [low, ..] = value.to_le_bytes();
        value >>= 7;
        if value == 0 {
            return out.push(low);
        }
        out.push(low | 0x80);
    }
}

pub(super) fn string_size(text: &str) -> usize {
    optional_size(text.len())
}

/// Bytes of a field that is left out when it is empty.
pub(super) fn optional_size(size: usize) -> usize {
    if size == 0 { 0 } else { field_size(size) }
}

/// Bytes of a field with a length: one for the tag, then length and value. No field number here is
/// above 15, so a tag is one byte.
pub(super) fn field_size(size: usize) -> usize {
    let length = varint_size(u64::try_from(size).unwrap_or(u64::MAX));
    size.saturating_add(1 + length)
}

/// Bytes of a number field, which is left out when it is 0.
pub(super) fn integer_size(value: i64) -> usize {
    if value == 0 {
        return 0;
    }
    1 + varint_size(u64::from_le_bytes(value.to_le_bytes()))
}

const fn varint_size(mut value: u64) -> usize {
    let mut size = 1;
    while value > 0x7F {
        value >>= 7;
        size += 1;
    }
    size
}

/// The tag of a field with a length: text, bytes or a message.
const fn text_tag(field: u32) -> u32 {
    field << 3 | 2
}

pub(super) const NUMBER_1: u32 = 1 << 3;
pub(super) const NUMBER_4: u32 = 4 << 3;
pub(super) const TEXT_1: u32 = text_tag(1);
pub(super) const TEXT_2: u32 = text_tag(2);
pub(super) const TEXT_3: u32 = text_tag(3);
pub(super) const TEXT_5: u32 = text_tag(5);

pub(super) fn malformed(what: impl Into<String>) -> protobuf::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into()).into()
}

/// The low 32 bits, as protobuf reads a number into an `int32`.
pub(super) fn low_half(value: i64) -> i32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left after a field has been skipped, or `None` for an error.
    fn rest_after_skip(bytes: &[u8]) -> Option<usize> {
        let mut input = Fields { bytes, position: 0 };
        let tag = input.tag().unwrap().unwrap();
        skip(tag, &mut input).ok()?;
        Some(bytes.len() - input.position)
    }

    #[test]
    fn a_field_of_every_wire_type_is_skipped_whole() {
        let table: [(&[u8], Option<usize>); 14] = [
            (b"\x78\x01", Some(0)),
            (b"\x78\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01.", Some(1)),
            (b"\x7912345678.", Some(1)),
            (b"\x7a\x03abc.", Some(1)),
            (b"\x7d1234.", Some(1)),
            (b"\x7b\x7c.", Some(1)),
            (b"\x7b\x78\x01\x7b\x7a\x01a\x7c\x7c.", Some(1)),
            (b"\x78", None),
            (b"\x791234567", None),
            (b"\x7a\x04abc", None),
            (b"\x7b\x78\x01", None),
            (b"\x7c", None),
            (b"\x7e", None),
            (b"\x02\x00", None),
        ];
        for (bytes, rest) in table {
            assert_eq!(rest_after_skip(bytes), rest, "{bytes:x?}");
        }
    }

    #[test]
    fn groups_in_a_million_groups_take_no_stack() {
        let mut bytes = vec![0x7b; 1_000_000];
        bytes.resize(2_000_000, 0x7c);
        assert_eq!(rest_after_skip(&bytes), Some(0));
    }

    #[test]
    fn sizes_are_those_that_are_written() {
        for bits in 0..64 {
            for value in [(1_u64 << bits) - 1, 1 << bits] {
                let mut written = Vec::new();
                write_varint(value, &mut written);
                assert_eq!(varint_size(value), written.len(), "{value}");
                let mut input = Fields {
                    bytes: &written,
                    position: 0,
                };
                assert_eq!(input.varint(10).unwrap(), value);
            }
        }
    }

    // As rust-protobuf has it, whose writers and readers are on the other side.
    #[test]
    fn a_number_has_as_many_bits_as_its_type() {
        let longest = [b"\xff".repeat(9), vec![1]].concat();
        let table: [(&[u8], usize, Option<u64>); 8] = [
            (b"\x00", 5, Some(0)),
            (b"\x80\x00", 5, Some(0)),
            (b"\xff\xff\xff\xff\x0f", 5, Some(u32::MAX.into())),
            (b"\x80\x80\x80\x80\x80\x00", 5, None),
            (&longest, 10, Some(u64::MAX)),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 10, None),
            (b"\x80", 10, None),
            (b"", 10, None),
        ];
        for (bytes, longest, value) in table {
            let mut input = Fields { bytes, position: 0 };
            assert_eq!(input.varint(longest).ok(), value, "{bytes:x?}");
        }
        let bytes = b"\xff\xff\xff\xff\x10";
        let mut input = Fields { bytes, position: 0 };
        assert!(input.small().is_err());
    }
}
