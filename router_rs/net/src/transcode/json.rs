//! Protobuf messages as JSON, by the mapping of proto3 (protobuf.dev/programming-guides/json).
//!
//! Reading is tolerant: fields that the message does not have are ignored. Writing uses
//! lowerCamelCase names and leaves defaults out. Nesting is bounded both ways, since both walk
//! the message by recursion: JSON by `serde_json` (128 levels), protobuf by `prost` (100), and
//! what is packed into `google.protobuf.Any`, which `prost` does not see, by [`check_depth`].

use std::collections::HashSet;

use bytes::Bytes;
use prost_reflect::{
    DeserializeOptions, DynamicMessage, Kind, MapKey, MessageDescriptor, ReflectMessage,
    SerializeOptions, Value,
};
use serde::de::Deserializer;

use super::wrong::explain;
use crate::grpc::framing::frame;
use crate::grpc::{Code, Status};

/// Messages inside each other, those in `Any` included; as deep as `prost` reads.
const DEPTH_MAX: usize = 100;

const ANY: &str = "google.protobuf.Any";

/// Of longer bodies only line and column of what is wrong are told: finding more takes memory and
/// time that a client should not have for a mistake.
const EXPLAINED_BYTES_MAX: usize = 64 * 1024;

/// A message type and what has to be known to convert it.
#[derive(Clone, Debug)]
pub(crate) struct JsonType {
    pub descriptor: MessageDescriptor,
    /// A message of it may have an `Any` somewhere.
    holds_any: bool,
}

impl JsonType {
    pub(super) fn new(descriptor: MessageDescriptor) -> Self {
        let holds_any = reaches_any(&descriptor);
        Self { descriptor, holds_any }
    }

    /// The gRPC frame of the message that `json` is.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, saying where the JSON is wrong.
    pub(super) fn frame(&self, json: &[u8]) -> Result<Bytes, Status> {
        if json.is_empty() {
            let text = "malformed body: nothing is no JSON, write {} for an empty message";
            return Err(Status::new(Code::InvalidArgument, text));
        }
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        let message = self.read(&mut deserializer).map_err(|error| {
            let parsed = || serde_json::from_slice(json).ok();
            let value = (json.len() <= EXPLAINED_BYTES_MAX).then(parsed).flatten();
            self.refused(&error, value.as_ref())
        })?;
        deserializer.end().map_err(|error| malformed(&error))?;
        Ok(frame(&message))
    }

    /// As [`JsonType::frame`], of JSON that has been parsed from `size_bytes`.
    pub(super) fn frame_of_value(
        &self,
        value: &serde_json::Value,
        size_bytes: usize,
    ) -> Result<Bytes, Status> {
        let message = self.read(value).map_err(|error| {
            self.refused(&error, (size_bytes <= EXPLAINED_BYTES_MAX).then_some(value))
        })?;
        Ok(frame(&message))
    }

    fn read<'a, D: Deserializer<'a>>(&self, json: D) -> Result<DynamicMessage, D::Error> {
        DynamicMessage::deserialize_with_options(self.descriptor.clone(), json, &reading())
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
        let message = self.decode(message)?;
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
        self.decode(message)?
            .serialize_with_options(serde_json::value::Serializer, &options)
            .map_err(|error| unwritable(&self.descriptor, &error))
    }

    fn decode(&self, message: &[u8]) -> Result<DynamicMessage, Status> {
        let message = DynamicMessage::decode(self.descriptor.clone(), message)
            .map_err(|error| unwritable(&self.descriptor, &error))?;
        if self.holds_any {
            check_depth(&message, 1)?;
        }
        Ok(message)
    }
}

/// How JSON is read.
pub(super) fn reading() -> DeserializeOptions {
    DeserializeOptions::new().deny_unknown_fields(false)
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
