//! Message sets (`option message_set_wire_format`): each extension is a group in the binary form, which
//! has the extension's number and its message. In JSON they are messages like others.

use prost::encoding::{WireType, encode_key, encode_varint};

use super::raw::{Raw, Reader, Unwritten};
use super::wire::{delimited, delimited_field};

/// `repeated group Item = 1 { required int32 type_id = 2; required bytes message = 3; }`
const ITEM: u32 = 1;
const TYPE_ID: u32 = 2;
const MESSAGE: u32 = 3;

/// Writes one item; `write` writes its message.
pub(super) fn write_item<E>(
    number: u32,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    encode_key(ITEM, WireType::StartGroup, out);
    encode_key(TYPE_ID, WireType::Varint, out);
    encode_varint(number.into(), out);
    delimited_field(MESSAGE, out, write)?;
    encode_key(ITEM, WireType::EndGroup, out);
    Ok(())
}

/// The set with its items as plain extensions. Fields that are plain already stay.
pub(super) fn as_extensions(set: &[u8]) -> Result<Vec<u8>, Unwritten> {
    let mut out = Vec::with_capacity(set.len());
    let mut reader = Reader(set);
    while !reader.is_empty() {
        let behind = reader.0;
        match reader.field()? {
            (ITEM, Raw::Group(item)) => put_extension(Reader(item), &mut out)?,
            _ => out.extend_from_slice(&behind[..behind.len() - reader.0.len()]),
        }
    }
    Ok(out)
}

fn put_extension(mut item: Reader<'_>, out: &mut Vec<u8>) -> Result<(), Unwritten> {
    let (mut number, mut message) = (0, None);
    while !item.is_empty() {
        match item.field()? {
            (TYPE_ID, Raw::Varint(id)) => number = id,
            (MESSAGE, Raw::Bytes(bytes)) => message = Some(bytes),
            _ => {}
        }
    }
    let number = u32::try_from(number).ok().filter(|number| *number > 0);
    if let (Some(number), Some(message)) = (number, message) {
        // A key, since numbers may be larger than those of fields.
        encode_varint(u64::from(number) << 3 | WireType::LengthDelimited as u64, out);
        delimited(out, |out| {
            out.extend_from_slice(message);
            Ok::<_, Unwritten>(())
        })?;
    }
    Ok(())
}
