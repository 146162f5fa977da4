//! What happens at HEADERS: a request becomes a call, or is answered on the spot.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use h2::RecvStream;
use h2::server::SendResponse;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method as HttpMethod, Request, Response, StatusCode, request};

use super::call::CallTask;
use super::connection::ConnectionState;
use super::exchange::Exchange;
use super::intake::Intake;
use super::load;
use super::methods::Method;
use super::outlet::Outlet;
use super::state::Refused;
use super::trust;
use crate::grpc::{
    CONTENT_TYPE_GRPC, Code, Encoding, Framed, GRPC_ACCEPT_ENCODING, GRPC_ENCODING, Status,
    compress, is_grpc_content_type, read_timeout, refuse_pickle, subtype,
};
use crate::io::Alarm;
use crate::link::{Link, next_token};
use crate::mesh::names;

/// Admits the request and starts its task, or answers it.
pub(super) fn admit(
    connection: &Rc<ConnectionState>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Framed>,
) {
    let (head, body) = request.into_parts();
    if !is_grpc_content_type(head.headers.get(CONTENT_TYPE)) {
        return answer_http(respond, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
    if head.method != HttpMethod::POST {
        return answer_http(respond, StatusCode::METHOD_NOT_ALLOWED);
    }
    if trust::is_handshake(&head) {
        return trust::answer(connection, &head, &mut respond);
    }
    if head.uri.path() == names::LOAD_PATH {
        return load::answer(connection, respond);
    }
    let (deadline, encoding) = match read_head(&head.headers) {
        Ok(read) => read,
        Err(status) => return refuse(respond, &status, HeaderMap::new()),
    };
    let server = &connection.server;
    let method = server.methods.find(head.uri.path());
    if let Err(status) = check_codec(connection, &method, &head) {
        return refuse(respond, &status, HeaderMap::new());
    }
    let may_bypass = || connection.info.is_trusted() && head.headers.contains_key(names::BYPASS);
    if let Err(refused) = server.enter(method.weight, may_bypass) {
        return keep_out(respond, refused, connection.info.is_trusted());
    }
    let link = Link::new(next_token(), deadline, server.sink.clone(), connection.thread.clone());
    let default_encoding = accepted_encoding(&head.headers, server.config.default_encoding);
    let content_type = head.headers.get(CONTENT_TYPE).cloned().unwrap_or(CONTENT_TYPE_GRPC);
    let exchange = Arc::new(Exchange {
        link,
        head,
        method: method.index,
        connection: connection.info.clone(),
    });
    // A method's own limit is for handles; a stranger gets no more memory here than elsewhere.
    let own_max = method.message_bytes_max.filter(|_| exchange.is_framed());
    let receive_bytes_max = own_max.unwrap_or(server.config.receive_bytes_max);
    let send_bytes_max = own_max.unwrap_or(server.config.send_bytes_max);
    let registration = connection.calls.borrow_mut().insert(exchange.clone());
    tokio::task::spawn_local(CallTask {
        exchange,
        connection: connection.clone(),
        method,
        intake: Intake::new(body, encoding, receive_bytes_max),
        outlet: Outlet::new(respond, content_type, default_encoding, send_bytes_max),
        deadline: deadline.map(Alarm::at),
        registration,
        unary: None,
        is_announced: false,
        is_user_done: true,
        waiting: VecDeque::new(),
    });
}

/// Refuses what the connection may not speak, then what the method does not take.
fn check_codec(
    connection: &ConnectionState,
    method: &Method,
    head: &request::Parts,
) -> Result<(), Status> {
    let content_type = head.headers.get(CONTENT_TYPE);
    if !connection.info.is_trusted() {
        refuse_pickle(content_type)?;
    }
    if method.subtypes.is_none() {
        return Ok(());
    }
    method.check_subtype(head.uri.path(), &subtype(content_type))
}

/// Reads the deadline and the encoding of the request's messages.
fn read_head(headers: &HeaderMap) -> Result<(Option<Instant>, Encoding), Status> {
    let deadline = read_timeout(headers)?.map(|timeout| Instant::now() + timeout);
    Ok((deadline, Encoding::from_header(headers.get(GRPC_ENCODING))?))
}

/// What a call may be compressed with, given what its client accepts.
pub(super) fn accepted_encoding(headers: &HeaderMap, wish: Encoding) -> Encoding {
    let list = headers.get(GRPC_ACCEPT_ENCODING);
    if wish.is_accepted_by(list) { wish } else { Encoding::Identity }
}

/// Answers a call that the gate does not let in. A router learns that it may go elsewhere by a
/// mark of the mesh, another client of an ended server by `REFUSED_STREAM`.
fn keep_out(mut respond: SendResponse<Framed>, refused: Refused, is_trusted: bool) {
    let (status, load) = match refused {
        Refused::Full { status, load } => (status, Some(load)),
        Refused::Shut if is_trusted => {
            (Status::new(Code::ResourceExhausted, "the replica has ended"), None)
        }
        Refused::Shut => return respond.send_reset(h2::Reason::REFUSED_STREAM),
    };
    let mut extra = HeaderMap::new();
    if is_trusted {
        extra.insert(names::REFUSED, HeaderValue::from_static("1"));
        extra.extend(load.map(|load| (names::LOAD, load)));
    }
    refuse(respond, &status, extra);
}

/// A Trailers-Only answer: no task, nothing admitted. Dropping the stream tells a client that
/// still sends to stop (RST_STREAM with NO_ERROR).
pub(super) fn refuse(mut respond: SendResponse<Framed>, status: &Status, mut trailers: HeaderMap) {
    if status.code == Code::Unimplemented {
        // The specification asks for it with an unknown compression; it never does harm.
        trailers.insert(GRPC_ACCEPT_ENCODING, compress::ACCEPTED);
    }
    status.write(&mut trailers);
    trailers.insert(CONTENT_TYPE, CONTENT_TYPE_GRPC);
    let mut response = Response::new(());
    *response.headers_mut() = trailers;
    // An error means that the client is gone: there is nobody to tell.
    let _ = respond.send_response(response, true);
}

fn answer_http(mut respond: SendResponse<Framed>, status: StatusCode) {
    let mut response = Response::new(());
    *response.status_mut() = status;
    let _ = respond.send_response(response, true);
}
