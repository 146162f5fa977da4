//! Whether the default of a field is a value like others, or as good as nothing.

use prost_reflect::FieldDescriptor;

/// What `proto3_optional` says of a field without presence in a file that was made of an edition's
/// (proto2 has no such fields). No compiler writes it.
pub(super) const NO_PRESENCE: bool = false;

/// Whether a field that has its default may be there.
pub(super) fn has_presence(field: &FieldDescriptor) -> bool {
    let is_plain = field.field_descriptor_proto().proto3_optional == Some(NO_PRESENCE);
    field.supports_presence() && !is_plain
}
