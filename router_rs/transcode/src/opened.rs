//! The result of a request's head: a call, or an immediate answer.

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, request};
use router_call::Door;
use router_protocol::grpc::{Status, describe_content_type};

use super::coder::{AnswerCoder, RequestCoder};
use super::status::{ErrorForm, http_status};
use super::unary::JSON;

const ACCEPT_POST: HeaderName = HeaderName::from_static("accept-post");

/// The classification of a request by its head.
#[derive(Debug)]
pub enum Opened {
    /// Another protocol's request: gRPC's, or plain HTTP. If it is plain HTTP and no route has its
    /// path, this is the answer (the path has a method, but not for this HTTP method).
    NotOurs(Option<Response<Bytes>>),
    /// A call. Its body has to be given to a [`super::Transcoded`].
    Call(Box<Transcoding>),
    /// Answered without a call.
    Answer(Response<Bytes>),
    /// A call of a service that has no such method; this is the answer, unless plain HTTP has a
    /// route of its own for the path.
    Misspelt(Response<Bytes>),
    /// The access rules do not allow the caller this path.
    Refused(Box<str>),
}

impl Opened {
    /// The result for a misspelt method: plain HTTP if that `has_route`, else an answer.
    #[must_use]
    pub fn unless(self, has_route: impl FnOnce() -> bool) -> Self {
        match self {
            Self::Misspelt(answer) if has_route() => Self::NotOurs(Some(answer)),
            Self::Misspelt(answer) => Self::Answer(answer),
            opened => opened,
        }
    }
}

/// A call in another protocol.
#[derive(Debug)]
pub struct Transcoding {
    /// The head that a gRPC client would have sent. Its path is that of a method, its timeout (if
    /// any) a `grpc-timeout`. The body is never empty, even if the client's is.
    pub head: request::Parts,
    /// The request may have several messages, and idle between them.
    pub is_stream: bool,
    /// The client asked for the head of the answer only (HEAD).
    pub(super) is_head: bool,
    pub door: Door,
    pub(super) answered_by: HeaderValue,
    pub(super) request: Box<dyn RequestCoder>,
    pub(super) answer: Box<dyn AnswerCoder>,
}

// === impl Transcoding ===

impl Transcoding {
    /// The head, once.
    pub fn take_head(&mut self) -> request::Parts {
        std::mem::replace(&mut self.head, Request::new(()).into_parts().0)
    }
}

/// The path has a method, but not for this HTTP method.
pub(super) fn wrong_method(allowed: &str) -> Response<Bytes> {
    let text = format!("this path takes {allowed}");
    let mut response = explained(StatusCode::METHOD_NOT_ALLOWED, text);
    let allowed = HeaderValue::from_str(allowed).expect("invariant: names of HTTP methods");
    response.headers_mut().insert(ALLOW, allowed);
    response
}

/// The method accepts other content types.
pub(super) fn wrong_content_type(
    parts: &request::Parts,
    accepted: &'static str,
) -> Response<Bytes> {
    let came = describe_content_type(&parts.headers);
    let text = format!("{came}, and {} takes {accepted}", parts.uri.path());
    let mut response = explained(StatusCode::UNSUPPORTED_MEDIA_TYPE, text);
    response.headers_mut().insert(ACCEPT_POST, HeaderValue::from_static(accepted));
    response
}

/// A status and a line for people: `curl -d` alone sends a form, and shows no headers.
fn explained(status: StatusCode, text: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(text + "\n"));
    *response.status_mut() = status;
    let text_type = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, text_type);
    response
}

/// An error that is known before there is a call.
pub(super) fn error_answer(form: ErrorForm, status: &Status) -> Response<Bytes> {
    let body = form.write(status, &HeaderMap::new(), None).to_string();
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = http_status(status.code);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    response
}
