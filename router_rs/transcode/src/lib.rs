//! Other protocols in front of gRPC services: gRPC-Web, Connect, JSON over HTTP.
//!
//! [`open`] inspects the head of a request and decides whether it is ours. If it is, a
//! [`Transcoding`] has the gRPC head to forward, and [`Transcoded`] sits between the client's end
//! and the exchange, which then sees a gRPC call. All conversions are state machines: bytes and
//! heads in, bytes and heads out. They own no socket and read no clock.
//!
//! Flow control is end to end: pieces are passed on as they arrive. At most one message is held
//! where it must be complete (JSON, an answer whose status comes first), and its size is bounded.

#![forbid(unsafe_code)]

mod adaptor;
mod coder;
mod connect;
mod connect_type;
mod cors;
mod credit;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod head;
mod http_body;
mod json;
mod json_stream;
mod llm;
mod methods;
mod near;
mod open;
mod opened;
mod presence;
mod query;
mod refusal;
mod rest;
mod rest_fields;
mod silence;
mod status;
mod stream;
#[cfg(test)]
mod tests;
mod text;
mod unary;
mod web;
mod well_known;
mod work;
mod wrong;

pub use adaptor::Transcoded;
pub use cors::{Cors, Grant, is_preflight};
pub use llm::open_llm;
pub use methods::{MethodSource, MethodTable, Sees, ServiceRoute};
pub use open::{open, open_unseen};
pub use opened::{Opened, Transcoding};
pub use refusal::refusal;

use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use router_protocol::grpc::{Code, SizeLimit, Status};
use router_protocol::names::REFUSE_UNKNOWN_FIELDS;

use self::json::JsonType;
use self::methods::Method;

/// Limits for clients of other protocols, and the form of errors.
#[derive(Clone, Debug)]
pub struct Limits {
    /// For one message that must be complete; beyond it: `RESOURCE_EXHAUSTED`.
    pub message_size: SizeLimit,
    /// JSON with fields that its message does not have is refused, unless the client asks otherwise
    /// ([`REFUSE_UNKNOWN_FIELDS`]). If false, such fields are ignored.
    pub refuses_unknown_fields: bool,
    pub cors: Cors,
    /// The longest time in which a client of a stream for people is sent nothing.
    pub keep_alive: Duration,
    /// The server's name in answers of our own.
    pub answered_by: HeaderValue,
}

// === impl Limits ===

impl Limits {
    /// The JSON form that a method accepts from the sender of these headers.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: they are ambiguous about how to read it.
    fn input(&self, method: &Method, headers: &HeaderMap) -> Result<JsonType, Status> {
        let is_refused = match headers.get(REFUSE_UNKNOWN_FIELDS).map(HeaderValue::as_bytes) {
            None => self.refuses_unknown_fields,
            Some(b"1") => true,
            Some(b"0") => false,
            Some(other) => {
                let text = format!(
                    "{REFUSE_UNKNOWN_FIELDS} is \"{}\", write 1 or 0",
                    other.escape_ascii()
                );
                return Err(Status::new(Code::InvalidArgument, text));
            }
        };
        Ok(method.input.refusing_unknown(is_refused))
    }
}
