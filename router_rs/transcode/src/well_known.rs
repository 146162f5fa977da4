//! Types with a form of their own in JSON (protobuf.dev/programming-guides/json).

use prost_reflect::{DescriptorPool, MessageDescriptor};

/// The names that an `Any` has in JSON for its type, and for its message where that has a form of
/// its own.
pub(super) const TYPE: &str = "@type";
pub(super) const VALUE: &str = "value";

/// The type of a message by its URL, of which only what is behind the last slash is looked at.
pub(super) fn type_of(pool: &DescriptorPool, type_url: &str) -> Option<MessageDescriptor> {
    pool.get_message_by_name(type_url.rsplit('/').next()?)
}

/// The form that messages of a type have, where it is not an object of their fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `google.protobuf.Any`: a message of any type, unpacked, and its type.
    Any,
    /// Any JSON.
    Json(Holder),
    Timestamp,
    Duration,
    Mask,
    /// One value, which is there or not (`google/protobuf/wrappers.proto`).
    Wrapper,
}

/// The messages that are any JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    Struct,
    List,
    Value,
}

impl Form {
    /// `None`: an object of its fields, as most have.
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

    /// Whether a message is one text or one number, so that a query and a path can have it.
    pub(super) fn is_single(self) -> bool {
        matches!(self, Self::Timestamp | Self::Duration | Self::Mask | Self::Wrapper)
    }
}
