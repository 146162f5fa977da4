//! Properties of a call that Python may read from any thread.

use std::borrow::Cow;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName};
use router_core::Cost;
use router_dispatch::is_asked;
use router_io::{Peer, Recipient, Remote, TlsSession};
use router_protocol::grpc::subtype;
use router_protocol::names;
use router_protocol::trace_context::{BAGGAGE, TRACEPARENT, TRACESTATE, TraceContext};

use super::http_head::HttpHead;
use super::probation::Probation;
use crate::link::{Link, Mailbox};

/// Properties of a connection.
#[derive(Debug)]
pub struct ConnectionInfo {
    pub peer: Peer,
    pub tls: Option<Arc<TlsSession>>,
    /// Calls come through a door of this process, for a client that has such a connection.
    pub(super) is_inner: bool,
    /// The server belongs to no mesh's data plane: mesh headers mean nothing there.
    pub(super) is_outside: bool,
    is_trusted: AtomicBool,
    /// `None`: the connection needs no proof.
    probation: Option<Arc<Probation>>,
}

impl ConnectionInfo {
    pub(super) fn new(remote: Remote) -> Self {
        Self {
            peer: remote.peer,
            tls: remote.tls,
            is_inner: false,
            is_outside: false,
            is_trusted: AtomicBool::new(false),
            probation: None,
        }
    }

    /// That of a peer which may prove itself.
    pub(super) fn on_probation(self, probation: Option<Arc<Probation>>) -> Self {
        Self { probation, ..self }
    }

    /// Whether user code sees the headers of the mesh: those of a trusted peer, and any where they
    /// are ordinary metadata.
    pub fn shows_mesh_headers(&self) -> bool {
        self.is_trusted() || self.is_outside
    }

    /// The info for a door of this process, which forwards the calls of a client.
    pub(super) fn inner(client: &Remote) -> Self {
        Self { is_inner: true, ..Self::new(client.clone()) }
    }

    /// The peer has proven that it holds the mesh token (design decision 12), and has the rights of
    /// members of the mesh.
    pub fn is_trusted(&self) -> bool {
        self.is_trusted.load(Ordering::Relaxed)
    }

    /// The peer is a router, of the mesh or of this process, and follows the rules of routers. The
    /// calls that it forwards may come from a stranger.
    pub fn is_router(&self) -> bool {
        self.is_inner || self.is_trusted()
    }

    pub(super) fn trust(&self) {
        self.is_trusted.store(true, Ordering::Relaxed);
        self.end_probation();
    }

    /// The peer has shown the token, and no longer counts as unproven.
    pub(super) fn end_probation(&self) {
        self.probation.iter().for_each(|probation| probation.end());
    }
}

/// One call: its request head, its connection, and the link to its task.
#[derive(Debug)]
pub struct ServedCall {
    pub(super) link: Link,
    pub head: http::request::Parts,
    /// When the call was let in.
    pub(super) since: Instant,
    /// The registered method's index, -1 for an unregistered path.
    pub method: i32,
    pub connection: Arc<ConnectionInfo>,
    /// A plain HTTP request, whose answer is not gRPC.
    pub is_http: bool,
    /// Nanoseconds that user code worked exclusively on the call; 0 if it could have worked on
    /// others.
    pub(super) alone_ns: AtomicU64,
    /// The bits of the amount that the call has cost so far; 0: unknown.
    pub(super) cost: AtomicU64,
    /// Why a file of the answer could not be sent.
    pub(super) file_error: OnceLock<io::Error>,
}

impl ServedCall {
    /// Records that user code has worked on the call for this long, and could work on no other one
    /// meanwhile. Call it before the answer.
    pub fn note_alone(&self, worked: Duration) {
        let nanos = u64::try_from(worked.as_nanos()).unwrap_or(u64::MAX);
        self.alone_ns.store(nanos.max(1), Ordering::Relaxed);
    }

    /// Records what the call has cost so far. Call it before the answer.
    pub fn note_cost(&self, cost: Cost) {
        self.cost.store(cost.amount().to_bits(), Ordering::Relaxed);
    }

    /// Why a file of the answer was not sent, or not all of it.
    pub fn file_error(&self) -> Option<&io::Error> {
        self.file_error.get()
    }

    /// See [`ServedCall::note_cost`].
    pub(super) fn cost(&self) -> Cost {
        Cost::new(f64::from_bits(self.cost.load(Ordering::Relaxed))).unwrap_or_default()
    }

    /// See [`ServedCall::note_alone`].
    pub(super) fn worked_alone(&self) -> Option<Duration> {
        let nanos = self.alone_ns.load(Ordering::Relaxed);
        (nanos > 0).then(|| Duration::from_nanos(nanos))
    }

    /// The head as plain HTTP; `None` for a gRPC call.
    pub fn http_head(&self) -> Option<HttpHead<'_>> {
        HttpHead::of(&self.head).filter(|_| self.is_http)
    }

    /// Its router wants to be told when work on it begins.
    pub fn tells_start(&self) -> bool {
        self.connection.is_trusted() && self.head.headers.contains_key(names::TELL_START)
    }

    pub fn path(&self) -> &str {
        self.head.uri.path()
    }

    /// The `:authority`, or the `host` header of older clients.
    pub fn host(&self) -> &str {
        let authority = self.head.uri.authority().map(http::uri::Authority::as_str);
        authority
            .or_else(|| self.head.headers.get(http::header::HOST)?.to_str().ok())
            .unwrap_or_default()
    }

    /// The codec of the request's messages.
    pub fn subtype(&self) -> Cow<'_, str> {
        subtype(self.head.headers.get(CONTENT_TYPE))
    }

    /// The caller is a handle: its messages are framed.
    pub fn is_framed(&self) -> bool {
        self.connection.is_trusted()
            && self.head.headers.get(names::FRAMING).is_some_and(|value| value == "1")
    }

    /// The trace context of a sampled call; empty for all others.
    pub fn traceparent(&self) -> &str {
        let headers = &self.head.headers;
        // Most calls have none, and every call is checked.
        if !TraceContext::of(headers).is_some_and(|context| context.is_sampled) {
            return "";
        }
        headers.get(TRACEPARENT).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The vendor-specific part of the trace context.
    pub fn tracestate(&self) -> Cow<'_, str> {
        listed(&self.head.headers, &TRACESTATE)
    }

    /// Properties that the caller propagates along the whole call
    /// (<https://www.w3.org/TR/baggage/>).
    pub fn baggage(&self) -> Cow<'_, str> {
        listed(&self.head.headers, &BAGGAGE)
    }

    /// The client wants an explanation of the routing decision.
    pub fn is_asked(&self) -> bool {
        is_asked(&self.head.headers)
    }

    /// The time since the call was let in.
    pub fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }

    /// The model that the call is for; empty for none.
    pub fn model_id(&self) -> Cow<'_, str> {
        let id = names::model_id(&self.head.headers);
        id.map_or(Cow::Borrowed(""), |id| String::from_utf8_lossy(id.as_bytes()))
    }
}

impl Recipient for ServedCall {
    fn look(&self) {
        self.link.wake();
    }
}

impl Mailbox for ServedCall {
    fn link(&self) -> &Link {
        &self.link
    }
}

/// A header whose value is a list, which may come in several parts.
fn listed<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Cow<'a, str> {
    let mut parts = headers.get_all(name).iter().map(|it| String::from_utf8_lossy(it.as_bytes()));
    let first = parts.next().unwrap_or_default();
    parts.fold(first, |all, part| Cow::Owned(format!("{all},{part}")))
}
