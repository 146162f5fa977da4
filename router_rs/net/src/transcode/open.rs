//! What happens to a request's head: not ours, a call, or an answer on the spot.

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Method, Response, StatusCode, request};

use super::Limits;
use super::coder::{AnswerCoder, RequestCoder};
use super::cors::{asks_for_rpc, is_preflight};
use super::head::grpc_head;
use super::methods::MethodTable;
use super::web::{WebAnswer, WebRequest, WebType};

/// What a request's head says.
#[derive(Debug)]
pub(crate) enum Opened {
    /// Another protocol's request: gRPC's, or plain HTTP. If it is plain HTTP and no route has its
    /// path, this is the answer (the path has a method, but not for this HTTP method).
    NotOurs(Option<Response<Bytes>>),
    /// A call. Its body has to be given to a [`super::Transcoded`].
    Call(Box<Transcoding>),
    /// Answered without a call.
    Answer(Response<Bytes>),
}

/// A call in another protocol.
#[derive(Debug)]
pub(crate) struct Transcoding {
    /// What a gRPC client would have sent. Its path is that of a method, its timeout (if any) a
    /// `grpc-timeout`. The body is never empty, even if that of the client is.
    pub head: request::Parts,
    pub(super) request: Box<dyn RequestCoder>,
    pub(super) answer: Box<dyn AnswerCoder>,
}

/// Says what a request is, by its head.
pub(crate) fn open(methods: &MethodTable, parts: &request::Parts, limits: &Limits) -> Opened {
    let path = parts.uri.path();
    let application = parts.headers.get("application").and_then(|value| value.to_str().ok());
    let method = methods.find(path, application);
    if is_preflight(parts) {
        let is_ours = method.is_some() || asks_for_rpc(&parts.headers);
        return if is_ours {
            Opened::Answer(limits.cors.preflight(&parts.headers, "POST"))
        } else {
            Opened::NotOurs(None)
        };
    }
    let content_type = parts.headers.get(CONTENT_TYPE);
    match content_type.and_then(WebType::parse) {
        Some(web_type) => open_web(parts, web_type, limits),
        None => Opened::NotOurs(None),
    }
}

fn open_web(parts: &request::Parts, web_type: WebType<'_>, limits: &Limits) -> Opened {
    if parts.method != Method::POST {
        return Opened::Answer(wrong_method("POST"));
    }
    let grant = limits.cors.grant(&parts.headers);
    Opened::Call(Box::new(Transcoding {
        head: grpc_head(parts, parts.uri.path(), web_type.of_grpc()),
        request: Box::new(WebRequest::new(web_type)),
        answer: Box::new(WebAnswer::new(web_type, grant)),
    }))
}

fn wrong_method(allowed: &'static str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}
