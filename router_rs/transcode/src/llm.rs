//! Calls of engines for language models. Their requests are read in full before there is a call,
//! and `router_llm` writes the answers for clients.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, request};
use parking_lot::Mutex;
use router_call::Door;
use router_llm::{Answer, Opened, Output};
use router_protocol::grpc::compress::decompress;
use router_protocol::grpc::{
    Code, Decoder, Encoding, GRPC_ACCEPT_ENCODING, GRPC_ENCODING, GRPC_TIMEOUT, Message, SizeLimit,
    Status, format_timeout, whole_seconds,
};
use router_protocol::names::{ANSWERED_BY, EXPLAIN};

use super::Limits;
use super::coder::{AnswerCoder, Failure, Outbox};
use super::cors::Grant;
use super::head::{answer_head, grpc_head, read_timeout};
use super::json::frame_of;
use super::opened::Transcoding;
use super::unary::{ReadyRequest, end_status, remove_grpc};
use super::work::{LONG_BYTES, Work, is_long};

const PROTO: HeaderValue = HeaderValue::from_static("application/grpc+proto");

/// The call that a request has become, with the client's headers.
///
/// # Errors
/// `INVALID_ARGUMENT`: its timeout cannot be read.
pub fn open_llm(
    parts: &request::Parts,
    opened: Opened,
    door: Door,
    limits: &Limits,
) -> Result<Transcoding, Status> {
    let mut head = grpc_head(parts, opened.path, PROTO);
    if let Some(timeout) = read_timeout(&parts.headers)? {
        head.headers.entry(GRPC_TIMEOUT).or_insert_with(|| format_timeout(timeout));
    }
    head.headers.remove(GRPC_ENCODING);
    head.headers.insert(GRPC_ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let grant = limits.cors.grant(&parts.headers);
    Ok(Transcoding {
        head,
        is_stream: false,
        is_head: false,
        door,
        answered_by: limits.answered_by.clone(),
        request: Box::new(ReadyRequest::new(frame_of(&[&opened.message]))),
        answer: Box::new(LlmAnswer::new(opened.answer, grant, limits)),
    })
}

/// Passes an engine's messages to the `Answer` that writes the client's.
#[derive(Debug)]
pub(super) struct LlmAnswer {
    /// The thread that converts a long message has it meanwhile.
    writer: Arc<Mutex<Writer>>,
    grant: Grant,
    size_limit: SizeLimit,
    keep_alive: Duration,
    decoder: Decoder,
    encoding: Encoding,
    /// Of the engine's answer, until the client's has a head.
    headers: HeaderMap,
    has_head: bool,
    unread: Bytes,
}

#[derive(Debug)]
struct Writer {
    answer: Box<dyn Answer>,
    output: Output,
}

// === impl LlmAnswer ===

impl LlmAnswer {
    pub(super) fn new(answer: Box<dyn Answer>, grant: Grant, limits: &Limits) -> Self {
        let size_limit = limits.message_size;
        Self {
            writer: Arc::new(Mutex::new(Writer { answer, output: Output::default() })),
            grant,
            size_limit,
            keep_alive: limits.keep_alive,
            decoder: Decoder::new(size_limit),
            encoding: Encoding::Identity,
            headers: HeaderMap::new(),
            has_head: false,
            unread: Bytes::new(),
        }
    }

    /// Hands over all that has been written, once there is a head: the head of an answer that is
    /// not streamed contains the length of its body.
    fn flush(&mut self, output: &mut Output, outbox: &mut Outbox) {
        if let Some(head) = output.head.take() {
            let mut headers = std::mem::take(&mut self.headers);
            headers.extend(head.headers);
            self.grant.write(&mut headers);
            outbox.head = Some(answer_head(head.status, headers));
            self.has_head = true;
        }
        if self.has_head {
            outbox.push(output.body.split());
        }
        outbox.is_ended |= output.is_ended;
    }

    /// Ends the answer with a status that is not OK.
    fn end(&mut self, status: &Status, headers: &HeaderMap, outbox: &mut Outbox) {
        let writer = Arc::clone(&self.writer);
        let Some(mut writer) = writer.try_lock() else {
            // Another thread is converting a message, so it is unknown what has been written.
            (outbox.is_ended, outbox.is_broken) = (true, true);
            return;
        };
        let Writer { answer, output } = &mut *writer;
        answer.fail(status, headers, output);
        self.flush(output, outbox);
    }
}

impl AnswerCoder for LlmAnswer {
    /// Nothing is sent before the first message: until then an error has an HTTP status.
    fn head(&mut self, mut headers: HeaderMap, _outbox: &mut Outbox) {
        // An unknown encoding is noticed when its first message is read.
        self.encoding = Encoding::from_header(headers.get(GRPC_ENCODING)).unwrap_or_default();
        remove_grpc(&mut headers);
        self.headers = headers;
    }

    fn give(&mut self, bytes: Bytes) {
        self.unread = bytes;
    }

    /// Converts several short messages, which are sent as one piece.
    fn step(&mut self, outbox: &mut Outbox) -> Result<bool, Status> {
        if self.unread.is_empty() {
            return Ok(false);
        }
        let writer = Arc::clone(&self.writer);
        let Writer { answer, output } = &mut *writer.lock();
        let has_head = self.has_head;
        let has_room = |output: &Output| {
            output.body.len() < LONG_BYTES || (!has_head && output.head.is_none())
        };
        while !self.unread.is_empty() && has_room(output) && !output.is_ended {
            let message = self.decoder.decode(&mut self.unread).map_err(of_engine)?;
            let Some(message) = message else { continue };
            if is_long(&message) {
                outbox.work = Some(self.convert(message));
                break;
            }
            answer.message(&message.into_bytes(), output)?;
        }
        self.flush(output, outbox);
        Ok(true)
    }

    fn finish(&mut self, trailers: HeaderMap, outbox: &mut Outbox) -> Result<(), Status> {
        let status = end_status(&trailers);
        if status.code != Code::Ok {
            self.end(&status, &told(&status, trailers), outbox);
            return Ok(());
        }
        if !self.decoder.is_between_messages() {
            let text = "the engine's answer ends inside of a message";
            return Err(Status::new(Code::Internal, text));
        }
        let writer = Arc::clone(&self.writer);
        let Writer { answer, output } = &mut *writer.lock();
        answer.finish(output);
        self.flush(output, outbox);
        Ok(())
    }

    fn resume(&mut self, _made: Message, outbox: &mut Outbox) {
        let writer = Arc::clone(&self.writer);
        self.flush(&mut writer.lock().output, outbox);
    }

    fn fail(&mut self, failure: &Failure<'_>, outbox: &mut Outbox) {
        self.end(failure.status, failure.headers, outbox);
    }

    fn silence_max(&self) -> Option<Duration> {
        Some(self.keep_alive)
    }

    fn keep_alive(&mut self, outbox: &mut Outbox) {
        let writer = Arc::clone(&self.writer);
        let Writer { answer, output } = &mut *writer.lock();
        answer.keep_alive(output);
        self.flush(output, outbox);
    }
}

impl LlmAnswer {
    /// Embeddings of many inputs take milliseconds to write.
    fn convert(&self, message: Message) -> Work {
        let (encoding, size_limit) = (self.encoding, self.size_limit);
        let writer = Arc::clone(&self.writer);
        Work::new(move || {
            let message =
                decompress(encoding, message, size_limit).map_err(of_engine)?.into_bytes();
            let Writer { answer, output } = &mut *writer.lock();
            answer.message(&message, output).map(|()| Message::default())
        })
    }
}

/// A message that cannot be read is the engine's fault: by the status of one that is too large, the
/// client would send its request again and again.
fn of_engine(status: Status) -> Status {
    Status { code: Code::Internal, ..status }
}

/// The headers that a client gets for the trailers of a failure.
fn told(status: &Status, mut trailers: HeaderMap) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for name in [ANSWERED_BY, EXPLAIN] {
        headers.extend(trailers.remove(&name).map(|value| (name, value)));
    }
    if let Some(pushback) = status.pushback {
        headers.insert(RETRY_AFTER, whole_seconds(pushback).into());
    }
    headers
}
