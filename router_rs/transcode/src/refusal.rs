//! The answer to callers whom the access rules refuse, in the protocol of their request.
//!
//! It depends only on the head and is made before any lookup, so that it is the same whether or not
//! the path exists.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, request};
use router_protocol::grpc::{HttpFailure, QUEUE_FULL_DEFAULT, Status};
use router_protocol::names::ANSWERED_BY;
use serde_json::json;

use super::Limits;
use super::coder::{AnswerCoder, Failure, Outbox};
use super::connect_type::ConnectType;
use super::head::answer_head;
use super::opened::error_answer;
use super::status::ErrorForm;
use super::stream::{END_FLAG, envelope};
use super::web::{WebAnswer, WebType};

/// The answer that reports `status` to the sender of this head.
pub fn refusal(parts: &request::Parts, status: &Status, limits: &Limits) -> Response<Bytes> {
    let content_type = parts.headers.get(CONTENT_TYPE);
    if let Some(web_type) = content_type.and_then(WebType::parse) {
        return of_web(parts, web_type, status, limits);
    }
    let connect_type = content_type.and_then(ConnectType::parse);
    let mut response = match connect_type.filter(|_| parts.method == Method::POST) {
        Some(stream) if stream.is_stream() => end_of_stream(stream, status),
        Some(_) => error_answer(ErrorForm::Connect, status),
        None if is_connect_get(parts) => error_answer(ErrorForm::Connect, status),
        None => {
            let failure = HttpFailure::of(status, QUEUE_FULL_DEFAULT);
            let head = failure.head(limits.answered_by.clone());
            Response::from_parts(head, failure.body())
        }
    };
    response.headers_mut().insert(ANSWERED_BY, limits.answered_by.clone());
    limits.cors.grant(&parts.headers).write(response.headers_mut());
    response
}

fn of_web(
    parts: &request::Parts,
    web_type: WebType<'_>,
    status: &Status,
    limits: &Limits,
) -> Response<Bytes> {
    let headers = HeaderMap::from_iter([(ANSWERED_BY, limits.answered_by.clone())]);
    let mut outbox = Outbox::default();
    let mut answer = WebAnswer::new(web_type, limits.cors.grant(&parts.headers));
    answer.fail(&Failure { status, headers: &headers, is_of_mesh: true }, &mut outbox);
    let head = outbox.head.expect("invariant: an answer that only fails is a head");
    Response::from_parts(head, Bytes::new())
}

fn end_of_stream(stream: ConnectType, status: &Status) -> Response<Bytes> {
    let error = ErrorForm::Connect.write(status, &HeaderMap::new(), None);
    let end = envelope(END_FLAG, json!({ "error": error }).to_string().as_bytes());
    let content_type = HeaderValue::from_static(stream.of_answer());
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, content_type)]);
    Response::from_parts(answer_head(StatusCode::OK, headers), end)
}

/// Whether the query marks a call of Connect.
fn is_connect_get(parts: &request::Parts) -> bool {
    let query = parts.uri.query().unwrap_or_default();
    parts.method == Method::GET && query.split('&').any(|pair| pair == "connect=v1")
}
