//! Answers to requests that do not become calls.

use h2::server::SendResponse;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Response, StatusCode};
use router_protocol::grpc::{
    CONTENT_TYPE_GRPC, Code, Framed, GRPC_ACCEPT_ENCODING, HttpFailure, Message, Status, compress,
};
use router_protocol::names;

use super::sink::Respond;

/// A Trailers-Only answer: no task is started, nothing is admitted. Dropping the stream tells a
/// client that still sends to stop (RST_STREAM with NO_ERROR).
pub(super) fn refuse(respond: Respond, status: &Status, mut trailers: HeaderMap) {
    if status.code == Code::Unimplemented {
        // The specification requires it with an unknown compression; otherwise it does no harm.
        trailers.entry(GRPC_ACCEPT_ENCODING).or_insert(compress::ACCEPTED);
    }
    status.write(&mut trailers);
    trailers.insert(CONTENT_TYPE, CONTENT_TYPE_GRPC);
    let mut response = Response::new(());
    *response.headers_mut() = trailers;
    respond.send_whole(response, Framed::raw(Message::default()), HeaderMap::new());
}

/// As `refuse`, for plain HTTP.
pub(super) fn refuse_http(respond: Respond, status: StatusCode, text: &'static str) {
    let failure = HttpFailure::new(status, text);
    let head = failure.head(names::ANSWERED_BY_REPLICA);
    let body = Framed::raw(failure.body().into());
    respond.send_whole(Response::from_parts(head, ()), body, HeaderMap::new());
}

pub(super) fn answer_http(mut respond: SendResponse<Framed>, status: StatusCode) {
    let mut response = Response::new(());
    *response.status_mut() = status;
    let _ = respond.send_response(response, true);
}
