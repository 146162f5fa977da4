//! Types with a form of their own in JSON (protobuf.dev/reference/protobuf/google.protobuf).

use prost_reflect::MessageDescriptor;

/// Holds a message of any type, which JSON has unpacked.
pub(super) const ANY: &str = "google.protobuf.Any";

/// Whether a message type has a form of its own.
pub(super) fn is_well_known(descriptor: &MessageDescriptor) -> bool {
    descriptor.package_name() == "google.protobuf"
}
