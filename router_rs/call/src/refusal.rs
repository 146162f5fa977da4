//! The refusal that a caller's end sent in place of the other side's answer.

use http::StatusCode;
use router_protocol::grpc::Status;

/// Why an end replaced the other side's answer, or did not wait for one: the request, or the
/// answer, cannot be carried in the caller's protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub status: Status,
    /// What a client of plain HTTP was told; `None`: the status for the code.
    pub http: Option<StatusCode>,
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self { status, http: None }
    }
}
