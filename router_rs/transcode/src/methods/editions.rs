//! Editions, for prost-reflect, which knows proto2 and proto3: a file of an edition becomes one of
//! proto2 that means the same. So does one of proto3 that prost-reflect would refuse for the names of
//! its fields.
//!
//! The conversion is exact for everything that JSON and the binary form depend on: in proto2 each
//! field can say for itself whether it is packed and whether it is a group, and [`crate::presence`]
//! handles the rest.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, Value};

use crate::presence::{NO_PRESENCE, OPEN_ENUM};

/// `google.protobuf.Edition`: those whose defaults are known here. They agree for all features that
/// are used here.
const EDITION_2023: i32 = 1000;
const EDITION_2026: i32 = 1002;

/// Numbers of `google/protobuf/descriptor.proto`.
const LABEL_REPEATED: i32 = 3;
const TYPE_STRING: i32 = 9;
const TYPE_GROUP: i32 = 10;
const TYPE_MESSAGE: i32 = 11;
const TYPE_BYTES: i32 = 12;
const IMPLICIT: i32 = 2;
const PACKED: i32 = 1;
const DELIMITED: i32 = 2;
const CLOSED: i32 = 2;

/// The file, or an equivalent one in proto2.
///
/// # Errors
/// A sentence with the unknown edition.
pub(super) fn in_proto2(file: &Bytes) -> Result<Bytes, String> {
    let wrong = |error: prost::DecodeError| format!("one of them is none: {error}");
    let head = Head::decode(file.clone()).map_err(wrong)?;
    let is_edition = head.syntax == "editions";
    let is_similar = head.messages.iter().any(has_similar_names);
    if !is_edition && !is_similar {
        return Ok(file.clone());
    }
    if is_edition && !(EDITION_2023..=EDITION_2026).contains(&head.edition) {
        let Head { name, edition, .. } = head;
        return Err(format!("{name}: the edition with number {edition} is unknown here, use 2024"));
    }
    let mut message = DynamicMessage::decode(descriptor_of_files(), file.clone()).map_err(wrong)?;
    if is_similar {
        each(&mut message, "message_type", tell_apart);
    }
    let features = match &*head.syntax {
        "editions" => Features::DEFAULT.of(&message),
        "proto3" => Features::PROTO3,
        _ => return Ok(message.encode_to_vec().into()),
    };
    message.clear_field_by_name("edition");
    message.set_field_by_name("syntax", Value::String("proto2".to_owned()));
    let package =
        if head.package.is_empty() { String::new() } else { format!(".{}", head.package) };
    each(&mut message, "message_type", |inner| adapt_message(inner, features, &package));
    each(&mut message, "extension", |field| adapt_field(field, features, &[]));
    each(&mut message, "enum_type", |inner| adapt_enum(inner, features));
    Ok(message.encode_to_vec().into())
}

/// The fields of `google.protobuf.FileDescriptorProto` that are read first.
#[derive(Clone, PartialEq, Message)]
struct Head {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    package: String,
    #[prost(message, repeated, tag = "4")]
    messages: Vec<HeadOfMessage>,
    #[prost(string, tag = "12")]
    syntax: String,
    #[prost(int32, tag = "14")]
    edition: i32,
}

/// Those of `google.protobuf.DescriptorProto`.
#[derive(Clone, PartialEq, Message)]
struct HeadOfMessage {
    #[prost(message, repeated, tag = "2")]
    fields: Vec<HeadOfField>,
    #[prost(message, repeated, tag = "3")]
    nested: Vec<HeadOfMessage>,
}

/// Those of `google.protobuf.FieldDescriptorProto`.
#[derive(Clone, PartialEq, Message)]
struct HeadOfField {
    #[prost(string, tag = "1")]
    name: String,
}

/// Whether two fields of a message differ in letter case and underscores only. prost-reflect refuses
/// that in proto3, whatever their names in JSON are; compilers do not.
fn has_similar_names(message: &HeadOfMessage) -> bool {
    let mut names = HashSet::new();
    let plain = |field: &HeadOfField| field.name.replace('_', "").to_lowercase();
    !message.fields.iter().all(|field| names.insert(plain(field)))
        || message.nested.iter().any(has_similar_names)
}

/// Where fields have one name in JSON (`deprecated_legacy_json_field_conflicts` allows it), gives
/// those that are not named so in the `.proto` the name that they have there.
fn tell_apart(message: &mut DynamicMessage) {
    let mut counts = HashMap::new();
    each(message, "field", |field| *counts.entry(json_name(field)).or_insert(0) += 1);
    each(message, "field", |field| {
        if counts[&json_name(field)] > 1 {
            field.set_field_by_name("json_name", Value::String(text(field, "name")));
        }
    });
    each(message, "nested_type", tell_apart);
}

/// As compilers make it, unless the `.proto` says it.
fn json_name(field: &DynamicMessage) -> String {
    if field.has_field_by_name("json_name") {
        return text(field, "json_name");
    }
    let mut is_behind = false;
    let mut name = String::new();
    for letter in text(field, "name").chars() {
        if letter != '_' {
            name.push(if is_behind { letter.to_ascii_uppercase() } else { letter });
        }
        is_behind = letter == '_';
    }
    name
}

fn descriptor_of_files() -> MessageDescriptor {
    let found = DescriptorPool::global().get_message_by_name("google.protobuf.FileDescriptorProto");
    found.expect("invariant: the global pool has the well-known types")
}

/// The parts of `google.protobuf.FeatureSet` that JSON and the binary form depend on.
#[derive(Clone, Copy)]
struct Features {
    presence: i32,
    repeated: i32,
    messages: i32,
    enums: i32,
}

impl Features {
    /// Explicit, packed, with lengths, open.
    const DEFAULT: Self = Self { presence: 1, repeated: PACKED, messages: 1, enums: 1 };

    const PROTO3: Self = Self { presence: IMPLICIT, ..Self::DEFAULT };

    /// Those of a file, a message, a field or an enum, which has the others of what is around it.
    fn of(self, element: &DynamicMessage) -> Self {
        let features = inside(element, "options").and_then(|options| inside(&options, "features"));
        let Some(features) = features else { return self };
        let own = |name: &str| number(&features, name).filter(|number| *number != 0);
        Self {
            presence: own("field_presence").unwrap_or(self.presence),
            repeated: own("repeated_field_encoding").unwrap_or(self.repeated),
            messages: own("message_encoding").unwrap_or(self.messages),
            enums: own("enum_type").unwrap_or(self.enums),
        }
    }
}

/// `scope`: the full name of its parent, with a dot before it.
fn adapt_message(message: &mut DynamicMessage, features: Features, scope: &str) {
    let scope = format!("{scope}.{}", text(message, "name"));
    let features = features.of(message);
    let mut entries = Vec::new();
    each(message, "nested_type", |inner| {
        if inside(inner, "options").is_some_and(|options| options.has_field_by_name("map_entry")) {
            entries.push(format!("{scope}.{}", text(inner, "name")));
        } else {
            adapt_message(inner, features, &scope);
        }
    });
    each(message, "field", |field| adapt_field(field, features, &entries));
    each(message, "extension", |field| adapt_field(field, features, &[]));
    each(message, "enum_type", |inner| adapt_enum(inner, features));
}

fn adapt_enum(inner: &mut DynamicMessage, features: Features) {
    if features.of(inner).enums == CLOSED {
        return;
    }
    let reserved = inner.get_field_by_name_mut("reserved_name").and_then(Value::as_list_mut);
    if let Some(names) = reserved {
        names.push(Value::String(OPEN_ENUM.to_owned()));
    }
}

/// `entries`: the types of map fields.
fn adapt_field(field: &mut DynamicMessage, features: Features, entries: &[String]) {
    let features = features.of(field);
    let of_type = number(field, "type").unwrap_or_default();
    if number(field, "label") == Some(LABEL_REPEATED) {
        let is_packable = !(TYPE_STRING..=TYPE_BYTES).contains(&of_type);
        if is_packable && features.repeated == PACKED {
            set_packed(field);
        }
    } else if features.presence == IMPLICIT && !always_has_presence(field, of_type) {
        field.set_field_by_name("proto3_optional", Value::Bool(NO_PRESENCE));
    }
    let is_map = entries.contains(&text(field, "type_name"));
    if of_type == TYPE_MESSAGE && features.messages == DELIMITED && !is_map {
        field.set_field_by_name("type", Value::EnumNumber(TYPE_GROUP));
    }
}

/// Independent of its file's features.
fn always_has_presence(field: &DynamicMessage, of_type: i32) -> bool {
    matches!(of_type, TYPE_MESSAGE | TYPE_GROUP)
        || ["oneof_index", "extendee"].into_iter().any(|name| field.has_field_by_name(name))
}

fn set_packed(field: &mut DynamicMessage) {
    let options = field.get_field_by_name("options").map(Cow::into_owned);
    if let Some(Value::Message(mut options)) = options
        && !options.has_field_by_name("packed")
    {
        options.set_field_by_name("packed", Value::Bool(true));
        field.set_field_by_name("options", Value::Message(options));
    }
}

fn each(of: &mut DynamicMessage, name: &str, mut adapt: impl FnMut(&mut DynamicMessage)) {
    let values = of.get_field_by_name_mut(name).and_then(Value::as_list_mut);
    values.into_iter().flatten().filter_map(Value::as_message_mut).for_each(&mut adapt);
}

fn inside(of: &DynamicMessage, name: &str) -> Option<DynamicMessage> {
    let value = of.get_field_by_name(name).filter(|_| of.has_field_by_name(name))?;
    value.as_message().cloned()
}

fn number(of: &DynamicMessage, name: &str) -> Option<i32> {
    of.get_field_by_name(name)?.as_enum_number()
}

fn text(of: &DynamicMessage, name: &str) -> String {
    of.get_field_by_name(name)
        .and_then(|value| value.as_str().map(str::to_owned))
        .unwrap_or_default()
}
