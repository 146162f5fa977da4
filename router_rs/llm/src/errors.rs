//! An error as OpenAI's and Anthropic's clients expect it.
//!
//! The only table from gRPC codes to the errors of these APIs, and the only place that writes them:
//! as an answer of its own, or as an event of a stream that has begun.

use std::borrow::Cow;
use std::time::Duration;

use bytes::BytesMut;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use router_protocol::grpc::{Code, Status, http_status, whole_seconds};

use crate::write::{JSON, put, put_text, put_text_or_null};
use crate::{Head, Output};

const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// The default retry delay, as everywhere in the mesh.
const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(1);

/// Whose API a door belongs to: both have their own form of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    OpenAi,
    Anthropic,
}

/// Why a request has no answer, or why an answer ends early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    pub status: StatusCode,
    /// The `type` of OpenAI's API; that of Anthropic's follows from the status.
    pub kind: &'static str,
    pub code: Option<Cow<'static, str>>,
    /// The field that is wrong, as `messages[2].content[0].type`.
    pub param: Option<String>,
    pub message: String,
    /// When the client may retry.
    pub retry_after: Option<Duration>,
}

// === impl Dialect ===

impl Dialect {
    /// Every answer of Anthropic's API names its request (docs.anthropic.com/en/api/errors). A name
    /// that no header can have is in the body only.
    pub(crate) fn put_request_id(self, id: &str, head: &mut HeaderMap) {
        let value = HeaderValue::from_str(id).ok().filter(|id| !id.is_empty());
        if let Some(value) = value.filter(|_| self == Dialect::Anthropic) {
            head.insert(REQUEST_ID, value);
        }
    }
}

// === impl ApiError ===

impl ApiError {
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let is_temporary =
            matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS);
        Self {
            status,
            kind: kind(status),
            code: None,
            param: None,
            message: message.into(),
            retry_after: is_temporary.then_some(RETRY_AFTER_DEFAULT),
        }
    }

    /// A field of the request is wrong; the message says where.
    pub fn invalid(param: impl Into<String>, what: impl AsRef<str>) -> Self {
        let param = param.into();
        let message = format!("{param}: {}", what.as_ref());
        Self { param: Some(param), ..Self::new(StatusCode::BAD_REQUEST, message) }
    }

    /// The engine's error, or the mesh's in front of it.
    pub fn of(status: &Status) -> Self {
        let http = http_status(status.code, StatusCode::TOO_MANY_REQUESTS);
        let error = Self::new(http, status.message.clone());
        let retry_after = error.retry_after.map(|default| status.pushback.unwrap_or(default));
        Self { code: code(status.code).map(Cow::Borrowed), retry_after, ..error }
    }

    /// An answer that consists of this error. `id` names the request in Anthropic's form.
    pub fn answer(&self, dialect: Dialect, id: &str, headers: &HeaderMap, output: &mut Output) {
        self.put_body(dialect, id, &mut output.body);
        let mut head = HeaderMap::with_capacity(headers.len() + 4);
        head.extend(headers.iter().map(|(name, value)| (name.clone(), value.clone())));
        head.insert(CONTENT_TYPE, JSON);
        head.insert(CONTENT_LENGTH, output.body.len().into());
        if let Some(delay) = self.retry_after {
            head.insert(RETRY_AFTER, whole_seconds(delay).into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            head.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        dialect.put_request_id(id, &mut head);
        output.head = Some(Head { status: self.status, headers: head });
        output.is_ended = true;
    }

    /// The error as the body of an answer, or as the data of an event.
    pub(crate) fn put_body(&self, dialect: Dialect, id: &str, out: &mut BytesMut) {
        match dialect {
            Dialect::OpenAi => self.put_openai(out),
            Dialect::Anthropic => self.put_anthropic(id, out),
        }
    }

    fn put_openai(&self, out: &mut BytesMut) {
        put(out, r#"{"error":{"message":"#);
        put_text(out, &self.message);
        put(out, r#","type":"#);
        put_text(out, self.kind);
        put(out, r#","param":"#);
        put_text_or_null(out, self.param.as_deref());
        put(out, r#","code":"#);
        put_text_or_null(out, self.code.as_deref());
        put(out, "}}");
    }

    fn put_anthropic(&self, id: &str, out: &mut BytesMut) {
        put(out, r#"{"type":"error","error":{"type":"#);
        put_text(out, anthropic_kind(self.status));
        put(out, r#","message":"#);
        put_text(out, &self.message);
        put(out, r#"},"request_id":"#);
        put_text(out, id);
        put(out, "}");
    }
}

/// The `type` that OpenAI's API gives an error with this status.
fn kind(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        408 => "timeout_error",
        429 => "rate_limit_error",
        // This model does not support the request.
        501 => "invalid_request_error",
        // Nobody reads the answer to a request whose client went away.
        499 | 500.. => "server_error",
        _ => "invalid_request_error",
    }
}

/// docs.anthropic.com/en/api/errors. Their 529 is our 503.
fn anthropic_kind(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        408 | 504 => "timeout_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        501 => "invalid_request_error",
        503 | 529 => "overloaded_error",
        499 | 500.. => "api_error",
        _ => "invalid_request_error",
    }
}

fn code(code: Code) -> Option<&'static str> {
    match code {
        // Frameworks shorten the conversation when they read it.
        Code::OutOfRange => Some("context_length_exceeded"),
        Code::NotFound => Some("model_not_found"),
        Code::Unimplemented => Some("not_implemented"),
        Code::ResourceExhausted => Some("rate_limit_exceeded"),
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::InvalidArgument
        | Code::DeadlineExceeded
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss
        | Code::Unauthenticated => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn body(error: &ApiError, dialect: Dialect) -> Value {
        let mut out = BytesMut::new();
        error.put_body(dialect, "req_1", &mut out);
        serde_json::from_slice(&out).expect("an error is JSON")
    }

    #[test]
    fn every_code_has_its_status_and_type_in_both_apis() {
        for (code, status, openai, anthropic) in [
            (Code::InvalidArgument, 400, "invalid_request_error", "invalid_request_error"),
            (Code::OutOfRange, 400, "invalid_request_error", "invalid_request_error"),
            (Code::NotFound, 404, "invalid_request_error", "not_found_error"),
            (Code::Unauthenticated, 401, "authentication_error", "authentication_error"),
            (Code::PermissionDenied, 403, "permission_error", "permission_error"),
            (Code::ResourceExhausted, 429, "rate_limit_error", "rate_limit_error"),
            (Code::Unavailable, 503, "server_error", "overloaded_error"),
            (Code::DeadlineExceeded, 408, "timeout_error", "timeout_error"),
            (Code::Unimplemented, 501, "invalid_request_error", "invalid_request_error"),
            (Code::Internal, 500, "server_error", "api_error"),
            (Code::Unknown, 500, "server_error", "api_error"),
        ] {
            let error = ApiError::of(&Status::new(code, "so"));
            assert_eq!(status, error.status.as_u16(), "{code:?}");
            assert_eq!(openai, body(&error, Dialect::OpenAi)["error"]["type"], "{code:?}");
            assert_eq!(anthropic, body(&error, Dialect::Anthropic)["error"]["type"], "{code:?}");
        }
        let unknown = ApiError::of(&Status::new(Code::NotFound, "so"));
        assert_eq!("model_not_found", body(&unknown, Dialect::OpenAi)["error"]["code"]);
    }

    #[test]
    fn an_error_is_written_as_the_documents_have_it() {
        let error = ApiError::invalid("messages[2].role", "is \"no\none\"");
        let expected = json!({"error": {
            "message": "messages[2].role: is \"no\none\"",
            "type": "invalid_request_error",
            "param": "messages[2].role",
            "code": null,
        }});
        assert_eq!(expected, body(&error, Dialect::OpenAi));
        let expected = json!({
            "type": "error",
            "error": {"type": "invalid_request_error", "message": error.message},
            "request_id": "req_1",
        });
        assert_eq!(expected, body(&error, Dialect::Anthropic));
    }

    #[test]
    fn the_answer_says_when_to_come_again() {
        let full = Status::new(Code::ResourceExhausted, "full");
        for (status, expected) in [
            (full.clone(), Some("1")),
            (full.with_pushback(Duration::from_millis(2_500)), Some("3")),
            (Status::new(Code::Internal, "broken"), None),
        ] {
            let mut output = Output::default();
            let mesh = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static("9"))]);
            let headers = if expected.is_some() { mesh } else { HeaderMap::new() };
            ApiError::of(&status).answer(Dialect::OpenAi, "", &headers, &mut output);
            let head = output.head.expect("an answer has a head");
            let actual = head.headers.get(RETRY_AFTER).map(|value| value.to_str().unwrap());
            assert_eq!(expected, actual);
            assert_eq!(output.body.len().to_string(), head.headers[CONTENT_LENGTH]);
            assert!(output.is_ended);
        }
    }
}
