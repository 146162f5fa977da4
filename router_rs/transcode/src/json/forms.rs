//! Messages that are a single string or value in JSON: from JSON to protobuf's binary form.

use std::fmt;

use prost::encoding::{WireType, encode_key, encode_varint};
use prost_reflect::{Kind, MessageDescriptor};
use serde::de::{Deserializer, Error, Visitor};

use super::scalars::{wire_type, write_scalar};
use super::times::{self, Time};
use super::wire::text_field;

/// The number of the value of a wrapper, and of the paths of a mask.
pub(super) const ONLY: u32 = 1;
/// The numbers of `google/protobuf/timestamp.proto` and `duration.proto`.
pub(super) const SECONDS: u32 = 1;
pub(super) const NANOS: u32 = 2;

/// Writes a `Timestamp`.
pub(super) fn read_timestamp<'de, D: Deserializer<'de>>(
    json: D,
    out: &mut Vec<u8>,
) -> Result<(), D::Error> {
    let take = |text: &str| times::read_timestamp(text).map(|time| put_time(time, out));
    json.deserialize_str(TextVisitor { expected: "a time", take })
}

/// Writes a `Duration`.
pub(super) fn read_duration<'de, D: Deserializer<'de>>(
    json: D,
    out: &mut Vec<u8>,
) -> Result<(), D::Error> {
    let take = |text: &str| times::read_duration(text).map(|time| put_time(time, out));
    json.deserialize_str(TextVisitor { expected: "a duration", take })
}

/// Writes a `FieldMask`.
pub(super) fn read_mask<'de, D: Deserializer<'de>>(
    json: D,
    out: &mut Vec<u8>,
) -> Result<(), D::Error> {
    let take = |text: &str| put_paths(text, out);
    json.deserialize_str(TextVisitor { expected: "names of fields", take })
}

/// Writes a wrapper.
pub(super) fn read_wrapper<'de, D: Deserializer<'de>>(
    descriptor: &MessageDescriptor,
    json: D,
    out: &mut Vec<u8>,
) -> Result<(), D::Error> {
    let kind = wrapped(descriptor);
    let start = out.len();
    encode_key(ONLY, wire_type(&kind), out);
    let value_start = out.len();
    write_scalar(&kind, json, out)?;
    if out[value_start..].iter().all(|byte| *byte == 0) {
        // The default: those who compare messages in an `Any` byte by byte expect nothing.
        out.truncate(start);
    }
    Ok(())
}

/// The kind of a wrapper's value.
pub(super) fn wrapped(descriptor: &MessageDescriptor) -> Kind {
    descriptor.get_field(ONLY).expect("invariant: a wrapper has a value").kind()
}

fn put_time((seconds, nanos): Time, out: &mut Vec<u8>) {
    if seconds != 0 {
        encode_key(SECONDS, WireType::Varint, out);
        encode_varint(seconds as u64, out);
    }
    if nanos != 0 {
        encode_key(NANOS, WireType::Varint, out);
        encode_varint(i64::from(nanos) as u64, out);
    }
}

fn put_paths(text: &str, out: &mut Vec<u8>) -> Result<(), String> {
    let paths = text.split(',').filter(|_| !text.is_empty());
    for path in paths {
        text_field(ONLY, &times::snake_of_camel(path)?, out);
    }
    Ok(())
}

struct TextVisitor<F> {
    expected: &'static str,
    take: F,
}

impl<F: FnOnce(&str) -> Result<(), String>> Visitor<'_> for TextVisitor<F> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.expected)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        (self.take)(text).map_err(E::custom)
    }
}
