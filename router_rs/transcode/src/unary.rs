//! Requests and answers that are one message: Connect's unary calls, and JSON over HTTP.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, VARY};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use prost_reflect::DescriptorPool;
use router_protocol::grpc::compress::{compress, decompress};
use router_protocol::grpc::framing::put_prefix;
use router_protocol::grpc::{
    Code, Decoder, Encoding, GRPC_ACCEPT_ENCODING, GRPC_ENCODING, GRPC_MESSAGE, GRPC_STATUS,
    Message, PREFIX_BYTES, SizeLimit, Status,
};
use router_protocol::names::ANSWERED_BY;
use smallvec::SmallVec;

use super::coder::{AnswerCoder, Failure, Outbox, RequestCoder, Taken};
use super::cors::Grant;
use super::head::answer_head;
use super::json::{JsonType, frame_of};
use super::status::{DETAILS, ErrorForm, failure_status, http_status};
use super::work::{Work, is_long};

/// Smaller answers are not compressed: they fit into the same packet anyway.
const COMPRESSED_BYTES_MIN: usize = 1024;

/// Converts a complete body into a gRPC frame.
pub(super) trait Convert: std::fmt::Debug + Send {
    /// # Errors
    /// The error in the body.
    fn frame(&self, body: Bytes) -> Result<Bytes, Status>;
}

/// The body is the message.
#[derive(Debug)]
pub(super) struct AsProto;

impl Convert for AsProto {
    fn frame(&self, body: Bytes) -> Result<Bytes, Status> {
        Ok(frame_of(&[&body]))
    }
}

/// The body is the message's JSON.
impl Convert for JsonType {
    fn frame(&self, body: Bytes) -> Result<Bytes, Status> {
        Ok(frame_of(&[&self.read(&body)?]))
    }
}

/// The request's body is one message, which is collected and converted.
#[derive(Debug)]
pub(super) struct WholeRequest {
    /// Until the body is complete.
    convert: Option<Box<dyn Convert>>,
    encoding: Encoding,
    size_limit: SizeLimit,
    body: Message,
    unread: Bytes,
    is_complete: bool,
}

impl WholeRequest {
    pub(super) fn new(
        convert: Box<dyn Convert>,
        encoding: Encoding,
        size_limit: SizeLimit,
    ) -> Self {
        Self {
            convert: Some(convert),
            encoding,
            size_limit,
            body: Message::default(),
            unread: Bytes::new(),
            is_complete: false,
        }
    }

    fn frame(&mut self, convert: Box<dyn Convert>) -> Result<Taken, Status> {
        let mut body = std::mem::take(&mut self.body);
        let (encoding, size_limit) = (self.encoding, self.size_limit);
        // An empty body is not even an empty gzip stream; clients send it for an empty message.
        body.compressed = encoding != Encoding::Identity && !body.is_empty();
        let is_long = is_long(&body);
        let make = move || {
            let body = decompress(encoding, body, size_limit).map_err(of_client)?;
            convert.frame(body.into_bytes())
        };
        if is_long {
            return Ok(Taken::Long(Work::new(move || make().map(Message::from_bytes))));
        }
        make().map(Taken::Piece)
    }
}

impl RequestCoder for WholeRequest {
    fn give(&mut self, bytes: Bytes, is_last: bool) {
        self.unread = bytes;
        self.is_complete = is_last;
    }

    fn take(&mut self) -> Result<Taken, Status> {
        let bytes = std::mem::take(&mut self.unread);
        if !bytes.is_empty() {
            self.size_limit.check("received", self.body.len() + bytes.len())?;
            self.body.segments.push(bytes);
        }
        match self.convert.take_if(|_| self.is_complete) {
            Some(convert) => self.frame(convert),
            None if self.convert.is_some() => Ok(Taken::NeedsMore),
            None => Ok(Taken::End),
        }
    }

    fn unread_bytes(&self) -> usize {
        self.unread.len()
    }
}

/// The request's body is one message whose size is in its head: it is passed on as it comes.
#[derive(Debug)]
pub(super) struct SizedRequest {
    prefix: Option<Bytes>,
    missing: usize,
    unread: Bytes,
    is_complete: bool,
}

impl SizedRequest {
    pub(super) fn new(size: usize) -> Self {
        let mut prefix = BytesMut::with_capacity(PREFIX_BYTES);
        put_prefix(&mut prefix, size);
        let prefix = Some(prefix.freeze());
        Self { prefix, missing: size, unread: Bytes::new(), is_complete: false }
    }
}

impl RequestCoder for SizedRequest {
    fn give(&mut self, bytes: Bytes, is_last: bool) {
        self.unread = bytes;
        self.is_complete = is_last;
    }

    fn take(&mut self) -> Result<Taken, Status> {
        if let Some(prefix) = self.prefix.take() {
            return Ok(Taken::Piece(prefix));
        }
        let bytes = std::mem::take(&mut self.unread);
        let is_right =
            bytes.len() == self.missing || (bytes.len() < self.missing && !self.is_complete);
        if !is_right {
            let text = "malformed body: its length is not what content-length says";
            return Err(Status::new(Code::InvalidArgument, text));
        }
        self.missing -= bytes.len();
        Ok(match (bytes.is_empty(), self.is_complete) {
            (false, _) => Taken::Piece(bytes),
            (true, false) => Taken::NeedsMore,
            (true, true) => Taken::End,
        })
    }

    fn unread_bytes(&self) -> usize {
        self.unread.len()
    }
}

/// The request's message was in its head; a body would be ignored.
#[derive(Debug)]
pub(super) struct ReadyRequest {
    frame: Option<Bytes>,
}

impl ReadyRequest {
    pub(super) fn new(frame: Bytes) -> Self {
        Self { frame: Some(frame) }
    }
}

impl RequestCoder for ReadyRequest {
    fn give(&mut self, _bytes: Bytes, _is_last: bool) {}

    fn take(&mut self) -> Result<Taken, Status> {
        Ok(self.frame.take().map_or(Taken::End, Taken::Piece))
    }

    fn unread_bytes(&self) -> usize {
        0
    }
}

/// The form of an answer's body.
#[derive(Debug)]
pub(super) enum AnswerEncoding {
    Proto,
    Json(JsonType),
    /// One field of the message, by its name in JSON.
    Field(JsonType, Box<str>),
}

/// The form of one call's answers.
#[derive(Debug)]
pub(super) struct AnswerForm {
    pub body: Arc<AnswerEncoding>,
    pub errors: ErrorForm,
    /// For details of errors.
    pub pool: Option<DescriptorPool>,
    pub grant: Grant,
}

impl AnswerForm {
    pub(super) fn content_type(&self) -> HeaderValue {
        HeaderValue::from_static(match *self.body {
            AnswerEncoding::Proto => "application/proto",
            AnswerEncoding::Json(_) | AnswerEncoding::Field(..) => JSON,
        })
    }

    pub(super) fn error(&self, status: &Status, trailers: &HeaderMap) -> Vec<u8> {
        self.errors.write(status, trailers, self.pool.as_ref()).to_string().into_bytes()
    }
}

impl AnswerEncoding {
    /// The body of an answer with this message.
    pub(super) fn write(&self, message: Bytes) -> Result<Bytes, Status> {
        match self {
            AnswerEncoding::Proto => Ok(message),
            AnswerEncoding::Json(json) => json.write(&message).map(Bytes::from),
            AnswerEncoding::Field(json, name) => json.write_field(&message, name).map(Bytes::from),
        }
    }
}

pub(super) const JSON: &str = "application/json";

/// The answer is one message, or an error; both need the status, so both wait for the end.
#[derive(Debug)]
pub(super) struct UnaryAnswer {
    form: AnswerForm,
    accepts_gzip: bool,
    size_limit: SizeLimit,
    decoder: Decoder,
    encoding: Encoding,
    headers: HeaderMap,
    message: Option<Message>,
    /// Of the answer, while its body is made.
    trailers: HeaderMap,
    unread: Bytes,
}

impl UnaryAnswer {
    pub(super) fn new(form: AnswerForm, accepts_gzip: bool, size_limit: SizeLimit) -> Self {
        Self {
            form,
            accepts_gzip,
            size_limit,
            decoder: Decoder::new(size_limit),
            encoding: Encoding::Identity,
            headers: HeaderMap::new(),
            message: None,
            trailers: HeaderMap::new(),
            unread: Bytes::new(),
        }
    }

    /// The body, if the status allows one.
    fn make_body(&mut self, outbox: &mut Outbox) -> Result<(), Status> {
        let message = self.message.take().filter(|_| self.decoder.is_between_messages());
        let Some(message) = message else {
            let text = "the service answered OK without a whole message";
            return Err(Status::new(Code::Internal, text));
        };
        let is_long = is_long(&message);
        let (encoding, size_limit) = (self.encoding, self.size_limit);
        let (accepts_gzip, body) = (self.accepts_gzip, Arc::clone(&self.form.body));
        let make = move || {
            let message = decompress(encoding, message, size_limit)?;
            let body = Message::from_bytes(body.write(message.into_bytes())?);
            let is_worth_it = accepts_gzip && body.len() >= COMPRESSED_BYTES_MIN;
            Ok(if is_worth_it { compress(Encoding::Gzip, body) } else { body })
        };
        if is_long {
            outbox.work = Some(Work::new(make));
        } else {
            self.resume(make()?, outbox);
        }
        Ok(())
    }

    fn write(&mut self, body: Message, outbox: &mut Outbox) {
        let mut headers = std::mem::take(&mut self.headers);
        headers.insert(CONTENT_TYPE, self.form.content_type());
        add_trailers(&mut headers, &self.trailers);
        if body.compressed {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        headers.append(VARY, HeaderValue::from(ACCEPT_ENCODING));
        self.send(StatusCode::OK, headers, body.into_bytes(), outbox);
    }

    fn write_error(
        &mut self,
        http_status: StatusCode,
        status: &Status,
        trailers: &HeaderMap,
        outbox: &mut Outbox,
    ) {
        let mut headers = std::mem::take(&mut self.headers);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        add_trailers(&mut headers, trailers);
        let body = self.form.error(status, trailers);
        self.send(http_status, headers, body.into(), outbox);
    }

    fn send(&self, status: StatusCode, mut headers: HeaderMap, body: Bytes, outbox: &mut Outbox) {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        self.form.grant.write(&mut headers);
        outbox.head = Some(answer_head(status, headers));
        outbox.push(body);
        outbox.is_ended = true;
    }
}

impl AnswerCoder for UnaryAnswer {
    fn head(&mut self, mut headers: HeaderMap, _outbox: &mut Outbox) {
        // An unknown encoding is noticed when its first message is read.
        self.encoding = Encoding::from_header(headers.get(GRPC_ENCODING)).unwrap_or_default();
        remove_grpc(&mut headers);
        self.headers = headers;
    }

    fn give(&mut self, bytes: Bytes) {
        self.unread = bytes;
    }

    fn step(&mut self, _outbox: &mut Outbox) -> Result<bool, Status> {
        if self.unread.is_empty() {
            return Ok(false);
        }
        let message = self.decoder.decode(&mut self.unread)?;
        if message.is_some() && self.message.is_some() {
            let text = "the service answered a unary call with more than one message";
            return Err(Status::new(Code::Internal, text));
        }
        self.message = message.or(self.message.take());
        Ok(true)
    }

    fn finish(&mut self, trailers: HeaderMap, outbox: &mut Outbox) -> Result<(), Status> {
        let status = end_status(&trailers);
        if status.code == Code::Ok {
            self.trailers = trailers;
            self.make_body(outbox)?;
        } else {
            self.write_error(http_status(status.code), &status, &trailers, outbox);
        }
        Ok(())
    }

    fn resume(&mut self, made: Message, outbox: &mut Outbox) {
        self.write(made, outbox);
    }

    fn fail(&mut self, failure: &Failure<'_>, outbox: &mut Outbox) {
        self.headers.extend(failure.headers.clone());
        self.write_error(failure_status(failure), failure.status, &HeaderMap::new(), outbox);
    }
}

/// The status that ends an answer.
pub(super) fn end_status(trailers: &HeaderMap) -> Status {
    let missing = || Status::new(Code::Unknown, "the answer ended without a status");
    Status::read(trailers).unwrap_or_else(missing)
}

/// A failure caused by the client's bytes, whatever its gRPC code.
pub(super) fn of_client(status: Status) -> Status {
    match status.code {
        Code::Internal => Status::new(Code::InvalidArgument, status.message),
        _ => status,
    }
}

/// Leaves only metadata.
pub(super) fn remove_grpc(headers: &mut HeaderMap) {
    let names = [
        CONTENT_TYPE,
        CONTENT_LENGTH,
        GRPC_ENCODING,
        GRPC_ACCEPT_ENCODING,
        GRPC_STATUS,
        GRPC_MESSAGE,
    ];
    for name in names.into_iter().chain([DETAILS]) {
        headers.remove(name);
    }
}

/// Trailing metadata as headers, with the prefix `trailer-`.
pub(super) fn add_trailers(headers: &mut HeaderMap, trailers: &HeaderMap) {
    let mut trailers = trailers.clone();
    remove_grpc(&mut trailers);
    if let Some(answered_by) = trailers.remove(ANSWERED_BY) {
        headers.insert(ANSWERED_BY, answered_by);
    }
    for (name, value) in &trailers {
        let name: SmallVec<[u8; 64]> =
            b"trailer-".iter().chain(name.as_str().as_bytes()).copied().collect();
        if let Ok(name) = HeaderName::from_bytes(&name) {
            headers.append(name, value.clone());
        }
    }
}
