//! One span, in the format that a collector reads.

use router_core::Nanos;
use router_protocol::trace_context::{SpanId, TraceId};

use super::message::Message;

const ERROR_TYPE: &str = "error.type";

/// The usual size of a call's span.
const USUAL_BYTES: usize = 1024;

/// Fields of `ScopeSpans`.
const SPANS: u32 = 2;

/// Fields of `Span`.
mod field {
    pub(super) const TRACE_ID: u32 = 1;
    pub(super) const SPAN_ID: u32 = 2;
    pub(super) const TRACE_STATE: u32 = 3;
    pub(super) const PARENT_SPAN_ID: u32 = 4;
    pub(super) const NAME: u32 = 5;
    pub(super) const KIND: u32 = 6;
    pub(super) const START_TIME_UNIX_NANO: u32 = 7;
    pub(super) const END_TIME_UNIX_NANO: u32 = 8;
    pub(super) const ATTRIBUTES: u32 = 9;
    pub(super) const EVENTS: u32 = 11;
    pub(super) const STATUS: u32 = 15;
    pub(super) const FLAGS: u32 = 16;
}

/// `SpanFlags`: `HAS_IS_REMOTE` and `IS_REMOTE`.
const KNOWS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// `Status.StatusCode`.
const STATUS_ERROR: u64 = 2;

/// `Span.SpanKind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Internal = 1,
    Server = 2,
    Client = 3,
}

/// A span's name, its place in its trace, and its times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    pub(super) trace: TraceId,
    pub(super) span: SpanId,
    pub(super) parent: Option<SpanId>,
    pub(super) is_parent_remote: bool,
    pub(super) tracestate: &'a str,
    pub(super) name: &'a str,
    pub(super) kind: Kind,
    pub(super) start_unix: Nanos,
    pub(super) end_unix: Nanos,
}

/// Collects the attributes of a span while it is written.
#[derive(Debug)]
pub(super) struct Said<'a> {
    span: &'a mut Message,
    has_failed: bool,
}

impl Frame<'_> {
    /// Encodes the span, with the attributes that `say` adds. It has failed if they include an
    /// error; `details` is the reason.
    pub(super) fn encode(&self, details: &str, say: impl FnOnce(&mut Said<'_>)) -> Vec<u8> {
        let mut scope = Message::with_capacity(USUAL_BYTES);
        scope.message(SPANS, |span| {
            self.write(span);
            let mut said = Said { span, has_failed: false };
            say(&mut said);
            let has_failed = said.has_failed;
            span.message(field::STATUS, |status| write_status(status, has_failed, details));
        });
        scope.into_bytes()
    }

    fn write(&self, span: &mut Message) {
        span.bytes(field::TRACE_ID, &self.trace.to_bytes());
        span.bytes(field::SPAN_ID, &self.span.to_bytes());
        if !self.tracestate.is_empty() {
            span.bytes(field::TRACE_STATE, self.tracestate.as_bytes());
        }
        if let Some(parent) = self.parent {
            span.bytes(field::PARENT_SPAN_ID, &parent.to_bytes());
        }
        span.bytes(field::NAME, self.name.as_bytes());
        span.number(field::KIND, self.kind as u64);
        span.fixed_64(field::START_TIME_UNIX_NANO, self.start_unix.0);
        span.fixed_64(field::END_TIME_UNIX_NANO, self.end_unix.0);
        let is_remote = self.parent.is_some() && self.is_parent_remote;
        span.fixed_32(field::FLAGS, KNOWS_REMOTE | if is_remote { IS_REMOTE } else { 0 });
    }
}

fn write_status(status: &mut Message, has_failed: bool, details: &str) {
    if has_failed {
        if !details.is_empty() {
            status.bytes(2, details.as_bytes());
        }
        status.number(3, STATUS_ERROR);
    }
}

// === impl Said ===

impl Said<'_> {
    pub(super) fn text(&mut self, key: &str, text: &str) {
        self.attribute(key, |value| value.bytes(1, text.as_bytes()));
    }

    /// Omits empty text.
    pub(super) fn text_if_any(&mut self, key: &str, text: &str) {
        if !text.is_empty() {
            self.text(key, text);
        }
    }

    pub(super) fn count(&mut self, key: &str, count: u64) {
        // A negative value would take ten bytes; there are none.
        self.attribute(key, |value| value.number(3, count));
    }

    pub(super) fn float(&mut self, key: &str, float: f64) {
        self.attribute(key, |value| value.fixed_64(4, float.to_bits()));
    }

    /// The span has failed with an error of this type.
    pub(super) fn error(&mut self, kind: &str) {
        self.text(ERROR_TYPE, kind);
        self.has_failed = true;
    }

    pub(super) fn event(&mut self, name: &str, at_unix: Nanos) {
        self.span.message(field::EVENTS, |event| {
            event.fixed_64(1, at_unix.0);
            event.bytes(2, name.as_bytes());
        });
    }

    fn attribute(&mut self, key: &str, write: impl FnOnce(&mut Message)) {
        self.span.message(field::ATTRIBUTES, |pair| {
            pair.bytes(1, key.as_bytes());
            pair.message(2, write);
        });
    }
}
