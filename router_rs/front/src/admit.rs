//! Handles a request's head: it becomes a call, or is answered immediately.

use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use h2::RecvStream;
use h2::server::SendResponse;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use http::{HeaderMap, Method, Request, Response, StatusCode, request};
use router_call::Door;
use router_dispatch::{Awaited, COLLECTED_BYTES_MAX, CallOptions, End, Head, strip_mesh_headers};
use router_protocol::cache_keys::cache_keys;
use router_protocol::content_length;
use router_protocol::grpc::{
    ClientTimeout, Code, HttpFailure, Status, is_grpc_content_type, lower_content_type,
};
use router_protocol::names::{self, REQUEST_ID, WEBSOCKET};
use router_transcode::{Opened, Transcoded, Transcoding, refusal};

use crate::access::Asker;
use crate::call::{Call, fail, start};
use crate::connection::ConnectionState;
use crate::ends::grpc_end::{GrpcEnd, refuse};
use crate::ends::http2_end::Http2End;
use crate::ends::plain::{Kind, Manner, PlainEnd, Transport, body_too_large};
use crate::grpc_call::{Forward, admit_call, by_path, options};
use crate::heads::host::{check_authority, check_host};
use crate::heads::plain_head::{Origin, client_timeout, is_detached, rewrite};
use crate::heads::request_id;
use crate::heads::websocket;
use crate::upstream::{HttpRoute, OWN_PREFIX};
use crate::{builtin, llm};

/// How long after its head a body of unknown length, or a long one, is offered to a replica at the
/// latest. Arbitrary: longer than most clients need, shorter than an answer that waits for it.
const BODY_START_TIMEOUT: Duration = Duration::from_secs(1);

// === gRPC ===

/// Starts the task of a request over HTTP/2, or answers it.
pub(super) fn admit_http2(
    connection: &Rc<ConnectionState>,
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
) {
    connection.front.counters.calls.count();
    let (mut parts, body) = request.into_parts();
    if is_grpc_content_type(parts.headers.get(CONTENT_TYPE)) {
        lower_content_type(&mut parts.headers);
        return admit_grpc(connection, parts, body, respond);
    }
    admit_other(connection, parts, body, respond);
}

/// Like `admit_http2`, but for a non-gRPC request, on a connection that a server drives.
pub fn admit_other_http2<B: Buf + From<Bytes> + 'static>(
    connection: &Rc<ConnectionState>,
    parts: request::Parts,
    body: RecvStream,
    respond: SendResponse<B>,
) {
    connection.front.counters.calls.count();
    admit_other(connection, parts, body, respond);
}

fn admit_other<B: Buf + From<Bytes> + 'static>(
    connection: &Rc<ConnectionState>,
    mut parts: request::Parts,
    body: RecvStream,
    respond: SendResponse<B>,
) {
    let end = |body, respond| Http2End::new(body, respond);
    match websocket::take_connect(&mut parts) {
        Ok(true) => admit_plain(connection, parts, end(body, respond), Kind::WebSocket),
        Ok(false) => admit_plain(connection, parts, end(body, respond), Kind::Plain),
        Err(failure) => {
            let manner = manner(connection, &parts, Kind::Plain);
            answer_here(
                connection,
                PlainEnd::new(end(body, respond), connection, manner),
                &failure,
            );
        }
    }
}

fn admit_grpc(
    connection: &Rc<ConnectionState>,
    mut parts: request::Parts,
    body: RecvStream,
    respond: SendResponse<Bytes>,
) {
    let front = &connection.front;
    strip_mesh_headers(&mut parts.headers);
    if let Err(failure) = check_authority(&parts) {
        front.counters.count_here(Door::Grpc, Some(failure.status));
        let status = Status::new(Code::InvalidArgument, failure.text);
        return refuse(respond, failure.status, &status, &front.config.answered_by);
    }
    let asker = connection.asker(&parts.headers);
    let path = parts.uri.path();
    let admitted = if connection.lookup.sees_grpc(path, &parts.headers, &asker) {
        asker.admit();
        if parts.method != Method::POST {
            front.counters.count_here(Door::Grpc, Some(StatusCode::METHOD_NOT_ALLOWED));
            return refuse_method(respond);
        }
        request_id::complete(&mut parts.headers);
        let route = by_path(connection, &asker);
        admit_call(connection, parts, Door::Grpc, Instant::now(), route)
    } else {
        Err(asker.refuse(path))
    };
    match admitted {
        Ok(Forward { head, deadline, upstream, mirror, .. }) => {
            let is_bodiless = body.is_end_stream();
            let client = GrpcEnd::new(Http2End::new(body, respond), connection);
            // Only the method's server knows whether its body is a stream that may idle. A call
            // with a mirror is unary, and is copied once it is complete.
            let awaited = if mirror.is_some() { Awaited::Body } else { Awaited::Nothing };
            let call = Call { head, deadline, upstream, mirror, is_bodiless, awaited, client };
            start(connection, call);
        }
        Err(status) => {
            front.counters.count_here(Door::Grpc, End::Grpc(status.code).http());
            refuse(respond, StatusCode::OK, &status, &front.config.answered_by);
        }
    }
}

fn refuse_method(mut respond: SendResponse<Bytes>) {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    // An error means that the client is gone.
    let _nobody_to_tell = respond.send_response(response, true);
}

// === plain HTTP ===

/// Starts the task of a request that is not gRPC, or answers it.
pub(super) fn admit_plain<T: Transport + 'static>(
    connection: &Rc<ConnectionState>,
    mut parts: request::Parts,
    transport: T,
    kind: Kind,
) {
    let client = PlainEnd::new(transport, connection, manner(connection, &parts, kind));
    let announced = Announced::of(&parts.headers);
    strip_mesh_headers(&mut parts.headers);
    if let Err(failure) = check_host(&parts) {
        return answer_here(connection, client, &failure);
    }
    let asker = connection.asker(&parts.headers);
    let path = parts.uri.path();
    let opened = match kind {
        Kind::Plain if !path.starts_with(OWN_PREFIX) => {
            connection.lookup.open(&parts, &connection.front.transcoding, &asker)
        }
        _ if connection.lookup.sees_http(path, &asker) => Opened::NotOurs(None),
        _ => Opened::Refused(path.into()),
    };
    if !matches!(opened, Opened::Refused(_)) {
        asker.admit();
    }
    match opened {
        Opened::NotOurs(instead) => match connection.lookup.llm(&parts) {
            Some(found) if kind == Kind::Plain => llm::admit(connection, parts, client, found),
            _ => forward(connection, parts, &asker, client, announced, instead),
        },
        Opened::Call(call) => admit_transcoded(connection, &asker, client, call, announced),
        Opened::Answer(response) | Opened::Misspelt(response) => {
            answer_with(connection, client, response);
        }
        Opened::Refused(path) => {
            let status = asker.refuse(&path);
            let refusal = refusal(&parts, &status, &connection.front.transcoding);
            answer_with(connection, client, refusal);
        }
    }
}

/// Starts the task of a plain HTTP request; `instead` is the answer if no route has its path.
fn forward<T: Transport + 'static>(
    connection: &Rc<ConnectionState>,
    parts: request::Parts,
    asker: &Asker<'_>,
    mut client: PlainEnd<T>,
    announced: Announced,
    instead: Option<Response<Bytes>>,
) {
    if parts.uri.path().starts_with(OWN_PREFIX) {
        return answer_builtin(connection, &parts, client);
    }
    match prepare(connection, parts, asker, &client) {
        Ok(Forward { head, deadline, acceptance, upstream, mirror }) => {
            client.set_queue_full(upstream.queue_full_status(), upstream.retry_after());
            client.set_acceptance(acceptance);
            let is_bodiless = client.is_bodiless();
            let awaited = awaited(connection, client.kind(), announced);
            let mirror = mirror.filter(|_| client.kind() == Kind::Plain);
            let call = Call { head, deadline, upstream, mirror, is_bodiless, awaited, client };
            start(connection, call);
        }
        Err(failure) => match instead.filter(|_| is_about_the_path(failure.status)) {
            Some(response) => answer_with(connection, client, response),
            None => answer_here(connection, client, &failure),
        },
    }
}

/// No route has the path.
fn is_about_the_path(status: StatusCode) -> bool {
    matches!(status, StatusCode::NOT_FOUND | StatusCode::UNSUPPORTED_MEDIA_TYPE)
}

/// Starts the task of a call in another protocol.
fn admit_transcoded<T: Transport + 'static>(
    connection: &Rc<ConnectionState>,
    asker: &Asker<'_>,
    mut client: PlainEnd<T>,
    mut transcoding: Box<Transcoding>,
    announced: Announced,
) {
    client.transcode(transcoding.is_stream);
    let awaited = awaited(connection, client.kind(), announced);
    let mut parts = transcoding.take_head();
    parts.headers.insert(REQUEST_ID, client.request_id().clone());
    let door = transcoding.door;
    let client = Transcoded::new(client, *transcoding);
    let route = by_path(connection, asker);
    match admit_call(connection, parts, door, Instant::now(), route) {
        // The body of the upstream call is never empty, even if the client's is.
        Ok(Forward { head, deadline, upstream, mirror, .. }) => {
            let is_bodiless = false;
            let call = Call { head, deadline, upstream, mirror, is_bodiless, awaited, client };
            start(connection, call);
        }
        Err(status) => fail(connection, client, door, status),
    }
}

fn answer_with<T: Transport>(
    connection: &ConnectionState,
    mut client: PlainEnd<T>,
    response: Response<Bytes>,
) {
    connection.front.counters.count_here(door_of(client.kind()), Some(response.status()));
    let (head, body) = response.into_parts();
    client.answer(head, body);
}

pub(super) fn answer_here<T: Transport>(
    connection: &ConnectionState,
    mut client: PlainEnd<T>,
    failure: &HttpFailure,
) {
    connection.front.counters.count_here(door_of(client.kind()), Some(failure.status));
    client.tell(failure);
}

/// The door of a request that is not a call in another protocol.
fn door_of(kind: Kind) -> Door {
    if kind == Kind::WebSocket { Door::WebSocket } else { Door::Http }
}

fn answer_builtin<T: Transport>(
    connection: &ConnectionState,
    parts: &request::Parts,
    client: PlainEnd<T>,
) {
    let is_healthy = connection.front.is_healthy() && !connection.is_draining.get();
    match builtin::answer(&parts.method, parts.uri.path(), &connection.lookup, is_healthy) {
        Ok(response) => answer_with(connection, client, response),
        Err(failure) => answer_here(connection, client, &failure),
    }
}

/// Reads from the head how the request is to be handled.
pub(super) fn manner(connection: &ConnectionState, parts: &request::Parts, kind: Kind) -> Manner {
    Manner {
        grant: connection.front.transcoding.cors.grant(&parts.headers),
        request_id: request_id::of(&parts.headers),
        is_head: parts.method == Method::HEAD,
        is_detached: is_detached(&parts.headers),
        kind,
    }
}

fn prepare<T: Transport>(
    connection: &ConnectionState,
    mut parts: request::Parts,
    asker: &Asker<'_>,
    client: &PlainEnd<T>,
) -> Result<Forward, HttpFailure> {
    let front = &connection.front;
    if parts.method == Method::CONNECT {
        let text = "CONNECT opens WebSockets over HTTP/2 only";
        return Err(HttpFailure::new(StatusCode::METHOD_NOT_ALLOWED, text));
    }
    if client.kind() == Kind::WebSocket {
        websocket::check(&parts)?;
        parts.headers.remove(CONTENT_LENGTH); // Of no body; the frames are one.
    }
    check_length(connection, &parts.headers)?;
    let route = connection.lookup.http(parts.uri.path(), &parts.headers, asker)?;
    let client_timeout = client_timeout(&parts.headers)?;
    let cache_keys = cache_keys(&parts.headers)
        .map_err(|invalid| HttpFailure::new(StatusCode::BAD_REQUEST, invalid.to_string()))?;
    let timeout = match client_timeout {
        ClientTimeout::After(timeout) => Some(timeout),
        ClientTimeout::Never => None,
        ClientTimeout::Unsaid => route.upstream.request_timeout().or(front.request_timeout()),
    };
    let is_said = client_timeout != ClientTimeout::Unsaid;
    // It matters only if the deployment asks for retries.
    let below = parts.uri.path().strip_prefix(&*route.prefix).unwrap_or_default();
    let is_idempotent = route.upstream.may_repeat(&parts.method, below);
    let tells_start = !is_idempotent && route.upstream.tells_starts();
    let origin = Origin {
        client: connection.client(&parts.headers),
        root_path: &front.config.root_path,
        said: &connection.said,
    };
    rewrite(&mut parts, origin, &route.prefix)?;
    let mut request_id = client.request_id().clone();
    // Each id is different: in HPACK's table it would displace headers that are repeated.
    request_id.set_sensitive(true);
    parts.headers.insert(REQUEST_ID, request_id);
    // A client may give a longer timeout than the clock can count, which means no limit.
    let received = Instant::now();
    let until = timeout.and_then(|timeout| received.checked_add(timeout));
    let (mut deadline, mut acceptance) = (until, None);
    if client.kind() == Kind::WebSocket {
        parts.headers.insert(names::UPGRADE, WEBSOCKET);
        if !is_said {
            (deadline, acceptance) = (None, until);
        }
    }
    let cost = names::cost(&parts.headers)
        .map_err(|text| HttpFailure::new(StatusCode::BAD_REQUEST, text))?;
    let options = CallOptions { is_idempotent, tells_start, cost, ..options(connection) };
    let HttpRoute { upstream, mirror, share, prefix } = route;
    let door = door_of(client.kind());
    let head = Head {
        parts,
        door,
        received,
        prefix,
        timeout_since: None,
        options,
        ranked: Vec::new(),
        cache_keys,
        share,
    };
    Ok(Forward { head, deadline, acceptance, upstream, mirror })
}

/// Refuses a body whose announced length is too large before it is sent.
fn check_length(connection: &ConnectionState, headers: &HeaderMap) -> Result<(), HttpFailure> {
    let Some(limit) = connection.front.limits().body_bytes_max else { return Ok(()) };
    if content_length(headers).is_some_and(|length| length > limit) {
        connection.front.counters.body_bytes_exceeded.count();
        return Err(body_too_large(limit, &connection.lookup));
    }
    Ok(())
}

/// The announcements of the head about the body.
#[derive(Clone, Copy, Debug)]
struct Announced {
    is_small: bool,
    /// The client expects an interim answer first (`expect: 100-continue`).
    is_offer: bool,
}

impl Announced {
    fn of(headers: &HeaderMap) -> Self {
        let bytes = content_length(headers);
        let is_small = bytes.is_some_and(|bytes| bytes <= COLLECTED_BYTES_MAX as u64);
        Self { is_small, is_offer: headers.contains_key(EXPECT) }
    }
}

/// Decides how much of a body must arrive before the request is offered to a replica.
///
/// A body known to be small is awaited whole. One that may be a long upload, or whose client
/// expects an interim answer first, is not.
fn awaited(connection: &ConnectionState, kind: Kind, announced: Announced) -> Awaited {
    match kind {
        Kind::Plain | Kind::Transcoded { .. } if announced.is_small => Awaited::Body,
        // The client gets `100 Continue` when a replica takes the request, and otherwise need not
        // upload.
        Kind::Plain if announced.is_offer => Awaited::Nothing,
        Kind::Transcoded { is_stream: false } => Awaited::Body,
        Kind::WebSocket | Kind::Transcoded { is_stream: true } => Awaited::Nothing,
        Kind::Plain => {
            // Must be earlier than the time at which the client counts as stalled.
            let limit = connection.front.limits().body_timeout / 2;
            Awaited::Start(limit.min(BODY_START_TIMEOUT))
        }
    }
}
