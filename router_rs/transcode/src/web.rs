//! gRPC-Web: gRPC's frames over any HTTP, with trailers in a last frame of the body
//! (grpc/doc/PROTOCOL-WEB.md).
//!
//! Messages are passed on unchanged, whatever their codec. The text form is base64 of the same
//! bytes.

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use router_protocol::grpc::{Message, PREFIX_BYTES, Status};

use super::coder::{AnswerCoder, Failure, Outbox, RequestCoder, Taken};
use super::cors::Grant;
use super::head::answer_head;
use super::text::{self, TextDecoder};

/// The frame of trailers has this bit in its flags.
const TRAILERS_FLAG: u8 = 0x80;

const BASE: &str = "application/grpc-web";

/// The parts of a gRPC-Web content type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WebType<'a> {
    /// Base64, for clients that cannot read binary data.
    pub is_text: bool,
    /// With its plus, or empty.
    pub codec: &'a str,
}

impl<'a> WebType<'a> {
    /// `None`: it is another content type.
    pub(super) fn parse(value: &'a HeaderValue) -> Option<Self> {
        let rest = behind(BASE, value.to_str().ok()?)?;
        let (is_text, rest) = behind("-text", rest).map_or((false, rest), |rest| (true, rest));
        let codec = rest.split([';', ' ', '\t']).next().unwrap_or_default();
        let is_codec = codec.is_empty() || codec.starts_with('+');
        is_codec.then_some(Self { is_text, codec })
    }

    /// The content type of the gRPC call.
    pub(super) fn of_grpc(self) -> HeaderValue {
        header(format!("application/grpc{}", self.codec))
    }

    /// The content type of the answer; `of_grpc`: that of the gRPC answer.
    fn of_answer(self, of_grpc: Option<&HeaderValue>) -> HeaderValue {
        let codec = of_grpc
            .and_then(|value| value.to_str().ok()?.strip_prefix("application/grpc"))
            .unwrap_or(self.codec);
        let text = if self.is_text { "-text" } else { "" };
        header(format!("{BASE}{text}{}", if codec.is_empty() { "+proto" } else { codec }))
    }
}

/// The rest of a media type after its prefix, which is case-insensitive.
fn behind<'a>(beginning: &str, text: &'a str) -> Option<&'a str> {
    let (begun, rest) = text.split_at_checked(beginning.len())?;
    begun.eq_ignore_ascii_case(beginning).then_some(rest)
}

fn header(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("invariant: parts of header values")
}

/// The request: frames unchanged, or decoded from base64.
#[derive(Debug)]
pub(super) struct WebRequest {
    text: Option<TextDecoder>,
    unread: Bytes,
    is_complete: bool,
}

impl WebRequest {
    pub(super) fn new(web_type: WebType<'_>) -> Self {
        let text = web_type.is_text.then(TextDecoder::default);
        Self { text, unread: Bytes::new(), is_complete: false }
    }
}

impl RequestCoder for WebRequest {
    fn give(&mut self, bytes: Bytes, is_last: bool) {
        self.unread = bytes;
        self.is_complete = is_last;
    }

    fn take(&mut self) -> Result<Taken, Status> {
        let mut bytes = std::mem::take(&mut self.unread);
        if let Some(text) = &mut self.text {
            bytes = text.decode(&bytes)?;
            if self.is_complete && bytes.is_empty() {
                text.finish()?;
            }
        }
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

/// The answer: frames unchanged, and one with the trailers.
#[derive(Debug)]
pub(super) struct WebAnswer {
    is_text: bool,
    codec: Box<str>,
    grant: Grant,
    has_head: bool,
    unsent: Bytes,
}

impl WebAnswer {
    pub(super) fn new(web_type: WebType<'_>, grant: Grant) -> Self {
        let WebType { is_text, codec } = web_type;
        Self { is_text, codec: codec.into(), grant, has_head: false, unsent: Bytes::new() }
    }

    fn write_head(&mut self, mut headers: HeaderMap, outbox: &mut Outbox) {
        let web_type = WebType { is_text: self.is_text, codec: &self.codec };
        let content_type = web_type.of_answer(headers.get(CONTENT_TYPE));
        headers.insert(CONTENT_TYPE, content_type);
        headers.remove(CONTENT_LENGTH);
        self.grant.write(&mut headers);
        self.has_head = true;
        outbox.head = Some(answer_head(StatusCode::OK, headers));
    }

    fn write_body(&self, bytes: Bytes, outbox: &mut Outbox) {
        outbox.push(if self.is_text { text::encode(&bytes) } else { bytes });
    }

    fn end(&mut self, mut trailers: HeaderMap, outbox: &mut Outbox) {
        if self.has_head {
            trailers.remove(CONTENT_TYPE);
            self.write_body(trailers_frame(&trailers), outbox);
        } else {
            self.write_head(trailers, outbox);
        }
        outbox.is_ended = true;
    }
}

impl AnswerCoder for WebAnswer {
    fn head(&mut self, headers: HeaderMap, outbox: &mut Outbox) {
        self.write_head(headers, outbox);
    }

    fn give(&mut self, bytes: Bytes) {
        self.unsent = bytes;
    }

    fn step(&mut self, outbox: &mut Outbox) -> Result<bool, Status> {
        let bytes = std::mem::take(&mut self.unsent);
        let is_some = !bytes.is_empty();
        self.write_body(bytes, outbox);
        Ok(is_some)
    }

    fn resume(&mut self, _made: Message, _outbox: &mut Outbox) {}

    fn finish(&mut self, trailers: HeaderMap, outbox: &mut Outbox) -> Result<(), Status> {
        self.end(trailers, outbox);
        Ok(())
    }

    fn fail(&mut self, failure: &Failure<'_>, outbox: &mut Outbox) {
        let mut trailers = failure.headers.clone();
        failure.status.write(&mut trailers);
        self.end(trailers, outbox);
    }
}

/// Trailers as a block of HTTP/1.1 header fields, in a frame of their own.
fn trailers_frame(trailers: &HeaderMap) -> Bytes {
    let field_bytes = |(name, value): (&http::HeaderName, &HeaderValue)| {
        name.as_str().len() + ": \r\n".len() + value.len()
    };
    let size: usize = trailers.iter().map(field_bytes).sum();
    let length = u32::try_from(size).expect("invariant: a header block is below 4 GiB");
    let mut frame = BytesMut::with_capacity(PREFIX_BYTES + size);
    frame.extend_from_slice(&[TRAILERS_FLAG]);
    frame.extend_from_slice(&length.to_be_bytes());
    for (name, value) in trailers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            frame.extend_from_slice(part);
        }
    }
    frame.freeze()
}
