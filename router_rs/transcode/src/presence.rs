//! Whether the default of a field counts as a value or as absent.

use prost_reflect::FieldDescriptor;

/// The marker in `proto3_optional` for a field without presence in a file converted from an edition
/// (proto2 has no such fields). Compilers do not write it.
pub(super) const NO_PRESENCE: bool = false;

/// Whether a field with its default can be present.
pub(super) fn has_presence(field: &FieldDescriptor) -> bool {
    let is_plain = field.field_descriptor_proto().proto3_optional == Some(NO_PRESENCE);
    field.supports_presence() && !is_plain
}
