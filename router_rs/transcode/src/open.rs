//! Handles a request's head: not ours, a call, or an immediate answer.

use http::header::{ACCESS_CONTROL_REQUEST_METHOD, CONTENT_TYPE};
use http::{HeaderName, Method, request};
use router_call::Door;
use router_protocol::grpc::is_grpc_content_type;

use super::connect;
use super::connect_type::ConnectType;
use super::cors::{asks_for_rpc, is_preflight};
use super::head::grpc_head;
use super::methods::{MethodTable, Sees};
use super::opened::{Opened, Transcoding, wrong_method};
use super::web::{WebAnswer, WebRequest, WebType};
use super::{Limits, rest};

/// Metadata that selects among applications with the same service.
const APPLICATION: HeaderName = HeaderName::from_static("application");

/// Classifies a request by its head; the caller may see its path.
pub fn open(
    methods: &MethodTable,
    parts: &request::Parts,
    limits: &Limits,
    sees: Sees<'_>,
) -> Opened {
    let path = parts.uri.path();
    // HTTP/1.1 has targets without a path, which is never a method's.
    if !path.starts_with('/') {
        return Opened::NotOurs(None);
    }
    let application = application(parts);
    let method = methods.find(path, application);
    if is_preflight(parts) {
        return preflight(methods, parts, method.is_some(), limits);
    }
    let content_type = parts.headers.get(CONTENT_TYPE);
    let opened = if let Some(web_type) = content_type.and_then(WebType::parse) {
        open_web(parts, web_type, limits)
    } else if is_grpc_content_type(content_type) {
        Opened::NotOurs(None)
    } else if method.is_some() || is_distinctly_connect(parts) {
        connect::open(methods, parts, method.map(|method| &**method), limits, sees)
    } else {
        match rest::open(methods, parts, application, limits, sees) {
            Opened::NotOurs(None) if is_misspelt(methods, parts, sees) => {
                Opened::Misspelt(connect::undescribed(methods, path, sees))
            }
            opened => opened,
        }
    };
    granted(opened, parts, limits)
}

/// Adds the CORS headers that let a page of another origin read an answer without a call.
fn granted(opened: Opened, parts: &request::Parts, limits: &Limits) -> Opened {
    match opened {
        Opened::Answer(mut answer) => {
            limits.cors.grant(&parts.headers).write(answer.headers_mut());
            Opened::Answer(answer)
        }
        Opened::Misspelt(mut answer) => {
            limits.cors.grant(&parts.headers).write(answer.headers_mut());
            Opened::Misspelt(answer)
        }
        other => other,
    }
}

/// Classifies a request whose path the caller may not see: a method that it may see can have that
/// path as a route. It learns nothing about other paths: neither from the answer, nor from the
/// time, since an unknown path is checked once more, too.
pub fn open_unseen(
    methods: &MethodTable,
    parts: &request::Parts,
    limits: &Limits,
    sees: Sees<'_>,
) -> Opened {
    // Browsers send no credentials with a preflight, so the rules cannot judge it; the request that
    // follows is judged.
    if is_preflight(parts) {
        let wanted = parts.headers.get(ACCESS_CONTROL_REQUEST_METHOD);
        let wanted = wanted.and_then(|value| value.to_str().ok()).unwrap_or_default();
        return Opened::Answer(limits.cors.preflight(&parts.headers, wanted));
    }
    let path = parts.uri.path();
    let content_type = parts.headers.get(CONTENT_TYPE);
    let is_of_its_path = content_type.and_then(WebType::parse).is_some()
        || is_grpc_content_type(content_type)
        || is_distinctly_connect(parts);
    if is_of_its_path {
        return Opened::Refused(path.into());
    }
    match rest::open(methods, parts, application(parts), limits, sees) {
        Opened::NotOurs(_) => {
            sees(path);
            Opened::Refused(path.into())
        }
        Opened::Refused(_) => Opened::Refused(path.into()),
        opened => granted(opened, parts, limits),
    }
}

fn application(parts: &request::Parts) -> Option<&str> {
    parts.headers.get(APPLICATION).and_then(|value| value.to_str().ok())
}

/// Whether a request for an unknown method looks like one for an existing service.
fn is_misspelt(methods: &MethodTable, parts: &request::Parts, sees: Sees<'_>) -> bool {
    let content_type = parts.headers.get(CONTENT_TYPE).and_then(ConnectType::parse);
    parts.method == Method::POST
        && content_type.is_some()
        && !methods.of_service(parts.uri.path(), sees).is_empty()
}

fn preflight(
    methods: &MethodTable,
    parts: &request::Parts,
    has_method: bool,
    limits: &Limits,
) -> Opened {
    let of_rest = methods.rest().allowed(parts.uri.path());
    let allowed = if has_method || (of_rest.is_empty() && asks_for_rpc(&parts.headers)) {
        "GET, POST".to_owned()
    } else if of_rest.is_empty() {
        return Opened::NotOurs(None);
    } else {
        of_rest
    };
    Opened::Answer(limits.cors.preflight(&parts.headers, &allowed))
}

/// Whether a request for a method without a description is nevertheless one of Connect's.
fn is_distinctly_connect(parts: &request::Parts) -> bool {
    let connect_type = parts.headers.get(CONTENT_TYPE).and_then(ConnectType::parse);
    connect_type.is_some_and(|connect_type| match connect_type {
        ConnectType::StreamProto | ConnectType::StreamJson => true,
        ConnectType::UnaryProto | ConnectType::UnaryJson => {
            parts.headers.contains_key(connect::VERSION)
        }
    })
}

fn open_web(parts: &request::Parts, web_type: WebType<'_>, limits: &Limits) -> Opened {
    if parts.method != Method::POST {
        return Opened::Answer(wrong_method("POST"));
    }
    let grant = limits.cors.grant(&parts.headers);
    Opened::Call(Box::new(Transcoding {
        head: grpc_head(parts, parts.uri.path(), web_type.of_grpc()),
        is_stream: true,
        is_head: false,
        door: Door::GrpcWeb,
        answered_by: limits.answered_by.clone(),
        request: Box::new(WebRequest::new(web_type)),
        answer: Box::new(WebAnswer::new(web_type, grant)),
    }))
}
