//! Why a call has no answer from the other side.

use http::{HeaderMap, HeaderValue};
use router_protocol::grpc::Status;
use router_protocol::names::EXPLAIN;

/// Why the other side gave no answer (or no end of one).
#[derive(Debug)]
pub struct Failure {
    pub status: Status,
    /// The call reached no user code, and it may be tried again.
    pub did_not_start: bool,
    /// The router's explanation, for a caller that asked for it.
    pub explanation: Option<Box<HeaderValue>>,
}

impl Failure {
    pub fn new(status: Status, did_not_start: bool) -> Self {
        Self { status, did_not_start, explanation: None }
    }

    /// Writes the explanation, if there is one.
    pub fn write_explanation(&self, headers: &mut HeaderMap) {
        if let Some(explanation) = &self.explanation {
            headers.insert(EXPLAIN, HeaderValue::clone(explanation));
        }
    }
}
