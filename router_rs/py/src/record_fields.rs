//! The fields of a `CallRecord` created from another object's, for tests of code that reads
//! records.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use router_core::Nanos;
use router_net::dispatch::{self, AttemptRecord, KeptFor, TraceRecord};
use router_net::trace_context::{SpanId, TraceId};

/// The source of a record: the attributes of a Python object.
#[derive(Debug, FromPyObject)]
pub(crate) struct Fields {
    request_id: String,
    kept_for: String,
    trace_id: Vec<u8>,
    span_id: Vec<u8>,
    parent_id: Vec<u8>,
    tracestate: String,
    is_sampled: bool,
    door: String,
    method: String,
    path: String,
    application: String,
    deployment: String,
    peer: String,
    model_id: String,
    start_unix_ns: u64,
    duration_ns: u64,
    parked_ns: u64,
    first_byte_ns: i64,
    code: u8,
    http_status: u16,
    refused: String,
    answered_by: String,
    reason: String,
    request_bytes: u64,
    response_bytes: u64,
    explanation: String,
    attempts: Vec<Attempt>,
}

/// Replica, span, start, head of the answer, end, why, outcome.
type Attempt = (String, Vec<u8>, u64, i64, u64, String, String);

impl Fields {
    /// # Errors
    /// `ValueError` for values that records cannot have.
    pub(crate) fn into_record(self) -> PyResult<dispatch::CallRecord> {
        let attempts = self.attempts.into_iter().map(attempt);
        Ok(dispatch::CallRecord {
            kept_for: kept_for(&self.kept_for)?,
            trace: trace(&self.trace_id, &self.span_id, &self.parent_id)?,
            door: word(&self.door)?,
            refused: word(&self.refused)?,
            answered_by: word(&self.answered_by)?,
            start_unix: Nanos(self.start_unix_ns),
            duration: Nanos(self.duration_ns),
            parked: Nanos(self.parked_ns),
            first_byte: at(self.first_byte_ns),
            attempts: attempts.collect::<PyResult<_>>()?,
            request_id: self.request_id,
            is_sampled: self.is_sampled,
            tracestate: self.tracestate,
            method: self.method,
            path: self.path,
            application: self.application,
            deployment: self.deployment,
            peer: self.peer,
            model_id: self.model_id,
            code: self.code,
            http_status: self.http_status,
            reason: self.reason,
            request_bytes: self.request_bytes,
            response_bytes: self.response_bytes,
            explanation: self.explanation,
        })
    }
}

fn attempt((replica_id, span, start, head, end, why, outcome): Attempt) -> PyResult<AttemptRecord> {
    Ok(AttemptRecord {
        replica_id,
        span: span_id("the span of an attempt", &span)?,
        start: Nanos(start),
        head: at(head),
        end: Nanos(end),
        why: word(&why)?,
        outcome: word(&outcome)?,
    })
}

/// Every word that a record may have.
const WORDS: &[&[&str]] = &[
    // Doors.
    &["grpc", "connect", "grpc-web", "json", "rest", "http", "websocket", "handle"],
    // Why no replica took it.
    &[
        "",
        "queue_full",
        "deadline",
        "too_late",
        "unreachable",
        "spent",
        "removed",
        "scaled_to_zero",
    ],
    // Who answered.
    &["replica", "ingress", "client"],
    // Why there was an attempt, and how it ended.
    &["first", "refused_before", "connect_failed_before", "retry", "hedge"],
    &["ok", "failed", "refused", "connect_failed", "late", "cancelled", "superseded"],
];

fn word(text: &str) -> PyResult<&'static str> {
    let found = WORDS.iter().copied().flatten().find(|word| **word == text);
    found.copied().ok_or_else(|| PyValueError::new_err(format!("{text:?} is no word of a record")))
}

fn kept_for(text: &str) -> PyResult<KeptFor> {
    use KeptFor::{All, Asked, Failed, Sampled, Slow};
    let found = [Sampled, Asked, Failed, Slow, All].into_iter().find(|it| it.word() == text);
    found.ok_or_else(|| PyValueError::new_err(format!("nothing is kept for {text:?}")))
}

fn trace(trace: &[u8], span: &[u8], parent: &[u8]) -> PyResult<Option<TraceRecord>> {
    if trace.is_empty() {
        return Ok(None);
    }
    let (high, low) = trace.split_at_checked(8).unwrap_or_default();
    let trace = TraceId::of(number("trace_id", high)?, number("trace_id", low)?);
    let (span, parent) = (span_id("span_id", span)?, span_id("parent_id", parent)?);
    Ok(Some(TraceRecord { trace, span, parent }))
}

fn span_id(name: &str, bytes: &[u8]) -> PyResult<Option<SpanId>> {
    if bytes.is_empty() { Ok(None) } else { Ok(Some(SpanId::of(number(name, bytes)?))) }
}

fn number(name: &str, bytes: &[u8]) -> PyResult<u64> {
    let number = <[u8; 8]>::try_from(bytes).map(u64::from_be_bytes);
    number.map_err(|_| PyValueError::new_err(format!("{name} is of another length")))
}

fn at(nanoseconds: i64) -> Option<Nanos> {
    u64::try_from(nanoseconds).ok().map(Nanos)
}
