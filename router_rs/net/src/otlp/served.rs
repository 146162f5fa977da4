//! The span of a call that a server answers.

use std::borrow::Cow;

use http::header::USER_AGENT;
use http::{HeaderMap, HeaderName};
use router_core::Nanos;
use router_protocol::names::REQUEST_ID;
use router_protocol::trace_context::{SpanId, TraceContext};

use super::semantics::{self, End, GRPC};
use super::span::{Frame, Kind, Said};
use crate::server::{HttpHead, ServedCall};

/// The id and start that the server has chosen for the span of a call.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    pub span: SpanId,
    pub start_unix: Nanos,
}

/// How a call was answered.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    pub at_unix: Nanos,
    /// gRPC's number.
    pub code: u32,
    /// The status of plain HTTP whose body was sent as a whole; otherwise 0.
    pub http_status: u16,
    pub details: &'a str,
}

/// The span of a call, with attributes of its answer once there is one. `None` if the call belongs
/// to no trace.
pub fn span_of(
    served_call: &ServedCall,
    served: Served,
    answer: Option<Answer<'_>>,
) -> Option<Vec<u8>> {
    let headers = &served_call.head.headers;
    let caller = TraceContext::of(headers)?;
    let head = served_call.http_head();
    let name = head.map_or_else(
        || Cow::Borrowed(semantics::rpc_name(served_call.path())),
        |head| Cow::Owned(semantics::http_name(head.method(), route(&head))),
    );
    let frame = Frame {
        trace: caller.trace,
        span: served.span,
        parent: Some(caller.span),
        is_parent_remote: true,
        tracestate: &served_call.tracestate(),
        name: &name,
        kind: Kind::Server,
        start_unix: served.start_unix,
        end_unix: answer.map_or(Nanos::ZERO, |answer| answer.at_unix),
    };
    Some(frame.encode(answer.map_or("", |answer| answer.details), |said| {
        if let Some(head) = head {
            say_http_head(said, &head, headers);
        } else {
            semantics::say_rpc(said, GRPC, served_call.path());
            semantics::say_peer(said, &served_call.connection.peer.uri());
        }
        said.text_if_any("pyserve.model_id", &served_call.model_id());
        said.text_if_any("pyserve.request_id", &text(headers, &REQUEST_ID));
        if let Some(answer) = answer {
            semantics::say_end(said, answer.end(), false);
        }
    }))
}

impl Answer<'_> {
    fn end(&self) -> End {
        // An aborted body ends with a gRPC status.
        let is_whole = self.http_status != 0 && self.code == 0;
        if is_whole { End::Http(self.http_status) } else { End::Rpc(self.code) }
    }
}

fn route<'a>(head: &HttpHead<'a>) -> &'a str {
    Some(head.root_path()).filter(|path| !path.is_empty()).unwrap_or("/")
}

fn say_http_head(said: &mut Said<'_>, head: &HttpHead<'_>, headers: &HeaderMap) {
    semantics::say_http(said, head.method(), route(head));
    said.text("url.path", head.target().split('?').next().unwrap_or_default());
    said.text("url.scheme", head.scheme());
    said.text("network.protocol.version", head.version());
    if let Some(client) = head.client() {
        said.text("client.address", &client.ip().to_string());
    }
    said.text_if_any("user_agent.original", &text(headers, &USER_AGENT));
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Cow<'a, str> {
    let value = headers.get(name);
    value.map_or(Cow::Borrowed(""), |value| String::from_utf8_lossy(value.as_bytes()))
}
