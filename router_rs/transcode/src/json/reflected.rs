//! Messages that are held while they are written as JSON: what `write` leaves to `prost-reflect`.

use std::collections::HashSet;

use prost_reflect::{
    DynamicMessage, Kind, MapKey, MessageDescriptor, ReflectMessage, SerializeOptions, Value,
};
use router_protocol::grpc::{Code, Status};

use crate::well_known::ANY;

/// Messages inside each other, those in `Any` included; as deep as `prost` reads.
pub(super) const DEPTH_MAX: usize = 100;

/// The type of a message.
#[derive(Clone, Copy)]
pub(super) struct Typed<'a> {
    pub descriptor: &'a MessageDescriptor,
    /// A message of it may have an `Any` somewhere.
    pub holds_any: bool,
}

/// The message as JSON; `depth`: where it stands in another.
///
/// # Errors
/// `INTERNAL`: the bytes are no message of this type, or have no form in JSON.
pub(super) fn write(of: Typed<'_>, message: &[u8], depth: usize) -> Result<Vec<u8>, Status> {
    let message = decode(of, message, depth)?;
    let mut serializer = serde_json::Serializer::new(Vec::new());
    message
        .serialize_with_options(&mut serializer, &SerializeOptions::new())
        .map_err(|error| unwritable(of.descriptor, &error))?;
    Ok(serializer.into_inner())
}

/// As [`write`], as a value; with the fields that have their defaults, if asked for.
pub(super) fn to_value(
    of: Typed<'_>,
    message: &[u8],
    with_defaults: bool,
) -> Result<serde_json::Value, Status> {
    let options = SerializeOptions::new().skip_default_fields(!with_defaults);
    decode(of, message, 1)?
        .serialize_with_options(serde_json::value::Serializer, &options)
        .map_err(|error| unwritable(of.descriptor, &error))
}

fn decode(of: Typed<'_>, message: &[u8], depth: usize) -> Result<DynamicMessage, Status> {
    let message = DynamicMessage::decode(of.descriptor.clone(), message)
        .map_err(|error| unwritable(of.descriptor, &error))?;
    if of.holds_any {
        check_depth(&message, depth)?;
    }
    Ok(message)
}

pub(super) fn unwritable(descriptor: &MessageDescriptor, error: &dyn std::fmt::Display) -> Status {
    let name = descriptor.full_name();
    Status::new(Code::Internal, format!("the answer's {name} cannot be written as JSON: {error}"))
}

/// Whether a message of this type can have an `Any`, over fields of fields.
pub(super) fn reaches_any(descriptor: &MessageDescriptor) -> bool {
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
