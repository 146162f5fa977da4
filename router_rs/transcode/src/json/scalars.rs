//! Single values from JSON to protobuf's binary form: numbers, strings, bytes, names of enums.

use std::fmt;

use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{DecodeError, Engine};
use prost::encoding::{WireType, encode_varint};
use prost_reflect::{EnumDescriptor, Kind};
use serde::de::{Deserializer, Error, Visitor};

use super::numbers::{Number, number};
use super::wire::delimited;
use crate::presence::has_number;

/// Both alphabets are accepted, with and without padding.
const BASE64: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_allow_trailing_bits(true)
    .with_decode_padding_mode(DecodePaddingMode::Indifferent);
const BASE64_STANDARD: GeneralPurpose = GeneralPurpose::new(&STANDARD, BASE64);
const BASE64_URL_SAFE: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, BASE64);

const NULL_VALUE: &str = "google.protobuf.NullValue";

/// The wire type of values of this kind.
pub(super) fn wire_type(kind: &Kind) -> WireType {
    match kind {
        Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => WireType::SixtyFourBit,
        Kind::Float | Kind::Fixed32 | Kind::Sfixed32 => WireType::ThirtyTwoBit,
        Kind::String | Kind::Bytes | Kind::Message(_) => WireType::LengthDelimited,
        _ => WireType::Varint,
    }
}

/// Whether `null` is a value of this kind, and not the absence of one.
pub(super) fn is_null_value(kind: &Kind) -> bool {
    kind.as_enum().is_some_and(|names| names.full_name() == NULL_VALUE)
}

/// Writes a value of any kind but a message; false: the enum does not have this name, so nothing
/// was written.
pub(super) fn write_scalar<'de, D: Deserializer<'de>>(
    kind: &Kind,
    json: D,
    out: &mut Vec<u8>,
) -> Result<bool, D::Error> {
    match kind {
        Kind::Double => out.extend(number::<f64, D>(json)?.to_le_bytes()),
        Kind::Float => out.extend(number::<f32, D>(json)?.to_le_bytes()),
        Kind::Int32 => encode_varint(number::<i32, D>(json)? as u64, out),
        Kind::Sint32 => encode_varint(zigzag(number::<i32, D>(json)?.into()), out),
        Kind::Sfixed32 => out.extend(number::<i32, D>(json)?.to_le_bytes()),
        Kind::Int64 => encode_varint(number::<i64, D>(json)? as u64, out),
        Kind::Sint64 => encode_varint(zigzag(number::<i64, D>(json)?), out),
        Kind::Sfixed64 => out.extend(number::<i64, D>(json)?.to_le_bytes()),
        Kind::Uint32 => encode_varint(number::<u32, D>(json)?.into(), out),
        Kind::Fixed32 => out.extend(number::<u32, D>(json)?.to_le_bytes()),
        Kind::Uint64 => encode_varint(number::<u64, D>(json)?, out),
        Kind::Fixed64 => out.extend(number::<u64, D>(json)?.to_le_bytes()),
        Kind::Bool => out.push(json.deserialize_bool(BoolVisitor)?.into()),
        Kind::String => json.deserialize_str(TextVisitor(out))?,
        Kind::Bytes => json.deserialize_str(BytesVisitor(out))?,
        Kind::Enum(names) => return json.deserialize_any(EnumVisitor { names, out }),
        Kind::Message(_) => unreachable!("invariant: messages are no single values"),
    }
    Ok(true)
}

/// Writes the key of a map's entry, which is always a string in JSON.
///
/// # Errors
/// The expected form of the text.
pub(super) fn write_key(kind: &Kind, text: &str, out: &mut Vec<u8>) -> Result<(), String> {
    match kind {
        Kind::Int32 => encode_varint(i32::of_text(text)? as u64, out),
        Kind::Sint32 => encode_varint(zigzag(i32::of_text(text)?.into()), out),
        Kind::Sfixed32 => out.extend(i32::of_text(text)?.to_le_bytes()),
        Kind::Int64 => encode_varint(i64::of_text(text)? as u64, out),
        Kind::Sint64 => encode_varint(zigzag(i64::of_text(text)?), out),
        Kind::Sfixed64 => out.extend(i64::of_text(text)?.to_le_bytes()),
        Kind::Uint32 => encode_varint(u32::of_text(text)?.into(), out),
        Kind::Fixed32 => out.extend(u32::of_text(text)?.to_le_bytes()),
        Kind::Uint64 => encode_varint(u64::of_text(text)?, out),
        Kind::Fixed64 => out.extend(u64::of_text(text)?.to_le_bytes()),
        Kind::Bool => out.push(text.parse::<bool>().map_err(|error| error.to_string())?.into()),
        _ => put_text(text, out),
    }
    Ok(())
}

fn put_text(text: &str, out: &mut Vec<u8>) {
    encode_varint(text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

struct BoolVisitor;

impl Visitor<'_> for BoolVisitor {
    type Value = bool;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a boolean")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<bool, E> {
        Ok(value)
    }
}

struct TextVisitor<'a>(&'a mut Vec<u8>);

impl Visitor<'_> for TextVisitor<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        put_text(text, self.0);
        Ok(())
    }
}

struct BytesVisitor<'a>(&'a mut Vec<u8>);

impl Visitor<'_> for BytesVisitor<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a base64-encoded string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        delimited(self.0, |out| {
            let start = out.len();
            match BASE64_STANDARD.decode_vec(text, out) {
                Err(DecodeError::InvalidByte(_, b'-' | b'_')) => {
                    out.truncate(start);
                    BASE64_URL_SAFE.decode_vec(text, out)
                }
                decoded => decoded,
            }
            .map_err(|error| E::custom(format_args!("invalid base64: {error}")))
        })
    }
}

struct EnumVisitor<'a> {
    names: &'a EnumDescriptor,
    out: &'a mut Vec<u8>,
}

impl EnumVisitor<'_> {
    fn put<E: Error>(self, number: i32) -> Result<bool, E> {
        if !has_number(self.names, number) {
            let name = self.names.name();
            return Err(E::custom(format_args!("{name} has no number {number}")));
        }
        encode_varint(number as u64, self.out);
        Ok(true)
    }
}

impl Visitor<'_> for EnumVisitor<'_> {
    type Value = bool;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string or integer")
    }

    fn visit_unit<E: Error>(self) -> Result<bool, E> {
        if self.names.full_name() == NULL_VALUE {
            return self.put(0);
        }
        Err(E::invalid_type(serde::de::Unexpected::Unit, &self))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<bool, E> {
        enum_number(self.names, name).map_or(Ok(false), |number| self.put(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<bool, E> {
        self.put(i32::of_signed(number).map_err(E::custom)?)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<bool, E> {
        self.put(i32::of_unsigned(number).map_err(E::custom)?)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<bool, E> {
        self.put(i32::of_float(number).map_err(E::custom)?)
    }
}

/// The number for a string: by name, or as a number.
pub(super) fn enum_number(names: &EnumDescriptor, text: &str) -> Option<i32> {
    let named = names.get_value_by_name(text).map(|value| value.number());
    named.or_else(|| text.parse().ok())
}
