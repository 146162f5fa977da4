//! Types with a special form in JSON (protobuf.dev/programming-guides/json).

use prost_reflect::{DescriptorPool, MessageDescriptor};

/// The names in the JSON of an `Any` for its type, and for its message if that has a special form.
pub(super) const TYPE: &str = "@type";
pub(super) const VALUE: &str = "value";

/// The type of a message by its URL, of which only the part after the last slash is used.
pub(super) fn type_of(pool: &DescriptorPool, type_url: &str) -> Option<MessageDescriptor> {
    pool.get_message_by_name(type_url.rsplit('/').next()?)
}

/// The form of a type's messages, if it is not an object with their fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `google.protobuf.Any`: a message of any type, unpacked, and its type.
    Any,
    /// Any JSON.
    Json(Holder),
    Timestamp,
    Duration,
    Mask,
    /// One value, present or not (`google/protobuf/wrappers.proto`).
    Wrapper,
}

/// The messages that can be any JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    Struct,
    List,
    Value,
}

impl Form {
    /// `None`: an object with its fields, the usual form.
    pub(super) fn of(descriptor: &MessageDescriptor) -> Option<Self> {
        Some(match descriptor.full_name().strip_prefix("google.protobuf.")? {
            "Any" => Self::Any,
            "Struct" => Self::Json(Holder::Struct),
            "ListValue" => Self::Json(Holder::List),
            "Value" => Self::Json(Holder::Value),
            "Timestamp" => Self::Timestamp,
            "Duration" => Self::Duration,
            "FieldMask" => Self::Mask,
            "BoolValue" | "StringValue" | "BytesValue" | "DoubleValue" | "FloatValue"
            | "Int32Value" | "Int64Value" | "UInt32Value" | "UInt64Value" => Self::Wrapper,
            _ => return None,
        })
    }

    /// Whether a message is a single string or number, so that a query and a path can have it.
    pub(super) fn is_single(self) -> bool {
        matches!(self, Self::Timestamp | Self::Duration | Self::Mask | Self::Wrapper)
    }
}
