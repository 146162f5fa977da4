//! The record of one finished call.

use std::time::{SystemTime, UNIX_EPOCH};

use router_core::Nanos;
use router_protocol::trace_context::{SpanId, TraceId};

use super::kept_for::KeptFor;
use crate::clock::nanos;

/// See `CallRecord` in `pyserve/_router.pyi`. Times are from the call's start.
#[derive(Clone, Debug)]
pub struct CallRecord {
    pub request_id: String,
    pub kept_for: KeptFor,
    pub trace: Option<TraceRecord>,
    pub is_sampled: bool,
    pub tracestate: String,
    pub door: &'static str,
    pub method: String,
    pub path: String,
    pub application: String,
    pub deployment: String,
    pub peer: String,
    pub model_id: String,
    pub start_unix: Nanos,
    pub duration: Nanos,
    pub parked: Nanos,
    pub first_byte: Option<Nanos>,
    pub code: u8,
    pub http_status: u16,
    pub refused: &'static str,
    pub answered_by: &'static str,
    pub reason: String,
    pub request_bytes: u64,
    pub response_bytes: u64,
    pub explanation: String,
    pub attempts: Vec<AttemptRecord>,
}

impl CallRecord {
    pub(super) fn end_unix(&self) -> Nanos {
        self.start_unix.saturating_add(self.duration)
    }
}

/// A call's position in its trace.
#[derive(Clone, Copy, Debug)]
pub struct TraceRecord {
    pub trace: TraceId,
    /// `None`: the call is not sampled.
    pub span: Option<SpanId>,
    pub parent: Option<SpanId>,
}

/// One attempt of a call.
#[derive(Clone, Debug)]
pub struct AttemptRecord {
    pub replica_id: String,
    pub span: Option<SpanId>,
    pub start: Nanos,
    pub head: Option<Nanos>,
    pub end: Nanos,
    pub why: &'static str,
    pub outcome: &'static str,
}

/// Since 1970, by this machine's clock.
pub fn unix_now() -> Nanos {
    // A clock before 1970 is wrong, so its value is not used.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(Nanos::ZERO, nanos)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A record of which only the id matters.
    pub(in super::super) fn record_of(request_id: &str) -> CallRecord {
        CallRecord {
            request_id: request_id.to_owned(),
            kept_for: KeptFor::Failed,
            trace: None,
            is_sampled: false,
            tracestate: String::new(),
            door: "grpc",
            method: String::new(),
            path: String::new(),
            application: String::new(),
            deployment: String::new(),
            peer: String::new(),
            model_id: String::new(),
            start_unix: Nanos::ZERO,
            duration: Nanos::ZERO,
            parked: Nanos::ZERO,
            first_byte: None,
            code: 0,
            http_status: 0,
            refused: "",
            answered_by: "replica",
            reason: String::new(),
            request_bytes: 0,
            response_bytes: 0,
            explanation: String::new(),
            attempts: Vec::new(),
        }
    }
}
