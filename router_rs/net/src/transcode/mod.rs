//! Other protocols in front of gRPC services: gRPC-Web, Connect, JSON over HTTP.
//!
//! [`open`] looks at the head of a request and says whether it is ours. If it is, a
//! [`Transcoding`] has the gRPC head to forward, and [`Transcoded`] stands between the client's
//! end and the exchange, which then sees a gRPC call. All conversions are state machines: bytes
//! and heads in, bytes and heads out. They own no socket and read no clock.
//!
//! Flow control stays end to end: pieces pass as they come, at most one message is held where it
//! must be whole (JSON, an answer whose status comes first), and its size is bounded.

mod adaptor;
mod coder;
mod connect;
mod cors;
mod credit;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod head;
mod json;
mod json_stream;
mod methods;
mod near;
mod open;
mod query;
mod refusal;
mod rest;
mod status;
mod stream;
#[cfg(test)]
mod tests;
mod text;
mod unary;
mod web;
mod work;
mod wrong;

pub(crate) use adaptor::Transcoded;
pub use cors::Cors;
pub(crate) use methods::{MethodTable, Source};
pub(crate) use open::{Opened, Sees, Transcoding, open, open_unseen};
pub(crate) use refusal::refusal;
pub(crate) use work::THREADS_MAX;

use http::HeaderValue;

use crate::grpc::SizeLimit;

/// What clients of other protocols may do, and how they are told.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Of one message that has to be whole; beyond it: `RESOURCE_EXHAUSTED`.
    pub message_size: SizeLimit,
    pub cors: Cors,
    /// Who we say we are in answers of our own.
    pub answered_by: HeaderValue,
}
