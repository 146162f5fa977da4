//! The route, the deadline and the options of a gRPC call, from its head.

use std::sync::Arc;
use std::time::Instant;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, request};
use router_call::Door;
use router_dispatch::{CallOptions, Deployment, Head};
use router_protocol::cache_keys::cache_keys;
use router_protocol::grpc::{Code, Status, read_timeout, refuse_pickle};
use router_protocol::names;

use crate::access::Asker;
use crate::connection::ConnectionState;
use crate::upstream::{GrpcRoute, Upstream};

/// A request with a route.
pub(super) struct Forward {
    pub head: Head,
    pub deadline: Option<Instant>,
    /// The deadline of the answer's head only: a WebSocket may stay open longer.
    pub acceptance: Option<Instant>,
    pub upstream: Upstream,
    pub mirror: Option<Arc<Deployment>>,
}

/// Finds the route of a gRPC call.
pub(super) fn by_path(
    connection: &ConnectionState,
    asker: &Asker<'_>,
) -> impl FnOnce(&request::Parts) -> Result<GrpcRoute, Status> {
    |parts| connection.lookup.grpc(parts.uri.path(), &parts.headers, asker)
}

/// The route and deadline of a gRPC call that is allowed.
pub(super) fn admit_call(
    connection: &ConnectionState,
    parts: request::Parts,
    door: Door,
    received: Instant,
    route: impl FnOnce(&request::Parts) -> Result<GrpcRoute, Status>,
) -> Result<Forward, Status> {
    let deadline = read_grpc_head(&parts.headers, received)?;
    let cache_keys = cache_keys(&parts.headers)
        .map_err(|invalid| Status::new(Code::InvalidArgument, invalid.to_string()))?;
    let GrpcRoute { upstream, mirror, share } = route(&parts)?;
    let timeout = match deadline {
        Some(_) => upstream.request_timeout(),
        None => upstream.request_timeout().or(connection.front.request_timeout()),
    };
    let bound = timeout.map(|timeout| received + timeout);
    let is_idempotent = upstream.is_idempotent(parts.uri.path());
    let cost =
        names::cost(&parts.headers).map_err(|text| Status::new(Code::InvalidArgument, text))?;
    let options = CallOptions { is_idempotent, cost, ..options(connection) };
    let is_own = deadline.is_some() && (bound.is_none() || deadline <= bound);
    let deadline = if is_own { deadline } else { bound };
    let timeout_since = is_own.then_some(received);
    let head = Head {
        parts,
        door,
        received,
        prefix: String::new(),
        timeout_since,
        options,
        ranked: Vec::new(),
        cache_keys,
        share,
    };
    Ok(Forward { head, deadline, acceptance: None, upstream, mirror })
}

/// The options that all calls of a connection share.
pub(super) fn options(connection: &ConnectionState) -> CallOptions {
    CallOptions { caller: connection.number, ..CallOptions::default() }
}

/// The client's deadline.
fn read_grpc_head(headers: &HeaderMap, received: Instant) -> Result<Option<Instant>, Status> {
    refuse_pickle(headers.get(CONTENT_TYPE))?;
    Ok(read_timeout(headers)?.map(|timeout| received + timeout))
}
