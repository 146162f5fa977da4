//! A stream of answers as JSON for any HTTP client: an array, or one line per message.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use router_protocol::grpc::compress::decompress;
use router_protocol::grpc::{Code, Decoder, Encoding, GRPC_ENCODING, Message, SizeLimit, Status};

use super::coder::{AnswerCoder, Failure, Outbox};
use super::head::answer_head;
use super::status::{failure_status, http_status};
use super::unary::{AnswerForm, JSON, end_status, remove_grpc};
use super::work::{Work, is_long};

/// How the messages of one answer are separated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Separation {
    /// `[{}, {}]`
    Array,
    /// `{}\n{}\n` (ndjson)
    Lines,
}

impl Separation {
    /// The form that the client accepts; an array unless it asks for lines.
    pub(super) fn of_accept(accept: Option<&HeaderValue>) -> Self {
        let asks_for_lines = accept.and_then(|value| value.to_str().ok()).is_some_and(|accept| {
            accept.split(',').any(|part| {
                let essence = part.split(';').next().unwrap_or_default().trim();
                LINES.iter().any(|name| essence.eq_ignore_ascii_case(name))
            })
        });
        if asks_for_lines { Separation::Lines } else { Separation::Array }
    }

    fn content_type(self) -> &'static str {
        match self {
            Separation::Array => JSON,
            Separation::Lines => LINES[0],
        }
    }
}

/// Content types of JSON lines; the first is used in answers.
const LINES: [&str; 3] = ["application/x-ndjson", "application/jsonl", "application/ndjson"];

/// The answer's messages as JSON. A failure before the first one is an ordinary error; a later one
/// becomes a last element `{"error": ...}`.
#[derive(Debug)]
pub(super) struct JsonStreamAnswer {
    form: AnswerForm,
    separation: Separation,
    size_limit: SizeLimit,
    decoder: Decoder,
    encoding: Encoding,
    /// Waits for the first message: a failure before it has an HTTP status.
    headers: Option<HeaderMap>,
    has_begun: bool,
    unread: Bytes,
}

impl JsonStreamAnswer {
    pub(super) fn new(form: AnswerForm, separation: Separation, size_limit: SizeLimit) -> Self {
        Self {
            form,
            separation,
            size_limit,
            decoder: Decoder::new(size_limit),
            encoding: Encoding::Identity,
            headers: None,
            has_begun: false,
            unread: Bytes::new(),
        }
    }

    fn send_head(&mut self, status: StatusCode, content_type: &'static str, outbox: &mut Outbox) {
        let mut headers = self.headers.take().unwrap_or_default();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        self.form.grant.write(&mut headers);
        outbox.head = Some(answer_head(status, headers));
    }

    /// Adds one element.
    fn write(&mut self, element: &[u8], outbox: &mut Outbox) {
        let mut piece = BytesMut::with_capacity(element.len() + 2);
        if !self.has_begun {
            self.send_head(StatusCode::OK, self.separation.content_type(), outbox);
        }
        match (self.separation, self.has_begun) {
            (Separation::Array, false) => piece.extend_from_slice(b"["),
            (Separation::Array, true) => piece.extend_from_slice(b","),
            (Separation::Lines, _) => {}
        }
        piece.extend_from_slice(element);
        if self.separation == Separation::Lines {
            piece.extend_from_slice(b"\n");
        }
        self.has_begun = true;
        outbox.push(piece);
    }

    fn end(
        &mut self,
        http_status: StatusCode,
        status: &Status,
        trailers: &HeaderMap,
        outbox: &mut Outbox,
    ) {
        let is_ok = status.code == Code::Ok;
        if !is_ok && !self.has_begun {
            let error = self.form.error(status, trailers);
            self.send_head(http_status, JSON, outbox);
            outbox.push(error);
        } else {
            if !is_ok {
                let error = self.form.error(status, trailers);
                self.write(&error, outbox);
            }
            self.close(outbox);
        }
        outbox.is_ended = true;
    }

    fn close(&mut self, outbox: &mut Outbox) {
        if !self.has_begun {
            self.send_head(StatusCode::OK, self.separation.content_type(), outbox);
        }
        match (self.separation, self.has_begun) {
            (Separation::Array, false) => outbox.push(&b"[]"[..]),
            (Separation::Array, true) => outbox.push(&b"]"[..]),
            (Separation::Lines, _) => {}
        }
    }
}

impl AnswerCoder for JsonStreamAnswer {
    fn head(&mut self, mut headers: HeaderMap, _outbox: &mut Outbox) {
        self.encoding = Encoding::from_header(headers.get(GRPC_ENCODING)).unwrap_or_default();
        remove_grpc(&mut headers);
        self.headers = Some(headers);
    }

    fn give(&mut self, bytes: Bytes) {
        self.unread = bytes;
    }

    fn step(&mut self, outbox: &mut Outbox) -> Result<bool, Status> {
        if self.unread.is_empty() {
            return Ok(false);
        }
        if let Some(message) = self.decoder.decode(&mut self.unread)? {
            let (encoding, size_limit) = (self.encoding, self.size_limit);
            let is_long = is_long(&message);
            let body = Arc::clone(&self.form.body);
            let make = move || {
                let message = decompress(encoding, message, size_limit)?;
                body.write(message.into_bytes()).map(Message::from_bytes)
            };
            if is_long {
                outbox.work = Some(Work::new(make));
            } else {
                self.resume(make()?, outbox);
            }
        }
        Ok(true)
    }

    fn resume(&mut self, made: Message, outbox: &mut Outbox) {
        self.write(&made.into_bytes(), outbox);
    }

    fn finish(&mut self, trailers: HeaderMap, outbox: &mut Outbox) -> Result<(), Status> {
        let status = end_status(&trailers);
        self.end(http_status(status.code), &status, &trailers, outbox);
        Ok(())
    }

    fn fail(&mut self, failure: &Failure<'_>, outbox: &mut Outbox) {
        if !self.has_begun {
            self.headers.get_or_insert_default().extend(failure.headers.clone());
        }
        self.end(failure_status(failure), failure.status, &HeaderMap::new(), outbox);
    }
}
