//! Turns a request into a call: reads its head, takes a place at the gate, starts its task.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode, request};
use router_dispatch::coalesce::DataStream;
use router_io::Alarm;
use router_protocol::content_length;
use router_protocol::grpc::{
    CONTENT_TYPE_GRPC, Code, Encoding, Encodings, GRPC_ACCEPT_ENCODING, GRPC_ENCODING, Status,
    read_timeout, refuse_pickle, subtype,
};
use router_protocol::names;

use super::call::CallTask;
use super::connection_state::ConnectionState;
use super::http_body::HttpBody;
use super::http_head::{HttpHead, PlainHttp};
use super::intake::{Intake, Messages};
use super::load;
use super::measures::Said;
use super::methods::Method;
use super::outlet::{HttpRequest, Outlet, accepted_encoding};
use super::refusal::{refuse, refuse_http};
use super::request_body::Incoming;
use super::served_call::ServedCall;
use super::sink::Respond;
use super::state::NotAdmitted;

/// Admits a gRPC call.
pub(super) fn admit_call(
    connection: &Rc<ConnectionState>,
    head: request::Parts,
    body: Body,
    respond: Respond,
) {
    let server = &connection.server;
    let encodings = server.config.encodings;
    let (deadline, encoding) = match read_head(&head.headers, encodings) {
        Ok(read) => read,
        Err(status) => {
            let accepted = (GRPC_ACCEPT_ENCODING, encodings.header());
            return refuse(respond, &status, HeaderMap::from_iter([accepted]));
        }
    };
    let method = server.methods.find(head.uri.path());
    if let Err(status) = check_codec(connection, &method, &head) {
        return refuse(respond, &status, HeaderMap::new());
    }
    if let Err(refused) = enter(connection, method.weight, &head) {
        return keep_out(respond, refused, connection.info.is_router());
    }
    let default_encoding = accepted_encoding(&head.headers, server.config.default_encoding);
    let content_type = head.headers.get(CONTENT_TYPE).cloned().unwrap_or(CONTENT_TYPE_GRPC);
    let served_call = connection.served_call(head, deadline, method.index, false);
    // A method's own limit applies to handles only; a stranger gets no more memory here than
    // elsewhere.
    let own_max = method.message_bytes_max.filter(|_| served_call.is_framed());
    let (received, sent) = match own_max {
        Some(bytes_max) => (bytes_max.into(), bytes_max.into()),
        None => (server.config.receive_limit(method.receive_bytes_max), server.config.send_limit()),
    };
    let intake = Intake::Grpc(match body {
        Body::Comes(body) => Messages::new(body, encoding, received),
        Body::Whole(body) => Messages::of(body, encoding, received),
    });
    let outlet = Outlet::new(respond, content_type, default_encoding, sent);
    spawn(connection, served_call, method, intake, outlet);
}

/// Admits a plain HTTP request that an ingress forwards.
pub(super) fn admit_http(
    connection: &Rc<ConnectionState>,
    head: request::Parts,
    body: Body,
    respond: Respond,
) {
    let Some(http) = connection.server.methods.http() else {
        let text = "this server takes no plain HTTP requests";
        return refuse_http(respond, StatusCode::NOT_IMPLEMENTED, text);
    };
    let Some(view) = HttpHead::of(&head) else {
        let text = "the mesh's own header for plain HTTP is malformed";
        return refuse_http(respond, StatusCode::BAD_REQUEST, text);
    };
    let Ok(deadline) = read_deadline(&head.headers) else {
        let text = "the deadline of the request is malformed";
        return refuse_http(respond, StatusCode::BAD_REQUEST, text);
    };
    let request =
        HttpRequest { is_head: view.is_head_request(), is_websocket: view.is_websocket() };
    let is_whole = !request.is_websocket && body.comes_whole(&head.headers, http);
    if let Err(refused) = enter(connection, http.weight, &head) {
        return keep_out(respond, refused, true);
    }
    let served_call = connection.served_call(head, deadline, http.index, true);
    let method = Method {
        index: http.index,
        is_request_streaming: !is_whole,
        is_response_streaming: true,
        weight: http.weight,
        subtypes: None,
        message_bytes_max: None,
        receive_bytes_max: None,
    };
    let intake = Intake::Http(match body {
        Body::Comes(body) if request.is_websocket => HttpBody::of_websocket(body),
        Body::Comes(body) => HttpBody::new(body, is_whole),
        Body::Whole(body) => HttpBody::of(body, is_whole),
    });
    let outlet = Outlet::for_http(respond, request);
    spawn(connection, served_call, method, intake, outlet);
}

/// The body of a request.
pub(super) enum Body {
    /// After the head.
    Comes(Incoming),
    Whole(Bytes),
}

impl Body {
    /// Whether the body is handed over with its request. h2 and the wire ensure that a body is as
    /// long as announced; the ingress has ensured it for one that came whole.
    fn comes_whole(&self, headers: &HeaderMap, http: PlainHttp) -> bool {
        let body = match self {
            Body::Whole(body) => return body.len() <= http.whole_body_bytes_max,
            Body::Comes(body) => body,
        };
        let is_short = |bytes| bytes <= http.whole_body_bytes_max as u64;
        body.is_end_stream() || content_length(headers).is_some_and(is_short)
    }
}

fn enter(
    connection: &ConnectionState,
    weight: u32,
    head: &request::Parts,
) -> Result<(), NotAdmitted> {
    let may_bypass = || connection.info.is_trusted() && head.headers.contains_key(names::BYPASS);
    // Most calls have none, and a name given by a stranger is ignored.
    let asker = head.headers.get(names::ASKER).filter(|_| connection.info.is_trusted());
    connection.server.enter(weight, asker.and_then(load::asker), may_bypass)
}

/// Starts the task of a call that has a place at the gate.
fn spawn(
    connection: &Rc<ConnectionState>,
    served_call: Arc<ServedCall>,
    method: Method,
    intake: Intake,
    outlet: Outlet,
) {
    let registration = connection.calls.borrow_mut().insert(served_call.clone());
    tokio::task::spawn_local(CallTask {
        deadline: served_call.link.deadline.map(Alarm::at),
        served_call,
        connection: connection.clone(),
        method,
        intake,
        outlet,
        registration,
        unary: None,
        is_announced: false,
        said: Said::default(),
        is_user_done: true,
        waiting: VecDeque::new(),
    });
}

/// Refuses requests that the connection may not make, then those that the method does not take.
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
fn read_head(
    headers: &HeaderMap,
    encodings: Encodings,
) -> Result<(Option<Instant>, Encoding), Status> {
    let encoding = Encoding::from_header(headers.get(GRPC_ENCODING))?;
    encodings.check(encoding)?;
    Ok((read_deadline(headers)?, encoding))
}

fn read_deadline(headers: &HeaderMap) -> Result<Option<Instant>, Status> {
    Ok(read_timeout(headers)?.map(|timeout| Instant::now() + timeout))
}

/// Answers a call that the gate does not let in. A mark of the mesh lets a router know that it may
/// try another replica. Another client of a server that has ended gets `REFUSED_STREAM`.
fn keep_out(respond: Respond, refused: NotAdmitted, is_trusted: bool) {
    let (status, load) = match refused {
        NotAdmitted::Full { status, load } => (status, Some(load)),
        NotAdmitted::Shut if is_trusted => {
            (Status::new(Code::ResourceExhausted, "the replica has ended"), None)
        }
        NotAdmitted::Shut => return respond.send_reset(h2::Reason::REFUSED_STREAM),
    };
    let mut extra = HeaderMap::new();
    if is_trusted {
        extra.insert(names::REFUSED, HeaderValue::from_static("1"));
        extra.extend(load.map(|load| (names::LOAD, load)));
    }
    refuse(respond, &status, extra);
}
