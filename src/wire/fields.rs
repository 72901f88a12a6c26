//! Fields of protobuf messages, read and written one by one.

use std::io;

use bytes::Bytes;
use protobuf::{CodedInputStream, CodedOutputStream};

/// Calls `field` with each field's tag; it takes the field's value from the input.
pub(super) fn each_field(
    bytes: &Bytes,
    mut field: impl FnMut(u32, &mut CodedInputStream<'_>) -> protobuf::Result<()>,
) -> protobuf::Result<()> {
    let mut input = CodedInputStream::from_tokio_bytes(bytes);
    while let Some(tag) = input.read_raw_tag_or_eof()? {
        field(tag, &mut input)?;
    }
    Ok(())
}

/// Skips the value of a field that is not known here, or has another type than here (RFC KA-46).
///
/// A loop, since groups nest: one level a byte, so that recursion would end in a stack overflow.
/// Versions of rust-protobuf before 3.7.2 do that.
pub(super) fn skip(tag: u32, input: &mut CodedInputStream<'_>) -> protobuf::Result<()> {
    let mut open_groups = 0_usize;
    let mut tag = tag;
    loop {
        match tag & 7 {
            _ if tag >> 3 == 0 => return Err(malformed("field number 0")),
            0 => drop(input.read_raw_varint64()?),
            1 => input.skip_raw_bytes(8)?,
            2 => {
                let length = input.read_raw_varint32()?;
                input.skip_raw_bytes(length)?;
            }
            3 => open_groups += 1,
            4 if open_groups > 0 => open_groups -= 1,
            5 => input.skip_raw_bytes(4)?,
            _ => return Err(malformed("a field of no known wire type")),
        }
        if open_groups == 0 {
            return Ok(());
        }
        let Some(next) = input.read_raw_tag_or_eof()? else {
            return Err(malformed("a group without an end"));
        };
        tag = next;
    }
}

pub(super) fn write_length(
    field: u32,
    size: usize,
    out: &mut CodedOutputStream<'_>,
) -> protobuf::Result<()> {
    out.write_raw_varint32(text_tag(field))?;
    out.write_raw_varint64(u64::try_from(size).unwrap_or(u64::MAX))
}

/// Writes a string field, unless it is empty, which is the same as absent.
pub(super) fn write_string(
    field: u32,
    text: &str,
    out: &mut CodedOutputStream<'_>,
) -> protobuf::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    out.write_string(field, text)
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
    fn rest_after_skip(bytes: &[u8]) -> Option<u64> {
        let bytes = Bytes::copy_from_slice(bytes);
        let mut input = CodedInputStream::from_tokio_bytes(&bytes);
        let tag = input.read_raw_tag_or_eof().unwrap().unwrap();
        skip(tag, &mut input).ok()?;
        Some(u64::try_from(bytes.len()).unwrap() - input.pos())
    }

    #[test]
    fn a_field_of_every_wire_type_is_skipped_whole() {
        let table: [(&[u8], Option<u64>); 14] = [
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
                let mut out = CodedOutputStream::vec(&mut written);
                out.write_raw_varint64(value).unwrap();
                drop(out);
                assert_eq!(varint_size(value), written.len(), "{value}");
            }
        }
    }
}
