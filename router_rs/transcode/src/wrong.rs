//! Finds where JSON does not match its message, for an error that helps its author.
//!
//! This runs after a conversion has failed, and decides nothing: it looks for one value that does
//! not fit. Containers are compared with the descriptor. Whether a single value fits is decided by
//! the conversion itself, one value at a time.

use std::fmt::Write;

use prost_reflect::{EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value};

use super::near::nearest;
use super::well_known::{Form, TYPE, VALUE, type_of};

/// The number of values that are tried one by one, so that a large body costs no more than a small
/// multiple of its conversion. Arbitrary.
const TRIES_MAX: usize = 1000;

/// How many names of an enum are listed, and how many letters of a value are repeated. Arbitrary.
const NAMES_MAX: usize = 8;
const LETTERS_MAX: usize = 40;

/// A sentence with the path of the first value that does not fit, the expected value, and the
/// actual one. `None`: no single value is wrong (only the whole does not fit).
///
/// Unknown fields are not errors by themselves. If something else is wrong, the first of them is
/// named too, because a misspelt name is a frequent cause.
///
/// `fits`: whether JSON is a message of a type, according to the conversion.
pub(super) fn explain(descriptor: &MessageDescriptor, value: &Value, fits: Fits) -> Option<String> {
    let mut search = Search { fits, tries: 0, path: "request".into(), unknown: None };
    let found = match Form::of(descriptor) {
        None => search.message(descriptor, value),
        Some(Form::Any) => search.any(descriptor, value),
        Some(_) => Some(search.expected(&well_known_text(descriptor.name()), value)),
    }?;
    Some(match search.unknown {
        Some(unknown) => format!("{found}; {unknown}"),
        None => found,
    })
}

type Fits = fn(&MessageDescriptor, &Value) -> bool;

#[derive(Debug)]
struct Search {
    fits: Fits,
    tries: usize,
    /// The path of the value being checked.
    path: String,
    /// A sentence about the first unknown field.
    unknown: Option<String>,
}

impl Search {
    fn message(&mut self, descriptor: &MessageDescriptor, value: &Value) -> Option<String> {
        let Value::Object(fields) = value else { return Some(self.expected("an object", value)) };
        self.note_unknown(descriptor, fields);
        let mut of_oneofs: Vec<(FieldDescriptor, String)> = Vec::new();
        for (name, value) in fields {
            let Some(field) = field_of(descriptor, name) else { continue };
            if let Some(found) = self.inside(&format!(".{name}"), |it| it.field(&field, value)) {
                return Some(found);
            }
            let Some(oneof) = field.containing_oneof().filter(|_| !value.is_null()) else {
                continue;
            };
            let other =
                of_oneofs.iter().find(|(set, _)| set.containing_oneof() == Some(&oneof).cloned());
            if let Some((_, other)) = other {
                let oneof = oneof.name();
                return Some(format!(
                    "{}: {other} and {name} are both there, but {oneof} is one of them",
                    self.path
                ));
            }
            of_oneofs.push((field, name.clone()));
        }
        None
    }

    fn field(&mut self, field: &FieldDescriptor, value: &Value) -> Option<String> {
        let kind = field.kind();
        match value {
            // Null means that the field is absent.
            Value::Null => None,
            Value::Object(entries) if field.is_map() => {
                let entry = kind.as_message()?.clone();
                entries.iter().find_map(|(key, value)| {
                    let place = format!("[{}]", shown(&Value::from(&**key)));
                    self.inside(&place, |it| it.entry(&entry, key, value))
                })
            }
            _ if field.is_map() => Some(self.expected("an object", value)),
            Value::Array(values) if field.is_list() => {
                values.iter().enumerate().find_map(|(index, value)| {
                    self.inside(&format!("[{index}]"), |it| it.single(field, value))
                })
            }
            _ if field.is_list() => Some(self.expected("a list", value)),
            _ => self.single(field, value),
        }
    }

    fn entry(&mut self, entry: &MessageDescriptor, key: &str, value: &Value) -> Option<String> {
        let key_field = entry.map_entry_key_field();
        if !self.fits(&key_field, Value::from(key)) {
            return Some(self.expected(&kind_text(&key_field.kind()), &Value::from(key)));
        }
        self.single(&entry.map_entry_value_field(), value)
    }

    /// One value of a field, which may be repeated.
    fn single(&mut self, field: &FieldDescriptor, value: &Value) -> Option<String> {
        match field.kind() {
            // Those are values like numbers.
            Kind::Message(inner) if Form::of(&inner).is_none() => self.message(&inner, value),
            Kind::Message(any) if Form::of(&any) == Some(Form::Any) => self.any(&any, value),
            kind => {
                let fits = self.fits(field, value.clone());
                (!fits).then(|| self.expected(&kind_text(&kind), value))
            }
        }
    }

    fn any(&mut self, any: &MessageDescriptor, value: &Value) -> Option<String> {
        let Value::Object(entries) = value else {
            return Some(self.expected(&well_known_text(any.name()), value));
        };
        let path = &self.path;
        let type_url = match entries.get(TYPE) {
            None if entries.is_empty() => return None,
            None => return Some(format!("{path}: {TYPE:?} is missing, the type of the message")),
            Some(Value::String(type_url)) => type_url,
            Some(other) => return self.inside(".@type", |it| Some(it.expected("a text", other))),
        };
        let Some(packed) = type_of(any.parent_pool(), type_url) else {
            let shown = shown(&Value::from(&**type_url));
            return Some(format!("{path}: the service does not know the type {shown}"));
        };
        match (Form::of(&packed), entries.get(VALUE)) {
            (None, _) => self.message(&packed, value),
            (Some(_), None) => Some(format!("{path}: {VALUE:?} is missing, the {}", packed.name())),
            (Some(Form::Any), Some(value)) => self.inside(".value", |it| it.any(&packed, value)),
            (Some(_), Some(value)) => {
                self.tries += 1;
                let fits = self.tries > TRIES_MAX || (self.fits)(&packed, value);
                let text = well_known_text(packed.name());
                self.inside(".value", |it| (!fits).then(|| it.expected(&text, value)))
            }
        }
    }

    /// Tries the conversion.
    fn fits(&mut self, field: &FieldDescriptor, value: Value) -> bool {
        if is_plainly_right(&field.kind(), &value) || self.tries == TRIES_MAX {
            return true;
        }
        self.tries += 1;
        let value = if field.is_list() { Value::Array(vec![value]) } else { value };
        let message = Value::Object(Map::from_iter([(field.json_name().to_owned(), value)]));
        (self.fits)(field.parent_message(), &message)
    }

    /// Runs something one level deeper.
    fn inside<T>(&mut self, step: &str, look: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let length = self.path.len();
        self.path.push_str(step);
        let found = look(self);
        self.path.truncate(length);
        found
    }

    fn expected(&self, what: &str, value: &Value) -> String {
        format!("{}: expected {what}, got {}", self.path, shown(value))
    }

    fn note_unknown(&mut self, descriptor: &MessageDescriptor, fields: &Map<String, Value>) {
        // `[name]` is an extension, `@type` the type of an `Any`.
        let is_unknown =
            |name: &&String| !name.starts_with(['[', '@']) && field_of(descriptor, name).is_none();
        let Some(name) = fields.keys().find(is_unknown).filter(|_| self.unknown.is_none()) else {
            return;
        };
        self.unknown = Some(no_field(&self.path, descriptor, name));
    }
}

/// A sentence about an unknown field of the message at `path`.
pub(super) fn no_field(path: &str, descriptor: &MessageDescriptor, name: &str) -> String {
    let fields: Vec<FieldDescriptor> = descriptor.fields().collect();
    let names = fields.iter().map(FieldDescriptor::json_name);
    let mut text = format!("{path} has no field {}", shown(&name.into()));
    if let Some(near) = nearest(name, names, &|_| true) {
        write!(text, ", did you mean {near}?").expect("invariant: memory takes it");
    }
    text
}

fn field_of(descriptor: &MessageDescriptor, name: &str) -> Option<FieldDescriptor> {
    descriptor.get_field_by_json_name(name).or_else(|| descriptor.get_field_by_name(name))
}

/// Whether a value fits without a trial conversion.
fn is_plainly_right(kind: &Kind, value: &Value) -> bool {
    match (kind, value) {
        (Kind::Double, Value::Number(_))
        | (Kind::Bool, Value::Bool(_))
        | (Kind::String, Value::String(_)) => true,
        (Kind::Int32 | Kind::Sint32 | Kind::Sfixed32, Value::Number(number)) => {
            number.as_i64().is_some_and(|number| i32::try_from(number).is_ok())
        }
        (Kind::Uint32 | Kind::Fixed32, Value::Number(number)) => {
            number.as_u64().is_some_and(|number| u32::try_from(number).is_ok())
        }
        (Kind::Int64 | Kind::Sint64 | Kind::Sfixed64, Value::Number(number)) => number.is_i64(),
        (Kind::Uint64 | Kind::Fixed64, Value::Number(number)) => number.is_u64(),
        _ => false,
    }
}

fn kind_text(kind: &Kind) -> String {
    match kind {
        Kind::Double | Kind::Float => "a number".into(),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => whole(i32::MIN, i32::MAX),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => whole(i64::MIN, i64::MAX),
        Kind::Uint32 | Kind::Fixed32 => whole(u32::MIN, u32::MAX),
        Kind::Uint64 | Kind::Fixed64 => whole(u64::MIN, u64::MAX),
        Kind::Bool => "true or false".into(),
        Kind::String => "a text".into(),
        Kind::Bytes => "a text in base64".into(),
        Kind::Enum(names) => enum_text(names),
        Kind::Message(message) => well_known_text(message.name()),
    }
}

fn whole(first: impl std::fmt::Display, last: impl std::fmt::Display) -> String {
    format!("a whole number from {first} to {last}")
}

fn enum_text(names: &EnumDescriptor) -> String {
    let values = names.values();
    let more = if values.len() > NAMES_MAX { ", ..." } else { "" };
    let listed: Vec<_> = values.take(NAMES_MAX).map(|value| value.name().to_owned()).collect();
    format!("a name of {} ({}{more}) or its number", names.name(), listed.join(", "))
}

/// The forms of developers.google.com/protocol-buffers/docs/proto3#json.
fn well_known_text(name: &str) -> String {
    match name {
        "Timestamp" => "a time such as \"2026-01-02T03:04:05Z\"".into(),
        "Duration" => "a duration such as \"1.5s\"".into(),
        "FieldMask" => {
            "names of fields with commas between them, such as \"name,inner.name\"".into()
        }
        "BoolValue" => "true or false".into(),
        "StringValue" => "a text".into(),
        "BytesValue" => "a text in base64".into(),
        "DoubleValue" | "FloatValue" => "a number".into(),
        "Int32Value" => whole(i32::MIN, i32::MAX),
        "Int64Value" => whole(i64::MIN, i64::MAX),
        "UInt32Value" => whole(u32::MIN, u32::MAX),
        "UInt64Value" => whole(u64::MIN, u64::MAX),
        "ListValue" => "a list".into(),
        "Any" => "an object with \"@type\" and the message's fields".into(),
        _ => "an object".into(),
    }
}

/// A value for people: containers by name, long strings cut off.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
        Value::String(text) if text.chars().count() > LETTERS_MAX => {
            let start: String = text.chars().take(LETTERS_MAX).collect();
            format!("{}...", Value::from(start))
        }
        other => other.to_string(),
    }
}
