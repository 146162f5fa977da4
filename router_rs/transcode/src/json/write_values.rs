//! Converts `google.protobuf.Struct`, `ListValue` and `Value` to the JSON that they encode.

use super::raw::{Raw, Reader, Written, check_depth, wrong};
use super::text::{put, write_json, write_string};
use super::values;
use crate::well_known::Holder;

/// Writes any JSON that is encoded as messages.
pub(super) fn write_holder(
    holder: Holder,
    bytes: &[u8],
    depth: usize,
    out: &mut Vec<u8>,
) -> Written {
    check_depth(depth)?;
    let mut reader = Reader(bytes);
    let mut is_first = true;
    match holder {
        Holder::Value => return write_any_json(reader, depth, out),
        Holder::List => {
            out.push(b'[');
            while !reader.is_empty() {
                if let (values::VALUES, Raw::Bytes(value)) = reader.field()? {
                    separate(&mut is_first, out);
                    write_holder(Holder::Value, value, depth + 1, out)?;
                }
            }
            out.push(b']');
        }
        Holder::Struct => {
            out.push(b'{');
            while !reader.is_empty() {
                if let (values::FIELDS, Raw::Bytes(entry)) = reader.field()? {
                    separate(&mut is_first, out);
                    write_member(Reader(entry), depth, out)?;
                }
            }
            out.push(b'}');
        }
    }
    Ok(())
}

fn separate(is_first: &mut bool, out: &mut Vec<u8>) {
    if !std::mem::take(is_first) {
        out.push(b',');
    }
}

fn write_member(mut entry: Reader<'_>, depth: usize, out: &mut Vec<u8>) -> Written {
    let (mut key, mut value): (&[u8], &[u8]) = (b"", b"");
    while !entry.is_empty() {
        match entry.field()? {
            (values::ENTRY_KEY, Raw::Bytes(bytes)) => key = bytes,
            (values::ENTRY_VALUE, Raw::Bytes(bytes)) => value = bytes,
            _ => {}
        }
    }
    write_string(key, out)?;
    out.push(b':');
    write_holder(Holder::Value, value, depth + 2, out)
}

fn write_any_json(mut reader: Reader<'_>, depth: usize, out: &mut Vec<u8>) -> Written {
    // The last member of a oneof counts.
    let mut last = None;
    while !reader.is_empty() {
        let (number, raw) = reader.field()?;
        if (values::NULL..=values::LIST).contains(&number) {
            last = Some((number, raw));
        }
    }
    match last {
        None | Some((values::NULL, _)) => out.extend_from_slice(b"null"),
        Some((values::NUMBER, Raw::SixtyFourBit(bytes))) => {
            let number = f64::from_le_bytes(bytes);
            if !number.is_finite() {
                let text = "cannot serialize non-finite double in google.protobuf.Value";
                return Err(wrong(text));
            }
            write_json(&number, out);
        }
        Some((values::STRING, Raw::Bytes(text))) => write_string(text, out)?,
        Some((values::BOOL, Raw::Varint(value))) => put(out, format_args!("{}", value != 0)),
        Some((values::STRUCT, Raw::Bytes(bytes))) => {
            write_holder(Holder::Struct, bytes, depth + 1, out)?;
        }
        Some((values::LIST, Raw::Bytes(bytes))) => {
            write_holder(Holder::List, bytes, depth + 1, out)?;
        }
        Some(_) => return Err(wrong("invalid wire type")),
    }
    Ok(())
}
