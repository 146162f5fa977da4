//! Writes pieces of protobuf's binary form, one after the other.

use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};

/// Writes something preceded by its size.
///
/// The size is inserted once it is known. Only data longer than 127 bytes is moved for that, once
/// for each enclosing message; the depth of those is bounded.
pub(super) fn delimited<T, E>(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<T, E>,
) -> Result<T, E> {
    let start = out.len() + 1;
    out.push(0);
    let written = write(out)?;
    let end = out.len();
    let size = (end - start) as u64;
    let prefix_bytes = encoded_len_varint(size);
    if prefix_bytes > 1 {
        out.resize(end + prefix_bytes - 1, 0);
        out.copy_within(start..end, start + prefix_bytes - 1);
    }
    encode_varint(size, &mut &mut out[start - 1..start - 1 + prefix_bytes]);
    Ok(written)
}

/// Like [`delimited`], preceded by the key of a field.
pub(super) fn delimited_field<T, E>(
    number: u32,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<T, E>,
) -> Result<T, E> {
    encode_key(number, WireType::LengthDelimited, out);
    delimited(out, write)
}

pub(super) fn text_field(number: u32, text: &str, out: &mut Vec<u8>) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}
