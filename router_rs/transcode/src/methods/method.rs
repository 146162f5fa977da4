//! One method of a service, according to its descriptor.

use prost_reflect::{DescriptorPool, MethodDescriptor};

use super::options::has_no_side_effects;
use crate::json::JsonType;

/// See the module's documentation.
#[derive(Debug)]
pub struct Method {
    /// `/pkg.Service/Method`
    pub path: Box<str>,
    pub input: JsonType,
    pub output: JsonType,
    pub client_streams: bool,
    pub server_streams: bool,
    /// It may be called by GET (`idempotency_level = NO_SIDE_EFFECTS`).
    pub has_no_side_effects: bool,
}

impl Method {
    pub(super) fn new(descriptor: &MethodDescriptor) -> Self {
        let service = descriptor.parent_service().full_name();
        Self {
            path: format!("/{service}/{}", descriptor.name()).into(),
            input: JsonType::new(descriptor.input()),
            output: JsonType::new(descriptor.output()),
            client_streams: descriptor.is_client_streaming(),
            server_streams: descriptor.is_server_streaming(),
            has_no_side_effects: has_no_side_effects(descriptor),
        }
    }

    pub fn is_unary(&self) -> bool {
        !self.client_streams && !self.server_streams
    }

    /// All types of the set that describes it.
    pub fn pool(&self) -> DescriptorPool {
        self.output.descriptor.parent_pool().clone()
    }
}
