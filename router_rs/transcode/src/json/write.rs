//! Protobuf's binary form becomes JSON as it is read, without a message in between.
//!
//! It wants what every encoder makes: the fields of a message in the order of their numbers, and
//! one of a oneof. What is legal and otherwise is [`Unwritten::Unusual`], for a reader that holds
//! the message.

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use prost::encoding::WireType;
use prost_reflect::{EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor, OneofDescriptor};
use smallvec::SmallVec;

use super::raw::{Raw, Reader, Unwritten, Written, wrong};
use super::reflected::{self, DEPTH_MAX, Typed};
use super::scalars::wire_type;
use super::text::{put, write_json, write_string, write_text};
use super::values::Holder;
use super::write_values::write_holder;
use crate::well_known::is_well_known;

/// A field of a message and all that stands there for it.
struct Run<'a> {
    field: FieldDescriptor,
    first: Raw<'a>,
    /// What follows the first value, and nothing of other fields unless they are unknown.
    rest: Reader<'a>,
}

/// Calls `write` for each field that is there, in the order of numbers.
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
        let Some(field) = descriptor.get_field(number) else {
            if descriptor.get_extension(number).is_some() {
                return Err(Unwritten::Unusual);
            }
            continue;
        };
        if number <= last_number {
            return Err(Unwritten::Unusual);
        }
        last_number = number;
        if let Some(oneof) = field.containing_oneof() {
            if oneofs.contains(&oneof) {
                return Err(Unwritten::Unusual);
            }
            oneofs.push(oneof);
        }
        let behind = reader;
        while reader.next_number()? == number {
            reader.field()?;
        }
        let rest = Reader(&behind.0[..behind.0.len() - reader.0.len()]);
        write(Run { field, first, rest })?;
    }
    Ok(())
}

/// Writes a message; `depth`: how many are around it.
pub(super) fn write_message(
    descriptor: &MessageDescriptor,
    bytes: &[u8],
    depth: usize,
    out: &mut Vec<u8>,
) -> Written {
    if depth > DEPTH_MAX {
        return Err(wrong("recursion limit reached"));
    }
    if let Some(holder) = Holder::of(descriptor) {
        return write_holder(holder, bytes, depth, out);
    }
    if is_well_known(descriptor) {
        let of = Typed { descriptor, holds_any: true };
        let written = reflected::write(of, bytes, depth + 1).map_err(Unwritten::Refused)?;
        out.extend(written);
        return Ok(());
    }
    let mut is_first = true;
    out.push(b'{');
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
    })?;
    out.push(b'}');
    Ok(())
}

/// Writes the value of one field of a message; false: the field has its default.
pub(super) fn write_one(
    descriptor: &MessageDescriptor,
    bytes: &[u8],
    name: &str,
    out: &mut Vec<u8>,
) -> Result<bool, Unwritten> {
    let mut is_there = false;
    each_field(descriptor, bytes, |run| {
        if run.field.json_name() == name {
            is_there = write_field(&run, 0, out)?;
        }
        Ok(())
    })?;
    Ok(is_there)
}

/// Writes the value of a field; false: it is its default, and says nothing.
fn write_field(run: &Run<'_>, depth: usize, out: &mut Vec<u8>) -> Result<bool, Unwritten> {
    let kind = run.field.kind();
    if run.field.is_map() {
        write_entries(run, &kind, depth, out)?;
        return Ok(true);
    }
    if run.field.is_list() {
        return write_elements(run, &kind, depth, out);
    }
    let mut value = run.first;
    let mut rest = run.rest;
    while !rest.is_empty() {
        if kind.as_message().is_some() {
            // Both together are the message.
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
        Raw::Bytes(bytes) => bytes.is_empty(),
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
        if !std::mem::take(&mut is_empty) {
            out.push(b',');
        }
        write_value(kind, value, depth, out)
    };
    let (mut value, mut rest) = (run.first, run.rest);
    loop {
        match value {
            // Packed; either form is good for either declaration.
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

/// A key that is there twice is written twice, which JSON's readers understand as it is meant: the
/// last one counts.
fn write_entries(run: &Run<'_>, kind: &Kind, depth: usize, out: &mut Vec<u8>) -> Written {
    let entry = kind.as_message().expect("invariant: a map has entries");
    let (key_field, value_field) = (entry.map_entry_key_field(), entry.map_entry_value_field());
    let (key_kind, value_kind) = (key_field.kind(), value_field.kind());
    let (default_key, default_value) = (default_of(&key_kind), default_of(&value_kind));
    out.push(b'{');
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
        write_key(&key_kind, key, depth, out)?;
        out.push(b':');
        // In it the entry counts as a message.
        write_value(&value_kind, value, depth + 1, out)?;
        if rest.is_empty() {
            break;
        }
        out.push(b',');
        raw = rest.field()?.1;
    }
    out.push(b'}');
    Ok(())
}

fn default_of(kind: &Kind) -> Raw<'static> {
    match wire_type(kind) {
        WireType::SixtyFourBit => Raw::SixtyFourBit([0; 8]),
        WireType::ThirtyTwoBit => Raw::ThirtyTwoBit([0; 4]),
        WireType::LengthDelimited => Raw::Bytes(&[]),
        _ => Raw::Varint(0),
    }
}

/// Keys are texts.
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
        (Kind::Message(inner), Raw::Bytes(bytes)) => write_message(inner, bytes, depth + 1, out)?,
        (Kind::String, Raw::Bytes(bytes)) => write_string(bytes, out)?,
        (Kind::Bytes, Raw::Bytes(bytes)) => {
            put(out, format_args!("\"{}\"", Base64Display::new(bytes, &STANDARD)));
        }
        (Kind::Bool, Raw::Varint(value)) => put(out, format_args!("{}", value != 0)),
        (Kind::Enum(names), Raw::Varint(number)) => write_enum(names, number as i32, out),
        (Kind::Int32, Raw::Varint(value)) => put(out, format_args!("{}", value as i32)),
        (Kind::Uint32, Raw::Varint(value)) => put(out, format_args!("{}", value as u32)),
        (Kind::Sint32, Raw::Varint(value)) => {
            put(out, format_args!("{}", of_zigzag(u64::from(value as u32))));
        }
        (Kind::Int64, Raw::Varint(value)) => put(out, format_args!("\"{}\"", value as i64)),
        (Kind::Uint64, Raw::Varint(value)) => put(out, format_args!("\"{value}\"")),
        (Kind::Sint64, Raw::Varint(value)) => put(out, format_args!("\"{}\"", of_zigzag(value))),
        (Kind::Fixed32, Raw::ThirtyTwoBit(bytes)) => {
            put(out, format_args!("{}", u32::from_le_bytes(bytes)));
        }
        (Kind::Sfixed32, Raw::ThirtyTwoBit(bytes)) => {
            put(out, format_args!("{}", i32::from_le_bytes(bytes)));
        }
        (Kind::Fixed64, Raw::SixtyFourBit(bytes)) => {
            put(out, format_args!("\"{}\"", u64::from_le_bytes(bytes)));
        }
        (Kind::Sfixed64, Raw::SixtyFourBit(bytes)) => {
            put(out, format_args!("\"{}\"", i64::from_le_bytes(bytes)));
        }
        (Kind::Float, Raw::ThirtyTwoBit(bytes)) => {
            let value = f32::from_le_bytes(bytes);
            match name_of_float(value.into()) {
                Some(name) => write_text(name, out),
                None => write_json(&value, out),
            }
        }
        (Kind::Double, Raw::SixtyFourBit(bytes)) => {
            let value = f64::from_le_bytes(bytes);
            match name_of_float(value) {
                Some(name) => write_text(name, out),
                None => write_json(&value, out),
            }
        }
        _ => return Err(wrong("invalid wire type")),
    }
    Ok(())
}

fn of_zigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

fn name_of_float(value: f64) -> Option<&'static str> {
    match value {
        _ if value.is_finite() => None,
        _ if value.is_nan() => Some("NaN"),
        _ if value > 0.0 => Some("Infinity"),
        _ => Some("-Infinity"),
    }
}

fn write_enum(names: &EnumDescriptor, number: i32, out: &mut Vec<u8>) {
    match names.get_value(number) {
        _ if names.full_name() == "google.protobuf.NullValue" => out.extend_from_slice(b"null"),
        Some(value) => write_text(value.name(), out),
        None => put(out, format_args!("{number}")),
    }
}
