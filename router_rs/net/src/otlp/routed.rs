//! Spans of a routed call: of its hop (a server span at the ingress, a client span at a handle), of
//! each attempt at a replica, whose id was sent along, and of the times that it was parked.

use router_core::{Nanos, SplitMix64};
use router_dispatch::{AttemptRecord, CallRecord};
use router_protocol::trace_context::{SpanId, TraceId};

use super::semantics::{self, CONNECT, End, GRPC};
use super::span::{Frame, Kind, Said};

/// The spans of a sampled call, its own first. Empty for any other call.
pub fn spans_of(record: &CallRecord) -> Vec<Vec<u8>> {
    let Some(trace) = record.trace.filter(|_| record.is_sampled) else { return Vec::new() };
    let Some(hop) = trace.span else { return Vec::new() };
    let routed = Routed::new(record, trace.trace, hop);
    let mut spans = Vec::with_capacity(1 + record.attempts.len());
    spans.push(routed.call(trace.parent));
    spans.extend(record.attempts.iter().enumerate().filter_map(|(at, attempt)| {
        let is_last = at + 1 == record.attempts.len();
        Some(routed.attempt(attempt, attempt.span?, is_last))
    }));
    // Span ids derived from one random id: the same record always gives the same spans.
    let mut numbers = SplitMix64::new(u64::from_be_bytes(hop.to_bytes()));
    let waits = parked_times(record.parked, record.duration, &record.attempts);
    spans.extend(waits.into_iter().map(|wait| {
        let id = SpanId::of(numbers.next_u64());
        routed.parked(id, wait)
    }));
    spans
}

/// Start and end, relative to the call's start.
type Times = (Nanos, Nanos);

struct Routed<'a> {
    record: &'a CallRecord,
    trace: TraceId,
    hop: SpanId,
    is_handle: bool,
    /// Verb and route of plain HTTP.
    http: Option<(&'a str, &'a str)>,
    name: String,
}

impl<'a> Routed<'a> {
    fn new(record: &'a CallRecord, trace: TraceId, hop: SpanId) -> Self {
        let is_http = matches!(record.door, "http" | "websocket");
        let http = is_http.then(|| record.method.split_once(' ').unwrap_or((&record.method, "")));
        let name = match http {
            Some((verb, route)) => semantics::http_name(verb, route),
            None => semantics::rpc_name(&record.method).to_owned(),
        };
        Self { record, trace, hop, is_handle: record.door == "handle", http, name }
    }

    fn call(&self, parent: Option<SpanId>) -> Vec<u8> {
        let record = self.record;
        let kind = if self.is_handle { Kind::Client } else { Kind::Server };
        let times = (Nanos::ZERO, record.duration);
        let frame = Frame {
            parent,
            is_parent_remote: true,
            ..self.frame(&self.name, self.hop, kind, times)
        };
        frame.encode(&record.reason, |said| {
            self.say_begun(said);
            if !self.is_handle {
                semantics::say_peer(said, &record.peer);
            }
            semantics::say_end(said, self.end(), self.is_handle);
            say_record(said, record);
            if let Some(at) = record.first_byte {
                said.event("first byte", self.unix(at));
            }
        })
    }

    fn attempt(&self, attempt: &AttemptRecord, id: SpanId, is_last: bool) -> Vec<u8> {
        let times = (attempt.start, attempt.end.max(attempt.start));
        // The call ended as this attempt did.
        let is_told = self.record.answered_by == "replica";
        self.frame(&self.name, id, Kind::Client, times).encode("", |said| {
            self.say_begun(said);
            said.text("pyserve.replica", &attempt.replica_id);
            said.text("pyserve.attempt.reason", attempt.why);
            said.text("pyserve.attempt.outcome", attempt.outcome);
            if attempt.outcome == "ok" {
                let end = if is_told { self.end() } else { self.end_of_replaced() };
                semantics::say_end(said, end, true);
            } else if attempt.outcome == "failed" && is_last && is_told {
                semantics::say_end(said, self.end(), true);
            } else if attempt.outcome != "superseded" {
                // A superseded attempt has not failed; the attempt that won has the outcome.
                said.error(attempt.outcome);
            }
            if let Some(at) = attempt.head {
                said.event("head of the answer", self.unix(at));
            }
        })
    }

    fn parked(&self, id: SpanId, times: Times) -> Vec<u8> {
        self.frame("parked", id, Kind::Internal, times)
            .encode("", |said| said.text("pyserve.deployment", &self.record.deployment))
    }

    fn frame<'b>(&'b self, name: &'b str, span: SpanId, kind: Kind, times: Times) -> Frame<'b> {
        Frame {
            trace: self.trace,
            span,
            parent: Some(self.hop),
            is_parent_remote: false,
            tracestate: &self.record.tracestate,
            name,
            kind,
            start_unix: self.unix(times.0),
            end_unix: self.unix(times.1),
        }
    }

    fn say_begun(&self, said: &mut Said<'_>) {
        if let Some((verb, route)) = self.http {
            return semantics::say_http(said, verb, route);
        }
        let is_connect = matches!(self.record.door, "connect" | "json");
        let system = if is_connect { CONNECT } else { GRPC };
        semantics::say_rpc(said, system, &self.record.method);
    }

    fn end(&self) -> End {
        match self.http {
            Some(_) => End::Http(self.record.http_status),
            None => End::Rpc(u32::from(self.record.code)),
        }
    }

    /// The end of an answer that was replaced on its way to the caller.
    fn end_of_replaced(&self) -> End {
        if self.http.is_some() { End::Http(200) } else { End::Rpc(0) }
    }

    fn unix(&self, since_start: Nanos) -> Nanos {
        self.record.start_unix.saturating_add(since_start)
    }
}

fn say_record(said: &mut Said<'_>, record: &CallRecord) {
    said.text_if_any("pyserve.request_id", &record.request_id);
    said.text("pyserve.door", record.door);
    said.text_if_any("pyserve.application", &record.application);
    said.text_if_any("pyserve.deployment", &record.deployment);
    said.text_if_any("pyserve.model_id", &record.model_id);
    said.text_if_any("pyserve.refused", record.refused);
    said.text_if_any("pyserve.answered_by", record.answered_by);
    said.text_if_any("pyserve.explanation", &record.explanation);
    said.count("pyserve.request.size", record.request_bytes);
    said.count("pyserve.response.size", record.response_bytes);
    said.float("pyserve.parked_ms", record.parked.0 as f64 / 1e6);
}

/// The times that a call was parked.
///
/// The record has only the sum. Between attempts there can be other work too (reading the request,
/// connecting), which comes first; so each wait is placed to end where its attempt begins.
fn parked_times(mut parked: Nanos, duration: Nanos, attempts: &[AttemptRecord]) -> Vec<Times> {
    let mut in_order: Vec<&AttemptRecord> = attempts.iter().collect();
    in_order.sort_by_key(|attempt| attempt.start);
    let mut times = Vec::new();
    let mut last = Nanos::ZERO;
    let mut wait_until = |until: Nanos, last: Nanos| {
        let wait = parked.min(until.saturating_sub(last));
        if wait > Nanos::ZERO {
            times.push((until.saturating_sub(wait), until));
            parked = parked.saturating_sub(wait);
        }
    };
    for attempt in in_order {
        wait_until(attempt.start, last);
        last = last.max(attempt.end);
    }
    // Refused while it waited, or after the last attempt.
    wait_until(duration, last);
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt((start, end): (u64, u64)) -> AttemptRecord {
        AttemptRecord {
            replica_id: String::new(),
            span: None,
            start: Nanos(start),
            head: None,
            end: Nanos(end),
            why: "first",
            outcome: "ok",
        }
    }

    fn check(parked: u64, duration: u64, attempts: &[(u64, u64)], expected: &[(u64, u64)]) {
        let attempts: Vec<_> = attempts.iter().copied().map(attempt).collect();
        let found: Vec<_> = parked_times(Nanos(parked), Nanos(duration), &attempts)
            .into_iter()
            .map(|(start, end)| (start.0, end.0))
            .collect();
        assert_eq!(expected, found);
    }

    #[test]
    fn waits_lie_between_attempts() {
        check(0, 100, &[(10, 90)], &[]);
        check(4, 100, &[(10, 90)], &[(6, 10)]);
        check(30, 100, &[(40, 99), (20, 30)], &[(0, 20), (30, 40)]);
        // Hedged attempts run side by side: no wait between them.
        check(10, 100, &[(10, 90), (30, 60)], &[(0, 10)]);
    }

    #[test]
    fn what_is_left_of_the_sum_comes_after_the_last_attempt() {
        check(50, 50, &[], &[(0, 50)]);
        check(15, 100, &[(10, 50)], &[(0, 10), (95, 100)]);
    }
}
