//! A call that is over: whether it is recorded, and how.

use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use router_call::Refusal;
use router_core::Nanos;
use router_protocol::grpc::{Code, CodeSet, client_closed_request};
use router_protocol::names::{self, REQUEST_ID};
use router_protocol::trace_context::{TRACESTATE, TraceContext};
use router_upstream::target::Target;

use super::journal::{Journal, Note};
use super::kept_for::KeptFor;
use super::record::{AttemptRecord, CallRecord, TraceRecord, unix_now};
use super::{CallRecords, EXPLAINED_PER_SECOND_MAX};
use crate::clock::{Clock, nanos};
use crate::ending::Ending;
use crate::head::Head;
use crate::tally::{End, STREAM_MIN, Seen};

/// Client-supplied ids are cut off after this many bytes.
const ID_BYTES_MAX: usize = 256;
const METHOD_BYTES_MAX: usize = 512;
const STATE_BYTES_MAX: usize = 1024;
/// The texts of refusals may have names from the request or the answer.
const REASON_BYTES_MAX: usize = 512;

/// Failures of the mesh, not of the request: those of OpenTelemetry's conventions for servers, and
/// refusals for lack of room.
const FAILURES: CodeSet = CodeSet::of(&[
    Code::Unknown,
    Code::DeadlineExceeded,
    Code::ResourceExhausted,
    Code::Unimplemented,
    Code::Internal,
    Code::Unavailable,
    Code::DataLoss,
]);

/// A call that is over.
pub(crate) struct Over<'a> {
    pub application: &'a str,
    pub deployment: &'a str,
    pub clock: Clock,
    pub head: &'a Head,
    pub ending: &'a Ending,
    /// Sent to the caller in place of the replica's answer.
    pub refused: Option<&'a Refusal>,
    pub end: End,
    pub seen: &'a Seen,
    /// Its last replica.
    pub target: Option<&'a Arc<Target>>,
    pub now: Nanos,
    pub request_bytes: u64,
    pub peer: &'a dyn Fn() -> String,
    pub explanation: &'a dyn Fn() -> String,
}

impl CallRecords {
    /// A call begins, unless it is a copy; `draw` seeds its random numbers.
    #[inline]
    pub(crate) fn begin(
        &self,
        journal: &mut Journal,
        clock: Clock,
        head: &mut Head,
        draw: impl FnOnce() -> u64,
    ) {
        let start = clock.at(head.received);
        let sampled = self.sampler.judge(&mut head.parts.headers, draw);
        let is_explained =
            sampled.is_some() && self.explanations.take(EXPLAINED_PER_SECOND_MAX, start);
        journal.begin(start, sampled, is_explained);
    }

    /// Records the call if it is worth it.
    #[inline]
    pub(crate) fn on_end(&self, journal: &Journal, over: &Over<'_>) {
        let anyway = if journal.is_asked {
            Some(KeptFor::Asked)
        } else {
            journal.sampled.is_some().then_some(KeptFor::Sampled)
        };
        let slowness = over.slowness(journal);
        if let Some(kept_for) = self.judge(over.has_failed(), slowness, anyway, over.now) {
            self.keep(over.record(journal, kept_for));
        }
    }
}

impl Over<'_> {
    fn has_failed(&self) -> bool {
        match self.end {
            End::Grpc(code) => FAILURES.has(code),
            End::Http(status) => status.is_server_error(),
            End::Left => false,
        }
    }

    /// How long the call took to be answered, or a stream to begin: the length of a stream depends
    /// on its use.
    fn slowness(&self, journal: &Journal) -> Nanos {
        let begun = self.seen.first_data_at.map(|at| self.clock.at(at));
        let is_stream = |at: &Nanos| self.now.saturating_sub(*at) >= nanos(STREAM_MIN);
        begun.filter(is_stream).unwrap_or(self.now).saturating_sub(journal.start)
    }

    #[cold]
    fn record(&self, journal: &Journal, kept_for: KeptFor) -> CallRecord {
        let headers = &self.head.parts.headers;
        let duration = self.now.saturating_sub(journal.start);
        let (code, http_status) = self.codes();
        let text = |name: &HeaderName, bytes_max| {
            names::spelled(headers, name)
                .map_or_else(String::new, |it| cut(it.as_bytes(), bytes_max))
        };
        let model_id = names::model_id(headers);
        CallRecord {
            request_id: text(&REQUEST_ID, ID_BYTES_MAX),
            kept_for,
            trace: trace_of(journal, headers),
            is_sampled: journal.sampled.is_some(),
            tracestate: text(&TRACESTATE, STATE_BYTES_MAX),
            door: self.head.door.word(),
            method: self.method(),
            path: self.path(),
            application: self.application.to_owned(),
            deployment: self.deployment.to_owned(),
            peer: (self.peer)(),
            model_id: model_id.map_or_else(String::new, |id| cut(id.as_bytes(), ID_BYTES_MAX)),
            start_unix: unix_now().saturating_sub(duration),
            duration,
            parked: journal.parked,
            first_byte: self.since(journal, self.seen.head_at),
            code,
            http_status,
            refused: journal.refused.map_or("", |refused| refused.word()),
            answered_by: match self.ending {
                Ending::Answered | Ending::Cancelled if self.refused.is_some() => "ingress",
                Ending::Answered => "replica",
                Ending::Cancelled => "client",
                Ending::Failed(_) => "ingress",
            },
            reason: self.reason(),
            request_bytes: self.request_bytes,
            response_bytes: self.seen.bytes,
            explanation: (self.explanation)(),
            attempts: journal.attempts.iter().map(|note| self.attempt(journal, note)).collect(),
        }
    }

    fn since(&self, journal: &Journal, at: Option<std::time::Instant>) -> Option<Nanos> {
        at.map(|at| self.clock.at(at).saturating_sub(journal.start))
    }

    fn codes(&self) -> (u8, u16) {
        match self.end {
            End::Grpc(code) => (code.number(), 0),
            End::Http(status) => (0, status.as_u16()),
            End::Left if self.head.door.is_http() => (0, client_closed_request().as_u16()),
            End::Left => (Code::Cancelled.number(), 0),
        }
    }

    /// Nothing for a wrong request: its text quotes the request, and payloads are not recorded.
    fn reason(&self) -> String {
        let status = self.refused.map(|refusal| &refusal.status);
        let status = status.filter(|status| status.code != Code::InvalidArgument);
        status.map_or_else(String::new, |status| cut(status.message.as_bytes(), REASON_BYTES_MAX))
    }

    fn method(&self) -> String {
        let parts = &self.head.parts;
        if !self.head.door.is_http() {
            return cut(parts.uri.path().as_bytes(), METHOD_BYTES_MAX);
        }
        let prefix = if self.head.prefix.is_empty() { "/" } else { &self.head.prefix };
        cut(format!("{} {prefix}", parts.method).as_bytes(), METHOD_BYTES_MAX)
    }

    fn path(&self) -> String {
        if !self.head.door.is_http() {
            return String::new();
        }
        cut(self.head.parts.uri.path().as_bytes(), METHOD_BYTES_MAX)
    }

    fn attempt(&self, journal: &Journal, note: &Note) -> AttemptRecord {
        let target = note.target.as_ref().or(self.target);
        let replica = target.and_then(|target| target.as_replica());
        let (end, outcome) = match note.end {
            Some(end) => end,
            // If two ran at once, the one whose answer did not begin first.
            None => (self.seen.head_at.map_or(self.now, |at| self.clock.at(at)), "superseded"),
        };
        AttemptRecord {
            replica_id: replica.map_or_else(String::new, |replica| replica.replica_id.clone()),
            span: note.span,
            start: note.start.saturating_sub(journal.start),
            head: self.since(journal, note.head_at),
            end: end.saturating_sub(journal.start),
            why: note.why.word(),
            outcome,
        }
    }
}

fn trace_of(journal: &Journal, headers: &HeaderMap) -> Option<TraceRecord> {
    match &journal.sampled {
        Some(sampled) => Some(TraceRecord {
            trace: sampled.trace,
            span: Some(sampled.span),
            parent: sampled.parent,
        }),
        None => TraceContext::of(headers).map(|caller| TraceRecord {
            trace: caller.trace,
            span: None,
            parent: Some(caller.span),
        }),
    }
}

/// At most this many bytes of a text from outside.
fn cut(text: &[u8], bytes_max: usize) -> String {
    String::from_utf8_lossy(&text[..text.len().min(bytes_max)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut() {
        assert_eq!("ab", cut(b"abc", 2));
        assert_eq!("abc", cut(b"abc", 3));
        assert_eq!("a\u{fffd}", cut("aä".as_bytes(), 2));
    }
}
