//! Fields that the query or the path of a request names, as JSON.

use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value};

use super::methods::rule::{FieldPath, field_path, has_text};
use super::well_known::Form;

/// A field, or an entry of a map.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub path: FieldPath,
    /// The key of a map's entry.
    pub key: Option<String>,
}

impl Target {
    pub(super) fn single(path: FieldPath) -> Self {
        Self { path, key: None }
    }

    /// The target of a name in a query: `a.b`, or `a.b[key]` for an entry of a map. `None`: the
    /// message has no such field.
    ///
    /// # Errors
    /// A sentence: there is one, but a query cannot set it.
    pub(super) fn named(message: &MessageDescriptor, name: &str) -> Result<Option<Self>, String> {
        if let Some(path) = field_path(message, name) {
            return Ok(Some(Self::single(path)));
        }
        let entry = name.strip_suffix(']').and_then(|name| name.split_once('['));
        if let Some((map, key)) = entry
            && let Some(path) = field_path(message, map)
            && path.last().is_some_and(is_map_of_texts)
        {
            return Ok(Some(Self { path, key: Some(key.to_owned()) }));
        }
        unreachable_field(message, name).map_or(Ok(None), |field| {
            let told = field.full_name();
            Err(if is_map_of_texts(&field) {
                format!("{name}: {told} is a map, write {}[key]=value", field.json_name())
            } else {
                format!("{name}: {told} has no fields that a query can set, write it in the body")
            })
        })
    }

    /// Whether a message has either it or the field at a path, since both are members of a oneof.
    pub(super) fn excludes(&self, path: &[FieldDescriptor]) -> bool {
        let differ = |(one, other): &(&FieldDescriptor, &FieldDescriptor)| one != other;
        let first = self.path.iter().zip(path).find(differ);
        first.is_some_and(|(one, other)| {
            let oneof = one.containing_oneof();
            oneof.is_some() && oneof == other.containing_oneof()
        })
    }

    /// Sets it in a message; appends to a repeated field.
    pub(super) fn put(&self, message: &mut Map<String, Value>, text: &str) -> Result<(), String> {
        put(message, &self.path, self.key.as_deref(), text)
    }
}

fn is_map_of_texts(field: &FieldDescriptor) -> bool {
    let kind = field.kind();
    let entry = kind.as_message().filter(|_| field.is_map());
    entry.is_some_and(|entry| has_text(&entry.map_entry_value_field().kind()))
}

/// The first field of a path that has nothing below it for a query: a list of messages, a map, or a
/// message with a form of its own.
fn unreachable_field(message: &MessageDescriptor, name: &str) -> Option<FieldDescriptor> {
    let mut message = message.clone();
    let mut rest = name;
    loop {
        let end = rest.find(['.', '['])?;
        let (first, behind) = rest.split_at(end);
        let own = message.get_field_by_name(first);
        let field = own.or_else(|| message.get_field_by_json_name(first))?;
        let inner = field.kind().as_message()?.clone();
        if field.is_list() || field.is_map() || Form::of(&inner).is_some() {
            return Some(field);
        }
        (message, rest) = (inner, behind.strip_prefix('.')?);
    }
}

fn put(
    message: &mut Map<String, Value>,
    path: &[FieldDescriptor],
    key: Option<&str>,
    text: &str,
) -> Result<(), String> {
    let [field, rest @ ..] = path else { return Ok(()) };
    let slot = message.entry(field.json_name()).or_insert(Value::Null);
    if let (Some(key), []) = (key, rest) {
        let entry = field.kind().as_message().cloned();
        let value_field = entry.map(|entry| entry.map_entry_value_field());
        let value = value_field.map_or(Ok(Value::Null), |field| leaf(&field, text))?;
        inside(slot).insert(key.to_owned(), value);
        return Ok(());
    }
    if rest.is_empty() {
        let value = leaf(field, text)?;
        match slot {
            Value::Array(values) if field.is_list() => values.push(value),
            slot if field.is_list() => *slot = Value::Array(vec![value]),
            slot => *slot = value,
        }
        return Ok(());
    }
    put(inside(slot), rest, key, text)
}

/// The value as an object, which it becomes.
fn inside(slot: &mut Value) -> &mut Map<String, Value> {
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    slot.as_object_mut().expect("invariant: it has just become one")
}

/// One value of a field, from its string in the query or the path.
fn leaf(field: &FieldDescriptor, text: &str) -> Result<Value, String> {
    let kind = field.kind();
    if field.is_map() || !has_text(&kind) {
        return Err(format!("{} is a message: set the fields of it", field.full_name()));
    }
    let is_bool = kind == Kind::Bool
        || kind.as_message().is_some_and(|kind| kind.full_name() == "google.protobuf.BoolValue");
    if is_bool {
        return match text {
            "true" | "1" => Ok(Value::Bool(true)),
            "false" | "0" => Ok(Value::Bool(false)),
            _ => Err(format!("{} is {text:?}, write true or false", field.full_name())),
        };
    }
    // JSON accepts numbers as strings too, except those of enums.
    if let Some(names) = kind.as_enum()
        && names.get_value_by_name(text).is_none()
    {
        let number = text.parse::<i32>().map(Value::from);
        let unknown = |_| format!("{}: {} has no name {text:?}", field.full_name(), names.name());
        return number.map_err(unknown);
    }
    Ok(Value::String(text.to_owned()))
}
