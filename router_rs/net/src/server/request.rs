//! Handles the HEADERS of a stream: its request becomes a call, or is answered immediately.

use std::rc::Rc;

use h2::RecvStream;
use h2::server::SendResponse;
use http::header::CONTENT_TYPE;
use http::{Method as HttpMethod, Request, StatusCode};
use router_front::admit_other_http2;
use router_protocol::grpc::{Framed, is_grpc_content_type, lower_content_type};
use router_protocol::names;

use super::admit::{Body, admit_call, admit_http};
use super::connection_state::{ConnectionState, Guest};
use super::refusal::answer_http;
use super::turn_away::{missing_key, turn_away};
use super::{load, trust};

/// Takes a request: it becomes a call, or is answered.
pub(super) fn take(
    connection: &Rc<ConnectionState>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Framed>,
) {
    let (mut head, body) = request.into_parts();
    if connection.info.is_router() && head.headers.contains_key(names::HTTP) {
        return admit_http(connection, head, Body::Comes(body.into()), respond.into());
    }
    if !is_grpc_content_type(head.headers.get(CONTENT_TYPE)) {
        return match &connection.guest {
            Some(Guest { front, has_doors: true }) => {
                admit_other_http2(front, head, body, respond);
            }
            _ => answer_http(respond, StatusCode::UNSUPPORTED_MEDIA_TYPE),
        };
    }
    lower_content_type(&mut head.headers);
    if head.method != HttpMethod::POST {
        return answer_http(respond, StatusCode::METHOD_NOT_ALLOWED);
    }
    if trust::is_handshake(&head) {
        return trust::answer(connection, &head, &mut respond);
    }
    if let Some(key) = missing_key(connection, &head) {
        return turn_away(key, connection, head, respond.into());
    }
    if head.uri.path() == names::LOAD_PATH {
        return load::answer(connection, &head, body.into(), respond.into());
    }
    admit_call(connection, head, Body::Comes(body.into()), respond.into());
}
