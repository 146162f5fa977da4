//! `google.api.HttpBody` at REST paths: a body of any content type, unlike those in JSON.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use prost::Message as _;
use prost_reflect::MessageDescriptor;
use router_protocol::grpc::compress::decompress;
use router_protocol::grpc::{Code, Decoder, Encoding, GRPC_ENCODING, Message, SizeLimit, Status};

use super::coder::{AnswerCoder, Failure, Outbox};
use super::head::answer_head;
use super::json::message_in;
use super::status::{failure_status, http_status};
use super::unary::{AnswerForm, JSON, add_trailers, end_status, remove_grpc};
use super::work::{Work, is_long};

/// For a body whose servicer names no content type.
const BYTES: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// Where the body is in a message.
#[derive(Clone, Copy, Debug)]
pub(super) enum BodyPlace {
    /// The message is it.
    Message,
    /// The field with this number.
    Field(u32),
}

/// `google.api.HttpBody`, whose extensions are for servicers.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HttpBody {
    #[prost(string, tag = "1")]
    pub content_type: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub data: Bytes,
}

impl HttpBody {
    /// Whether messages of this type are bodies.
    pub(super) fn is(descriptor: &MessageDescriptor) -> bool {
        descriptor.full_name() == "google.api.HttpBody"
    }

    fn read(message: Bytes, place: BodyPlace) -> Result<Self, Status> {
        let message = match place {
            BodyPlace::Message => message,
            BodyPlace::Field(number) => message_in(&message, number)?,
        };
        Self::decode(message).map_err(unreadable)
    }

    fn content_type(&self) -> HeaderValue {
        let named = HeaderValue::from_str(&self.content_type).ok();
        named.filter(|value| !value.is_empty()).unwrap_or(BYTES)
    }
}

fn unreadable(error: impl std::fmt::Display) -> Status {
    Status::new(Code::Internal, format!("the answer's google.api.HttpBody is malformed: {error}"))
}

/// The bodies of an answer, one after the other; of a unary call the only one.
#[derive(Debug)]
pub(super) struct BodyAnswer {
    form: AnswerForm,
    place: BodyPlace,
    is_stream: bool,
    size_limit: SizeLimit,
    decoder: Decoder,
    encoding: Encoding,
    headers: HeaderMap,
    /// Of a unary call, until its status is known.
    held: Option<HttpBody>,
    has_begun: bool,
    unread: Bytes,
}

impl BodyAnswer {
    pub(super) fn new(
        form: AnswerForm,
        place: BodyPlace,
        is_stream: bool,
        size_limit: SizeLimit,
    ) -> Self {
        Self {
            form,
            place,
            is_stream,
            size_limit,
            decoder: Decoder::new(size_limit),
            encoding: Encoding::Identity,
            headers: HeaderMap::new(),
            held: None,
            has_begun: false,
            unread: Bytes::new(),
        }
    }

    fn begin(&mut self, status: StatusCode, content_type: HeaderValue, outbox: &mut Outbox) {
        let mut headers = std::mem::take(&mut self.headers);
        headers.insert(CONTENT_TYPE, content_type);
        self.form.grant.write(&mut headers);
        self.has_begun = true;
        outbox.head = Some(answer_head(status, headers));
    }

    /// The whole body of a unary call, or the end of a stream without one.
    fn write_whole(&mut self, trailers: &HeaderMap, outbox: &mut Outbox) -> Result<(), Status> {
        let body = match self.held.take() {
            Some(body) => body,
            None if self.is_stream => HttpBody::default(),
            None => {
                let text = "the service answered OK without a whole message";
                return Err(Status::new(Code::Internal, text));
            }
        };
        add_trailers(&mut self.headers, trailers);
        self.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.data.len()));
        self.begin(StatusCode::OK, body.content_type(), outbox);
        outbox.push(body.data);
        Ok(())
    }

    fn write_error(
        &mut self,
        http_status: StatusCode,
        status: &Status,
        trailers: &HeaderMap,
        outbox: &mut Outbox,
    ) {
        outbox.is_ended = true;
        if self.has_begun {
            // An error in the body would look like data.
            outbox.is_broken = true;
            return;
        }
        let error = self.form.error(status, trailers);
        add_trailers(&mut self.headers, trailers);
        self.headers.insert(CONTENT_LENGTH, HeaderValue::from(error.len()));
        self.begin(http_status, HeaderValue::from_static(JSON), outbox);
        outbox.push(error);
    }
}

impl AnswerCoder for BodyAnswer {
    fn head(&mut self, mut headers: HeaderMap, _outbox: &mut Outbox) {
        self.encoding = Encoding::from_header(headers.get(GRPC_ENCODING)).unwrap_or_default();
        remove_grpc(&mut headers);
        self.headers = headers;
    }

    fn give(&mut self, bytes: Bytes) {
        self.unread = bytes;
    }

    fn step(&mut self, outbox: &mut Outbox) -> Result<bool, Status> {
        if self.unread.is_empty() {
            return Ok(false);
        }
        if let Some(message) = self.decoder.decode(&mut self.unread)? {
            let is_long = is_long(&message);
            let (encoding, size_limit, place) = (self.encoding, self.size_limit, self.place);
            let make = move || {
                let message = decompress(encoding, message, size_limit)?;
                let body = HttpBody::read(message.into_bytes(), place)?;
                Ok(Message::from_bytes(body.encode_to_vec().into()))
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
        let body = HttpBody::decode(made.into_bytes()).expect("invariant: it was written here");
        if !self.is_stream {
            self.held = Some(body);
            return;
        }
        if !self.has_begun {
            self.begin(StatusCode::OK, body.content_type(), outbox);
        }
        outbox.push(body.data);
    }

    fn finish(&mut self, trailers: HeaderMap, outbox: &mut Outbox) -> Result<(), Status> {
        let status = end_status(&trailers);
        if status.code != Code::Ok {
            self.write_error(http_status(status.code), &status, &trailers, outbox);
        } else if !self.has_begun {
            self.write_whole(&trailers, outbox)?;
        }
        outbox.is_ended = true;
        Ok(())
    }

    fn fail(&mut self, failure: &Failure<'_>, outbox: &mut Outbox) {
        self.headers.extend(failure.headers.clone());
        self.write_error(failure_status(failure), failure.status, &HeaderMap::new(), outbox);
    }
}
