//! Names and values of the semantic conventions, release 1.44.0, as spans of calls have them.
//!
//! RPC: opentelemetry.io/docs/specs/semconv/rpc (release candidate); HTTP: .../http. Attributes
//! without a convention are called `pyserve.…`.

use std::net::IpAddr;

use router_protocol::grpc::Code;

use super::span::Said;

pub(super) const GRPC: &str = "grpc";
pub(super) const CONNECT: &str = "connectrpc";

/// Other methods may be any string, and do not make good span names.
const VERBS: [&str; 10] =
    ["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"];

/// The lowest statuses that are errors of the span: a client's mistake is not an error of the
/// server.
const SERVER_ERROR_MIN: u16 = 500;
const CLIENT_ERROR_MIN: u16 = 400;

/// For requests whose clients have left; no client ever sees it.
const LEFT: u16 = 499;

/// The end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// gRPC's number.
    Rpc(u32),
    Http(u16),
}

/// The span name of a call of `/package.Service/Method`.
pub(super) fn rpc_name(path: &str) -> &str {
    path.strip_prefix('/').unwrap_or(path)
}

pub(super) fn say_rpc(said: &mut Said<'_>, system: &str, path: &str) {
    said.text("rpc.system.name", system);
    said.text("rpc.method", rpc_name(path));
}

pub(super) fn http_name(verb: &str, route: &str) -> String {
    format!("{} {route}", if VERBS.contains(&verb) { verb } else { "HTTP" })
}

pub(super) fn say_http(said: &mut Said<'_>, verb: &str, route: &str) {
    if VERBS.contains(&verb) {
        said.text("http.request.method", verb);
    } else {
        said.text("http.request.method", "_OTHER");
        said.text("http.request.method_original", verb);
    }
    said.text("http.route", route);
}

/// Attributes that the end adds. Every code but OK is an error.
pub(super) fn say_end(said: &mut Said<'_>, end: End, is_client: bool) {
    match end {
        End::Rpc(number) => {
            let code = Code::from_number(number);
            said.text("rpc.response.status_code", code_name(code));
            if code != Code::Ok {
                said.error(code_name(code));
            }
        }
        End::Http(status) => {
            said.count("http.response.status_code", u64::from(status));
            let error_min = if is_client { CLIENT_ERROR_MIN } else { SERVER_ERROR_MIN };
            if status >= error_min || status == LEFT {
                said.error(&status.to_string());
            }
        }
    }
}

/// Attributes of a peer: `ipv4:127.0.0.1:1`, `unix:`, or an address and a port.
pub(super) fn say_peer(said: &mut Said<'_>, peer: &str) {
    if peer.starts_with("unix:") {
        return said.text("network.transport", "unix");
    }
    let address = peer.strip_prefix("ipv4:").or(peer.strip_prefix("ipv6:")).unwrap_or(peer);
    let Some((host, port)) = address.rsplit_once(':') else { return };
    let host = host.trim_matches(['[', ']']);
    let without_zone = host.split('%').next().unwrap_or(host);
    if without_zone.parse::<IpAddr>().is_err() {
        return;
    }
    said.text("network.transport", "tcp");
    said.text("network.peer.address", host);
    if let Ok(port) = port.parse::<u16>() {
        said.count("network.peer.port", u64::from(port));
    }
}

fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
