//! Single values: from protobuf's binary form to JSON.

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use prost::encoding::WireType;
use prost_reflect::{EnumDescriptor, Kind};

use super::raw::{Raw, Written, wrong};
use super::scalars::{is_null_value, wire_type};
use super::text::{put, write_json, write_string, write_text};

/// The default, for a value that is absent.
pub(super) fn default_of(kind: &Kind) -> Raw<'static> {
    match wire_type(kind) {
        WireType::SixtyFourBit => Raw::SixtyFourBit([0; 8]),
        WireType::ThirtyTwoBit => Raw::ThirtyTwoBit([0; 4]),
        WireType::LengthDelimited => Raw::Bytes(&[]),
        _ => Raw::Varint(0),
    }
}

/// Writes a value of any kind but a message.
pub(super) fn write_scalar(kind: &Kind, value: Raw<'_>, out: &mut Vec<u8>) -> Written {
    match (kind, value) {
        (Kind::String, Raw::Bytes(bytes)) => write_string(bytes, out)?,
        (Kind::Bytes, Raw::Bytes(bytes)) => {
            put(out, format_args!("\"{}\"", Base64Display::new(bytes, &STANDARD)));
        }
        (Kind::Bool, Raw::Varint(value)) => put(out, format_args!("{}", value != 0)),
        (Kind::Enum(_), Raw::Varint(_)) if is_null_value(kind) => out.extend_from_slice(b"null"),
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
        Some(value) => write_text(value.name(), out),
        None => put(out, format_args!("{number}")),
    }
}
