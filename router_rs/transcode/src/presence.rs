//! What `prost-reflect` does not know of a descriptor: whether the default of a field counts as a value
//! or as absent, which numbers an enum has, and which messages are sets.

use prost_reflect::{EnumDescriptor, FieldDescriptor, MessageDescriptor, Syntax};

/// The marker in `proto3_optional` for a field without presence in a file converted from an edition
/// (proto2 has no such fields). Compilers do not write it.
pub(super) const NO_PRESENCE: bool = false;

/// The marker among the reserved names for an open enum in a converted file (in proto2 all are
/// closed). It is not a valid name, so a `.proto` cannot reserve it.
pub(super) const OPEN_ENUM: &str = "(open)";

/// Whether a field with its default can be present.
pub(super) fn has_presence(field: &FieldDescriptor) -> bool {
    let is_plain = field.field_descriptor_proto().proto3_optional == Some(NO_PRESENCE);
    field.supports_presence() && !is_plain
}

/// Whether a field of this type can have the number. If an enum is closed, other numbers than its own
/// are unknown fields (protobuf.dev/programming-guides/enum).
pub(super) fn has_number(names: &EnumDescriptor, number: i32) -> bool {
    let is_open = || {
        let reserved = &names.enum_descriptor_proto().reserved_name;
        names.parent_file().syntax() == Syntax::Proto3 || reserved.iter().any(|it| it == OPEN_ENUM)
    };
    names.get_value(number).is_some() || is_open()
}

/// Whether a message is a set of messages, each in an extension, which has a binary form of its own.
pub(super) fn is_message_set(message: &MessageDescriptor) -> bool {
    let options = message.descriptor_proto().options.as_ref();
    options.is_some_and(|options| options.message_set_wire_format() && message.fields().len() == 0)
}
