//! Protobuf messages as JSON, by the mapping of proto3 (protobuf.dev/programming-guides/json).
//!
//! Reading is tolerant: fields that the message does not have are ignored, unless they are to be
//! refused ([`JsonType::refusing_unknown`]). Writing uses
//! lowerCamelCase names and leaves defaults out. Nesting is bounded both ways, since both walk
//! the message by recursion: JSON by `serde_json` (128 levels), protobuf as by `prost` (100), and
//! what is packed into `google.protobuf.Any`, which `prost` does not see, by [`check_depth`].

mod key;
mod raw;
mod read;
mod scalars;
mod text;
mod unknown;
mod values;
mod wire;
mod write;
mod write_values;

use std::collections::HashSet;

use bytes::{Bytes, BytesMut};
use prost_reflect::{
    DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, ReflectMessage,
    SerializeOptions, Value,
};
use serde::de::DeserializeSeed;

use self::raw::Unwritten;
use self::read::{MessageSeed, OptionalSeed, Place};
use self::write::{write_message, write_one};
use super::wrong::{explain, no_field};
use crate::grpc::framing::put_prefix;
use crate::grpc::{Code, PREFIX_BYTES, Status};

/// Messages inside each other, those in `Any` included; as deep as `prost` reads.
const DEPTH_MAX: usize = 100;

const ANY: &str = "google.protobuf.Any";

/// The package of types with a form of their own in JSON.
const WELL_KNOWN: &str = "google.protobuf";

/// Of longer bodies only line and column of what is wrong are told: finding more takes memory and
/// time that a client should not have for a mistake.
const EXPLAINED_BYTES_MAX: usize = 64 * 1024;

/// A message type and what has to be known to convert it.
#[derive(Clone, Debug)]
pub(crate) struct JsonType {
    pub descriptor: MessageDescriptor,
    /// A message of it may have an `Any` somewhere.
    holds_any: bool,
    /// What the message has no place for is told, and not ignored.
    refuses_unknown: bool,
}

impl JsonType {
    pub(super) fn new(descriptor: MessageDescriptor) -> Self {
        let holds_any = reaches_any(&descriptor);
        Self { descriptor, holds_any, refuses_unknown: false }
    }

    /// The same type, whose JSON is read as `is_refused` says.
    pub(super) fn refusing_unknown(&self, is_refused: bool) -> Self {
        Self { refuses_unknown: is_refused, ..self.clone() }
    }

    /// The message that `json` is.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, saying where the JSON is wrong.
    pub(super) fn read(&self, json: &[u8]) -> Result<Vec<u8>, Status> {
        if json.is_empty() {
            let text = "malformed body: nothing is no JSON, write {} for an empty message";
            return Err(Status::new(Code::InvalidArgument, text));
        }
        let mut message = Vec::new();
        let seed = MessageSeed { descriptor: &self.descriptor, out: &mut message };
        self.read_all(json, seed, |value| value)?;
        self.check_known(|| unknown::of_message(&self.descriptor, &mut parse(json)))?;
        Ok(message)
    }

    /// As [`JsonType::read`], of JSON that is one field of the message.
    pub(super) fn read_field(
        &self,
        field: &FieldDescriptor,
        json: &[u8],
    ) -> Result<Vec<u8>, Status> {
        let mut message = Vec::new();
        let place = Place::from(field.clone());
        let name = field.json_name();
        let seed = OptionalSeed { place: &place, out: &mut message };
        self.read_all(json, seed, |value| serde_json::json!({name: value}))?;
        self.check_known(|| unknown::of_field(name, &place, &mut parse(json)))?;
        Ok(message)
    }

    /// As [`JsonType::read`], of JSON that has been parsed.
    pub(super) fn read_value(&self, value: &serde_json::Value) -> Result<Vec<u8>, Status> {
        let mut message = Vec::new();
        let seed = MessageSeed { descriptor: &self.descriptor, out: &mut message };
        seed.deserialize(value).map_err(|error| self.refused(&error, Some(value)))?;
        self.check_known(|| unknown::of_message(&self.descriptor, value))?;
        Ok(message)
    }

    /// Refuses a name in a query that is no field's, or takes it as it takes one in JSON.
    pub(super) fn take_unknown(&self, name: &str) -> Result<(), Status> {
        let text = self.refuses_unknown.then(|| no_field("request", &self.descriptor, name));
        text.map_or(Ok(()), |text| Err(Status::new(Code::InvalidArgument, text)))
    }

    /// Refuses what has been read, if more is to be refused than what is wrong.
    fn check_known(&self, unknown: impl FnOnce() -> Option<String>) -> Result<(), Status> {
        let found = self.refuses_unknown.then(unknown).flatten();
        found.map_or(Ok(()), |text| Err(malformed(&text)))
    }

    /// `whole`: makes the message's JSON of what is read.
    fn read_all<'a, S: DeserializeSeed<'a>>(
        &self,
        json: &'a [u8],
        seed: S,
        whole: impl Fn(serde_json::Value) -> serde_json::Value,
    ) -> Result<(), Status> {
        let mut deserializer = parse(json);
        seed.deserialize(&mut deserializer).map_err(|error| {
            let parsed = || serde_json::from_slice(json).ok().map(whole);
            let value = (json.len() <= EXPLAINED_BYTES_MAX).then(parsed).flatten();
            self.refused(&error, value.as_ref())
        })?;
        deserializer.end().map_err(|error| malformed(&error))
    }

    /// What to tell of JSON that could not be read; `value` is all of it, if it is looked through.
    fn refused(&self, error: &dyn std::fmt::Display, value: Option<&serde_json::Value>) -> Status {
        match value.and_then(|value| explain(&self.descriptor, value)) {
            Some(found) => malformed(&found),
            None => malformed(error),
        }
    }

    /// The message as JSON.
    ///
    /// # Errors
    /// `INTERNAL`: the bytes are no message of this type, or have no form in JSON.
    pub(super) fn write(&self, message: &[u8]) -> Result<Vec<u8>, Status> {
        let mut json = Vec::new();
        match write_message(&self.descriptor, message, 0, &mut json) {
            Ok(()) => Ok(json),
            Err(Unwritten::Unusual) => self.write_whole(message, 1),
            Err(Unwritten::Wrong(text)) => Err(unwritable(&self.descriptor, &text)),
            Err(Unwritten::Refused(status)) => Err(status),
        }
    }

    /// One field of the message as JSON.
    ///
    /// # Errors
    /// As of [`JsonType::write`].
    pub(super) fn write_field(&self, message: &[u8], name: &str) -> Result<Vec<u8>, Status> {
        let mut json = Vec::new();
        let value = match write_one(&self.descriptor, message, name, &mut json) {
            Ok(true) => return Ok(json),
            // It has its default, which has a form of its own in JSON.
            Ok(false) => self.to_value(&[], true)?[name].take(),
            Err(Unwritten::Unusual) => self.to_value(message, true)?[name].take(),
            Err(Unwritten::Wrong(text)) => return Err(unwritable(&self.descriptor, &text)),
            Err(Unwritten::Refused(status)) => return Err(status),
        };
        Ok(value.to_string().into_bytes())
    }

    /// As [`JsonType::write`], by way of a message that is held; `depth`: where it stands in another.
    fn write_whole(&self, message: &[u8], depth: usize) -> Result<Vec<u8>, Status> {
        let message = self.decode(message, depth)?;
        let mut serializer = serde_json::Serializer::new(Vec::new());
        message
            .serialize_with_options(&mut serializer, &SerializeOptions::new())
            .map_err(|error| unwritable(&self.descriptor, &error))?;
        Ok(serializer.into_inner())
    }

    /// As [`JsonType::write`], as a value; with the fields that have their defaults, if asked for.
    pub(super) fn to_value(
        &self,
        message: &[u8],
        with_defaults: bool,
    ) -> Result<serde_json::Value, Status> {
        let options = SerializeOptions::new().skip_default_fields(!with_defaults);
        self.decode(message, 1)?
            .serialize_with_options(serde_json::value::Serializer, &options)
            .map_err(|error| unwritable(&self.descriptor, &error))
    }

    fn decode(&self, message: &[u8], depth: usize) -> Result<DynamicMessage, Status> {
        let message = DynamicMessage::decode(self.descriptor.clone(), message)
            .map_err(|error| unwritable(&self.descriptor, &error))?;
        if self.holds_any {
            check_depth(&message, depth)?;
        }
        Ok(message)
    }
}

fn parse(json: &[u8]) -> serde_json::Deserializer<serde_json::de::SliceRead<'_>> {
    serde_json::Deserializer::from_slice(json)
}

/// The gRPC frame of a message in parts.
pub(super) fn frame_of(parts: &[&[u8]]) -> Bytes {
    let size = parts.iter().map(|part| part.len()).sum();
    let mut frame = BytesMut::with_capacity(PREFIX_BYTES + size);
    put_prefix(&mut frame, size);
    for part in parts {
        frame.extend_from_slice(part);
    }
    frame.freeze()
}

fn malformed(error: &dyn std::fmt::Display) -> Status {
    Status::new(Code::InvalidArgument, format!("malformed body: {error}"))
}

fn unwritable(descriptor: &MessageDescriptor, error: &dyn std::fmt::Display) -> Status {
    let name = descriptor.full_name();
    Status::new(Code::Internal, format!("the answer's {name} cannot be written as JSON: {error}"))
}

/// Whether a message of this type can have an `Any`, over fields of fields.
fn reaches_any(descriptor: &MessageDescriptor) -> bool {
    let mut seen = HashSet::new();
    let mut waiting = vec![descriptor.clone()];
    while let Some(next) = waiting.pop() {
        if next.full_name() == ANY {
            return true;
        }
        if seen.insert(next.full_name().to_owned()) {
            let kinds = next.fields().map(|field| field.kind()).collect::<Vec<Kind>>();
            waiting.extend(kinds.into_iter().filter_map(|kind| kind.as_message().cloned()));
        }
    }
    false
}

/// Refuses messages that are nested too deep through `Any`: JSON has them unpacked, so writing it
/// recurses into them.
fn check_depth(message: &DynamicMessage, depth: usize) -> Result<(), Status> {
    if depth > DEPTH_MAX {
        let text = format!("the answer is nested deeper than {DEPTH_MAX} messages");
        return Err(Status::new(Code::Internal, text));
    }
    if message.descriptor().full_name() == ANY {
        return unpack(message).map_or(Ok(()), |inner| check_depth(&inner, depth + 1));
    }
    message.fields().try_for_each(|(_, value)| check_value(value, depth))
}

fn check_value(value: &Value, depth: usize) -> Result<(), Status> {
    match value {
        Value::Message(message) => check_depth(message, depth + 1),
        Value::List(values) => values.iter().try_for_each(|value| check_value(value, depth)),
        Value::Map(values) => {
            values.iter().try_for_each(|(_, value): (&MapKey, &Value)| check_value(value, depth))
        }
        _ => Ok(()),
    }
}

/// What is in an `Any`, `None` if its type is not known here (then nothing recurses into it).
fn unpack(any: &DynamicMessage) -> Option<DynamicMessage> {
    let type_url = any.get_field_by_number(1)?;
    let name = type_url.as_str()?.rsplit('/').next()?.to_owned();
    let descriptor = any.descriptor().parent_pool().get_message_by_name(&name)?;
    let value = any.get_field_by_number(2)?;
    DynamicMessage::decode(descriptor, &**value.as_bytes()?).ok()
}
