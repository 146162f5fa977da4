//! Protobuf messages as JSON, by the mapping of proto3 (protobuf.dev/programming-guides/json).
//!
//! Reading is tolerant: unknown fields are ignored, unless they are to be refused
//! ([`JsonType::refusing_unknown`]). Writing uses lowerCamelCase names and leaves defaults out.
//! Nesting is bounded in both directions, since both walk the message recursively: JSON by
//! `serde_json` (128 levels), protobuf as by `prost` (100), including messages packed into
//! `google.protobuf.Any`.

mod any;
mod buffered;
mod field;
mod forms;
mod key;
mod message_set;
mod numbers;
mod pieces;
mod raw;
mod read;
mod scalars;
mod text;
mod times;
mod unknown;
mod values;
mod wire;
mod write;
mod write_forms;
mod write_scalars;
mod write_values;

use bytes::{Bytes, BytesMut};
use prost_reflect::{FieldDescriptor, MessageDescriptor};
use router_protocol::grpc::framing::put_prefix;
use router_protocol::grpc::{Code, PREFIX_BYTES, Status};
use serde::de::DeserializeSeed;

use self::field::Field;
use self::pieces::{inside, put_message, without};
use self::raw::{Unwritten, Written};
use self::read::{MessageSeed, OptionalSeed, Place, fits};
use self::write::{write_message, write_one};
use super::wrong::{explain, no_field};

/// For longer bodies, errors give only line and column: finding more takes memory and time that a
/// client should not get for a mistake.
const EXPLAINED_BYTES_MAX: usize = 64 * 1024;

/// A message type with the data needed to convert it.
#[derive(Clone, Debug)]
pub struct JsonType {
    pub descriptor: MessageDescriptor,
    /// JSON that the message has no field for is reported, not ignored.
    refuses_unknown: bool,
    /// For errors.
    source: Source,
}

/// Which part of a request has the JSON that is read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    Body,
    Path,
    Query,
}

impl JsonType {
    pub(super) fn new(descriptor: MessageDescriptor) -> Self {
        Self { descriptor, refuses_unknown: false, source: Source::Body }
    }

    /// The same type; `is_refused` says whether its JSON may have unknown fields.
    pub(super) fn refusing_unknown(&self, is_refused: bool) -> Self {
        Self { refuses_unknown: is_refused, ..self.clone() }
    }

    /// The same type; errors say that its JSON was in another part of the request.
    pub(super) fn in_the(&self, source: Source) -> Self {
        Self { source, ..self.clone() }
    }

    /// Parses `json` as a message.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, saying where the JSON is wrong.
    pub(super) fn read(&self, json: &[u8]) -> Result<Vec<u8>, Status> {
        if json.is_empty() {
            return Err(self.malformed(&"nothing is no JSON, write {} for an empty message"));
        }
        let mut message = Vec::new();
        let seed = MessageSeed { descriptor: &self.descriptor, out: &mut message };
        self.read_all(json, seed, |value| value)?;
        self.check_known(|| unknown::of_message(&self.descriptor, &mut parse(json)))?;
        Ok(message)
    }

    /// Like [`JsonType::read`], for JSON that is one field of the message.
    pub(super) fn read_field(
        &self,
        field: &FieldDescriptor,
        json: &[u8],
    ) -> Result<Vec<u8>, Status> {
        let mut message = Vec::new();
        let place = Place::of(&Field::Own(field.clone()));
        let name = field.json_name();
        let seed = OptionalSeed { place: &place, out: &mut message };
        self.read_all(json, seed, |value| serde_json::json!({name: value}))?;
        self.check_known(|| unknown::of_field(name, &place, &mut parse(json)))?;
        Ok(message)
    }

    /// Like [`JsonType::read`], for parsed JSON.
    pub(super) fn read_value(&self, value: &serde_json::Value) -> Result<Vec<u8>, Status> {
        let mut message = Vec::new();
        let seed = MessageSeed { descriptor: &self.descriptor, out: &mut message };
        seed.deserialize(value).map_err(|error| self.refused(&error, Some(value)))?;
        self.check_known(|| unknown::of_message(&self.descriptor, value))?;
        Ok(message)
    }

    /// Refuses a query name that does not match a field, or treats it as an unknown name in JSON.
    pub(super) fn take_unknown(&self, name: &str) -> Result<(), Status> {
        let text = self.refuses_unknown.then(|| no_field("request", &self.descriptor, name));
        text.map_or(Ok(()), |text| Err(Status::new(Code::InvalidArgument, text)))
    }

    /// Refuses unknown fields in JSON that was read, if they are to be refused.
    fn check_known(&self, unknown: impl FnOnce() -> Option<String>) -> Result<(), Status> {
        let found = self.refuses_unknown.then(unknown).flatten();
        found.map_or(Ok(()), |text| Err(self.malformed(&text)))
    }

    /// `whole`: makes the message's JSON of the JSON read.
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
        deserializer.end().map_err(|error| self.malformed(&error))
    }

    /// The error for JSON that could not be parsed; `value` is all of it, if it is to be searched.
    fn refused(&self, error: &dyn std::fmt::Display, value: Option<&serde_json::Value>) -> Status {
        match value.and_then(|value| explain(&self.descriptor, value, fits)) {
            Some(found) => self.malformed(&found),
            None => self.malformed(error),
        }
    }

    fn malformed(&self, error: &dyn std::fmt::Display) -> Status {
        malformed(self.source, error)
    }

    /// The message as JSON.
    ///
    /// # Errors
    /// `INTERNAL`: the bytes are not a message of this type, or have no form in JSON.
    pub(super) fn write(&self, message: &[u8]) -> Result<Vec<u8>, Status> {
        self.written(|json| write_message(&self.descriptor, message, 0, json))
    }

    /// One field of the message as JSON, by its name in JSON; its default if it is absent.
    ///
    /// # Errors
    /// Like [`JsonType::write`].
    pub(super) fn write_field(&self, message: &[u8], name: &str) -> Result<Vec<u8>, Status> {
        self.written(|json| write_one(&self.descriptor, message, name, json))
    }

    fn written(&self, write: impl FnOnce(&mut Vec<u8>) -> Written) -> Result<Vec<u8>, Status> {
        let mut json = Vec::new();
        let problem = match write(&mut json) {
            Ok(()) => return Ok(json),
            Err(Unwritten::Wrong(problem)) => problem,
            Err(Unwritten::Unusual) => "its fields cannot be put in order".to_owned(),
        };
        let name = self.descriptor.full_name();
        let text = format!("the answer's {name} cannot be written as JSON: {problem}");
        Err(Status::new(Code::Internal, text))
    }
}

/// A message that was read here, without the field at a path.
///
/// # Errors
/// `INVALID_ARGUMENT`: it cannot be parsed.
pub(super) fn without_field(message: &[u8], path: &[FieldDescriptor]) -> Result<Vec<u8>, Status> {
    let numbers: Vec<u32> = path.iter().map(FieldDescriptor::number).collect();
    without(message, &numbers)
        .map_err(|_| malformed(Source::Body, &"a message in it cannot be read"))
}

/// A message with one field, which is a message.
pub(super) fn one_field(number: u32, message: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_message(number, message, &mut out);
    out
}

/// The message in a field of a message; empty if it is absent.
///
/// # Errors
/// `INTERNAL`: the message cannot be parsed.
pub(super) fn message_in(message: &[u8], number: u32) -> Result<Bytes, Status> {
    let found = inside(message, number).map(Bytes::from);
    found.map_err(|_| Status::new(Code::Internal, "the answer is malformed"))
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

fn malformed(source: Source, error: &dyn std::fmt::Display) -> Status {
    let part = match source {
        Source::Body => "body",
        Source::Path => "path",
        Source::Query => "query",
    };
    Status::new(Code::InvalidArgument, format!("malformed {part}: {error}"))
}
