//! Connect's requests (connectrpc.com/docs/protocol), and plain JSON to a method's path.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method as HttpMethod, Response, StatusCode, request,
};
use router_call::Door;
use router_protocol::content_length;
use router_protocol::grpc::{
    Code, Encoding, GRPC_ACCEPT_ENCODING, GRPC_ENCODING, GRPC_TIMEOUT, Status, format_timeout,
};

use super::Limits;
use super::coder::{AnswerCoder, RequestCoder};
use super::connect_type::ConnectType;
use super::head::{self, accepts_gzip, content_encoding, grpc_head};
use super::json::Source;
use super::json_stream::{JsonStreamAnswer, Separation};
use super::methods::Sees;
use super::methods::{Method, MethodTable};
use super::opened::{Opened, Transcoding, error_answer, wrong_content_type, wrong_method};
use super::query;
use super::status::ErrorForm;
use super::stream::{CONNECT_ENCODING, JsonStreamRequest, ProtoStreamRequest, StreamAnswer};
use super::unary::{
    AnswerEncoding, AnswerForm, AsProto, Convert, ReadyRequest, SizedRequest, UnaryAnswer,
    WholeRequest,
};
use super::work::LONG_BYTES;

pub(super) const VERSION: HeaderName = HeaderName::from_static("connect-protocol-version");
const TIMEOUT: HeaderName = HeaderName::from_static("connect-timeout-ms");
const STREAM_ACCEPT: HeaderName = HeaderName::from_static("connect-accept-encoding");

/// The specification allows no more digits.
const TIMEOUT_DIGITS_MAX: usize = 10;

const PROTO: HeaderValue = HeaderValue::from_static("application/grpc+proto");

/// URLs use the other alphabet, and often no padding; both are accepted.
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Opens a request to a method's path; `None`: the method is not described here.
pub(super) fn open(
    methods: &MethodTable,
    parts: &request::Parts,
    method: Option<&Method>,
    limits: &Limits,
    sees: Sees<'_>,
) -> Opened {
    let has_get = method.is_some_and(|method| method.has_no_side_effects && method.is_unary());
    if parts.method == HttpMethod::GET && has_get {
        return opened(open_get(parts, method, limits));
    }
    if parts.method != HttpMethod::POST {
        return Opened::Answer(wrong_method(if has_get { "GET, POST" } else { "POST" }));
    }
    let Some(connect_type) = parts.headers.get(CONTENT_TYPE).and_then(ConnectType::parse) else {
        return Opened::Answer(wrong_content_type(parts, accepted_types(method)));
    };
    let is_plain = connect_type == ConnectType::UnaryJson && !parts.headers.contains_key(VERSION);
    let fits = match method {
        None => !connect_type.is_json(),
        Some(method) if connect_type.is_stream() => !method.is_unary(),
        Some(method) => method.is_unary() || (is_plain && !method.client_streams),
    };
    if !fits {
        return Opened::Answer(match method {
            Some(_) => wrong_content_type(parts, accepted_types(method)),
            None => undescribed(methods, parts.uri.path(), sees),
        });
    }
    let call = if connect_type.is_stream() {
        open_stream(parts, connect_type.is_json(), method, limits)
    } else {
        open_unary(parts, connect_type.is_json(), method, limits)
    };
    opened(call)
}

/// The JSON error for an unknown method, or one whose messages are not known here. Clients
/// interpret 404 as `unimplemented`; clients of streams do not read a body with such a status.
pub(super) fn undescribed(methods: &MethodTable, path: &str, sees: Sees<'_>) -> Response<Bytes> {
    let text = match (methods.near(path, sees), &methods.of_service(path, sees)[..]) {
        (Some(near), _) => format!("{path} is unknown; did you mean {near}?"),
        (None, []) => format!("{path} is unknown, or not described here: then it takes no JSON"),
        (None, known) => format!("{path} is unknown; its service has {}", known.join(", ")),
    };
    let mut answer = error_answer(ErrorForm::Connect, &Status::new(Code::Unimplemented, text));
    *answer.status_mut() = StatusCode::NOT_FOUND;
    answer
}

fn opened(call: Result<Transcoding, Status>) -> Opened {
    match call {
        Ok(transcoding) => Opened::Call(Box::new(transcoding)),
        Err(status) => Opened::Answer(error_answer(ErrorForm::Connect, &status)),
    }
}

fn open_unary(
    parts: &request::Parts,
    is_json: bool,
    method: Option<&Method>,
    limits: &Limits,
) -> Result<Transcoding, Status> {
    check_version(&parts.headers)?;
    let encoding = encoding(content_encoding(&parts.headers)?.as_ref())?;
    let size_limit = limits.message_size;
    let size = content_length(&parts.headers).and_then(|size| usize::try_from(size).ok());
    if let Some(size) = size {
        size_limit.check("received", size)?;
    }
    let request: Box<dyn RequestCoder> = match (method, size) {
        (Some(method), _) if is_json => {
            let json: Box<dyn Convert> = Box::new(limits.input(method, &parts.headers)?);
            Box::new(WholeRequest::new(json, encoding, size_limit))
        }
        (_, Some(size)) if encoding == Encoding::Identity => Box::new(SizedRequest::new(size)),
        _ => Box::new(WholeRequest::new(Box::new(AsProto), encoding, size_limit)),
    };
    let is_plain = is_json && !parts.headers.contains_key(VERSION);
    Ok(Transcoding {
        head: head(parts)?,
        is_stream: false,
        is_head: false,
        door: if is_plain { Door::Json } else { Door::Connect },
        answered_by: limits.answered_by.clone(),
        request,
        answer: unary_answer(parts, is_json, method, limits),
    })
}

fn unary_answer(
    parts: &request::Parts,
    is_json: bool,
    method: Option<&Method>,
    limits: &Limits,
) -> Box<dyn AnswerCoder> {
    let body = match method {
        Some(method) if is_json => AnswerEncoding::Json(method.output.clone()),
        _ => AnswerEncoding::Proto,
    };
    let form = AnswerForm {
        body: Arc::new(body),
        errors: ErrorForm::Connect,
        pool: method.map(Method::pool),
        grant: limits.cors.grant(&parts.headers),
    };
    let size_limit = limits.message_size;
    if method.is_some_and(|method| method.server_streams) {
        let separation = Separation::of_accept(parts.headers.get(ACCEPT));
        let form = AnswerForm { errors: ErrorForm::Google, ..form };
        return Box::new(JsonStreamAnswer::new(form, separation, size_limit));
    }
    let accepts_gzip = accepts_gzip(parts.headers.get(ACCEPT_ENCODING));
    Box::new(UnaryAnswer::new(form, accepts_gzip, size_limit))
}

fn open_stream(
    parts: &request::Parts,
    is_json: bool,
    method: Option<&Method>,
    limits: &Limits,
) -> Result<Transcoding, Status> {
    check_version(&parts.headers)?;
    let encoding = encoding(parts.headers.get(CONNECT_ENCODING))?;
    let size_limit = limits.message_size;
    let is_unary = method.is_some_and(|method| !method.client_streams);
    let mut head = head(parts)?;
    let request: Box<dyn RequestCoder> = match method {
        Some(method) if is_json => {
            let json = limits.input(method, &parts.headers)?;
            Box::new(JsonStreamRequest::new(json, encoding, is_unary, size_limit))
        }
        _ => {
            head.headers.extend(encoding.header().map(|value| (GRPC_ENCODING, value)));
            if accepts_gzip(parts.headers.get(STREAM_ACCEPT)) {
                let accepted = HeaderValue::from_static("identity,gzip");
                head.headers.insert(GRPC_ACCEPT_ENCODING, accepted);
            }
            Box::new(ProtoStreamRequest::new(encoding, is_unary, size_limit))
        }
    };
    let json = method.filter(|_| is_json).map(|method| method.output.clone());
    let grant = limits.cors.grant(&parts.headers);
    let answer = StreamAnswer::new(json, method.map(Method::pool), grant, size_limit);
    let answered_by = limits.answered_by.clone();
    let answer = Box::new(answer);
    let door = Door::Connect;
    Ok(Transcoding {
        head,
        is_stream: !is_unary,
        is_head: false,
        door,
        answered_by,
        request,
        answer,
    })
}

/// A call whose message is in the query.
fn open_get(
    parts: &request::Parts,
    method: Option<&Method>,
    limits: &Limits,
) -> Result<Transcoding, Status> {
    let query = parts.uri.query().unwrap_or_default();
    // A message in protobuf need not be UTF-8.
    let bytes = |name: &str| query::bytes_of(query, name);
    let value = |name: &str| bytes(name).map(|value| String::from_utf8_lossy(&value).into_owned());
    if let Some(version) = value("connect").filter(|version| version != "v1") {
        let text = format!("connect={version:?} is unknown here, use connect=v1");
        return Err(Status::new(Code::InvalidArgument, text));
    }
    let is_json = match value("encoding").as_deref() {
        Some("json") => true,
        Some("proto") => false,
        other => {
            let name = other.unwrap_or_default();
            let text = format!("encoding={name:?} is unknown here, use proto or json");
            return Err(Status::new(Code::InvalidArgument, text));
        }
    };
    let Some(message) = bytes("message") else {
        let text = "the query has no message=, write message={} for an empty one";
        return Err(Status::new(Code::InvalidArgument, text));
    };
    let bytes = match value("base64").as_deref() {
        Some("1") => unpack_base64(&String::from_utf8_lossy(&message))?,
        _ => Bytes::from(message),
    };
    let compression = value("compression").as_deref().map(HeaderValue::from_str).transpose();
    let encoding = encoding(compression.unwrap_or_default().as_ref())?;
    let convert: Box<dyn Convert> = match method {
        Some(method) if is_json => {
            Box::new(limits.input(method, &parts.headers)?.in_the(Source::Query))
        }
        _ => Box::new(AsProto),
    };
    limits.message_size.check("received", bytes.len())?;
    let is_compressed = encoding != Encoding::Identity && !bytes.is_empty();
    let request: Box<dyn RequestCoder> = if is_compressed || bytes.len() > LONG_BYTES {
        // The limit is that of a body: few bytes of a query may be a long message when
        // decompressed.
        let mut request = WholeRequest::new(convert, encoding, limits.message_size);
        request.give(bytes, true);
        Box::new(request)
    } else {
        Box::new(ReadyRequest::new(convert.frame(bytes)?))
    };
    Ok(Transcoding {
        head: head(parts)?,
        is_stream: false,
        is_head: false,
        door: Door::Connect,
        answered_by: limits.answered_by.clone(),
        request,
        answer: unary_answer(parts, is_json, method, limits),
    })
}

fn unpack_base64(message: &str) -> Result<Bytes, Status> {
    // Some clients use the standard alphabet, percent-encoded.
    let message: String = message
        .chars()
        .map(|c| match c {
            '+' => '-',
            '/' => '_',
            c => c,
        })
        .collect();
    URL_SAFE.decode(message).map(Bytes::from).map_err(|error| {
        let text = format!("the query's message= is no URL-safe base64: {error}");
        Status::new(Code::InvalidArgument, text)
    })
}

/// The gRPC head, with the deadline, which `curl` sends as in plain HTTP.
fn head(parts: &request::Parts) -> Result<request::Parts, Status> {
    let timeout = match read_timeout(&parts.headers)? {
        Some(timeout) => Some(timeout),
        None => head::read_timeout(&parts.headers)?,
    };
    let mut head = grpc_head(parts, parts.uri.path(), PROTO);
    if let Some(timeout) = timeout {
        head.headers.insert(GRPC_TIMEOUT, format_timeout(timeout));
    }
    // Asks for uncompressed messages: they are converted here, or get an encoding of Connect's.
    head.headers.remove(GRPC_ENCODING);
    head.headers.insert(GRPC_ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    Ok(head)
}

fn check_version(headers: &HeaderMap) -> Result<(), Status> {
    match headers.get(VERSION) {
        None => Ok(()),
        Some(version) if version == "1" => Ok(()),
        Some(version) => {
            let version = String::from_utf8_lossy(version.as_bytes());
            let text = format!("{VERSION} is {version:?}, the one known here is 1");
            Err(Status::new(Code::InvalidArgument, text))
        }
    }
}

/// The encoding that a header names; gzip is the only one that the protocol and the mesh share.
fn encoding(value: Option<&HeaderValue>) -> Result<Encoding, Status> {
    match value.map(HeaderValue::as_bytes) {
        None | Some(b"" | b"identity") => Ok(Encoding::Identity),
        Some(b"gzip") => Ok(Encoding::Gzip),
        Some(other) => {
            let name = String::from_utf8_lossy(other).escape_default().to_string();
            let text = format!("compression \"{name}\" is unknown here, use gzip or identity");
            Err(Status::new(Code::Unimplemented, text))
        }
    }
}

/// Parses `connect-timeout-ms`.
///
/// # Errors
/// `INVALID_ARGUMENT` for a malformed one, saying what to write.
pub(super) fn read_timeout(headers: &HeaderMap) -> Result<Option<Duration>, Status> {
    let Some(value) = headers.get(TIMEOUT) else { return Ok(None) };
    let digits = value.as_bytes();
    let is_number =
        (1..=TIMEOUT_DIGITS_MAX).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    if !is_number || headers.get_all(TIMEOUT).iter().count() > 1 {
        let text = format!("malformed {TIMEOUT}, write one number of at most ten digits");
        return Err(Status::new(Code::InvalidArgument, text));
    }
    let number = digits.iter().fold(0_u64, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    Ok(Some(Duration::from_millis(number)))
}

/// The content types that a method accepts, for `accept-post`.
fn accepted_types(method: Option<&Method>) -> &'static str {
    match method {
        Some(method) if method.is_unary() => {
            "application/grpc, application/grpc-web, application/proto, application/json"
        }
        Some(method) if !method.client_streams => {
            "application/grpc, application/grpc-web, application/connect+proto, \
             application/connect+json, application/json"
        }
        _ => {
            "application/grpc, application/grpc-web, application/connect+proto, \
             application/connect+json"
        }
    }
}
