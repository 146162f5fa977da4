//! Spans in the words of OpenTelemetry (opentelemetry-proto, `trace/v1/trace.proto`): of calls that
//! were routed, made of their records, and of calls that a server answers.
//!
//! Each is the bytes of a `ScopeSpans` with that span and nothing else, so that those of many spans,
//! one after the other, are a `ScopeSpans` again. Nothing here reads a clock or sends anything.

mod message;
mod routed;
mod semantics;
mod served;
mod span;

pub use routed::spans_of;
pub use served::{Answer, Served, span_of};
