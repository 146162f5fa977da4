//! The method options that are used here (google/protobuf/descriptor.proto, google/api/http.proto).

use prost::{Message, Oneof};
use prost_reflect::MethodDescriptor;

/// `google.protobuf.MethodOptions.IdempotencyLevel.NO_SIDE_EFFECTS`
const NO_SIDE_EFFECTS: i32 = 1;

/// The used part of `google.protobuf.MethodOptions`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct MethodOptions {
    #[prost(int32, optional, tag = "34")]
    idempotency_level: Option<i32>,
    /// `google.api.http`
    #[prost(message, optional, tag = "72295728")]
    pub http: Option<HttpRule>,
}

/// `google.api.HttpRule`
#[derive(Clone, PartialEq, Message)]
pub(super) struct HttpRule {
    #[prost(string, tag = "7")]
    pub body: String,
    #[prost(string, tag = "12")]
    pub response_body: String,
    #[prost(message, repeated, tag = "11")]
    pub additional_bindings: Vec<HttpRule>,
    #[prost(oneof = "Pattern", tags = "2, 3, 4, 5, 6, 8")]
    pub pattern: Option<Pattern>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Pattern {
    #[prost(string, tag = "2")]
    Get(String),
    #[prost(string, tag = "3")]
    Put(String),
    #[prost(string, tag = "4")]
    Post(String),
    #[prost(string, tag = "5")]
    Delete(String),
    #[prost(string, tag = "6")]
    Patch(String),
    #[prost(message, tag = "8")]
    Custom(CustomPattern),
}

/// `google.api.CustomHttpPattern`
#[derive(Clone, PartialEq, Message)]
pub(super) struct CustomPattern {
    #[prost(string, tag = "1")]
    pub kind: String,
    #[prost(string, tag = "2")]
    pub path: String,
}

/// Whether a method may be called by GET.
pub(super) fn has_no_side_effects(method: &MethodDescriptor) -> bool {
    options(method).idempotency_level == Some(NO_SIDE_EFFECTS)
}

pub(super) fn options(method: &MethodDescriptor) -> MethodOptions {
    // Options of other types are ignored.
    MethodOptions::decode(&*method.options().encode_to_vec()).unwrap_or_default()
}
