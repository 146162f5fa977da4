//! Converts protobuf's binary form to JSON while reading, without a message in between.
//!
//! It wants what every encoder makes: the fields of a message in the order of their numbers, each
//! in the form of its kind, and one of a oneof. A legal message that is otherwise is [`Unwritten::Unusual`], and put in order first.

use prost::encoding::WireType;
use prost_reflect::{DescriptorPool, Kind, MessageDescriptor, OneofDescriptor};
use smallvec::SmallVec;

use super::field::{Field, Shape, is_known};
use super::forms::wrapped;
use super::message_set::as_extensions;
use super::pieces::ordered;
use super::raw::{Raw, Reader, Unwritten, Written, check_depth, wrong};
use super::scalars::wire_type;
use super::text::write_text;
use super::write_forms::{
    parts_of_any, write_duration, write_mask, write_timestamp, write_wrapper,
};
use super::write_scalars::{default_of, write_scalar};
use super::write_values::write_holder;
use crate::presence::is_message_set;
use crate::well_known::{Form, TYPE, VALUE, type_of};

/// A field of a message with all its values.
struct Run<'a> {
    field: Field,
    first: Raw<'a>,
    /// The bytes after the first value; of other fields only unknown ones are among them.
    rest: Reader<'a>,
}

/// Calls `write` for each field present, in the order of numbers.
fn each_field<'a>(
    descriptor: &MessageDescriptor,
    bytes: &'a [u8],
    mut write: impl FnMut(Run<'a>) -> Written,
) -> Written {
    let mut reader = Reader(bytes);
    let mut last_number = 0;
    let mut oneofs: SmallVec<[OneofDescriptor; 1]> = SmallVec::new();
    while !reader.is_empty() {
        let (number, first) = reader.field()?;
        let Some(field) = Field::numbered(descriptor, number) else { continue };
        if number <= last_number || !field.takes(first) {
            return Err(Unwritten::Unusual);
        }
        last_number = number;
        if let Some(oneof) = field.oneof() {
            if oneofs.contains(&oneof) {
                return Err(Unwritten::Unusual);
            }
            oneofs.push(oneof);
        }
        let behind = reader;
        while reader.next_number()? == number {
            if !field.takes(reader.field()?.1) {
                return Err(Unwritten::Unusual);
            }
        }
        let rest = Reader(&behind.0[..behind.0.len() - reader.0.len()]);
        write(Run { field, first, rest })?;
    }
    Ok(())
}

/// Writes a message; `depth`: how many messages enclose it.
pub(super) fn write_message(
    descriptor: &MessageDescriptor,
    bytes: &[u8],
    depth: usize,
    out: &mut Vec<u8>,
) -> Written {
    check_depth(depth)?;
    match Form::of(descriptor) {
        None => {
            out.push(b'{');
            write_fields(descriptor, bytes, depth, true, out)?;
            out.push(b'}');
            Ok(())
        }
        Some(Form::Any) => write_any(descriptor.parent_pool(), bytes, depth, out),
        Some(Form::Json(holder)) => write_holder(holder, bytes, depth, out),
        Some(Form::Timestamp) => write_timestamp(bytes, out),
        Some(Form::Duration) => write_duration(bytes, out),
        Some(Form::Mask) => write_mask(bytes, out),
        Some(Form::Wrapper) => write_wrapper(&wrapped(descriptor), bytes, out),
    }
}

/// Writes the fields of the contained message beside its type, or the message as `value` if it has
/// a special form.
fn write_any(pool: &DescriptorPool, bytes: &[u8], depth: usize, out: &mut Vec<u8>) -> Written {
    let (type_url, value) = parts_of_any(bytes)?;
    if type_url.is_empty() && value.is_empty() {
        out.extend_from_slice(b"{}");
        return Ok(());
    }
    let descriptor = type_of(pool, type_url).ok_or_else(|| {
        wrong(&format!("the type {type_url:?} of what is in an Any is unknown here"))
    })?;
    out.push(b'{');
    write_text(TYPE, out);
    out.push(b':');
    write_text(type_url, out);
    if Form::of(&descriptor).is_some() {
        out.push(b',');
        write_text(VALUE, out);
        out.push(b':');
        write_message(&descriptor, value, depth + 1, out)?;
    } else {
        // They are one message, so they become one object in JSON.
        write_fields(&descriptor, value, depth, false, out)?;
    }
    out.push(b'}');
    Ok(())
}

/// Writes the members inside a message's braces; `is_first`: none precede them.
fn write_fields(
    descriptor: &MessageDescriptor,
    bytes: &[u8],
    depth: usize,
    is_first: bool,
    out: &mut Vec<u8>,
) -> Written {
    check_depth(depth)?;
    let set = if is_message_set(descriptor) { Some(as_extensions(bytes)?) } else { None };
    let bytes = set.as_deref().unwrap_or(bytes);
    let start = out.len();
    match write_ordered(descriptor, bytes, depth, is_first, out) {
        Err(Unwritten::Unusual) => {
            out.truncate(start);
            write_ordered(descriptor, &ordered(descriptor, bytes)?, depth, is_first, out)
        }
        written => written,
    }
}

fn write_ordered(
    descriptor: &MessageDescriptor,
    bytes: &[u8],
    depth: usize,
    mut is_first: bool,
    out: &mut Vec<u8>,
) -> Written {
    each_field(descriptor, bytes, |run| {
        let start = out.len();
        if !is_first {
            out.push(b',');
        }
        write_text(run.field.json_name(), out);
        out.push(b':');
        if write_field(&run, depth, out)? {
            is_first = false;
        } else {
            out.truncate(start);
        }
        Ok(())
    })
}

/// Writes the value of one field of a message, its default if it is absent.
pub(super) fn write_one(
    descriptor: &MessageDescriptor,
    bytes: &[u8],
    name: &str,
    out: &mut Vec<u8>,
) -> Written {
    match find_one(descriptor, bytes, name, out) {
        Err(Unwritten::Unusual) => {
            out.clear();
            find_one(descriptor, &ordered(descriptor, bytes)?, name, out)?;
        }
        found => found?,
    }
    let Some(field) = Field::named(descriptor, name).filter(|_| out.is_empty()) else {
        return Ok(());
    };
    match field.shape() {
        Shape::List => out.extend_from_slice(b"[]"),
        Shape::Map => out.extend_from_slice(b"{}"),
        Shape::Single if field.supports_presence() => out.extend_from_slice(b"null"),
        Shape::Single => write_value(&field.kind(), default_of(&field.kind()), 0, out)?,
    }
    Ok(())
}

/// Like [`write_one`], but writes nothing for a default.
fn find_one(
    descriptor: &MessageDescriptor,
    bytes: &[u8],
    name: &str,
    out: &mut Vec<u8>,
) -> Written {
    each_field(descriptor, bytes, |run| {
        if run.field.json_name() == name && !write_field(&run, 0, out)? {
            out.clear();
        }
        Ok(())
    })
}

/// Writes the value of a field; false: it is its default, and is left out.
fn write_field(run: &Run<'_>, depth: usize, out: &mut Vec<u8>) -> Result<bool, Unwritten> {
    let kind = run.field.kind();
    match run.field.shape() {
        Shape::Map => {
            return write_entries(run, &kind, depth, out);
        }
        Shape::List => return write_elements(run, &kind, depth, out),
        Shape::Single => {}
    }
    let mut value = run.first;
    let mut rest = run.rest;
    while !rest.is_empty() {
        if kind.as_message().is_some() {
            // Both parts together are the message.
            return Err(Unwritten::Unusual);
        }
        value = rest.field()?.1;
    }
    if !run.field.supports_presence() && is_default(value) {
        return Ok(false);
    }
    write_value(&kind, value, depth, out)?;
    Ok(true)
}

fn is_default(value: Raw<'_>) -> bool {
    match value {
        Raw::Varint(value) => value == 0,
        Raw::SixtyFourBit(bytes) => bytes == [0; 8],
        Raw::ThirtyTwoBit(bytes) => bytes == [0; 4],
        Raw::Bytes(bytes) | Raw::Group(bytes) => bytes.is_empty(),
    }
}

/// False: the list is empty.
fn write_elements(
    run: &Run<'_>,
    kind: &Kind,
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<bool, Unwritten> {
    let element_type = wire_type(kind);
    let mut is_empty = true;
    out.push(b'[');
    let mut write_next = |value, out: &mut Vec<u8>| {
        if matches!(value, Raw::Varint(number) if !is_known(kind, number)) {
            return Ok(());
        }
        if !std::mem::take(&mut is_empty) {
            out.push(b',');
        }
        write_value(kind, value, depth, out)
    };
    let (mut value, mut rest) = (run.first, run.rest);
    loop {
        match value {
            // Packed; both forms are accepted for both declarations.
            Raw::Bytes(bytes) if element_type != WireType::LengthDelimited => {
                let mut packed = Reader(bytes);
                while !packed.is_empty() {
                    let value = packed.value(element_type)?;
                    write_next(value, out)?;
                }
            }
            value => write_next(value, out)?,
        }
        if rest.is_empty() {
            break;
        }
        value = rest.field()?.1;
    }
    out.push(b']');
    Ok(!is_empty)
}

/// False: it has no entry.
///
/// A duplicate key is written twice. JSON's readers use the last one, which is the correct meaning.
fn write_entries(
    run: &Run<'_>,
    kind: &Kind,
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<bool, Unwritten> {
    let entry = kind.as_message().expect("invariant: a map has entries");
    let (key_field, value_field) = (entry.map_entry_key_field(), entry.map_entry_value_field());
    let (key_kind, value_kind) = (key_field.kind(), value_field.kind());
    let (default_key, default_value) = (default_of(&key_kind), default_of(&value_kind));
    out.push(b'{');
    let mut is_first = true;
    let (mut raw, mut rest) = (run.first, run.rest);
    loop {
        let Raw::Bytes(bytes) = raw else { return Err(wrong("invalid wire type")) };
        let (mut key, mut value, mut reader) = (default_key, default_value, Reader(bytes));
        while !reader.is_empty() {
            let (number, raw) = reader.field()?;
            if number == key_field.number() {
                key = raw;
            } else if number == value_field.number() {
                value = raw;
            }
        }
        if !matches!(value, Raw::Varint(number) if !is_known(&value_kind, number)) {
            if !std::mem::take(&mut is_first) {
                out.push(b',');
            }
            write_key(&key_kind, key, depth, out)?;
            out.push(b':');
            // The entry counts as a nesting level.
            write_value(&value_kind, value, depth + 1, out)?;
        }
        if rest.is_empty() {
            break;
        }
        raw = rest.field()?.1;
    }
    out.push(b'}');
    Ok(!is_first)
}

/// Keys are strings.
fn write_key(kind: &Kind, key: Raw<'_>, depth: usize, out: &mut Vec<u8>) -> Written {
    let start = out.len();
    write_value(kind, key, depth, out)?;
    if out.get(start) != Some(&b'"') {
        out.insert(start, b'"');
        out.push(b'"');
    }
    Ok(())
}

fn write_value(kind: &Kind, value: Raw<'_>, depth: usize, out: &mut Vec<u8>) -> Written {
    match (kind, value) {
        (Kind::Message(inner), Raw::Bytes(bytes) | Raw::Group(bytes)) => {
            write_message(inner, bytes, depth + 1, out)?;
        }
        _ => write_scalar(kind, value, out)?,
    }
    Ok(())
}
