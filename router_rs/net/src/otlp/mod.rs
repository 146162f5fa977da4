//! Spans in the form of OpenTelemetry (opentelemetry-proto, `trace/v1/trace.proto`): of routed
//! calls, from their records, and of calls that a server answers.
//!
//! Each span is encoded as a `ScopeSpans` that contains only it, so that the concatenated bytes of
//! several spans are a `ScopeSpans` again. Nothing here reads a clock or sends anything.

mod message;
mod routed;
mod semantics;
mod served;
mod span;

pub use routed::spans_of;
pub use served::{Answer, Served, span_of};
